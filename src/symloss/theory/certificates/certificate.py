"""The measured properties of a loss, as data, as text and as a table for a terminal."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

TOLERANCE = 1e-4
"""The relative error of a constant that is called exact."""


class Constant(float):
    """A measured constant: a number that knows whether it is exact or a lower bound. So do its multiples.

    Args:
        value: the number.
        exact: whether it is exact; else it is the largest value that a search met.

    >>> Constant(0.5, exact=False) * 2
    1.0 (at least)
    """

    exact: bool

    def __new__(cls, value: float, exact: bool = False) -> Constant:
        constant = super().__new__(cls, value)
        constant.exact = exact or value == math.inf  # nothing is larger than infinity
        return constant

    @property
    def meaning(self) -> str:
        """``"exact to 1e-4"`` or ``"at least"``."""
        return f"exact to {TOLERANCE:.0e}".replace("e-0", "e-") if self.exact else "at least"

    def __mul__(self, factor: float) -> Constant:
        return Constant(float(self) * factor, self.exact) if isinstance(factor, (int, float)) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Constant:
        return Constant(float(self) / divisor, self.exact) if isinstance(divisor, (int, float)) else NotImplemented

    def __str__(self) -> str:
        number = f"{float(self):.6g}"
        return f"{number} ({self.meaning})" if math.isfinite(self) else number

    def __repr__(self) -> str:
        return f"{float(self)!r} ({self.meaning})"


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
        vectors = "".join(f"; {name} = {_short(vector, self.label)}" for name, vector in self.scores.items())
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

    def __bool__(self) -> bool:
        return self.holds


@dataclass(frozen=True)
class Certificate:
    """The measured properties of a loss. Each constant says whether it is exact or a lower bound."""

    loss: str
    """The loss, as text."""
    classes: int
    """The number of classes."""
    scores: str
    """What the loss was given: raw scores, or the scores after a map such as ``normalize="l2"``."""
    symmetric: Finding
    """Is the sum over labels constant? Measured: its spread."""
    permutation_invariant: Finding
    """Is the loss the same when classes are renamed? Measured: the largest difference."""
    non_increasing: Finding
    """Does the loss never rise with the label's own score? Measured: the steepest rise."""
    convex: Finding
    """Is the loss convex in the scores? Measured: how far the middle of a chord lies below the loss."""
    bounded: Finding
    """Are all values within a range? Measured: the width of the range."""
    low: float
    """The smallest value that the search met; -inf if there is no bound."""
    high: float
    """The largest value that the search met; inf if there is no bound."""
    lipschitz: Constant
    """Largest norm of the gradient in the scores."""
    smoothness: Constant
    """Largest curvature (beta); infinite where the gradient jumps, NaN where it has no derivative to measure."""
    slope: float
    """At equal scores, the linear approximation is this multiple of the unhinged loss (prop. 5.2); 1 for CE."""
    distance_from_unhinged: float
    """At equal scores, the norm of the rest of the gradient, relative to that multiple."""
    locally_symmetric: bool
    """At equal scores: do the gradients of all labels sum to zero?"""
    gradient_against_ce: float
    """At equal scores: the norm of the gradient, relative to cross-entropy's."""

    @property
    def findings(self) -> dict[str, Finding]:
        """All findings by name."""
        return {f.name: v for f in dataclasses.fields(self) if isinstance(v := getattr(self, f.name), Finding)}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON. Infinities become strings. ``constants`` says which constants are exact."""
        sure = {name: getattr(self, name).meaning for name in ("lipschitz", "smoothness")}
        return _plain(dataclasses.asdict(self) | {"constants": sure})  # type: ignore[no-any-return]

    def __str__(self) -> str:
        lines = [self._title]
        for name, finding in self.findings.items():
            lines.append(
                f"  {'yes' if finding else 'no ':<4} {name.replace('_', '-'):<22} {_measure(name, finding, self)}"
            )
            if finding.counter_example is not None:
                lines.append(f"       {finding.counter_example}")
        lines.extend(f"  {name:<27} {value}" for name, value in self.constants.items())
        return "\n".join(lines)

    @property
    def _title(self) -> str:
        return f"{self.loss}, {self.classes} classes, {self.scores}"

    @property
    def constants(self) -> dict[str, str]:
        """The constants by name, as text."""
        return {
            "Lipschitz constant": str(self.lipschitz),
            "beta-smoothness": str(self.smoothness),
            "slope at equal scores": f"{self.slope:.6g} times unhinged (distance {self.distance_from_unhinged:.1g})",
            "locally symmetric there": "yes" if self.locally_symmetric else "no",
            "gradient there, CE = 1": f"{self.gradient_against_ce:.6g}",
        }

    def __rich__(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for name, finding in self.findings.items():
            mark = Text("yes", "bold green") if finding else Text("no", "bold red")
            table.add_row(mark, name.replace("_", "-"), _measure(name, finding, self))
            if finding.counter_example is not None:
                table.add_row("", "", Text(str(finding.counter_example), "dim"))
        for name, value in self.constants.items():
            table.add_row("", Text(name, "cyan"), value)
        return Panel(table, title=Text(self._title), title_align="left", expand=False)


def _measure(name: str, finding: Finding, certificate: Certificate) -> str:
    words = {
        "symmetric": "spread of the sum over labels {:.3g}",
        "permutation_invariant": "largest difference {:.3g}",
        "non_increasing": "steepest rise {:.3g}",
        "convex": "largest excess over a chord {:.3g}",
    }
    if name == "bounded":
        return f"values from {certificate.low:.6g} to {certificate.high:.6g}"
    return words[name].format(finding.measure)


def _short(vector: list[float], label: int | None, most: int = 6) -> str:
    """A score vector on a line: whole if short, else the label's score, the extremes and the count."""
    if len(vector) <= most:
        return "(" + ", ".join(f"{x:.4g}" for x in vector) + ")"
    own = "" if label is None else f"label {vector[label]:.4g}, "
    return f"({own}others {min(vector):.4g} to {max(vector):.4g}, {len(vector)} in all)"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value
