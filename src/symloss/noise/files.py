"""A corruption on disk: a document for people and arrays beside it, each written wholly and verified when read."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss.writing import write_whole

MANIFEST_FILE, LABELS_FILE = "noise.json", "noise.npz"
"""Of corrupted labels: the manifest, and the arrays."""


def with_checksum(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the SHA-256 of everything else in it."""
    rest = {name: value for name, value in document.items() if name != "sha256"}
    return rest | {"sha256": hashlib.sha256(_text(rest).encode()).hexdigest()}


def write_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    """Write arrays to an .npz file, wholly or not at all."""
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_whole(path, content.getvalue())


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file, wholly or not at all."""
    write_whole(path, _text(document).encode())


def read_document(path: Path, required: Iterable[str]) -> dict[str, Any]:
    """What ``write_document`` wrote, with the required fields and a checksum that is right."""
    try:
        document = json.loads(_existing(path).read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} must be a JSON document; got one that is damaged") from error
    if not isinstance(document, dict) or not set(required) <= set(document):
        raise ValueError(f"{str(path)!r} must hold {', '.join(required)}; got another document")
    if document != with_checksum(document):
        raise ValueError(f"{str(path)!r} must be as it was written; got a document that does not match its sha256")
    return document


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """What ``write_arrays`` wrote; no code is run, whatever the file holds."""
    content = io.BytesIO(_existing(path).read_bytes())
    try:
        with np.load(content, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except Exception as error:  # a damaged archive raises anything from EOFError to zlib.error
        listed = " and ".join((", ".join(names[:-1]), names[-1]))
        raise ValueError(
            f"{str(path)!r} must hold the arrays {listed}; got a damaged file ({type(error).__name__})"
        ) from error


def refuse_strangers(folder: Path, json_name: str, npz_name: str, told: dict[str, Any], found: dict[str, Any]) -> None:
    """Raise ValueError if a document does not describe the arrays beside it."""
    different = [name for name in found if found[name] != told.get(name)]
    if different:
        raise ValueError(
            f"{json_name} and {npz_name} in {str(folder)!r} must belong together; "
            f"got files that differ in {', '.join(different)}"
        )


def _text(document: dict[str, Any]) -> str:
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in document.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"folder must hold a saved corruption; got {str(path.parent)!r} without {path.name}")
    return path
