"""Everything that the page draws: facts of each loss, and its numbers at each position of its sliders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from symloss import checks
from symloss.atlas import loss_curves, simplex, threshold_problem
from symloss.atlas.packing import Array, pack
from symloss.atlas.parameter_points import Slider, moves_together, positions, sliders, values_at
from symloss.losses.algebra import Loss, NoSlopeError
from symloss.losses.catalogue import RECORDS, SOURCES
from symloss.losses.record import Record

FACTS = ("symmetric", "non_increasing", "convex", "bounded")
"""In the order of their bits: the facts at one number of classes are one hexadecimal digit."""


def known_losses(names: Iterable[str] | None) -> list[Record]:
    """The records of these losses, in the order of the catalogue; of all losses if ``names`` is None."""
    wanted = list(RECORDS) if names is None else list(names)
    for name in wanted:
        if name not in RECORDS:
            raise ValueError(
                f"losses must be names of the catalogue; got {checks.brief(name)}, {checks.nearest(name, RECORDS)}"
            )
    if not wanted:
        raise ValueError("losses must name at least one loss; got none")
    return [record for name, record in RECORDS.items() if name in wanted]


def arrays(loss: Loss) -> dict[str, Array]:
    """The numbers of one loss at one position of its sliders, by the name of the field."""
    tensors: dict[str, Tensor] = {}
    for classes in loss_curves.CLASSES:
        curves = loss_curves.loss_curves(loss, classes)
        tensors |= {f"{name} {classes}": tensor for name, tensor in curves._asdict().items()}
    on_triangle, risk = simplex.simplex_map(loss), threshold_problem.noisy_risk(loss)
    tensors |= {f"simplex {name}": tensor for name, tensor in on_triangle._asdict().items()}
    tensors |= {f"risk {name}": tensor for name, tensor in risk._asdict().items()}
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def atlas_data(records: Sequence[Record], done: Callable[[int], None] | None = None) -> dict[str, Any]:
    """The data of the page, ready for JSON.

    Args:
        records: the losses.
        done: called after each loss with the number of losses that are done.
    """
    entries: list[dict[str, Any]] = []
    packed: list[Array] = []
    lengths: dict[str, int] = {}
    first = 0
    for number, record in enumerate(records, 1):
        places = positions(record)
        losses = [record.loss(**values_at(record, place)) for place in places]
        for loss in losses:
            numbers = arrays(loss)
            lengths = {name: len(array) for name, array in numbers.items()}
            packed += numbers.values()
        entries.append(_entry(record, places, losses) | {"first": first})
        first += len(places)
        if done is not None:
            done(number)
    scales, codes = pack(packed)
    return _grids() | {"fields": lengths, "losses": entries, "scales": scales, "codes": codes}


def _grids() -> dict[str, Any]:
    problem = threshold_problem
    return {
        "classes": loss_curves.CLASSES,
        "margins": [_short(loss_curves.margins(classes)) for classes in loss_curves.CLASSES],
        "probabilities": [_short(loss_curves.probabilities(classes)) for classes in loss_curves.CLASSES],
        "ranges": {"p": loss_curves.PROBABILITIES, "margin": loss_curves.MARGINS},
        "simplex": {"steps": simplex.STEPS, "edge": simplex.EDGE},
        "threshold": {
            "classes": problem.CLASSES,
            "thetas": _short(problem.THETAS),
            "noise": problem.NOISE,
            "accuracy": _short(problem.accuracy()),
            "densities": [_short(each) for each in problem.densities()],
        },
        "facts": FACTS,
    }


def _entry(record: Record, places: list[tuple[int, ...]], losses: list[Loss]) -> dict[str, Any]:
    facts = [_fact_digits(record, place) for place in places]
    return {
        "name": record.name,
        "formula": record.formula,
        "source": record.source,
        "reference": SOURCES[record.source],
        "normalize": record.normalize,
        "together": moves_together(record),
        "sliders": [_slider(each) for each in sliders(record)],
        "positions": {",".join(map(str, place)): i for i, place in enumerate(places)},
        "facts": facts,
        "slopes": [_slopes(loss) for loss in losses],
    }


def _slider(slider: Slider) -> dict[str, Any]:
    p = slider.parameter
    return {
        "name": p.name, "meaning": p.meaning, "interval": p.interval, "instead": p.instead_of,
        "points": slider.points, "default": slider.default,
    }  # fmt: skip


def _fact_digits(record: Record, place: tuple[int, ...]) -> str:
    """One hexadecimal digit for each number of classes."""
    digits = []
    for classes in loss_curves.CLASSES:
        facts = record.facts.at(classes, **values_at(record, place))
        digits.append(f"{sum(facts[name] << bit for bit, name in enumerate(FACTS)):x}")
    return "".join(digits)


def _slopes(loss: Loss) -> list[float | None] | None:
    """The slope at equal scores, for each number of classes; None where there is none to divide by."""
    try:
        slopes = [loss.slope(classes) for classes in loss_curves.CLASSES]
    except NoSlopeError:
        return None
    return [float(f"{slope:.7g}") if abs(slope) > 1e-12 else None for slope in slopes]


def _short(numbers: Tensor) -> list[float]:
    """Numbers with eight digits."""
    return [float(f"{number:.8g}") for number in np.asarray(numbers)]
