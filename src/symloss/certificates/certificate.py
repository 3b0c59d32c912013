"""What was measured of a loss, as data, as text and as a card."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class CounterExample:
    """Points where a property fails: named score vectors, the label, and what is seen there."""

    seen: str
    label: int | None
    scores: dict[str, list[float]]

    def __str__(self) -> str:
        label = "" if self.label is None else f", label {self.label}"
        vectors = "".join(f"; {name} = {_short(vector, self.label)}" for name, vector in self.scores.items())
        return f"{self.seen}{label}{vectors}"


@dataclass(frozen=True)
class Finding:
    """Whether a property holds, the largest violation found (0 is none), and where."""

    holds: bool
    measure: float
    counter_example: CounterExample | None = None

    def __bool__(self) -> bool:
        return self.holds


@dataclass(frozen=True)
class Certificate:
    """The measured properties of a loss of raw scores. Constants are the largest values found: lower bounds."""

    loss: str
    classes: int
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
    high: float
    lipschitz: float
    """Largest norm of the gradient in the scores."""
    smoothness: float
    """Largest curvature (beta); infinite where the gradient jumps, NaN where it has no derivative to measure."""
    slope: float
    """At equal scores: the multiple of the unhinged loss that the linear approximation is (prop. 5.2); 1 for CE."""
    distance_from_unhinged: float
    """At equal scores: what is left of the gradient without that multiple, relative to it."""
    locally_symmetric: bool
    """At equal scores: do the gradients of all labels sum to zero?"""
    gradient_against_ce: float
    """At equal scores: the norm of the gradient, relative to cross-entropy's."""

    @property
    def findings(self) -> dict[str, Finding]:
        return {f.name: v for f in dataclasses.fields(self) if isinstance(v := getattr(self, f.name), Finding)}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; infinities as strings, since JSON has none."""
        return _plain(dataclasses.asdict(self))  # type: ignore[no-any-return]

    def __str__(self) -> str:
        lines = [f"{self.loss}, {self.classes} classes, raw scores"]
        for name, finding in self.findings.items():
            lines.append(
                f"  {'yes' if finding else 'no ':<4} {name.replace('_', '-'):<22} {_measure(name, finding, self)}"
            )
            if finding.counter_example is not None:
                lines.append(f"       {finding.counter_example}")
        lines.extend(f"  {name:<27} {value}" for name, value in self.constants.items())
        return "\n".join(lines)

    @property
    def constants(self) -> dict[str, str]:
        return {
            "Lipschitz constant": f"{self.lipschitz:.6g}",
            "beta-smoothness": f"{self.smoothness:.6g}",
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
        return Panel(table, title=f"{self.loss}, {self.classes} classes, raw scores", title_align="left", expand=False)


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
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
