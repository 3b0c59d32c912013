"""The files of an audit: a CSV, the probabilities, and a page to accept or reject suggestions."""

from __future__ import annotations

import csv
import functools
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from symloss import checks
from symloss.fit.audit import page
from symloss.fit.audit.scores import Audit
from symloss.writing import clear_write_errors, without_formula, write_whole

FILES = CSV, PROBABILITIES, PAGE = "audit.csv", "pred_probs.npy", "audit.html"
LABEL_COLUMNS = ("is_label_issue", "label_score", "given_label", "predicted_label")
"""The columns that cleanlab's users know."""
TYPICAL = 3
"""The most certain examples of a class that the page shows beside the suspicious ones."""
READER = 'symloss.fit.corrections(audit, "corrected.csv")'
"""What reads the CSV of decisions that the page writes."""
ROW, SHORT_ROW, ALL_ROWS = 1440, 160, 2**24
"""Characters of an example's cells: at most, if there are many examples, and of all examples."""


@dataclass(frozen=True)
class Suspect:
    """An example as the page shows it: one whose label looks wrong, or a typical one of its class."""

    place: int  # its place in the audit
    picture: bytes | None = None  # the example as a PNG or JPEG file; None if it is not an image, or not embedded
    cells: tuple[str, ...] = ()  # the example's cells, for the document's columns


@dataclass(frozen=True, eq=False)
class AuditDocument:
    """What the files of an audit show, for people and for other programs."""

    audit: Audit
    facts: tuple[tuple[str, str], ...] = ()  # what was audited and how, as pairs of a name and a text
    suspects: tuple[Suspect, ...] = ()  # the labels to show, the most suspicious first
    columns: tuple[str, ...] = ()  # the names of the suspects' cells
    # the row of each example in its table, as a spreadsheet counts it; None without a table
    rows: Sequence[int] | None = None
    files: Sequence[str] | None = None  # the file of each example; None without files
    reader: str = ""  # the command or call that reads the CSV of decisions; empty if nothing does
    headline: str | None = None  # the title of the page; None for the number of labels that look wrong
    notice: str = ""  # a warning for the top of the page
    typical: Mapping[int, Sequence[Suspect]] = field(default_factory=dict)  # the most certain examples of each class

    @property
    def title(self) -> str:
        """The title of the page."""
        return verdict(self.audit) if self.headline is None else self.headline

    @functools.cached_property
    def key(self) -> str:
        """A text that is the same for the same audit. The browser stores decisions under it."""
        parts = (self.facts, self.audit.class_names, self.audit.positions.tolist())
        return hashlib.sha256(repr(parts).encode(errors="replace")).hexdigest()[:16]

    @functools.cached_property
    def predicted(self) -> NDArray[np.int64]:
        """(N,), the suggestion for each flagged label; the most probable class of the others."""
        return np.where(self.audit.flagged, self.audit.suggested, self.audit.most_probable)

    def name(self, place: int) -> str:
        """Return what a person would look for: the file, the row of the table, or the number of the example."""
        if self.files is not None:
            return self.files[place]
        return f"row {self.rows[place]}" if self.rows is not None else f"example {self.audit.positions[place]}"


def write_audit(
    audit: Audit,
    folder: Path | str,
    *,
    columns: Mapping[str, Sequence[object]] | None = None,
    facts: Sequence[tuple[str, str]] = (),
) -> list[Path]:
    """Write ``audit.csv``, ``pred_probs.npy`` and ``audit.html`` to a folder, and return their paths.

    Args:
        audit: of N labels, see :func:`symloss.fit.audit_fit`. Without probabilities, ``pred_probs.npy`` is not written.
        folder: is created if need be.
        columns: what the page shows of each example: names, and N values each. A text, for example.
        facts: what else the page says at the top, as pairs of a name and a text.

    >>> import tempfile
    >>> from symloss.fit import audit_labels
    >>> audit = audit_labels([0, 1], [1.0, -1.0], [[0.9, 0.1], [0.8, 0.2]], class_names=["ham", "spam"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write_audit(audit, folder, columns={"text": ["Hello", "How are you?"]})]
    ['audit.csv', 'pred_probs.npy', 'audit.html']
    """
    shown = {} if columns is None else dict(columns)
    for name, values in shown.items():
        if len(values) != len(audit):
            raise ValueError(f"columns must have {len(audit)} values each; got {len(values)} in {checks.brief(name)}")
    places, certain = suspicious(audit), typical(audit)

    def examples(chosen: Iterable[int]) -> tuple[Suspect, ...]:
        cells = {place: [str(values[place]) for values in shown.values()] for place in chosen}
        return tuple(Suspect(place, None, shortened(texts, len(places))) for place, texts in cells.items())

    truth = measured(audit)
    facts = [*facts, ("Measured", truth)] if truth is not None else facts
    of_classes = {number: examples(chosen) for number, chosen in certain.items()}
    document = AuditDocument(audit, tuple(facts), examples(places), tuple(shown), reader=READER, typical=of_classes)
    return write_document(document, Path(folder))


def verdict(audit: Audit) -> str:
    """Return how many labels look wrong, in words."""
    if not audit.n_wrong:
        return f"None of {len(audit):,} labels looks wrong"
    return f"About {audit.n_wrong:,} of {len(audit):,} labels look{'s' if audit.n_wrong == 1 else ''} wrong"


def measured(audit: Audit) -> str | None:
    """Return how good the audit is, in words; None without true labels."""
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
    """Return the places of the flagged labels, the most suspicious first."""
    flagged: list[int] = audit.order[audit.flagged[audit.order]].tolist()
    return flagged


def typical(audit: Audit) -> dict[int, list[int]]:
    """Return the places of the most certain labels of each class that suspicious labels are given, or are suggested.

    The classes of most suspicious labels come first.
    """
    named = np.concatenate([audit.given[audit.flagged], audit.suggested[audit.flagged]])
    certain = audit.order[~audit.flagged[audit.order]][::-1]
    certain = certain[np.argsort(audit.given[certain], kind="stable")]
    starts = np.searchsorted(audit.given[certain], np.arange(len(audit.class_names) + 1))
    counts = np.bincount(named, minlength=len(audit.class_names))
    classes = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
    return {number: certain[starts[number] : starts[number + 1]][:TYPICAL].tolist() for number in classes}


def shortened(cells: Iterable[str], examples: int = 1) -> tuple[str, ...]:
    """Return the cells of an example, cut to fit on a page. The fewer cells and examples, the longer each may be.

    >>> shortened(["a" * 800, "b" * 800])[0] == "a" * 719 + "…"
    True
    """
    cells = tuple(cells)
    most = max(SHORT_ROW, min(ROW, ALL_ROWS // max(1, examples))) // max(1, len(cells))
    return tuple(cell if len(cell) <= most else cell[: most - 1] + "…" for cell in cells)


def write_document(document: AuditDocument, folder: Path, *, probabilities: bool = True) -> list[Path]:
    """Write the CSV, the probabilities unless the user has them, and the page to a folder, and return their paths."""
    # A file name that is not valid Unicode must not stop the others.
    contents = {CSV: csv_text(document).encode(errors="backslashreplace")}
    if probabilities and document.audit.pred_probs is not None:
        array = io.BytesIO()
        np.save(array, document.audit.pred_probs, allow_pickle=False)
        contents[PROBABILITIES] = array.getvalue()
    contents[PAGE] = page.render(document).encode(errors="backslashreplace")
    with clear_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_whole(folder / name, content)
    return [folder / name for name in contents]


def csv_text(document: AuditDocument) -> str:
    """Return the audit as CSV: a line for each label, in the order of the data."""
    audit = document.audit
    names = [without_formula(name) for name in audit.class_names]
    columns: dict[str, Iterable[object]] = {"index": audit.positions.tolist()}
    if document.rows is not None:
        columns["row"] = document.rows
    if document.files:
        columns["file"] = map(without_formula, document.files)
    scores = (f"{score:.6g}" for score in audit.label_scores.tolist())
    labels = ([names[number] for number in numbers] for numbers in (audit.given, document.predicted))
    columns |= zip(LABEL_COLUMNS, (audit.flagged.tolist(), scores, *labels), strict=True)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
