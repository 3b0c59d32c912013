"""Theorem 5.1, asked of a loss: if it is convex, symmetric, non-increasing and invariant, it is a unhinged + b."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from symloss.theory.findings import Finding, finding, plain
from symloss.theory.linear_facts import LinearFacts
from symloss.theory.properties import near_first
from symloss.theory.search import Places
from symloss.theory.subject import Subject, rounding


@dataclass(frozen=True)
class Linearity:
    """How far a loss is from being linear, at all points of a search."""

    affine: Finding
    """Is the loss its linear approximation at 0? Measured: the largest difference."""
    unhinged: Finding
    """Is it slope x unhinged, plus a constant for each label? Measured: the largest difference."""
    coefficients: list[list[float]] | None
    """Its coefficients a_k(y), a row for each label, if it is affine; else None."""
    trivial: Finding
    """Is it constant in the scores? Measured: the largest change."""


@dataclass(frozen=True)
class Theorem:
    """Theorem 5.1, asked of one loss: which assumptions hold, and how far the loss is from a unhinged + b."""

    loss: str
    """The loss, as text."""
    num_classes: int
    """The number of classes."""
    assumptions: dict[str, Finding]
    """Convex, symmetric, non-increasing and permutation-invariant, as the certificate found them."""
    trivial: bool
    """Whether the loss is constant, which the theorem excludes."""
    slope: float
    """The multiple a of the unhinged loss, from the gradient at 0."""
    distance: Finding
    """Is the loss a unhinged + b? Measured: the largest difference."""
    linear: LinearFacts | None
    """What lemma D.1 and proposition D.2 say of its coefficients, if the loss is affine; else None."""

    @property
    def applies(self) -> bool:
        """Whether all assumptions hold, so that the loss must be a unhinged + b."""
        return all(self.assumptions.values()) and not self.trivial

    @property
    def conclusion(self) -> str:
        """What follows, as a sentence."""
        if self.applies:
            return f"All assumptions hold, so the loss is {self.slope:.6g} x unhinged + b."
        missing = [name.replace("_", "-") for name, held in self.assumptions.items() if not held]
        missing += ["non-trivial"] if self.trivial else []
        listed = " and ".join([", ".join(missing[:-1]), missing[-1]] if len(missing) > 1 else missing)
        sequel = "It is a multiple of unhinged plus b all the same." if self.distance else "It need not be unhinged."
        return f"The theorem does not apply: the loss is not {listed}. {sequel}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON. Infinities become strings."""
        return plain(dataclasses.asdict(self)) | {
            "applies": self.applies,
            "conclusion": self.conclusion,
        }

    def __str__(self) -> str:
        lines = [f"Theorem 5.1: {self.loss}, {self.num_classes} classes"]
        for name, held in self.assumptions.items():
            why = held.grounds if held else str(held.counter_example)
            lines.append(f"  {'yes' if held else 'no':<4} {name.replace('_', '-'):<22} {why}")
        lines.append(f"  {'no' if self.trivial else 'yes':<4} non-trivial")
        lines.append(f"  distance from {self.slope:.6g} x unhinged + b: {self.distance.measure:.3g}")
        if self.linear is not None:
            lines += [
                "  The loss is affine; for its coefficients a_k(y):",
                *(f"    {line}" for line in str(self.linear).splitlines()),
            ]
        return "\n".join([*lines, self.conclusion])


def linearity(places: Places, slope: float) -> Linearity:
    """Compare a loss with its linear approximation at 0, with slope x unhinged, and with its value at 0."""
    subject, classes = places.subject, places.subject.num_classes
    labels, zero = torch.arange(classes), torch.zeros(classes, classes, dtype=torch.float64)
    start = subject.value(zero, labels).detach()
    gradient = subject.gradient(zero, labels) if subject.differentiable else zero
    if not subject.differentiable or bool(gradient.isnan().any()):
        gradient = _differences(subject, start)
    unhinged = slope * (1 / classes - torch.eye(classes, dtype=torch.float64))
    z, y = places.every
    values = places.values
    found = []
    for rows in (gradient, unhinged, zero):
        linear = (rows[y] * z).sum(1)
        off = (values - start[y] - linear).abs()
        size = values.abs() + start[y].abs() + (rows[y] * z).abs().sum(1)
        real = subject.exceeding(off, size, z, lambda at: rounding(subject.value, z[at], y[at]))
        if len(real):
            at = near_first(real, off, z)
            seen = f"it differs by {float(off[at]):.6g} at a"
            found.append(finding(False, float(off[at]), seen, y[at], a=z[at]))
        else:
            found.append(Finding(True, float(off.max()), None, len(z)))
    affine, multiple, trivial = found
    return Linearity(affine, multiple, gradient.tolist() if affine else None, trivial)


def _differences(subject: Subject, start: Tensor) -> Tensor:
    """Return the changes from 0 to the unit vectors, (C, C): what the coefficients are if the loss is affine."""
    with torch.no_grad():
        return subject.per_class(torch.eye(len(start), dtype=torch.float64)).T - start[:, None]


def breaking_points(found: Linearity, curved: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Return the ends of lines on which a symmetric loss that is not affine cannot be convex for every label.

    On such a line some label's loss is not affine. The second differences of all labels sum to 0, so that one of them
    is negative.
    """
    example = found.affine.counter_example
    if example is None:
        return curved
    a = torch.tensor(example.scores["a"], dtype=torch.float64)
    return [(0 * a, a), (-a, a), *curved]
