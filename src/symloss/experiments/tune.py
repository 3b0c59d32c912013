"""Search for the settings of a loss with Optuna, by the accuracy on held-out examples. The test set plays no part.

Each loss has a study, in a storage that processes share. A trial is a point of the space, run with some seeds. Each
run has its folder, so nothing is trained twice, and an interrupted run continues.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symloss import extras

with extras.needed_by("Tuning"):
    import optuna

from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, Trial, TrialState

from symloss.experiments.spaces import Question
from symloss.experiments.storage import LockFolder, open_storage, readable_storage_errors, sqlite_url
from symloss.experiments.studies import Method as Method, Search as Search  # noqa: PLC0414 (for the command)
from symloss.training.loop import Diverged
from symloss.training.results import Result, Spread
from symloss.training.run_folder import Busy, run_path
from symloss.training.settings import Settings, with_seeds

Train = Callable[[Settings, Path, str], Result]
"""A function that trains in a folder and returns the result. The text says which trial it is."""

POLL = 0.3  # seconds between two checks of other processes


def tune(
    questions: Sequence[Question],
    method: Method,
    *,
    runs: Path,
    train: Train,
    storage: str | None = None,
    study: str | None = None,
    on_trial: Callable[[Search, FrozenTrial], None] = lambda search, trial: None,
    on_wait: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Search for the answers to questions, together with all processes that run the same search.

    ``runs`` is the folder of all runs and of the locks by which processes see each other. ``study`` begins the names of
    the studies. ``on_trial`` is called with each trial that this process ends, ``on_wait`` when other processes train
    all trials that are left.

    Returns:
        A dictionary for each question, with the trials of all processes: ``loss``, ``study``, ``tried`` (the best
        first), ``diverged`` (settings and reason) and ``edges`` (sentences on best values at the edge of their grid).
    """
    locks = LockFolder(runs)
    url = storage or sqlite_url(runs / "tune.db")
    with _quiet(), readable_storage_errors(url):
        with locks.turn():
            opened = open_storage(url)
        searches = [Search(each, method, opened, locks, study and f"{study}-{each.loss}") for each in questions]
        loop = _TrialLoop(runs, train, on_trial, on_wait)
        loop.finish(searches)
        for _ in range(method.widen if method.every_combination else 0):
            loop.finish([search.beyond() for search in searches])
        loop.finish([search.finals() for search in searches])
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


@dataclass
class _TrialLoop:
    """Trains one trial after another, in this process."""

    runs: Path
    train: Train
    on_trial: Callable[[Search, FrozenTrial], None]
    on_wait: Callable[[], None]

    def finish(self, searches: Iterable[Search | None]) -> None:
        """Train until every trial of every search is finished, by this process or another."""
        open_searches = [search for search in searches if search is not None]
        waiting = False
        while not all(search.claims.are_finished() for search in open_searches):
            claimed = next(((each, claim) for each in open_searches if (claim := each.claims.next())), None)
            if claimed is not None:
                search, claim = claimed
                with claim as trial:
                    self._work(search, search.draw(trial))
            else:
                if not waiting:
                    self.on_wait()
                time.sleep(POLL)
            waiting = claimed is None

    def _work(self, search: Search, trial: Trial) -> None:
        best = search.best()
        title = f"{trial.number + 1}/{search.claims.wanted}{'' if best is None else f', best {100 * best:.2f} %'}: "
        told: dict[str, Any]
        try:
            seeds = with_seeds(search.settings(trial), search.question.seeds)
            results = [self._patiently(each, title) for each in seeds]
        except Diverged as error:
            told = {"diverged": str(error)}
        else:
            told = {"accuracies": [result.judged for result in results], "held_out": results[0].validation}
        # Store the end of the trial, unless another process took it over and was faster.
        with contextlib.suppress(UpdateFinishedTrialError):
            for name, value in told.items():
                trial.set_user_attr(name, value)
            mean = Spread.of(told["accuracies"]).mean if "accuracies" in told else None
            state = TrialState.PRUNED if mean is None else TrialState.COMPLETE
            self.on_trial(search, search.study.tell(trial, mean, state, skip_if_finished=True))

    def _patiently(self, settings: Settings, title: str) -> Result:
        """Train, or wait for another process that trains the same run, perhaps in another search."""
        while True:
            try:
                return self.train(settings, run_path(self.runs, settings), title)
            except Busy:
                time.sleep(POLL)
