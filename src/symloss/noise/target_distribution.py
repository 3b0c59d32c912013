"""What corrupted targets of a regression are drawn from.

This is a distribution of torch (its batch may differ from example to example), a sample of corrupted targets, or a
function of the features x that returns one of these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from symloss import checks

Fixed: TypeAlias = Distribution | Tensor | np.ndarray[Any, Any] | Sequence[float]
AnyTargetDistribution: TypeAlias = Fixed | Callable[[Any], Fixed]

WANTED = "must be a distribution of torch, a sample of corrupted targets or a function of x giving one"


class TargetDistribution(ABC):
    """The distribution q of corrupted targets T."""

    batch: tuple[int, ...] = ()
    """The shape of the parameters, where they differ from example to example."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...]) -> Tensor:
        """Draw independent corrupted targets of this shape, by torch's global generator."""


class TorchDistribution(TargetDistribution):
    """A distribution of torch.

    Args:
        distribution: a distribution of single numbers. Its batch broadcasts to the shape of the targets.
    """

    def __init__(self, distribution: Distribution):
        self.distribution = distribution
        self.batch = tuple(distribution.batch_shape)

    def __repr__(self) -> str:
        return checks.brief(self.distribution)

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        refuse_vectors(self.distribution)
        if self.batch in ((), shape):
            drawn: Tensor = self.distribution.sample(torch.Size(shape[: len(shape) - len(self.batch)]))
        else:
            drawn = self.distribution.expand(torch.Size(shape)).sample()
        return drawn


class TargetSample(TargetDistribution):
    """Targets that are known to be corrupted, each as likely as any other.

    Args:
        values: the targets (M,), in float64.
    """

    def __init__(self, values: Tensor):
        self.values = values

    def __repr__(self) -> str:
        return f"a sample of {len(self.values)}"

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.values[torch.randint(len(self.values), shape)]


def target_distribution(given: object, argument: str = "corruption") -> TargetDistribution:
    """Turn a distribution of torch or a sample into a :class:`TargetDistribution`; refuse anything else.

    Args:
        given: a distribution of torch, or a sample (M,) as a tensor, an array or a list.
        argument: what the messages call it.

    >>> target_distribution([1.0, 2.0])
    a sample of 2
    """
    if isinstance(given, TargetDistribution):
        return given
    if isinstance(given, Distribution):
        _refuse_not_finite(given)
        return TorchDistribution(given)
    if isinstance(given, (Tensor, np.ndarray, list, tuple)):
        return TargetSample(_sample(given, argument))
    raise TypeError(f"{argument} {WANTED}; got {checks.brief(given)}")


def refuse_vectors(distribution: Distribution) -> None:
    """Raise ValueError for a distribution of vectors."""
    if distribution.event_shape:
        raise ValueError(
            "corruption must be a distribution of single numbers; "
            f"got {type(distribution).__name__} with event shape {tuple(distribution.event_shape)}"
        )


def _refuse_not_finite(distribution: Distribution) -> None:
    for name in distribution.arg_constraints if isinstance(distribution.arg_constraints, dict) else ():
        value = getattr(distribution, name, None)
        if isinstance(value, Tensor) and name != "logits" and not bool(value.isfinite().all()):
            raise ValueError(
                f"corruption {type(distribution).__name__} must have finite parameters; "
                f"got {name} = {float(value[~value.isfinite()].flatten()[0])}"
            )


def _sample(given: object, argument: str) -> Tensor:
    try:
        values = torch.as_tensor(given).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{argument} {WANTED}; got {checks.brief(given)}") from error
    if values.dtype == torch.bool or values.is_complex():
        raise TypeError(f"a sample of corrupted targets must hold real numbers; got {values.dtype}")
    values = values.double()
    if values.dim() != 1 or not len(values):
        raise ValueError(
            f"a sample of corrupted targets must have shape (M,) with M above 0; got {tuple(values.shape)}"
        )
    if not bool(values.isfinite().all()):
        raise ValueError("a sample of corrupted targets must hold finite numbers; got NaN or infinity")
    return values
