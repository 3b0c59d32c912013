"""A record of how labels were corrupted. It is saved with the labels and verified when they are loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss.noise import files
from symloss.noise.counts import Labels
from symloss.noise.files import LABELS_FILE, MANIFEST_FILE
from symloss.noise.label_array import label_array, sha256

SETTINGS = ("spec", "method", "seed", "classes", "split", "version")


@dataclass(frozen=True)
class Manifest:
    """A record of how labels were corrupted: the settings, and what was measured on the result.

    Attributes:
        spec: the noise, as a text; ``matrix`` for a matrix that was given as an array.
        method: floor, exact, sampled, or given (human labels).
        seed: the seed of the noise.
        classes: the number of classes.
        split: whether the labels were corrupted ``before`` or ``after`` a validation split; None if it is not known.
        version: of the package.
        size: the number of labels.
        transitions: how many labels of each true class (row) became each class (column).
        clean_sha256, noisy_sha256: of the labels as little-endian 64-bit integers.
    """

    spec: str
    method: str
    seed: int
    classes: int
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
        return np.asarray(self.counts / np.maximum(self.class_counts, 1)[:, None])

    @property
    def flipped(self) -> int:
        """The number of wrong labels."""
        return self.size - int(np.trace(self.counts))

    @property
    def rate(self) -> float:
        """The share of all labels that are wrong."""
        return self.flipped / self.size

    def document(self) -> dict[str, Any]:
        """The manifest for JSON, with rates that follow from the counts, and with a checksum."""
        fields = asdict(self) | {"transitions": self.counts.tolist()}
        derived = {
            "class_counts": self.class_counts.tolist(),
            "flipped": self.flipped,
            "rate": self.rate,
            "rates": self.rates.tolist(),
        }
        return files.with_checksum(fields | derived)


def describe(clean: Labels, noisy: Labels, **settings: Any) -> Manifest:
    """The manifest of a corruption; settings are its first fields."""
    classes = settings["classes"]
    pairs = np.bincount(clean * classes + noisy, minlength=classes * classes).reshape(classes, classes)
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
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files.write_arrays(folder / LABELS_FILE, labels=self.labels, clean=self.clean, counts=self.manifest.counts)
        files.write_document(folder / MANIFEST_FILE, self.manifest.document())


def load_corruption(folder: str | Path) -> Corruption:
    """Read what ``Corruption.save`` wrote to a folder. Damaged files, or files of different runs, are refused.

    Args:
        folder: the folder with noise.npz and noise.json.
    """
    folder = Path(folder)
    document = files.read_document(folder / MANIFEST_FILE, SETTINGS)
    labels, clean = _read_labels(folder / LABELS_FILE, document["classes"])
    manifest = describe(clean, labels, **{name: document[name] for name in SETTINGS})
    files.refuse_strangers(folder, MANIFEST_FILE, LABELS_FILE, document, manifest.document())
    return Corruption(labels, clean, manifest)


def _read_labels(path: Path, classes: int) -> tuple[Labels, Labels]:
    labels, clean = (
        label_array(name, array, classes)
        for name, array in zip(("labels", "clean"), files.read_arrays(path, "labels", "clean"), strict=True)
    )
    if len(labels) != len(clean):
        raise ValueError(f"{str(path)!r} must hold as many labels as clean; got {len(labels)} and {len(clean)}")
    return labels, clean
