"""Runs of one's own: those that differ in nothing but loss, noise and seed, side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from symloss.data import KNOWN
from symloss.report.document import Block, Entry, Head, Line, Section
from symloss.report.figures import figure
from symloss.report.runs import Run
from symloss.report.sorting import loss_key, noise_key
from symloss.training.settings import Settings, noise_said

OF_A_ROW = ("loss", "weight_decay", "lr", "scores", "penalty")
"""Settings that a loss has presets for; runs that differ in them are rows of the same table."""
OF_A_CELL = ("noise", "seed")
TITLES = {"weight_decay": "weight decay", "lr": "lr", "scores": "scores", "penalty": "L1 penalty"}


def _common(run: Run) -> tuple[tuple[str, Any], ...]:
    """Everything that the runs of a table share, and what their accuracy is measured on."""
    settings = run.settings.to_dict()
    rest = [(name, value) for name, value in settings.items() if name not in OF_A_ROW + OF_A_CELL]
    return (*rest, ("measure", run.measure))


def sections(runs: Iterable[Run]) -> list[Section]:
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
    own = dict(common)
    same_data = [dict(other) for other in others if dict(other)["data"] == own["data"]]
    differing = [name for name in own if len({str(other[name]) for other in same_data}) > 1 and name != "profile"]
    return ", ".join(f"{name.replace('_', ' ')} {own[name]}" for name in differing)


def _section(name: str, runs: list[Run], told_apart: str) -> Section:
    first = runs[0]
    title = f"{first.settings.data}, {told_apart}" if told_apart else first.settings.data
    return Section(
        name=name, title=title, profile=first.settings.profile, measure=measured_on(first), facts=_facts(first),
        blocks=(_block(runs),),
    )  # fmt: skip


def measured_on(run: Run) -> str:
    if run.measure == "test_accuracy":
        return "the clean test set" if run.settings.data in KNOWN else "the test data"
    return f"held-out examples with {run.validation_labels} labels" if run.measure else "nothing (no data was held out)"


def _facts(run: Run) -> tuple[str, ...]:
    settings, found = run.settings, run.found
    sizes = f"{found.get('train', '?')} training examples"
    if settings.subset is not None:
        sizes += f" (a subset of {settings.subset} was drawn: reduced)"
    if found.get("validation"):
        sizes += f", {found['validation']} held out for validation with {run.validation_labels} labels"
    if found.get("test"):
        sizes += f", {found['test']} to test on"
    how = (
        f"Model {settings.model}, {settings.epochs} epochs, batches of {settings.batch}, {settings.optimizer}, "
        f"schedule {settings.schedule}; {sizes}."
    )
    if not found.get("validation"):
        return (how, "Nothing was held out for validation, so there is no best epoch.")
    return (how, f"The best epoch is chosen by the {run.validation_labels} validation labels.")


def _row_of(settings: Settings) -> tuple[Any, ...]:
    return tuple(getattr(settings, name) for name in OF_A_ROW)


def _block(runs: list[Run]) -> Block:
    noises = sorted({run.settings.noise for run in runs}, key=noise_key)
    rows = sorted({_row_of(run.settings) for run in runs}, key=lambda row: (loss_key(row[0]), row[1:]))
    shown = [
        name for i, name in enumerate(OF_A_ROW) if name == "weight_decay" or (i and len({row[i] for row in rows}) > 1)
    ]
    lines = []
    for row in rows:
        values = dict(zip(OF_A_ROW, row, strict=True))
        said = {TITLES[name]: values[name] if name == "scores" else f"{values[name]:g}" for name in shown}
        own = [run for run in runs if _row_of(run.settings) == row]
        entries = tuple(_entry([run for run in own if run.settings.noise == noise]) for noise in noises)
        lines.append(Line(values["loss"], values["loss"], said, entries))
    data = runs[0].settings.data
    return Block(data, tuple(Head(data, noise, noise_said(data, noise)) for noise in noises), tuple(lines))


def _entry(runs: list[Run]) -> Entry:
    runs = sorted(runs, key=lambda run: run.settings.seed)
    if not runs or runs[0].measure is None:
        return Entry(tuple(runs))
    measure = runs[0].measure
    held_out = bool(runs[0].found.get("validation"))
    return Entry(
        tuple(runs),
        last=figure(run.found["last"].get(measure) for run in runs),
        best=figure(run.found["best"].get(measure) for run in runs) if held_out else None,
        memorised=figure(run.found["last"].get("memorised") for run in runs),
    )
