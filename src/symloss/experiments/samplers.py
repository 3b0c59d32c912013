"""Samplers propose the points of a search: a grid in order, or any Optuna sampler."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from symloss.experiments.spaces import Dimension, Point

GRID = "grid"
EVERY_COMBINATION = (GRID, "bruteforce")
"""Names of the grid. It is not Optuna's: that may repeat points if several processes share a study."""
DIGITS = 4
"""The number of digits to which drawn numbers are rounded, so that a command with them can be read."""
NEEDS = {"cmaes": "cmaes"}
"""The packages that samplers need besides Optuna."""


class InOrder(BaseSampler):
    """A sampler that gives point k to trial k. Trial numbers are unique, so no two processes get the same point."""

    def __init__(self, points: Sequence[Point]):
        self.points = points

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.points[trial.number][param_name]


class SeededByTrial(BaseSampler):
    """An Optuna sampler that is made anew for each trial, with a seed that depends on the number of the trial.

    A proposal depends only on the seed, the number of the trial and the trials that are finished. So two processes
    never draw the same numbers, and an interrupted search continues as if it had not been interrupted.
    """

    def __init__(self, make: Callable[..., BaseSampler], seed: int):
        self.make, self.seed = make, seed
        self._current: tuple[int, BaseSampler] | None = None

    def _of(self, trial: FrozenTrial) -> BaseSampler:
        if self._current is None or self._current[0] != trial.number:
            state = np.random.SeedSequence([self.seed, trial.number]).generate_state(1)
            self._current = trial.number, self.make(seed=int(state[0]))
        return self._current[1]

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._of(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._of(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._of(trial).sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._of(trial).before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._of(trial).after_trial(study, trial, state, values)


def distribution(dimension: Dimension) -> BaseDistribution:
    """Return a dimension as an Optuna distribution: all numbers between its smallest and largest, or a list of values.

    >>> distribution(Dimension("lr", (0.01, 0.1), log=True))
    FloatDistribution(high=0.1, log=True, low=0.01, step=None)
    """
    ends = dimension.between()
    if ends is None:
        return CategoricalDistribution(dimension.values)
    if dimension.whole:
        return IntDistribution(int(ends[0]), int(ends[1]), log=dimension.log)
    return FloatDistribution(*ends, log=dimension.log)


def rounded(value: Any, values: BaseDistribution) -> Any:
    """Return the value that is tried for a drawn one. A value from a list stays; a number is rounded.

    >>> rounded(0.123456, FloatDistribution(0.1, 1.0)), rounded(0.123456, FloatDistribution(0.123455, 1.0))
    (0.1235, 0.1235)
    >>> rounded(0.123456, CategoricalDistribution([0.123456]))
    0.123456
    """
    if not isinstance(values, FloatDistribution):
        return value
    return min(max(float(f"{value:.{DIGITS}g}"), values.low), values.high)


def suggest(trial: Trial, name: str, values: BaseDistribution) -> Any:
    """Return the value of a dimension in a trial. It is drawn once; later calls return the same value."""
    if isinstance(values, CategoricalDistribution):
        return trial.suggest_categorical(name, values.choices)
    if isinstance(values, IntDistribution):
        return trial.suggest_int(name, values.low, values.high, log=values.log)
    assert isinstance(values, FloatDistribution)
    return trial.suggest_float(name, values.low, values.high, log=values.log)


def samplers() -> Mapping[str, type[BaseSampler]]:
    """Return the Optuna samplers that need only a seed, by short name.

    >>> sorted(samplers())
    ['cmaes', 'gp', 'nsgaii', 'nsgaiii', 'qmc', 'random', 'tpe']
    """
    by_name: dict[str, type[BaseSampler]] = {}
    for name in optuna.samplers.__all__:
        kind = getattr(optuna.samplers, name)
        if not (isinstance(kind, type) and issubclass(kind, BaseSampler)) or _short(name) in EVERY_COMBINATION:
            continue
        takes = inspect.signature(kind).parameters
        if (
            not inspect.isabstract(kind)
            and "seed" in takes
            and all(each.default is not each.empty for each in takes.values())
        ):
            by_name[_short(name)] = kind
    return by_name


def short_name(sampler: str) -> str:
    """Return the short name of a sampler, from its class name or another spelling.

    >>> short_name("TPESampler"), short_name("NSGA-II"), short_name("BruteForceSampler")
    ('tpe', 'nsgaii', 'grid')
    """
    name = _short(sampler)
    if name in EVERY_COMBINATION:
        return GRID
    known = samplers()
    if name not in known:
        raise ValueError(f"--sampler must be one of {', '.join([GRID, *sorted(known)])}; got {sampler!r}")
    package = NEEDS.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ValueError(f"the sampler {name} needs a package that is not installed: pip install {package}")
    return name


def _short(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").removesuffix("sampler")
