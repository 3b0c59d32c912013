"""A reader of LaTeX tables: to check figures against the source of a paper, and to read back what we write."""

import re

BOLD = re.compile(r"\\textbf\{([^{}]*)\}")
IGNORED = re.compile(r"\\hline|\\cline\{[^}]*\}|\\multirow\{[^}]*\}\{\*\}|\\(ref|citep)\{[^}]*\}|\\scalebox\{[^}]*\}")


def tables(tex):
    """Label -> rows of cells, of every table; bold cells have a star in front."""
    found = {}
    for block in re.findall(r"\\begin\{table\}.*?\\end\{table\}", tex, flags=re.S):
        label = re.search(r"\\label\{(.*?)\}", block)[1]
        body = re.search(r"\\begin\{tabular\}\{[^}]*\}(.*)\\end\{tabular\}", block, flags=re.S)[1]
        found[label] = [row for row in map(cells, re.split(r"\\\\(?!\()", body)) if any(row)]
    return found


def cells(line):
    plain = IGNORED.sub("", line).replace("\n", " ")
    return [_cell(part) for part in plain.split("&")]


def _cell(text):
    bold = BOLD.search(text)
    return "*" + bold[1].strip() if bold else text.strip().strip("{}").strip()
