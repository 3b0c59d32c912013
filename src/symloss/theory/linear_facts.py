"""Which constraints the coefficients of a linear loss meet: lemma D.1 and proposition D.2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from symloss.losses.criterion import Numbers, numbers


@dataclass(frozen=True)
class Constraint:
    """Whether the coefficients of a linear loss meet a constraint. ``bool(constraint)`` is the answer."""

    holds: bool
    """Whether there is no violation above rounding."""
    measure: float
    """The largest violation."""
    seen: str
    """Where it is, as a sentence."""

    def __bool__(self) -> bool:
        return self.holds


@dataclass(frozen=True)
class LinearFacts:
    """What holds for a linear loss sum_k a_k(y) z_k: the constraints of lemma D.1 and those of proposition D.2."""

    num_classes: int
    """The number of classes C."""
    same_own: Constraint
    """Lemma D.1 i: a_y(y) = a_k(k) for all k and y."""
    same_swapped: Constraint
    """Lemma D.1 ii: a_k(y) = a_y(k) for all k and y."""
    same_others: Constraint
    """Lemma D.1 iii: a_k(y) = a_k'(y) for all k and k' other than y."""
    symmetric: Constraint
    """The sum over labels is constant: sum_y a_k(y) = 0 for all k."""
    non_increasing: Constraint
    """The loss never rises with the label's own score: a_y(y) <= 0 for all y."""
    trivial: bool
    """Whether all coefficients are 0."""
    multiple_of_unhinged: float | None
    """The loss is this multiple of the unhinged loss; None if it is no multiple of it."""
    distance_from_unhinged: float
    """The norm of the coefficients less the nearest multiple of the unhinged loss, relative to that of all; 0 to 1."""

    @property
    def permutation_invariant(self) -> bool:
        """Whether the loss is the same when classes are renamed: i, ii and iii together, which are enough for it."""
        return all((self.same_own, self.same_swapped, self.same_others))

    def __str__(self) -> str:
        return "\n".join(f"{mark:<4} {name:<38} {text}".rstrip() for mark, name, text in self._rows())

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        constraints = {
            "symmetric: sum_y a_k(y) = 0": self.symmetric,
            "non-increasing: a_y(y) <= 0": self.non_increasing,
            "lemma D.1 i: a_y(y) = a_k(k)": self.same_own,
            "lemma D.1 ii: a_k(y) = a_y(k)": self.same_swapped,
            "lemma D.1 iii: a_k(y) = a_k'(y)": self.same_others,
        }
        for name, constraint in constraints.items():
            yield word(bool(constraint)), name, "" if constraint else constraint.seen
        yield word(self.permutation_invariant), "permutation-invariant: i, ii and iii", ""
        yield word(not self.trivial), "non-trivial", ""
        multiple, distance = self.multiple_of_unhinged, f"distance {self.distance_from_unhinged:.3g}"
        yield word(multiple is not None), "a multiple of unhinged", distance if multiple is None else f"{multiple:.6g}"


def word(holds: bool) -> str:
    """Return yes or no."""
    return "yes" if holds else "no"


ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-5}
"""Violations below this, relative to the largest coefficient, are rounding. Some losses compute in float32."""


def linear_facts(coefficients: Numbers) -> LinearFacts:
    """Return which constraints of lemma D.1 and of proposition D.2 a linear loss sum_k a_k(y) z_k meets.

    Args:
        coefficients: a_k(y), shape (C, C): a row for each label y, a column for each score k.

    Reference: appendix D of the paper.

    >>> remark = linear_facts([[-1, 1, 1], [1, -1, 0], [0, 0, -1]])  # remark D.3
    >>> bool(remark.symmetric), bool(remark.non_increasing), remark.permutation_invariant
    (True, True, False)
    >>> remark.same_swapped.seen
    'a_2(0) = 1 and a_0(2) = 0'
    >>> linear_facts([[-2, 2], [2, -2]]).multiple_of_unhinged
    4.0
    """
    given = square(coefficients)
    a = given.double()
    classes, largest = len(a), float(a.abs().max())
    rounding = ROUNDING[given.dtype] * largest
    own, others = a.diagonal(), ~torch.eye(classes, dtype=torch.bool)

    def constraint(measure: float, seen: str) -> Constraint:
        return Constraint(measure <= rounding, measure, seen)

    sums = a.sum(0)
    k = int(sums.abs().argmax())
    symmetric = constraint(float(sums.abs()[k]), f"sum_y a_{k}(y) = {float(sums[k]):.6g}")
    y = int(own.argmax())
    rises = constraint(max(0.0, float(own[y])), f"a_{y}({y}) = {float(own[y]):.6g}")
    low, high = int(own.argmin()), int(own.argmax())
    same_own = constraint(float(own[high] - own[low]), _two(a, (low, low), (high, high)))
    y, k = divmod(int((a - a.T).abs().argmax()), classes)
    same_swapped = constraint(float((a - a.T).abs()[y, k]), _two(a, (y, k), (k, y)))
    top = torch.where(others, a, -torch.inf)
    bottom = torch.where(others, a, torch.inf)
    spread = top.amax(1) - bottom.amin(1)
    y = int(spread.argmax())
    same_others = constraint(float(spread[y]), _two(a, (y, int(top[y].argmax())), (y, int(bottom[y].argmin()))))
    unhinged = 1 / classes - torch.eye(classes, dtype=torch.float64)
    # Divided by the largest coefficient, so that no square vanishes or overflows.
    unit = a / largest if largest > 0 else a
    multiple = float((unit * unhinged).sum() / unhinged.square().sum())
    rest = unit - multiple * unhinged
    is_multiple = float(rest.abs().max()) <= ROUNDING[given.dtype]
    return LinearFacts(
        num_classes=classes,
        same_own=same_own,
        same_swapped=same_swapped,
        same_others=same_others,
        symmetric=symmetric,
        non_increasing=rises,
        trivial=largest == 0,
        multiple_of_unhinged=multiple * largest if is_multiple else None,
        distance_from_unhinged=float(rest.norm() / unit.norm()) if largest > 0 else 0.0,
    )


def _two(a: Tensor, *places: tuple[int, int]) -> str:
    return " and ".join(f"a_{k}({y}) = {float(a[y, k]):.6g}" for y, k in places)


def square(coefficients: Numbers) -> Tensor:
    """Return the coefficients in float64, or in float32 if that is what they are."""
    a = numbers("coefficients", coefficients).detach()
    if a.dim() != 2 or a.shape[0] != a.shape[1] or len(a) < 2:
        shape = tuple(a.shape)
        raise ValueError(f"coefficients must have shape (C, C), a row for each of at least two labels; got {shape}")
    if not bool(a.isfinite().all()):
        raise ValueError("coefficients must be finite; got NaN or infinity")
    return a.cpu().to(torch.float32 if a.dtype in (torch.float32, torch.float16, torch.bfloat16) else torch.float64)
