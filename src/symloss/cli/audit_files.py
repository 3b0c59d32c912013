"""What the page of an audit shows of a user's data: pictures, or cells of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symloss.checks import shown_score
from symloss.data.dataset import Inputs, Origin
from symloss.data.tables import spreadsheet_row
from symloss.fit.audit.export import AuditDocument, Suspect, shortened, suspicious

if TYPE_CHECKING:
    from symloss.fit import Audit

PICTURE_BYTES = 6 * 2**20
"""The most bytes of the pictures on a page."""
COLUMNS = 12
"""The most columns of a table on a page."""


def compose(
    audit: Audit,
    facts: Sequence[tuple[str, str]],
    origin: Origin,
    *,
    inputs: Inputs | None = None,
    table: Path | None = None,
    label: str = "label",
    reader: str = "",
    title: str | None = None,
    notice: str = "",
) -> AuditDocument:
    """What the files of an audit show.

    Args:
        audit: of the labels.
        facts: what was audited and how, as pairs of a name and a text.
        origin: where all examples of the data set came from.
        inputs: of all examples, for their pictures.
        table: the file whose rows the examples are, to show their cells.
        label: the column of the labels in it.
        reader: what reads the CSV of decisions; empty if nothing does.
        title: what the page says first; None for how many labels look wrong.
        notice: a warning for the top of the page.
    """
    places = audit.positions.tolist()
    rows, files = ([part[k] for k in places] if part is not None else None for part in (origin.rows, origin.files))
    shown = suspicious(audit)
    columns, cells = _cells(table, label, [rows[place] for place in shown]) if table and rows else ((), {})
    suspects: list[Suspect] = []
    left = PICTURE_BYTES
    for place in shown:
        picture = None if inputs is None else _picture(inputs, places[place])
        left -= len(picture or b"")
        if left < 0:
            break
        suspects.append(Suspect(place, picture, cells.get(rows[place], ()) if rows else ()))
    shown_rows = None if rows is None else [spreadsheet_row(row) for row in rows]
    return AuditDocument(
        audit, tuple(facts), tuple(suspects), columns, shown_rows, files, reader=reader, headline=title, notice=notice
    )


def row(document: AuditDocument, place: int) -> dict[str, Any]:
    """One label: its number from 0, the file or row, what it is called, what it should be, and the score."""
    audit, names = document.audit, document.audit.classes
    return {
        "index": int(audit.positions[place]),
        "example": document.name(place),
        "given": names[audit.given[place]],
        "suggested": names[document.predicted[place]],
        "score": float(audit.label_scores[place]),
    }


def printed(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the commands print it for people."""
    shown = {name: value for name, value in row.items() if name != "index"}
    return shown | {"score": shown_score(row["score"])}


def _picture(inputs: Inputs, position: int) -> bytes | None:
    from symloss.data.images import thumbnail

    return thumbnail(inputs, position)


def _cells(table: Path, label: str, rows: list[int]) -> tuple[tuple[str, ...], dict[int, tuple[str, ...]]]:
    """The names of the first columns beside the label, and the cells of some rows."""
    from symloss.data.corrected import rows_of_table
    from symloss.data.tables import open_table

    columns = [column for column in open_table(table).columns if column != label][:COLUMNS]
    found = rows_of_table(table, columns, rows)
    return tuple(columns), {row: shortened(cells) for row, cells in found.items()}
