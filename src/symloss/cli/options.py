"""Options that several commands share, each with its default and its help."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

OFF = "off"
"""The default of a switch, as help shows it."""
BY_PROTOCOL = "by data and loss"
"""The default of a setting that the protocol decides, as help shows it."""


def _option(type_: Any, default: Any, help: str, *names: str, shown: str | None = None, **more: Any) -> tuple[Any, Any]:
    """An option and its default. Help shows ``shown`` instead of the default, if it is not None."""
    default_in_help = shown or (OFF if default is False else True)
    return Annotated[type_, typer.Option(*names, help=help, show_default=default_in_help, **more)], default


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="Where data sets are kept.", envvar="SYMLOSS_DATA", show_default="~/.cache/symloss/data"
    ),
]
DATA = "digits, mnist, fashion-mnist, cifar10, cifar100, webvision-mini; or a folder, CSV, Parquet or npz of your own."

WHAT = {
    "data": _option(str, "digits", DATA, "--data", "-d"),
    "noise": _option(
        str, "clean", "Noise to add: clean, sym:0.6, asym:0.4, pair:0.3, instance:0.4, human:worst ...", "--noise", "-n"
    ),
    "counts": _option(str, "exact", "How many labels are flipped: exact, floor (published tables) or sampled."),
    "label": _option(str, "label", "Column of the labels, in a table."),
    "image": _option(str | None, None, "Column of the image paths, in a table.", shown="image, if there is one"),
    "test": _option(
        str | None, None, "Clean data of your own to test on.", shown="what comes with the data, if anything"
    ),
    "drop": _option(str | None, None, "Columns of a table to leave out, by commas.", shown="those that look like ids"),
    "categorical": _option(str | None, None, "Columns of numbers that are categories, by commas.", shown="text"),
    "keep": _option(str | None, None, "Columns to use although they look like ids, by commas.", shown="none"),
    "size": _option(
        int | None,
        None,
        "Pixels of a side that image files are brought to.",
        min=8,
        shown="as they are, or the median's, at most 224",
    ),
    "data_dir": (DataDir, None),
    "skip_bad": _option(
        bool, False, "Leave out files that are no images, empty class folders and rows without a label.", "--skip-bad"
    ),
    "subset": _option(int | None, None, "Train on so many examples only: a reduced protocol.", shown="all"),
    "validation": _option(float | None, None, "Share of the training data to hold out.", shown="0.1"),
    "clean_validation": _option(bool, False, "Hold out with true labels, not noisy ones.", "--clean-validation"),
    "seed": _option(int, 0, "Of the noise, the split, the weights and the order.", min=0),
}
HOW = {
    "model": _option(
        str | None,
        None,
        "cnn4, cnn8, lenet5, resnet18, resnet34, resnet50, mlp, timm:NAME, timm:NAME:pretrained, or module:function.",
        shown=BY_PROTOCOL,
    ),
    "epochs": _option(int | None, None, "Passes over the training data.", min=1, shown=BY_PROTOCOL),
    "batch": _option(int | None, None, "Examples of a step, over all devices.", min=1, shown=BY_PROTOCOL),
    "optimizer": _option(str | None, None, "sgd, nesterov, adam or adamw.", shown=BY_PROTOCOL),
    "lr": _option(float | None, None, "Learning rate.", shown=BY_PROTOCOL),
    "momentum": _option(float | None, None, "Of SGD.", shown=BY_PROTOCOL),
    "weight_decay": _option(float | None, None, "Weight decay.", shown=BY_PROTOCOL),
    "penalty": _option(float | None, None, "Weight of the sum of absolute parameters (ANL).", shown=BY_PROTOCOL),
    "schedule": _option(
        str | None, None, "constant, cosine, step:190, exponential:0.1/10000, epochs:0.97.", shown=BY_PROTOCOL
    ),
    "scores": _option(
        str | None, None, "What is done to scores: loss (what the loss says), none, l2, batch-norm.", shown=BY_PROTOCOL
    ),
    "clip": _option(float | None, None, "Largest norm of the gradient; 0 for none.", shown=BY_PROTOCOL),
    "augment": _option(
        str,
        "all",
        "Random changes to training images: all (the data set's), crop (never flip), none (--no-augment).",
        "--augment",
    ),
    "precision": _option(str, "32", "32 or bf16-mixed."),
    "channels_last": _option(bool, False, "Memory layout of images.", "--channels-last"),
    "compile": _option(bool, False, "torch.compile the model.", "--compile"),
}
WHERE = {
    "accelerator": _option(str, "auto", "auto, cpu, cuda or mps."),
    "devices": _option(int, 1, "Processes on this machine, one for each device.", min=1),
    "nodes": _option(int, 1, "Machines; start the same command on each.", min=1),
    "workers": _option(int, 0, "Processes that decode images which do not fit into memory.", min=0),
    "log": _option(str | None, None, "tensorboard: write event files into the run's folder too.", shown="none"),
    "runs": _option(Path, Path("runs"), "Folder of all runs.", "--runs"),
}
SETTINGS = (*WHAT, *HOW)


class Trains(TyperCommand):
    """A command with ``--augment``. Without a value it means all, and ``--no-augment`` means none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after :func:`spelled_out`."""
        return super().parse_args(ctx, spelled_out(args))


def spelled_out(arguments: list[str]) -> list[str]:
    """Replace ``--augment`` without a value, and ``--no-augment``, by ``--augment=...``.

    >>> spelled_out(["--augment", "--epochs", "3", "--no-augment"])
    ['--augment=all', '--epochs', '3', '--augment=none']
    >>> spelled_out(["--augment", "crop"])
    ['--augment', 'crop']
    """
    replaced = []
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=True):
        alone = argument == "--augment" and following.startswith("-")
        replaced.append("--augment=all" if alone else "--augment=none" if argument == "--no-augment" else argument)
    return replaced


Command = Callable[..., None]


def shared(*groups: dict[str, tuple[Any, Any]], **defaults: Any) -> Callable[[Command], Command]:
    """A decorator that adds options to a command. The command gets them as a dictionary ``options``.

    Args:
        groups: options by name.
        defaults: other defaults than those of the groups.
    """
    options = {name: option for group in groups for name, option in group.items()}

    def wrap(command: Command) -> Command:
        declared = inspect.signature(command, eval_str=True).parameters
        parameters = [parameter for name, parameter in declared.items() if name != "options"]
        kind = inspect.Parameter.KEYWORD_ONLY
        for name, (annotation, default) in options.items():
            if name not in declared:
                value = defaults.get(name, default)
                parameters.append(inspect.Parameter(name, kind, default=value, annotation=annotation))
        parameters = [parameter.replace(kind=kind) for parameter in parameters]

        @functools.wraps(command)
        def run(**passed: Any) -> None:
            rest = {name: passed.pop(name) for name in options if name not in declared}
            command(**passed, options=rest)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return wrap
