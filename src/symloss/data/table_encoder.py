"""Turn a table of numbers, categories and missing values into features, by scikit-learn's imputer and encoder.

The encoder works on columns, not on DataFrames, so that pandas need not be installed. A DataFrame is taken apart by
``frame_cells``, a file by its ``TableFile``. scikit-learn then sees one matrix, in which a category is a number.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss import checks
from symloss.data.cells import LARGEST, WHERE, Cells, Text, frame_cells, frame_cells_as
from symloss.data.columns import KINDS, MOST_CATEGORIES, NO_TEXT, Column, describe_cells

FORMAT = 1
"""The version of the document. It grows when an older symloss could misread one."""
UNSEEN = -1.0
"""The number of a category that was not in the training rows. Its features are all 0."""
_NAMED = 3
"""How many columns a message names."""
_BLOCK = 2**22
"""How many cells are turned into features at once."""

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Numbers:
    """What was learnt of the columns of numbers. There may be a million.

    Args:
        names: the columns.
        medians: what a missing value is replaced by (columns,).
        marked: whether a feature of its own says where a value is missing (columns,).
    """

    names: tuple[str, ...]
    medians: NDArray[np.float32]
    marked: NDArray[np.bool_]

    @property
    def marks(self) -> tuple[str, ...]:
        """The features that say where a value is missing."""
        return tuple(f"{self.names[place]} is missing" for place in np.flatnonzero(self.marked))


@dataclass(frozen=True)
class Category:
    """What was learnt of a column of categories.

    Args:
        name: the column.
        values: the categories with a feature of their own. None stands for a missing value.
        others: the rare categories, which share one feature.
    """

    name: str
    values: tuple[str | None, ...]
    others: tuple[str | None, ...] = ()

    def codes(self, texts: Text) -> NDArray[np.float64]:
        """The place of each text among the values and others; ``UNSEEN`` for all other texts."""
        places = {value: float(place) for place, value in enumerate((*self.values, *self.others))}
        return np.fromiter((places.get(text, UNSEEN) for text in texts), np.float64, len(texts))

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
        return self._fit_frame(frame_cells(frame, self.categorical, self.drop))

    def _fit_frame(self, cells: Cells) -> TableEncoder:
        self.fit_cells(cells)
        _warn_of_left_out(self.columns_)
        return self

    def fit_cells(self, cells: Cells, where: object = WHERE, hint: str = "") -> TableEncoder:
        """Learn from cells that were read already.

        Args:
            cells: of the training rows.
            where: what messages call the table.
            hint: what messages say of a table in which all columns look like ids.
        """
        self.columns_ = describe_cells(cells, self.drop, self.categorical, self.keep, where)
        if all(column.kind == "left out" for column in self.columns_):
            raise _no_features(self.columns_, where, hint)
        names = {kind: tuple(column.name for column in self.columns_ if column.kind == kind) for kind in KINDS}
        self._numbers = _learn_numbers(names["number"], _select(cells, names["number"]))
        self._categories = _learn_categories({name: cells.texts[name] for name in names["category"]})
        self.__dict__.pop("_transformer", None)  # of an earlier fit
        return self

    @property
    def number_names(self) -> tuple[str, ...]:
        """The columns that are read as numbers."""
        return self._numbers.names

    @property
    def category_names(self) -> tuple[str, ...]:
        """The columns that are read as text."""
        return tuple(category.name for category in self._categories)

    @property
    def feature_names_(self) -> tuple[str, ...]:
        """The names of the features: all numbers, the marks of missing values, then all categories."""
        named = (name for category in self._categories for name in category.feature_names)
        return (*self._numbers.names, *self._numbers.marks, *named)

    def transform(self, frame: Any) -> Matrix:
        """The features (N, d) of a DataFrame, or of a mapping of names to columns."""
        return self.transform_cells(frame_cells_as(frame, self.number_names, self.category_names))

    def fit_transform(self, frame: Any) -> Matrix:
        """Learn from the training rows, and return their features (N, d)."""
        cells = frame_cells(frame, self.categorical, self.drop)
        return self._fit_frame(cells).transform_cells(cells)

    def transform_cells(self, cells: Cells) -> Matrix:
        """The features (N, d) of cells that were read already."""
        numbers = _select(cells, self.number_names)
        if not (self._categories or self._numbers.marked.any() or np.isnan(numbers).any()):
            return numbers
        codes = [category.codes(cells.texts[category.name]) for category in self._categories]
        inputs: list[NDArray[Any]] = [numbers, *(column[:, None] for column in codes)]
        found = np.empty((len(cells), len(self.feature_names_)), dtype=np.float32)
        step = max(1, _BLOCK // found.shape[1])
        for start in range(0, len(cells), step):
            rows = slice(start, start + step)
            block = np.concatenate([part[rows] for part in inputs], axis=1)
            found[rows] = self._transformer.transform(block)
        return found

    @functools.cached_property
    def _transformer(self) -> Any:
        return _transformer(self._numbers, self._categories)

    def to_document(self) -> dict[str, Any]:
        """All that was learnt, for JSON."""
        numbers = self._numbers
        learnt: dict[str, dict[str, Any]] = {
            name: {"median": median, "marked": marked}
            for name, median, marked in zip(
                numbers.names, numbers.medians.tolist(), numbers.marked.tolist(), strict=True
            )
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
        """The encoder that :meth:`to_document` described. ``where`` is what messages call the document."""
        _check_format(document, where)
        encoder = cls()
        entries = document["columns"]
        encoder.columns_ = tuple(Column(*(_text(entry, key, where) for key in _KEYS)) for entry in entries)
        for column in encoder.columns_:
            checks.choice(f"the kind of column {column.name!r} in {where}", column.kind, KINDS)
        used = {kind: [entry for entry in entries if entry["kind"] == kind] for kind in KINDS}
        encoder._numbers = _numbers(used["number"], where)
        encoder._categories = tuple(_category(entry, where) for entry in used["category"])
        return encoder


def _named(columns: Sequence[Column]) -> str:
    """Columns with their reasons, for a message."""
    named = ", ".join(f"{column.name!r} ({column.reason})" for column in columns[:_NAMED])
    return named if len(columns) <= _NAMED else f"{named} and {len(columns) - _NAMED} more"


def _no_features(columns: Sequence[Column], where: object, hint: str) -> ValueError:
    # Free text explains most, wherever its column stands.
    columns = sorted(columns, key=lambda column: not column.is_free_text)
    hint = f"; {NO_TEXT}" if any(column.is_free_text for column in columns) else hint and f" {hint}"
    return ValueError(f"{where} must have a column of features; got {_named(columns) or 'no columns'}{hint}")


def _warn_of_left_out(columns: Sequence[Column]) -> None:
    found = [column for column in columns if column.kind == "left out" and column.notable]
    if found:
        hint = f"; {NO_TEXT}" if any(column.is_free_text for column in found) else ""
        warnings.warn(f"columns are not used as features: {_named(found)}{hint}", UserWarning, stacklevel=4)


def _select(cells: Cells, names: tuple[str, ...]) -> Matrix:
    """Some columns of numbers. All of them in their order are not copied."""
    if names == cells.number_names:
        return cells.numbers
    places = {name: place for place, name in enumerate(cells.number_names)}
    return cells.numbers[:, [places[name] for name in names]]


def _learn_numbers(names: tuple[str, ...], values: Matrix) -> Numbers:
    incomplete = np.asarray(np.isnan(values).any(axis=0))
    medians = np.empty(len(names), dtype=np.float64)
    # Complete columns may be many, and scikit-learn's imputer takes five times as long for them.
    medians[~incomplete] = _medians(values[:, ~incomplete] if incomplete.any() else values)
    if incomplete.any():
        some = values[:, incomplete].astype(np.float64)
        medians[incomplete] = _unfitted(some.shape[1], 0).fit(some).named_transformers_["numbers"].statistics_
    return Numbers(names, medians.astype(np.float32), incomplete)


def _learn_categories(texts: dict[str, Text]) -> tuple[Category, ...]:
    if not texts:
        return ()
    found = [Category(name, _sorted_values(column)) for name, column in texts.items()]
    codes = np.stack([category.codes(texts[category.name]) for category in found], axis=1)
    fitted = _unfitted(0, len(found), max_categories=MOST_CATEGORIES).fit(codes)
    rare = fitted.named_transformers_["categories"].infrequent_categories_
    return tuple(_apart(category, places) for category, places in zip(found, rare, strict=True))


def _medians(values: Matrix) -> NDArray[np.float64]:
    """The median of each column, some columns at a time."""
    step = max(1, _BLOCK // max(1, len(values)))
    blocks = (values[:, start : start + step] for start in range(0, values.shape[1], step))
    found = [np.median(block.T.astype(np.float64), axis=1, overwrite_input=True) for block in blocks]
    return np.concatenate(found) if found else np.empty(0)


def _sorted_values(texts: Text) -> tuple[str | None, ...]:
    """The different texts by alphabet, and None at the end."""
    distinct = set(texts)
    return (*sorted(distinct - {None}), *([None] if None in distinct else []))


def _apart(category: Category, rare: NDArray[np.float64] | None) -> Category:
    """The same categories, with the rare ones among the others."""
    if rare is None:
        return category
    places = {int(code) for code in rare}
    frequent = tuple(value for place, value in enumerate(category.values) if place not in places)
    return Category(category.name, frequent, tuple(category.values[place] for place in sorted(places)))


def _unfitted(numbers: int, categories: int, **limits: int) -> Any:
    """scikit-learn's transformer of a matrix: first the columns of numbers, then those of categories."""
    # scikit-learn takes a second to import.
    from sklearn.compose import ColumnTransformer  # type: ignore[import-untyped]  # noqa: PLC0415
    from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]  # noqa: PLC0415
    from sklearn.preprocessing import OneHotEncoder  # type: ignore[import-untyped]  # noqa: PLC0415

    steps: list[tuple[str, Any, list[int]]] = []
    if numbers:
        steps.append(("numbers", SimpleImputer(strategy="median", add_indicator=True), list(range(numbers))))
    if categories:
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False, **limits)
        steps.append(("categories", encoder, list(range(numbers, numbers + categories))))
    return ColumnTransformer(steps)


def _transformer(numbers: Numbers, categories: Sequence[Category]) -> Any:
    """scikit-learn's transformer, fitted to a small table from which it learns what we know.

    So nothing has to be unpickled, and nothing inside scikit-learn is touched. Each column of numbers holds its median,
    and misses a value if it is marked. Each category appears twice, but each rare one once.
    """
    shown = [
        np.repeat(
            np.arange(len(category.values + category.others)), [2] * len(category.values) + [1] * len(category.others)
        )
        for category in categories
    ]
    rows = max([2, *map(len, shown)])
    medians = np.tile(numbers.medians.astype(np.float64), (rows, 1))
    medians[-1, numbers.marked] = np.nan
    codes = [np.pad(column, (0, rows - len(column)))[:, None] for column in shown]
    return _unfitted(len(numbers.names), len(categories), min_frequency=2).fit(
        np.concatenate([medians, *codes], axis=1)
    )


_KEYS = ("name", "kind", "reason")


def _check_format(document: Any, where: object) -> None:
    version = document.get("format") if isinstance(document, dict) else None
    if not isinstance(version, int) or not isinstance(document.get("columns"), list):
        raise ValueError(f"{where} must hold what was learnt of each column; got {checks.brief(document)}")
    if version > FORMAT:
        raise ValueError(
            f"{where} was written by a newer version of symloss (format {version}, this one knows {FORMAT}); update it"
        )


def _entry(entry: Any, key: str, right: Callable[[Any], bool], wanted: str, where: object) -> Any:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not right(value):
        raise ValueError(f"{where} must hold the {key} of each column as {wanted}; got {checks.brief(entry)}")
    return value


def _text(entry: Any, key: str, where: object) -> Any:
    return _entry(entry, key, lambda value: isinstance(value, str), "text", where)


def _numbers(entries: list[dict[str, Any]], where: object) -> Numbers:
    def is_number(value: Any) -> bool:
        return isinstance(value, (int, float)) and abs(value) <= LARGEST

    medians = [_entry(entry, "median", is_number, "a finite number", where) for entry in entries]
    marked = [bool(entry.get("marked")) for entry in entries]
    names = tuple(entry["name"] for entry in entries)
    return Numbers(names, np.array(medians, dtype=np.float32), np.array(marked, dtype=np.bool_))


def _category(entry: dict[str, Any], where: object) -> Category:
    def are_texts(values: Any) -> bool:
        return isinstance(values, list) and all(value is None or isinstance(value, str) for value in values)

    values = _entry(entry, "values", are_texts, "a list of texts", where)
    others = _entry(entry, "others", are_texts, "a list of texts", where)
    if not values + others or len({*values, *others}) < len(values + others):
        raise ValueError(f"{where} must hold different values of each column; got {checks.brief(entry)}")
    return Category(entry["name"], tuple(values), tuple(others))
