"""What a fused kernel computes: assignments to quantities of a class, of a row, and totals of a row over its classes.

The gradient is that of ``fast.kernels``. A program does not say how often the scores are read. ``source`` decides that
from what depends on what: a total can be collected only when all that it reads is known.

With t = z - max z, e = exp(t) and log Z = log sum_k e_k the totals over the classes besides the label (``other``) are

* ``others``: sum e. Where sums are read, log Z must be exact even if a class leads by far. So classes with t = 0 are
  counted apart (``ties``), and log Z is log1p of all but one of them.
* ``total_t``: sum t. It gives the mean score, and the sum of log p.
* ``raw0``, ...: sum phi(t), for a potential that is a power of p. It is scaled to sum phi(log p) later.
* ``rest0``, ... and ``slant0``, ...: sums of phi(log p) and of its derivative, for other potentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from symloss.losses.fast.kernel_choice import Unit
from symloss.losses.fast.kernels import falls_to_the_end
from symloss.losses.fast.partials import FastForm
from symloss.losses.fused.printing import literal, printed
from symloss.losses.fused.tracing import trace_partials, trace_potential
from symloss.losses.leaves import CE, Potential, Power


class Assignment(NamedTuple):
    """A quantity and its text in Triton's language."""

    name: str
    text: str
    kind: str
    """"class" if it has an entry for each class, "row" if for each row; "sum" or "max" over the classes of a row."""
    online: str = ""
    """What becomes of the total so far, ``{0}``, when the largest score so far grows; empty if that must be known.

    ``delta`` is how much smaller the largest score was, and ``fade`` is exp(delta). ``shrink`` is the size of the
    scores so far as a part of the new one.
    """
    least: str = 'float("-inf")'
    """The smallest value of a maximum."""


@dataclass
class Program:
    """Assignments in order. The last ones are ``value`` of a row and ``gradient`` of a class."""

    assignments: list[Assignment] = field(default_factory=list)

    def each(self, name: str, text: str) -> None:
        """Add a quantity of each class."""
        self.assignments.append(Assignment(name, text, "class"))

    def row(self, name: str, text: str) -> None:
        """Add a quantity of each row."""
        self.assignments.append(Assignment(name, text, "row"))

    def total(self, name: str, text: str, online: str = "") -> None:
        """Add a sum over the classes."""
        self.assignments.append(Assignment(name, text, "sum", online))

    def largest(self, name: str, text: str, least: str = 'float("-inf")') -> None:
        """Add a maximum over the classes, or ``least`` if it is larger."""
        self.assignments.append(Assignment(name, text, "max", least=least))


SAME = "{0}"
"""A total that does not depend on the largest score."""


def program(form: FastForm, classes: int, unit: Unit | None, few_reads: bool) -> Program:
    """The program of a loss.

    Args:
        form: the loss.
        classes: the number of classes.
        unit: how scores are divided by their norm; None if they are not.
        few_reads: whether another total is better than another read of the scores.
    """
    made = Program()
    made.total("count", "tl.where(present, 1.0, 0.0)", SAME)
    if unit is not None:
        _divide(made, unit)
    else:
        made.row("weight", "share")
        made.each("u", "z")
        made.row("u_label", "label")
    if form.linear is not None:
        _linear(made, form.linear, unit)
    else:
        _bent(made, form, classes, unit, few_reads)
    return made


def _over(text: str, divisor: float) -> str:
    return text if divisor == 1 else f"{text} / {literal(divisor)}"


def _divide(made: Program, unit: Unit) -> None:
    """u = z / (temperature max(|z|, eps)). The scores are divided by the largest one first, so no square overflows."""
    made.largest("size", "tl.where(present, tl.abs(z), 0.0)", literal(unit.eps))
    made.largest("top_score", "z")
    made.each("ratio", "tl.where(present, z, 0.0) / size")
    made.total("squares", "ratio * ratio", "{0} * shrink * shrink")
    made.row("norm", "root(squares)")
    made.row("stretch", "tl.where(norm < 1.0, 1.0, norm)")
    made.each("direction", "ratio / stretch")
    made.row("direction_label", "label / size / stretch")
    made.each("u", f'tl.where(present, {_over("direction", unit.temperature)}, float("-inf"))')
    made.row("u_label", _over("direction_label", unit.temperature))
    made.row("weight", _over("share / stretch / size", unit.temperature))


def _linear(made: Program, factor: float, unit: Unit | None) -> None:
    """factor * (mean_k u_k - u_y). The label's score is subtracted first: an offset of all scores costs no digits."""
    if unit is None:
        made.total("differences", "tl.where(present, u - u_label, 0.0)", SAME)
        made.row("spread", "differences / count")
    else:  # the label's ratio changes with the size, so it is subtracted last
        made.total("ratios", "ratio", "{0} * shrink")
        made.row("spread", _over("(ratios / count / stretch - direction_label)", unit.temperature))
    made.row("value", f"{literal(factor)} * spread")
    made.row("pull", f"tl.where(value == value, {literal(factor)} * weight, value)")
    made.row("even", "pull / count")
    made.each("flat", "tl.where(is_label, even - pull, tl.where(present, even, 0.0))")
    if unit is None:
        made.each("gradient", "flat")
    else:
        made.row("along", f"tl.where(norm < 1.0, 0.0, weight * value * {literal(unit.temperature)})")
        made.each("gradient", "flat - direction * along")


def _bent(made: Program, form: FastForm, classes: int, unit: Unit | None, few_reads: bool) -> None:
    if unit is None:
        made.largest("top", "u")
    else:  # the largest score, divided as all are
        made.row("top", _over("top_score / size / stretch", unit.temperature))
    made.each("t", "u - top")
    made.each("e", "tl.where(other, exp(t), 0.0)")
    made.row("behind", "u_label - top")
    made.total("total_t", "tl.where(other, t, 0.0)", "{0} + counted * delta")
    made.total("counted", "tl.where(other, 1.0, 0.0)", SAME)
    if form.summed:
        _sums(made, form.summed)
    else:
        made.total("others", "e", "{0} * fade")
    inputs = {name: name for name in ("behind", "others", "count", *(f"rest{j}" for j in range(len(form.summed))))}
    lines, result = printed(trace_partials(form, classes), inputs, "a")
    for line in lines:
        made.row(*line)
    linear = result["linear"] != literal(0.0)
    extra = f"({result['linear']}) * ((total_t + behind) / count - behind)" if linear else "0.0 * behind"
    made.row("value", f"{result['value']} + {extra}")
    gradient = _Gradient(form, result, linear)
    gradient.write(made)
    if unit is None:
        made.each("gradient", "flat")
    else:
        gradient.project(made, few_reads)


def _sums(made: Program, summed: tuple[Potential, ...]) -> None:
    """The sums of each potential and of its derivative.

    ``steep`` sums the derivative over all other classes, ``slant`` over those that do not lead. ``bend * scale`` is the
    derivative at a class.
    """
    made.each("finite_t", "tl.where(other, t, 0.0)")
    made.each("behind_e", "tl.where(t == 0.0, 0.0, e)")
    made.total("below", "behind_e", "tl.where(delta < 0.0, ({0} + ties) * fade, {0})")
    for j, potential in enumerate(summed):
        if isinstance(potential, Power):
            _raw_sum(made, j, potential)
    made.total("ties", "tl.where(other & (t == 0.0), 1.0, 0.0)", "tl.where(delta < 0.0, 0.0, {0})")
    made.row("others", "below + ties")
    made.row("log_total", "log1p(below + tl.where(behind == 0.0, ties, (ties - 1.0) + exp(behind)))")
    made.row("lead", "-log_total")
    made.each("logp", "tl.where(other, t - log_total, 0.0)")
    for j, potential in enumerate(summed):
        if isinstance(potential, Power):  # phi(log p) = phi(t) Z^-q, and phi' = q phi
            made.row(f"scale{j}", f"exp({literal(potential.q)} * lead)")
            made.row(f"rest{j}", f"(raw{j} + ties * {_at_one(potential)}) * scale{j}")
            made.row(f"steep{j}", f"{literal(potential.q)} * rest{j}")
            made.row(f"slant{j}", f"{literal(potential.q)} * raw{j} * scale{j}")
        else:
            _sum_of_log_p(made, j, potential)


def _at_one(potential: Potential) -> str:
    return literal(float(potential.phi(torch.zeros((), dtype=torch.float64))))


def _raw_sum(made: Program, j: int, potential: Power) -> None:
    """The sum of phi(t). Like sum e it is taken over the classes that do not lead."""
    lines, result = printed(trace_potential(potential), {"logp": "finite_t"}, f"f{j}_")
    for line in lines:
        made.each(*line)
    made.each(f"bend{j}", f"tl.where(other, {result['derivative']}, 0.0)")
    grown = f"({{0}} + ties * {_at_one(potential)}) * exp({literal(potential.q)} * delta)"
    made.total(
        f"raw{j}", f"tl.where(other & (t != 0.0), {result['phi']}, 0.0)", f"tl.where(delta < 0.0, {grown}, {{0}})"
    )


def _sum_of_log_p(made: Program, j: int, potential: Potential) -> None:
    lines, result = printed(trace_potential(potential), {"logp": "logp"}, f"f{j}_")
    for line in lines:
        made.each(*line)
    made.row(f"scale{j}", "1.0")
    made.each(f"bend{j}", f"tl.where(other, {result['derivative']}, 0.0)")
    if potential == CE():
        made.row(f"rest{j}", "counted * log_total - total_t")
        made.row(f"steep{j}", "-counted")
        made.row(f"slant{j}", "ties - counted")
        return
    made.total(f"rest{j}", f"tl.where(other, {result['phi']}, 0.0)")
    made.total(f"slant{j}", f"tl.where(t == 0.0, 0.0, bend{j})")
    lines, result = printed(trace_potential(potential), {"logp": "lead"}, f"l{j}_")
    for line in lines:
        made.row(*line)
    made.row(f"steep{j}", f"slant{j} + ties * ({result['derivative']})")


class _Gradient:
    """The gradient in u, and from it the gradient in the scores."""

    def __init__(self, form: FastForm, result: dict[str, str], linear: bool):
        self.result, self.linear = result, linear
        self.sums = range(len(form.summed))
        self.cancels = any(map(falls_to_the_end, form.summed))

    def write(self, made: Program) -> None:
        """Add ``flat``, the gradient in u. It is 0 where classes are masked out, because ``e`` and ``bend`` are."""
        inverse, miss, p = (self.result[name] for name in ("inverse", "miss", "p"))
        made.row("slope", f"tl.where(value == value, ({self.result['slope']}) * weight, value)")
        for j in self.sums:
            made.row(f"weight{j}", f"({self.result[f'by{j}']}) * weight")
            made.row(f"factor{j}", f"weight{j} * scale{j}")
        if self.sums:
            made.row("steep", " + ".join(f"weight{j} * steep{j}" for j in self.sums))
            made.row("per_e", f"-(steep + slope) * {inverse}")
            made.row("at_label", f"slope * {miss} - {p} * steep")
        else:
            made.row("per_e", f"-slope * {inverse}")
            made.row("at_label", f"slope * {miss}")
        made.each("bent", " + ".join(["e * per_e", *(f"factor{j} * bend{j}" for j in self.sums)]))
        if self.cancels:
            # A gradient sums to 0. The terms of a class that leads the label by far cancel. So its entry is computed
            # as the negative sum of all others.
            slants = "".join(f" + weight{j} * slant{j}" for j in self.sums)
            made.row("at_lead", f"-(at_label + below * per_e{slants}) / tl.where(ties == 0.0, 1.0, ties)")
            made.each("closed", "tl.where(t == 0.0, at_lead, bent)")
        else:
            made.each("closed", "bent")
        if self.linear:
            made.row("pull", f"({self.result['linear']}) * weight")
            made.row("even", "pull / count")
            if "remainder" in self.result:
                exact = f"({self.result['remainder']}) * {miss} + ({self.result['linear']}) * (1.0 / count - {p})"
                made.row("label_gradient", f"({exact}) * weight")
            else:
                made.row("label_gradient", "at_label + (even - pull)")
            made.each("flat", "tl.where(is_label, label_gradient, closed + tl.where(present, even, 0.0))")
        else:
            made.row("label_gradient", "at_label")
            made.each("flat", "tl.where(is_label, label_gradient, closed)")

    def project(self, made: Program, few_reads: bool) -> None:
        """Add ``gradient``, the gradient in the scores: that in u without its part along the scores.

        Scores shorter than eps are divided by a constant. So theirs keeps that part.
        """
        if few_reads:
            made.row("dot", self._dot(made))
        else:
            made.total("dot", "direction * flat")
        made.row("along", "tl.where(norm < 1.0, 0.0, dot)")
        made.each("gradient", "flat - direction * along")

    def _dot(self, made: Program) -> str:
        """The sum of direction * flat, from totals that are known before flat is."""
        rest = "tl.where(t == 0.0, 0.0, {})" if self.cancels else "{}"
        made.total("along_e", f"direction * {rest.format('e')}")
        terms = ["per_e * along_e", "label_gradient * direction_label"]
        for j in self.sums:
            made.total(f"along{j}", f"direction * {rest.format(f'bend{j}')}")
            terms.append(f"factor{j} * along{j}")
        if self.cancels:
            made.row("direction_lead", "top_score / size / stretch")
            terms.append("ties * at_lead * direction_lead")
        if self.linear:
            made.total("along_even", "tl.where(other, direction, 0.0)")
            terms.append("even * along_even")
        return " + ".join(terms)
