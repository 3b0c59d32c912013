"""Taylor polynomials at 0. Those of a symmetric loss are symmetric (prop. B.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from symloss import checks
from symloss.theory.binary.margin_functions import AnyMarginFunction, MarginFunction, margin_function
from symloss.theory.certificates.search import derivative


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
    """The derivatives phi(0), phi'(0), ..., phi^(order)(0), by automatic differentiation in float64.

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
    """The Taylor polynomial at 0 of the symmetrization of phi, or of phi itself (prop. B.1).

    It approximates phi only where the series at 0 converges: up to pi for the logistic and sigmoid losses, and up to
    the nearest kink for others.

    Args:
        phi: as in :func:`derivatives_at_zero`.
        order: the degree of the polynomial, at most 12.
        symmetric: set the even coefficients to 0, which symmetrizes the polynomial.

    >>> taylor_truncation("sigmoid", 3).coefficients  # of 1 / (1 + e^z) - 1/2
    (0.0, -0.25, 0.0, 0.020833333333333332)
    """
    found = derivatives_at_zero(phi, order)
    terms = [number / math.factorial(k) for k, number in enumerate(found)]
    return Polynomial(tuple(0.0 if symmetric and k % 2 == 0 else term for k, term in enumerate(terms)))
