"""The formulas of a loss as lists of elementary steps. They are traced from the code that defines them.

So a formula is written once, for torch. ``trace_partials`` runs the partial derivatives of a loss, ``trace_potential``
a potential and its derivative. Steps that no result needs are left out, and equal steps are made once.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from symloss.losses.fast.at_label import AtLabel
from symloss.losses.fast.partials import FastForm
from symloss.losses.leaves import Potential
from symloss.losses.scores import Scores

Operand = int | float
"""The number of a step, if it is an int; a constant, if it is a float."""


class NotServedError(Exception):
    """A loss that has no fused kernel. The text says why."""


@dataclass
class Formula:
    """Elementary steps, each after those that it reads."""

    steps: list[tuple[str, tuple[Operand | str, ...]]] = field(default_factory=list)
    """The operation and its operands. The operation "input" has the name of the input."""
    results: dict[str, Operand] = field(default_factory=dict)
    """What the formula computes, by name."""
    _numbers: dict[tuple[str, tuple[Operand | str, ...]], int] = field(default_factory=dict)

    def step(self, operation: str, *operands: Operand | str) -> Operand:
        """The number of a step, which may exist already. Steps that change nothing are not made."""
        plain = _simplified(operation, operands)
        if plain is not None:
            return plain
        key = (operation, tuple(map(_exact, operands)))
        if key not in self._numbers:
            self._numbers[key] = len(self.steps)
            self.steps.append((operation, operands))
        return self._numbers[key]

    def needed(self) -> list[int]:
        """The numbers of the steps that the results need, in order."""
        found: set[int] = set()
        waiting = [number for number in self.results.values() if isinstance(number, int)]
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += [each for each in self.steps[number][1] if isinstance(each, int)]
        return sorted(found)


def _exact(operand: Operand | str) -> Operand | str:
    """The operand as a key: 0.0 and -0.0 differ, and so do 1 and 1.0."""
    return operand.hex() if isinstance(operand, float) else operand


FOLDED: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "log": math.log,
    "exp": math.exp,
}


def _simplified(operation: str, operands: Sequence[Operand | str]) -> Operand | None:
    """A constant or an earlier step that equals this one; None if there is none."""
    first, last = operands[0], operands[-1]
    if operation in FOLDED and all(isinstance(each, float) for each in operands):
        return FOLDED[operation](*operands)
    if operation == "mul" and any(isinstance(each, float) and each == 0 for each in operands):
        return 0.0
    neutral = {"add": 0.0, "mul": 1.0}.get(operation)
    if isinstance(first, float) and first == neutral and not isinstance(last, str):
        return last
    neutral = 1.0 if operation in ("mul", "div") else 0.0 if operation in ("add", "sub") else None
    if isinstance(last, float) and last == neutral and not isinstance(first, str):
        return first
    return None


class _Counted(Scores):
    """Equal scores of a given number of classes. Only sums and means of constants can be asked of them."""

    def __init__(self, count: Tensor):
        super().__init__(torch.zeros_like(count), 1)
        self.__dict__["count"] = count

    def sum(self, values: Tensor) -> Tensor:
        return values * self.count

    def mean(self, values: Tensor) -> Tensor:
        return values


@functools.lru_cache(maxsize=256)
def trace_partials(form: FastForm, classes: int) -> Formula:
    """Value and partial derivatives of a loss at the label.

    The inputs are ``behind`` and ``others`` of `AtLabel`, ``count``, the number of classes that are present, and
    ``rest0``, ``rest1``, ..., the sums over the other classes. The results are ``value``, ``slope``, ``linear``,
    ``inverse``, ``p``, ``miss``, ``by0``, ``by1``, ..., the derivatives in the sums, and perhaps ``remainder``.
    """

    def partials(behind: Tensor, others: Tensor, count: Tensor, *rest: Tensor) -> dict[str, Tensor | float]:
        at = AtLabel(behind, others, classes, _Counted(count))
        at.rest = dict(zip(form.summed, rest, strict=True))
        found = form.partials(at)
        by = {f"by{j}": found.sums.get(potential, 0.0) for j, potential in enumerate(form.summed)}
        at_label: dict[str, Tensor | float] = {"inverse": at.inverse, "p": at.p, "miss": at.miss}
        if found.remainder is not None:
            at_label["remainder"] = found.remainder
        return {"value": found.value, "slope": found.slope, "linear": found.linear, **at_label, **by}

    sums = [f"rest{j}" for j in range(len(form.summed))]
    return _trace(partials, {"behind": -1.0, "others": 1.5, "count": float(classes), **dict.fromkeys(sums, 3.0)})


@functools.lru_cache(maxsize=256)
def trace_potential(potential: Potential) -> Formula:
    """``phi`` and its ``derivative``, as functions of the input ``logp``."""
    return _trace(lambda logp: {"phi": potential.phi(logp), "derivative": potential.derivative(logp)}, {"logp": -1.0})


def _trace(compute: Callable[..., dict[str, Tensor | float]], inputs: dict[str, float]) -> Formula:
    examples = [torch.full((2, 1), value) for value in inputs.values()]
    constants: dict[str, float] = {}
    names: list[str] = []

    def tensors(*given: Tensor) -> list[Tensor]:
        every = compute(*given)
        constants.update({name: float(each) for name, each in every.items() if not isinstance(each, Tensor)})
        names[:] = [name for name, each in every.items() if isinstance(each, Tensor)]
        return [each for each in every.values() if isinstance(each, Tensor)]

    with torch.no_grad():
        # The first call fills the cache of constants, which must not come to hold traced tensors.
        tensors(*(each.clone() for each in examples))
        try:
            graph = make_fx(torch.func.functionalize(tensors, remove="mutations_and_views"))(*examples)
        except RuntimeError as error:
            raise NotServedError(f"the formula cannot be traced: {str(error).splitlines()[0]}") from error
    return _translated(graph, list(inputs), names, constants)


def _translated(graph: GraphModule, inputs: list[str], names: list[str], constants: dict[str, float]) -> Formula:
    formula, known, waiting = Formula(), {}, iter(inputs)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            known[node] = formula.step("input", next(waiting))
        elif node.op == "get_attr":
            known[node] = _constant(getattr(graph, str(node.target)))
        elif node.op == "call_function":
            known[node] = _call(formula, node, known)
        else:  # the output
            results = [known[each] for each in node.args[0]]
            formula.results = {**constants, **dict(zip(names, results, strict=True))}
    for operand in formula.results.values():
        if operand is NOTHING:
            raise NotServedError("the formula returns what it cannot compute")
    return formula


def _constant(tensor: Tensor) -> float:
    if tensor.numel() != 1:
        raise NotServedError(f"the formula holds a tensor of shape {tuple(tensor.shape)}")
    return float(tensor)


NOTHING = -1
"""Stands for a result that no step computes, such as the buffer of ``log_sigmoid_forward``."""

UNARY = {
    "neg": "neg",
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "sign": "sign",
    "abs": "abs",
    "log_sigmoid_forward": "log_sigmoid",
    "logical_not": "not",
    "bitwise_not": "not",
}
BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "eq": "eq",
    "ne": "ne",
    "logaddexp": "log_add_exp",
    "clamp_min": "at_least",
    "maximum": "at_least",
    "clamp_max": "at_most",
    "minimum": "at_most",
    "logical_and": "and",
    "bitwise_and": "and",
    "logical_or": "or",
    "bitwise_or": "or",
}
COPIES = ("_to_copy", "clone", "detach", "alias", "lift_fresh_copy", "lift_fresh", "expand", "view")
FILLED = {"zeros_like": 0.0, "ones_like": 1.0, "zeros": 0.0, "ones": 1.0}


def _call(formula: Formula, node: Node, known: dict[Node, Operand]) -> Operand:
    """The step that an operation of torch becomes."""
    if node.target is operator.getitem:
        return known[node.args[0]] if node.args[1] == 0 else NOTHING  # type: ignore[index]
    name = getattr(getattr(node.target, "_schema", None), "name", "").removeprefix("aten::")
    operands = [_operand(each, known) for each in node.args]
    options = {key: value for key, value in node.kwargs.items() if key not in _IRRELEVANT and value is not None}
    if name in ("add", "sub"):
        alpha = options.pop("alpha", operands[2] if len(operands) > 2 else 1.0)
        operands[1] = formula.step("mul", operands[1], float(alpha))  # type: ignore[arg-type]
    elif name != "_to_copy" or options.get("dtype") == torch.float32:
        options.pop("dtype", None)
    step = None if options else _translated_step(formula, name, operands)
    if step is None:
        raise NotServedError(f"the formula uses {node.target}, which has no translation")
    return step


def _translated_step(formula: Formula, name: str, operands: list[Operand]) -> Operand | None:
    first, last = (operands[0], operands[-1]) if operands else (NOTHING, NOTHING)
    step: Operand | None = None
    if name in FILLED:
        step = FILLED[name]
    elif name in ("full_like", "full", "scalar_tensor"):
        step = last
    elif name in COPIES:
        step = first
    elif name in UNARY:
        step = formula.step(UNARY[name], first)
    elif name in BINARY:
        step = formula.step(BINARY[name], *operands[:2])
    elif name == "reciprocal":
        step = formula.step("div", 1.0, first)
    elif name == "rsub" and len(operands) == 2:
        step = formula.step("sub", last, first)
    elif name == "where" and len(operands) == 3:
        step = formula.step("where", *operands)
    elif name == "pow" and isinstance(first, int) and isinstance(last, float):
        step = formula.step("power", first, last)
    elif name == "clamp":
        step = _clamped(formula, *operands)
    return step


def _clamped(formula: Formula, x: Operand, low: Operand = NOTHING, high: Operand = NOTHING) -> Operand:
    x = x if low is NOTHING else formula.step("at_least", x, low)
    return x if high is NOTHING else formula.step("at_most", x, high)


_IRRELEVANT = ("layout", "device", "pin_memory", "memory_format")


def _operand(value: object, known: dict[Node, Operand]) -> Operand:
    if isinstance(value, Node):
        return known[value]
    if isinstance(value, (int, float)):
        return float(value)
    return NOTHING  # a shape or a type
