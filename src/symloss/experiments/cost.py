"""Estimate how long runs take, by timing a few steps of each model on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from symloss.data.augment import fit
from symloss.data.dataset import DataSet, ImageFiles
from symloss.data.opening import open_data
from symloss.data.source import warn
from symloss.encoders.pictures import NotAnImage, picture
from symloss.experiments.run import Work
from symloss.training.settings import Settings
from symloss.training.task import build_loss, build_model, build_optimizer

STEPS = 3  # the number of steps that are timed
PIXELS = 128 * 3 * 32 * 32  # the most numbers in a batch that is timed. The cost of a larger batch is extrapolated.
WRITING = 0.01  # the least time to write a checkpoint, in seconds
DECODED = 8  # the number of image files that are decoded to see how long it takes
MINOR = "noise", "counts", "loss", "scores", "penalty", "seed", "noise_seed", "lr", "weight_decay", "momentum", "clip"
FORWARD = 1 / 3  # the cost of an evaluation as a share of the cost of a training step, for the same examples


def expected_seconds(works: Sequence[Work], threads: int, root: Path | None) -> dict[str, float]:
    """Return the expected seconds of runs by their names. Similar runs that are finished set the time.

    Each process has this many threads; ``root`` is the folder of data sets.
    """
    alike = {work.name: _alike(work.settings) for work in works}
    seconds = {alike[work.name]: result.seconds for work in works if (result := work.result()) is not None}
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for settings in alike.values():
            if settings not in seconds:
                data = open_data(settings.source, root=root, on_bad=warn)
                (seconds[settings],) = quick_estimates([settings], data)
    finally:
        torch.set_num_threads(usual)
    return {name: seconds[settings] for name, settings in alike.items()}


def quick_estimates(every: Iterable[Settings], data: DataSet) -> list[float]:
    """Return the expected seconds of runs on data that is open. A few steps of each model are timed: a second at most.

    Models must be built in, as the user's own code is run by its run alone.
    """
    alike = [_alike(settings) for settings in every]
    measured = {each: each.epochs * (_epoch_seconds(each, data) + WRITING) for each in dict.fromkeys(alike)}
    seconds = [measured[each] for each in alike]
    # Image files are decoded once for all runs, if their pixels fit into memory.
    return [seconds[0] + _decoding_seconds(data) * len(data.train), *seconds[1:]] if seconds else []


def _decoding_seconds(data: DataSet) -> float:
    """Return seconds to decode an image file. In later epochs its pixels are in memory, unless they are too many."""
    if not isinstance(data.train.inputs, ImageFiles):
        return 0.0
    paths = data.train.inputs.paths
    started = time.perf_counter()
    for path in paths[:: max(1, len(paths) // DECODED)][:DECODED]:
        with contextlib.suppress(NotAnImage):  # the run says so
            fit(picture(path), data.input_shape[1])
    return (time.perf_counter() - started) / min(DECODED, len(paths))


def _alike(settings: Settings) -> Settings:
    """Return the settings with defaults for all that hardly change the cost, such as the loss."""
    usual = Settings().to_dict()
    return dataclasses.replace(settings, **{name: usual[name] for name in MINOR})


def _epoch_seconds(settings: Settings, data: DataSet) -> float:
    examples = settings.subset or len(data.train)
    held = round(settings.validation * examples)
    looked_at = held + (0 if data.test is None else len(data.test))
    steps = math.ceil((examples - held) / settings.batch)
    return _step_seconds(settings, data) * (steps + FORWARD * looked_at / settings.batch)


def _step_seconds(settings: Settings, data: DataSet) -> float:
    """Return seconds of the fastest of a few steps on random inputs."""
    shape, classes = data.input_shape, len(data.class_names)
    batch = max(2, min(settings.batch, PIXELS // math.prod(shape)))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    random = torch.Generator().manual_seed(0)
    model = build_model(settings, shape, classes).train().to(device)
    inputs = torch.randn(batch, *shape, generator=random).to(device)
    labels = torch.randint(0, classes, (batch,), generator=random).to(device)
    loss, optimizer = build_loss(settings).to(device), build_optimizer(settings, model.parameters())
    seconds = []
    with torch.random.fork_rng(devices=[]):  # a model may draw random numbers
        for _ in range(STEPS):
            started = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            value = loss(model(inputs), labels)
            value.backward()
            optimizer.step()
            float(value.detach())  # wait for a GPU
            seconds.append(time.perf_counter() - started)
    return min(seconds) * settings.batch / batch
