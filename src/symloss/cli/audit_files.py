"""The files of an audit: a CSV, the probabilities, and a page with pictures or rows."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symloss.data.dataset import Inputs
from symloss.data.origins import Origins
from symloss.report.audit_document import AuditDocument, Suspect

if TYPE_CHECKING:
    from symloss.robust import Audit

CSV, PROBABILITIES, PAGE = "audit.csv", "pred_probs.npy", "audit.html"
SUSPECTS, PICTURE_BYTES = 400, 6 * 2**20
"""The most suspicious labels on a page, and the most bytes of their pictures."""
COLUMNS, CELL = 12, 120
"""The most columns of a table on a page, and the most characters of a cell."""


def verdict(audit: Audit) -> str:
    """How many labels look wrong, in words."""
    if not audit.n_wrong:
        return f"None of {len(audit):,} labels looks wrong"
    return f"About {audit.n_wrong:,} of {len(audit):,} labels look{'s' if audit.n_wrong == 1 else ''} wrong"


def measured(audit: Audit) -> str | None:
    """How good the audit is, in words; None where the truth is not known."""
    if audit.truth is None:
        return None
    if not audit.really_wrong:
        return "no label is wrong, so every flag is a false one"
    shares = {
        "average precision": audit.average_precision,
        "precision": audit.precision,
        "recall": audit.recall,
        "right suggestions": audit.right_suggestions,
    }
    figures = ", ".join(f"{name} {value:.3f}" for name, value in shares.items() if value is not None)
    return f"{audit.really_wrong:,} labels really are wrong: {figures}"


def compose(
    audit: Audit,
    facts: Sequence[tuple[str, str]],
    origins: Origins,
    *,
    inputs: Inputs | None = None,
    table: Path | None = None,
    label: str = "label",
) -> AuditDocument:
    """What the files of an audit show.

    Args:
        audit: of the labels.
        facts: what was audited and how, as pairs of a name and a text.
        origins: where all examples of the data set came from.
        inputs: of all examples, for their pictures.
        table: the file whose rows the examples are, to show their cells.
        label: the column of the labels in it.
    """
    import numpy as np

    assert audit.pred_probs is not None
    places = audit.positions.tolist()
    rows, files = ([part[k] for k in places] if part is not None else None for part in (origins.rows, origins.files))
    shown = [int(place) for place in audit.order[: min(SUSPECTS, audit.n_wrong)]]
    columns, cells = _cells(table, label, [rows[place] for place in shown]) if table and rows else ((), {})
    suspects: list[Suspect] = []
    left = PICTURE_BYTES
    for place in shown:
        picture = None if inputs is None else _picture(inputs, places[place])
        left -= len(picture or b"")
        if left < 0:
            break
        suspects.append(Suspect(place, picture, cells.get(rows[place], ()) if rows else ()))
    return AuditDocument(
        title=verdict(audit),
        facts=tuple(facts),
        key=hashlib.sha256(repr((facts, audit.classes, places)).encode(errors="replace")).hexdigest()[:16],
        classes=audit.classes,
        index=audit.positions,
        given=audit.given,
        predicted=np.where(audit.flagged, audit.suggested, audit.pred_probs.argmax(1)),
        label_scores=audit.label_scores,
        flagged=audit.flagged,
        suspects=tuple(suspects),
        columns=columns,
        rows=rows,
        files=files,
    )


def _picture(inputs: Inputs, position: int) -> bytes | None:
    from symloss.data.thumbnails import thumbnail

    return thumbnail(inputs, position)


def _cells(table: Path, label: str, rows: list[int]) -> tuple[tuple[str, ...], dict[int, tuple[str, ...]]]:
    """The names of the first columns beside the label, and the cells of some rows."""
    from symloss.data.corrected_table import rows_of_table
    from symloss.data.opening import open_table

    columns = [column for column in open_table(table).columns if column != label][:COLUMNS]
    found = rows_of_table(table, columns, rows)
    return tuple(columns), {row: tuple(_shortened(cell) for cell in cells) for row, cells in found.items()}


def _shortened(cell: str) -> str:
    return cell if len(cell) <= CELL else cell[: CELL - 1] + "…"


def write_audit(document: AuditDocument, audit: Audit, folder: Path) -> list[Path]:
    """Write the CSV, the probabilities and the page to a folder; return their paths."""
    import numpy as np

    from symloss.report import audit_page, audit_table
    from symloss.writing import clear_write_errors, write_whole

    assert audit.pred_probs is not None
    array = io.BytesIO()
    np.save(array, audit.pred_probs, allow_pickle=False)
    # A file name that is no valid Unicode must not stop the others.
    texts = {CSV: audit_table.render(document), PAGE: audit_page.render(document)}
    contents = {name: text.encode(errors="backslashreplace") for name, text in texts.items()}
    contents[PROBABILITIES] = array.getvalue()
    with clear_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_whole(folder / name, content)
    return [folder / name for name in (CSV, PROBABILITIES, PAGE)]
