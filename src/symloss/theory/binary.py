"""The binary case: margin losses, their odd and even parts, and multi-label training (appendix B of the paper).

A margin loss is a function phi of the margin, which is z for the label +1 and -z for the label -1.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from symloss import checks
from symloss.losses import validation
from symloss.losses.criterion import REDUCTIONS
from symloss.losses.logits import full_precision, reduced
from symloss.theory.margin_search import measured_convex, measured_non_increasing, measured_symmetric, trace
from symloss.theory.subject import derivative


class MarginFunction(ABC):
    """A function phi of the margin, entry by entry. It is symmetric if phi(z) + phi(-z) is constant."""

    @abstractmethod
    def phi(self, margin: Tensor) -> Tensor:
        """Return the loss at each margin, in the shape of the margins."""

    @property
    def symmetric(self) -> bool:
        """Whether phi(z) + phi(-z) is constant: measured for |z| <= 10, where a subclass does not know it."""
        with contextlib.suppress(ValueError):  # not finite there
            return bool(measured_symmetric(trace(self.phi, 10.0)))
        return False

    def __call__(self, margin: Tensor) -> Tensor:
        return self.phi(margin)


AnyMarginFunction: TypeAlias = MarginFunction | Callable[[Tensor], Tensor] | str


FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "unhinged": lambda z: 1 - z,  # the only symmetric loss that is convex (van Rooyen et al. 2015)
    "sigmoid": lambda z: torch.sigmoid(-z),  # 1 / (1 + e^z)
    "ramp": lambda z: ((1 - z) / 2).clamp(0, 1),
    "probit": lambda z: torch.special.ndtr(-z),  # the probability that a standard normal variable is above z
    "savage": lambda z: torch.sigmoid(-z).square(),  # its symmetrization is the sigmoid loss minus 1/2
    # log(1 + e^-z), whose symmetrization is -z/2. torch's softplus is linear beyond 20, which is inexact in float64.
    "logistic": lambda z: -functional.logsigmoid(z),
    "hinge": lambda z: (1 - z).clamp_min(0),
    "exponential": lambda z: (-z).exp(),  # its symmetrization is -sinh z
}


@dataclass(frozen=True, repr=False)
class _Elementwise(MarginFunction):
    """A margin loss given by its name in ``FORMULAS``, which is all that a pickle holds, or by a function."""

    function: str | Callable[[Tensor], Tensor]

    def __repr__(self) -> str:
        given = self.function
        return given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)

    def phi(self, margin: Tensor) -> Tensor:
        function = FORMULAS[self.function] if isinstance(self.function, str) else self.function
        return validation.one_each("phi must return one value for each margin", function(margin), margin)


MARGIN_FUNCTIONS: dict[str, MarginFunction] = {name: _Elementwise(name) for name in FORMULAS}
"""The margin losses that have a name, by that name."""


def margin_function(phi: AnyMarginFunction) -> MarginFunction:
    """Turn a name or a function into a :class:`MarginFunction`.

    Args:
        phi: a name of ``MARGIN_FUNCTIONS``, a :class:`MarginFunction`, which is returned unchanged, or any function of
            a tensor of margins.

    >>> margin_function("sigmoid")(torch.zeros(1))
    tensor([0.5000])
    >>> margin_function(lambda z: (1 - z) ** 2)(torch.zeros(1))
    tensor([1.])
    """
    if isinstance(phi, str):
        if phi not in MARGIN_FUNCTIONS:
            raise ValueError(
                f"there is no margin loss named {checks.brief(phi)}; {checks.nearest(phi, MARGIN_FUNCTIONS)}"
            )
        return MARGIN_FUNCTIONS[phi]
    if isinstance(phi, MarginFunction):
        return phi
    if isinstance(phi, type) or not callable(phi):
        raise TypeError(f"phi must be a name, a MarginFunction or a function of margins; got {checks.brief(phi)}")
    return _Elementwise(phi)


@dataclass(frozen=True)
class _Part(MarginFunction):
    """(phi(z) + sign phi(-z)) / 2: the odd part of phi for the sign -1, the even part for 1."""

    inner: MarginFunction
    sign: int

    @property
    def symmetric(self) -> bool:
        return self.sign < 0

    def phi(self, margin: Tensor) -> Tensor:
        return (self.inner.phi(margin) + self.sign * self.inner.phi(-margin)) / 2


class OddEven(NamedTuple):
    """The two parts of a margin loss: ``odd`` is symmetric, ``even`` is the same for both labels."""

    odd: MarginFunction
    even: MarginFunction


def decompose_margin(phi: AnyMarginFunction) -> OddEven:
    """Split a margin loss into its symmetric and its class-insensitive part, a decomposition that is unique (app. B).

    Args:
        phi: a name of ``MARGIN_FUNCTIONS``, a :class:`MarginFunction` or any function of a tensor of margins.

    >>> import torch
    >>> odd, even = decompose_margin("logistic")
    >>> z = torch.tensor([-2.0, 3.0])
    >>> odd(z)  # -z / 2
    tensor([ 1.0000, -1.5000])
    """
    inner = margin_function(phi)
    return OddEven(_Part(inner, -1), _Part(inner, 1))


def symmetrize_margin(phi: AnyMarginFunction) -> MarginFunction:
    """Return the symmetric part of a margin loss: phi_sym(z) = (phi(z) - phi(-z)) / 2 (app. B).

    Args:
        phi: as in :func:`decompose_margin`.

    >>> import torch
    >>> symmetrize_margin("savage")(torch.tensor([0.0, 1.0]))  # 1 / (1 + e^z) - 1/2
    tensor([ 0.0000, -0.2311])
    """
    return decompose_margin(phi).odd


class MarginCriterion(nn.Module):
    """A margin loss for binary and multi-label targets, in place of ``torch.nn.BCEWithLogitsLoss``.

    The loss of an entry with score z and target t is t phi(z) + (1 - t) phi(-z). If each label is flipped
    independently with a probability eta < 1/2, the risk of a symmetric phi is 1 - 2 eta times the clean risk, plus a
    constant (app. B).

    Args:
        phi: a name of ``symloss.theory.binary.MARGIN_FUNCTIONS``, a :class:`MarginFunction` or any function of margins.
        weight: one entry for each label (the last dimension), which multiplies its losses. It keeps the symmetry.
        reduction: ``"mean"`` over all entries that the mask keeps, ``"sum"`` or ``"none"``. The mean is that of
            ``torch.nn.MultiLabelSoftMarginLoss`` and ``torch.nn.BCEWithLogitsLoss`` for ``"logistic"``.

    Shapes: the input has any shape, often (N,) or (N, K). The target has the same shape and holds 0 and 1, as bool,
    integers or floating-point numbers, or probabilities. The mask is a bool tensor of the same shape. Entries where it
    is False have loss 0 and do not count in the mean; the mean of no entries is 0.

    >>> loss = MarginCriterion("sigmoid")
    >>> scores = torch.tensor([[2.0, -1.0, 0.0]])
    >>> loss(scores, torch.tensor([[1, 0, 1]]))
    tensor(0.2960)
    >>> loss(scores, torch.tensor([[1, 0, 1]]), mask=torch.tensor([[True, True, False]]))
    tensor(0.1941)
    """

    weight: Tensor | None

    def __init__(self, phi: AnyMarginFunction, *, weight: Tensor | None = None, reduction: str = "mean"):
        super().__init__()
        self.phi = margin_function(phi)
        checks.choice("reduction", reduction, REDUCTIONS)
        if weight is not None:
            validation.class_vector("weight", weight)
        self.register_buffer("weight", weight)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        validation.pair(input, target)
        if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != input.shape):
            given = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            raise ValueError(f"mask must be a bool tensor of the input's shape {tuple(input.shape)}; got {given}")
        z = full_precision(input)
        if mask is not None:
            z, target = torch.where(mask, z, 0.0), torch.where(mask, target, torch.zeros_like(target))
        values = self._values(z, target)
        if self.weight is not None:
            if z.dim() == 0 or z.shape[-1] != len(self.weight):
                raise ValueError(
                    f"weight must have one entry for each label, the last dimension of {tuple(z.shape)}; "
                    f"got {len(self.weight)}"
                )
            values = values * self.weight.to(values)
        if mask is not None:
            values = torch.where(mask, values, 0.0)
        if self.reduction == "mean":  # which is 0 of no entries
            return values.sum() / (max(values.numel(), 1) if mask is None else mask.sum().clamp_min(1))
        return reduced(values, self.reduction)

    def _values(self, z: Tensor, target: Tensor) -> Tensor:
        hard, looks = not target.is_floating_point(), validation.can_look(target)
        t = target if hard else target.to(z.dtype)
        if looks:
            wrong = t[~((t == 0) | (t == 1))] if hard else t[~((t >= 0) & (t <= 1))]
            if wrong.numel():
                wanted = "0 and 1, one for each label" if hard else "0, 1 or probabilities between"
                raise ValueError(f"target must hold {wanted}; got {wrong.flatten()[0].item():g}")
            hard = hard or bool(((t == 0) | (t == 1)).all())
        if hard:
            return self.phi.phi(torch.where(t.bool(), z, -z))
        return t * self.phi.phi(z) + (1 - t) * self.phi.phi(-z)

    def extra_repr(self) -> str:
        return f"{self.phi!r}, reduction={self.reduction!r}"


@dataclass(frozen=True)
class RescaledMargin(MarginFunction):
    """(phi(z) - origin) / unit + shift. :func:`surrogate` and :func:`anchored` return it.

    Args:
        inner: phi.
        origin: the value of phi that becomes ``shift``.
        unit: the difference of values that becomes 1.
        shift: added at the end.
    """

    inner: MarginFunction
    origin: float
    unit: float
    shift: float

    @property
    def symmetric(self) -> bool:
        return self.inner.symmetric

    @property
    def factor(self) -> float:
        """1 / unit. Lipschitz and smoothness constants are those of phi times this factor."""
        return 1 / self.unit

    def phi(self, margin: Tensor) -> Tensor:
        return (self.inner.phi(margin) - self.origin) / self.unit + self.shift


def anchored(phi: AnyMarginFunction, radius: float) -> RescaledMargin:
    """Shift and scale phi so that it is 1 at 0 and 0 at the radius, as :func:`surrogate` needs it.

    Args:
        phi: a name of ``MARGIN_FUNCTIONS``, a :class:`MarginFunction` or any function of a tensor of margins.
        radius: the largest margin R.

    >>> anchored("exponential", radius=4.0)(torch.tensor([0.0, 4.0]).double()).tolist()
    [1.0, 0.0]
    """
    radius = checks.number("radius", radius, "(0, inf)")
    inner = margin_function(phi)
    at_zero, floor = inner.phi(torch.tensor([0.0, radius], dtype=torch.float64)).tolist()
    if not at_zero > floor:
        raise ValueError(f"phi(0) must be above phi(radius); got {at_zero:g} and {floor:g}")
    return RescaledMargin(inner, origin=floor, unit=at_zero - floor, shift=0.0)


def surrogate(phi: AnyMarginFunction, radius: float) -> RescaledMargin:
    """Return the symmetric surrogate 2 / phi(-R) phi_sym(z) + 1, which bounds the 0-1 loss for |z| <= R (app. B).

    phi must be convex and non-increasing, with phi(R) = 0 and phi(0) >= 1. This is checked by a search over margins.
    :func:`anchored` turns any convex, decreasing phi into one with the last two properties.

    Args:
        phi: as in :func:`anchored`.
        radius: the largest margin R.

    >>> loss = surrogate(lambda z: (1 - z / 3) ** 2, radius=3.0)
    >>> loss(torch.tensor([-3.0, 0.0, 3.0]))
    tensor([2., 1., 0.])
    """
    radius = checks.number("radius", radius, "(0, inf)")
    inner = margin_function(phi)
    found = trace(inner.phi, radius)
    value = found.jets.value
    at_left, at_zero, at_right = (float(value[i]) for i in (0, len(value) // 2, -1))
    slack = 1e-9 * (1 + abs(at_left))  # of radii and factors that were computed
    if abs(at_right) > slack:
        raise ValueError(f"phi(R) must be 0; got {at_right:g} at R = {radius:g}")
    if at_zero < 1 - slack:
        raise ValueError(f"phi(0) must be at least 1; got {at_zero:g}")
    for name, answer in (
        ("non-increasing", measured_non_increasing(found)),
        ("convex", measured_convex(inner.phi, found)),
    ):
        if not answer:
            raise ValueError(f"phi must be {name}; got {answer.counter_example}")
    return RescaledMargin(_Part(inner, -1), origin=0.0, unit=at_left / 2, shift=1.0)


@dataclass(frozen=True)
class Polynomial(MarginFunction):
    """The polynomial sum_k coefficients[k] z^k."""

    coefficients: tuple[float, ...]

    @property
    def symmetric(self) -> bool:
        return not any(self.coefficients[2::2])

    def phi(self, margin: Tensor) -> Tensor:
        total = torch.zeros_like(margin)
        for coefficient in reversed(self.coefficients):
            total = total * margin + coefficient
        return total


def derivatives_at_zero(phi: AnyMarginFunction, order: int) -> tuple[float, ...]:
    """Return the derivatives phi(0), phi'(0), ..., phi^(order)(0), by automatic differentiation in float64.

    Args:
        phi: a name of ``MARGIN_FUNCTIONS``, a :class:`MarginFunction` or any function of a tensor of margins.
        order: at most 12, since each order takes about twice as long as the one before.

    >>> derivatives_at_zero("logistic", 2)[1:]
    (-0.5, 0.25)
    """
    order = int(checks.number("order", order, "[0, 12]", whole=True))
    z = torch.zeros((), dtype=torch.float64, requires_grad=True)
    value = margin_function(phi).phi(z)
    found = [float(value.detach())]
    for _ in range(order):
        value = derivative(value, z, create_graph=True)
        found.append(float(value.detach()))
    for k, number in enumerate(found):
        if not math.isfinite(number):
            raise ValueError(f"derivative {k} of phi at 0 must be finite; got {number}")
    return tuple(found)


def taylor_truncation(phi: AnyMarginFunction, order: int, *, symmetric: bool = True) -> Polynomial:
    """Return the Taylor polynomial at 0 of the symmetrization of phi, or of phi itself (prop. B.1).

    It approximates phi only where the series at 0 converges: up to pi for the logistic and sigmoid losses, and up to
    the nearest kink for others.

    Args:
        phi: as in :func:`derivatives_at_zero`.
        order: the degree of the polynomial, at most 12.
        symmetric: set the even coefficients to 0, which symmetrizes the polynomial.

    >>> taylor_truncation("sigmoid", 3).coefficients  # of 1 / (1 + e^z) - 1/2
    (0.0, -0.25, 0.0, 0.020833333333333332)
    """
    terms = [number / math.factorial(k) for k, number in enumerate(derivatives_at_zero(phi, order))]
    return Polynomial(tuple(0.0 if symmetric and k % 2 == 0 else term for k, term in enumerate(terms)))
