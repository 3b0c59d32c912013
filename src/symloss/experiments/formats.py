"""A report as Markdown for GitHub, as LaTeX tables for a paper, and as CSV with a line for each cell.

LaTeX needs no packages but ``graphicx`` and ``multirow``.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from symloss.experiments.curves import SensitivityMap, rows_in_maps, sensitivity_maps
from symloss.experiments.difference import chance, signed
from symloss.experiments.report import ColumnHead, Figure, LossRow, Report, ReportCell, ReportTable, Section
from symloss.experiments.significance import ALIKE, UNTESTED
from symloss.experiments.tables import SPREADS
from symloss.html_page import WRITER
from symloss.noise.spec import parse as parse_noise
from symloss.training.reading import Run
from symloss.training.settings import displayed_noise, displayed_profile
from symloss.writing import without_formula

MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]#|!~$])")
LATEX_SPECIAL = {char: f"\\{char}" for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\u03b1": r"$\alpha$",
    "²": r"$^2$",
    ALIKE: r"$^\dagger$",
    UNTESTED: r"$^\ddagger$",
    **{char: rf"{{\{name}}}" for char, name in zip("ßæÆøØ", ("ss", "ae", "AE", "o", "O"), strict=True)},
}
MARKS = "\u0300\u0301\u0302\u0303\u0308\u030a\u0327\u030c\u0304\u0306\u030b\u0307"
ACCENTS = dict(zip(MARKS, "`'^~\"rcv=uH.", strict=True))
"""The command of LaTeX for each combining mark of Unicode."""
GROUPS = {"sym": r"Symmetric noise rate ($\eta$)", "asym": r"Asymmetric noise rate ($\eta$)"}
CSV_COLUMNS = (
    *("table", "profile", "dataset", "loss", "title", "noise", "status", "measure", "n", "seeds", "mean", "std"),
    *("best_epoch_mean", "best_epoch_std", "memorised_mean", "memorised_std"),
    *("published", "published_spread", "published_spread_kind", "published_bold", "difference", "p_value"),
    *("top", "p_best"),
    *("lr", "weight_decay", "validation_labels", "model", "epochs", "subset", "runs"),
)


def escape_markdown(text: str) -> str:
    """Return a text without markup, HTML and new lines.

    >>> escape_markdown("a|b <img> *x*")
    'a\\\\|b &lt;img&gt; \\\\*x\\\\*'
    """
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return MARKDOWN_SPECIAL.sub(r"\\\1", flat)


def markdown(report: Report) -> str:
    """Return the report as the text of a Markdown file. A footer lists hardware, versions and commands."""
    lines = [line for section in report.sections for line in _markdown_section(section)]
    if not report.sections:
        lines += ["## No run is finished yet", ""]
    lines += ["### How this was made", ""]
    for name, text in report.facts:
        lines.append(f"- {name}: {escape_markdown(text)}{'' if text.endswith('.') else '.'}")
    lines += [f"- Without a figure: {escape_markdown(line)}." for line in report.missing]
    lines += [f"- Command: `{' '.join(command.replace('`', '').split())}`" for command in report.commands]
    return "\n".join([*lines, f"- {WRITER}"]) + "\n"


def _markdown_section(section: Section) -> Iterator[str]:
    title = escape_markdown(section.full_title)
    yield from (f"## {title}", "", *map(escape_markdown, (section.caption, *section.facts)))
    if section.has_published:
        difference = ", and the difference in standard deviations (sd)" if section.compares else ""
        yield f"Below ours: the published figure as it was printed{difference}."
    if section.has_best:
        yield "Below the last epoch: the best one."
    yield ""
    for table in section.tables:
        if len(section.tables) > 1:
            yield from (f"### {escape_markdown(table.title)}" + (f" - {title}" if section.reduced else ""), "")
        rest = table.without(rows_in_maps(table))
        if rest.rows:
            yield from _markdown_table(rest, section)
            yield from (section.legend, "") if section.legend else ()
        for shown in sensitivity_maps(table):
            yield from _markdown_map(shown)


def _markdown_table(table: ReportTable, section: Section) -> Iterator[str]:
    extra = list(table.rows[0].settings)
    heads = [f"{head.dataset}, " * table.several_datasets + head.noise_text for head in table.heads]
    yield _markdown_row(["loss", *extra, *map(escape_markdown, heads)])
    yield _markdown_row(["---", *["--:"] * (len(extra) + len(heads))])
    for line in table.rows:
        cells = ["<br>".join(map(_markdown_figure, section.figures(cell))) for cell in line.cells]
        yield _markdown_row([*map(escape_markdown, (line.title, *line.settings.values())), *cells])
    yield ""


def _markdown_figure(figure: Figure) -> str:
    best = "best " * (figure.kind == "best epoch" and figure.text != "-")
    text = f"**{figure.text}**" if figure.bold else figure.text
    return best + text + figure.mark + (f" n={figure.n}" if figure.n else "")


def _markdown_map(shown: SensitivityMap) -> Iterator[str]:
    yield from (f"### {escape_markdown(shown.title)}", "")
    yield _markdown_row([escape_markdown(f"{shown.down}, {shown.across} →"), *(f"{x:g}" for x in shown.columns)])
    yield _markdown_row(["--:"] * (1 + len(shown.columns)))
    best = f"{shown.extent[1]:.2f}"
    for value in shown.rows:
        figures = [shown.cells[value, column].last for column in shown.columns]
        texts = ["-" if figure is None else figure.text for figure in figures]
        yield _markdown_row([f"{value:g}", *(f"**{text}**" if text.startswith(best) else text for text in texts)])
    yield ""


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_latex(text: str) -> str:
    r"""Return a text without commands, in characters that pdflatex knows.

    >>> escape_latex("a_b & 50 %")
    'a\\_b \\& 50 \\%'
    >>> escape_latex("Müller 中")
    'M\\"{u}ller [U+4E2D]'
    """
    return "".join(_latex_character(char) for char in unicodedata.normalize("NFC", " ".join(text.split())))


def _latex_character(char: str) -> str:
    if char in LATEX_SPECIAL:
        return LATEX_SPECIAL[char]
    if " " <= char <= "~":
        return char
    base, *marks = list(unicodedata.normalize("NFD", char))
    accented = len(marks) == 1 and marks[0] in ACCENTS and base.isascii() and base.isalpha()
    return f"\\{ACCENTS[marks[0]]}{{{base}}}" if accented else f"[U+{ord(char):04X}]"


def latex(report: Report) -> str:
    """Return the report as the text of a LaTeX file."""
    comments = ["Needs graphicx and multirow.", *(f"{name}: {text}" for name, text in report.facts)]
    comments += [f"Without a figure: {line}" for line in report.missing]
    comments += [f"Command: {command}" for command in report.commands]
    comments += [] if report.sections else ["No run is finished yet."]
    # Old versions of LaTeX fail on other characters, even in a comment.
    flat = [" ".join(text.replace("²", "^2").split()).encode("ascii", "backslashreplace") for text in comments]
    lines = [f"% {text.decode()}" for text in flat]
    for section in report.sections:
        lines += ["", *_latex_table(section)]
    return "\n".join(lines) + "\n"


def _latex_table(section: Section) -> Iterator[str]:
    first = section.tables[0]
    stacked = len(section.tables) > 1
    groups = [_latex_group(head, first.several_datasets) for head in first.heads]
    extra = list(first.rows[0].settings)
    sentences = [f"{section.title}. {section.caption}", *section.facts]
    compared = ["Differences are in standard deviations; $p$ is of Welch's test."] if section.compares else []
    bars = "".join("|" + "c" * len(list(same)) for _, same in itertools.groupby(groups, key=lambda group: group[0]))
    yield r"\begin{table}[h!]"
    yield rf"\caption{{{' '.join([*map(escape_latex, sentences), *compared])}}}"
    yield rf"\label{{symloss-{section.name}{'' if section.profile == 'full' else '-' + section.profile}}}"
    yield r"\begin{center}"
    yield r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    yield rf"\begin{{tabular}}{{{'c|' * stacked}l{'|c' * bool(extra)}{'c' * (len(extra) - 1)}{bars}}}"
    yield r"\hline"
    yield from _latex_header((["Data sets"] if stacked else []) + ["Loss functions", *extra], groups)
    for table in section.tables:
        rows = [row for line in table.rows for row in _latex_rows(line, section)]
        if stacked:
            name = rf"\multirow{{{len(rows)}}}{{*}}{{{escape_latex(table.title)}}}"
            rows = [[name if i == 0 else "", *row] for i, row in enumerate(rows)]
        lines = [" & ".join(row) + r" \\" for row in rows]
        yield from (*lines[:-1], lines[-1] + r" \hline")
    yield r"\end{tabular}}"
    yield from (("", rf"{{\footnotesize {escape_latex(section.legend)}}}") if section.legend else ())
    yield r"\end{center}"
    yield r"\end{table}"


def _latex_group(head: ColumnHead, several: bool) -> tuple[str | None, str]:
    """Return the title above a group of columns, if there is one, and the title of the column."""
    if several:
        return escape_latex(head.dataset), escape_latex(head.noise_text)
    try:
        spec = parse_noise(head.noise)
    except (ValueError, TypeError):
        return None, escape_latex(head.noise_text)
    if spec.kind in GROUPS:
        return GROUPS[spec.kind], f"{spec.rate:g}"
    return None, escape_latex(head.noise_text.capitalize() if spec.kind == "clean" else head.noise_text)


def _latex_header(titles: list[str], groups: list[tuple[str | None, str]]) -> Iterator[str]:
    if all(above is None for above, _ in groups):
        yield " & ".join([*titles, *(title for _, title in groups)]) + r" \\ \hline"
        return
    upper, lower = [rf"\multirow{{2}}{{*}}{{{title}}}" for title in titles], [""] * len(titles)
    runs = [(above, [title for _, title in same]) for above, same in itertools.groupby(groups, key=lambda g: g[0])]
    for i, (above, below) in enumerate(runs):
        if above is None:
            upper += [rf"\multirow{{2}}{{*}}{{{title}}}" for title in below]
            lower += [""] * len(below)
        else:
            bar = "|" if i + 1 < len(runs) else ""
            upper.append(rf"\multicolumn{{{len(below)}}}{{c{bar}}}{{{above}}}")
            lower += below
    yield " & ".join(upper) + r" \\"
    yield " & ".join(lower) + r" \\ \hline"


def _latex_rows(line: LossRow, section: Section) -> Iterator[list[str]]:
    """Yield our figures, and the other lines of the cells as rows below them."""
    title = escape_latex(line.title)
    title = "$\\alpha$-" + title.removeprefix("alpha-") if title.startswith("alpha-MAE") else title
    published = any(cell.published for cell in line.cells)
    for figures in zip(*(section.figures(cell) for cell in line.cells), strict=True):
        kind = figures[0].kind
        if kind in ("published", "difference") and not published:
            continue
        first, settings = (
            (title, line.settings.values()) if kind == "ours" else (rf"\quad {kind}", [""] * len(line.settings))
        )
        texts = map(_latex_difference, line.cells) if kind == "difference" else map(_latex_figure, figures)
        yield [first, *map(escape_latex, settings), *texts]


def _latex_figure(figure: Figure) -> str:
    text = rf"\textbf{{{figure.text}}}" if figure.bold else figure.text
    return text + escape_latex(figure.mark) + (f" $n={figure.n}$" if figure.n else "")


def _latex_difference(cell: ReportCell) -> str:
    if cell.difference is None:
        return "-"
    p = "" if cell.p_value is None else f" ($p {chance(cell.p_value)}$)"
    return f"${signed(cell.difference)}${p}"


def csv_table(report: Report) -> str:
    """Return the report as CSV: a line for each cell with its figures over all seeds, and for each run without one."""
    rows = [
        _csv_row(section, line, head, cell)
        for section in report.sections
        for table in section.tables
        for line, head, cell in table.cells()
        if cell.runs or cell.published
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in (*rows, *(_csv_missing(run, reason) for run, reason in report.without_figure)):
        rounded = {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}
        writer.writerow({name: without_formula(v) if isinstance(v, str) else v for name, v in rounded.items()})
    return text.getvalue()


def _csv_row(section: Section, line: LossRow, head: ColumnHead, cell: ReportCell) -> dict[str, Any]:
    row: dict[str, Any] = {"loss": line.loss, "status": "not run"}
    if cell.runs:
        row = cell.runs[0].settings.to_dict() | {"status": "finished", "runs": "; ".join(run.name for run in cell.runs)}
        row["validation_labels"] = cell.runs[0].result.validation_labels
        row["seeds"] = " ".join(str(run.settings.seed) for run in cell.runs)
    row |= {"table": section.name, "profile": displayed_profile(section.profile), "measure": section.measure}
    row |= {"dataset": head.dataset, "noise": head.noise_text, "title": line.title, "n": len(cell.runs)}
    row |= {"difference": cell.difference, "p_value": cell.p_value, "top": int(cell.top), "p_best": cell.p_best}
    for prefix, figure in (("", cell.last), ("best_epoch_", cell.best), ("memorised_", cell.memorised)):
        row |= {} if figure is None else {f"{prefix}mean": figure.mean, f"{prefix}std": figure.std}
    if cell.published is not None and section.recipe is not None:
        printed, kind = cell.published, SPREADS[section.recipe.spread]
        row |= {"published": printed.value, "published_spread": printed.spread, "published_spread_kind": kind}
        row["published_bold"] = int(printed.bold)
    return row


def _csv_missing(run: Run, reason: str) -> dict[str, Any]:
    settings = run.settings
    noise, profile = displayed_noise(settings.data, settings.noise), displayed_profile(settings.profile)
    row = {"dataset": settings.data, "noise": noise, "profile": profile, "seeds": str(settings.seed)}
    return settings.to_dict() | row | {"status": reason, "n": 0, "runs": run.name}
