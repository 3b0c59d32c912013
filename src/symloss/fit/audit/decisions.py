"""What people decided about suspicious labels, and the labels that follow from it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from symloss import checks
from symloss.fit.audit.scores import Audit
from symloss.writing import without_formula

ACCEPTED, REJECTED, RELABELLED, UNSURE, UNUSABLE = "accepted", "rejected", "relabelled", "unsure", "unusable"
LABELLING = (ACCEPTED, REJECTED, RELABELLED)
"""The decisions for a class. The others name none."""
DECISIONS = (*LABELLING, UNSURE, UNUSABLE)


@dataclass(frozen=True)
class Decision:
    """What somebody decided about a label."""

    position: int  # of the example in the data set
    decision: str  # one of DECISIONS
    label: int | None  # the class that is right; None if the decision names none
    annotator: str = ""  # who decided


@dataclass(frozen=True)
class Outcome:
    """What follows from the decisions of several people. Each field is by the position of an example."""

    labels: dict[int, int] = field(default_factory=dict)  # the class that everybody decided for
    unusable: list[int] = field(default_factory=list)  # the examples that everybody would leave out
    conflicts: dict[int, list[Decision]] = field(default_factory=dict)  # the decisions that contradict each other


def merge(decisions: Iterable[Decision]) -> Outcome:
    """Merge the decisions of several people.

    A person's last decision about a label counts. "unsure" contradicts nobody. Where people contradict each other,
    nothing follows.

    >>> merge([Decision(3, "accepted", 1, "Ann"), Decision(3, "relabelled", 1, "Ben"), Decision(4, "unsure", None)])
    Outcome(labels={3: 1}, unusable=[], conflicts={})
    """
    last = {(one.position, one.annotator): one for one in decisions}
    by_position: dict[int, list[Decision]] = {}
    for one in last.values():
        if one.decision != UNSURE:
            by_position.setdefault(one.position, []).append(one)
    outcome = Outcome()
    for position, about in by_position.items():
        label = about[0].label
        if any(one.label != label for one in about):
            outcome.conflicts[position] = about
        elif label is None:
            outcome.unusable.append(position)
        else:
            outcome.labels[position] = label
    return outcome


def corrections(
    audit: Audit, decisions: Path | str | Sequence[Path | str] | None = None, *, above: float = 0.0
) -> dict[int, str]:
    """Return the new label of each example to change, by its position in the data set.

    Args:
        audit: of the labels.
        decisions: one or more files, CSVs that the page wrote or exports of Label Studio; None for every suggestion.
            Accepted and relabelled labels are changed, unless people contradict each other.
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
    paths = [decisions] if isinstance(decisions, Path | str) else decisions
    return changes(audit, merge(one for path in paths for one in read_decisions(Path(path), audit)))


def changes(audit: Audit, outcome: Outcome) -> dict[int, str]:
    """Return the new label of each example whose decided class is not its label, by its position in the data set."""
    given = dict(zip(audit.positions.tolist(), audit.given.tolist(), strict=True))
    return {place: audit.class_names[label] for place, label in outcome.labels.items() if label != given[place]}


def read_decisions(path: Path, audit: Audit) -> list[Decision]:
    """Return the decisions in a CSV that the page wrote, or in an export of Label Studio.

    Those without an annotator are signed with the file's name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else, or decisions about another audit.
    """
    if path.suffix.lower() == ".json":
        from symloss.fit.audit import label_studio  # noqa: PLC0415 (which needs this module)

        return label_studio.read_decisions(path, audit)
    numbers = {without_formula(name): number for number, name in enumerate(audit.class_names)}
    given = dict(zip(audit.positions.tolist(), audit.given.tolist(), strict=True))
    found = []
    for line, row in enumerate(_rows(path), 2):
        decision, index, label = (row.get(name) or "" for name in ("decision", "index", "corrected_label"))
        checks.choice(f"decision in line {line} of {path}", decision, DECISIONS)
        if not index.isascii() or not index.isdigit() or int(index) not in given:
            raise ValueError(
                f"index in line {line} of {path} must be an example of the audit; got {checks.brief(index)}"
            )
        if decision in LABELLING and label not in numbers:
            raise ValueError(f"corrected_label in line {line} of {path} must be a class; got {checks.brief(label)}")
        named = given[int(index)] if decision == REJECTED else numbers[label] if decision in LABELLING else None
        found.append(Decision(int(index), decision, named, row.get("annotator") or path.stem))
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
    fixed = broken = 0.0
    for place, position in enumerate(audit.positions.tolist()):
        label = corrected.get(position)
        if label is None:
            continue
        broken += float(audit.given_probs[place])
        if label == audit.class_names[audit.suggested[place]]:
            fixed += float(audit.suggested_probs[place])
        elif audit.pred_probs is not None:  # somebody chose another class
            fixed += float(audit.pred_probs[place, audit.class_names.index(label)])
    return fixed, broken
