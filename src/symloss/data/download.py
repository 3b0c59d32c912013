"""Download a data set from its publisher, and unpack it.

Files are checked, an interrupted download is continued, and an archive writes nothing outside its folder.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import re
import tarfile
import tempfile
import tomllib
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, NoReturn, cast

from symloss.checks import nearest
from symloss.environment import data_root
from symloss.noise.spec import HUMAN_LABELS
from symloss.writing import DiskFull, clear_write_errors, disk_is_full

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes received so far, and their final number, if the server tells it."""

TIMEOUT = 60.0  # seconds of silence after which a connection is given up

LARGEST_FILE = 2**30  # bytes of a file; the largest that is published has 170 million

TRIES = 3
_BLOCK = 2**18


def get(name: str, root: Path | None = None, *, progress: Progress | None = None, base_url: str | None = None) -> Path:
    """Download a data set and return its folder. Files that are there already are checked.

    A download that was interrupted is continued by the next call.

    Args:
        name: mnist, fashion-mnist, cifar10 or cifar100.
        root: the folder of all data sets; None for :func:`symloss.data.data_root`.
        progress: called with a file's name, the bytes received so far, and their final number or None.
        base_url: the address of a mirror with the same files.

    >>> get("digits")
    Traceback (most recent call last):
    ValueError: digits cannot be downloaded from here: it is part of scikit-learn and always there
    """
    root = data_root() if root is None else root
    if name in BY_HAND:
        raise ValueError(f"{name} cannot be downloaded from here: {by_hand(name, root)}")
    if name not in SOURCES:
        raise ValueError(f"no data set is called {name!r}; {nearest(name, [*SOURCES, *BY_HAND])}")
    source = SOURCES[name]
    base_url = (base_url or source.url).rstrip("/") + "/"
    folder = root / source.folder
    packed = source.folder != name
    if packed and folder.is_dir():
        for file, md5 in source.unpacked.items():
            if not (folder / file).is_file() or _md5(folder / file) != md5:
                raise ValueError(
                    f"{folder / file} is missing or not the publisher's. Delete {folder} and download it again."
                )
        return folder
    for file, md5 in source.files.items():
        target = (root if packed else folder) / file
        _fetch(base_url + file, md5, target, progress)
        if packed:
            extract(target, folder)
            target.unlink()
    return folder


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _fetch(url: str, md5: str, target: Path, progress: Progress | None) -> None:
    if target.is_file() and _md5(target) == md5:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    _download(url, part, lambda done, total: progress(target.name, done, total) if progress else None)
    found = _md5(part)
    if found != md5:
        part.unlink()
        raise ValueError(
            f"{url} must have the MD5 {md5}; got {found}: the file was damaged in transit or has changed, "
            "and what had arrived is deleted"
        )
    part.replace(target)


def _download(url: str, part: Path, progress: Callable[[int, int | None], None]) -> None:
    """Download the rest of a partial file. A connection that breaks is tried again."""
    problem = ""
    for _ in range(TRIES):
        try:
            _transfer(url, part, progress)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # nothing is missing
            raise ConnectionError(f"Could not download {url}: HTTP {error.code} {error.reason}.") from error
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and disk_is_full(error):
                raise DiskFull(
                    f"{part.parent} has no room for {part.name.removesuffix('.part')}: {error.strerror}. What has "
                    "arrived is kept; rerun the same command to resume."
                ) from error
            problem = str(getattr(error, "reason", error)) or type(error).__name__
    have = part.stat().st_size if part.exists() else 0
    raise ConnectionError(
        f"Could not download {url}: {problem}. {have} bytes are kept; rerun the same command to resume."
    )


class _NoFtp(urllib.request.FTPHandler):
    """Refuse redirections to FTP, which urllib follows."""

    def ftp_open(self, req: urllib.request.Request) -> NoReturn:
        reason = f"a redirect to {req.full_url!r}, and only http and https are followed"
        raise urllib.error.HTTPError(req.full_url, 302, reason, http.client.HTTPMessage(), None)


def _transfer(url: str, part: Path, progress: Callable[[int, int | None], None]) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "symloss", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.build_opener(_NoFtp).open(request, timeout=TIMEOUT) as answer:
        continued = re.match(rf"bytes {have}-", answer.headers.get("Content-Range", ""))
        if answer.status != http.client.PARTIAL_CONTENT or not continued:
            have = 0  # the server sends the whole file
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isascii() and length.isdecimal() else None
        with part.open("ab") as file:
            file.truncate(have)
            progress(have, total)
            while max(have, total or 0) <= LARGEST_FILE and (block := answer.read(_BLOCK)):
                file.write(block)
                have += len(block)
                progress(have, total)
    size = max(have, total or 0)
    if size > LARGEST_FILE:
        part.unlink()
        raise ValueError(
            f"{url} must have no more than {LARGEST_FILE} bytes; got {size} or more, and nothing of it is kept"
        )
    if total is not None and have < total:
        raise ConnectionError(f"a connection that ended after {have} of {total} bytes")


class Source(NamedTuple):
    """A published data set: its address, its folder, and the MD5 of its files there and of the unpacked ones.

    There is either an archive of one folder, or single files that belong into a folder.
    """

    url: str
    folder: str
    files: dict[str, str]
    unpacked: dict[str, str]


_TABLE = tomllib.loads(Path(__file__).with_name("published.toml").read_text())
BY_HAND: dict[str, str] = _TABLE.pop("by_hand") | {"cifar-n": HUMAN_LABELS}
"""For data sets that cannot be downloaded from here: what to do instead."""
SOURCES = {name: Source(**entry) for name, entry in _TABLE.items()}


def by_hand(name: str, root: object) -> str:
    """Say how to get a data set that cannot be downloaded from here, into this folder."""
    return BY_HAND[name].format(root=root)


UNPACKED, MEMBERS = 2**31, 10_000
"""Bytes of what is unpacked, and files and folders in it; a published archive has 190 million bytes and ten files."""

_AT_ONCE = 2**24  # bytes that a head may take, which is held in memory; files are copied in small pieces


class _TooLarge(Exception):  # noqa: N818
    """More than any data set has."""


class _Limited:
    """What comes out of an archive, as long as it is not too much: a thousandth of it may be on disk."""

    def __init__(self, file: gzip.GzipFile):
        self.file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _AT_ONCE or self.file.tell() + size > UNPACKED:
            raise _TooLarge
        return self.file.read(size)

    def seek(self, place: int) -> int:
        if place > UNPACKED:
            raise _TooLarge
        return self.file.seek(place)

    def tell(self) -> int:
        return self.file.tell()


def extract(archive: Path, target: Path) -> None:
    """Unpack the one folder in a .tar.gz archive, which must be named as the target, and put it there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        try:
            with gzip.open(archive) as file, tarfile.open(fileobj=cast(IO[bytes], _Limited(file)), mode="r:") as tar:
                members = list(_checked_members(archive, tar, target.name))
                with clear_write_errors(target):
                    tar.extractall(scratch, members, filter="data")
        except _TooLarge:
            most = f"no more than {UNPACKED} bytes in {MEMBERS} files"
            raise ValueError(f"{archive} must unpack to {most}; got more") from None
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, RecursionError) as error:
            raise ValueError(f"{archive} must be a whole tar archive; got a damaged one") from error
        unpacked = Path(scratch) / target.name
        if not unpacked.is_dir():
            raise ValueError(f"{archive} must hold the folder {target.name}; got none of that name")
        unpacked.rename(target)


def _checked_members(archive: Path, tar: tarfile.TarFile, folder: str) -> Iterator[tarfile.TarInfo]:
    total = 0
    for number, member in enumerate(tar, 1):
        total += member.size
        if number > MEMBERS or total > UNPACKED:
            raise _TooLarge
        if not (member.isreg() or member.isdir()):
            raise ValueError(f"{archive} must hold only files and folders; got a link or device, {member.name!r}")
        path = PurePosixPath(member.name)
        if ".." in path.parts or "\\" in member.name or path.parts[:1] != (folder,):
            raise ValueError(f"{archive} must hold only paths below {folder}/; got {member.name!r}")
        yield member
