"""Studies of Optuna. Each question has one, in a storage that processes share."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, distribution_to_json
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from symloss.experiments.grid_edges import remarks, widened
from symloss.experiments.questions import Question, search_key, study_name
from symloss.experiments.ranking import TriedPoint, ranked
from symloss.experiments.samplers import (
    GRID,
    InOrder,
    SeededByTrial,
    distribution,
    rounded,
    samplers,
    short_name,
    suggest,
)
from symloss.experiments.spaces import Point
from symloss.experiments.trial_locks import Claims, LockFolder
from symloss.training.results import Spread

TRIALS = 20
"""The default number of trials of each loss, for samplers other than the grid."""


@dataclass(frozen=True)
class Method:
    """The method of a search: the sampler, and the numbers of trials and finalists."""

    sampler: str = GRID
    """"grid" for every combination, or the name of a sampler of Optuna."""
    trials: int | None = None
    """The number of trials of each loss, over all processes. The grid has one for each combination."""
    finalists: int = 0
    """How many of the best points of each loss are run again with more seeds."""
    final_seeds: int = 0
    """The number of seeds of a finalist."""
    widen: int = 0
    """How often a grid is widened by a value, if the best parameter of a loss sits on its edge."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampler", short_name(self.sampler))
        if self.trials is not None and self.sampler == GRID:
            raise ValueError(
                f"--trials must be left out with the sampler grid, which tries every combination; got {self.trials}"
            )

    @property
    def every_combination(self) -> bool:
        """Whether the sampler is the grid."""
        return self.sampler == GRID


class StudiedQuestion:
    """A question, and the study that answers it."""

    def __init__(
        self,
        question: Question,
        study: Study,
        distributions: dict[str, BaseDistribution],
        claims: Claims,
        final: bool = False,
        wider: bool = False,
    ):
        self.question, self.study, self.distributions, self.claims = question, study, distributions, claims
        self.final, self.wider = final, wider
        self.finals: StudiedQuestion | None = None
        self.beyond: list[StudiedQuestion] = []
        """Studies of points beyond the edges of the grid."""
        self.grid = {dimension.name: dimension for dimension in question.space.dimensions}

    @classmethod
    def open(
        cls, question: Question, method: Method, storage: BaseStorage, locks: LockFolder, prefix: str | None
    ) -> StudiedQuestion:
        """Open the study of a question, or create it."""
        every = method.every_combination
        distributions = {
            dimension.name: distribution(dimension, every_combination=every) for dimension in question.space.dimensions
        }
        asked = question.to_dict() | {"space": plain_distributions(distributions)}
        name = study_name(question, asked | {"sampler": method.sampler}) if prefix is None else ""
        if every:
            points = list(question.space.points())
            sampler: BaseSampler = InOrder(points)
            wanted = len(points)
        else:
            sampler = SeededByTrial(samplers()[method.sampler], question.base.seed)
            wanted = method.trials or TRIALS
        study = _open_study(name or f"{prefix}-{question.loss}", asked, sampler, storage, locks)
        return cls(
            question, study, distributions, Claims(study, locks, wanted, _drawn_from(distributions), exactly=every)
        )

    def begin_beyond(self, storage: BaseStorage, locks: LockFolder) -> StudiedQuestion | None:
        """Open a study of points beyond the edge that the best point sits on, if it does. All processes agree on it."""
        rows = self._every_row()
        further = widened(self.question, self.grid, rows[0]["point"]) if rows else None
        if further is None:
            return None
        question, dimension = further
        self.grid[dimension.name] = dimension
        points = list(question.space.points())
        distributions = {each.name: distribution(each, every_combination=True) for each in question.space.dimensions}
        asked = question.to_dict() | {"space": plain_distributions(distributions)}
        name = f"{self.study.study_name}-beyond-{search_key(asked)}"
        study = _open_study(name, asked, InOrder(points), storage, locks)
        claims = Claims(study, locks, len(points), _drawn_from(distributions), exactly=True)
        self.beyond.append(StudiedQuestion(question, study, distributions, claims, wider=True))
        return self.beyond[-1]

    def begin_finals(self, method: Method, storage: BaseStorage, locks: LockFolder) -> None:
        """Open a study of the best points with more seeds. All processes choose the same best points."""
        points = [row["point"] for row in self._every_row()[: method.finalists]]
        if not points or method.final_seeds <= self.question.seeds:
            return
        question = replace(self.question, seeds=method.final_seeds)
        asked = question.to_dict() | {"points": points}
        values = {name: list(dict.fromkeys(point[name] for point in points)) for name in points[0]}
        distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(each) for name, each in values.items()
        }
        name = f"{self.study.study_name}-finals-{search_key(asked)}"
        study = _open_study(name, asked, InOrder(points), storage, locks)
        claims = Claims(study, locks, len(points), _drawn_from(distributions), exactly=True)
        self.finals = StudiedQuestion(question, study, distributions, claims, final=True)

    def point(self, drawn: Point) -> Point:
        """The point that is tried, from the drawn one: numbers are rounded."""
        return {name: rounded(value, self.distributions[name]) for name, value in drawn.items()}

    def best(self) -> float | None:
        """The best mean accuracy so far."""
        values = [trial.value for trial in self._ended(TrialState.COMPLETE) if trial.value is not None]
        return max(values, default=None)

    def answer(self) -> dict[str, Any]:
        """What :func:`symloss.experiments.tune.tune` returns for this question."""
        finals = [] if self.finals is None else self.finals._rows()
        again = [row["point"] for row in finals]
        rows = finals + [row for row in self._every_row() if row["point"] not in again]
        diverged = self._diverged() + ([] if self.finals is None else self.finals._diverged())
        diverged += [row for search in self.beyond for row in search._diverged()]
        best = ranked(rows)[0]["point"] if rows else None
        tried = [{key: value for key, value in row.items() if key != "point"} for row in ranked(rows)]
        return {
            "loss": self.question.loss,
            "study": self.study.study_name,
            "tried": tried,
            "diverged": diverged,
            "edges": [] if best is None else remarks(self.question.loss, self.grid, best),
        }

    def _ended(self, state: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(state,))

    def _every_row(self) -> list[TriedPoint]:
        """The points of the grid, and those beyond it."""
        return ranked(self._rows() + [row for search in self.beyond for row in search._rows()])

    def _rows(self) -> list[TriedPoint]:
        rows = []
        for trial in self._ended(TrialState.COMPLETE):
            accuracies, point = trial.user_attrs.get("accuracies"), self.point(trial.params)
            if accuracies is None:  # another program wrote it
                continue
            rows.append(
                {
                    "point": point,
                    "settings": self.question.settings(point).to_dict(),
                    "validation": Spread.of(accuracies).to_json(),
                    "seeds": len(accuracies),
                    "held_out": trial.user_attrs["held_out"],
                    "final": self.final,
                }
            )
        return ranked(rows)

    def _diverged(self) -> list[dict[str, Any]]:
        return [
            {
                "settings": self.question.settings(self.point(trial.params)).to_dict(),
                "reason": trial.user_attrs.get("diverged"),
            }
            for trial in self._ended(TrialState.PRUNED)
        ]


def _drawn_from(distributions: dict[str, BaseDistribution]) -> Callable[[Trial], Point]:
    def draw(trial: Trial) -> Point:
        """The point of a trial. Values that an earlier process drew for it stay."""
        try:
            return {name: suggest(trial, name, each) for name, each in distributions.items()}
        except ImportError as error:
            raise ValueError(f"the sampler needs a package that is not installed ({error})") from None

    return draw


def _open_study(
    name: str, asked: dict[str, Any], sampler: BaseSampler, storage: BaseStorage, locks: LockFolder
) -> Study:
    """Open a study by its name. A study of another search raises an error."""
    with locks.turn():
        study = optuna.create_study(
            storage=storage, study_name=name, sampler=sampler, direction="maximize", load_if_exists=True
        )
        asked = json.loads(json.dumps(asked))
        stored = study.user_attrs.get("question")
        if stored is None and not study.get_trials(deepcopy=False) and study.directions == [StudyDirection.MAXIMIZE]:
            study.set_user_attr("question", asked)
            return study
    if stored != asked:
        raise ValueError(
            f"the study {name!r} in the storage must be one of the same search; it was made for another one "
            f"({_differing(stored, asked)}), so choose another --study or --storage"
        )
    return study


def _differing(stored: Any, asked: dict[str, Any]) -> str:
    if not isinstance(stored, dict):
        return "by another program"
    names = sorted(name for name in asked.keys() | stored.keys() if asked.get(name) != stored.get(name))
    if "settings" in names and isinstance(stored.get("settings"), dict):
        names.remove("settings")
        ours, theirs = asked["settings"], stored["settings"]
        names += sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    return f"with another {' and '.join(names)}"


def plain_distributions(distributions: dict[str, BaseDistribution]) -> dict[str, Any]:
    """Distributions as data for JSON, by name."""
    return {name: json.loads(distribution_to_json(each)) for name, each in distributions.items()}
