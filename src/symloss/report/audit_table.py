"""An audit as CSV, in the columns that cleanlab's users know."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from symloss.report.audit_document import AuditDocument
from symloss.writing import without_formula

LABEL_COLUMNS = ("is_label_issue", "label_score", "given_label", "predicted_label")


def render(document: AuditDocument) -> str:
    """The audit as the text of a CSV file: a line for each label, in the order of the data."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    identification = ["index", *(["row"] if document.rows is not None else []), *(["file"] if document.files else [])]
    writer.writerow([*identification, *LABEL_COLUMNS])
    writer.writerows(_lines(document))
    return text.getvalue()


def _lines(document: AuditDocument) -> Iterator[list[object]]:
    names = [without_formula(name) for name in document.classes]
    flags, given, predicted = (part.tolist() for part in (document.flagged, document.given, document.predicted))
    scores = document.label_scores.tolist()
    for place, index in enumerate(document.index.tolist()):
        row = [] if document.rows is None else [document.rows[place]]
        file = [without_formula(document.files[place])] if document.files else []
        labels = [flags[place], f"{scores[place]:.6g}", names[given[place]], names[predicted[place]]]
        yield [index, *row, *file, *labels]
