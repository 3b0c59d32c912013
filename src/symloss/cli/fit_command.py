"""``symloss fit`` chooses a model by wrong labels alone, and lists the labels that look wrong."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss.cli.options import WHAT, shared
from symloss.cli.output import AsJson, print_json, print_rows, say, visible
from symloss.cli.training import open_from

if TYPE_CHECKING:
    from symloss.data.dataset import DataSet
    from symloss.report.audit_document import AuditDocument
    from symloss.robust import Audit, RobustClassifier
    from symloss.robust.fit_data import FitData
    from symloss.robust.saved_audit import LabelSource

WORK = "unfinished"
"""The folder, inside that of the fit, for what was found so far. The same command goes on with it after a kill."""
SHOWN = 8
"""How many candidates are printed."""
MANY = 0.3
"""The share of wrong labels above which the command says what else it may mean."""
OPTIONS = ("label", "image", "test", "drop", "categorical", "keep", "size", "data_dir", "skip_bad")


@shared({name: WHAT[name] for name in OPTIONS})
def fit(
    data: Annotated[str, typer.Option(help="Data as in train: a known set, a folder of images, a table, an .npz.")],
    noise: Annotated[str, typer.Option(help="Noise to add to true labels, for an experiment.")] = "clean",
    budget: Annotated[
        float | None, typer.Option(min=0.0, help="Seconds of one core.", show_default="45, and more for much data")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Everything random derives from it.")] = 0,
    model: Annotated[
        str,
        typer.Option(help="The network: a name such as cnn8:width=0.5, or timm:NAME.", show_default="by data"),
    ] = "auto",
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, help="Processes that share the learners. The result is the same.")
    ] = 1,
    ray: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster that shares the learners, or auto.", show_default="this machine"),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="How many of the labels that look wrong to print.")] = 10,
    simple: Annotated[bool, typer.Option("--simple", help="One learner instead of the mean of the leaders.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the model.", show_default="fits/ and the data's name")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model in that folder.")] = False,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Choose a learner, its settings and when to stop by the labels you have, fit it, and list the wrong labels.

    No clean labels are needed. Writes the model (for symloss predict), audit.csv, pred_probs.npy and audit.html.
    """
    from symloss.lab.on_ray import joblib_on_ray
    from symloss.models.factory import is_built_in
    from symloss.report.audit_writing import write_document
    from symloss.robust import RobustClassifier
    from symloss.robust.fit_folder import save_fit

    if model != "auto" and not is_built_in(model):
        raise ValueError(f"--model must be a network of symloss or timm, which predict can build; got {model!r}")
    folder = _folder(data, noise, seed, out, overwrite)
    opened = open_from(options | {"data": data, "devices": 1, "nodes": 1})
    started = time.perf_counter()
    classifier = RobustClassifier(
        model=model,
        budget=budget,
        random_state=seed,
        n_jobs=jobs if ray is None else -1,
        simple=simple,
        memory=folder / WORK,
        verbose=0 if as_json else 1,
    )
    with contextlib.nullcontext() if ray is None else joblib_on_ray(ray):
        rows = _fitted(classifier, opened, noise, options["data_dir"])
    audit = _audit(classifier, rows, opened)
    source = _source(data, noise, options, opened)
    document = _document(folder, classifier, audit, opened, source)
    files = write_document(document, audit, folder)
    save_fit(folder, classifier, rows, opened, audit, source)  # last: a folder with a model is a finished fit
    shutil.rmtree(folder / WORK, ignore_errors=True)
    score = _test_accuracy(classifier, opened)
    if as_json:
        print_json(_as_json(classifier, audit, score, files, time.perf_counter() - started))
        return
    print_rows(_candidates(classifier))
    for line in _verdict(classifier, audit, score):
        say(line)
    _print_suspicious(document, audit, top)
    say(f"took {time.perf_counter() - started:.0f} s; look at {visible(str(files[-1]))}, predict with:")
    say(f"  symloss predict {visible(shlex.quote(str(folder)))} DATA")


def _folder(data: str, noise: str, seed: int, out: Path | None, overwrite: bool) -> Path:
    from symloss.robust.saved_fit import is_saved_fit

    added = f"-{noise}" if noise != "clean" else ""
    folder = out or Path("fits") / re.sub(r"[^\w.-]+", "-", f"{Path(data).stem}{added}-{seed}")
    if is_saved_fit(folder) and not overwrite:
        raise ValueError(f"--out must be a folder without a model; got {str(folder)!r}: --overwrite replaces its model")
    return folder


def _fitted(model: RobustClassifier, opened: DataSet, noise: str, root: Path | None) -> FitData:
    from symloss.robust.fit_data import fit_data

    rows = fit_data(opened, noise, model.random_state, root)
    added = f"; noise {noise}" if noise != "clean" else ""
    say(f"{len(rows.noisy):,} examples of {len(opened.classes)} classes{added}", err=True)
    model.fit(rows.features, rows.noisy)
    return rows


def _audit(model: RobustClassifier, rows: FitData, opened: DataSet) -> Audit:
    from symloss.robust import audit_fit

    return audit_fit(model, classes=opened.classes, truth=rows.truth)


def _source(data: str, noise: str, options: dict[str, Any], opened: DataSet) -> LabelSource:
    from symloss.data.names import KNOWN
    from symloss.robust.saved_audit import LabelSource

    names = ("label", "image", "drop", "categorical", "keep", "skip_bad", "size")
    mark = None if data in KNOWN else opened.train.fingerprint()
    return LabelSource(data, noise, fingerprint=mark, **{name: options[name] for name in names})


def _document(
    folder: Path, model: RobustClassifier, audit: Audit, opened: DataSet, source: LabelSource
) -> AuditDocument:
    from symloss.cli.audit_files import compose
    from symloss.data.origins import origins
    from symloss.report.audit_writing import measured
    from symloss.runs.settings import displayed_noise

    label, data = source.label, source.data
    came_from = origins(data, opened, label=label, image=source.image, skip_bad=source.skip_bad)
    facts = [
        ("Data", f"{data}, labels {displayed_noise(data, source.noise)}"),
        ("Model", _model_in_words(model)),
        ("Ranked by", "probability"),
    ]
    truth = measured(audit)
    facts += [("Measured", truth)] if truth is not None else []
    is_table = came_from.rows is not None and len(opened.input_shape) == 1
    table = Path(data) if is_table else None
    own = not opened.labels_are_true
    reader = f"symloss audit {shlex.quote(str(folder))} --apply --decisions FILE" if own else ""
    return compose(audit, facts, came_from, inputs=opened.train.inputs, table=table, label=label, reader=reader)


def _print_suspicious(document: AuditDocument, audit: Audit, top: int) -> None:
    """The flagged labels, the most suspicious first."""
    from symloss.cli.audit_files import row
    from symloss.report.audit_writing import suspicious

    shown = suspicious(audit)[:top]
    if shown:
        say(f"The {len(shown)} most suspicious labels; all are in audit.csv:")
        print_rows([row(document, place) for place in shown])


def _model_in_words(model: RobustClassifier) -> str:
    count = len(model.predictor_.members)
    winner = model.candidates_["candidate"][model.candidates_["chosen"]][0]
    return winner if count == 1 else f"the mean of {count} learners; the simplest of the best is {winner}"


def _test_accuracy(model: RobustClassifier, opened: DataSet) -> float | None:
    from symloss.robust.fit_data import features_of

    if opened.test is None:
        return None
    features = features_of(opened.test.inputs, opened.size, opened.test.positions)
    return float(model.score(features, opened.test.labels.numpy()))


def _candidates(model: RobustClassifier) -> list[dict[str, Any]]:
    table = model.candidates_
    percent = {name: [f"{100 * value:.1f}" for value in table[name]] for name in table if table[name].dtype.kind == "f"}
    return [
        {
            "candidate": table["candidate"][k],
            "epoch": table["epoch"][k] or "",
            f"noisy {model.measure_}": f"{percent['noisy_accuracy'][k]} ± {percent['standard_error'][k]}",
            "clean, estimated": percent["clean_accuracy_estimate"][k],
            "used": "yes" if table["averaged"][k] else "",
        }
        for k in range(min(SHOWN, len(table["candidate"])))
    ]


def _verdict(model: RobustClassifier, audit: Audit, score: float | None) -> list[str]:
    from symloss.report.audit_writing import measured

    low, high = model.noise_rate_interval_
    lines = [
        f"Model: {_model_in_words(model)}.",
        f"About {100 * model.noise_rate_:.0f} % of the labels look wrong ({100 * low:.0f} to {100 * high:.0f} %): "
        f"{model.n_wrong_:,} of {len(audit):,}.",
    ]
    if audit.truth is None and model.noise_rate_ > MANY:
        lines.append(
            "If you expect far fewer, these learners cannot tell your classes apart, and doubtful examples look wrong: "
            "check some on the page before you trust the list."
        )
    plain = _plain_network(model)
    if plain is not None:
        lines.append(f"A network with cross-entropy, stopped in time, would be right in about {100 * plain:.1f} %.")
    truth = measured(audit)
    if truth is not None:
        lines.append(truth[0].upper() + truth[1:] + ".")
    if score is not None:
        lines.append(f"Accuracy on clean test data: {100 * score:.1f} %.")
    return lines


def _plain_network(model: RobustClassifier) -> float | None:
    """The estimated accuracy of the best network with cross-entropy; None if none was tried."""
    table = model.candidates_
    for name, estimate in zip(table["candidate"], table["clean_accuracy_estimate"], strict=True):
        if name.startswith("network ce "):
            return float(estimate)
    return None


def _as_json(
    model: RobustClassifier, audit: Audit, score: float | None, files: list[Path], seconds: float
) -> dict[str, Any]:
    return {
        "learner": model.learner_,
        "loss": model.loss_,
        "epoch": model.epoch_,
        "measure": model.measure_,
        "candidates": {name: column.tolist() for name, column in model.candidates_.items()},
        "noise_rate": model.noise_rate_,
        "noise_rate_interval": list(model.noise_rate_interval_),
        "n_wrong": model.n_wrong_,
        "really_wrong": audit.really_wrong,
        "average_precision": audit.average_precision,
        "precision": audit.precision,
        "recall": audit.recall,
        "test_accuracy": score,
        "seconds": round(seconds, 1),
        "files": [str(file) for file in files],
    }
