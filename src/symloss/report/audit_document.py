"""What an audit's table and page are made of: plain data, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Suspect:
    """A label that looks wrong, as the page shows it.

    Args:
        place: which of the document's labels it is.
        picture: the example as a PNG file; None if it is no image.
        cells: the example's cells, for the document's columns; none if it is no row of a table.
    """

    place: int
    picture: bytes | None = None
    cells: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class AuditDocument:
    """An audit of N labels, for people and for other programs.

    Args:
        title: the verdict in a line.
        facts: what was audited and how, as pairs of a name and a text.
        key: the same for the same audit. The browser keeps decisions under it.
        classes: the names of the classes.
        index: (N,), which examples of the data set the labels belong to.
        given: (N,), the labels, as class numbers.
        predicted: (N,), the suggestion of each flagged label; the most probable class of the others.
        label_scores: (N,). Lower is more suspicious.
        flagged: (N,), whether a label looks wrong.
        suspects: labels to show, the most suspicious first.
        columns: the names of the suspects' cells.
        rows: the row of each example in its table, as a spreadsheet counts it; None where there is no table.
        files: the file of each example; None where there are none.
        reader: the command, or the call, that reads the CSV of decisions; empty if nothing does.
        notice: a warning for the top of the page; empty if there is none.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    key: str
    classes: tuple[str, ...]
    index: NDArray[np.int64]
    given: NDArray[np.int64]
    predicted: NDArray[np.int64]
    label_scores: NDArray[np.float64]
    flagged: NDArray[np.bool_]
    suspects: tuple[Suspect, ...] = ()
    columns: tuple[str, ...] = ()
    rows: Sequence[int] | None = None
    files: Sequence[str] | None = None
    reader: str = ""
    notice: str = ""

    def name(self, place: int) -> str:
        """What a person would look for: the file, the row of the table, or the number of the example."""
        if self.files is not None:
            return self.files[place]
        return f"row {self.rows[place]}" if self.rows is not None else f"example {self.index[place]}"
