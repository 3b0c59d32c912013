"""Write files wholly or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFull(OSError):  # noqa: N818
    """The disk is full. This is a class, because ``errno`` is lost when an error passes between processes."""


def disk_is_full(error: BaseException) -> bool:
    """Whether an error means that the disk is full."""
    return isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in FULL)


@contextlib.contextmanager
def clear_write_errors(path: Path) -> Iterator[None]:
    """Turn an error while writing ``path`` into one sentence: a full disk, or no right to write."""
    try:
        yield
    except OSError as error:
        kind = DiskFull if disk_is_full(error) else OSError
        raise kind(f"{path} cannot be written ({error.strerror}); what was there before is kept") from error


def unfinished(path: Path) -> Path:
    """Where :func:`write_whole` keeps what it has written so far. A process that is killed then leaves it behind."""
    return path.with_name(path.name + ".part")


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` to a file, wholly or not at all."""
    part = unfinished(path)
    try:
        with clear_write_errors(path):
            with open(part, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def sync_folder(path: Path) -> None:
    """Make sure that the names of a folder's files are on the disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
