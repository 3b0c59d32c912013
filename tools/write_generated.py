"""Write the generated files: run it after a change to a loss or to docs/paper.toml.

- src/symloss/loss_names.py: the names of the losses, without torch
- src/symloss/functional.py: one function for each loss
- docs/losses.md: the table of losses
- docs/paper.md: the statements of the paper, with tools and tests
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterable
from pathlib import Path

from symloss.cli.losses import CAPTION, HEADINGS, loss_cells, loss_rows
from symloss.losses.catalogue import LOSSES, RECORDS

ROOT = Path(__file__).parents[1]
NOTE = "Written by tools/write_generated.py."


def filled(names: Iterable[str]) -> str:
    """Return names in quotation marks, as many in a line as it takes."""
    text = ", ".join(f'"{name}"' for name in names) + ","
    return textwrap.indent(textwrap.fill(text, 112, break_on_hyphens=False), "    ")


def loss_names() -> str:
    return f'''"""The names of the losses. {NOTE}"""

from typing import Literal

LossName = Literal[
{filled(RECORDS)}
]  # fmt: skip
'''


def functions() -> str:
    homes = {name: loss.__module__.rpartition(".")[2] for name, loss in LOSSES.items()}
    lines = [f"{RECORDS[name].function_name} = function({homes[name]}.{LOSSES[name].__name__})" for name in LOSSES]
    names = sorted(["linear_loss", "linear_unhinged", *(RECORDS[name].function_name for name in LOSSES)])
    return "\n".join(
        [
            '"""Every loss as a function of (input, target), with its parameters and the options of',
            "``torch.nn.functional.cross_entropy``.",
            "",
            ">>> import torch",
            ">>> from symloss import functional as F",
            ">>> F.gce(torch.zeros(2, 4), torch.tensor([0, 3]), q=0.5)",
            "tensor(1.)",
            "",
            NOTE,
            '"""',
            "",
            f"from symloss.losses.catalogue import {', '.join(sorted(set(homes.values())))}",
            "from symloss.losses.record import function",
            "from symloss.losses.heads import linear_loss, linear_unhinged",
            "",
            f"__all__ = [\n{filled(names)}\n]  # fmt: skip",
            "",
            *lines,
            "",
        ]
    )


def losses_page() -> str:
    """Return the table of losses, their presets and their sources, as a page of the documentation."""
    rows = loss_rows()
    lines = ["# Losses", "", f"{NOTE} {CAPTION}", ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in loss_cells(row)) + " |" for row in rows]
    lines += ["", "## Presets", "", "| loss | preset | values | penalty | source |", "|---|---|---|---|---|"]
    for row in rows:
        for name, preset in row["presets"].items():
            values = ", ".join(f"{key}={value}" for key, value in preset["values"].items()) or "-"
            values += " and batch-norm scores" if preset["batch_norm_scores"] else ""
            penalty = "-" if preset["penalty"] is None else f"{preset['penalty']:g}"
            lines.append(f"| {row['name']} | {name} | {values} | {penalty} | {preset['source']} |")
    lines += ["", "## Sources", ""]
    lines += [f"- {name}: {reference}" for name, reference in {r["source"]: r["reference"] for r in rows}.items()]
    return "\n".join(lines)


PAPER = """
# The paper, statement by statement

{note} {count} statements of [the paper](citing.md) can be checked: definitions, formulas,
propositions and what their proofs show, examples, the protocol, the tables, and what the text says about them. Each has
its tool and its test. Tests compare tools with the formula written again, a general solver, or the printed figures.
"""


def one_or_more(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def paper_page() -> str:
    """Return the statements of docs/paper.toml as a page: a table for each section of the paper."""
    listed = tomllib.loads((ROOT / "docs" / "paper.toml").read_text())
    sections = listed.pop("sections")
    lines = [PAPER.strip().format(note=NOTE, count=sum(map(len, listed.values())))]
    for number, statements in listed.items():
        lines += ["", f"## {sections[number]}", "", "| where | statement | tool | test |", "|---|---|---|---|"]
        for statement in statements.values():
            says = statement["says"].replace("|", "\\|")
            tools = ", ".join(f"`{tool}`" for tool in one_or_more(statement["tool"]))
            tests = (test.split("::") for test in one_or_more(statement["test"]))
            links = ", ".join(f"[`{function}`](../{path})" for path, function in tests)
            lines.append(f"| {statement['place']} | {says} | {tools} | {links} |")
    return "\n".join(lines)


def formatted(code: str, name: str) -> str:
    """As ``ruff`` wants it."""
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(ROOT / name), "-"]
        code = subprocess.run(ruff, input=code, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return code


def generated() -> Iterable[tuple[Path, str]]:
    """Each file and what it must hold."""
    for name, code in (("loss_names.py", loss_names()), ("functional.py", functions())):
        path = ROOT / "src" / "symloss" / name
        yield path, formatted(code, str(path))
    yield ROOT / "docs" / "losses.md", losses_page() + "\n"
    yield ROOT / "docs" / "paper.md", paper_page() + "\n"


if __name__ == "__main__":
    for path, text in generated():
        path.write_text(text)
