"""A report as CSV: a line for each cell, over its seeds, and for each run that has no figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from symloss.recipes.published_tables import SPREADS
from symloss.report.document import Block, Entry, Head, Line, Report, Section
from symloss.report.figures import Figure
from symloss.text import plain
from symloss.training.settings import noise_said, profile_said

COLUMNS = (
    "table", "profile", "dataset", "loss", "title", "noise", "status", "measure", "n", "seeds", "mean", "std",
    "best_epoch_mean", "best_epoch_std", "memorised_mean", "memorised_std", "published", "published_spread",
    "published_spread_kind", "published_bold", "difference", "top", "lr", "weight_decay", "validation_labels", "model",
    "epochs", "subset", "runs",
)  # fmt: skip


def render(report: Report) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for section in report.sections:
        for block in section.blocks:
            for row in _rows(section, block):
                writer.writerow(_safe(row))
    for row in _missing(report):
        writer.writerow(_safe(row))
    return text.getvalue()


def _safe(row: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) if isinstance(value, str) else _short(value) for name, value in row.items()}


def _short(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else "" if value is None else value


def _rows(section: Section, block: Block) -> Iterator[dict[str, Any]]:
    for line, head, entry in block.cells():
        if entry.runs or entry.published:
            yield _row(section, line, head, entry)


def _row(section: Section, line: Line, head: Head, entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {
        "table": section.name, "profile": profile_said(section.profile), "dataset": head.dataset, "loss": line.loss,
        "title": line.title, "noise": head.said, "status": "finished" if entry.runs else "not run",
        "measure": section.measure, "n": len(entry.runs), "difference": entry.difference, "top": int(entry.top),
    }  # fmt: skip
    row |= _pair("mean", "std", entry.last) | _pair("best_epoch_mean", "best_epoch_std", entry.best)
    row |= _pair("memorised_mean", "memorised_std", entry.memorised)
    if entry.published is not None and section.recipe is not None:
        row |= {
            "published": entry.published.value, "published_spread": entry.published.spread,
            "published_spread_kind": SPREADS[section.recipe.spread], "published_bold": int(entry.published.bold),
        }  # fmt: skip
    if entry.runs:
        first = entry.runs[0]
        settings = first.settings
        row |= {name: getattr(settings, name) for name in ("loss", "lr", "weight_decay", "model", "epochs", "subset")}
        row["validation_labels"] = first.validation_labels
        row["seeds"] = " ".join(str(run.settings.seed) for run in entry.runs)
        row["runs"] = "; ".join(run.name for run in entry.runs)
    return row


def _pair(mean: str, std: str, figure: Figure | None) -> dict[str, Any]:
    return {} if figure is None else {mean: figure.mean, std: figure.std}


def _missing(report: Report) -> Iterator[dict[str, Any]]:
    reasons = [(run, run.progress) for run in report.runs.unfinished]
    reasons += [(run, f"not tested on {data} yet") for run, data in report.untested]
    reasons += [(run, f"repeats {other.name}") for run, other in report.runs.repeated]
    for run, reason in reasons:
        settings = run.settings
        yield {
            "profile": profile_said(settings.profile), "dataset": settings.data, "loss": settings.loss,
            "status": reason, "noise": noise_said(settings.data, settings.noise), "n": 0,
            "seeds": str(settings.seed), "runs": run.name, "lr": settings.lr, "weight_decay": settings.weight_decay,
            "model": settings.model, "epochs": settings.epochs,
        }  # fmt: skip
