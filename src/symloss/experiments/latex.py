r"""A report as LaTeX tables for a paper, with no packages but ``graphicx`` and ``multirow``."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterator

from symloss.experiments import provenance
from symloss.experiments.difference import chance, signed
from symloss.experiments.report import ColumnHead, LossRow, Report, ReportCell, ReportTable, Section
from symloss.noise.spec import parse as parse_noise

SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "ß": r"{\ss}", "æ": r"{\ae}", "Æ": r"{\AE}", "ø": r"{\o}", "Ø": r"{\O}",
    "\u03b1": r"$\alpha$", "²": r"$^2$",
}  # fmt: skip
ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030a": "r", "\u0327": "c",
    "\u030c": "v", "\u0304": "=", "\u0306": "u", "\u030b": "H", "\u0307": ".",
}  # fmt: skip
GROUPS = {"sym": r"Symmetric noise rate ($\eta$)", "asym": r"Asymmetric noise rate ($\eta$)"}


def escape(text: str) -> str:
    r"""A text without commands, in characters that pdflatex knows.

    >>> escape("a_b & 50 %")
    'a\\_b \\& 50 \\%'
    >>> escape("Müller 中")
    'M\\"{u}ller [U+4E2D]'
    """
    return "".join(_character(char) for char in unicodedata.normalize("NFC", " ".join(text.split())))


def _character(char: str) -> str:
    if char in SPECIAL:
        return SPECIAL[char]
    if " " <= char <= "~":
        return char
    base, *marks = list(unicodedata.normalize("NFD", char))
    if len(marks) == 1 and marks[0] in ACCENTS and base.isascii() and base.isalpha():
        return f"\\{ACCENTS[marks[0]]}{{{base}}}"
    return f"[U+{ord(char):04X}]"


def render(report: Report) -> str:
    """The report as the text of a LaTeX file."""
    lines = ["% Needs graphicx and multirow."]
    lines += [_comment(f"{name}: {text}") for name, text in provenance.facts(report)]
    lines += [_comment(f"Without a figure: {line}") for line in report.missing]
    lines += [_comment(f"Command: {command}") for command in provenance.commands(report)]
    for section in report.sections:
        lines += ["", *_table(section)]
    if not report.sections:
        lines.append("% No run is finished yet.")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    # Old versions of LaTeX fail on other characters, even in a comment.
    return "% " + " ".join(text.replace("²", "^2").split()).encode("ascii", "backslashreplace").decode()


def _table(section: Section) -> Iterator[str]:
    first = section.tables[0]
    stacked = len(section.tables) > 1
    groups = [_group(head, first.heads) for head in first.heads]
    extra = list(first.rows[0].settings)
    yield r"\begin{table}[h!]"
    yield rf"\caption{{{_caption(section)}}}"
    yield rf"\label{{symloss-{section.name}{'' if section.profile == 'full' else '-' + section.profile}}}"
    yield r"\begin{center}"
    yield r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    yield rf"\begin{{tabular}}{{{'c|' * stacked}l{'|c' * bool(extra)}{'c' * (len(extra) - 1)}{_alignment(groups)}}}"
    yield r"\hline"
    titles = (["Data sets"] if stacked else []) + ["Loss functions", *extra]
    yield from _header(titles, groups)
    for table in section.tables:
        yield from _body(table, section, stacked)
    yield r"\end{tabular}}"
    yield r"\end{center}"
    yield r"\end{table}"


def _caption(section: Section) -> str:
    sentences = [escape(f"{section.title}. {section.caption}"), *(escape(fact) for fact in section.facts)]
    if section.compares:
        sentences.append("Differences are in standard deviations; $p$ is of Welch's test.")
    return " ".join(sentences)


def _group(head: ColumnHead, heads: tuple[ColumnHead, ...]) -> tuple[str | None, str]:
    """The title above a group of columns, if there is one, and the title of the column."""
    if len({other.dataset for other in heads}) > 1:
        return escape(head.dataset), escape(head.noise_text)
    try:
        spec = parse_noise(head.noise)
    except (ValueError, TypeError):
        return None, escape(head.noise_text)
    if spec.kind in GROUPS:
        return GROUPS[spec.kind], f"{spec.rate:g}"
    return None, escape(head.noise_text.capitalize() if spec.kind == "clean" else head.noise_text)


def _alignment(groups: list[tuple[str | None, str]]) -> str:
    return "".join("|" + "c" * len(list(same)) for _, same in itertools.groupby(groups, key=lambda group: group[0]))


def _header(titles: list[str], groups: list[tuple[str | None, str]]) -> Iterator[str]:
    if all(above is None for above, _ in groups):
        yield " & ".join([*titles, *(title for _, title in groups)]) + r" \\ \hline"
        return
    upper = [rf"\multirow{{2}}{{*}}{{{title}}}" for title in titles]
    lower = [""] * len(titles)
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


def _body(table: ReportTable, section: Section, stacked: bool) -> Iterator[str]:
    rows = [row for line in table.rows for row in _rows(line, section)]
    for i, row in enumerate(rows):
        cells = [rf"\multirow{{{len(rows)}}}{{*}}{{{escape(table.title)}}}" if i == 0 else "", *row] if stacked else row
        yield " & ".join(cells) + r" \\" + (r" \hline" if i + 1 == len(rows) else "")


def _rows(line: LossRow, section: Section) -> Iterator[list[str]]:
    title = escape(line.title)
    title = "$\\alpha$-" + title.removeprefix("alpha-") if title.startswith("alpha-MAE") else title
    yield [title, *(escape(value) for value in line.settings.values()), *(_ours(e, section) for e in line.cells)]
    blank = [""] * len(line.settings)
    if any(cell.published for cell in line.cells):
        yield [r"\quad published", *blank, *(_published(cell) for cell in line.cells)]
    if section.compares and any(cell.published for cell in line.cells):
        yield [r"\quad difference", *blank, *(_difference(cell) for cell in line.cells)]
    if section.has_best:
        yield [r"\quad best epoch", *blank, *("-" if e.best is None else e.best.text for e in line.cells)]


def _ours(cell: ReportCell, section: Section) -> str:
    if cell.last is None:
        return "-"
    text = rf"\textbf{{{cell.last.text}}}" if cell.top else cell.last.text
    return text if cell.last.n == section.usual_n else rf"{text} $n={cell.last.n}$"


def _published(cell: ReportCell) -> str:
    if cell.published is None:
        return "-"
    return rf"\textbf{{{cell.published.text}}}" if cell.published.bold else cell.published.text


def _difference(cell: ReportCell) -> str:
    if cell.difference is None:
        return "-"
    p = "" if cell.p_value is None else f" ($p {chance(cell.p_value)}$)"
    return f"${signed(cell.difference)}${p}"
