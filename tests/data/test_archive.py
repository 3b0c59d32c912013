"""Hostile archives: nothing is written outside their folder, and nothing is left of them."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from data_helpers import largest_file
from refusals import refused

from symloss.data import download
from symloss.data.download import extract
from symloss.writing import DiskFull


def member(name: str, kind: bytes = tarfile.REGTYPE, **attributes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = 0o755
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


def write_tar(path: Path, *members: tarfile.TarInfo, mode: str = "w:gz") -> Path:
    content = b"evil"
    with tarfile.open(path, mode) as tar:
        for info in (member("good", tarfile.DIRTYPE), member("good/file"), *members):
            info.size = len(content) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return path


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_a_good_archive(tmp_path, mode):
    archive = write_tar(tmp_path / "a.tar", member("./good/sub/more"), mode=mode)
    extract(archive, tmp_path / "data" / "good")
    assert (tmp_path / "data" / "good" / "file").read_text() == "evil"
    assert (tmp_path / "data" / "good" / "sub" / "more").read_text() == "evil"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["good"]


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (member("../evil"), "'../evil'"),
        (member("good/../../evil"), "'good/../../evil'"),
        (member("/tmp/evil"), "'/tmp/evil'"),
        (member("evil"), "'evil'"),
        (member("good/..\\..\\evil"), "evil'"),
        (member("good/evil", tarfile.SYMTYPE, linkname="/etc/passwd"), "link or device, 'good/evil'"),
        (member("good/evil", tarfile.SYMTYPE, linkname="../.."), "link or device, 'good/evil'"),
        (member("good/evil", tarfile.LNKTYPE, linkname="../../x"), "link or device, 'good/evil'"),
        (member("good/evil", tarfile.FIFOTYPE), "link or device, 'good/evil'"),
        (member("good/evil", tarfile.CHRTYPE), "link or device, 'good/evil'"),
    ],
    ids=[
        *("parent", "parent inside", "absolute", "beside", "backslash"),
        *("symlink", "symlink up", "hard link", "pipe", "device"),
    ],
)
def test_hostile_members(tmp_path, info, said):
    home = tmp_path / "data"
    archive = write_tar(tmp_path / "a.tar.gz", info)
    with refused(ValueError, archive, "must hold only", said):
        extract(archive, home / "good")
    assert list(home.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "data"]


def bomb(path: Path, *members: tuple[tarfile.TarInfo, int]) -> Path:
    """An archive of zeros, packed to a thousandth; the size that is announced, and the bytes that are there."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for info, size in members:
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            file.write(bytes(size))
        file.write(bytes(1024))
    return path


def test_too_many_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "UNPACKED", 100_000)
    good = bomb(tmp_path / "a.tar.gz", (member("good/a", size=51_200), 51_200))
    extract(good, tmp_path / "data" / "good")
    several = [(member(f"good/{name}", size=51_200), 51_200) for name in "ab"]
    for members in (several, [(member("good/a", size=10**12), 0)]):
        path = bomb(tmp_path / "b.tar.gz", *members)
        with refused(ValueError, path, "no more than 100000 bytes", "got more"):
            extract(path, tmp_path / "more" / "good")
        assert list((tmp_path / "more").iterdir()) == []


def test_too_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "MEMBERS", 5)
    path = bomb(tmp_path / "a.tar.gz", *((member(f"good/{k}"), 0) for k in range(6)))
    with refused(ValueError, path, "in 5 files", "got more"):
        extract(path, tmp_path / "good")


def test_a_head_that_would_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_AT_ONCE", 10_000)
    path = bomb(tmp_path / "a.tar.gz", (member("good/a", tarfile.XHDTYPE, size=51_200), 51_200))
    with refused(ValueError, path, "must unpack to no more than"):
        extract(path, tmp_path / "good")


def test_heads_without_end(tmp_path):
    heads = [(member("good/a", tarfile.XHDTYPE), 0)] * 3000
    with refused(ValueError, "whole tar archive"):
        extract(bomb(tmp_path / "a.tar.gz", *heads), tmp_path / "good")


def test_the_wrong_folder(tmp_path):
    archive = write_tar(tmp_path / "a.tar.gz")
    with refused(ValueError, archive, "below other/", "got 'good'"):
        extract(archive, tmp_path / "other")


def test_no_folder(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w"):
        pass
    with refused(ValueError, "must hold the folder good", "got none"):
        extract(tmp_path / "a.tar", tmp_path / "good")


@pytest.mark.parametrize("keep", [0, 40, -20], ids=["empty", "head", "all but the end"])
def test_a_damaged_archive_leaves_nothing(tmp_path, keep):
    home = tmp_path / "data"
    archive = write_tar(tmp_path / "a.tar.gz")
    archive.write_bytes(archive.read_bytes()[:keep])
    with refused(ValueError, archive, "whole tar archive", "damaged"):
        extract(archive, home / "good")
    assert list(home.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path):
    home = tmp_path / "data"
    archive = write_tar(tmp_path / "a.tar.gz")
    with largest_file(3), refused(DiskFull, home / "good", "cannot be written", "File too large"):
        extract(archive, home / "good")
    assert list(home.iterdir()) == []
