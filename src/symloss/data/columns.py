"""What becomes of each column of a table, and why: numbers, categories, dates, free text, or nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from symloss.data.cells import Cells, Text, is_whole
from symloss.data.dates import described, learn_dates, readings

Kind = Literal["number", "category", "date", "text", "left out"]
KINDS: tuple[Kind, ...] = ("number", "category", "date", "text", "left out")
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
FREE_TEXT = "free text"
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


def describe_cells(
    cells: Cells,
    drop: Collection[str] = (),
    categorical: Collection[str] = (),
    keep: Collection[str] = (),
    text: Collection[str] = (),
    encoded: bool = True,
) -> tuple[Column, ...]:
    """Say what becomes of each column of a table; ``cells`` are those of all columns that are not dropped.

    Columns in ``text`` are free text, whatever they look like. ``encoded`` says whether free text becomes features.

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
        if name in text:
            found[name] = _free_text(name, texts)
        else:
            found[name] = _describe_text(name, texts, asked, name in keep, encoded)
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


def _describe_text(name: str, texts: Text, asked: str, kept: bool, encoded: bool) -> Column:
    values = dict.fromkeys(text for text in texts if text is not None)  # in the order of the rows
    gaps, rows = sum(text is None for text in texts), len(texts)
    if not values:
        return Column(name, "left out", "no value in any row", True)
    if not asked:
        if (dates := readings(texts)) and (len(dates) == 1 or not kept):
            return _describe_dates(name, dates, len(values), kept)
        if _is_free_text(values, rows - gaps):
            if encoded:
                return _free_text(name, texts)
            if not kept:
                reason = f"{FREE_TEXT}, {len(values)} different values in {rows - gaps} rows: not encoded, as asked"
                return Column(name, "left out", reason, True)
        elif not kept and (reason := _useless(name, values, gaps, rows)):
            return Column(name, "left out", reason, True)
    count = f"{len(values)} value{'s' if len(values) > 1 else ''}"
    reason = f"text with {count}" if not asked else f"a category {asked}, {count}"
    if len(values) + (gaps > 0) > MOST_CATEGORIES:
        reason += f": the {MOST_CATEGORIES - 1} most frequent, and one for all others"
    if gaps:
        reason += f"; {share(gaps, rows)} missing count as a value"
    return Column(name, "category", reason)


def _free_text(name: str, texts: Text) -> Column:
    distinct, gaps = len({text for text in texts if text is not None}), sum(text is None for text in texts)
    if not distinct:
        return Column(name, "left out", "no value in any row", True)
    missing = f", {share(gaps, len(texts))} missing count as empty" if gaps else ""
    return Column(name, "text", f"{FREE_TEXT}, {distinct} different value{'s' if distinct > 1 else ''}{missing}", True)


def _describe_dates(name: str, dates: Mapping[str, NDArray[np.float64]], distinct: int, kept: bool) -> Column:
    if len(dates) > 1:
        return Column(name, "left out", f"ambiguous dates ({' or '.join(dates)}): write them as 2024-12-31", True)
    ((date_format, when),) = dates.items()
    given = when[~np.isnan(when)]
    gaps = len(when) - len(given)
    if distinct == 1 and not gaps and not kept:
        return Column(name, "left out", "dates, always the same", True)
    missing = f"; {share(gaps, len(when))} missing: the median, and a column that marks them" if gaps else ""
    parts = learn_dates(name, when).parts
    return Column(name, "date", described(given.tolist(), parts, date_format) + missing)


def _useless(name: str, values: Collection[str], gaps: int, rows: int) -> str:
    """Why a column of text that is no free text is left out; empty if it is not."""
    distinct, filled = len(values), rows - gaps
    if distinct == 1 and not gaps:
        return "text, always the same"
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
