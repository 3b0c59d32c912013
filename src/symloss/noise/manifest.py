"""A record of how labels were corrupted. It is saved with the labels and verified when they are loaded."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss import checks
from symloss.noise.transition import Labels, shares
from symloss.writing import write_whole

MANIFEST_FILE, LABELS_FILE = "noise.json", "noise.npz"
"""The files of corrupted labels: the manifest, and the arrays."""
SETTINGS = ("spec", "method", "seed", "num_classes", "split", "version")


@dataclass(frozen=True)
class Manifest:
    """A record of how labels were corrupted: the settings, and what was measured on the result.

    Attributes:
        spec: the noise, as a text; ``matrix`` for a matrix that was given as an array.
        method: floor, exact, sampled, or given (human labels).
        seed: the seed of the noise.
        num_classes: the number of classes.
        split: whether the labels were corrupted ``before`` or ``after`` a validation split; None if it is not known.
        version: of the package.
        size: the number of labels.
        transitions: how many labels of each true class (row) became each class (column).
        clean_sha256, noisy_sha256: of the labels as little-endian 64-bit integers.
    """

    spec: str
    method: str
    seed: int
    num_classes: int
    split: str | None
    version: str
    size: int
    transitions: tuple[tuple[int, ...], ...]
    clean_sha256: str
    noisy_sha256: str

    @property
    def counts(self) -> NDArray[np.int64]:
        """The transitions as an array."""
        return np.array(self.transitions, dtype=np.int64)

    @property
    def class_counts(self) -> NDArray[np.int64]:
        """How many examples each true class has."""
        return np.asarray(self.counts.sum(1))

    @property
    def rates(self) -> NDArray[np.float64]:
        """The realised transition matrix; a class without examples has a row of zeros."""
        return shares(self.counts)

    @property
    def flipped(self) -> int:
        """The number of wrong labels."""
        return self.size - int(np.trace(self.counts))

    @property
    def rate(self) -> float:
        """The share of all labels that are wrong."""
        return self.flipped / self.size

    def document(self) -> dict[str, Any]:
        """Return the manifest for JSON, with rates that follow from the counts, and with a checksum."""
        fields = asdict(self) | {"transitions": self.counts.tolist(), "class_counts": self.class_counts.tolist()}
        return with_checksum(fields | {"flipped": self.flipped, "rate": self.rate, "rates": self.rates.tolist()})


def describe(clean: Labels, noisy: Labels, **settings: Any) -> Manifest:
    """Return the manifest of a corruption; settings are its first fields."""
    num_classes = settings["num_classes"]
    pairs = np.bincount(clean * num_classes + noisy, minlength=num_classes**2).reshape(num_classes, num_classes)
    return Manifest(
        size=len(clean),
        transitions=tuple(tuple(row) for row in pairs.tolist()),
        clean_sha256=sha256(clean),
        noisy_sha256=sha256(noisy),
        **settings,
    )


@dataclass(frozen=True, eq=False)
class Corruption:
    """Noisy labels, the clean ones they come from, and the manifest."""

    labels: Labels
    clean: Labels
    manifest: Manifest

    @property
    def flipped(self) -> NDArray[np.bool_]:
        """Which labels are wrong."""
        return np.asarray(self.labels != self.clean)

    def save(self, folder: str | Path) -> None:
        """Write noise.npz and noise.json, each of them whole or not at all."""
        arrays = {"labels": self.labels, "clean": self.clean, "counts": self.manifest.counts}
        write_arrays(Path(folder, LABELS_FILE), **arrays)
        write_document(Path(folder, MANIFEST_FILE), self.manifest.document())


def load_corruption(folder: str | Path) -> Corruption:
    """Read what ``Corruption.save`` wrote to a folder. Damaged files, or files of different runs, are refused.

    Args:
        folder: the folder with noise.npz and noise.json.
    """
    folder = Path(folder)
    document = read_document(folder / MANIFEST_FILE, SETTINGS)
    arrays = zip(("labels", "clean"), read_arrays(folder / LABELS_FILE, "labels", "clean"), strict=True)
    labels, clean = (label_array(name, array, document["num_classes"]) for name, array in arrays)
    if len(labels) != len(clean):
        raise ValueError(
            f"{str(folder / LABELS_FILE)!r} must hold as many labels as clean; got {len(labels)} and {len(clean)}"
        )
    manifest = describe(clean, labels, **{name: document[name] for name in SETTINGS})
    refuse_strangers(folder, MANIFEST_FILE, LABELS_FILE, document, manifest.document())
    return Corruption(labels, clean, manifest)


def label_array(argument: str, value: Any, num_classes: int | None = None) -> Labels:
    """Copy labels to int64. They must be a vector of integers, each of them a class."""
    if hasattr(value, "is_floating_point"):  # a tensor; reading a manifest needs no torch
        if value.is_floating_point():
            raise TypeError(f"{argument} must hold integers; got {value.dtype}")
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except ValueError:
        raise TypeError(f"{argument} must be a vector of integers; got {checks.brief(value)}") from None
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{argument} must have shape (N,) with at least one label; got {array.shape}")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{argument} must hold integers; got {array.dtype}")
    wrong = array[(array < 0) | (array >= (np.inf if num_classes is None else num_classes))]
    if len(wrong):
        allowed = "at least 0" if num_classes is None else f"0 to {num_classes - 1} with {num_classes} classes"
        raise ValueError(f"{argument} must be {allowed}; got {int(wrong[0])}")
    return array.astype(np.int64)


def sha256(values: NDArray[Any]) -> str:
    """Return the SHA-256 of an array with little-endian numbers, the same on every machine.

    >>> sha256(np.array([0]))[:8], hashlib.sha256(bytes(8)).hexdigest()[:8]
    ('af5570f5', 'af5570f5')
    """
    return hashlib.sha256(values.astype(values.dtype.newbyteorder("<")).tobytes()).hexdigest()


def with_checksum(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the SHA-256 of everything else in it."""
    rest = {name: value for name, value in document.items() if name != "sha256"}
    return rest | {"sha256": hashlib.sha256(_text(rest).encode()).hexdigest()}


def write_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    """Write arrays to an .npz file, wholly or not at all. Its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_whole(path, content.getvalue())


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file, wholly or not at all."""
    write_whole(path, _text(document).encode())


def read_document(path: Path, required: Iterable[str]) -> dict[str, Any]:
    """Return what ``write_document`` wrote, with the required fields and a checksum that is right."""
    try:
        text = _existing(path).read_text()
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} must be a JSON document; got one that is damaged") from error
    if not isinstance(document, dict) or not set(required) <= set(document):
        raise ValueError(f"{str(path)!r} must hold {', '.join(required)}; got another document")
    if text != _text(with_checksum(document)):
        raise ValueError(f"{str(path)!r} must be as it was written; got a document that does not match its sha256")
    return document


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Return what ``write_arrays`` wrote; no code is run, whatever the file holds."""
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
