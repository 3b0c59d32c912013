"""Parameters of each loss that tests should try, read from its record: a new loss needs no entry here.

They are the defaults, the published settings, the ends of each parameter's interval (a number beside an end that does
not belong to it), and 1, at which many losses turn into another one.
"""

from __future__ import annotations

import functools
import itertools

from symloss.checks import Interval
from symloss.losses.catalogue import RECORDS
from symloss.losses.record import Parameter

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
    presets = [
        {key: value for key, value in preset.values.items() if key in record.defaults}
        for preset in record.presets.values()
    ]
    single = [{parameter.name: value} for parameter in record.parameters for value in one_at_a_time(parameter)]
    together = [p for p in record.parameters if p.instead_of is None]
    pairs = [
        dict(zip((p.name for p in together), values, strict=True))
        for values in itertools.product(*map(ends, together))
        if len(together) == 2
    ]
    return [{}, *presets, *single, *pairs]


@functools.cache
def interesting_specs(name: str) -> tuple[str, ...]:
    """A loss as texts for ``create_loss``, its defaults first, each setting once.

    A setting that repeats a default is written without it.
    """
    defaults = RECORDS[name].defaults
    settings = [{key: v for key, v in setting.items() if v != defaults[key]} for setting in interesting_settings(name)]
    texts = (",".join(f"{key}={value}" for key, value in setting.items()) for setting in settings)
    return tuple(dict.fromkeys(f"{name}:{text}".rstrip(":") for text in texts))
