"""A report as one HTML page. Style, script and pictures are inside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from html import escape

import numpy as np
from numpy.typing import NDArray

from symloss.experiments import provenance
from symloss.experiments.charts import extent, legend, line_chart, ticks
from symloss.experiments.compose import marked
from symloss.experiments.curves import METRICS, Curve, learning_curves, sensitivities, thinned
from symloss.experiments.page_tables import main_table, runs_table
from symloss.experiments.report import Report, ReportTable, Section
from symloss.experiments.sensitivity_maps import picture, rows_in_maps, sensitivity_maps
from symloss.html_page import PAGE_STYLE, html_page, packaged
from symloss.noise.heatmap import CELLS, Transitions, heat_map
from symloss.training.reading import Run

LINES = 14
"""The most lines in a chart. More could not be told apart."""
SENSITIVITIES = 12
"""The most charts of an accuracy by a parameter, for one table."""


def render(report: Report) -> str:
    """The report as the text of an HTML file."""
    body = "\n".join([*_header(report), *_sections(report), *_missing(report)])
    return html_page(_title(report), body, packaged(PAGE_STYLE), packaged("experiments/page.js"))


def _title(report: Report, plain: bool = False) -> str:
    """The title of the page. A plain title does not say that the recipe was reduced."""
    if len(report.sections) == 1:
        return report.sections[0].title if plain else report.sections[0].full_title
    return f"{len(report.sections)} tables" if report.sections else "No run is finished yet"


def _header(report: Report) -> Iterator[str]:
    yield f'<header><p class="eyebrow">symloss report</p><h1>{escape(_title(report, plain=True))}</h1>'
    reduced = list(dict.fromkeys(section.reduced for section in report.sections if section.reduced))
    if reduced:
        some = "" if all(section.reduced for section in report.sections) else "Some of the tables are "
        yield f'<p class="mini">{escape(some + ", ".join(reduced))}</p>'
    yield "</header>"
    facts = provenance.facts(report)
    shown = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    commands = "".join(f"<dd><code>{escape(command)}</code></dd>" for command in provenance.commands(report))
    yield f'<section aria-label="What was run"><dl class="facts">{shown}<dt>Commands</dt>{commands}</dl></section>'
    if len(report.sections) > 1:
        links = "".join(f'<li><a href="#{_id(s)}">{escape(s.full_title)}</a></li>' for s in report.sections)
        yield f'<nav aria-label="Tables"><ul>{links}</ul></nav>'


def _sections(report: Report) -> Iterator[str]:
    for section in report.sections:
        yield _section(section, alone=len(report.sections) == 1)


def _id(section: Section) -> str:
    return escape(f"{section.name}-{section.profile}")


def _section(section: Section, alone: bool) -> str:
    title = f"Accuracy{_reduced(section)}" if alone else escape(section.full_title)
    parts = [f'<section class="table" id="{_id(section)}"><h2>{title}</h2>']
    parts.append(f'<p class="caption">{escape(" ".join((section.caption, *section.facts)))}</p>')
    several = len(section.tables) > 1
    for table in section.tables:
        parts += [f"<h3>{escape(table.title)}</h3>"] if several else []
        rest = marked(table.without(rows_in_maps(table)))
        parts += [main_table(rest, section)] if rest.rows else []
    for table in section.tables:
        where = f"{table.title}: " if several else ""
        parts += [_curves(table, section, where), _noise(table, section, where)]
        parts += [_maps(table, section, where), _sensitivity(table, section, where)]
    parts.append(runs_table(section))
    return "\n".join(part for part in parts if part) + "\n</section>"


def _reduced(section: Section) -> str:
    """A tag for headings, if the figures are not of the published protocol; else an empty text."""
    return f' <span class="tag">{escape(section.reduced)}</span>' if section.reduced else ""


def _best_lines(table: ReportTable) -> list[int]:
    """The rows to draw: those with the largest mean accuracy, at most ``LINES``."""
    means = [
        sum(e.last.mean for e in line.cells if e.last) / max(1, sum(e.last is not None for e in line.cells))
        for line in table.rows
    ]
    order = sorted(range(len(means)), key=lambda i: -means[i])[:LINES]
    return sorted(order)


def _curves(table: ReportTable, section: Section, where: str) -> str:
    lines = _best_lines(table)
    drawn = {metric: learning_curves(table, metric, lines) for metric in METRICS}
    if not any(drawn.values()):
        return ""
    entries = [(i, table.rows[i].title + _differing_settings(table, i)) for i in lines]
    parts = [f'<div class="charts"><h3>{escape(where)}Learning curves{_reduced(section)}</h3>']
    note = "Mean over the seeds, in %, with a band from the least to the largest run."
    if len(lines) < len(table.rows):
        note += f" Drawn are the {len(lines)} best of {len(table.rows)} rows."
    parts.append(f'<p class="caption">{note}</p>{legend(entries)}')
    by_metric = {METRICS[metric]: columns for metric, columns in drawn.items() if columns}
    if len(table.heads) == 1:  # with a single noise, the charts of the metrics stand side by side
        parts.append(_multiples(_figures(columns, what, f"{what}, ") for what, columns in by_metric.items()))
    else:
        parts += [f"<h4>{what}</h4>{_multiples([_figures(columns, what)])}" for what, columns in by_metric.items()]
    return "".join(parts) + "</div>"


def _differing_settings(table: ReportTable, line: int) -> str:
    """The settings in which a row differs from other rows of the same loss."""
    row = table.rows[line]
    same = [other for other in table.rows if other.title == row.title]
    differing = [key for key in row.settings if len({other.settings[key] for other in same}) > 1]
    return "".join(f", {key} {row.settings[key]}" for key in differing)


def _multiples(figures: Iterable[Iterable[str]]) -> str:
    return f'<div class="multiples">{"".join(itertools.chain.from_iterable(figures))}</div>'


def _figures(columns: list[tuple[str, list[Curve]]], what: str, before: str = "") -> list[str]:
    """A chart for each noise. All have the same scale."""
    low, high = extent(curve for _, curves in columns for curve in curves)
    last = max(point.x for _, curves in columns for curve in curves for point in curve.points)
    shown = range(1, int(last) + 1) if last <= 6 else [1, *(tick for tick in ticks(0, last) if 1 < tick <= last)]
    return [
        f"<figure><figcaption>{escape(before + noise)}</figcaption>"
        + line_chart(f"{what} by epoch, noise {noise}", curves, y_range=(low, high), x_title="epoch", x_ticks=shown)
        + "</figure>"
        for noise, curves in columns
    ]


def _noise(table: ReportTable, section: Section, where: str) -> str:
    figures, unchanged = [], []
    for column, head in enumerate(table.heads):
        transitions = realised(run for line in table.rows for run in line.cells[column].runs)
        if transitions is None:
            continue
        draws = "1 draw" if transitions.draws == 1 else f"{transitions.draws} draws together"
        caption = f"<b>{escape(head.noise_text)}</b> {100 * transitions.rate:.1f} % of the labels are wrong; {draws}"
        if transitions.rate == 0:
            unchanged.append(head.noise_text)
            continue
        if len(transitions.classes) > CELLS:
            pairs = (f"{true} → {label} {100 * rate:.1f} %" for true, label, rate in transitions.largest(8))
            caption += f". Most frequent: {escape('; '.join(pairs))}"
        figures.append(f"<figure>{heat_map(transitions)}<figcaption>{caption}</figcaption></figure>")
    if not figures:
        return ""
    note = (
        "The transition matrix as it was realised: of each true class (row) the share of labels, in %, that became "
        "each class (column). The shade grows with the square root of the share."
    )
    note += f" No label was changed: {escape(', '.join(unchanged))}." if unchanged else ""
    return (
        f'<div class="noise"><h3>{escape(where)}What became of the labels{_reduced(section)}</h3>'
        f'<p class="caption">{note}</p><div class="multiples wide">{"".join(figures)}</div></div>'
    )


def realised(runs: Iterable[Run]) -> Transitions | None:
    """The transitions of runs with the same noise; None if no run has a manifest of its noise.

    Runs with the same labels count as one draw.
    """
    draws: dict[str, NDArray[np.int64]] = {}
    classes: tuple[str, ...] = ()
    for run in runs:
        if run.noise is not None:
            draw, counts = run.noise
            draws[draw] = counts
            classes = classes if len(classes) == len(counts) else run.classes
    if not draws or len({len(counts) for counts in draws.values()}) > 1:
        return None
    total = np.sum(list(draws.values()), axis=0)
    if len(classes) != len(total):
        classes = tuple(str(i) for i in range(len(total)))
    return Transitions(classes, total, len(draws))


def _maps(table: ReportTable, section: Section, where: str) -> str:
    maps = sensitivity_maps(table)
    if not maps:
        return ""
    note = (
        f"Accuracy in % after the last epoch on {section.measure}, over two settings; other settings the same. "
        "The shade goes from the least to the largest accuracy of a map."
    )
    figures = [f"<figure><figcaption>{escape(each.title)}</figcaption>{picture(each)}</figure>" for each in maps]
    return (
        f'<div class="noise"><h3>{escape(where)}Sensitivity to two settings{_reduced(section)}</h3>'
        f'<p class="caption">{escape(note)}</p><div class="multiples wide">{"".join(figures)}</div></div>'
    )


def _sensitivity(table: ReportTable, section: Section, where: str) -> str:
    charts = sensitivities(table)
    if not charts:
        return ""
    shown = charts[:SENSITIVITIES]
    entries = {curve.series: curve.title for chart in shown for curve in chart.curves}
    note = (
        f"Accuracy in % after the last epoch on {section.measure}; other settings the same; "
        "a band from the least to the largest run."
    )
    if len(shown) < len(charts):
        note += (
            f" Shown are {len(shown)} of {len(charts)} combinations of the other settings, those with the most values."
        )
    figures = []
    for chart in shown:
        xs = sorted({point.x for curve in chart.curves for point in curve.points})
        drawn = line_chart(
            f"Accuracy of {chart.loss} against {chart.parameter}", chart.curves, y_range=extent(chart.curves),
            x_title=chart.parameter, x_ticks=thinned(xs, 6), markers=True,
        )  # fmt: skip
        caption = f"<b>{escape(chart.loss)}: {escape(chart.parameter)}</b> {escape(chart.rest)}"
        figures.append(f"<figure><figcaption>{caption}</figcaption>{drawn}</figure>")
    return (
        f'<div class="charts"><h3>{escape(where)}Sensitivity{_reduced(section)}</h3>'
        f'<p class="caption">{escape(note)}</p>{legend(sorted(entries.items()))}'
        f"{_multiples([figures])}</div>"
    )


def _missing(report: Report) -> Iterator[str]:
    if report.missing:
        items = "".join(f"<li>{escape(line)}</li>" for line in report.missing)
        yield f'<section class="missing" id="missing"><h2>Runs without a figure</h2><ul>{items}</ul></section>'
