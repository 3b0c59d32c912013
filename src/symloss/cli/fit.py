"""``symloss fit`` chooses a model by wrong labels alone, and lists the labels that look wrong."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss.cli.audit import compose, printed, row
from symloss.cli.options import OPTIONS, OUTPUT, AsJson, Overwrite, Top, with_options
from symloss.cli.output import print_json, print_rows, say, show_progress, visible
from symloss.cli.training import open_from

if TYPE_CHECKING:
    from symloss.data.dataset import DataSet
    from symloss.fit import Audit, RobustClassifier
    from symloss.fit.audit.export import AuditDocument
    from symloss.fit.folder import LabelSource
    from symloss.noise.manifest import Corruption

SHOWN = 8
"""How many candidates are printed."""
SETTINGS = (
    "data", "noise", "seed", "budget", "model", "simple", "label", "image", "test", "drop", "categorical", "keep",
    "size", "skip_bad",
)  # fmt: skip
"""What a fit depends on: the same settings give the same fit."""


@with_options(
    *("data", "label", "test", "drop", "skip_bad", "noise", "model", "budget", "seed", "jobs"),
    settings=("image", "categorical", "keep", "size", "data_dir", "simple", "ray"),
    data=OPTIONS["data"]._replace(default=...),
    model=OPTIONS["model"]._replace(
        default="auto", help="Network, such as cnn8:width=0.5 or timm:NAME.", shown="by data"
    ),
)
def fit(
    top: Top = 10,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Model folder.", show_default="runs/fit-DATA", rich_help_panel=OUTPUT),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train a classifier on noisy labels, and list the mislabelled examples.

    Chooses the learner, its settings and the epoch to stop at by the noisy labels alone. Writes the model (for symloss
    predict), audit.csv, pred_probs.npy and audit.html. Rerun the same command to print the result again. The exit code
    is 3 if nothing was learned.
    """
    from symloss.fit.audit.export import FILES
    from symloss.fit.folder import is_saved_fit

    folder = out or default_folder(options["data"], options["noise"], options["seed"])
    refuse_early(options["data"], options["noise"], options, folder)
    settings = {name: options[name] for name in SETTINGS}
    if is_saved_fit(folder) and not overwrite:
        result = _finished(folder, settings, options)
    else:
        result = _fit(folder, settings, options, quiet=as_json)
    files = [folder / name for name in FILES]
    if as_json:
        print_json(_as_json(result, top, files))
    else:
        _print(result, folder, files[-1], top)
    if not result["learned"]:
        raise typer.Exit(3)


def default_folder(data: str, noise: str, seed: int) -> Path:
    """Return the folder of a fit without ``--out``.

    >>> default_folder("data/bugs.csv", "clean", 0).name, default_folder("digits", "sym:0.6", 1).name
    ('fit-bugs', 'fit-digits-sym-0.6-1')
    """
    parts = ["fit", Path(data).stem, *([noise] if noise != "clean" else []), *([str(seed)] if seed else [])]
    return Path("runs") / re.sub(r"[^\w.-]+", "-", "-".join(parts))


def refuse_early(data: str, noise: str, options: dict[str, Any], folder: Path) -> None:
    """Raise what can be known without torch: a wrong path, column or noise, or a folder that cannot be written."""
    from symloss.data.source import DataSource
    from symloss.data.tables import check_source
    from symloss.fit.folder import refuse_other_folder
    from symloss.noise.spec import parse

    check_source(DataSource.of(options | {"data": data}))
    parse(noise)
    refuse_other_folder(folder)
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise OSError(f"{folder} cannot be written: {nearest} is {'read-only' if nearest.is_dir() else 'a file'}")


def _finished(folder: Path, settings: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a fit with the same settings, and of the same data."""
    from symloss.fit.folder import SOURCE, finished_fit, load_source

    kept, result = finished_fit(folder, [SOURCE])
    other = sorted(name for name in settings if kept.get(name) != settings[name])
    if other:
        raise ValueError(
            f"{folder} holds a fit with other settings ({', '.join(other)}); choose another --out, or replace it with "
            "--overwrite"
        )
    source = load_source(folder)
    if source.fingerprint is not None and source.fingerprint != _open(settings | options).train.fingerprint():
        raise ValueError(f"{settings['data']} has changed since the fit in {folder}; fit again with --overwrite")
    say(f"{folder} holds this fit already; --overwrite fits again", err=True)
    return result


def _open(options: dict[str, Any]) -> DataSet:
    return open_from(options | {"devices": 1, "nodes": 1})


def _fit(folder: Path, settings: dict[str, Any], options: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Fit, write the folder, and return the result."""
    from symloss.training.models import is_built_in

    if settings["model"] != "auto" and not is_built_in(settings["model"]):
        raise ValueError(
            f"`--model` must be a network of symloss or timm, which `predict` can build; got {settings['model']!r}"
        )
    opened = _open(settings | options)

    from symloss.experiments.ray import joblib_on_ray
    from symloss.fit import RobustClassifier
    from symloss.fit.folder import WORK
    from symloss.fit.training_data import features_of
    from symloss.training.progress import shown_by

    started, ray = time.perf_counter(), options["ray"]
    corruption = _corruption(opened, settings, options["data_dir"])
    features = features_of(opened.train, opened.size)
    classifier = RobustClassifier(
        model=settings["model"],
        budget=settings["budget"],
        random_state=settings["seed"],
        n_jobs=options["jobs"] if ray is None else -1,
        simple=settings["simple"],
        memory=folder / WORK,
    )
    with (
        _work_folder(folder / WORK),
        warnings.catch_warnings(),
        contextlib.nullcontext() if ray is None else joblib_on_ray(ray),
        show_progress(quiet=quiet) as progress,
        shown_by(progress),
    ):
        warnings.filterwarnings("ignore", "Nothing was learnt", UserWarning)  # the verdict says it
        classifier.fit(features, corruption.labels)
    return write(folder, classifier, corruption, opened, settings, started)


def write(
    folder: Path,
    model: RobustClassifier,
    corruption: Corruption,
    opened: DataSet,
    settings: dict[str, Any],
    started: float,
) -> dict[str, Any]:
    """Write the folder of a fit, wholly or not at all, and return the result."""
    from symloss.fit import audit_fit
    from symloss.fit.audit.export import write_document
    from symloss.fit.folder import replaced_fit
    from symloss.fit.storage import save_fit

    audit = audit_fit(
        model, class_names=opened.class_names, truth=opened.train.labels.numpy() if opened.labels_are_true else None
    )
    source = _source(settings, opened)
    document = _document(folder, model, audit, opened, source)
    score = _test_accuracy(model, opened)
    result = _result(model, audit, document, score, time.perf_counter() - started)
    with replaced_fit(folder) as new:
        write_document(document, new)
        save_fit(new, model, corruption, opened, audit, source, settings=settings, result=result)
    return result


@contextlib.contextmanager
def _work_folder(path: Path) -> Iterator[None]:
    """Return a folder for what is found; nothing is left of it if an error comes before anything was."""
    from symloss.writing import clear_write_errors

    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    with clear_write_errors(path.parent):
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()
        raise


def _corruption(opened: DataSet, settings: dict[str, Any], root: Path | None) -> Corruption:
    from symloss.fit.training_data import noisy_labels

    noise = settings["noise"]
    corruption = noisy_labels(opened, noise, settings["seed"], root)
    added = f"; noise {noise}" if noise != "clean" else ""
    say(f"{len(corruption.labels):,} examples of {len(opened.class_names)} classes{added}", err=True)
    return corruption


def _source(settings: dict[str, Any], opened: DataSet) -> LabelSource:
    from symloss.data.source import DataSource
    from symloss.fit.folder import LabelSource

    source = DataSource.of(settings)
    return LabelSource(source, settings["noise"], None if source.is_published else opened.train.fingerprint())


def _document(
    folder: Path, model: RobustClassifier, audit: Audit, opened: DataSet, source: LabelSource
) -> AuditDocument:
    from symloss.fit.audit.export import measured
    from symloss.fit.audit.models import warning_of_fit
    from symloss.training.settings import displayed_noise

    data, origin = source.source.data, opened.train.origin
    facts = [
        ("Data", f"{data}, labels {displayed_noise(data, source.noise)}"),
        ("Model", _model_in_words(model)),
        ("Ranked by", "probability"),
    ]
    truth = measured(audit) if model.learned_ else None
    facts += [("Measured", truth)] if truth is not None else []
    is_table = origin.rows is not None and len(opened.input_shape) == 1
    table = Path(data) if is_table else None
    own = not opened.labels_are_true
    reader = f"symloss audit {shlex.quote(str(folder))} --apply --decisions FILE" if own else ""
    return compose(
        audit,
        facts,
        origin,
        inputs=opened.train.inputs,
        table=table,
        label=source.source.label,
        reader=reader,
        title=None if model.learned_ else "Nothing was learnt from these features",
        notice=warning_of_fit(model),
    )


def _model_in_words(model: RobustClassifier) -> str:
    count = len(model.predictor_.members)
    winner = str(model.candidates_["candidate"][model.candidates_["chosen"]][0])
    return winner if count == 1 else f"the mean of {count} learners; the simplest of the best is {winner}"


def _test_accuracy(model: RobustClassifier, opened: DataSet) -> float | None:
    from symloss.fit.training_data import features_of

    if opened.test is None:
        return None
    features = features_of(opened.test, opened.size)
    return float(model.score(features, opened.test.labels.numpy()))


def _result(
    model: RobustClassifier, audit: Audit, document: AuditDocument, score: float | None, seconds: float
) -> dict[str, Any]:
    """All that the command prints, for JSON, so that it can be printed again."""
    from symloss.fit.audit.export import measured, suspicious

    return {
        "model": _model_in_words(model),
        "learner": model.learner_,
        "loss": model.loss_,
        "epoch": model.epoch_,
        "measure": model.measure_,
        "candidates": {name: _plain(column) for name, column in model.candidates_.items()},
        "learned": model.learned_,
        "classes_apart": model.classes_apart_,
        "warning": document.notice or None,
        "labels": len(audit),
        "noise_rate": model.noise_rate_ if model.learned_ else None,
        "noise_rate_interval": list(model.noise_rate_interval_),
        "n_wrong": model.n_wrong_ if model.learned_ else None,
        "really_wrong": audit.really_wrong,
        "average_precision": audit.average_precision,
        "precision": audit.precision,
        "recall": audit.recall,
        "right_suggestions": audit.right_suggestions,
        "measured": measured(audit) if model.learned_ else None,
        "test_accuracy": score,
        "seconds": round(seconds, 1),
        "suspicious": [row(document, place) for place in suspicious(audit)],
    }


def _plain(column: Any) -> list[Any]:
    return [None if isinstance(each, float) and math.isnan(each) else each for each in column.tolist()]


def _as_json(result: dict[str, Any], top: int, files: list[Path]) -> dict[str, Any]:
    shown = {name: value for name, value in result.items() if name != "suspicious"}
    return shown | {"top": result["suspicious"][:top], "files": [str(file) for file in files]}


def _print(result: dict[str, Any], folder: Path, page: Path, top: int) -> None:
    print_rows(_candidates(result))
    for line in _verdict(result):
        say(line)
    shown = result["suspicious"][:top]
    if shown:
        say(f"The {len(shown)} most suspicious labels; all are in audit.csv:")
        print_rows([printed(each) for each in shown])
    say(f"Took {result['seconds']:.0f} s. Review the labels in {visible(str(page))}. To predict:")
    say(f"  symloss predict {visible(shlex.quote(str(folder)))} --data DATA")


def _candidates(result: dict[str, Any]) -> list[dict[str, Any]]:
    table = result["candidates"]
    tried = [k for k in range(len(table["candidate"])) if table["failure"][k] is None]
    return [
        {
            "candidate": table["candidate"][k],
            "epoch": table["epoch"][k] or "",
            f"noisy {result['measure']}": " ± ".join(
                _percent(table[name][k]) for name in ("noisy_accuracy", "standard_error")
            ),
            **({"clean, estimated": _clean(result, k)} if result["learned"] else {}),
            "used": "yes" if table["averaged"][k] else "",
        }
        for k in tried[:SHOWN]
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _clean(result: dict[str, Any], k: int) -> str:
    """Return the range of a candidate's clean accuracy: from all doubt being overlap to all doubt being noise."""
    low, high = (result["candidates"][name][k] for name in ("noisy_accuracy", "clean_accuracy_estimate"))
    return _percent(high) if result["classes_apart"] else f"{_percent(min(low, high))} to {_percent(max(low, high))}"


def _verdict(result: dict[str, Any]) -> list[str]:
    from symloss.fit.audit.models import NOTHING_LEARNT

    if not result["learned"]:
        failed = _failures(result)
        return [NOTHING_LEARNT, *failed]
    low, high = result["noise_rate_interval"]
    lines = [
        f"Model: {result['model']}.",
        f"About {100 * result['noise_rate']:.0f} % of the labels look wrong ({100 * low:.0f} to {100 * high:.0f} %): "
        f"{result['n_wrong']:,} of {result['labels']:,}.",
        *_failures(result),
    ]
    if result["warning"] is not None:
        lines.append(result["warning"])
    plain = _plain_network(result)
    if plain is not None and result["classes_apart"]:
        lines.append(f"A network with cross-entropy, stopped early, would be right in about {_percent(plain)} %.")
    if result["measured"] is not None:
        lines.append(result["measured"][0].upper() + result["measured"][1:] + ".")
    if result["test_accuracy"] is not None:
        lines.append(f"Accuracy on clean test data: {_percent(result['test_accuracy'])} %.")
    return lines


def _failures(result: dict[str, Any]) -> list[str]:
    table = result["candidates"]
    failed = [(name, why) for name, why in zip(table["candidate"], table["failure"], strict=True) if why is not None]
    if not failed:
        return []
    return [f"{len(failed)} candidates could not be fitted, the first of them {failed[0][0]}: {failed[0][1]}"]


def _plain_network(result: dict[str, Any]) -> float | None:
    """Return the estimated accuracy of the best network with cross-entropy; None if none was tried."""
    table = result["candidates"]
    for name, estimate in zip(table["candidate"], table["clean_accuracy_estimate"], strict=True):
        if name.startswith("network ce "):
            return float(estimate)
    return None
