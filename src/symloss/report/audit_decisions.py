"""The decisions that somebody made on the page of an audit, read back from its CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from symloss import checks
from symloss.writing import without_formula

if TYPE_CHECKING:
    from symloss.fit.audit import Audit

ACCEPTED, REJECTED = "accepted", "rejected"


def corrections(audit: Audit, decisions: Path | str | None = None, *, above: float = 0.0) -> dict[int, str]:
    """The new label of each example to change, by its position in the data set.

    Args:
        audit: of the labels.
        decisions: the CSV that the page wrote, of which the accepted labels count; None for every suggestion.
        above: without decisions, only suggestions that are right with at least this probability, by the model.

    >>> from symloss.fit import audit_labels
    >>> audit = audit_labels([0, 1], [1.0, -1.0], [[0.9, 0.1], [0.8, 0.2]], classes=["ham", "spam"])
    >>> corrections(audit)
    {1: 'ham'}
    """
    if decisions is None:
        checks.number("above", above, "[0, 1]")
        flagged = (audit.flagged & (audit.suggested_probs >= above)).nonzero()[0].tolist()
        return {int(audit.positions[place]): audit.classes[audit.suggested[place]] for place in flagged}
    names = {without_formula(name): name for name in audit.classes}
    known = set(audit.positions.tolist())
    found = {}
    for number, row in enumerate(_rows(Path(decisions)), 2):
        checks.choice(f"decision in line {number} of {decisions}", row.get("decision"), (ACCEPTED, REJECTED))
        index, label = row.get("index") or "", row.get("corrected_label") or ""
        if not index.isascii() or not index.isdigit() or int(index) not in known:
            raise ValueError(
                f"index in line {number} of {decisions} must be an example of the audit; got {checks.brief(index)}"
            )
        if label not in names:
            raise ValueError(
                f"corrected_label in line {number} of {decisions} must be a class; got {checks.brief(label)}"
            )
        if row["decision"] == ACCEPTED:
            found[int(index)] = names[label]
    return found


def expected_effect(audit: Audit, corrected: Mapping[int, str]) -> tuple[float, float]:
    """How many labels corrections are expected to mend, and how many to break, by the model's own probabilities.

    Args:
        audit: of the labels.
        corrected: the new label of each example to change, by its position in the data set.

    >>> from symloss.fit import audit_labels
    >>> audit = audit_labels([0, 1], [1.0, -1.0], [[0.9, 0.1], [0.8, 0.2]], classes=["ham", "spam"])
    >>> expected_effect(audit, corrections(audit))
    (0.8, 0.2)
    """
    places = [place for place, position in enumerate(audit.positions.tolist()) if position in corrected]
    return float(audit.suggested_probs[places].sum()), float(audit.given_probs[places].sum())


def _rows(path: Path) -> list[dict[str, str | None]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(csv.DictReader(file, restkey="more"))
    except FileNotFoundError:
        raise FileNotFoundError(f"decisions must be a CSV that the page wrote; got no file {str(path)!r}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"decisions must be a CSV that the page wrote; got {error} in {str(path)!r}") from None
