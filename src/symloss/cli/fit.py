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

from symloss.cli.audit import MEASURED
from symloss.cli.audit_output import compose, printed, row
from symloss.cli.options import OPTIONS, AsJson, Overwrite, Top, option, with_options
from symloss.cli.output import print_json, print_rows, say, show_progress, visible
from symloss.cli.training import open_from
from symloss.data.source import DataSource
from symloss.data.tables import check_source
from symloss.encoders.names import HUB, check_encoder, check_named
from symloss.fit import folder as folders
from symloss.fit.audit import export
from symloss.noise.spec import parse
from symloss.training.settings import displayed_noise
from symloss.writing import clear_write_errors

if TYPE_CHECKING:
    from symloss.data.dataset import DataSet
    from symloss.fit import Audit, RobustClassifier
    from symloss.noise.manifest import Corruption

SHOWN = 8  # how many candidates are printed
LISTED = 400  # the most suspicious labels in the result
SETTINGS = (
    "data", "noise", "seed", "budget", "model", "simple", "label", "image", "test", "drop", "categorical", "keep",
    "size", "skip_bad", "encoder",
)  # fmt: skip
"""What a fit depends on: the same settings give the same fit."""
SINCE = {"encoder": "auto"}
"""What a setting was in a fit that was written before it existed."""


@with_options(
    *("data", "label", "test", "drop", "skip_bad", "encoder", "noise", "model", "budget", "seed", "jobs"),
    settings=("image", "categorical", "keep", "size", "data_dir", "simple", "accelerator", "ray"),
    data=OPTIONS["data"]._replace(default=...),
    model=OPTIONS["model"]._replace(
        default="auto", help="Network, such as cnn8:width=0.5 or timm:NAME.", shown="by data"
    ),
)
def fit(
    top: Top = 10,
    out: Annotated[Path | None, option("Model folder.", "--out", "-o", shown="runs/fit-DATA")] = None,
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
    folder = out or default_folder(options["data"], options["noise"], options["seed"])
    _refuse_early(options, folder)
    settings = {name: options[name] for name in SETTINGS}
    if folders.is_saved_fit(folder) and not overwrite:
        result = _finished(folder, settings, options)
    else:
        result = _fit(folder, settings, options, quiet=as_json)
    files = [folder / name for name in export.FILES]
    if as_json:
        shown = {name: value for name, value in result.items() if name != "suspicious"}
        print_json(shown | {"top": result["suspicious"][:top], "files": [str(file) for file in files]})
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


def _refuse_early(options: dict[str, Any], folder: Path) -> None:
    """Raise what can be known without torch: a wrong path, column or noise, or a folder that cannot be written."""
    check_source(DataSource.of(options))
    parse(options["noise"])
    if options["encoder"] not in ("auto", "none"):
        check_encoder(options["encoder"])
    folders.refuse_other_folder(folder)
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise OSError(f"{folder} cannot be written: {nearest} is {'read-only' if nearest.is_dir() else 'a file'}")


def _finished(folder: Path, settings: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a fit with the same settings, and of the same data."""
    kept, result = folders.finished_fit(folder, [folders.SOURCE])
    other = sorted(name for name in settings if kept.get(name, SINCE.get(name)) != settings[name])
    if other:
        raise ValueError(
            f"{folder} holds a fit with other settings ({', '.join(other)}); choose another --out, or replace it with "
            "--overwrite"
        )
    source = folders.load_source(folder)
    used, asked = source.source.encoder, settings["encoder"]
    if used.startswith(HUB):
        check_named(used, folder / folders.SOURCE, asked)
    opened = _open(settings | options | {"encoder": used})  # by now, "auto" might choose another encoder
    if source.fingerprint not in (None, opened.train.fingerprint()):
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
    from symloss.fit.representation import images_of
    from symloss.fit.training_data import noisy_labels
    from symloss.training.progress import shown_by

    started, ray, noise = time.perf_counter(), options["ray"], settings["noise"]
    corruption = noisy_labels(opened, noise, settings["seed"], options["data_dir"])
    added = f"; noise {noise}" if noise != "clean" else ""
    say(f"{len(corruption.labels):,} examples of {len(opened.class_names)} classes{added}", err=True)
    features = images_of(opened.train, opened.size)
    classifier = RobustClassifier(
        model=settings["model"],
        budget=settings["budget"],
        random_state=settings["seed"],
        n_jobs=options["jobs"] if ray is None else -1,
        simple=settings["simple"],
        memory=folder / folders.WORK,
        encoder="none" if opened.encoder is not None else settings["encoder"],  # texts in tables are encoded already
        device=options["accelerator"],
    )
    with (
        _work_folder(folder / folders.WORK),
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
    from symloss.fit.audit.models import warning_of_fit
    from symloss.fit.representation import images_of
    from symloss.fit.storage import save_fit

    truth = opened.train.labels.numpy() if opened.labels_are_true else None
    audit = audit_fit(model, class_names=opened.class_names, truth=truth)
    data, noise = DataSource.of(settings | {"encoder": _encoder_used(model, opened)}), settings["noise"]
    source = folders.LabelSource(data, noise, None if data.is_published else opened.train.fingerprint())
    facts = [
        ("Data", f"{data.data}, labels {displayed_noise(data.data, noise)}"),
        ("Model", _model_in_words(model)),
        ("Ranked by", "probability"),
        ("Measured", export.measured(audit) if model.learned_ else None),
    ]
    document = compose(
        audit,
        facts,
        opened,
        data,
        reader="" if truth is not None else f"symloss audit {shlex.quote(str(folder))} --apply --decisions FILE",
        headline=None if model.learned_ else "Nothing was learnt from these features",
        notice=warning_of_fit(model),
    )
    test = opened.test
    score = None if test is None else float(model.score(images_of(test, opened.size), test.labels.numpy()))
    result = _result(model, audit, score, time.perf_counter() - started) | {
        "warning": document.notice or None,
        "suspicious": [row(document, place) for place in export.suspicious(audit)[:LISTED]],
    }
    with folders.replaced_fit(folder) as new:
        export.write_document(document, new)
        save_fit(new, model, corruption, opened, audit, source, settings=settings, result=result)
    return result


def _encoder_used(model: RobustClassifier, opened: DataSet) -> str:
    """Return the encoder of images or texts, which "auto" may have chosen; "none" where nothing was encoded."""
    if model.seen_ is not None:
        return str(model.seen_.encoder or "none")
    return "none" if opened.encoder is None else opened.encoder.encoder_used_


@contextlib.contextmanager
def _work_folder(path: Path) -> Iterator[None]:
    """Return a folder for what is found; nothing is left of it if an error comes before anything was."""
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


def _model_in_words(model: RobustClassifier) -> str:
    count = len(model.predictor_.members)
    winner = str(model.candidates_["candidate"][model.candidates_["chosen"]][0])
    return winner if count == 1 else f"the mean of {count} learners; the simplest of the best is {winner}"


def _result(model: RobustClassifier, audit: Audit, score: float | None, seconds: float) -> dict[str, Any]:
    """Return what the command prints, for JSON, so that it can be printed again."""
    learned = model.learned_
    return {
        "model": _model_in_words(model),
        "learner": model.learner_,
        "loss": model.loss_,
        "epoch": model.epoch_,
        "measure": model.measure_,
        "representation": None if model.seen_ is None else model.seen_.facts(),
        "candidates": {name: _plain(column) for name, column in model.candidates_.items()},
        "learned": learned,
        "classes_apart": model.classes_apart_,
        "labels": len(audit),
        "noise_rate": model.noise_rate_ if learned else None,
        "noise_rate_interval": list(model.noise_rate_interval_),
        "n_wrong": model.n_wrong_ if learned else None,
        **{name: getattr(audit, name) for name in MEASURED},
        "measured": export.measured(audit) if learned else None,
        "test_accuracy": score,
        "seconds": round(seconds, 1),
    }


def _plain(column: Any) -> list[Any]:
    return [None if isinstance(each, float) and math.isnan(each) else each for each in column.tolist()]


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


def _features(seen: dict[str, Any] | None) -> list[str]:
    """Return the line that says what learners saw of images; none for other data."""
    if seen is None or (seen["name"] == "pixels" and seen["comparison"] is None):
        return []
    compared = seen["comparison"]
    if compared is None:
        return [f"Features: {seen['name']}."]
    shares = {compared["encoder"]: compared["features"], "pixels": compared["pixels"]}
    other = next(name for name in shares if name != seen["name"])
    return [
        f"Features: {seen['name']}; {_percent(shares[seen['name']])} % of noisy labels predicted on "
        f"{compared['images']:,} held-out images, {other} {_percent(shares[other])} %."
    ]


def _verdict(result: dict[str, Any]) -> list[str]:
    from symloss.fit.audit.models import NOTHING_LEARNT

    table = result["candidates"]
    failed = [(name, why) for name, why in zip(table["candidate"], table["failure"], strict=True) if why is not None]
    failures = []
    if failed:
        failures = [f"{len(failed)} candidates could not be fitted, the first of them {': '.join(failed[0])}"]
    if not result["learned"]:
        return [NOTHING_LEARNT, *failures]
    low, high = result["noise_rate_interval"]
    lines = [
        f"Model: {result['model']}.",
        *_features(result.get("representation")),
        f"About {100 * result['noise_rate']:.0f} % of the labels look wrong ({100 * low:.0f} to {100 * high:.0f} %): "
        f"{result['n_wrong']:,} of {result['labels']:,}.",
        *failures,
    ]
    if result["warning"] is not None:
        lines.append(result["warning"])
    # The best network with cross-entropy is the first.
    estimates = zip(table["candidate"], table["clean_accuracy_estimate"], strict=True)
    plain = next((estimate for name, estimate in estimates if name.startswith("network ce ")), None)
    if plain is not None and result["classes_apart"]:
        lines.append(f"A network with cross-entropy, stopped early, would be right in about {_percent(plain)} %.")
    if result["measured"] is not None:
        lines.append(result["measured"][0].upper() + result["measured"][1:] + ".")
    if result["test_accuracy"] is not None:
        lines.append(f"Accuracy on clean test data: {_percent(result['test_accuracy'])} %.")
    return lines
