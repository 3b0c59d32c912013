"""Turn a table of numbers, categories and missing values into features, as scikit-learn's imputer and encoder do.

The features equal those of a ``ColumnTransformer``, bit for bit. It is not used here: what it has learnt cannot be kept
as JSON, and it takes twice as long.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from symloss import checks
from symloss.data.cells import LARGEST, Cells, FrameTable, Matrix, Table, Text
from symloss.data.columns import KINDS, MOST_CATEGORIES, NO_TEXT, Column, check_choice, describe_cells

FORMAT = 1
"""The version of the document. It grows when an older symloss could misread one."""
_NAMED = 3
"""How many columns a message names."""
_BLOCK = 2**22
"""How many cells the medians of complete columns are computed of at once."""


class Numbers(NamedTuple):
    """What was learnt of the columns of numbers: what a missing value is replaced by, and whether a feature marks it.

    There may be a million columns.
    """

    names: tuple[str, ...]
    medians: NDArray[np.float32]
    marked: NDArray[np.bool_]


class Category(NamedTuple):
    """What was learnt of a column: the categories with a feature of their own, and the others, which share one.

    None stands for a missing value.
    """

    name: str
    values: tuple[str | None, ...]
    others: tuple[str | None, ...] = ()

    def features(self, texts: Text) -> Matrix:
        """Return a feature for each value, and one for all others (N, features). Unseen texts are all 0."""
        places = {value: place for place, value in enumerate(self.values)}
        places |= dict.fromkeys(self.others, len(self.values))
        codes = np.fromiter((places.get(text, -1) for text in texts), np.int64, len(texts))
        return np.asarray(codes[:, None] == np.arange(len(self.feature_names)), dtype=np.float32)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One for each value, and one for all others."""
        named = (f"{self.name} is missing" if value is None else f"{self.name}={value}" for value in self.values)
        return (*named, *([f"{self.name}=(rare)"] if self.others else []))


class TableEncoder:
    """Turns tables into float32 features. Nothing is scaled: complete numbers come out as they are.

    Args:
        drop: columns to leave out.
        categorical: columns whose values are categories, although they are numbers.
        keep: columns to use, although they look like ids.

    Attributes:
        columns_: what becomes of each column.
        feature_names_: the names of the features.

    >>> encoder = TableEncoder().fit({"size": [1.5, None, 2.0], "colour": ["red", "blue", "red"]})
    >>> encoder.feature_names_
    ('size', 'size is missing', 'colour=blue', 'colour=red')
    >>> encoder.transform({"size": [None, 3.0], "colour": ["red", "green"]})
    array([[1.75, 1.  , 0.  , 1.  ],
           [3.  , 0.  , 0.  , 0.  ]], dtype=float32)
    """

    def __init__(self, drop: Sequence[str] = (), categorical: Sequence[str] = (), keep: Sequence[str] = ()) -> None:
        self.drop, self.categorical, self.keep = tuple(drop), tuple(categorical), tuple(keep)

    columns_: tuple[Column, ...]
    _numbers: Numbers
    _categories: tuple[Category, ...]

    def fit(self, frame: Any) -> TableEncoder:
        """Learn from the training rows: a DataFrame, or a mapping of names to columns.

        Warns of columns that are left out though nobody asked for it.
        """
        self._fit_frame(frame)
        return self

    def fit_transform(self, frame: Any) -> Matrix:
        """Learn from the training rows, as :meth:`fit` does, and return their features (N, d)."""
        return self._fit_frame(frame)

    def _fit_frame(self, frame: Any) -> Matrix:
        table = FrameTable(frame)
        features = self.fit_transform_table(table, table.columns)
        found = [column for column in self.columns_ if column.kind == "left out" and column.notable]
        if found:
            hint = f"; {NO_TEXT}" if any(column.is_free_text for column in found) else ""
            warnings.warn(f"columns are not used as features: {_named(found)}{hint}", UserWarning, stacklevel=3)
        return features

    def fit_transform_table(
        self, table: Table, columns: Sequence[str], without: Collection[int] = (), hint: str = ""
    ) -> Matrix:
        """Learn from the rows of a table, and return their features (N, d).

        Args:
            table: with the training rows.
            columns: those of its columns that may be features.
            without: the numbers, from 0, of rows that are not read.
            hint: what messages say of a table in which all columns look like ids.
        """
        check_choice(columns, self.drop, self.categorical, self.keep, table.where)
        dropped = frozenset(self.drop)
        cells = table.cells([name for name in columns if name not in dropped], self.categorical, without)
        self.columns_ = describe_cells(cells, self.drop, self.categorical, self.keep)
        if all(column.kind == "left out" for column in self.columns_):
            raise _no_features(self.columns_, table.where, hint)
        names = {kind: tuple(column.name for column in self.columns_ if column.kind == kind) for kind in KINDS}
        self._numbers = _learn_numbers(names["number"], _select(cells, names["number"]))
        self._categories = tuple(_learn_category(name, cells.texts[name]) for name in names["category"])
        return self._features(cells)

    @property
    def feature_names_(self) -> tuple[str, ...]:
        """The names of the features: all numbers, the marks of missing values, then all categories."""
        names, places = self._numbers.names, np.flatnonzero(self._numbers.marked)
        named = (name for category in self._categories for name in category.feature_names)
        return (*names, *(f"{names[place]} is missing" for place in places), *named)

    def transform(self, frame: Any) -> Matrix:
        """Return the features (N, d) of a DataFrame, or of a mapping of names to columns."""
        return self.transform_table(FrameTable(frame))

    def transform_table(self, table: Table, without: Collection[int] = ()) -> Matrix:
        """Return the features (N, d) of a table, ``without`` the rows of these numbers."""
        return self._features(
            table.cells_as(self._numbers.names, [category.name for category in self._categories], without)
        )

    def _features(self, cells: Cells) -> Matrix:
        numbers = _select(cells, self._numbers.names)
        gaps = np.isnan(numbers)
        marks = gaps[:, self._numbers.marked].astype(np.float32)
        if gaps.any():
            numbers = np.where(gaps, self._numbers.medians, numbers)
        parts = [marks, *(category.features(cells.texts[category.name]) for category in self._categories)]
        return np.concatenate([numbers, *parts], axis=1) if sum(part.shape[1] for part in parts) else numbers

    def to_document(self) -> dict[str, Any]:
        """Return all that was learnt, for JSON."""
        names, medians, marked = self._numbers.names, self._numbers.medians.tolist(), self._numbers.marked.tolist()
        learnt: dict[str, dict[str, Any]] = {
            name: {"median": median, "marked": mark} for name, median, mark in zip(names, medians, marked, strict=True)
        }
        for category in self._categories:
            learnt[category.name] = {"values": list(category.values), "others": list(category.others)}
        columns = [
            {"name": column.name, "kind": column.kind, "reason": column.reason} | learnt.get(column.name, {})
            for column in self.columns_
        ]
        return {"format": FORMAT, "columns": columns}

    @classmethod
    def from_document(cls, document: Any, where: object = "the document") -> TableEncoder:
        """Read what :meth:`to_document` wrote. ``where`` is what messages call the document."""
        version = document.get("format") if isinstance(document, dict) else None
        if not isinstance(version, int) or not isinstance(document.get("columns"), list):
            raise ValueError(f"{where} must hold what was learnt of each column; got {checks.brief(document)}")
        if version > FORMAT:
            raise ValueError(
                f"{where} was written by a newer version of symloss (format {version}, this one knows {FORMAT}); "
                "update it"
            )
        encoder, entries = cls(), document["columns"]
        for entry in entries:
            if not _is_learnt(entry):
                raise ValueError(f"{where} must hold what was learnt of each column; got {checks.brief(entry)}")
        encoder.columns_ = tuple(Column(entry["name"], entry["kind"], entry["reason"]) for entry in entries)
        numbers, categories = ([entry for entry in entries if entry["kind"] == kind] for kind in KINDS[:2])
        encoder._numbers = Numbers(
            tuple(entry["name"] for entry in numbers),
            np.array([entry["median"] for entry in numbers], dtype=np.float32),
            np.array([bool(entry.get("marked")) for entry in numbers], dtype=np.bool_),
        )
        encoder._categories = tuple(
            Category(entry["name"], tuple(entry["values"]), tuple(entry["others"])) for entry in categories
        )
        return encoder


def _is_learnt(entry: Any) -> bool:
    """Return whether an entry of a document describes a column, with what was learnt of its kind."""
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "kind", "reason")):
        return False
    if entry["kind"] == "number":
        median = entry.get("median")
        return isinstance(median, int | float) and abs(median) <= LARGEST
    if entry["kind"] == "category":
        lists = entry.get("values"), entry.get("others")
        texts = [text for each in lists if isinstance(each, list) for text in each]
        unique = all(isinstance(text, str | None) for text in texts) and 0 < len(texts) == len(set(texts))
        return unique and all(isinstance(each, list) for each in lists)
    return entry["kind"] in KINDS


def _named(columns: Sequence[Column]) -> str:
    """List columns with their reasons, for a message."""
    named = ", ".join(f"{column.name!r} ({column.reason})" for column in columns[:_NAMED])
    return named if len(columns) <= _NAMED else f"{named} and {len(columns) - _NAMED} more"


def _no_features(columns: Sequence[Column], where: object, hint: str) -> ValueError:
    # Free text explains most, wherever its column stands.
    columns = sorted(columns, key=lambda column: not column.is_free_text)
    hint = f"; {NO_TEXT}" if any(column.is_free_text for column in columns) else hint and f" {hint}"
    return ValueError(f"{where} must have a column of features; got {_named(columns) or 'no columns'}{hint}")


def _select(cells: Cells, names: tuple[str, ...]) -> Matrix:
    """Return some columns of numbers. All of them in their order are not copied."""
    if names == cells.number_names:
        return cells.numbers
    places = {name: place for place, name in enumerate(cells.number_names)}
    return cells.numbers[:, [places[name] for name in names]]


def _learn_numbers(names: tuple[str, ...], values: Matrix) -> Numbers:
    incomplete = np.asarray(np.isnan(values).any(axis=0))
    medians = np.empty(len(names), dtype=np.float64)
    # Complete columns may be many, and nanmedian takes several times as long for them. Some columns at a time.
    complete, step = np.flatnonzero(~incomplete), max(1, _BLOCK // max(1, len(values)))
    for start in range(0, len(complete), step):
        part = complete[start : start + step]
        medians[part] = np.median(values[:, part].T.astype(np.float64), axis=1, overwrite_input=True)
    for place in np.flatnonzero(incomplete).tolist():
        medians[place] = np.median(values[~np.isnan(values[:, place]), place].astype(np.float64))
    return Numbers(names, medians.astype(np.float32), incomplete)


def _learn_category(name: str, texts: Text) -> Category:
    """Learn the categories of a column, by alphabet, None last. Where they are too many, the rare ones are others."""
    counts = Counter(texts)
    values = sorted(counts, key=lambda value: (value is None, value or ""))
    if len(values) <= MOST_CATEGORIES:
        return Category(name, tuple(values))
    # Of equally frequent ones the last by alphabet stay, as in scikit-learn's OneHotEncoder.
    frequent = frozenset(sorted(values, key=counts.__getitem__)[-(MOST_CATEGORIES - 1) :])
    rare = tuple(value for value in values if value not in frequent)
    return Category(name, tuple(value for value in values if value in frequent), rare)
