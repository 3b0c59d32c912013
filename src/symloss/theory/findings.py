"""What a search found: whether a loss has a property, on which grounds, and where it has not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from symloss.theory.subject import shown


@dataclass(frozen=True)
class CounterExample:
    """Score vectors at which a loss does not have a property."""

    seen: str
    """What happens there, as a sentence."""
    label: int | None
    """The label; None where the property is one of all labels together."""
    scores: dict[str, list[float]]
    """The score vectors by name."""

    def __str__(self) -> str:
        label = "" if self.label is None else f", label {self.label}"
        vectors = "".join(f"; {name} = {shown(vector, self.label)}" for name, vector in self.scores.items())
        return f"{self.seen}{label}{vectors}"


@dataclass(frozen=True)
class Finding:
    """Whether a loss has a property. ``bool(finding)`` is the answer."""

    holds: bool
    """Whether the search met no violation."""
    measure: float
    """The largest violation that the search met; 0 is none."""
    counter_example: CounterExample | None = None
    """Where the property fails; None if it holds."""
    points: int = 0
    """How many points were searched."""
    proof: str = ""
    """How the property follows without a search: ``"by construction"`` or ``"by interval arithmetic"``."""

    def __bool__(self) -> bool:
        return self.holds

    @property
    def grounds(self) -> str:
        """Why the answer is yes: the proof, or how many points were searched in vain."""
        return self.proof or f"no counter-example at {self.points:,} points"


def finding(holds: bool, measure: float, seen: str, label: Tensor | int | None = None, **at: Tensor) -> Finding:
    """Return what was found, with the score vectors ``at`` as a counter-example if the property does not hold."""
    vectors = {name: vector.flatten().tolist() for name, vector in at.items()}
    example = CounterExample(seen, None if label is None else int(label), vectors)
    return Finding(holds, measure, None if holds else example)


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Return nested data for JSON: numbers as floats, tuples as lists, infinities and NaN as strings."""
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value
