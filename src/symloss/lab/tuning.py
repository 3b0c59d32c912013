"""The search for the settings of a loss on Optuna, by accuracy on held-out examples; the test set plays no part.

One study for each loss, in a storage that processes share. A trial is a point of the space, run with some seeds in run
folders of their own, so that nothing is trained twice and whatever was cut off goes on where it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

try:
    import optuna
except ImportError:
    raise ValueError("tuning needs Optuna, which is not installed: pip install 'symloss[optuna]'") from None

from optuna.distributions import BaseDistribution, CategoricalDistribution, distribution_to_json
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from symloss.data import KNOWN
from symloss.data.names import VOUCHED
from symloss.lab.ranking import Row, ranked
from symloss.lab.samplers import GRID, InOrder, SeededByTrial, distribution, rounded, samplers, short_name, suggest
from symloss.lab.search_space import Point, Space
from symloss.lab.storages import open_storage, sqlite_url, storage_trouble_said
from symloss.lab.trial_locks import Claim, Claims, Place
from symloss.losses.spec import parse, write
from symloss.runs.folder_names import run_path
from symloss.runs.result import Result
from symloss.runs.run_folder import Busy
from symloss.runs.settings import Settings, with_seeds
from symloss.runs.summary import Spread, spread
from symloss.training.build import build_loss
from symloss.training.loop import Diverged

Train = Callable[[Settings, Path, str], Result]
"""Trains in a folder, and returns what :func:`symloss.training.train` does; the text says which trial it is."""

TRIALS = 20
"""Trials of each loss, of a sampler that could go on for ever."""
POLL = 0.3
"""Seconds between two looks at what other processes do."""
ELSEWHERE = ("lr", "weight_decay")
"""Dimensions that are no parameters of the loss."""


@dataclass(frozen=True)
class Question:
    """What a study answers: which point of the space does best with this loss, by the mean over so many seeds?"""

    loss: str
    """As the user wrote it."""
    base: Settings
    """What is not searched."""
    space: Space
    seeds: int = 1

    def __post_init__(self) -> None:
        if self.base.validation == 0:
            raise ValueError("validation must be above 0 to choose by it; got 0")
        for dimension in self.space.dimensions:
            for value in dimension.values:
                build_loss(self.settings({dimension.name: value}))

    def settings(self, point: Point) -> Settings:
        """Those of the base, with a point's values in them."""
        name, parameters = parse(self.base.loss)
        own = {key: value for key, value in point.items() if key not in ELSEWHERE}
        elsewhere = {key: value for key, value in point.items() if key in ELSEWHERE}
        return replace(self.base, loss=write(name, parameters | own), **elsewhere)

    def to_dict(self) -> dict[str, Any]:
        """Everything that decides the answer; what is searched is no part of the settings."""
        searched = {dimension.name for dimension in self.space.dimensions}
        name, parameters = parse(self.base.loss)
        fixed = {key: value for key, value in parameters.items() if key not in searched}
        settings = {key: value for key, value in self.base.to_dict().items() if key not in searched}
        return {"settings": settings | {"loss": write(name, fixed)}, "seeds": self.seeds}


@dataclass(frozen=True)
class Method:
    """How a search goes about it."""

    sampler: str = GRID
    trials: int | None = None
    """Of each loss, by all processes together; the grid has as many as there are combinations."""
    finalists: int = 0
    """How many of the best of each loss are run again, with more seeds."""
    final_seeds: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampler", short_name(self.sampler))
        if self.trials is not None and self.sampler == GRID:
            raise ValueError(
                f"--trials must be left out with the sampler grid, which tries every combination; got {self.trials}"
            )

    @property
    def every_combination(self) -> bool:
        return self.sampler == GRID


@dataclass(frozen=True)
class Progress:
    """A trial that came to its end."""

    loss: str
    final: bool
    number: int
    total: int
    settings: Settings
    validation: Spread | None
    """None if it diverged."""
    reason: str | None
    best: float | None
    """Of this study, so far."""


def held_out_labels(settings: Settings) -> str:
    """Which labels the choice is made by, for people."""
    known = settings.data in KNOWN
    if settings.noise == "clean" and settings.data in VOUCHED:
        return "true labels (no noise was added)"
    if settings.noise == "clean":
        return "labels as given" if known else "your labels as they are"
    if settings.clean_validation:
        return "true labels" if known else "your labels, before noise was added"
    return "noisy labels"


def tune(
    questions: Sequence[Question],
    method: Method,
    *,
    runs: Path,
    train: Train,
    storage: str | None = None,
    study: str | None = None,
    on_trial: Callable[[Progress], None] = lambda progress: None,
    on_wait: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Search for the answers, together with whoever runs the same search, and return what all of them found.

    Args:
        questions: one for each loss.
        method: sampler, number of trials, finalists.
        runs: folder of all runs, and of the locks by which processes see each other.
        train: trains one run.
        storage: a URL for :func:`symloss.lab.storages.open_storage`; by default a SQLite file in ``runs``.
        study: how the names of the studies begin; by default they are made of what decides the answer.
        on_trial: called after each trial of this process.
        on_wait: called when all that is left is being done by others.

    Returns:
        For each question ``loss``, ``study``, ``tried`` (rows as in :mod:`symloss.lab.ranking`, the best first) and
        ``diverged`` (settings and the reason).
    """
    place = Place(runs)
    url = storage or sqlite_url(runs / "tune.db")
    with _quiet(), storage_trouble_said(url):
        with place.turn():
            opened = open_storage(url)
        searches = [_Search.open(question, method, opened, place, study) for question in questions]
        worker = _Worker(runs, train, on_trial, on_wait)
        worker.finish(searches)
        for search in searches:
            search.begin_finals(method, opened, place)
        worker.finish([search.finals for search in searches if search.finals is not None])
        return [search.found() for search in searches]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Optuna's log tells of trials in its own way, and warns of samplers that may change."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


class _Search:
    """A question and its study."""

    def __init__(
        self,
        question: Question,
        study: Study,
        distributions: dict[str, BaseDistribution],
        claims: Claims,
        final: bool = False,
    ):
        self.question, self.study, self.distributions, self.claims = question, study, distributions, claims
        self.final = final
        self.finals: _Search | None = None

    @classmethod
    def open(
        cls, question: Question, method: Method, storage: BaseStorage, place: Place, prefix: str | None
    ) -> _Search:
        """The study of a question: a new one, or what there is of it."""
        every = method.every_combination
        distributions = {
            dimension.name: distribution(dimension, every_combination=every) for dimension in question.space.dimensions
        }
        asked = question.to_dict() | {"space": _plain(distributions)}
        name = _study_name(question, asked | {"sampler": method.sampler}) if prefix is None else ""
        if every:
            points = list(question.space.points())
            sampler: BaseSampler = InOrder(points)
            wanted = len(points)
        else:
            sampler = SeededByTrial(samplers()[method.sampler], question.base.seed)
            wanted = method.trials or TRIALS
        study = _open_study(name or f"{prefix}-{question.loss}", asked, sampler, storage, place)
        return cls(
            question, study, distributions, Claims(study, place, wanted, _drawn_from(distributions), exactly=every)
        )

    def begin_finals(self, method: Method, storage: BaseStorage, place: Place) -> None:
        """A study of the best points alone, with more seeds; whoever ends the search finds the same ones."""
        points = [row["point"] for row in self._rows()[: method.finalists]]
        if not points or method.final_seeds <= self.question.seeds:
            return
        question = replace(self.question, seeds=method.final_seeds)
        asked = question.to_dict() | {"points": points}
        values = {name: list(dict.fromkeys(point[name] for point in points)) for name in points[0]}
        distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(each) for name, each in values.items()
        }
        name = f"{self.study.study_name}-finals-{_key(asked)}"
        study = _open_study(name, asked, InOrder(points), storage, place)
        claims = Claims(study, place, len(points), _drawn_from(distributions), exactly=True)
        self.finals = _Search(question, study, distributions, claims, final=True)

    def point(self, drawn: Point) -> Point:
        """What is tried where this was drawn."""
        return {name: rounded(value, self.distributions[name]) for name, value in drawn.items()}

    def best(self) -> float | None:
        values = [trial.value for trial in self._ended(TrialState.COMPLETE) if trial.value is not None]
        return max(values, default=None)

    def found(self) -> dict[str, Any]:
        finals = [] if self.finals is None else self.finals._rows()
        again = [row["point"] for row in finals]
        rows = finals + [row for row in self._rows() if row["point"] not in again]
        diverged = self._diverged() + ([] if self.finals is None else self.finals._diverged())
        tried = [{key: value for key, value in row.items() if key != "point"} for row in ranked(rows)]
        return {
            "loss": self.question.loss,
            "study": self.study.study_name,
            "tried": tried,
            "diverged": diverged,
        }

    def _ended(self, state: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(state,))

    def _rows(self) -> list[Row]:
        rows = []
        for trial in self._ended(TrialState.COMPLETE):
            accuracies, point = trial.user_attrs.get("accuracies"), self.point(trial.params)
            if accuracies is None:  # somebody else's doing
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


class _Worker:
    """What one process does."""

    def __init__(self, runs: Path, train: Train, on_trial: Callable[[Progress], None], on_wait: Callable[[], None]):
        self.runs, self.train, self.on_trial, self.on_wait = runs, train, on_trial, on_wait

    def finish(self, searches: Sequence[_Search]) -> None:
        """Work until every trial of every search is finished, by this process or another."""
        waiting = False
        while True:
            if self._one_trial(searches):
                waiting = False
            elif not any(search.claims.others_at_work() for search in searches):
                return
            else:
                if not waiting:
                    self.on_wait()
                waiting = True
                time.sleep(POLL)

    def _one_trial(self, searches: Sequence[_Search]) -> bool:
        for search in searches:
            claim = search.claims.next()
            if claim is not None:
                with claim:
                    self._work(search, claim)
                return True
        return False

    def _work(self, search: _Search, claim: Claim) -> None:
        trial, question = claim.trial, search.question
        settings = question.settings(search.point(claim.point))
        best = search.best()
        title = f"{trial.number + 1}/{search.claims.wanted}{'' if best is None else f', best {100 * best:.2f} %'}: "
        try:
            results = [self._patiently(each, title) for each in with_seeds(settings, question.seeds)]
        except Diverged as error:
            self._tell(search, trial, None, diverged=str(error))
            reason: str | None = str(error)
            validation = None
        else:
            accuracies = [result.last.validation_accuracy for result in results]
            validation, reason = spread(accuracies), None
            assert validation is not None
            self._tell(search, trial, validation.mean, accuracies=accuracies, held_out=results[0].validation)
        total = search.claims.wanted
        self.on_trial(
            Progress(question.loss, search.final, trial.number + 1, total, settings, validation, reason, search.best())
        )

    def _patiently(self, settings: Settings, title: str) -> Result:
        """Train, or wait for another process that trains the same run (of another search, it may be)."""
        while True:
            try:
                return self.train(settings, run_path(self.runs, settings), title)
            except Busy:
                time.sleep(POLL)

    def _tell(self, search: _Search, trial: Trial, value: float | None, **attributes: Any) -> None:
        """Unless another process took us for dead and was faster."""
        state = TrialState.PRUNED if value is None else TrialState.COMPLETE
        with contextlib.suppress(UpdateFinishedTrialError):
            for name, attribute in attributes.items():
                trial.set_user_attr(name, attribute)
            search.study.tell(trial, value, state, skip_if_finished=True)


def _drawn_from(distributions: dict[str, BaseDistribution]) -> Callable[[Trial], Point]:
    def draw(trial: Trial) -> Point:
        """What an earlier process has already drawn for the trial stays."""
        try:
            return {name: suggest(trial, name, each) for name, each in distributions.items()}
        except ImportError as error:
            raise ValueError(f"the sampler needs a package that is not installed ({error})") from None

    return draw


def _open_study(name: str, asked: dict[str, Any], sampler: BaseSampler, storage: BaseStorage, place: Place) -> Study:
    """A study by its name, unless it is there and was made for something else."""
    with place.turn():
        study = optuna.create_study(
            storage=storage, study_name=name, sampler=sampler, direction="maximize", load_if_exists=True
        )
        asked = json.loads(json.dumps(asked))
        found = study.user_attrs.get("question")
        if found is None and not study.get_trials(deepcopy=False) and study.directions == [StudyDirection.MAXIMIZE]:
            study.set_user_attr("question", asked)
            return study
    if found != asked:
        raise ValueError(
            f"the study {name!r} in the storage must be one of the same search; it was made for another one "
            f"({_differing(found, asked)}), so choose another --study or --storage"
        )
    return study


def _differing(found: Any, asked: dict[str, Any]) -> str:
    if not isinstance(found, dict):
        return "by another program"
    names = sorted(name for name in asked.keys() | found.keys() if asked.get(name) != found.get(name))
    if "settings" in names and isinstance(found.get("settings"), dict):
        names.remove("settings")
        ours, theirs = asked["settings"], found["settings"]
        names += sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    return f"with another {' and '.join(names)}"


def _study_name(question: Question, asked: dict[str, Any]) -> str:
    """One that people can read, and that no two searches share."""
    base = question.base
    return f"{Path(base.data).stem}-{base.noise}-{question.loss}-{_key(asked)}"


def _key(asked: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]


def _plain(distributions: dict[str, BaseDistribution]) -> dict[str, Any]:
    return {name: json.loads(distribution_to_json(each)) for name, each in distributions.items()}
