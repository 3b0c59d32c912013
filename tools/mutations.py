"""Statements and the ways to break them: what `mutants.py` draws from, finds again and replaces."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

LEFT_OUT = ("src/symloss/bench/", "src/symloss/cli/bench.py")  # leave the wheel
SILENT = {"__repr__", "__str__", "__dir__", "_repr_html_"}
WORDS = {"help", "metavar", "epilog", "rich_help_panel", "message", "title", "desc", "stacklevel", "category"}
WORDS |= {"strict", "non_blocking", "indent"}  # no value depends on them
TALK = {"warn", "warning", "info", "debug", "log", "echo", "print", "cast", "TypeVar", "NewType", "ParamSpec"}
ANY_ORDER = {"isinstance", "issubclass", "getattr", "hasattr", "setattr", "min", "max", "maximum", "minimum", "equal"}
SWAPS: dict[type[ast.AST], list[type[ast.AST]]] = {
    ast.Lt: [ast.LtE, ast.Gt], ast.LtE: [ast.Lt, ast.GtE], ast.Gt: [ast.GtE, ast.Lt], ast.GtE: [ast.Gt, ast.LtE],
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.In: [ast.NotIn], ast.NotIn: [ast.In], ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is], ast.And: [ast.Or], ast.Or: [ast.And], ast.Add: [ast.Sub], ast.Sub: [ast.Add],
    ast.Mult: [ast.Div], ast.Div: [ast.Mult], ast.FloorDiv: [ast.Mult], ast.Mod: [ast.FloorDiv], ast.Pow: [ast.Mult],
}  # fmt: skip
Compound = ast.If | ast.While | ast.For | ast.With | ast.FunctionDef | ast.AsyncFunctionDef
Simple = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr


@dataclass(frozen=True)
class Place:
    """A statement in a file: its source without the body, and where a probe for it can be inserted, if it can."""

    file: str
    function: str
    before: str
    lines: tuple[int, int]
    column: int
    probe: tuple[int, int] | None

    def replaced(self, text: str, after: str) -> str:
        """Return the file's text with another statement here, which keeps the body that it has."""
        lines = text.splitlines(keepends=True)
        first, last = self.lines
        old = lines[first - 1][self.column :]
        new = after.removesuffix("\n    pass")
        if old.startswith("elif"):
            new = "el" + new
        indented = "\n".join(" " * self.column * (i > 0) + line for i, line in enumerate(new.split("\n")))
        lines[first - 1 : last] = [lines[first - 1][: self.column] + indented + "\n"]
        return "".join(lines)


@cache
def source(root: Path, file: str) -> str:
    """Return the text of a file of the working tree."""
    return (root / file).read_text()


def shell(statement: ast.stmt) -> ast.stmt:
    """Return a copy without body and decorators: the part that a mutant may change."""
    bare = copy.copy(statement)
    if isinstance(bare, Compound):
        bare.body = [ast.Pass()]
        if isinstance(bare, ast.If | ast.While | ast.For):
            bare.orelse = []
        if isinstance(bare, ast.FunctionDef | ast.AsyncFunctionDef):
            bare.decorator_list = []
    return copy.deepcopy(bare)


def places(root: Path) -> Iterator[Place]:
    """Find all statements that may be mutated, in all files."""
    for path in sorted((root / "src" / "symloss").rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if not file.startswith(LEFT_OUT):
            yield from _within(ast.parse(source(root, file)), file, "", None)


def _within(node: ast.AST, file: str, function: str, chain: tuple[int, int] | None) -> Iterator[Place]:
    """Walk a body. ``chain`` is the place before the ``if`` that an ``elif`` belongs to."""
    inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (chain is not None)
    for field in ("body", "orelse", "finalbody", "handlers"):
        for child in getattr(node, field, []):
            if isinstance(child, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom) or _talks(child):
                continue
            before = (child.lineno, child.col_offset) if inside else None
            if field == "orelse" and isinstance(node, ast.If) and isinstance(child, ast.If) and _is_elif(node, child):
                before = chain
            name = getattr(child, "name", "") if not isinstance(child, ast.ExceptHandler) else ""
            qualified = ".".join(filter(None, (function, name)))
            if isinstance(child, Compound | Simple):
                yield _place(child, file, qualified, before)
            if isinstance(child, ast.ClassDef):
                yield from _within(child, file, qualified, None)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _within(child, file, qualified, (child.body[0].lineno, child.body[0].col_offset))
            else:
                yield from _within(child, file, qualified, before)


def _is_elif(node: ast.If, child: ast.If) -> bool:
    return child.col_offset == node.col_offset


def _talks(node: ast.AST) -> bool:
    """Whether a statement is there for people or types: docstrings, messages, representations, stubs."""
    if isinstance(node, ast.FunctionDef):
        return node.name in SILENT or "overload" in map(ast.unparse, node.decorator_list)
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("__"):
        return True
    value = getattr(node, "value", None) if isinstance(node, ast.Expr | ast.Assign) else None
    if isinstance(value, ast.Call):
        return _called(value) in TALK
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))


def _place(node: Compound | Simple, file: str, function: str, probe: tuple[int, int] | None) -> Place:
    last = node.end_lineno or node.lineno
    if isinstance(node, Compound):
        first = node.body[0]
        last = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", []))]) - 1
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        start = next((each for each in node.body if not _talks(each)), None)
        probe = (start.lineno, start.col_offset) if start and not hasattr(start, "decorator_list") else None
    return Place(file, function, ast.unparse(shell(node)), (node.lineno, last), node.col_offset, probe)


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what may change: no annotations, no messages, no targets of assignments."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "targets", "target", "body", "optional_vars") and isinstance(
            node, ast.stmt | ast.arg | ast.comprehension | ast.withitem
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.operator | ast.cmpop):
                continue
            if isinstance(child, ast.Call) and _called(child) in TALK:
                continue
            if isinstance(child, ast.keyword) and child.arg in WORDS:
                continue
            yield child
            yield from _expressions(child)


class _Exchange(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def _variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the kinds of mutation of an expression, each with what replaces it."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in SWAPS[type(node.ops[0])]:
            yield "comparison", ast.Compare(node.left, [other()], node.comparators)  # type: ignore[list-item]
    elif isinstance(node, ast.BoolOp):
        yield "and/or", ast.BoolOp(SWAPS[type(node.op)][0](), node.values)  # type: ignore[arg-type]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "sign" if isinstance(node.op, ast.USub) else "negation", node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS and not _joins(node):
        other = SWAPS[type(node.op)][0]
        yield "arithmetic", ast.BinOp(node.left, other(), node.right)  # type: ignore[arg-type]
        if isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.right, ast.Constant):
            yield "one off", node.left
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "boolean", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "constant", ast.Constant(node.value + 1 if isinstance(node.value, int) else 2 * node.value or 1.0)
    elif isinstance(node, ast.IfExp):
        yield "negation", ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.Call):
        yield from _calls(node)


def _joins(node: ast.BinOp) -> bool:
    """Whether an operator works on texts or lists, where another is an error at once."""
    sides = (node.left, node.right)
    texts = (side for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
    return any(texts) or any(isinstance(side, ast.List | ast.Tuple | ast.JoinedStr | ast.ListComp) for side in sides)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in WORDS:
            yield "keyword", ast.Call(node.func, node.args, [each for each in node.keywords if each is not keyword])
    first, second, *rest = [*node.args, None, None]
    if first and second and not isinstance(first, ast.Starred) and _called(node) not in ANY_ORDER:
        yield "arguments", ast.Call(node.func, [second, first, *filter(None, rest)], node.keywords)


def mutations(before: str) -> dict[str, list[str]]:
    """Return the mutated statements by kind of mutation."""
    statement = ast.parse(before).body[0]
    found: dict[str, list[str]] = {}

    def add(kind: str, old: ast.AST, new: ast.AST) -> None:
        _Exchange(old, new).visit(statement)
        found.setdefault(kind, []).append(ast.unparse(ast.fix_missing_locations(statement)))
        _Exchange(new, old).visit(statement)

    for node in list(_expressions(statement)):
        for kind, new in _variants(node):
            add(kind, node, new)
    if isinstance(statement, ast.If | ast.While) and isinstance(statement.test, ast.Name | ast.Attribute | ast.Call):
        add("negation", statement.test, ast.UnaryOp(ast.Not(), copy.deepcopy(statement.test)))
    if isinstance(statement, ast.AugAssign) and type(statement.op) in SWAPS:
        add("arithmetic", statement.op, SWAPS[type(statement.op)][0]())
    return found


def drawn(root: Path, seed: int, number: int, rejected: set[str]) -> list[dict[str, Any]]:
    """Draw mutants: from each package at least three, otherwise in proportion to its statements; one a statement."""
    packages: dict[str, list[Place]] = {}
    for place in places(root):
        packages.setdefault(place.file.split("/")[2] if place.file.count("/") > 2 else "symloss", []).append(place)
    mutants = []
    for package, share in _shares({name: len(found) for name, found in packages.items()}, number).items():
        dice = random.Random(f"{seed} {package}")
        counted: dict[tuple[str, str, str], int] = {}
        order = []
        for place in packages[package]:
            key = (place.file, place.function, place.before)
            counted[key] = counted.get(key, -1) + 1
            order.append((place, counted[key]))
        dice.shuffle(order)
        taken = rank = 0
        for place, occurrence in order:
            kinds = mutations(place.before)
            if taken == share or not kinds:
                continue
            kind = dice.choice(sorted(kinds))
            after = dice.choice(kinds[kind])
            rank += 1
            name = f"{package}-{rank:02}"
            if name not in rejected:
                taken += 1
                mutants.append(
                    {
                        "id": name, "package": package, "file": place.file, "function": place.function, "kind": kind,
                        "before": place.before, "after": after, "occurrence": occurrence,
                    }
                )  # fmt: skip
    return mutants


def _shares(sizes: dict[str, int], number: int) -> dict[str, int]:
    """Divide a number in proportion to sizes, at least 3 each, the largest remainders rounded up."""
    small = {name for name, size in sizes.items() if size * number < 3 * sum(sizes.values())}
    left, total = number - 3 * len(small), sum(size for name, size in sizes.items() if name not in small)
    exact = {name: 3.0 if name in small else size * left / total for name, size in sizes.items()}
    shares = {name: int(each) for name, each in exact.items()}
    for name in sorted(exact, key=lambda name: shares[name] - exact[name])[: number - sum(shares.values())]:
        shares[name] += 1
    return shares
