"""A report as one HTML page. Style, script and pictures are inside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from symloss.experiments import curves, report as reports
from symloss.experiments.charts import breakable, extent, legend, line_chart, map_picture, ticks
from symloss.experiments.curves import Curve
from symloss.experiments.difference import FAR, RARE, is_far
from symloss.experiments.report import MEMORISED, Figure, LossRow, Report, ReportCell, ReportTable, Section
from symloss.experiments.significance import LEGEND
from symloss.html_page import PAGE_STYLE, html_page, packaged
from symloss.noise.heatmap import CELLS, Transitions, heat_map
from symloss.training.reading import Run
from symloss.training.settings import displayed_noise

LINES = 14  # the most lines in a chart. More could not be distinguished.
BAND = "a band from the least to the largest run"
SENSITIVITIES = 12  # the most charts of an accuracy by a parameter, for one table


def render(report: Report) -> str:
    """Return the report as the text of an HTML file."""
    sections = [_section(section, alone=len(report.sections) == 1) for section in report.sections]
    items = "".join(f"<li>{escape(line)}</li>" for line in report.missing)
    missing = f'<section class="missing" id="missing"><h2>Runs without a figure</h2><ul>{items}</ul></section>'
    body = "\n".join([*_header(report), *sections, *([missing] if items else [])])
    return html_page(_title(report), body, packaged(PAGE_STYLE), packaged("experiments/page.js"))


def _title(report: Report, plain: bool = False) -> str:
    """Return the title of the page. A plain title does not say that the recipe was reduced."""
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
    facts = _pairs(report.facts)
    commands = "".join(f"<dd><code>{escape(command)}</code></dd>" for command in report.commands)
    yield f'<section aria-label="What was run"><dl class="facts">{facts}<dt>Commands</dt>{commands}</dl></section>'
    if len(report.sections) > 1:
        links = "".join(f'<li><a href="#{_id(s)}">{escape(s.full_title)}</a></li>' for s in report.sections)
        yield f'<nav aria-label="Tables"><ul>{links}</ul></nav>'


def _id(section: Section) -> str:
    return escape(f"{section.name}-{section.profile}")


def _section(section: Section, alone: bool) -> str:
    title = f"Accuracy{_reduced(section)}" if alone else escape(section.full_title)
    parts = [f'<section class="table" id="{_id(section)}"><h2>{title}</h2>']
    parts.append(f'<p class="caption">{escape(" ".join((section.caption, *section.facts)))}</p>')
    several = len(section.tables) > 1
    for table in section.tables:
        parts += [f"<h3>{escape(table.title)}</h3>"] if several else []
        rest = table.without(curves.rows_in_maps(table))
        parts += [main_table(rest, section)] if rest.rows else []
    for table in section.tables:
        for block in (_curves(table), _noise(table), _maps(table, section), _sensitivity(table, section)):
            if block is not None:
                title = escape(f"{table.title}: {block.title}" if several else block.title) + _reduced(section)
                head = f'<div class="{block.css_class}"><h3>{title}</h3><p class="caption">{escape(block.note)}</p>'
                parts.append(f"{head}{block.content}</div>")
    parts.append(runs_table(section))
    return "\n".join(part for part in parts if part) + "\n</section>"


class Block(NamedTuple):
    """Pictures of a table below a heading."""

    css_class: str
    title: str
    note: str
    content: str


def _reduced(section: Section) -> str:
    """Return a tag for headings, if the figures are not of the published protocol; else an empty text."""
    return f' <span class="tag">{escape(section.reduced)}</span>' if section.reduced else ""


def _best_lines(table: ReportTable) -> list[int]:
    """Return the rows to draw: those with the largest mean accuracy, at most ``LINES``."""
    accuracies = [[cell.last.mean for cell in line.cells if cell.last] for line in table.rows]
    means = [sum(each) / max(1, len(each)) for each in accuracies]
    return sorted(sorted(range(len(means)), key=lambda i: -means[i])[:LINES])


def _curves(table: ReportTable) -> Block | None:
    lines = _best_lines(table)
    drawn = ((what, curves.learning_curves(table, metric, lines)) for metric, what in curves.METRICS.items())
    by_metric = {what: columns for what, columns in drawn if columns}
    if not by_metric:
        return None
    note = f"Mean over the seeds, in %, with {BAND}."
    if len(lines) < len(table.rows):
        note += f" Drawn are the {len(lines)} best of {len(table.rows)} rows."
    parts = [legend([(i, table.rows[i].title + _differing_settings(table, i)) for i in lines])]
    if len(table.heads) == 1:  # with a single noise, the charts of the metrics stand side by side
        parts.append(_multiples(_figures(columns, what, f"{what}, ") for what, columns in by_metric.items()))
    else:
        parts += [f"<h4>{what}</h4>{_multiples([_figures(columns, what)])}" for what, columns in by_metric.items()]
    return Block("charts", "Learning curves", note, "".join(parts))


def _differing_settings(table: ReportTable, line: int) -> str:
    """Return the settings in which a row differs from other rows of the same loss."""
    row = table.rows[line]
    same = [other for other in table.rows if other.title == row.title]
    differing = [key for key in row.settings if len({other.settings[key] for other in same}) > 1]
    return "".join(f", {key} {row.settings[key]}" for key in differing)


def _multiples(figures: Iterable[Iterable[str]], wide: bool = False) -> str:
    return f'<div class="multiples{" wide" * wide}">{"".join(itertools.chain.from_iterable(figures))}</div>'


def _figures(columns: list[tuple[str, list[Curve]]], what: str, before: str = "") -> list[str]:
    """Return a chart for each noise. All have the same scale."""
    every = [curve for _, lines in columns for curve in lines]
    last = max(point.x for curve in every for point in curve.points)
    shown = range(1, int(last) + 1) if last <= 6 else [1, *(tick for tick in ticks(0, last) if 1 < tick <= last)]
    return [
        f"<figure><figcaption>{escape(before + noise)}</figcaption>"
        + line_chart(f"{what} by epoch, noise {noise}", lines, y_range=extent(every), x_title="epoch", x_ticks=shown)
        + "</figure>"
        for noise, lines in columns
    ]


def _noise(table: ReportTable) -> Block | None:
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
        if len(transitions.class_names) > CELLS:
            pairs = (f"{true} → {label} {100 * rate:.1f} %" for true, label, rate in transitions.largest(8))
            caption += f". Most frequent: {escape('; '.join(pairs))}"
        figures.append(f"<figure>{heat_map(transitions)}<figcaption>{caption}</figcaption></figure>")
    if not figures:
        return None
    note = (
        "The transition matrix as it was realised: of each true class (row) the share of labels, in %, that became "
        "each class (column). The shade grows with the square root of the share."
    )
    note += f" No label was changed: {', '.join(unchanged)}." if unchanged else ""
    return Block("noise", "What became of the labels", note, _multiples([figures], wide=True))


def realised(runs: Iterable[Run]) -> Transitions | None:
    """Return the transitions of runs with one noise, where the same labels are one draw; None without manifests."""
    draws: dict[str, NDArray[np.int64]] = {}
    classes: tuple[str, ...] = ()
    for run in runs:
        if run.noise is not None:
            draw, counts = run.noise
            draws[draw] = counts
            classes = classes if len(classes) == len(counts) else run.class_names
    if not draws or len({len(counts) for counts in draws.values()}) > 1:
        return None
    total = np.sum(list(draws.values()), axis=0)
    if len(classes) != len(total):
        classes = tuple(str(i) for i in range(len(total)))
    return Transitions(classes, total, len(draws))


def _maps(table: ReportTable, section: Section) -> Block | None:
    maps = curves.sensitivity_maps(table)
    if not maps:
        return None
    note = (
        f"Accuracy in % after the last epoch on {section.measure}, over two settings; other settings the same. "
        "The shade goes from the least to the largest accuracy of a map."
    )
    figures = [f"<figure><figcaption>{escape(each.title)}</figcaption>{map_picture(each)}</figure>" for each in maps]
    return Block("noise", "Sensitivity to two settings", note, _multiples([figures], wide=True))


def _sensitivity(table: ReportTable, section: Section) -> Block | None:
    charts = curves.sensitivities(table)
    if not charts:
        return None
    shown = charts[:SENSITIVITIES]
    entries = {curve.series: curve.title for chart in shown for curve in chart.curves}
    note = f"Accuracy in % after the last epoch on {section.measure}; other settings the same; {BAND}."
    if len(shown) < len(charts):
        note += f" Shown are {len(shown)} of {len(charts)} combinations of other settings, those with the most values."
    figures = []
    for chart in shown:
        xs = sorted({point.x for curve in chart.curves for point in curve.points})
        title, shown_xs = f"Accuracy of {chart.loss} against {chart.parameter}", curves.thinned(xs, 6)
        drawn = line_chart(title, chart.curves, x_title=chart.parameter, x_ticks=shown_xs, markers=True)
        caption = f"<b>{escape(chart.loss)}: {escape(chart.parameter)}</b> {escape(chart.rest)}"
        figures.append(f"<figure><figcaption>{caption}</figcaption>{drawn}</figure>")
    return Block("charts", "Sensitivity", note, legend(sorted(entries.items())) + _multiples([figures]))


def main_table(table: ReportTable, section: Section) -> str:
    """Return the table of figures: losses as rows, data sets and noises as columns. A click on a heading sorts it."""
    extra = list(table.rows[0].settings)
    several = table.several_datasets
    heads = [_sortable("loss"), *(_sortable(name, number=name != "scores", setting=True) for name in extra)]
    heads += [_sortable(head.noise_text, above=head.dataset if several else "", number=True) for head in table.heads]
    rows = []
    for line in table.rows:
        settings = [_td(value, "setting") for value in line.settings.values()]
        cells = [_row_head(line), *settings, *(_cell(cell, section) for cell in line.cells)]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return _scrolling(f"Accuracy on {table.title}", "figures", _key(section), heads, rows)


def _row_head(line: LossRow) -> str:
    """Return the heading of a row. On a narrow screen the settings stand below the loss, not in columns."""
    settings = ", ".join(f"{name} {value}" for name, value in line.settings.items())
    below = f'<div class="settings">{escape(settings)}</div>' if settings else ""
    return f'<th scope="row" data-value="{escape(line.title)}">{breakable(line.title)}{below}</th>'


def _scrolling(label: str, kind: str, key: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    """Return a table that scrolls sideways if it is too wide. The key below it does not scroll."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}"><table class="{kind}">'
        f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="key">{key}</p>'
    )


def _sortable(title: str, *, above: str = "", number: bool = False, setting: bool = False) -> str:
    over = f'<span class="over">{escape(above)}</span>' if above else ""
    kind = "number" if number else "text"
    css_class = ' class="setting"' if setting else ""
    return (
        f'<th{css_class} scope="col" aria-sort="none" data-kind="{kind}"><button type="button">{over}{escape(title)}'
        f'<span class="arrow" aria-hidden="true"></span></button></th>'
    )


def _key(section: Section) -> str:
    """Return the key: what the lines of a cell are."""
    parts = ['<span class="ours">ours</span>']
    if section.has_published:
        parts.append("published, as printed")
    if section.compares:
        parts.append(f"difference in standard deviations (▲▼ where p is below {RARE:g}; without a p, beyond {FAR:g})")
    if section.has_best:
        parts.append("best epoch")
    if not section.has_published and any(cell.memorised for cell in section.cells()):
        parts.append(MEMORISED)
    legend_of_marks = f"<br>{escape(section.legend)}" if section.legend else ""
    return " · ".join(parts) + legend_of_marks


def _cell(cell: ReportCell, section: Section) -> str:
    lines = [_line(figure, cell) for figure in section.figures(cell)]
    if cell.memorised is not None and not section.has_published:  # beside published figures there is no room for it
        lines.append(f'<div class="aside" title="{MEMORISED}">memorised {cell.memorised.mean:.1f}</div>')
    value = "" if cell.last is None else f"{cell.last.mean:.6f}"
    return f'<td data-value="{value}">{"".join(lines)}</td>'


def _line(figure: Figure, cell: ReportCell) -> str:
    """Return a line of a cell; an empty text where there is no such figure."""
    text = escape(figure.text)
    spread = text.replace("(", '<span class="sd">(').replace(")", ")</span>")
    if figure.kind == "ours":
        n = "" if figure.n is None else f' <span class="n">n={figure.n}</span>'
        if figure.mark:
            n = f'<sup title="{escape(LEGEND[figure.mark])}">{figure.mark}</sup>{n}'
        return f'<div class="ours{" top" if figure.bold else " none" if text == "-" else ""}">{spread}{n}</div>'
    if figure.kind == "difference" and cell.published is not None:
        far = is_far(cell.difference, cell.p_value)
        mark = "" if not far or cell.difference is None else " above" if cell.difference > 0 else " below"
        title = "difference in standard deviations" + ("" if cell.p_value is None else ", and p of Welch&#x27;s test")
        title = "no spread to measure by" if text == "-" else title
        return f'<div class="difference{mark}" title="{title}">{text}</div>'
    if text == "-":
        return ""
    if figure.kind == "published":
        return f'<div class="published{" top" * figure.bold}" title="published">{text}</div>'
    return f'<div class="aside" title="best epoch">best {spread}</div>'


def runs_table(section: Section) -> str:
    """Return the settings that all runs of a section share, and a table of the others, run by run."""
    runs = section.runs
    settings = [_settings(run) for run in runs]
    shared = {name: value for name, value in settings[0].items() if all(other[name] == value for other in settings)}
    differing = [name for name in settings[0] if name not in shared]
    heads = [_sortable("run")]
    for name in differing:
        heads.append(_sortable(name, number=all(type(values[name]) in (int, float) for values in settings)))
    heads += [_sortable(name, number=True) for name in ("last", "best", "memorised", "seconds")]
    rows = [_run_row(run, [each[name] for name in differing]) for run, each in zip(runs, settings, strict=True)]
    reduced = f" - {section.reduced}" if section.reduced else ""
    table = _scrolling(f"Runs of {section.title}", "runs", "Accuracy and memorised share in %", heads, rows)
    facts = _pairs((name, _displayed(value)) for name, value in shared.items())
    return (
        f"<details><summary>Settings and versions of {reports.number(len(runs), 'run')}{escape(reduced)}</summary>"
        f'<h4>The same in all of them</h4><dl class="shared">{facts}</dl><h4>Run by run</h4>{table}</details>'
    )


def _pairs(facts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)


def _settings(run: Run) -> dict[str, Any]:
    """Return all settings of a run in words, and what it was made with."""
    told = run.settings.to_dict() | {"noise": displayed_noise(run.settings.data, run.settings.noise)}
    made = f"{reports.software(run)}; {reports.hardware(run)}"
    return {name.replace("_", " "): value for name, value in told.items()} | {"versions": made}


def _run_row(run: Run, settings: list[Any]) -> str:
    result, measure = run.result, run.result.measure
    last = None if measure is None else getattr(result.last, measure)
    best = getattr(result.best, measure) if measure is not None and result.validation else None
    shares = ["" if share is None else f"{100 * share:.2f}" for share in (last, best, result.last.memorised)]
    cells = [_td(_displayed(value), "text" * isinstance(value, str)) for value in settings]
    cells += [_td(text) for text in (*shares, f"{result.seconds:.1f}")]
    return f'<tr><th scope="row">{breakable(run.name)}</th>{"".join(cells)}</tr>'


def _td(content: str, css_class: str = "") -> str:
    kind = f' class="{css_class}"' if css_class else ""
    return f'<td data-value="{escape(content)}"{kind}>{escape(content)}</td>'


def _displayed(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
