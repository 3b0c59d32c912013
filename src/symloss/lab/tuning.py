"""The search for the settings of a loss on Optuna, by accuracy on held-out examples; the test set plays no part.

One study for each loss, in a storage that processes share. A trial is a point of the space, run with some seeds in run
folders of their own, so that nothing is trained twice and whatever was cut off goes on where it was.
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

from symloss.lab.questions import Question
from symloss.lab.storages import open_storage, readable_storage_errors, sqlite_url
from symloss.lab.studies import Method, StudiedQuestion
from symloss.lab.trial_locks import Claim, LockFolder
from symloss.runs.folder_names import run_path
from symloss.runs.result import Result, Spread, spread
from symloss.runs.run_folder import Busy
from symloss.runs.settings import Settings, with_seeds
from symloss.training.loop import Diverged

__all__ = ["Method", "Progress", "Train", "tune"]

Train = Callable[[Settings, Path, str], Result]
"""Trains in a folder, and returns what :func:`symloss.training.train` does; the text says which trial it is."""

POLL = 0.3
"""Seconds between two looks at what other processes do."""


@dataclass(frozen=True)
class Progress:
    """A trial that came to its end."""

    loss: str
    """As the user wrote it."""
    final: bool
    """Whether it is a trial of a finalist."""
    number: int
    """Of the trial, from 1."""
    total: int
    """Trials of the study."""
    settings: Settings
    """Of the trial, with the first seed."""
    validation: Spread | None
    """None if it diverged."""
    reason: str | None
    """How it diverged; None if it did not."""
    best: float | None
    """Of this study, so far."""


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
    locks = LockFolder(runs)
    url = storage or sqlite_url(runs / "tune.db")
    with _quiet(), readable_storage_errors(url):
        with locks.turn():
            opened = open_storage(url)
        searches = [StudiedQuestion.open(question, method, opened, locks, study) for question in questions]
        worker = _TrialLoop(runs, train, on_trial, on_wait)
        worker.finish(searches)
        for search in searches:
            search.begin_finals(method, opened, locks)
        worker.finish([search.finals for search in searches if search.finals is not None])
        return [search.answer() for search in searches]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the log of Optuna, and its warnings of samplers that may change."""
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

    def _tell(self, search: StudiedQuestion, trial: Trial, value: float | None, **attributes: Any) -> None:
        """Write the end of a trial down, unless another process took it over and was faster."""
        state = TrialState.PRUNED if value is None else TrialState.COMPLETE
        with contextlib.suppress(UpdateFinishedTrialError):
            for name, attribute in attributes.items():
                trial.set_user_attr(name, attribute)
            search.study.tell(trial, value, state, skip_if_finished=True)
