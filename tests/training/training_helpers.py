"""What the tests of training share: small runs, their weights, and processes that can be killed.

Importing torch takes seconds, so most processes are forked from a server that has done it once.
"""

import dataclasses
import itertools
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from forked_processes import forked_processes
from torch import Tensor, nn

from symloss.experiments import resolve
from symloss.training import Settings, run as training_run, train

STEPS = 6
"""Batches of an epoch of ``small``."""


def small(loss: str = "alpha-mae", **given: Any) -> Settings:
    """A run of a tenth of a second; nothing of it depends on the presets of digits."""
    common = {"noise": "sym:0.4", "model": "training_helpers:drops", "epochs": 3, "batch": 64, "subset": 400}
    common |= {"lr": 0.05, "weight_decay": 1e-3}
    return dataclasses.replace(resolve("digits", loss, **common), **given)


def own_table(folder: Path) -> str:
    """The path of a table of one's own: two numbers and two classes."""
    rows = "".join(f"{number % 7},{number % 5},{'ab'[number % 2]}\n" for number in range(60))
    (folder / "mine.csv").write_text("x,y,label\n" + rows)
    return str(folder / "mine.csv")


def run(settings: Settings, folder: Path, **options: Any) -> dict[str, Any]:
    """The result, as its file holds it."""
    return train(settings, folder, accelerator="cpu", **options).to_json()


def drops(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A user's own model, which draws random numbers."""
    size = torch.Size(input_shape).numel()
    hidden = nn.Linear(size, 16), nn.BatchNorm1d(16), nn.Dropout()
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(16, num_classes))


def eleven(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return drops(input_shape, num_classes + 1)


class _At(nn.Module):
    """A model that does something to its scores at one step of training."""

    def __init__(self, shape: tuple[int, ...], num_classes: int, step: int, act: Callable[[Tensor], Tensor]):
        super().__init__()
        self.inner, self.steps, self.step, self.act = drops(shape, num_classes), 0, step, act

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.inner(inputs)
        self.steps += self.training
        return self.act(scores) if self.training and self.steps == self.step else scores


def breaks(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Its scores go wrong at the fifth step of the third epoch."""
    return _At(input_shape, num_classes, 2 * STEPS + 5, lambda scores: scores * torch.nan)


def breaks_late(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Its gradient goes wrong at the last step of the third epoch."""
    return _At(input_shape, num_classes, 3 * STEPS, lambda scores: scores + 0 * (scores - scores.detach()).sqrt())


def holds(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Stands still at the step that the environment names, until somebody kills it."""
    return _At(input_shape, num_classes, int(os.environ.get("HOLD", "0")), lambda scores: signal.pause() or scores)


def tensors(state: Any, name: str = "") -> dict[str, Tensor]:
    """Every tensor of a checkpoint."""
    if isinstance(state, Tensor):
        return {name: state}
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    return {key: value for part, inner in items for key, value in tensors(inner, f"{name}/{part}").items()}


def weights(folder: Path, name: str = "checkpoint.pt") -> dict[str, Tensor]:
    """Of the model and of the optimiser, and the sums of margins."""
    return tensors(torch.load(folder / name, weights_only=True))


def same_weights(one: Path, other: Path) -> bool:
    """Bit for bit."""
    first, second = weights(one), weights(other)
    assert any(name.startswith("/model/") for name in first)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"seconds": None} for row in rows]


def assert_same(folder: Path, whole: Path) -> None:
    """The weights, the margins, the metrics but for the time, and the names of the files."""
    assert same_weights(folder, whole)
    assert without_time(metrics(folder)) == without_time(metrics(whole))
    assert (folder / "margins.npz").read_bytes() == (whole / "margins.npz").read_bytes()
    first, second = ({name for name in os.listdir(each) if not name.startswith(".")} for each in (folder, whole))
    assert first == second


def start(work: Callable[..., None], *arguments: Any) -> multiprocessing.process.BaseProcess:
    """A process of its own; its exit code is as that of a command, -9 if it was killed."""
    process = forked_processes().Process(target=_alone, args=(work, arguments))
    process.start()
    return process


def _alone(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    training_run.SEVERAL_PROCESSES = "ddp_fork"
    work(*arguments)


def exit_code(work: Callable[..., None], *arguments: Any) -> int | None:
    return ended(start(work, *arguments))


def ended(process: multiprocessing.process.BaseProcess) -> int | None:
    """The exit code; a process that hangs is killed, and has another one than what was expected."""
    process.join(timeout=120)
    process.kill()
    process.join()
    return process.exitcode


def wait_until(reached: Callable[[], bool], process: multiprocessing.process.BaseProcess) -> None:
    deadline = time.monotonic() + 200
    while not reached():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Done(NamedTuple):
    code: int | None
    stdout: str
    stderr: str


def command(folder: Path, *arguments: str, limit: int | None = None) -> Done:
    """``symloss ARGUMENTS`` in a folder; with a limit no file can grow beyond so many bytes, as on a full disk."""
    return finished(start_command(folder, *arguments, limit=limit), folder)


def printed(folder: Path, *arguments: str) -> str:
    """What a command that succeeds writes to stdout."""
    done = command(folder, *arguments)
    assert done.code == 0, done.stderr
    return done.stdout


def start_command(
    folder: Path, *arguments: str, limit: int | None = None, name="", several="ddp_fork", **environment: str
) -> multiprocessing.process.BaseProcess:
    """``command`` without the wait for its end. Several in one folder have names.

    With "ddp_spawn" the processes that it starts for several devices import everything, as people have it.
    """
    return start(_command, folder, arguments, name, limit, several, environment)


def finished(process: multiprocessing.process.BaseProcess, folder: Path, name: str = "") -> Done:
    code = ended(process)
    return Done(code, *(output.read_text() for output in _outputs(folder, name)))


def _outputs(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f".{name}stdout", folder / f".{name}stderr"


def _command(
    folder: Path, arguments: tuple[str, ...], name: str, limit: int | None, several: str, environment: dict[str, str]
) -> None:
    from symloss.cli import main  # noqa: PLC0415

    # It must be heard even where whoever started the tests ignores it, as nohup does.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    training_run.SEVERAL_PROCESSES = several
    os.chdir(folder)
    os.environ |= environment
    for number, output in enumerate(_outputs(folder, name), start=1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["symloss", *arguments]
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    main()


def one_sentence(done: Done, *ingredients: object, started: bool = False) -> None:
    """Exit code 2, and one line that says what is wrong: after the one that says what is trained, if it was started."""
    assert (done.code, done.stdout) == (2, ""), done
    lines = done.stderr.splitlines()
    assert len(lines) == 1 + started, done.stderr
    assert lines[-1].startswith("symloss: ")
    assert not started or " epochs of " in lines[0]
    assert all(str(ingredient) in lines[-1] for ingredient in ingredients), (ingredients, lines[-1])


def cut_off(patch: pytest.MonkeyPatch, nth: int, *names: str, target: str = "", error: BaseException | None = None):
    """Functions of ``os`` raise an error, or kill the process, at their nth call: for a file of that name, if any."""
    calls = itertools.count(1)

    def ending(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if (not target or Path(arguments[-1]).name == target) and next(calls) == nth:
                if error is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise error
            return function(*arguments)

        return call

    for name in names:
        patch.setattr(os, name, ending(getattr(os, name)))


def killed_at(moment: str, nth: int, settings: Settings, folder: Path) -> None:
    """Train in this process until it kills itself: at the nth replacement of a file of that name."""
    cut_off(pytest.MonkeyPatch(), nth, "replace", target=moment)
    run(settings, folder)


# Validation accuracies of epochs, and which epoch is the best.

CURVES = {
    "a lucky epoch": (0.3, 0.9, 0.3, 0.4, 0.6, 0.7, 0.6, 0.5, 0.2),
    "rising": (0.1, 0.2, 0.3, 0.4, 0.5),
    "falling": (0.5, 0.4, 0.3, 0.2, 0.1),
    "level": (0.5, 0.5, 0.5, 0.5),
    "a hill": (0.1, 0.3, 0.6, 0.3, 0.1),
    "one epoch": (0.3,),
    "two epochs": (0.3, 0.4),
    "jumping": tuple(np.random.default_rng(0).uniform(0.2, 0.8, 25).round(3).tolist()),
}


def reference(accuracies: tuple[float, ...]) -> tuple[int, float]:
    """The first epoch with the largest mean over itself and as many neighbours on both sides, two at most."""
    reaches = [min(2, place, len(accuracies) - 1 - place) for place in range(len(accuracies))]
    means = [np.mean(accuracies[place - reach : place + reach + 1]) for place, reach in enumerate(reaches)]
    best = int(np.argmax(np.round(means, 12)))
    return best + 1, float(means[best])
