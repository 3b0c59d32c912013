"""Unpack an archive that may be hostile: nothing is written outside its folder, and the folder appears whole or not."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from symloss.writing import said


def extract(archive: Path, target: Path, finish: Callable[[Path], None] | None = None) -> None:
    """Unpack the one folder in a tar archive, which must be named as the target, and put it there.

    ``finish`` may add to the unpacked folder before it is moved into place.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        try:
            with tarfile.open(archive) as tar:
                members = tar.getmembers()
                for member in members:
                    _check(archive, member, target.name)
                with said(target):
                    tar.extractall(scratch, members, filter="data")
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{archive} must be a whole tar archive; got a damaged one") from error
        unpacked = Path(scratch) / target.name
        if not unpacked.is_dir():
            raise ValueError(f"{archive} must hold the folder {target.name}; got none of that name")
        if finish is not None:
            finish(unpacked)
        unpacked.rename(target)


def _check(archive: Path, member: tarfile.TarInfo, folder: str) -> None:
    if not (member.isreg() or member.isdir()):
        raise ValueError(f"{archive} must hold only files and folders; got a link or device, {member.name!r}")
    path = PurePosixPath(member.name)
    if ".." in path.parts or "\\" in member.name or path.parts[:1] != (folder,):
        raise ValueError(f"{archive} must hold only paths below {folder}/; got {member.name!r}")
