"""Studies of Optuna, one for each question of a search; their samplers; the ranking of the points that they tried."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
from optuna import samplers
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.samplers import PartialFixedSampler, RandomSampler
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from symloss.experiments.spaces import DIGITS, Dimension, Point, Question, edge_remarks, widened
from symloss.experiments.storage import Claims, LockFolder
from symloss.losses.spec import parse
from symloss.training.results import Spread
from symloss.training.settings import Settings

GRID = "grid"
SAMPLERS = {
    "cmaes": samplers.CmaEsSampler,
    "gp": samplers.GPSampler,
    "nsgaii": samplers.NSGAIISampler,
    "nsgaiii": samplers.NSGAIIISampler,
    "qmc": samplers.QMCSampler,
    "random": RandomSampler,
    "tpe": samplers.TPESampler,
}
"""The samplers besides the grid, which is not Optuna's: that may repeat points if several processes share a study."""
TRIALS = 20  # the default number of trials of each loss, for samplers other than the grid


def distribution(dimension: Dimension) -> BaseDistribution:
    """Return a dimension as an Optuna distribution: all numbers between its ends, or a list of values."""
    ends = dimension.between()
    if ends is None:
        return CategoricalDistribution(dimension.values)
    if dimension.whole:
        return IntDistribution(int(ends[0]), int(ends[1]), log=dimension.log)
    return FloatDistribution(*ends, log=dimension.log)


def rounded(value: Any, values: BaseDistribution) -> Any:
    """Return the value that is tried for a drawn one. A value from a list stays; a number is rounded."""
    if not isinstance(values, FloatDistribution):
        return value
    return min(max(float(f"{value:.{DIGITS}g}"), values.low), values.high)


def short_name(sampler: str) -> str:
    """Return the short name of a sampler, from its class name or another spelling."""
    name = sampler.lower().replace("-", "").replace("_", "").removesuffix("sampler")
    if name in (GRID, "bruteforce"):
        return GRID
    if name not in SAMPLERS:
        raise ValueError(f"--sampler must be one of {', '.join([GRID, *SAMPLERS])}; got {sampler!r}")
    if name == "cmaes" and importlib.util.find_spec(name) is None:
        raise ValueError(f"the sampler {name} needs a package that is not installed: pip install {name}")
    return name


@dataclass(frozen=True)
class Method:
    """The method of a search: sampler, trials, finalists with ``final_seeds`` seeds, how often to ``widen`` a grid."""

    sampler: str = GRID
    trials: int | None = None
    """The number of trials of each loss, over all processes. The grid has one for each combination."""
    finalists: int = 0  # how many of the best points of each loss are run again, with ``final_seeds`` seeds
    final_seeds: int = 0
    widen: int = 0  # how often a grid is widened by a value, if the best parameter of a loss sits on its edge

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampler", short_name(self.sampler))
        if self.trials is not None and self.every_combination:
            raise ValueError(
                f"`--trials` must be left out with the sampler grid, which tries every combination; got {self.trials}"
            )

    @property
    def every_combination(self) -> bool:
        """Whether the sampler is the grid."""
        return self.sampler == GRID


class Search:
    """A question, and the study that answers it together with all processes.

    Points "beyond" lie outside the first grid; "finals" are the best points with more seeds. The points are tried in
    order; None is for those of the method.
    """

    def __init__(
        self,
        question: Question,
        method: Method,
        storage: BaseStorage,
        locks: LockFolder,
        name: str | None = None,
        kind: Literal["first", "beyond", "finals"] = "first",
        points: Sequence[Point] | None = None,
    ):
        self.question, self.method, self.storage, self.locks, self.kind = question, method, storage, locks, kind
        self.grid = {dimension.name: dimension for dimension in question.space}
        self.further: list[Search] = []
        """Searches of points beyond the edges of the grid, and of finalists."""
        if points is None and method.every_combination:
            points = question.points()
        self.points = points
        if points is None:
            self.distributions = {each.name: distribution(each) for each in question.space}
        else:
            values = {each: dict.fromkeys(point[each] for point in points) for each in self.grid}
            self.distributions = {each: CategoricalDistribution(list(tried)) for each, tried in values.items()}
        space = {each: json.loads(distribution_to_json(values)) for each, values in self.distributions.items()}
        asked = question.to_dict() | {"space": list(points or ()) if kind == "finals" else space}
        base = question.base
        readable = f"{Path(base.data).stem}-{base.noise}-{question.loss}" if name is None else name
        key = hashlib.sha256(json.dumps(asked | {"sampler": method.sampler}, sort_keys=True).encode()).hexdigest()[:12]
        named = kind == "first" and name is not None
        self.study = _open_study(readable if named else f"{readable}-{key}", asked, storage, locks)
        wanted = (method.trials or TRIALS) if points is None else len(points)
        self.claims = Claims(self.study, storage, locks, wanted)

    def beyond(self) -> Search | None:
        """Open a search of points beyond the edge that the best point sits on, if any. All processes agree on it."""
        rows = self._rows("first", "beyond")
        further = widened(self.question, self.grid, rows[0]["point"]) if rows else None
        if further is None:
            return None
        question, dimension = further
        self.grid[dimension.name] = dimension
        return self._search_further(question, "beyond", question.points())

    def finals(self) -> Search | None:
        """Open a search of the best points with more seeds. All processes choose the same best points."""
        points = [row["point"] for row in self._rows("first", "beyond")[: self.method.finalists]]
        if not points or self.method.final_seeds <= self.question.seeds:
            return None
        return self._search_further(replace(self.question, seeds=self.method.final_seeds), "finals", points)

    def _search_further(self, question: Question, kind: Literal["beyond", "finals"], points: list[Point]) -> Search:
        name = f"{self.study.study_name}-{kind}"
        self.further.append(Search(question, self.method, self.storage, self.locks, name, kind, points))
        return self.further[-1]

    def draw(self, unfinished: FrozenTrial) -> Trial:
        """Draw the values of a trial. Those that an earlier process drew for it stay.

        Each trial has a sampler of its own. The grid gives point k to trial k. Other proposals depend only on the seed,
        the number of the trial and the trials that are finished. So two processes never draw the same numbers, and an
        interrupted search continues as if it had not been interrupted.
        """
        if self.points is None:
            state = np.random.SeedSequence([self.question.base.seed, unfinished.number]).generate_state(1)
            self.study.sampler = SAMPLERS[self.method.sampler](seed=int(state[0]))
        else:
            self.study.sampler = PartialFixedSampler(self.points[unfinished.number], RandomSampler())
        trial = Trial(self.study, unfinished._trial_id)
        for name, values in self.distributions.items():
            trial._suggest(name, values)
        return trial

    def point(self, trial: Trial | FrozenTrial) -> Point:
        """Return the point that a trial tries: numbers that were drawn are rounded."""
        return {name: rounded(value, self.distributions[name]) for name, value in trial.params.items()}

    def settings(self, trial: Trial | FrozenTrial) -> Settings:
        """Return the settings of a trial, with its first seed."""
        return self.question.settings(self.point(trial))

    def best(self) -> float | None:
        """Return the best mean accuracy so far."""
        return max((trial.values[0] for trial in self._ended(TrialState.COMPLETE)), default=None)

    def answer(self) -> dict[str, Any]:
        """Return what :func:`symloss.experiments.tune.tune` returns for this question."""
        finals = self._rows("finals")
        again = [row["point"] for row in finals]
        rows = ranked(finals + [row for row in self._rows("first", "beyond") if row["point"] not in again])
        edges = edge_remarks(self.question.loss, self.grid, rows[0]["point"]) if rows else []
        return {
            "loss": self.question.loss,
            "study": self.study.study_name,
            "tried": [{key: value for key, value in row.items() if key != "point"} for row in rows],
            "diverged": [
                {"settings": search.settings(trial).to_dict(), "reason": trial.user_attrs.get("diverged")}
                for search in (self, *self.further)
                for trial in search._ended(TrialState.PRUNED)
            ],
            "edges": edges,
        }

    def _ended(self, state: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(state,))

    def _rows(self, *kinds: str) -> list[TriedPoint]:
        """Return the points that were tried by this search and those further of these kinds, the best first."""
        rows = []
        for search in (self, *self.further):
            for trial in search._ended(TrialState.COMPLETE) if search.kind in kinds else ():
                accuracies = trial.user_attrs.get("accuracies")
                if accuracies is not None:  # else another program wrote it
                    rows.append({
                        "point": search.point(trial), "settings": search.settings(trial).to_dict(),
                        "validation": Spread.of(accuracies).to_json(), "seeds": len(accuracies),
                        "held_out": trial.user_attrs["held_out"], "final": search.kind == "finals",
                    })  # fmt: skip
        return ranked(rows)


def _open_study(name: str, asked: dict[str, Any], storage: BaseStorage, locks: LockFolder) -> Study:
    """Open a study by its name, or create it. A study of another search raises an error."""
    with locks.turn():
        study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
        asked = json.loads(json.dumps(asked))
        stored = study.user_attrs.get("question")
        if stored is None and not study.get_trials(deepcopy=False) and study.directions == [StudyDirection.MAXIMIZE]:
            study.set_user_attr("question", asked)
            return study
    if stored != asked:
        raise ValueError(
            f"The storage holds a study {name!r} of another search ({_differing(stored, asked)}). "
            "Choose another `study` or `storage`."
        )
    return study


def _differing(stored: Any, asked: dict[str, Any]) -> str:
    if not isinstance(stored, dict):
        return "by another program"
    ours, theirs = (each.get("settings", {}) | each for each in (asked, stored))
    names = sorted((ours.keys() | theirs.keys()) - {"settings"})
    return f"with another {' and '.join(name for name in names if ours.get(name) != theirs.get(name))}"


TriedPoint = dict[str, Any]
"""``settings``, ``validation`` (mean and std), ``seeds``, ``held_out`` (examples of each seed), ``final``."""


def ranked(rows: Sequence[TriedPoint]) -> list[TriedPoint]:
    """Return the points, the best first. Finalists, which have more seeds, come before all others."""
    return sorted(rows, key=lambda row: (not row["final"], -row["validation"]["mean"]))


def standard_error(row: TriedPoint) -> float:
    """Return the standard error of a mean accuracy.

    It is that of the seeds, but at least sqrt(p (1 - p) / n), that of an accuracy p on n examples: one seed has no
    spread, and a few may agree by chance.
    """
    mean, std = row["validation"]["mean"], row["validation"]["std"]
    counting = math.sqrt(mean * (1 - mean) / (row["held_out"] * row["seeds"]))
    return max(counting, 0.0 if std is None else std / math.sqrt(row["seeds"]))


def leaders(rows: Sequence[TriedPoint]) -> int:
    """Return how many of the ranked points are within one standard error of the first one; at least 1."""
    best = rows[0]

    def is_close(row: TriedPoint) -> bool:
        lead: float = best["validation"]["mean"] - row["validation"]["mean"]
        return row["final"] is best["final"] and lead <= math.hypot(standard_error(best), standard_error(row))

    return len(list(itertools.takewhile(is_close, rows)))


def remark(rows: Sequence[TriedPoint]) -> str:
    """Return a sentence that says whether the first of the ranked points is better than the others beyond chance."""
    if len(rows) == 1:
        return "Only one point was tried: there was nothing to choose."
    several, percent = leaders(rows), 100 * standard_error(rows[0])
    if several == 1:
        return f"The first leads by more than one standard error (its own is {percent:.2f})."
    return (
        f"The first {several} are within one standard error of the first (its own is {percent:.2f}): this search "
        "cannot tell them apart; more --seeds can, or `final_seeds` for the `finalists`."
    )


def as_toml(data: str, rows: Sequence[TriedPoint]) -> Iterator[str]:
    """Yield the best point of each loss as lines of protocols.toml, each with a comment on its figures."""
    yield f"[{_quoted(data)}.losses]"
    by_loss: dict[str, list[TriedPoint]] = {}
    for row in ranked(rows):
        by_loss.setdefault(parse(row["settings"]["loss"])[0], []).append(row)
    for name, (best, *others) in by_loss.items():
        settings = best["settings"]
        inner = ", ".join(f"{key} = {_quoted(value)}" for key, value in parse(settings["loss"])[1].items())
        loss = f", loss = {{ {inner} }}" if inner else ""
        comment = (
            f"# validation {best['validation']['mean']:.4f} of {best['seeds']} seed{'s' if best['seeds'] > 1 else ''}"
        )
        comment += f", next {others[0]['validation']['mean']:.4f}, of {len(others) + 1} settings" if others else ""
        scores = "" if settings["scores"] == "loss" else f", scores = {_quoted(settings['scores'])}"
        values = f"lr = {settings['lr']!r}, weight_decay = {settings['weight_decay']!r}{scores}{loss}"
        yield f"{_quoted(name)} = {{ {values} }}  {comment}"


def _quoted(value: object) -> str:
    """Return a value as TOML. TOML has no None; the text "None" is read as one in a loss."""
    return str(value) if isinstance(value, (int, float)) else json.dumps(str(value), ensure_ascii=False)
