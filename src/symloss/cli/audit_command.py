"""``symloss audit`` finds the labels of a run that look wrong, and lists those of a fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from symloss.cli.options import WHAT, shared
from symloss.cli.output import AsJson, print_json, print_rows, say, visible
from symloss.training.fit_files import finished_fit, holds_fit

if TYPE_CHECKING:
    from symloss.data.dataset import Origin
    from symloss.fit import Audit, RunAudit
    from symloss.fit.audit.export import AuditDocument
    from symloss.fit.saved_audit import LabelSource

READER = "symloss audit RUN --apply --decisions FILE"
"""What reads the CSV of decisions that the page writes."""


@shared({name: WHAT[name] for name in ("data_dir", "skip_bad")})
def audit(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run, or of a fit.", show_default=False)],
    top: Annotated[int, typer.Option(min=0, help="How many of the most suspicious labels to print.")] = 10,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the files.", show_default="the run's folder")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write a corrected copy of a table, or the moves of image files.")
    ] = False,
    decisions: Annotated[
        Path | None, typer.Option(help="With --apply: the CSV of the page. Only what it accepts is changed.")
    ] = None,
    above: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="With --apply: suggestions that are right with at least this probability."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="With --apply: every suggestion.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --apply: although the fit warned that it cannot tell classes apart.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="With --apply: replace an older copy.")] = False,
    model: Annotated[
        str | None, typer.Option(help="The run's module:function again, where the model is yours.")
    ] = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Rank the labels that a run was trained on, say how many are wrong, flag them, and suggest the right ones.

    Writes audit.csv, pred_probs.npy (for other programs) and audit.html (to look at suspicious labels, and to accept or
    reject suggestions). A fit has these files already; its labels are listed. The data is never changed.
    """
    from symloss.cli.audit_apply import effect, refuse_choice, target, write_corrected
    from symloss.fit.audit.export import corrections, write_document

    choice = {"--decisions": decisions is not None, "--above": above is not None, "--all": everything}
    refuse_choice([name for name, given in choice.items() if given], apply)
    fit = holds_fit(run)
    if fit and model is not None:
        raise ValueError(f"--model must be left out for {run}, a fit; got {model!r}")
    if fit and out is not None and not apply:
        raise ValueError("--out must come with --apply for a fit, whose other files are there already; got it alone")
    found = _of_fit(run, options) if fit else _of_run(run, model, options)
    if apply and found.document.notice and not force:
        raise ValueError(f"{run}: {found.document.notice} To apply its suggestions all the same, add --force.")
    corrected = target(found.source, out or run, overwrite) if apply else None
    labels = corrections(found.audit, decisions, above=above or 0.0) if apply else {}
    files = [] if fit else write_document(found.document, out or run)
    if corrected is not None:
        write_corrected(found.source, found.origin, labels, corrected)
        files.append(corrected)
    if as_json:
        print_json(_as_json(found, top, files))
    else:
        _print(found, top)
        if apply:
            say(effect(found.audit, labels))
        for file in files:
            say(f"written to {visible(str(file))}", err=True)
    if not found.learned:
        raise typer.Exit(3)


class Found(NamedTuple):
    """The audit of a run or a fit, and where its labels came from."""

    audit: Audit
    document: AuditDocument
    source: LabelSource
    origin: Origin
    method: str
    """How the wrong labels were counted."""
    learned: bool = True
    """Whether the model knows anything of the labels."""


def _of_run(run: Path, model: str | None, options: dict[str, Any]) -> Found:
    from symloss.fit import audit_run
    from symloss.fit.saved_audit import LabelSource

    found = audit_run(run, model=model, root=options["data_dir"], skip_bad=options["skip_bad"])
    source = LabelSource(found.settings.source, found.settings.noise)
    return Found(found.audit, _document(run, found), source, found.task.data.train.origin, found.count.method)


def _of_fit(folder: Path, options: dict[str, Any]) -> Found:
    """The labels as they were when the fit learned from them; others are refused."""
    from symloss.cli.audit_files import compose
    from symloss.data.opening import open_data
    from symloss.data.source import warn
    from symloss.fit.saved_audit import OF_AUDITS, load_audit, load_source

    _, result = finished_fit(folder, OF_AUDITS)
    source, audit = load_source(folder), load_audit(folder)
    data = open_data(source.source, root=options["data_dir"], on_bad=warn)
    labels = data.train.labels.numpy()
    as_then = source.fingerprint in (None, data.train.fingerprint()) and data.class_names == audit.classes
    if not as_then or len(labels) != len(audit):
        name = source.source.data
        raise ValueError(f"{name} must be the data that {folder} learned from; got other data, or other labels")
    audit = dataclasses.replace(audit, truth=labels if data.labels_are_true else None)
    origin = data.train.origin
    document = compose(audit, (), origin, notice=result["warning"] or "")
    return Found(audit, document, source, origin, "the fit", result["learned"])


def _document(run: Path, found: RunAudit) -> AuditDocument:
    from symloss.cli.audit_files import compose
    from symloss.fit.audit.export import measured

    settings, task = found.settings, found.task
    low, high = found.audit.n_wrong_interval
    facts = [
        ("Run", str(run)),
        ("Data", f"{settings.data}, noise {_noise(found)}"),
        ("Trained with", f"{settings.loss}, {settings.model}, {settings.epochs} epochs"),
        ("Wrong labels", f"{found.audit.n_wrong:,}, 95 % interval {low:,} to {high:,}; by {found.count.method}"),
        ("Ranked by", "mean margin over all epochs of training"),
    ]
    truth = measured(found.audit)
    facts += [("Measured", truth)] if truth is not None else []
    if task.validation is not None:
        facts.append(("Not audited", f"{len(task.validation):,} labels that were held out for validation"))
    origin = task.data.train.origin
    is_table = origin.rows is not None and len(task.data.input_shape) == 1
    table = Path(settings.data) if is_table else None
    return compose(
        found.audit, facts, origin, inputs=task.train.inputs, table=table, label=settings.label, reader=READER
    )


def _noise(found: RunAudit) -> str:
    from symloss.training.settings import displayed_noise

    return displayed_noise(found.settings.data, found.settings.noise)


def _print(found: Found, top: int) -> None:
    from symloss.cli.audit_files import printed, row
    from symloss.fit.audit.export import measured, verdict

    audit, document = found.audit, found.document
    if not found.learned:
        say(document.notice)
        return
    low, high = audit.n_wrong_interval
    share = 100 * audit.n_wrong / len(audit)
    say(f"{verdict(audit)} ({share:.1f} %; 95 % interval {low:,} to {high:,})")
    for line in (measured(audit), document.notice):
        if line:
            say(line)
    if top:
        print_rows([printed(row(document, int(place))) for place in audit.order[:top]])


def _as_json(found: Found, top: int, files: list[Path]) -> dict[str, Any]:
    from symloss.cli.audit_files import row

    audit, document = found.audit, found.document
    return {
        "labels": len(audit),
        "learned": found.learned,
        "warning": document.notice or None,
        "n_wrong": audit.n_wrong if found.learned else None,
        "n_wrong_interval": list(audit.n_wrong_interval),
        "method": found.method,
        "really_wrong": audit.really_wrong,
        "average_precision": audit.average_precision,
        "precision": audit.precision,
        "recall": audit.recall,
        "right_suggestions": audit.right_suggestions,
        "top": [row(document, place) for place in audit.order[:top].tolist()] if found.learned else [],
        "files": [str(file) for file in files],
    }
