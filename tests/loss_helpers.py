"""What tests of losses share: representatives, parameters to try, doors to a loss.

Options (weights, masks, reductions, shapes, soft and smoothed labels, data types) are handled by the evaluation, not
by the formula of a loss. So they are tested on one loss for each way of evaluation. Whatever is about the formula is
tested on all of them. ``losses/test_catalogue.py`` checks that no way of evaluation is left out.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from in_turn import in_turn

import symloss
from symloss import functional
from symloss.checks import Interval
from symloss.losses.base import Loss
from symloss.losses.catalogue import LOSSES, RECORDS
from symloss.losses.kernels.targets import kernel_for
from symloss.losses.record import Parameter

NAMED = {
    "unhinged": "linear in the scores: a kernel without exponentials; divides the scores by their norm; symmetric",
    "mae": "a function of the label's probability; symmetric",
    "gce": "a function of the label's probability; not symmetric",
    "alpha-mae": "a function of the label's probability with a linear part, by blend; divides by the norm; symmetric",
    "label-smoothing": "a sum with a part that is the same at every label; not symmetric",
    "dirichlet-ce": "adds a sum over all labels; not symmetric",
    "sgce": "sums over the other classes, by symmetrize; divides by the norm; symmetric",
    "anl-ce": "sums over the other classes, by relative and complement; a sum of losses; symmetric",
    "nce+agce": "sums over the other classes next to a function of the label's probability; not symmetric",
    "mse": "a loss of all probabilities: plain formulas, no kernel",
    "symmetrized-cosine": "a loss of raw scores without a slope at equal scores: plain formulas, no kernel; symmetric",
    "bi-tempered": "has a softmax of its own: plain formulas, no kernel",
}
"""Names of losses, each with what it stands for."""


def leaf_types(loss: Loss) -> set[type[Loss]]:
    return set().union(*map(leaf_types, loss.children)) if loss.children else {type(loss)}


def _with_a_leaf_of_their_own() -> dict[str, str]:
    """Losses that no kernel serves and that hold a leaf which none of the named ones holds."""
    known = set().union(*(leaf_types(RECORDS[name].loss()) for name in NAMED))
    others = {}
    for name, record in RECORDS.items():
        loss = record.loss()
        if kernel_for(loss, 10) is None and not leaf_types(loss) <= known:
            others[name] = "a leaf of its own: plain formulas, no kernel"
            known |= leaf_types(loss)
    return others


REPRESENTATIVES = NAMED | _with_a_leaf_of_their_own()
"""A new loss joins by itself where it brings a formula of its own that no kernel serves."""

WITHOUT_SLOPE = ("cosine", "symmetrized-cosine")
"""Losses that ``scale="ce"`` refuses: they have no slope at equal scores."""

every_path = in_turn("name", REPRESENTATIVES)
"""Marks a test of options: one loss for each way of evaluation."""


# --- Parameters that tests should try, read from the record of each loss: a new one needs no entry here --------------
# They are the defaults, the published settings, the ends of each parameter's interval (a number beside an end that does
# not belong to it), and 1, at which many losses turn into another one.

FAR = 5.0
"""Stands for an end beyond it. ``losses/test_reference.py`` goes to the ends themselves."""


def beside(end: float) -> float:
    """The distance from an end that does not belong to its interval: floats are dense at 0 alone."""
    return 1e-6 if end == 0 else 1e-2


def ends(parameter: Parameter) -> tuple[float, float]:
    low, high = (float(end) for end in parameter.interval[1:-1].split(","))
    interval = Interval(parameter.interval)
    low, high = max(low, -FAR), min(high, FAR)
    return low if low in interval else low + beside(low), high if high in interval else high - beside(high)


def one_at_a_time(parameter: Parameter) -> list[float]:
    """Both ends, and 1; of whole numbers one even and one odd number more."""
    low, high = ends(parameter)
    values = [low, high, *([3.0, 4.0] if parameter.whole else []), 1.0]
    interval = Interval(parameter.interval)
    return [int(value) if parameter.whole else value for value in dict.fromkeys(values) if value in interval]


def interesting_settings(name: str) -> list[dict[str, float]]:
    """What a loss is created with besides its defaults, the empty setting first."""
    record = RECORDS[name]
    every = (preset.values for preset in record.presets.values())
    presets = [{key: value for key, value in values.items() if key in record.defaults} for values in every]
    single = [{parameter.name: value} for parameter in record.parameters for value in one_at_a_time(parameter)]
    together = [p for p in record.parameters if p.instead_of is None]
    pairs = itertools.product(*map(ends, together)) if len(together) == 2 else ()
    names = [p.name for p in together]
    return [{}, *presets, *single, *(dict(zip(names, values, strict=True)) for values in pairs)]


@functools.cache
def interesting_specs(name: str) -> tuple[str, ...]:
    """A loss as texts for ``create_loss``, its defaults first, each setting once.

    A setting that repeats a default is written without it.
    """
    defaults = RECORDS[name].defaults
    settings = [{key: v for key, v in setting.items() if v != defaults[key]} for setting in interesting_settings(name)]
    texts = (",".join(f"{key}={value}" for key, value in setting.items()) for setting in settings)
    return tuple(dict.fromkeys(f"{name}:{text}".rstrip(":") for text in texts))


# --- A loss by its class and by its function; a weighted sum has its name alone --------------------------------------


def class_of(name: str) -> Callable[..., Any]:
    if name in LOSSES:
        return getattr(symloss.losses, RECORDS[name].class_name)
    return functools.partial(symloss.create_loss, name)


def function_of(name: str) -> Callable[..., Any]:
    if name in LOSSES:
        return getattr(functional, RECORDS[name].function_name)
    return lambda scores, labels, **options: symloss.create_loss(name, **options)(scores, labels)
