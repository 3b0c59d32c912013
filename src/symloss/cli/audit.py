"""``symloss audit`` finds the mislabelled examples of a run or a fit, and writes corrected copies of the data."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from symloss.cli.audit_output import compose, export_for_tool, printed, row, target_of, write_corrected
from symloss.cli.options import (
    DATA,
    AsJson,
    Chosen,
    Encoder,
    Model,
    Overwrite,
    Top,
    argument,
    flag,
    option,
    with_options,
)
from symloss.cli.output import print_json, print_rows, say, visible
from symloss.data.source import TABLES, DataSource, warn
from symloss.encoders.names import HUB, check_named
from symloss.fit.audit import annotation_tools, decisions as decided, export
from symloss.fit.audit.decisions import Outcome
from symloss.fit.audit.export import AuditDocument
from symloss.fit.folder import (
    AUDIT,
    OF_AUDITS,
    SOURCE,
    LabelSource,
    finished_fit,
    holds_fit,
    holds_labels,
    load_audit,
    load_source,
    refuse_other_audit,
)
from symloss.training.settings import displayed_noise
from symloss.writing import write_whole_folder

if TYPE_CHECKING:
    from symloss.data.dataset import Origin
    from symloss.fit import Audit

READER = "symloss audit RUN --apply --decisions FILE"  # what reads the CSV of decisions that the page writes
CORRECTIONS = "Corrections"
LEVEL = "95 % interval"
PROBABILITIES = "probabilities"  # how the wrong labels were counted
FORMATS = ".npy, .npz, .csv, .tsv or .parquet"
MEASURED = ("really_wrong", "average_precision", "precision", "recall", "right_suggestions")
"""What is known of an audit where the true labels are known."""

Audited = Annotated[Path | None, argument("Folder of a finished `train`, `fit` or audit.")]


@with_options("label", "image", "skip_bad")
def audit(
    run: Audited = None,
    model: Model = None,
    top: Top = 10,
    out: Annotated[Path | None, option("Output folder.", "--out", "-o", shown="the run's folder")] = None,
    as_json: AsJson = False,
    apply: Annotated[
        bool, flag("Write a corrected copy of the table, or a list of image file moves.", "--apply", panel=CORRECTIONS)
    ] = False,
    decisions: Annotated[
        list[Path] | None,
        option(
            "Apply the decisions in this CSV of the page or JSON export of Label Studio. Repeat it for several people.",
            panel=CORRECTIONS,
        ),
    ] = None,
    above: Annotated[
        float | None, option("Apply suggestions with at least this probability.", panel=CORRECTIONS, min=0, max=1)
    ] = None,
    everything: Annotated[bool, flag("Apply every suggestion.", "--all", panel=CORRECTIONS)] = False,
    force: Annotated[
        bool,
        flag("Apply even though the fit warned that it cannot separate the classes.", "--force", panel=CORRECTIONS),
    ] = False,
    tool_file: Annotated[
        tuple[str, Path] | None,
        option(
            f"Write the suspicious labels for an annotation tool: {', '.join(annotation_tools.TOOLS)}.",
            "--export",
            metavar="TOOL FILE",
        ),
    ] = None,
    overwrite: Overwrite = False,
    encoder: Encoder = None,
    labels: Annotated[Path | None, option(f"Labels: {FORMATS}, or a line each in a text file.", panel=DATA)] = None,
    pred_probs: Annotated[Path | None, option(f"Their out-of-fold probabilities: {FORMATS}.", panel=DATA)] = None,
    class_names: Annotated[
        str | None, option("Names of the classes in the order of the columns: a,b,c or a text file.", panel=DATA)
    ] = None,
    items: Annotated[
        Path | None,
        option("What is labelled, in the order of the labels: table, image folder, or text file of paths.", panel=DATA),
    ] = None,
    *,
    options: Chosen,
) -> None:
    """Estimate how many training labels are wrong, rank them, and suggest corrections.

    RUN is the folder of a finished `train` or `fit`. For any other model, pass --labels, --pred-probs and --out; RUN is
    that folder later.

    Writes audit.csv and audit.html (to review suspicious labels, and to accept or reject suggestions), and for a run
    pred_probs.npy (for other programs). A fit already has these files; its labels are listed. Your data is never
    changed.
    """
    choice = {"--decisions": bool(decisions), "--above": above is not None, "--all": everything}
    chosen = [name for name, given in choice.items() if given]
    if chosen and not apply:
        raise ValueError(f"`{chosen[0]}` requires `--apply`.")
    if apply and len(chosen) != 1:
        given = " and ".join(chosen) or "neither"
        raise ValueError(
            "--apply needs one of --decisions FILE (what you accepted on the page), --above P (suggestions that are "
            f"right with at least this probability) and --all (every suggestion); got {given}"
        )
    if tool_file is not None:
        annotation_tools.targets(tool_file[1], tool_file[0], overwrite)
    own = Own(labels, pred_probs, class_names, items)
    _check_source(run, out, own, options, apply)
    if run is None:
        assert out is not None
        run, found, out = out, _write_own(own, out, overwrite, options), None
    else:
        found = _open(run, model, encoder, "--out" if out is not None and not apply else None, options)
    if apply and found.document.notice and not force:
        raise ValueError(f"{run}: {found.document.notice} To apply its suggestions anyway, add --force.")
    known, corrected = found.document.audit, target_of(found.source, out or run, overwrite) if apply else None
    changes, of_people = _corrections(known, decisions, above or 0.0) if apply else ({}, Outcome())
    exported = (
        []
        if tool_file is None
        else export_for_tool(found.document, found.source.source, found.origin, *tool_file, overwrite)
    )
    files = export.write_document(found.document, out or run) if found.files is None else list(found.files)
    files += exported
    if corrected is not None:
        write_corrected(found.source, found.origin, changes, corrected, of_people.unusable)
        files.append(corrected)
    if as_json:
        print_json(_as_json(found, top, files) | (_people_as_json(found.document, of_people) if apply else {}))
    else:
        _print(found, top)
        if apply:
            mended, broken = decided.expected_effect(known, changes)
            say(
                f"{len(changes):,} labels are changed. By the model's own probabilities, that mends about {mended:.0f} "
                f"and breaks about {broken:.0f}."
            )
            _print_people(found.document, of_people)
        for file in files:
            say(f"written to {visible(str(file))}", err=True)
    if not found.learned:
        raise typer.Exit(3)


def _corrections(audit: Audit, decisions: Sequence[Path] | None, above: float) -> tuple[dict[int, str], Outcome]:
    """Return the labels to change by the position of the example, and what people decided."""
    if not decisions:
        return decided.corrections(audit, above=above), Outcome()
    outcome = decided.merge(one for path in decisions for one in decided.read_decisions(path, audit))
    return decided.changes(audit, outcome), outcome


class Own(NamedTuple):
    """The files of labels and probabilities of any model, and what belongs to them."""

    labels: Path | None
    pred_probs: Path | None
    class_names: str | None
    items: Path | None


def _check_source(run: Path | None, out: Path | None, own: Own, options: Chosen, apply: bool) -> None:
    """Raise ValueError unless there is either a run, or labels with probabilities and an output folder."""
    names = ("--labels", "--pred-probs", "--class-names", "--items")
    given = [name for name, value in zip(names, own, strict=True) if value is not None]
    given += [f"--{name}" for name in ("label", "image") if name in options.given]
    if run is not None and given:
        raise ValueError(f"`{given[0]}` does not apply to the folder of a run; leave out {str(run)!r}.")
    if run is None and (own.labels is None or own.pred_probs is None or out is None):
        raise ValueError("Pass the folder of a `train` or `fit`, or `--labels`, `--pred-probs` and `--out`.")
    if run is None and apply:
        raise ValueError(
            f"`--apply` needs an audit that exists: run the command without it, then `symloss audit {out}`."
        )


def _open(run: Path, model: str | None, encoder: str | None, excess: str | None, options: Chosen) -> Found:
    """Return the audit of a folder. ``excess`` is an option that only a run takes."""
    of_labels = holds_labels(run)
    if not of_labels and not holds_fit(run):
        return _of_run(run, model, options | {"encoder": encoder})
    kind = "an audit" if of_labels else "a `fit`"
    if model is not None:
        raise ValueError(f"`--model` does not apply to {run}, the folder of {kind}.")
    if excess is not None:
        raise ValueError(f"`{excess}` requires `--apply` for {kind}, whose other files exist already.")
    return _of_labels(run) if of_labels else _of_fit(run, encoder)


def _write_own(own: Own, out: Path, overwrite: bool, options: Chosen) -> Found:
    """Audit labels with the probabilities of any model, and write the folder of the audit."""
    from symloss.fit.audit.files import open_items, read_class_names, read_labels, read_probabilities, save
    from symloss.fit.audit.probabilities import audit

    assert own.labels is not None
    assert own.pred_probs is not None
    refuse_other_audit(out, overwrite)
    chances, columns = read_probabilities(own.pred_probs)
    names = columns if own.class_names is None else read_class_names(own.class_names)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = audit(read_labels(own.labels, options["label"]), chances, class_names=names)
    notice = " ".join(str(each.message) for each in caught)
    items = own.items or (own.labels if own.labels.suffix.lower() in TABLES else "")
    source = DataSource(str(items), label=options["label"], image=options["image"])
    data = open_items(source, found)
    low, high = found.n_wrong_interval
    facts = [
        ("Labels", str(own.labels)),
        ("Probabilities", str(own.pred_probs)),
        ("Items", str(items) or None),
        ("Wrong labels", f"{found.n_wrong:,}, range {low:,} to {high:,}"),
        ("Ranked by", "probability that the label is right, given the model's probabilities"),
    ]
    reader = f"symloss audit {out} --apply --decisions FILE"
    document = compose(found, facts, data, source, reader=reader, notice=notice)
    with write_whole_folder(out, drop=(*export.FILES, *OF_AUDITS, AUDIT)) as new:
        labels = save(found, source, data, notice, new)
        files = tuple(out / path.name for path in export.write_document(document, new, probabilities=False))
    return Found(document, labels, data.train.origin, PROBABILITIES, files=files)


def _of_labels(folder: Path) -> Found:
    """Return the audit in a folder, if its items are still the same."""
    from symloss.fit.audit.files import load

    audit, source, data, notice = load(folder)
    document = compose(audit, (), data, source.source, suspects=False, notice=notice)
    return Found(document, source, data.train.origin, PROBABILITIES, files=())


class Found(NamedTuple):
    """The audit of a run or a fit, and where its labels came from."""

    document: AuditDocument
    source: LabelSource
    origin: Origin
    method: str  # how the wrong labels were counted
    learned: bool = True  # whether the model knows anything of the labels
    files: tuple[Path, ...] | None = None  # what was written; None if the files of the audit are to be written
    interval: str = "range"  # what the interval of the count is: all that labels allow, or one of a known level


def _of_run(run: Path, model: str | None, options: dict[str, Any]) -> Found:
    from symloss.fit import audit_run

    found = audit_run(run, model=model, skip_bad=options["skip_bad"], encoder=options["encoder"])
    settings, task = found.settings, found.task
    low, high = found.audit.n_wrong_interval
    facts = [
        ("Run", str(run)),
        ("Data", f"{settings.data}, noise {displayed_noise(settings.data, settings.noise)}"),
        ("Trained with", f"{settings.loss}, {settings.model}, {settings.epochs} epochs"),
        ("Wrong labels", f"{found.audit.n_wrong:,}, {LEVEL} {low:,} to {high:,}; by {found.count.method}"),
        ("Ranked by", "mean margin over all epochs of training"),
        ("Measured", export.measured(found.audit)),
    ]
    if task.validation is not None:
        facts.append(("Not audited", f"{len(task.validation):,} labels that were held out for validation"))
    document = compose(found.audit, facts, task.data, settings.source, reader=READER)
    source, origin = LabelSource(settings.source, settings.noise), task.data.train.origin
    return Found(document, source, origin, found.count.method, interval=LEVEL)


def _of_fit(folder: Path, encoder: str | None = None) -> Found:
    """Return the labels as they were when the fit learned from them; others are refused."""
    from symloss.data.opening import open_data

    _, result = finished_fit(folder, OF_AUDITS)
    source, audit = load_source(folder), load_audit(folder)
    used = source.source.encoder
    if encoder is not None or used.startswith(HUB):  # images are not encoded again
        check_named(None if used in ("auto", "none") else used, folder / SOURCE, encoder)
    data = open_data(source.source, on_bad=warn)
    labels = data.train.labels.numpy()
    as_then = source.fingerprint in (None, data.train.fingerprint()) and data.class_names == audit.class_names
    if not as_then or len(labels) != len(audit):
        raise ValueError(f"{source.source.data} has changed since the fit in {folder}: other data, or other labels.")
    audit = dataclasses.replace(audit, truth=labels if data.labels_are_true else None)
    document = compose(audit, (), data, source.source, suspects=False, notice=result["warning"] or "")
    return Found(document, source, data.train.origin, "the fit", result["learned"], ())


def _print(found: Found, top: int) -> None:
    audit, document = found.document.audit, found.document
    if not found.learned:
        say(document.notice)
        return
    low, high = audit.n_wrong_interval
    share = 100 * audit.n_wrong / len(audit)
    verdict = f"{export.verdict(audit)} ({share:.1f} %; {found.interval} {low:,} to {high:,})"
    for line in filter(None, (verdict, export.measured(audit), document.notice)):
        say(line)
    if top:
        print_rows([printed(row(document, int(place))) for place in audit.order[:top]])


def _as_json(found: Found, top: int, files: list[Path]) -> dict[str, Any]:
    audit, document = found.document.audit, found.document
    return {
        "labels": len(audit),
        "learned": found.learned,
        "warning": document.notice or None,
        "n_wrong": audit.n_wrong if found.learned else None,
        "n_wrong_interval": list(audit.n_wrong_interval),
        "method": found.method,
        **{name: getattr(audit, name) for name in MEASURED},
        "top": [row(document, place) for place in audit.order[:top].tolist()] if found.learned else [],
        "files": [str(file) for file in files],
    }


def _conflicts(document: AuditDocument, outcome: Outcome) -> list[dict[str, Any]]:
    """Return what people contradict each other about: each example with its label, and who decided what."""
    audit, names = document.audit, document.audit.class_names
    return [
        {
            "index": int(audit.positions[place]),
            "example": document.name(place),
            "given": names[audit.given[place]],
            "decisions": [
                {
                    "annotator": one.annotator,
                    "decision": one.decision,
                    "label": None if one.label is None else names[one.label],
                }
                for one in outcome.conflicts[position]
            ],
        }
        for place, position in enumerate(audit.positions.tolist())
        if position in outcome.conflicts
    ]


def _people_as_json(document: AuditDocument, outcome: Outcome) -> dict[str, Any]:
    return {"unusable": outcome.unusable, "conflicts": _conflicts(document, outcome)}


def _print_people(document: AuditDocument, outcome: Outcome) -> None:
    if outcome.unusable:
        say(f"Unusable examples that are left out: {len(outcome.unusable):,}.")
    conflicts = _conflicts(document, outcome)
    if conflicts:
        say(f"Labels that stay as they are, because people contradict each other: {len(conflicts):,}.")
    for one in conflicts:
        votes = (f"{each['annotator']}: {each['label'] or each['decision']}" for each in one["decisions"])
        say("  " + visible(f"{one['example']}, {one['given']}: {', '.join(votes)}"))
