"""The files of an audit: a CSV, the probabilities, and a page to accept or reject suggestions."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from symloss import checks
from symloss.report import audit_page, audit_table
from symloss.report.audit_document import AuditDocument, Suspect
from symloss.writing import clear_write_errors, write_whole

if TYPE_CHECKING:
    from symloss.fit.audit import Audit

FILES = CSV, PROBABILITIES, PAGE = "audit.csv", "pred_probs.npy", "audit.html"
SUSPECTS = 400
"""The most suspicious labels on a page."""
READER = 'symloss.report.corrections(audit, "corrected.csv")'
"""What reads the CSV of decisions that the page writes."""
ROW = 1440
"""The most characters of an example's cells."""


def write_audit(
    audit: Audit,
    folder: Path | str,
    *,
    columns: Mapping[str, Sequence[object]] | None = None,
    facts: Sequence[tuple[str, str]] = (),
) -> list[Path]:
    """Write ``audit.csv``, ``pred_probs.npy`` and ``audit.html`` of an audit to a folder; return their paths.

    Args:
        audit: of N labels, see :func:`symloss.fit.audit_fit`. Without probabilities there is no ``pred_probs.npy``.
        folder: is made if it is not there.
        columns: what the page shows of each example: names, and N values each. A text, for example.
        facts: what else the page says at the top, as pairs of a name and a text.

    >>> import tempfile
    >>> from symloss.fit import audit_labels
    >>> audit = audit_labels([0, 1], [1.0, -1.0], [[0.9, 0.1], [0.8, 0.2]], classes=["ham", "spam"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write_audit(audit, folder, columns={"text": ["Hello", "How are you?"]})]
    ['audit.csv', 'pred_probs.npy', 'audit.html']
    """
    shown = {} if columns is None else dict(columns)
    for name, values in shown.items():
        if len(values) != len(audit):
            raise ValueError(f"columns must have {len(audit)} values each; got {len(values)} in {checks.brief(name)}")
    suspects = [
        Suspect(place, cells=shortened(str(values[place]) for values in shown.values())) for place in suspicious(audit)
    ]
    truth = measured(audit)
    facts = [*facts, ("Measured", truth)] if truth is not None else facts
    return write_document(audit_document(audit, facts, suspects, tuple(shown), reader=READER), audit, Path(folder))


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


def suspicious(audit: Audit) -> list[int]:
    """The places of the flagged labels that a page shows, the most suspicious first."""
    flagged = audit.order[audit.flagged[audit.order]]
    return [int(place) for place in flagged[:SUSPECTS]]


def shortened(cells: Iterable[str]) -> tuple[str, ...]:
    """The cells of an example, cut so that they fit on a page. Few cells may be long.

    >>> shortened(["a" * 800, "b" * 800])[0] == "a" * 719 + "…"
    True
    """
    cells = tuple(cells)
    most = ROW // max(1, len(cells))
    return tuple(cell if len(cell) <= most else cell[: most - 1] + "…" for cell in cells)


def audit_document(
    audit: Audit,
    facts: Sequence[tuple[str, str]],
    suspects: Sequence[Suspect],
    columns: tuple[str, ...] = (),
    *,
    rows: Sequence[int] | None = None,
    files: Sequence[str] | None = None,
    reader: str = "",
    title: str | None = None,
    notice: str = "",
) -> AuditDocument:
    """What the files of an audit show; see :class:`symloss.report.audit_document.AuditDocument`."""
    likely = audit.given if audit.pred_probs is None else audit.pred_probs.argmax(1)
    places = audit.positions.tolist()
    return AuditDocument(
        title=verdict(audit) if title is None else title,
        facts=tuple(facts),
        key=hashlib.sha256(repr((facts, audit.classes, places)).encode(errors="replace")).hexdigest()[:16],
        classes=audit.classes,
        index=audit.positions,
        given=audit.given,
        predicted=np.where(audit.flagged, audit.suggested, likely),
        label_scores=audit.label_scores,
        flagged=audit.flagged,
        suspects=tuple(suspects),
        columns=columns,
        rows=rows,
        files=files,
        reader=reader,
        notice=notice,
    )


def write_document(document: AuditDocument, audit: Audit, folder: Path) -> list[Path]:
    """Write the CSV, the probabilities and the page to a folder; return their paths."""
    # A file name that is no valid Unicode must not stop the others.
    contents = {CSV: audit_table.render(document).encode(errors="backslashreplace")}
    if audit.pred_probs is not None:
        array = io.BytesIO()
        np.save(array, audit.pred_probs, allow_pickle=False)
        contents[PROBABILITIES] = array.getvalue()
    contents[PAGE] = audit_page.render(document).encode(errors="backslashreplace")
    with clear_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_whole(folder / name, content)
    return [folder / name for name in contents]
