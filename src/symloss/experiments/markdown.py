"""A report as Markdown for GitHub. A footer lists hardware, versions and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from symloss.experiments import provenance
from symloss.experiments.compose import marked
from symloss.experiments.difference import in_words
from symloss.experiments.report import Report, ReportCell, ReportTable, Section
from symloss.experiments.sensitivity_maps import SensitivityMap, rows_in_maps, sensitivity_maps

SPECIAL = re.compile(r"([\\`*_{}\[\]#|!~$])")


def escape(text: str) -> str:
    """A text without markup, HTML and new lines.

    >>> escape("a|b <img> *x*")
    'a\\\\|b &lt;img&gt; \\\\*x\\\\*'
    """
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL.sub(r"\\\1", flat)


def render(report: Report) -> str:
    """The report as the text of a Markdown file."""
    lines: list[str] = []
    for section in report.sections:
        lines += _section(section)
    if not report.sections:
        lines += ["## No run is finished yet", ""]
    lines += _footer(report)
    return "\n".join(lines) + "\n"


def _section(section: Section) -> Iterator[str]:
    yield f"## {escape(section.full_title)}"
    yield ""
    for fact in (section.caption, *section.facts):
        yield escape(fact)
    if section.has_published:
        difference = ", and the difference in standard deviations (sd)" if section.compares else ""
        yield f"Below ours: the published figure as it was printed{difference}."
    if section.has_best:
        yield "Below the last epoch: the best one."
    yield ""
    for table in section.tables:
        if len(section.tables) > 1:
            yield f"### {escape(table.title)}" + (f" - {escape(section.full_title)}" if section.reduced else "")
            yield ""
        rest = marked(table.without(rows_in_maps(table)))
        if rest.rows:
            yield from _table(rest, section)
            yield ""
        for each in sensitivity_maps(table):
            yield from _map(each)


def _table(table: ReportTable, section: Section) -> Iterator[str]:
    extra = list(table.rows[0].settings)
    several = len({head.dataset for head in table.heads}) > 1
    heads = [escape(f"{head.dataset}, {head.noise_text}" if several else head.noise_text) for head in table.heads]
    yield _row(["loss", *extra, *heads])
    yield _row(["---", *["--:"] * (len(extra) + len(heads))])
    for line in table.rows:
        cells = [_cell(cell, section) for cell in line.cells]
        yield _row([escape(line.title), *(escape(value) for value in line.settings.values()), *cells])


def _map(shown: SensitivityMap) -> Iterator[str]:
    yield f"### {escape(shown.title)}"
    yield ""
    yield _row([escape(f"{shown.down}, {shown.across} →"), *(f"{value:g}" for value in shown.columns)])
    yield _row(["--:"] * (1 + len(shown.columns)))
    best = f"{shown.extent[1]:.2f}"
    for value in shown.rows:
        figures = [shown.cells[value, column].last for column in shown.columns]
        texts = ["-" if figure is None else figure.text for figure in figures]
        yield _row([f"{value:g}", *(f"**{text}**" if text.startswith(best) else text for text in texts)])
    yield ""


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: ReportCell, section: Section) -> str:
    ours = "-" if cell.last is None else cell.last.text
    if cell.top:
        ours = f"**{ours}**"
    if cell.last is not None and cell.last.n != section.usual_n:
        ours += f" n={cell.last.n}"
    parts = [ours]
    if section.has_published:
        shown = cell.published
        parts.append("-" if shown is None else f"**{shown.text}**" if shown.bold else shown.text)
        parts += [in_words(cell.difference, cell.p_value)] if section.compares else []
    if section.has_best:
        parts.append("-" if cell.best is None else f"best {cell.best.text}")
    return "<br>".join(parts)


def _footer(report: Report) -> Iterator[str]:
    yield "### How this was made"
    yield ""
    for name, text in provenance.facts(report):
        yield f"- {name}: {escape(text)}{'' if text.endswith('.') else '.'}"
    for line in report.missing:
        yield f"- Without a figure: {escape(line)}."
    for command in provenance.commands(report):
        yield f"- Command: `{' '.join(command.replace('`', '').split())}`"
    yield f"- Written by {provenance.maker()}."
