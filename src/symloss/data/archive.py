"""Unpack an archive that may be hostile: nothing is written outside its folder, and the folder appears whole or not."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from symloss.writing import clear_write_errors

LARGEST, MEMBERS = 2**31, 10_000
"""Bytes of what is unpacked, and files and folders in it; a published archive has 190 million bytes and ten files."""

_AT_ONCE = 2**24
"""Bytes that a head may take, which is held in memory; files are copied in small pieces."""


class _ArchiveTooLarge(ValueError):  # noqa: N818
    """An archive that unpacks to more than any data set has."""


class _Limited:
    """What comes out of an archive, as long as it is not too much: a thousandth of it may be on disk."""

    def __init__(self, file: IO[bytes]):
        self.file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _AT_ONCE or self.file.tell() + size > LARGEST:
            raise _ArchiveTooLarge
        return self.file.read(size)

    def seek(self, place: int) -> int:
        if place > LARGEST:
            raise _ArchiveTooLarge
        return self.file.seek(place)

    def tell(self) -> int:
        return self.file.tell()


def extract(archive: Path, target: Path, finish: Callable[[Path], None] | None = None) -> None:
    """Unpack the one folder in a tar archive, which must be named as the target, and put it there.

    ``finish`` may add to the unpacked folder before it is moved into place.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        try:
            with _open(archive) as file, tarfile.open(fileobj=cast(IO[bytes], _Limited(file)), mode="r:") as tar:
                members = list(_members(archive, tar, target.name))
                with clear_write_errors(target):
                    tar.extractall(scratch, members, filter="data")
        except _ArchiveTooLarge:
            raise ValueError(
                f"{archive} must unpack to no more than {LARGEST} bytes in {MEMBERS} files; got more"
            ) from None
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, RecursionError) as error:
            raise ValueError(f"{archive} must be a whole tar archive; got a damaged one") from error
        unpacked = Path(scratch) / target.name
        if not unpacked.is_dir():
            raise ValueError(f"{archive} must hold the folder {target.name}; got none of that name")
        if finish is not None:
            finish(unpacked)
        unpacked.rename(target)


def _open(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(archive)) if packed else archive.open("rb")


def _members(archive: Path, tar: tarfile.TarFile, folder: str) -> Iterator[tarfile.TarInfo]:
    total = 0
    for number, member in enumerate(tar, 1):
        total += member.size
        if number > MEMBERS or total > LARGEST:
            raise _ArchiveTooLarge
        _check(archive, member, folder)
        yield member


def _check(archive: Path, member: tarfile.TarInfo, folder: str) -> None:
    if not (member.isreg() or member.isdir()):
        raise ValueError(f"{archive} must hold only files and folders; got a link or device, {member.name!r}")
    path = PurePosixPath(member.name)
    if ".." in path.parts or "\\" in member.name or path.parts[:1] != (folder,):
        raise ValueError(f"{archive} must hold only paths below {folder}/; got {member.name!r}")
