"""The search for the settings of a loss with Optuna, by the accuracy on held-out examples. The test set plays no part.

Each loss has a study, in a storage that processes share. A trial is a point of the space, run with some seeds. Each
run has its folder, so nothing is trained twice, and an interrupted run continues.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import optuna
except ImportError:
    raise ValueError("tuning needs Optuna, which is not installed: pip install 'symloss[optuna]'") from None

from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.trial import Trial, TrialState

from symloss.experiments.questions import Question
from symloss.experiments.storages import open_storage, readable_storage_errors, sqlite_url
from symloss.experiments.studies import Method, StudiedQuestion
from symloss.experiments.trial_locks import Claim, LockFolder
from symloss.training.folder_names import run_path
from symloss.training.loop import Diverged
from symloss.training.results import Result, Spread, spread
from symloss.training.run_folder import Busy
from symloss.training.settings import Settings, with_seeds

__all__ = ["Method", "Progress", "Train", "tune"]

Train = Callable[[Settings, Path, str], Result]
"""A function that trains in a folder and returns the result. The text says which trial it is."""

POLL = 0.3
"""Seconds between two checks of other processes."""


@dataclass(frozen=True)
class Progress:
    """A trial that has ended."""

    loss: str
    """The loss as the user wrote it."""
    final: bool
    """Whether it is the trial of a finalist."""
    number: int
    """The number of the trial, from 1."""
    total: int
    """The number of trials of the study."""
    settings: Settings
    """The settings of the trial, with the first seed."""
    validation: Spread | None
    """The validation accuracy; None if the trial diverged."""
    reason: str | None
    """How the trial diverged; None if it did not."""
    best: float | None
    """The best validation accuracy of this study so far."""
    wider: bool = False
    """Whether the trial lies beyond the edge of the grid."""


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
    """Search for the answers to questions, together with all processes that run the same search.

    Args:
        questions: one for each loss.
        method: sampler, number of trials, finalists.
        runs: folder of all runs, and of the locks by which processes see each other.
        train: trains one run.
        storage: a URL for :func:`symloss.experiments.storages.open_storage`; by default a SQLite file in ``runs``.
        study: the beginning of the names of the studies; by default it is made from the question.
        on_trial: called after each trial of this process.
        on_wait: called when other processes train all trials that are left.

    Returns:
        A dictionary for each question: ``loss``, ``study``, ``tried`` (rows as in
        :mod:`symloss.experiments.ranking`, the best first), ``diverged`` (settings and the reason) and
        ``edges`` (sentences on best values that sit on the edge of their grid). It holds the trials of all processes.
    """
    locks = LockFolder(runs)
    url = storage or sqlite_url(runs / "tune.db")
    with _quiet(), readable_storage_errors(url):
        with locks.turn():
            opened = open_storage(url)
        searches = [StudiedQuestion.open(question, method, opened, locks, study) for question in questions]
        worker = _TrialLoop(runs, train, on_trial, on_wait)
        worker.finish(searches)
        for _ in range(method.widen if method.every_combination else 0):
            beyond = [search.begin_beyond(opened, locks) for search in searches]
            worker.finish([search for search in beyond if search is not None])
        for search in searches:
            search.begin_finals(method, opened, locks)
        worker.finish([search.finals for search in searches if search.finals is not None])
        return [search.answer() for search in searches]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the log of Optuna, and its warnings about experimental samplers."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


class _TrialLoop:
    """Trains one trial after another, in this process."""

    def __init__(self, runs: Path, train: Train, on_trial: Callable[[Progress], None], on_wait: Callable[[], None]):
        self.runs, self.train, self.on_trial, self.on_wait = runs, train, on_trial, on_wait

    def finish(self, searches: Sequence[StudiedQuestion]) -> None:
        """Train until every trial of every search is finished, by this process or another."""
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

    def _one_trial(self, searches: Sequence[StudiedQuestion]) -> bool:
        for search in searches:
            claim = search.claims.next()
            if claim is not None:
                with claim:
                    self._work(search, claim)
                return True
        return False

    def _work(self, search: StudiedQuestion, claim: Claim) -> None:
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
            accuracies = [result.judged for result in results]
            validation, reason = spread(accuracies), None
            assert validation is not None
            self._tell(search, trial, validation.mean, accuracies=accuracies, held_out=results[0].validation)
        total = search.claims.wanted
        self.on_trial(
            Progress(
                *(question.loss, search.final, trial.number + 1, total, settings, validation, reason, search.best()),
                wider=search.wider,
            )
        )

    def _patiently(self, settings: Settings, title: str) -> Result:
        """Train, or wait for another process that trains the same run, perhaps in another search."""
        while True:
            try:
                return self.train(settings, run_path(self.runs, settings), title)
            except Busy:
                time.sleep(POLL)

    def _tell(self, search: StudiedQuestion, trial: Trial, value: float | None, **attributes: Any) -> None:
        """Store the end of a trial, unless another process took it over and was faster."""
        state = TrialState.PRUNED if value is None else TrialState.COMPLETE
        with contextlib.suppress(UpdateFinishedTrialError):
            for name, attribute in attributes.items():
                trial.set_user_attr(name, attribute)
            search.study.tell(trial, value, state, skip_if_finished=True)
