"""Fetching, against real servers on loopback: whole, resumed, cut off, changed, and on a full disk."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.server
import io
import socket
import tarfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from data_helpers import largest_file, python2_pickle, random_bytes, write_idx
from in_turn import in_turn
from refusals import refused

from symloss.data import download, get, open_data
from symloss.data.download import SOURCES, Source, extract
from symloss.writing import DiskFull


@dataclass
class Shop:
    """What a server offers, how it behaves, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cut_after: int | None = None
    silent: bool = False
    length: bool = True
    moved: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def answer(self, name: str, wanted: str | None) -> tuple[int, dict[str, str], bytes]:
        if name in self.moved:
            return 302, {"Location": self.moved[name]}, b""
        content = self.files.get(name)
        if content is None:
            return 404, {}, b""
        if wanted is None or not self.ranges:
            return 200, {}, content
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            return 416, {"Content-Range": f"bytes */{len(content)}"}, b""
        return 206, {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}, content[start:]


@pytest.fixture
def shop(monkeypatch):
    """A server on loopback, which is reached directly, whatever this machine's settings."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    shop, released = Shop(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            shop.asked.append((self.path, wanted))
            if shop.silent:
                released.wait(30)
                return
            code, headers, content = shop.answer(self.path.removeprefix("/data/"), wanted)
            self.send_response(code)
            length = {"Content-Length": str(len(content))} if shop.length else {}
            for key, value in (headers | length).items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(content[: shop.cut_after])

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        shop.url = f"http://127.0.0.1:{server.server_port}/data"
        yield shop
        released.set()
        server.shutdown()
        thread.join()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


CONTENT = random_bytes(1_000_000).tobytes()


@pytest.fixture
def blob(shop, monkeypatch):
    """One file of a megabyte."""
    shop.files["blob"] = CONTENT
    monkeypatch.setitem(SOURCES, "blob", Source(shop.url, "blob", {"blob": md5(CONTENT)}, {}))
    return shop


def part(root: Path, name: str = "blob.part") -> Path:
    """What has arrived so far."""
    (root / "blob").mkdir(exist_ok=True)
    return root / "blob" / name


def told(root: Path, **options: object) -> list[tuple[str, int, int | None]]:
    """Fetch the file, and return what was said meanwhile."""
    news = []
    get("blob", root, progress=lambda *each: news.append(each), **options)
    assert there(root) == {"blob": CONTENT}
    return news


def there(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "blob").iterdir()}


def test_files_are_fetched_verified_and_not_fetched_again(tmp_path, shop, monkeypatch):
    write_idx(tmp_path / "published", packed=True)
    shop.files = {path.name: path.read_bytes() for path in (tmp_path / "published").iterdir()}
    files = {name: md5(content) for name, content in shop.files.items()}
    monkeypatch.setitem(SOURCES, "mnist", SOURCES["mnist"]._replace(url=shop.url, files=files))
    monkeypatch.setenv("SYMLOSS_DATA", str(tmp_path))
    assert get("mnist") == tmp_path / "mnist"
    assert {path.name: path.read_bytes() for path in (tmp_path / "mnist").iterdir()} == shop.files
    assert len(open_data("mnist", root=tmp_path).train) == 12
    damaged = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    damaged.write_bytes(b"damaged")
    shop.asked.clear()
    for _ in range(2):
        get("mnist", tmp_path)
        assert [path for path, _ in shop.asked] == ["/data/train-labels-idx1-ubyte.gz"]
    assert damaged.read_bytes() == shop.files[damaged.name]


def test_a_mirror_and_progress(tmp_path, blob, monkeypatch):
    monkeypatch.setitem(SOURCES, "blob", SOURCES["blob"]._replace(url="http://127.0.0.1:9/"))
    news = told(tmp_path, base_url=blob.url + "/")
    assert (news[0], news[-1]) == (("blob", 0, len(CONTENT)), ("blob", len(CONTENT), len(CONTENT)))
    assert [done for _, done, _ in news] == sorted({done for _, done, _ in news})
    assert len(news) > 2


@pytest.mark.parametrize(("ranges", "start"), [(True, 300_000), (False, 0)])
def test_a_part_is_continued_if_the_server_can(tmp_path, blob, ranges, start):
    blob.ranges = ranges
    part(tmp_path).write_bytes(CONTENT[:300_000])
    assert told(tmp_path)[0] == ("blob", start, len(CONTENT))
    assert blob.asked == [("/data/blob", "bytes=300000-")]


@in_turn("given", [CONTENT, CONTENT + b"x", b"x" * 1000])
def test_a_part_that_is_whole_or_of_something_else(tmp_path, blob, given):
    part(tmp_path).write_bytes(given)
    if given != CONTENT:
        part(tmp_path, "blob").write_bytes(b"mine")
        found = md5(given + CONTENT[len(given) :])
        with refused(ValueError, f"{blob.url}/blob", f"must have the MD5 {md5(CONTENT)}; got {found}", "deleted"):
            get("blob", tmp_path)
        assert there(tmp_path) == {"blob": b"mine"}
    told(tmp_path)


def test_a_connection_that_is_cut_or_a_full_disk_keeps_what_arrived(tmp_path, blob):
    blob.cut_after = 1000
    with refused(ConnectionError, f"{blob.url}/blob", "ended after 3000 of 1000000 bytes", "3000 bytes are kept"):
        get("blob", tmp_path)
    assert there(tmp_path) == {"blob.part": CONTENT[:3000]}
    blob.cut_after = 400_000
    told(tmp_path)
    assert [wanted for _, wanted in blob.asked[3:]] == ["bytes=3000-", "bytes=403000-", "bytes=803000-"]
    (tmp_path / "blob" / "blob").unlink()
    blob.cut_after, asked = None, len(blob.asked)
    with largest_file(600_000), refused(DiskFull, "has no room for blob: ", "What has arrived is kept"):
        get("blob", tmp_path)
    assert there(tmp_path) == {"blob.part": CONTENT[:600_000]}
    told(tmp_path)
    assert blob.asked[asked:] == [("/data/blob", None), ("/data/blob", "bytes=600000-")]


def test_no_file_no_answer_and_no_server(tmp_path, blob, monkeypatch):
    blob.files.clear()
    with refused(ConnectionError, f"{blob.url}/blob", "404 Not Found"):
        get("blob", tmp_path)
    assert len(blob.asked) == 1
    monkeypatch.setattr(download, "TIMEOUT", 0.05)
    blob.silent = True
    with refused(ConnectionError, f"{blob.url}/blob", "timed out", "0 bytes are kept"):
        get("blob", tmp_path)
    assert len(blob.asked) == 1 + download.TRIES
    with socket.socket() as closed:  # nobody listens there
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        with refused(ConnectionError, address, "Connection refused"):
            get("blob", tmp_path, base_url=address)


@in_turn("length", [True, False])
def test_a_file_that_is_too_large(tmp_path, blob, monkeypatch, length):
    monkeypatch.setattr(download, "LARGEST_FILE", len(CONTENT) - 1)
    blob.length = length
    part(tmp_path).write_bytes(CONTENT[:300_000])
    with refused(ValueError, f"{blob.url}/blob", f"no more than {len(CONTENT) - 1} bytes", "nothing of it is kept"):
        get("blob", tmp_path)
    assert there(tmp_path) == {}
    monkeypatch.setattr(download, "LARGEST_FILE", len(CONTENT))
    told(tmp_path)


def test_only_http_is_followed(tmp_path, blob):
    for address in ("ftp://127.0.0.1:9/blob", "file:///etc/passwd", "FTP://127.0.0.1:9/blob"):
        blob.moved = {"blob": address}
        blob.asked.clear()
        with refused(ConnectionError, f"{blob.url}/blob", "302", address.lower()):
            get("blob", tmp_path)
        assert len(blob.asked) == 1
    blob.files["other"] = CONTENT
    blob.moved = {"blob": f"{blob.url}/other"}
    told(tmp_path)


def test_an_archive_is_unpacked_verified_and_not_fetched_again(tmp_path, shop, monkeypatch):
    archive, packed, unpacked = "cifar-10-python.tar.gz", io.BytesIO(), {}
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for k, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
            content = python2_pickle("labels", [k, 9], random_bytes(2, 3072, seed=k))
            tar.addfile(member(f"cifar-10-batches-py/{name}", size=len(content)), io.BytesIO(content))
            unpacked[name] = md5(content)
    shop.files[archive] = packed.getvalue()
    source = Source(shop.url, "cifar-10-batches-py", {archive: md5(packed.getvalue())}, unpacked)
    monkeypatch.setitem(SOURCES, "cifar10", source)
    folder = get("cifar10", tmp_path)
    assert list(tmp_path.iterdir()) == [folder]
    assert open_data("cifar10", root=tmp_path).train.labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    get("cifar10", tmp_path)
    assert len(shop.asked) == 1
    (folder / "test_batch").write_bytes(b"damaged")
    for spoil in (lambda: None, (folder / "test_batch").unlink):
        spoil()
        with refused(ValueError, folder / "test_batch", "missing or not the publisher's", f"Delete {folder}"):
            get("cifar10", tmp_path)
    assert len(shop.asked) == 1


def member(name: str, kind: bytes = tarfile.REGTYPE, **attributes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = 0o755
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


def write_tar(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info in (member("good", tarfile.DIRTYPE), member("good/file"), *members):
            info.size = len("evil") if info.isreg() else 0
            tar.addfile(info, io.BytesIO(b"evil"))
    return path


LINKS = tarfile.SYMTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE


@in_turn(
    "info, said",
    [
        *((member(name), repr(name)) for name in ("../evil", "good/../../evil", "/tmp/evil", "evil")),
        (member("good/..\\..\\evil"), "evil'"),
        *(
            (member("good/evil", kind, linkname=link), "link or device, 'good/evil'")
            for kind, link in zip(LINKS, ("/etc/passwd", "../..", "../../x", "", ""), strict=True)
        ),
    ],
)
def test_hostile_members(tmp_path, info, said):
    home, archive = tmp_path / "data", write_tar(tmp_path / "a.tar.gz", info)
    with refused(ValueError, archive, "must hold only", said):
        extract(archive, home / "good")
    assert list(home.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "data"]


def bomb(path: Path, *members: tuple[tarfile.TarInfo, int]) -> Path:
    """An archive of zeros, packed to a thousandth; the size that is announced, and the bytes that are there."""
    content = b"".join(info.tobuf(tarfile.GNU_FORMAT) + bytes(size) for info, size in members)
    path.write_bytes(gzip.compress(content + bytes(1024), 1))
    return path


HEAD = member("good/a", tarfile.XHDTYPE, size=51_200)
MORE = ("no more than 100000 bytes", "got more")


@in_turn(
    "limits, members, ingredients",
    [
        ({"UNPACKED": 100_000}, [(member("good/a", size=51_200), 51_200)], None),
        ({"UNPACKED": 100_000}, [(member(f"good/{name}", size=51_200), 51_200) for name in "ab"], MORE),
        ({"UNPACKED": 100_000}, [(member("good/a", size=10**12), 0)], MORE),
        ({"MEMBERS": 5}, [(member(f"good/{k}"), 0) for k in range(6)], ("in 5 files", "got more")),
        ({"_AT_ONCE": 10_000}, [(HEAD, 51_200)], ("must unpack to no more than",)),  # would fill the memory
        ({}, [(member("good/a", tarfile.XHDTYPE), 0)] * 3000, ("whole tar archive",)),  # heads without end
    ],
)
def test_bombs(tmp_path, monkeypatch, limits, members, ingredients):
    for name, value in limits.items():
        monkeypatch.setattr(download, name, value)
    path, home = bomb(tmp_path / "a.tar.gz", *members), tmp_path / "data"
    with contextlib.nullcontext() if ingredients is None else refused(ValueError, path, *ingredients):
        extract(path, home / "good")
    assert len(list(home.iterdir())) == (ingredients is None)


def test_a_damaged_archive_leaves_nothing(tmp_path):
    home, archive = tmp_path / "data", write_tar(tmp_path / "a.tar.gz")
    with refused(ValueError, archive, "below other/", "got 'good'"):
        extract(archive, home / "other")
    whole = archive.read_bytes()
    for keep in (0, 40, -20):
        archive.write_bytes(whole[:keep])
        with refused(ValueError, archive, "whole tar archive", "damaged"):
            extract(archive, home / "good")
    tarfile.open(archive, "w:gz").close()
    with refused(ValueError, "must hold the folder good", "got none"):
        extract(archive, home / "good")
    assert list(home.iterdir()) == []


def test_a_full_disk_or_an_interrupt_leaves_nothing_and_a_folder_takes_its_place_whole(tmp_path, monkeypatch):
    home, archive = tmp_path / "data", write_tar(tmp_path / "a.tar.gz", member("./good/sub/more"))
    with largest_file(3), refused(DiskFull, home / "good", "cannot be written", "File too large"):
        extract(archive, home / "good")

    def interrupted(_: tarfile.TarFile, folder: str, *given: object, **named: object) -> None:
        (Path(folder) / "good").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(tarfile.TarFile, "extractall", interrupted)
    with pytest.raises(KeyboardInterrupt):
        extract(archive, home / "good")
    monkeypatch.undo()
    assert list(home.iterdir()) == []
    extract(archive, home / "good")
    found = {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert found == {"good/file": "evil", "good/sub/more": "evil"}


@in_turn(
    "name, ingredients",
    [
        ("cifar11", ("no data set", "did you mean 'cifar10'?")),
        ("digits", ("digits cannot be downloaded", "scikit-learn")),
        ("webvision-mini", ("data.vision.ee.ethz.ch", "{root}/webvision")),
        ("webvision-mini-imagenet", ("data.vision.ee.ethz.ch", "image-net.org", "{root}/ilsvrc12/val")),
        ("cifar-n", ("https://github.com/UCSC-REAL/cifar-10-100n", "CIFAR-10_human.pt", "into {root}")),
    ],
)
def test_what_cannot_be_fetched_and_that_the_others_have_checksums(tmp_path, name, ingredients):
    with refused(ValueError, name, *(text.format(root=tmp_path) for text in ingredients)):
        get(name, tmp_path)
    sums = [md5 for source in SOURCES.values() for md5 in source.files.values()]
    assert len(set(sums)) == len(sums) == 12
    assert all(len(bytes.fromhex(text)) == 16 for text in sums)
    assert all(source.url.startswith("http") and source.url.endswith("/") for source in SOURCES.values())
    single = [name for name, source in SOURCES.items() if source.folder == name]
    assert single == [name for name, source in SOURCES.items() if len(source.files) > 1] == ["mnist", "fashion-mnist"]
