"""Formulas in Triton's language. Numbers enter the text by their ``repr``, and nothing else does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from symloss.losses.fused.tracing import Formula, Operand

SMALLEST, LARGEST = 2.0**-126, (2 - 2**-23) * 2.0**127
"""Triton takes a number outside these bounds for a float64."""

TEXTS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "neg": "-{}",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "eq": "{} == {}",
    "ne": "{} != {}",
    "and": "{} & {}",
    "or": "{} | {}",
    "not": "~{}",
    "exp": "exp({})",
    "expm1": "expm1({})",
    "log": "log({})",
    "log1p": "log1p({})",
    "sqrt": "root({})",
    "abs": "tl.abs({})",
    "where": "tl.where({}, {}, {})",
    "log_add_exp": "log_add_exp({}, {})",
    "log_sigmoid": "log_sigmoid({})",
    # Comparisons with NaN are false, so these keep it.
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, {0}))",
    "at_least": "tl.where({0} < {1}, {1}, {0})",
    "at_most": "tl.where({0} > {1}, {1}, {0})",
}


def literal(value: float) -> str:
    """A number as Triton reads it: always a float32."""
    if math.isnan(value) or math.isinf(value):
        return f'float("{value!r}")'
    if value == 0 or SMALLEST <= abs(value) <= LARGEST:
        return repr(value) if value >= 0 else f"({value!r})"
    return f"tl.full([1, 1], {value!r}, tl.float32)"


class Line(NamedTuple):
    """An assignment."""

    name: str
    text: str


def printed(formula: Formula, inputs: Mapping[str, str], prefix: str) -> tuple[list[Line], dict[str, str]]:
    """The assignments of a formula, and the name or number of each of its results.

    Args:
        formula: the steps.
        inputs: the name in the text of each input.
        prefix: what the names of the assignments begin with.
    """
    names: dict[int, str] = {}
    lines: list[Line] = []

    def of(operand: Operand | str) -> str:
        assert not isinstance(operand, str)
        return names[operand] if isinstance(operand, int) else literal(operand)

    for number in formula.needed():
        operation, operands = formula.steps[number]
        if operation == "input":
            names[number] = inputs[str(operands[0])]
            continue
        names[number] = f"{prefix}{number}"
        if operation == "power":
            base, exponent = operands
            assert isinstance(exponent, float)
            text = _power(of(base), exponent)
        else:
            text = TEXTS[operation].format(*map(of, operands))
        lines.append(Line(names[number], text))
    return lines, {name: of(operand) for name, operand in formula.results.items()}


def _power(base: str, exponent: float) -> str:
    """Squares and roots are cheaper than a power, and exact."""
    simple = {
        -1.0: "1.0 / {0}",
        0.0: "{0} * 0.0 + 1.0",
        0.5: "root({0})",
        1.0: "{0} + 0.0",
        1.5: "{0} * root({0})",
        2.0: "{0} * {0}",
        3.0: "{0} * {0} * {0}",
    }
    if exponent in simple:
        return simple[exponent].format(base)
    mantissa, scale = math.frexp(exponent)
    high = math.ldexp(round(mantissa * 2**12), scale - 12)
    return f"power({base}, {exponent!r}, {high!r}, {exponent - high!r})"
