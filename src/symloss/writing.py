"""Files that are written wholly or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def said(path: Path) -> Iterator[None]:
    """A full disk, or no right to write, as one sentence."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error.strerror}); what was there before is kept") from error


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, wholly or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        with said(path), open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
