"""A loss by its class and by its function, for tests that go through every door. A weighted sum has its name alone."""

import functools
from collections.abc import Callable
from typing import Any

import symloss
from symloss import functional
from symloss.losses.catalogue import LOSSES, RECORDS


def class_of(name: str) -> Callable[..., Any]:
    return (
        getattr(symloss.losses, RECORDS[name].class_name)
        if name in LOSSES
        else functools.partial(symloss.create_loss, name)
    )


def function_of(name: str) -> Callable[..., Any]:
    if name in LOSSES:
        return getattr(functional, RECORDS[name].function_name)
    return lambda scores, labels, **options: symloss.create_loss(name, **options)(scores, labels)
