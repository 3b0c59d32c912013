"""Turn tables into features: what becomes of each column and why, as scikit-learn's imputer and encoder do it.

The features equal those of a ``ColumnTransformer``, bit for bit. It is not used here: what it has learnt cannot be kept
as JSON, and it takes twice as long.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from symloss import checks
from symloss.data.cells import LARGEST, Cells, FrameTable, Matrix, Table, Text, is_whole

Kind = Literal["number", "category", "left out"]
KINDS: tuple[Kind, ...] = ("number", "category", "left out")
MOST_CATEGORIES = 64
"""A column of text becomes at most so many features. The last of them stands for all rare categories."""
ROWS_OF_IDS = 20  # in fewer rows it is nothing special that all values are different
CHANCE = 0.01  # whole numbers that are all different are ids if that has at most this chance among as many random ones
NEARLY_ALL = 0.9  # text of which this share is different is no category
WORDS, MANY_WORDS = 3, 8
"""Text that is nearly all different is free text if half of its values have this many words. Text of which only half is
different must have many."""
_SAMPLE, _START = 1000, 500
"""How many values are looked at to count words, and how many characters of each."""
FREE_TEXT = "looks like free text"
NO_TEXT = "text columns are not supported directly yet: turn them into embeddings, as docs/text.md shows"
"""What to do about a column of free text."""
_UNSPACED = re.compile("[\u3040-\u9fff]")
"""Chinese and Japanese, which put no spaces between words."""
_ID = "whole numbers, all different: looks like an id"
_ID_NAME = re.compile(r"(.*[^a-z])?(id|idx|index|uuid|guid)|row|unnamed: 0|")
_CAMEL_ID = re.compile(r".*[a-z](Id|ID)")


class Column(NamedTuple):
    """What becomes of a column, and why; ``notable`` if a person who did not ask should be told.

    This is a tuple, because there may be a million columns.
    """

    name: str
    kind: Kind
    reason: str
    notable: bool = False

    @property
    def is_free_text(self) -> bool:
        """Whether it was left out as free text."""
        return self.kind == "left out" and self.reason.startswith(FREE_TEXT)


def describe_cells(
    cells: Cells, drop: Collection[str] = (), categorical: Collection[str] = (), keep: Collection[str] = ()
) -> tuple[Column, ...]:
    """Say what becomes of each column of a table; ``cells`` are those of all columns that are not dropped.

    >>> from symloss.data.cells import FrameTable
    >>> cells = FrameTable({"size": [1.5, None], "colour": ["red", "blue"]}).cells(["size"])
    >>> for column in describe_cells(cells, drop=["colour"]):
    ...     print(column.name, column.kind, column.reason, sep=": ")
    size: number: numbers, 50 % missing: the median, and a column that marks them
    colour: left out: dropped, as asked
    """
    found = {name: Column(name, "left out", "dropped, as asked") for name in drop}
    found |= _describe_numbers(cells, frozenset(keep))
    for name, texts in cells.texts.items():
        asked = "as asked" if name in categorical else "declared" if name in cells.declared else ""
        found[name] = _describe_text(name, texts, asked, name in keep)
    if all(column.kind == "left out" for column in found.values()):
        # Numbers that look like ids, but are not called so, are features where there are no others.
        unnamed = [name for name, column in found.items() if column.reason == _ID and not _named_like_an_id(name)]
        reason = "whole numbers, all different, but there are no other features"
        found |= {name: Column(name, "number", reason, True) for name in unnamed}
    return tuple(found[name] for name in cells.names if name in found)


def _describe_numbers(cells: Cells, keep: Collection[str]) -> dict[str, Column]:
    found = {name: Column(name, "number", "numbers") for name in cells.number_names}
    rows, missing = len(cells), np.isnan(cells.numbers).sum(axis=0)
    for place in np.flatnonzero(missing).tolist():
        name, gaps = cells.number_names[place], int(missing[place])
        if gaps == rows:
            found[name] = Column(name, "left out", "no value in any row", True)
        else:
            reason = f"numbers, {share(gaps, rows)} missing: the median, and a column that marks them"
            found[name] = Column(name, "number", reason)
    # The first rows tell most columns apart from whole numbers. A missing value is not equal to itself.
    first = cells.numbers[:100]
    likely = np.flatnonzero((first == np.floor(first)).all(axis=0)).tolist() if rows > 1 else []
    for place in likely:
        name, values = cells.number_names[place], cells.numbers[:, place]
        named = _named_like_an_id(name)
        if (rows < ROWS_OF_IDS and not named) or not _whole_and_different(values, cells.whole.get(name)):
            continue
        # As many random numbers would hardly all be different: the birthday problem.
        width = float(values.max()) - float(values.min()) + 1
        sure = named or rows**2 / (2 * width) >= -float(np.log(CHANCE))
        if name in keep:
            found[name] = Column(name, "number", "whole numbers, all different: kept, as asked")
        elif sure:
            found[name] = Column(name, "left out", _ID, True)
        else:
            reason = "whole numbers, all different: to be dropped if it is an id"
            found[name] = Column(name, "number", reason, True)
    return found


def _whole_and_different(values: NDArray[np.float32], texts: Text | None) -> bool:
    """Return whether numbers are whole and all different: by their texts, where float32 does not tell them apart."""
    if texts is not None:
        return len(set(texts)) == len(texts) and is_whole(texts)
    some_equal = any(len(np.unique(part)) < len(part) for part in (values[:100], values))
    return not some_equal and bool((values == np.floor(values)).all())


def _named_like_an_id(name: str) -> bool:
    name = name.strip()
    return bool(_ID_NAME.fullmatch(name.lower()) or _CAMEL_ID.fullmatch(name))


def _describe_text(name: str, texts: Text, asked: str, kept: bool) -> Column:
    values = dict.fromkeys(text for text in texts if text is not None)  # in the order of the rows
    gaps = sum(text is None for text in texts)
    if not values:
        return Column(name, "left out", "no value in any row", True)
    if not (asked or kept) and (reason := _useless(name, values, gaps, len(texts))):
        return Column(name, "left out", reason, True)
    count = f"{len(values)} value{'s' if len(values) > 1 else ''}"
    reason = f"text with {count}" if not asked else f"a category {asked}, {count}"
    if len(values) + (gaps > 0) > MOST_CATEGORIES:
        reason += f": the {MOST_CATEGORIES - 1} most frequent, and one for all others"
    if gaps:
        reason += f"; {share(gaps, len(texts))} missing count as a value"
    return Column(name, "category", reason)


def _useless(name: str, values: Collection[str], gaps: int, rows: int) -> str:
    """Why a column of text is left out; empty if it is not."""
    distinct, filled = len(values), rows - gaps
    if distinct == 1 and not gaps:
        return "text, always the same"
    if _is_free_text(values, filled):
        return f"{FREE_TEXT}, {distinct} different values in {filled} rows"
    if distinct == filled and (filled >= ROWS_OF_IDS or (_named_like_an_id(name) and not gaps)):
        return "text, all different: looks like an id"
    if filled >= ROWS_OF_IDS and distinct >= NEARLY_ALL * filled:
        return f"text, nearly all different ({distinct} values in {filled} rows)"
    return ""


def _is_free_text(values: Collection[str], filled: int) -> bool:
    if filled < ROWS_OF_IDS or 2 * len(values) < filled:
        return False
    words = float(np.median([_words(value) for value in itertools.islice(values, _SAMPLE)]))
    return words >= (WORDS if len(values) >= NEARLY_ALL * filled else MANY_WORDS)


def _words(text: str) -> int:
    """Count the words of a text, without numbers and codes."""
    words = text[:_START].split()
    named = sum(any(map(str.isalpha, word)) and not any(map(str.isdigit, word)) for word in words)
    return named + len(_UNSPACED.findall(text[:_START])) // 2


def share(part: int, whole: int) -> str:
    """Write a share in percent, for people.

    >>> share(1, 8), share(1, 1000)
    ('12 %', 'less than 1 %')
    """
    return f"{100 * part / whole:.0f} %" if 200 * part >= whole else "less than 1 %"


FORMAT = 1
"""The version of the document. It grows when an older symloss could misread one."""
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
        """Learn from the rows of a table ``without`` some, and return their features (N, d).

        ``columns`` may be features. Where all look like ids, the message ends with the hint.
        """
        dropped, known = frozenset(self.drop), frozenset(columns)
        for argument in ("drop", "categorical", "keep"):
            for name in getattr(self, argument):
                if name not in known:
                    hint = checks.nearest(name, map(str, known))
                    raise ValueError(f"{argument} must name columns of {table.where}; got {name!r}, {hint}")
                if argument != "drop" and name in dropped:
                    raise ValueError(f"{argument} must name other columns than drop; got {name!r} in both")
        cells = table.cells([name for name in columns if name not in dropped], self.categorical, without)
        self.columns_ = describe_cells(cells, self.drop, self.categorical, self.keep)
        if all(column.kind == "left out" for column in self.columns_):
            # Free text explains most, wherever its column stands.
            found = sorted(self.columns_, key=lambda column: not column.is_free_text)
            hint = f"; {NO_TEXT}" if any(column.is_free_text for column in found) else hint and f" {hint}"
            raise ValueError(f"{table.where} must have a column of features; got {_named(found) or 'no columns'}{hint}")
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
