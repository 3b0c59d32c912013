"""How the losses of the catalogue are related. Nothing is listed by hand: values and expressions are compared."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from symloss.checks import Interval
from symloss.losses.base import Loss
from symloss.losses.catalogue import LOSSES, RECORDS, sums
from symloss.losses.record import Parameter

NEAR = 1e-6
"""The distance from an end of an interval, 0 or 1, that does not belong to it."""


@dataclass(frozen=True)
class SpecialCase:
    """Parameters at which a loss is another one, up to a factor and a constant."""

    at: tuple[tuple[str, float], ...]
    """Parameters and their values."""
    towards: bool
    """Whether the loss only goes to the other one there."""
    other: str
    factor: bool
    constant: bool


@functools.cache
def special_cases(name: str) -> tuple[SpecialCase, ...]:
    """Where the loss is another one of the catalogue, with parameters of 0 or 1."""
    cases: dict[str, SpecialCase] = {}
    for setting in _settings(name):
        if any(set(case.at) < {(p, v) for p, v, _ in setting} for case in cases.values()):
            continue  # a special case of a special case
        near = {p: min(max(v, NEAR), 1 - NEAR) if open_end else v for p, v, open_end in setting}
        towards = any(open_end for *_, open_end in setting)
        others = [other for other in RECORDS if other != name and not near.keys() & RECORDS[other].defaults.keys()]
        found = [case for other in others for case in _same(name, near, other, towards)]
        if found:
            best = min(found, key=lambda case: (case.factor, case.constant, len(RECORDS[case.other].parameters)))
            at = tuple((p, v) for p, v, _ in setting)
            cases.setdefault(best.other, SpecialCase(at, towards, best.other, best.factor, best.constant))
    return tuple(cases.values())


def _settings(name: str) -> Iterator[tuple[tuple[str, float, bool], ...]]:
    """Return the defaults, then one parameter at 0 or 1, then two. Each is (name, value, whether that end is open)."""
    record = RECORDS[name]
    single = [(p.name, value, open_end) for p in record.parameters for value, open_end in _zero_and_one(p)]
    yield ()
    yield from ((each,) for each in single if record.defaults[each[0]] != each[1])
    replaced = {p.name: p.instead_of for p in record.parameters}
    for one, other in itertools.combinations(single, 2):
        if one[0] != other[0] and replaced[other[0]] != one[0]:
            yield one, other


def _zero_and_one(parameter: Parameter) -> Iterator[tuple[float, bool]]:
    interval = Interval(parameter.interval)
    for value, beside in ((0.0, NEAR), (1.0, 1 - NEAR)):
        if value in interval:
            yield (int(value) if parameter.whole else value), False
        elif beside in interval:
            yield value, True


@functools.cache
def _points(classes: int) -> Tensor:
    return 2 * torch.randn(40, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(classes))


@functools.cache
def _values(name: str, setting: tuple[tuple[str, float], ...], classes: int) -> Tensor:
    return RECORDS[name].loss(**dict(setting)).per_class(_points(classes)).flatten()


def _same(name: str, setting: dict[str, float], other: str, towards: bool) -> Iterator[SpecialCase]:
    """Return the special case, if the losses are the same for 3 classes and for 5."""
    shared = {key: value for key, value in (RECORDS[name].defaults | setting).items() if key in RECORDS[other].defaults}
    fits = []
    for classes in (3, 5):
        mine = _values(name, tuple(setting.items()), classes)
        try:
            others = _values(other, tuple(shared.items()), classes)
        except ValueError:  # the shared parameter has another range there
            return
        factor = float(torch.cov(torch.stack([mine, others]))[0, 1] / others.var())
        constant = float((mine - factor * others).mean())
        size = float(mine.std())
        error = float((mine - factor * others - constant).abs().max())
        if size < 1e-9 or error > size * (1e-3 if towards else 1e-9):
            return
        fits.append((factor, constant / size))
    loose = 1e-3 if towards else 1e-9
    has_factor = any(not math.isclose(factor, 1, rel_tol=loose) for factor, _ in fits)
    yield SpecialCase((), towards, other, has_factor, any(abs(constant) > loose for _, constant in fits))


@functools.cache
def parts(name: str) -> tuple[str, ...]:
    """Return the losses of the catalogue that the expression of this one is made of."""
    found = [_name_of(node) for node in _below(RECORDS[name].loss())]
    return tuple(dict.fromkeys(each for each in found if each is not None and each != name))


def _below(loss: Loss) -> Iterator[Loss]:
    """Return the parts of an expression. A part that is itself in the catalogue is not taken apart."""
    for child in loss.children:
        yield child
        if _name_of(child) is None:
            yield from _below(child)


def _name_of(node: Loss) -> str | None:
    """Return the loss with this expression, or else with the same one at other parameters."""
    expressions = {name: record.loss() for name, record in RECORDS.items()}
    equal = [name for name, loss in expressions.items() if loss == node]
    alike = [name for name, loss in expressions.items() if _shape(loss) == _shape(node)]
    return next(iter([*equal, *alike]), None)


def _shape(loss: Loss) -> tuple[object, ...]:
    return (type(loss), *map(_shape, loss.children))


def family(name: str) -> list[str]:
    """Return the other losses in the same file of the catalogue."""
    homes = {other: LOSSES[other].__module__ if other in LOSSES else sums.__name__ for other in RECORDS}
    return [other for other, home in homes.items() if home == homes[name] and other != name]
