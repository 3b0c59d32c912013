"""What a command says before it trains: that it opens the data, what it is about to do, and how long that takes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symloss.cli.output import say

if TYPE_CHECKING:
    from symloss.data.dataset import DataSet
    from symloss.training.run_folder import RunFolder
    from symloss.training.settings import Settings

PATIENCE = 2.0
"""Seconds after which a command that still opens its data says so."""


@contextlib.contextmanager
def opening(data: str) -> Iterator[None]:
    """While data is opened: say so if that takes longer than a moment."""
    word = threading.Timer(PATIENCE, say, [f"opening {data}"], {"err": True})
    word.daemon = True
    word.start()
    try:
        yield
    finally:
        word.cancel()


class Announcement:
    """Says in one line what will be trained, and how long it takes about: once, when the first run is about to start.

    A run that is refused is refused without it. Finished runs do not count.

    Args:
        runs: the settings and the folder of each.
        data: the data set of all of them.
    """

    def __init__(self, runs: Sequence[tuple[Settings, Path]], data: DataSet):
        self.runs, self.data, self.told = runs, data, False

    def __call__(self) -> None:
        if not self.told:
            self.told = True
            _announce(self.runs, self.data)


def _announce(runs: Sequence[tuple[Settings, Path]], data: DataSet) -> None:
    from symloss.training.models import is_built_in
    from symloss.training.run_folder import RunFolder

    todo = {settings: RunFolder(folder) for settings, folder in runs if RunFolder(folder).result() is None}
    if not todo:
        return
    settings = next(iter(todo))
    shape = " x ".join(map(str, data.input_shape))
    examples = settings.subset or len(data.train)
    number = f"{len(todo)} runs" if len(runs) > 1 else settings.loss
    what = f"{settings.data}, {number}: {settings.model}, {settings.epochs} epochs of {examples} examples ({shape})"
    if is_built_in(settings.model):
        say(f"{what}: about {_time_left(todo, data)} here (a few steps were timed)", err=True)
    else:
        say(f"{what}: how long is not known, as the model is your own code", err=True)


def _time_left(todo: dict[Settings, RunFolder], data: DataSet) -> str:
    from symloss.experiments.cost import quick_estimates
    from symloss.experiments.report import duration

    seconds = quick_estimates(todo, data)
    left = (1 - len(folder.metrics()) / settings.epochs for settings, folder in todo.items())
    return duration(sum(each * share for each, share in zip(seconds, left, strict=True)))
