"""Sections of runs that belong to no published table. Runs of a section differ only in loss, noise and seed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from symloss.experiments.report import ColumnHead, LossRow, ReportCell, ReportTable, Section
from symloss.experiments.sorting import loss_key, noise_key
from symloss.training.reading import Run
from symloss.training.results import in_percent
from symloss.training.settings import Settings, displayed_noise

OF_A_ROW = ("loss", "weight_decay", "lr", "scores", "penalty")
"""Settings that may differ between the rows of a table: a loss has presets for them."""
OF_A_CELL = ("noise", "seed")
"""Settings that may differ between the runs of a row."""
TITLES = {"weight_decay": "weight decay", "lr": "lr", "scores": "scores", "penalty": "L1 penalty"}


def _common(run: Run) -> tuple[tuple[str, Any], ...]:
    """What the runs of a table share: settings, and the metric that is reported as their accuracy."""
    settings = run.settings.to_dict()
    rest = [(name, value) for name, value in settings.items() if name not in OF_A_ROW + OF_A_CELL]
    return (*rest, ("measure", run.result.measure))


def sections(runs: Iterable[Run]) -> list[Section]:
    """A section for each group of runs that share all settings but those of rows and cells."""
    groups: dict[tuple[tuple[str, Any], ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(_common(run), []).append(run)
    ordered = sorted(groups, key=str)
    return [
        _section(f"runs-{number}", groups[common], _told_apart(common, ordered))
        for number, common in enumerate(ordered, start=1)
    ]


def _told_apart(common: tuple[tuple[str, Any], ...], others: list[tuple[tuple[str, Any], ...]]) -> str:
    """The settings in which a group differs from the others on the same data."""
    shared = dict(common)
    same_data = [dict(other) for other in others if dict(other)["data"] == shared["data"]]
    differing = [name for name in shared if len({str(other[name]) for other in same_data}) > 1 and name != "profile"]
    return ", ".join(f"{name.replace('_', ' ')} {shared[name]}" for name in differing)


def _section(name: str, runs: list[Run], told_apart: str) -> Section:
    first = runs[0]
    title = f"{first.settings.data}, {told_apart}" if told_apart else first.settings.data
    return Section(
        name=name, title=title, profile=first.settings.profile, measure=measured_on(first), facts=_facts(first),
        tables=(_table(runs),),
    )  # fmt: skip


def measured_on(run: Run) -> str:
    """The data that the accuracy of a run is measured on, in words."""
    result = run.result
    if result.measure == "test_accuracy":
        return "the clean test set" if run.settings.data_is_published else "the test data"
    if result.measure is None:
        return "nothing (no data was held out)"
    return f"held-out examples with {result.validation_labels} labels"


def _facts(run: Run) -> tuple[str, ...]:
    settings, result = run.settings, run.result
    sizes = f"{result.train} training examples"
    if settings.subset is not None:
        sizes += f" (a subset of {settings.subset} was drawn: reduced)"
    if result.validation:
        sizes += f", {result.validation} held out for validation with {result.validation_labels} labels"
    if result.test:
        sizes += f", {result.test} to test on"
    how = (
        f"Model {settings.model}, {settings.epochs} epochs, batches of {settings.batch}, {settings.optimizer}, "
        f"schedule {settings.schedule}; {sizes}."
    )
    if not result.validation:
        return (how, "Nothing was held out for validation, so there is no best epoch.")
    smoothed = "" if result.smoothed is None else ", smoothed over up to five epochs"
    return (how, f"The best epoch is chosen by the {result.validation_labels} validation labels{smoothed}.")


def _row_of(settings: Settings) -> tuple[Any, ...]:
    return tuple(getattr(settings, name) for name in OF_A_ROW)


def _table(runs: list[Run]) -> ReportTable:
    noises = sorted({run.settings.noise for run in runs}, key=noise_key)
    rows = sorted({_row_of(run.settings) for run in runs}, key=lambda row: (loss_key(row[0]), row[1:]))
    shown = [
        name for i, name in enumerate(OF_A_ROW) if name == "weight_decay" or (i and len({row[i] for row in rows}) > 1)
    ]
    lines = []
    for row in rows:
        values = dict(zip(OF_A_ROW, row, strict=True))
        settings = {TITLES[name]: values[name] if name == "scores" else f"{values[name]:g}" for name in shown}
        of_row = [run for run in runs if _row_of(run.settings) == row]
        cells = tuple(_cell([run for run in of_row if run.settings.noise == noise]) for noise in noises)
        lines.append(LossRow(values["loss"], values["loss"], settings, cells))
    data = runs[0].settings.data
    heads = tuple(ColumnHead(data, noise, displayed_noise(data, noise)) for noise in noises)
    return ReportTable(data, heads, tuple(lines))


def _cell(runs: list[Run]) -> ReportCell:
    runs = sorted(runs, key=lambda run: run.settings.seed)
    if not runs or runs[0].result.measure is None:
        return ReportCell(tuple(runs))
    measure, results = runs[0].result.measure, [run.result for run in runs]
    return ReportCell(
        tuple(runs),
        last=in_percent(getattr(result.last, measure) for result in results),
        best=in_percent(getattr(result.best, measure) for result in results) if results[0].validation else None,
        memorised=in_percent(result.last.memorised for result in results),
    )
