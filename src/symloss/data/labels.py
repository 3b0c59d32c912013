"""From labels as people write them, names or numbers, to classes 0, 1, 2, ..."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from torch import Tensor

from symloss.checks import brief
from symloss.data.dataset import labels_tensor


def class_names(labels: Iterable[str], where: object) -> tuple[str, ...]:
    """The distinct labels in order: numbers by value, names by alphabet.

    >>> class_names(["10", "9", "10"], "x.csv"), class_names(["dog", "cat"], "x.csv")
    (('9', '10'), ('cat', 'dog'))
    """
    distinct = set(labels)
    if len(distinct) < 2:
        given = f"only {brief(*distinct)}" if distinct else "none"
        raise ValueError(f"the labels of {where} must name at least two classes; got {given}")
    numbers = [_number(text) for text in distinct]
    if None in numbers:
        return tuple(sorted(distinct))
    fractions = [number for number in numbers if number is not None and number != int(number)]
    if fractions:
        raise ValueError(
            f"the labels of {where} must be names or whole numbers, one for each class; got {min(fractions)}"
        )
    return tuple(sorted(distinct, key=lambda text: (float(text), text)))


def class_numbers(labels: Sequence[str], classes: Sequence[str], where: object) -> Tensor:
    """Each label's place among the classes."""
    place = {name: number for number, name in enumerate(classes)}
    unknown = sorted(set(labels) - set(classes))
    if unknown:
        raise ValueError(
            f"the labels of {where} must be among the {len(classes)} classes of the training data, "
            f"{brief(list(classes))}; got {brief(unknown[0])}"
        )
    return labels_tensor([place[label] for label in labels])


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
