"""The list of the paper's statements, docs/paper.toml: what it names exists. The page made of it is current, by
``losses/test_catalogue.py``."""

import ast
import functools
import pkgutil
import re
import shlex
import tomllib
from pathlib import Path

from in_turn import in_turn
from typer.main import get_command
from typer.testing import CliRunner

from symloss.cli import app

ROOT = Path(__file__).parents[2]
LISTED = tomllib.loads((ROOT / "docs" / "paper.toml").read_text())  # which refuses an id that is given twice
SECTIONS = LISTED.pop("sections")
STATEMENTS = {f"{section}.{name}": each for section, found in LISTED.items() for name, each in found.items()}


def one_or_more(value):
    return [value] if isinstance(value, str) else value


TOOLS = dict.fromkeys(tool for statement in STATEMENTS.values() for tool in one_or_more(statement["tool"]))
COMMANDS = [tool for tool in TOOLS if tool.startswith("symloss ")]


def test_every_statement_is_whole():
    assert list(LISTED) == list(SECTIONS), "in the order of the paper"
    for name, statement in STATEMENTS.items():
        assert list(statement) == ["place", "says", "tool", "test"], name
        assert statement["says"].endswith("."), name
        assert all(statement.values()), name
    said = [statement["says"] for statement in STATEMENTS.values()]
    assert len(set(said)) == len(said)


@in_turn("tool", TOOLS)
def test_a_tool_can_be_imported_by_its_name_or_is_a_command_that_takes_these_arguments(tool):
    if tool in COMMANDS:
        _, command, *arguments = shlex.split(tool)
        get_command(app).get_command(None, command).make_context(command, arguments)
    else:
        assert tool.startswith("symloss.")
        assert "._" not in tool
        assert callable(pkgutil.resolve_name(tool))


@in_turn("command", [tool for tool in COMMANDS if shlex.split(tool)[1] in ("recipe", "reproduce")])
def test_commands_that_show_a_table_or_a_cell_find_it(command):
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    assert shlex.split(command)[2].split("/")[-1] in done.output


@functools.cache
def functions_in(path):
    """The text of each function of a file, with its decorators."""
    text, found = (ROOT / path).read_text(), {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            first = min(each.lineno for each in (node, *node.decorator_list))
            found[node.name] = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return found


def bare(name):
    """A name as any of its spellings has it: SymmetrizedMSE, symmetrized_mse, symmetrized-mse."""
    return re.sub("[-_]", "", name.casefold())


@in_turn("name", STATEMENTS)
def test_its_tests_exist_and_use_its_tools(name):
    tests = [test.split("::") for test in one_or_more(STATEMENTS[name]["test"])]
    assert all(path.startswith("tests/") and function.startswith("test_") for path, function in tests)
    text = bare("".join(functions_in(path)[function] for path, function in tests))
    for tool in one_or_more(STATEMENTS[name]["tool"]):
        assert tool in COMMANDS or bare(tool.rpartition(".")[2]) in text, f"no test of it uses {tool}"


NUMBERED = """
definition 3.1, definition 3.2, proposition 4.1, theorem 5.1, proposition 5.2, proposition 5.3, definition A.1,
proposition B.1, proposition C.1, lemma D.1, proposition D.2, remark D.3, example D.4, lemma E.1, definition F.1,
lemma F.2, definition F.3, corollary F.4, example F.5, remark F.6, example F.7, proposition F.8
"""


def test_every_theorem_equation_table_and_figure_of_the_paper_is_there():
    kinds = {"equation": 4, "table": 8, "figure": 1}
    counted = [f"{kind} {number}" for kind, count in kinds.items() for number in range(1, count + 1)]
    places = " ".join(statement["place"] for statement in STATEMENTS.values())
    expected = [*" ".join(NUMBERED.split()).split(", "), *counted]
    assert [each for each in expected if each not in places] == []
