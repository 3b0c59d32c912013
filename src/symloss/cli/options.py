"""Options that several commands share, and ``--settings``, which sets those that few people need."""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from symloss import checks
from symloss.training.settings import Settings

DATA, NOISE, TRAINING, HARDWARE, OUTPUT = PANELS = ("Data", "Noise experiment", "Training", "Hardware", "Output")
"""The panels of ``--help``."""


class Option(NamedTuple):
    """An option of one or several commands, also a key of ``--settings``."""

    kind: type
    default: Any
    help: str
    panel: str
    short: str | None = None  # the name with one letter
    shown: str | None = None  # what help shows instead of the default
    least: float | None = None

    def annotation(self, name: str) -> Any:
        """Return the type for typer, with names and help."""
        kind = self.kind if self.default is not None else self.kind | None
        names = [f"--{name.replace('_', '-')}", *([self.short] if self.short else [])]
        if self.kind is bool:
            return Annotated[kind, flag(self.help, *names, panel=self.panel)]
        shown = self.shown or self.default is not None
        return Annotated[kind, option(self.help, *names, panel=self.panel, shown=shown, min=self.least)]

    def checked(self, name: str, value: Any, where: str) -> Any:
        """Return a value of ``--settings`` as this option's type. Raise ValueError for any other."""
        wrong = ValueError(f"`{name}` in {where} must be {WORDS[self.kind]}; got {checks.brief(value)}")
        if isinstance(value, bool) != (self.kind is bool) or isinstance(value, (dict, list)):
            raise wrong
        try:
            found = self.kind(value)
        except ValueError:
            raise wrong from None
        if self.kind is int and found != value:
            raise wrong
        if self.least is not None and found < self.least:
            raise ValueError(f"`{name}` must be at least {self.least}; got {value}")
        return found


WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}


def option(help: str, *names: str, panel: str = OUTPUT, shown: bool | str = True, **more: Any) -> Any:
    """Return an option that takes a value. ``shown`` is what help shows as its default."""
    return typer.Option(*names, help=help, show_default=shown, rich_help_panel=panel, **more)


def flag(help: str, *names: str, panel: str = OUTPUT) -> Any:
    """Return a switch, which is off by default and takes no value."""
    return option(help, *names, panel=panel, shown=False, metavar="")


def argument(help: str, **more: Any) -> Any:
    """Return an argument of a command."""
    return typer.Argument(help=help, show_default=False, **more)


COMPOSED = "gce:q=0.5, 'symmetrize(focal:gamma=2)' or your own module:name"
DEFAULT_LOSSES = "ce,gce,sgce,alpha-mae"
DOWNLOADS = "~/.cache/symloss/data"
MODELS = "cnn4, cnn8, lenet5, resnet18, resnet34, resnet50, mlp, timm:NAME[:pretrained]"
NOISES = "sym:0.6, asym:0.4, pair:0.3, instance:0.4, human:worst"
SETS = "digits, mnist, fashion-mnist, cifar10, cifar100, webvision-mini"


def _by_protocol(kind: type, help: str, least: float | None = None) -> Option:
    return Option(kind, None, help, TRAINING, shown="by data and loss", least=least)


OPTIONS = {
    "data": Option(str, "digits", f"{SETS}; or your folder, CSV, Parquet or .npz file.", DATA, "-d"),
    "label": Option(str, "label", "Label column of a table.", DATA),
    "image": Option(str, None, "Image path column of a table.", DATA, shown="image, if there is one"),
    "test": Option(str, None, "Clean test data.", DATA, shown="what comes with the data"),
    "drop": Option(str, None, "Table columns to ignore, separated by commas.", DATA, shown="those that look like ids"),
    "categorical": Option(str, None, "Numeric table columns to treat as categories, separated by commas.", DATA),
    "keep": Option(str, None, "Table columns to use although they look like ids, separated by commas.", DATA),
    "encoder": Option(
        str,
        "auto",
        "Encoder of images or free text: auto, none, efficientnet-lite0, timm:NAME, minilm, tfidf or "
        "sentence-transformers:NAME.",
        DATA,
    ),
    "skip_bad": Option(bool, False, "Skip unreadable images, empty class folders and unlabelled rows.", DATA),
    "size": Option(int, None, "Resize images to N x N pixels.", DATA, shown="the median size, at most 224", least=8),
    "data_dir": Option(Path, None, "Folder of published data sets (or set SYMLOSS_DATA).", DATA, shown=DOWNLOADS),
    "noise": Option(str, "clean", f"Label noise to add: {NOISES} ...", NOISE, "-n"),
    "counts": Option(str, "exact", "Number of flipped labels: exact, floor (published tables) or sampled.", NOISE),
    "subset": Option(int, None, "Train on a random subset of N examples.", NOISE, shown="all"),
    "validation": Option(float, None, "Fraction of the training data to hold out.", NOISE, shown="0.1"),
    "clean_validation": Option(bool, False, "Use true labels in the validation set.", NOISE),
    "loss": Option(str, "alpha-mae", f"Loss, such as {COMPOSED}.", TRAINING, "-l"),
    "losses": Option(str, DEFAULT_LOSSES, f"Losses, separated by commas; such as {COMPOSED}.", TRAINING, "-l"),
    "model": _by_protocol(str, f"{MODELS}, or module:function."),
    "epochs": _by_protocol(int, "Number of epochs.", least=1),
    "batch": _by_protocol(int, "Global batch size.", least=1),
    "optimizer": _by_protocol(str, "sgd, nesterov, adam or adamw."),
    "lr": _by_protocol(float, "Learning rate."),
    "momentum": _by_protocol(float, "Momentum of SGD."),
    "weight_decay": _by_protocol(float, "Weight decay."),
    "penalty": _by_protocol(float, "L1 penalty on the parameters (ANL)."),
    "schedule": _by_protocol(str, "constant, cosine, step:190, exponential:0.1/10000 or epochs:0.97."),
    "scores": _by_protocol(str, "Normalize logits: loss (as the loss requires), none, l2 or batch-norm."),
    "clip": _by_protocol(float, "Maximum gradient norm; 0 for no limit."),
    "augment": Option(str, "all", "Image augmentation: all, crop (never flip) or none.", TRAINING),
    "precision": Option(str, "32", "32 or bf16-mixed.", TRAINING),
    "channels_last": Option(bool, False, "Store images with channels last.", TRAINING),
    "compile": Option(bool, False, "Compile the model with torch.compile.", TRAINING),
    "seed": Option(int, 0, "Random seed for noise, split, initial weights and shuffling.", TRAINING, least=0),
    "seeds": Option(int, 1, "Number of runs per configuration, with different seeds.", TRAINING, least=1),
    "budget": Option(float, None, "Seconds on one core.", TRAINING, shown="45, more for large data", least=0),
    "simple": Option(bool, False, "Use a single learner instead of an ensemble.", TRAINING),
    "sampler": Option(str, "grid", "grid, or an Optuna sampler: random, tpe, cmaes, qmc, gp, nsgaii ...", TRAINING),
    "trials": Option(int, None, "Trials per loss, for samplers other than grid.", TRAINING, shown="20", least=1),
    "finalists": Option(int, 4, "Number of best trials of each loss to repeat with final_seeds.", TRAINING, least=0),
    "final_seeds": Option(int, 0, "Number of runs of each finalist.", TRAINING, least=0),
    "accelerator": Option(str, "auto", "auto, cpu, cuda or mps.", HARDWARE),
    "devices": Option(int, 1, "Number of devices on this machine.", HARDWARE, least=1),
    "nodes": Option(int, 1, "Number of machines; run the same command on each.", HARDWARE, least=1),
    "workers": Option(int, 0, "Worker processes that decode images that do not fit in memory.", HARDWARE, least=0),
    "jobs": Option(int, 1, "Worker processes (does not change the result).", HARDWARE, "-j", least=1),
    "ray": Option(str, None, "Address of a Ray cluster, or auto.", HARDWARE, shown="this machine"),
    "cpus": Option(float, 1.0, "CPU cores per run, on Ray.", HARDWARE, least=0),
    "gpus": Option(float, 0.0, "GPUs per run, on Ray.", HARDWARE, least=0),
    "retries": Option(int, 3, "How often to retry a run whose machine was lost, on Ray.", HARDWARE, least=0),
    "runs": Option(Path, Path("runs"), "Folder of all runs.", OUTPUT),
    "log": Option(str, None, "tensorboard: also write event files into the run folder.", OUTPUT, shown="none"),
    "storage": Option(str, None, "URL of the Optuna storage.", OUTPUT, shown="a SQLite file, RUNS/tune.db"),
    "study": Option(str, None, "Prefix of the Optuna study names.", OUTPUT, shown="made from the search"),
}
"""Every shared option by its name, which is also its key in a file for ``--settings``."""

SOURCE = ("data", "label", "test", "skip_bad")
"""The options of every command that learns from data."""
UNASKED = ("loss", "noise_seed", "fingerprint", "profile")
RUN = tuple(name for name in (*Settings.__dataclass_fields__, "data_dir", "skip_bad") if name not in UNASKED)
"""The settings of a run."""
WHERE = ("accelerator", "devices", "nodes", "workers")

AsJson = Annotated[bool, flag("Print JSON for other programs.", "--json")]
Overwrite = Annotated[bool, flag("Replace existing files.", "--overwrite")]
Top = Annotated[int, option("Number of suspicious labels to print.", min=0)]
Trained = Annotated[Path, argument("Folder of a finished `train` or `fit`.")]
Model = Annotated[str | None, option("The run's module:function, if the model is your own code.", panel=TRAINING)]
Encoder = Annotated[
    str | None, option("The fit's encoder, to let it load weights that are not installed with it.", panel=TRAINING)
]
Files = Annotated[list[str] | None, option("TOML file of settings, or NAME=VALUE; repeatable.", "--settings", "-s")]

Command = Callable[..., None]


class Chosen(dict[str, Any]):
    """The values of options by name."""

    given: Set[str] = frozenset()  # those that the user set, on the command line or by ``--settings``


def with_options(*names: str, settings: Iterable[str] = (), **changed: Option) -> Callable[[Command], Command]:
    """Return a decorator that adds shared options to a command, which gets their values as ``options``.

    ``settings`` are options that only ``--settings`` takes; ``changed`` ones have another default or help.
    """
    known = OPTIONS | changed
    more = [name for name in settings if name not in names]

    def wrap(command: Command) -> Command:
        declared = inspect.signature(command, eval_str=True).parameters
        parameters = [each for name, each in declared.items() if name != "options"]
        kind = inspect.Parameter.KEYWORD_ONLY
        added = {name: (known[name].annotation(name), known[name].default) for name in names}
        added |= {"settings": (Files, None)} if more else {}
        added["ctx"] = (typer.Context, inspect.Parameter.empty)
        for name, (annotation, default) in added.items():
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))

        @functools.wraps(command)
        def run(**passed: Any) -> None:
            ctx = passed.pop("ctx")
            given = read_settings(passed.pop("settings", None) or [], {name: known[name] for name in (*names, *more)})
            options = Chosen({name: passed.pop(name) for name in names} | {name: known[name].default for name in more})
            options.given = {*given, *(name for name in names if _typed(ctx, name))}
            options |= {name: value for name, value in given.items() if not _typed(ctx, name)}
            command(**passed, options=options)

        in_order = sorted(parameters, key=lambda each: _panel_number(each.annotation))
        run.__signature__ = inspect.Signature([each.replace(kind=kind) for each in in_order])  # type: ignore[attr-defined]
        run.epilog = f"Keys of --settings besides these options: {', '.join(sorted(more))}." if more else None  # type: ignore[attr-defined]
        return run

    return wrap


def _typed(ctx: typer.Context, name: str) -> bool:
    """Return whether an option was given on the command line, where it overrides ``--settings``."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _panel_number(annotation: Any) -> int:
    """Return the place of an option's panel in ``--help``."""
    panels = [getattr(each, "rich_help_panel", None) for each in getattr(annotation, "__metadata__", ())]
    return max((PANELS.index(panel) for panel in panels if panel in PANELS), default=-1)


def read_settings(given: Iterable[str], known: Mapping[str, Option]) -> dict[str, Any]:
    """Return the values of ``--settings``: of TOML files and of texts such as "momentum=0.9". The last one counts."""
    found = {}
    for text in given:
        name, is_value, value = text.partition("=")
        inline = is_value and re.fullmatch(r"[\w-]+", name)
        where = "--settings" if inline else text
        for spelled, each in ({name: _literal(value)} if inline else _read(Path(text))).items():
            key = spelled.replace("-", "_")
            if key not in known:
                raise ValueError(f"Unknown setting {key!r} in {where}; {checks.nearest(key, known)}")
            raw = value if inline and known[key].kind in (str, Path) else each
            found[key] = known[key].checked(key, raw, where)
    return found


def _literal(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"`--settings` must be a TOML file or NAME=VALUE; got {str(path)!r}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None


def reflowed(docstring: str | None) -> str:
    """Return a docstring as help: paragraphs without line breaks, which fit a terminal of any width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(docstring or "").split("\n\n"))


class _Quiet:
    """A command whose ``--help`` is shown like every other flag, without a type."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.metavar = ""
        return option


class QuietHelp(_Quiet, TyperCommand):
    """A command of symloss."""


class QuietGroup(_Quiet, TyperGroup):
    """A group of commands of symloss."""
