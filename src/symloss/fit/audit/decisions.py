"""What people decided about suspicious labels, and the labels that follow from it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from symloss import checks
from symloss.fit.audit.scores import Audit
from symloss.writing import without_formula

ACCEPTED, REJECTED = "accepted", "rejected"


@dataclass(frozen=True)
class Decision:
    """What somebody decided about a label."""

    position: int  # of the example in the data set
    decision: str  # what was decided: "accepted" or "rejected"
    label: int | None  # the class that is right
    annotator: str = ""  # who decided


def corrections(audit: Audit, decisions: Path | str | None = None, *, above: float = 0.0) -> dict[int, str]:
    """Return the new label of each example to change, by its position in the data set.

    Args:
        audit: of the labels.
        decisions: the CSV that the page wrote, of which the accepted labels count; None for every suggestion.
        above: without decisions, only suggestions with at least this probability.

    >>> from symloss.fit import audit_labels
    >>> audit = audit_labels([0, 1], [1.0, -1.0], [[0.9, 0.1], [0.8, 0.2]], class_names=["ham", "spam"])
    >>> corrections(audit)
    {1: 'ham'}
    """
    if decisions is None:
        checks.number("above", above, "[0, 1]")
        flagged = (audit.flagged & (audit.suggested_probs >= above)).nonzero()[0].tolist()
        return {int(audit.positions[place]): audit.class_names[audit.suggested[place]] for place in flagged}
    decided = read_decisions(Path(decisions), audit)
    return {
        one.position: audit.class_names[one.label]
        for one in decided
        if one.decision == ACCEPTED and one.label is not None
    }


def read_decisions(path: Path, audit: Audit) -> list[Decision]:
    """Return the decisions in a CSV that the page wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else, or decisions about another audit.
    """
    if path.suffix.lower() == ".json":
        from symloss.fit.audit import label_studio  # noqa: PLC0415 (which needs this module)

        return label_studio.read_decisions(path, audit)
    numbers = {without_formula(name): number for number, name in enumerate(audit.class_names)}
    known = set(audit.positions.tolist())
    found = []
    for line, row in enumerate(_rows(path), 2):
        checks.choice(f"decision in line {line} of {path}", row.get("decision"), (ACCEPTED, REJECTED))
        index, label = row.get("index") or "", row.get("corrected_label") or ""
        if not index.isascii() or not index.isdigit() or int(index) not in known:
            raise ValueError(
                f"index in line {line} of {path} must be an example of the audit; got {checks.brief(index)}"
            )
        if label not in numbers:
            raise ValueError(f"corrected_label in line {line} of {path} must be a class; got {checks.brief(label)}")
        found.append(Decision(int(index), row["decision"] or "", numbers[label]))
    return found


def _rows(path: Path) -> list[dict[str, str | None]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(csv.DictReader(file, restkey="more"))
    except FileNotFoundError:
        raise FileNotFoundError(f"decisions must be a CSV that the page wrote; got no file {str(path)!r}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"decisions must be a CSV that the page wrote; got {error} in {str(path)!r}") from None


def expected_effect(audit: Audit, corrected: Mapping[int, str]) -> tuple[float, float]:
    """Return how many labels corrections are expected to fix, and how many to break, by the model's own probabilities.

    Args:
        audit: of the labels.
        corrected: the new label of each example to change, by its position in the data set.

    >>> from symloss.fit import audit_labels
    >>> audit = audit_labels([0, 1], [1.0, -1.0], [[0.9, 0.1], [0.8, 0.2]], class_names=["ham", "spam"])
    >>> expected_effect(audit, corrections(audit))
    (0.8, 0.2)
    """
    places = [place for place, position in enumerate(audit.positions.tolist()) if position in corrected]
    return float(audit.suggested_probs[places].sum()), float(audit.given_probs[places].sum())
