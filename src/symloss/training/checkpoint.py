"""Checkpoints of a run, written with a checksum of all bytes and checked before use."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from symloss import checks
from symloss.training.run_folder import CHECKPOINT, PREVIOUS, RunFolder
from symloss.writing import sync_folder, write_whole

TO_PREDICT = {"epoch": "int", "model": "dict"}
"""What a checkpoint holds, and the kinds of its values."""
TO_GO_ON = TO_PREDICT | {"optimizer": "dict", "seconds": "float", "best": "dict | None", "last": "dict"}
_MARK = b"sha256:"
_SEAL = len(_MARK) + 2 * hashlib.sha256().digest_size


def save_checkpoint(folder: RunFolder, state: dict[str, Any]) -> None:
    """Write a checkpoint. The previous one is kept, in case this one turns out to be damaged."""
    folder.require_lock()
    new = folder.path / (CHECKPOINT + ".new")
    write_whole(new, packed(state))
    if (folder.path / CHECKPOINT).exists():
        os.replace(folder.path / CHECKPOINT, folder.path / PREVIOUS)
    os.replace(new, folder.path / CHECKPOINT)
    sync_folder(folder.path)


def save_state(folder: RunFolder, name: str, state: dict[str, Any]) -> None:
    """Write the weights of an epoch to a file of the run."""
    folder.require_lock()
    write_whole(folder.path / name, packed(state))


def load_checkpoint(folder: RunFolder, needs: Mapping[str, str] = TO_PREDICT) -> dict[str, Any] | None:
    """Return the last good checkpoint; None if the run has not written any yet."""
    bad: list[str] = []
    for name in (CHECKPOINT, PREVIOUS):
        if not (folder.path / name).exists():
            continue
        try:
            state = load_state(folder.path / name, needs)
        except ValueError as error:
            bad.append(str(error))
            continue
        if bad:
            warnings.warn(f"{bad[0]}; going back to the previous one, of epoch {state['epoch']}", stacklevel=2)
        return state
    if bad:
        raise ValueError(
            f"{', and '.join(bad)}. No good checkpoint is left; remove {folder.path} to train from the start."
        )
    return None


def packed(state: dict[str, Any]) -> bytes:
    """Return the bytes of a checkpoint: the zip file of ``torch.save``, with a SHA-256 of its bytes as comment."""
    # In memory first: only Python reports a full disk as an OSError.
    buffer = io.BytesIO()
    torch.save(state, buffer)
    # A zip file ends with the length of its comment, and the comment.
    buffer.seek(-2, os.SEEK_END)
    buffer.write(_SEAL.to_bytes(2, "little"))
    buffer.write(_MARK + hashlib.sha256(buffer.getbuffer()).hexdigest().encode())
    return buffer.getvalue()


def load_state(path: Path, needs: Mapping[str, str] = TO_PREDICT) -> dict[str, Any]:
    """Read a checkpoint file. Only tensors and plain values are loaded, so that no file can run code."""
    data = path.read_bytes()
    try:
        seal = _MARK + hashlib.sha256(memoryview(data)[:-_SEAL]).hexdigest().encode()
        damage = None if data[-_SEAL:] == seal else "its bytes are not those that were written"
        if damage is None:
            state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            found = checks.record("it", state, {**needs, "smoothing": "dict"}, optional=["smoothing"])
            if found.get("best") is not None:
                checks.record("its best epoch", found["best"], {"validation_accuracy": "metric | None"})
            if found["smoothing"] is not None:
                checks.record("its smoothing", found["smoothing"], {"accuracy": "float | None", "recent": "list"})
    except (RuntimeError, EOFError, ValueError, LookupError, NotImplementedError, pickle.UnpicklingError) as error:
        damage = str(error).splitlines()[0] if str(error) else type(error).__name__
    if damage is not None:
        raise ValueError(f"{path} is not a complete checkpoint ({damage})")
    return dict(state)


@contextlib.contextmanager
def must_fit(folder: Path, model: str) -> Iterator[None]:
    """Raise ValueError, in one sentence, if the state that is loaded inside does not fit the model."""
    try:
        yield
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        lines = str(error).split("\n")  # torch's first line announces the others
        raise ValueError(
            f"the checkpoint in {folder} must fit the model {model!r}, as described by its settings and data; got "
            f"another one ({lines[min(1, len(lines) - 1)].strip() or type(error).__name__})"
        ) from None
