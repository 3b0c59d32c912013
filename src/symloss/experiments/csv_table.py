"""A report as CSV. Each cell has a line with its figures over all seeds. Each run without a figure has a line too."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from symloss.experiments.report import ColumnHead, LossRow, Report, ReportCell, ReportTable, Section
from symloss.experiments.tables import SPREADS
from symloss.training.results import Spread
from symloss.training.settings import displayed_noise, displayed_profile
from symloss.writing import without_formula

COLUMNS = (
    "table", "profile", "dataset", "loss", "title", "noise", "status", "measure", "n", "seeds", "mean", "std",
    "best_epoch_mean", "best_epoch_std", "memorised_mean", "memorised_std", "published", "published_spread",
    "published_spread_kind", "published_bold", "difference", "p_value", "top", "lr", "weight_decay",
    "validation_labels", "model", "epochs", "subset", "runs",
)  # fmt: skip


def render(report: Report) -> str:
    """The report as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for section in report.sections:
        for table in section.tables:
            for row in _rows(section, table):
                writer.writerow(_safe(row))
    for row in _missing(report):
        writer.writerow(_safe(row))
    return text.getvalue()


def _safe(row: dict[str, Any]) -> dict[str, Any]:
    return {name: without_formula(value) if isinstance(value, str) else _short(value) for name, value in row.items()}


def _short(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else "" if value is None else value


def _rows(section: Section, table: ReportTable) -> Iterator[dict[str, Any]]:
    for line, head, cell in table.cells():
        if cell.runs or cell.published:
            yield _row(section, line, head, cell)


def _row(section: Section, line: LossRow, head: ColumnHead, cell: ReportCell) -> dict[str, Any]:
    row: dict[str, Any] = {
        "table": section.name, "profile": displayed_profile(section.profile), "dataset": head.dataset,
        "loss": line.loss, "title": line.title, "noise": head.noise_text,
        "status": "finished" if cell.runs else "not run",
        "measure": section.measure, "n": len(cell.runs), "difference": cell.difference,
        "p_value": cell.p_value, "top": int(cell.top),
    }  # fmt: skip
    row |= _pair("mean", "std", cell.last) | _pair("best_epoch_mean", "best_epoch_std", cell.best)
    row |= _pair("memorised_mean", "memorised_std", cell.memorised)
    if cell.published is not None and section.recipe is not None:
        row |= {
            "published": cell.published.value, "published_spread": cell.published.spread,
            "published_spread_kind": SPREADS[section.recipe.spread], "published_bold": int(cell.published.bold),
        }  # fmt: skip
    if cell.runs:
        first = cell.runs[0]
        settings = first.settings
        row |= {name: getattr(settings, name) for name in ("loss", "lr", "weight_decay", "model", "epochs", "subset")}
        row["validation_labels"] = first.result.validation_labels
        row["seeds"] = " ".join(str(run.settings.seed) for run in cell.runs)
        row["runs"] = "; ".join(run.name for run in cell.runs)
    return row


def _pair(mean: str, std: str, figure: Spread | None) -> dict[str, Any]:
    return {} if figure is None else {mean: figure.mean, std: figure.std}


def _missing(report: Report) -> Iterator[dict[str, Any]]:
    reasons = [(run, run.progress) for run in report.runs.unfinished]
    reasons += [(run, f"not tested on {data} yet") for run, data in report.untested]
    reasons += [(run, f"repeats {other.name}") for run, other in report.runs.repeated]
    for run, reason in reasons:
        settings = run.settings
        yield {
            "profile": displayed_profile(settings.profile), "dataset": settings.data, "loss": settings.loss,
            "status": reason, "noise": displayed_noise(settings.data, settings.noise), "n": 0,
            "seeds": str(settings.seed), "runs": run.name, "lr": settings.lr, "weight_decay": settings.weight_decay,
            "model": settings.model, "epochs": settings.epochs,
        }  # fmt: skip
