"""What a fit has found so far, in a folder: a fit that was killed goes on where it was."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

from symloss.writing import clear_write_errors, write_whole

Arrays = dict[str, np.ndarray[Any, Any]]


class Memory:
    """Keeps arrays by name. Other data or settings have other names, so that nothing is mixed up.

    Args:
        folder: where the files are; None keeps nothing.
        about: what the results depend on: arrays, sparse matrices and anything with a unique text.
    """

    def __init__(self, folder: Path | str | None, about: Sequence[Any] = ()):
        self.folder = None if folder is None else Path(folder)
        self.key = "" if folder is None else _digest(about)

    def recall(self, name: str) -> Arrays | None:
        """The arrays of this name; None if there are none, or their file is damaged."""
        path = self._path(name)
        if path is None or not path.is_file():
            return None
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as found:
                return dict(found)
        except Exception:  # a damaged archive raises anything from BadZipFile to zlib.error
            return None

    def keep(self, name: str, arrays: Arrays) -> None:
        """Write arrays under a name."""
        path = self._path(name)
        if path is None:
            return
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        with clear_write_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.getvalue())

    def _path(self, name: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{hashlib.sha256((self.key + name).encode()).hexdigest()[:20]}.npz"


def _digest(about: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for part in about:
        if sparse.issparse(part):
            for array in (part.data, part.indices, part.indptr):
                digest.update(np.ascontiguousarray(array).data)
        elif isinstance(part, np.ndarray):
            digest.update(repr((part.dtype, part.shape)).encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()
