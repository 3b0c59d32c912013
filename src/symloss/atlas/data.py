"""The data of the atlas: facts and numbers of each loss at each position of its sliders, packed into 16 bits."""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from symloss import checks
from symloss.atlas import curves
from symloss.checks import Interval
from symloss.losses.base import Loss, NoSlopeError
from symloss.losses.catalogue import RECORDS, SOURCES
from symloss.losses.record import Parameter, Record
from symloss.losses.spec import OPTIONS, create_loss, describe, parse, write

FACTS = ("symmetric", "non_increasing", "convex", "bounded")
"""In the order of their bits: the facts at one number of classes are one hexadecimal digit."""


OF_NO_CATALOGUE = {"composed": "composed of losses of the catalogue", "your own": "your own code"}


def drawn_losses(specs: Iterable[str] | None) -> list[Record]:
    """Return the records of these losses; of the whole catalogue if ``specs`` is None.

    Those of the catalogue come first, in its order. Any other spec, as ``create_loss`` takes it, gets a record without
    parameters.

    >>> [record.name for record in drawn_losses(["0.5*ce + mae", "gce", "ce"])]
    ['ce', 'gce', '0.5*ce + mae']
    """
    wanted = list(RECORDS) if specs is None else list(dict.fromkeys(specs))
    others = [_composed(spec) for spec in wanted if spec not in RECORDS]
    if not wanted:
        raise ValueError("losses must name at least one loss; got none")
    found = {record.name: record for record in others if record.name not in RECORDS}
    named = {*wanted, *(record.name for record in others)}
    return [*(record for name, record in RECORDS.items() if name in named), *found.values()]


def _composed(spec: str) -> Record:
    """Return a record of an expression, of a loss with fixed parameters, or of the user's own code."""
    name, values = parse(spec)
    record = describe(name)
    for option in values.keys() & set(OPTIONS):
        raise ValueError(f"`{option}` must be left out of {checks.brief(spec)}: the atlas draws losses of raw scores")
    if record.name in RECORDS and not values:
        return record
    loss = create_loss(spec).loss
    made = Record(write(name, values), record.source if record.name not in RECORDS else "composed", lambda: loss)
    made.formula = repr(loss) if made.source == "composed" else name
    return made


def arrays(loss: Loss) -> dict[str, Array]:
    """Return the numbers of one loss at one position of its sliders, by the name of the field."""
    tensors: dict[str, Tensor] = {}
    for classes in curves.CLASSES:
        tensors |= {f"{name} {classes}": tensor for name, tensor in curves.loss_curves(loss, classes).items()}
    tensors |= {f"simplex {name}": tensor for name, tensor in curves.simplex_map(loss).items()}
    tensors |= {f"risk {name}": tensor for name, tensor in curves.noisy_risk(loss).items()}
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def atlas_data(records: Sequence[Record], done: Callable[[int], None] | None = None) -> dict[str, Any]:
    """Return the data of the page, ready for JSON. ``done`` is called with the number of finished losses."""
    entries: list[dict[str, Any]] = []
    numbers: list[dict[str, Array]] = []
    for record in records:
        places, first = positions(record), len(numbers)
        losses = [record.loss(**values_at(record, place)) for place in places]
        numbers += map(arrays, losses)
        for field, array in itertools.chain.from_iterable(each.items() for each in numbers[first:]):
            if not np.isfinite(array).all():
                raise ValueError(
                    f"{record.name} must be finite at all points of the atlas; got {field} with inf or nan"
                )
        entries.append(_entry(record, places, losses) | {"first": first})
        if done is not None:
            done(len(entries))
    scales, codes = pack([array for each in numbers for array in each.values()])
    lengths = {name: len(array) for name, array in numbers[0].items()}
    return _grids() | {"fields": lengths, "losses": entries, "scales": scales, "codes": codes}


def _grids() -> dict[str, Any]:
    return {
        "classes": curves.CLASSES,
        "margins": [_short(curves.margins(classes)) for classes in curves.CLASSES],
        "probabilities": [_short(curves.probabilities(classes)) for classes in curves.CLASSES],
        "ranges": {"p": curves.PROBABILITIES, "margin": curves.MARGINS},
        "simplex": {"steps": curves.STEPS, "edge": curves.EDGE},
        "threshold": {
            "classes": curves.THRESHOLD_CLASSES,
            "thetas": _short(curves.THETAS),
            "noise": curves.NOISE,
            "accuracy": _short(curves.accuracy()),
            "densities": [_short(each) for each in curves.densities()],
        },
        "facts": FACTS,
    }


def _entry(record: Record, places: list[tuple[int, ...]], losses: list[Loss]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("name", "formula", "source", "normalize")} | {
        "reference": OF_NO_CATALOGUE.get(record.source) or SOURCES[record.source],
        "together": moves_together(record),
        "sliders": [each.described for each in sliders(record)],
        "positions": {",".join(map(str, place)): i for i, place in enumerate(places)},
        "facts": None if record.source in OF_NO_CATALOGUE else [_fact_digits(record, place) for place in places],
        "slopes": [_slopes(loss) for loss in losses],
    }


def _fact_digits(record: Record, place: tuple[int, ...]) -> str:
    """Return one hexadecimal digit for each number of classes."""
    digits = []
    for classes in curves.CLASSES:
        facts = record.facts.at(classes, **values_at(record, place))
        digits.append(f"{sum(facts[name] << bit for bit, name in enumerate(FACTS)):x}")
    return "".join(digits)


def _slopes(loss: Loss) -> list[float | None] | None:
    """Return the slope at equal scores, for each number of classes; None where there is none to divide by."""
    try:
        slopes = [loss.slope(classes) for classes in curves.CLASSES]
    except NoSlopeError:
        return None
    return [float(f"{slope:.7g}") if abs(slope) > 1e-12 else None for slope in slopes]


def _short(numbers: Tensor) -> list[float]:
    """Return numbers with eight digits."""
    return [float(f"{number:.8g}") for number in np.asarray(numbers)]


POINTS: dict[str, tuple[float, ...]] = {
    "q": (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.5, 2, 3),
    "alpha": (0, 0.1, 0.5, 1, 1.5, 2, 3, 5, 10),
    "beta": (0, 0.1, 0.5, 1, 2, 5, 10),
    "kappa": (0, 1, 2, 5, 10, 20, 50),
    "gamma": (0, 0.25, 0.5, 1, 2, 3, 5),
    "a": (0.1, 0.3, 0.6, 1, 1.5, 2.5, 4, 6, 10, 30, 100),
    "t": (1, 2, 3, 4, 6, 10, 20),
    "tau": (1.5, 2, 5, 10, 20, 50, 100),
    "pi": (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99),
    "t1": (0, 0.2, 0.4, 0.6, 0.8, 0.9, 1),
    "t2": (1, 1.1, 1.2, 1.5, 2, 3, 4),
    "lam": (0.1, 0.2, 0.5, 1, 2, 5, 10),
    "margin": (0, 0.1, 0.5, 1, 2, 5),
    "r": (-4, -2, -1, -0.5, -0.2, 0, 0.1, 0.2, 0.4, 0.6, 0.8, 1),
}
"""Values by the name of a parameter. Those outside the interval of a loss are left out."""
SYMMETRIC_DIRICHLET = (0.1, 0.25, 0.5, 2 / 3, 0.8, 0.9, 0.99, 1, 1.5, 2)
"""The Dirichlet prior makes cross-entropy symmetric at 1 - 1/C, so these are among its values."""
FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
"""Times the default: the values of a parameter whose name is not listed above."""
TOGETHER = 7  # the most values of a parameter that moves together with another one

Position = float | None


@dataclass(frozen=True)
class Slider:
    """A parameter and the values that its slider stops at. None stands for "not used"."""

    parameter: Parameter
    points: tuple[Position, ...]

    @property
    def default(self) -> int:
        """The index of the default."""
        return self.points.index(self.parameter.default)

    @property
    def described(self) -> dict[str, Any]:
        """What the page shows."""
        p = self.parameter
        facts = {"name": p.name, "meaning": p.meaning, "interval": p.interval, "instead": p.instead_of}
        return facts | {"points": self.points, "default": self.default}


def sliders(record: Record) -> tuple[Slider, ...]:
    """Return the sliders of a loss."""
    every = tuple(Slider(p, _points(record, p)) for p in record.parameters)
    several = len(every) > 1 and moves_together(record)
    return tuple(Slider(each.parameter, _thinned(each)) for each in every) if several else every


def moves_together(record: Record) -> bool:
    """Return whether every combination of values is shown. Else one parameter moves at a time."""
    return len(record.parameters) <= 2 and all(p.instead_of is None for p in record.parameters)


def positions(record: Record) -> list[tuple[int, ...]]:
    """Return every combination of values that is shown, as one index for each slider."""
    own = sliders(record)
    if moves_together(record):
        return list(itertools.product(*(range(len(each.points)) for each in own)))
    rest = tuple(each.default for each in own)
    moved = [(*rest[:k], i, *rest[k + 1 :]) for k, each in enumerate(own) for i in range(len(each.points))]
    return list(dict.fromkeys([rest, *moved]))


def values_at(record: Record, position: Sequence[int]) -> dict[str, Position]:
    """Return the parameters at a position. One that replaces another leaves None there."""
    values = {each.parameter.name: each.points[i] for each, i in zip(sliders(record), position, strict=True)}
    for p in record.parameters:
        if p.instead_of is not None and values[p.name] is not None:
            values[p.instead_of] = None
    return values


def _points(record: Record, p: Parameter) -> tuple[Position, ...]:
    listed = SYMMETRIC_DIRICHLET if (record.name, p.name) == ("dirichlet-ce", "alpha") else POINTS.get(p.name)
    base = p.default if p.default is not None else 1.0
    candidates = {*(listed or (base * factor for factor in FACTORS)), base if p.default is not None else None}
    candidates |= {preset.values[p.name] for preset in record.presets.values() if p.name in preset.values}
    interval = Interval(p.interval)
    numbers = sorted({float(each) for each in candidates if isinstance(each, int | float) and each in interval})
    whole = [int(each) if p.whole else each for each in numbers if not p.whole or each == int(each)]
    return (None, *whole) if p.default is None else tuple(whole)


def _thinned(slider: Slider) -> tuple[Position, ...]:
    """Return at most ``TOGETHER`` values, evenly taken from all of them, with the ends, the default and 1."""
    points = slider.points
    if len(points) <= TOGETHER:
        return points
    last = len(points) - 1
    kept = {0, last, slider.default, *(i for i, each in enumerate(points) if each == 1)}
    even = [round(i * last / (TOGETHER - 1)) for i in range(TOGETHER)]
    far_first = sorted(set(even) - kept, key=lambda i: -min(abs(i - k) for k in kept))
    return tuple(points[i] for i in sorted([*kept, *far_first[: TOGETHER - len(kept)]]))


LAST = 65535
"""The largest code. The error of a number is at most half a step, that is 1/131070 of the range of its array."""

Array = NDArray[np.float64]


def pack(arrays: Sequence[Array]) -> tuple[str, str]:
    """Return the scales and the codes of all arrays, in order, compressed by zlib, as base64.

    Neighbours are alike, so each code is stored as the difference to the one before it, modulo 65536. All low bytes
    come first, then all high bytes. The scales are the least number and the step of each array, little-endian float64.
    """
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("the numbers must be finite")
    scales = np.array([(array.min(), (array.max() - array.min()) / LAST) for array in arrays], "<f8").reshape(-1, 2)
    steps = [(array - low) / (step or 1) for array, (low, step) in zip(arrays, scales, strict=True)]
    codes = np.clip(np.rint(np.concatenate(steps)), 0, LAST).astype("<u2")
    bytewise = np.diff(codes, prepend=codes.dtype.type(0)).view(np.uint8).reshape(-1, 2).T
    small = [base64.b64encode(zlib.compress(data, 9)).decode() for data in (scales.tobytes(), bytewise.tobytes())]
    return small[0], small[1]
