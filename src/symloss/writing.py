"""Write files and folders wholly or not at all, one process at a time, and cells without formulas."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The first characters of a formula in a cell. Some spreadsheets accept full-width ones too.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


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


def _beside(path: Path) -> tuple[Path, Path]:
    """Where the next content of a folder is written, and where the content that it replaces waits to be removed."""
    return path.with_name(f".{path.name}.symloss-new"), path.with_name(f".{path.name}.symloss-old")


def take_lock(path: Path) -> BaseFileLock | None:
    """Lock a file, which is created if need be; None if another process holds the lock.

    The operating system releases the lock when the process ends, however that happens.
    """
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return lock


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process is inside this block for the same path. A killed process blocks nobody."""
    file = path.with_name(f".{path.name}.symloss-lock")
    lock = FileLock(file, thread_local=False)
    with clear_write_errors(path):
        lock.acquire()
    try:
        yield
    finally:
        # Processes that wait for this file notice that it is gone, and create a new one.
        with contextlib.suppress(OSError):  # Windows removes it after the release
            file.unlink()
        lock.release()


@contextlib.contextmanager
def write_whole_folder(path: Path, drop: Collection[str] = ()) -> Iterator[Path]:
    """Write a folder wholly or not at all.

    Yields an empty folder beside ``path``. When the block ends without an error, that folder takes the place of
    ``path``. A process that is killed leaves the old folder, the new one, or neither for :func:`repair_folder` to put
    back. Two processes write one after the other. Other entries of the old folder, such as notes, are carried over.

    Args:
        path: the folder; it need not exist.
        drop: the entries of the old folder that are not carried over.
    """
    path = Path(os.path.realpath(path))
    new, old = _beside(path)
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path):
        try:
            with clear_write_errors(path):
                _repair(path)
                if new.exists():
                    shutil.rmtree(new)
                new.mkdir()
            yield new
            with clear_write_errors(path):
                _carry_over(path, new, drop)
                sync_folder(new)
                if path.exists():
                    os.rename(path, old)
                os.rename(new, path)
                sync_folder(path.parent)
        except BaseException:
            _repair(path)
            shutil.rmtree(new, ignore_errors=True)
            raise
        shutil.rmtree(old, ignore_errors=True)


def repair_folder(path: Path | str) -> None:
    """Finish what a process that was killed inside :func:`write_whole_folder` left: every reader calls it first."""
    path = Path(os.path.realpath(path))
    if _beside(path)[1].is_dir():
        with alone(path):
            _repair(path)


def _repair(path: Path) -> None:
    new, old = _beside(path)
    if old.is_dir():
        if not path.exists():
            os.rename(new if new.is_dir() else old, path)
        shutil.rmtree(old, ignore_errors=True)


def _carry_over(old: Path, new: Path, drop: Collection[str]) -> None:
    for entry in old.iterdir() if old.is_dir() else ():
        if entry.name in drop or (new / entry.name).exists():
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, new / entry.name, symlinks=True, copy_function=_link)
        else:
            _link(entry, new / entry.name)


def _link(file: Path | str, copy: Path | str) -> None:
    """Return the same file under another name; a copy where the file system has no hard links."""
    try:
        os.link(file, copy, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(file, copy, follow_symlinks=False)


def without_formula(value: str) -> str:
    """Quote text that a spreadsheet would take for a formula. Numbers stay as they are.

    >>> without_formula("=1+1"), without_formula("ce"), without_formula("-1")
    ("'=1+1", 'ce', '-1')
    """
    if _NUMBER.fullmatch(value):
        return value
    return f"'{value}" if value.lstrip()[:1] in _FORMULA or value[:1] in ("\t", "\r", "\n") else value
