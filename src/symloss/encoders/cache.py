"""Features on disk, by the content of each example: what was encoded once is not encoded again."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from symloss.writing import alone, clear_write_errors, write_whole


class FeatureCache:
    """The features that one encoder made, in files of a few hundred examples each.

    Args:
        folder: where the caches of all encoders are.
        identity: the encoder's; another encoder, or other weights, have features of their own.
        width: how many features an example has.
        required: whether it is an error that features cannot be written; otherwise they are made again the next time.
    """

    def __init__(self, folder: Path, identity: str, width: int, *, required: bool = True) -> None:
        self.folder = folder / hashlib.sha256(identity.encode()).hexdigest()[:16]
        self.width, self.required = width, required

    def read(self, wanted: Collection[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the features of those digests that are there. A damaged file counts as absent."""
        found: dict[bytes, NDArray[np.float32]] = {}
        for path in sorted(self.folder.glob("*.npz")):
            digests, rows = self._chunk(path, wanted)
            found |= {digest: row for digest, row in zip(digests, rows, strict=True) if digest in wanted}
        return found

    def add(self, digests: Sequence[bytes], rows: NDArray[np.float32]) -> None:
        """Write the features of some digests, wholly or not at all. Other processes may do the same."""
        file = io.BytesIO()
        np.savez(file, digests=np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(digests), -1), rows=rows)
        path = self.folder / f"{hashlib.sha256(file.getbuffer()).hexdigest()[:32]}.npz"
        with contextlib.nullcontext() if self.required else contextlib.suppress(OSError):
            with clear_write_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            with alone(self.folder):
                write_whole(path, file.getvalue())

    def _chunk(self, path: Path, wanted: Collection[bytes]) -> tuple[list[bytes], NDArray[np.float32]]:
        """Return the content of a file; nothing if it is damaged, or has none of the digests that are wanted."""
        empty = np.empty((0, self.width), dtype=np.float32)
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as chunk:
                digests = [bytes(digest) for digest in chunk["digests"]]
                # Most files may be of other tables; rows take much longer to read than digests.
                rows = chunk["rows"] if any(digest in wanted for digest in digests) else empty
        except Exception:  # a damaged file raises anything
            return [], empty
        fits = rows.dtype == np.float32 and rows.shape == (len(digests), self.width)
        return (digests, rows) if fits and np.isfinite(rows).all() else ([], empty)
