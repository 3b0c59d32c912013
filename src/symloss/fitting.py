"""What all estimators need in ``fit``: no half-fitted state, and numbers of any size."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

Method = TypeVar("Method", bound=Callable[..., Any])


def all_or_nothing(method: Method) -> Method:
    """Decorate a method of an estimator, so that an error inside it leaves the estimator unchanged."""

    @functools.wraps(method)
    def attempt(estimator: Any, *args: Any, **options: Any) -> Any:
        work = object.__new__(type(estimator))
        work.__dict__ = dict(estimator.__dict__)
        method(work, *args, **options)
        estimator.__dict__ = work.__dict__
        return estimator

    return cast(Method, attempt)


def magnitude(*values: np.ndarray[Any, Any]) -> float:
    """Return the largest power of two that is not above the largest absolute value; 1 if all values are zero.

    Numbers divided by it keep all their digits, and their squares neither overflow nor vanish.

    >>> magnitude(np.array([-5.0, 1.0]), np.array([0.5])), magnitude(np.zeros(3))
    (4.0, 1.0)
    """
    # Without a copy of the values, which abs() would make.
    largest = max(float(end) for part in values for end in (part.max(initial=0), -part.min(initial=0)))
    return math.ldexp(0.5, math.frexp(largest)[1]) if largest else 1.0
