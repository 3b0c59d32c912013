"""The tables of the page: the figures beside the published ones, and the settings of every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from symloss.experiments import provenance
from symloss.experiments.charts import breakable
from symloss.experiments.difference import FAR, RARE, in_words, is_far
from symloss.experiments.report import LossRow, ReportCell, ReportTable, Section
from symloss.training.reading import Run
from symloss.training.results import Spread
from symloss.training.settings import displayed_noise


def main_table(table: ReportTable, section: Section) -> str:
    """The table of figures. Rows are losses, columns are data sets and noises. A click on a heading sorts the rows."""
    extra = list(table.rows[0].settings)
    several = len({head.dataset for head in table.heads}) > 1
    heads = [_sortable("loss"), *(_sortable(name, number=name != "scores", setting=True) for name in extra)]
    heads += [_sortable(head.noise_text, above=head.dataset if several else "", number=True) for head in table.heads]
    rows = []
    for line in table.rows:
        cells = [_row_head(line)]
        cells += [
            f'<td data-value="{escape(value)}" class="setting">{escape(value)}</td>' for value in line.settings.values()
        ]
        rows.append(f"<tr>{''.join(cells)}{''.join(_cell(cell, section) for cell in line.cells)}</tr>")
    return _scrolling(f"Accuracy on {table.title}", "figures", _key(section), heads, rows)


def _row_head(line: LossRow) -> str:
    """The heading of a row. On a narrow screen the settings stand below the loss, and their columns are hidden."""
    settings = ", ".join(f"{name} {value}" for name, value in line.settings.items())
    below = f'<div class="settings">{escape(settings)}</div>' if settings else ""
    return f'<th scope="row" data-value="{escape(line.title)}">{breakable(line.title)}{below}</th>'


def _scrolling(label: str, kind: str, key: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    """A table that scrolls sideways if it is too wide. The key below it does not scroll."""
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
    """The key: what the lines of a cell are."""
    parts = ['<span class="ours">ours</span>']
    if section.has_published:
        parts.append("published, as printed")
    if section.compares:
        parts.append(f"difference in standard deviations (▲▼ where p is below {RARE:g}; without a p, beyond {FAR:g})")
    if section.has_best:
        parts.append("best epoch")
    if _shows_memorised(section) and any(cell.memorised for table in section.tables for *_, cell in table.cells()):
        parts.append("share of the wrong labels memorised")
    return " · ".join(parts)


def _cell(cell: ReportCell, section: Section) -> str:
    lines = list(_lines(cell, section))
    value = "" if cell.last is None else f"{cell.last.mean:.6f}"
    return f'<td data-value="{value}">{"".join(lines)}</td>'


def _lines(cell: ReportCell, section: Section) -> Iterator[str]:
    if cell.last is None:
        yield '<div class="ours none">-</div>'
    else:
        n = "" if cell.last.n == section.usual_n else f' <span class="n">n={cell.last.n}</span>'
        yield f'<div class="ours{" top" if cell.top else ""}">{_figure(cell.last)}{n}</div>'
    if cell.published is not None:
        bold = " top" if cell.published.bold else ""
        yield f'<div class="published{bold}" title="published">{escape(cell.published.text)}</div>'
    if cell.published is not None and section.compares:
        yield _difference(cell)
    if cell.best is not None:
        yield f'<div class="aside" title="best epoch">best {_figure(cell.best)}</div>'
    if cell.memorised is not None and _shows_memorised(section):
        title = "share of the wrong labels memorised"
        yield f'<div class="aside" title="{title}">memorised {cell.memorised.mean:.1f}</div>'


def _shows_memorised(section: Section) -> bool:
    """Whether cells show the memorised share. Beside published figures there is no room for it."""
    return not section.has_published


def _figure(figure: Spread) -> str:
    std = "" if figure.std is None else f'<span class="sd">({figure.std:.2f})</span>'
    return f"{figure.mean:.2f}{std}"


def _difference(cell: ReportCell) -> str:
    value = cell.difference
    if value is None:
        return '<div class="difference" title="no spread to measure by">-</div>'
    mark = "" if not is_far(value, cell.p_value) else " above" if value > 0 else " below"
    title = "difference in standard deviations" + ("" if cell.p_value is None else ", and p of Welch's test")
    return f'<div class="difference{mark}" title="{escape(title)}">{escape(in_words(value, cell.p_value))}</div>'


def runs_table(section: Section) -> str:
    """The settings that all runs of a section share, and a table of the others, run by run."""
    runs = section.runs
    settings = [_settings(run) for run in runs]
    shared = {name: value for name, value in settings[0].items() if all(other[name] == value for other in settings)}
    differing = [name for name in settings[0] if name not in shared]
    made = [f"{provenance.software(run)}; {provenance.hardware(run)}" for run in runs]
    several = len(set(made)) > 1
    facts = "".join(
        f"<dt>{escape(_words(name))}</dt><dd>{escape(_displayed(value))}</dd>" for name, value in shared.items()
    )
    if not several:
        facts += f"<dt>versions</dt><dd>{escape(made[0])}</dd>"
    results = ("last", "best", "memorised", "seconds")
    heads = [_sortable("run"), *(_sortable(_words(name), number=_is_number(settings, name)) for name in differing)]
    heads += [_sortable(name, number=True) for name in results]
    heads += [_sortable("versions")] if several else []
    rows = [_run_row(run, differing, versions if several else None) for run, versions in zip(runs, made, strict=True)]
    reduced = f" - {section.reduced}" if section.reduced else ""
    table = _scrolling(f"Runs of {section.title}", "runs", "Accuracy and memorised share in %", heads, rows)
    return (
        f"<details><summary>Settings and versions of {provenance.number(len(runs), 'run')}{escape(reduced)}</summary>"
        f'<h4>The same in all of them</h4><dl class="shared">{facts}</dl><h4>Run by run</h4>{table}</details>'
    )


def _settings(run: Run) -> dict[str, Any]:
    return run.settings.to_dict() | {"noise": displayed_noise(run.settings.data, run.settings.noise)}


def _run_row(run: Run, differing: list[str], versions: str | None) -> str:
    settings = _settings(run)
    result, measure = run.result, run.result.measure
    figures = [
        _percent(None if measure is None else getattr(result.last, measure)),
        _percent(getattr(result.best, measure)) if measure is not None and result.validation else "",
        _percent(result.last.memorised),
        f"{result.seconds:.1f}",
    ]
    cells = [f'<th scope="row">{breakable(run.name)}</th>']
    cells += [_td(_displayed(value), isinstance(value, str)) for value in (settings[name] for name in differing)]
    cells += [_td(text) for text in figures] + ([] if versions is None else [_td(versions, text=True)])
    return f"<tr>{''.join(cells)}</tr>"


def _td(content: str, text: bool = False) -> str:
    kind = ' class="text"' if text else ""
    return f'<td data-value="{escape(content)}"{kind}>{escape(content)}</td>'


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _displayed(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_number(settings: list[dict[str, Any]], name: str) -> bool:
    return all(isinstance(values[name], (int, float)) and not isinstance(values[name], bool) for values in settings)
