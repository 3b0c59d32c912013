"""The source of a kernel, from its program. A row that fits on the chip is read once; a longer one, chunk by chunk.

Chunk by chunk a total is collected in the first pass over the scores at which all that it reads is known. So the number
of passes follows from the program. Totals that depend on the largest score alone need not wait for it: they are
rescaled when a larger score is found.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import NamedTuple

from symloss.losses.fused import elementary
from symloss.losses.fused.program import Assignment, Program

ARGUMENTS = ("z_ptr", "y_ptr", "share_ptr", "values_ptr", "out_ptr", "rows", "z_step", "share_step", "out_step")
CONSTANTS = ("CLASSES", "ROWS", "BLOCK")

_HEAD = f"""\
@triton.jit
def kernel({", ".join(ARGUMENTS)}, {", ".join(f"{name}: tl.constexpr" for name in CONSTANTS)}):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    share = tl.load(share_ptr + row * share_step, mask=live, other=0.0)
    kept = live & (share != 0.0)
    y = tl.load(y_ptr + row, mask=kept, other=0)
    known = (y >= 0) & (y < CLASSES)
    y = tl.where(known, y, 0).to(tl.int32)
    label = tl.load(z_ptr + row * z_step + y, mask=kept & known, other=0.0).to(tl.float32)
    label = tl.where(known, label, float("nan"))
"""

_READ = """\
col = {start}tl.arange(0, BLOCK)[None, :]
z = tl.load(z_ptr + row * z_step + col, mask=kept & (col < CLASSES), other=float("-inf")).to(tl.float32)
present = z != float("-inf")
is_label = col == y
other = present & (col != y)
"""

_WRITE = """\
gradient = tl.where(kept, gradient, 0.0).to(out_ptr.dtype.element_ty)
tl.store(out_ptr + row * out_step + col, gradient, mask=live & (col < CLASSES))
"""

_VALUE = "tl.store(values_ptr + row, tl.where(kept, value, 0.0), mask=live)\n"

# What the growth of a maximum does to totals that depend on it.
_GROWTH = {
    "top": """\
delta = tl.where(before == float("-inf"), 0.0, before - top)
fade = exp(delta)
""",
    "size": "shrink = before / size\n",
}


class KernelText(NamedTuple):
    """The text of a kernel."""

    text: str
    """A Python module that defines the function ``kernel``."""
    reads: int
    """How often each score is read."""


def on_chip(program: Program) -> KernelText:
    """The kernel of rows that fit on the chip: each score is read once, each entry of the gradient written once.

    The label's score is read twice. The second time it comes from the cache.
    """
    lines = [_READ.format(start="")]
    for each in _needed(program.assignments, ["value", "gradient"]):
        lines.append(f"{each.name} = {_reduced(each)}\n")
    return KernelText(_module("".join([*lines, _VALUE, _WRITE])), 1)


def chunked(program: Program) -> KernelText:
    """The kernel of longer rows."""
    passes = _Passes(program)
    body = passes.rows(0)
    for number in range(1, passes.reads):
        body += passes.collect(number) + passes.rows(number)
    return KernelText(_module(body + _VALUE + passes.write()), passes.reads)


class _Passes:
    """The assignments of a program, by the number of passes over the scores that must come before them."""

    def __init__(self, program: Program):
        self.needed = _needed(program.assignments, ["value", "gradient"], online=True)
        self.online: set[str] = set()
        self.level: dict[str, int] = {}
        running: dict[str, int] = {}
        for each in self.needed:
            read = [name for name in _names(each.text) if name in self.level]
            known = max((self.level[name] for name in read), default=0)
            now = max((running[name] for name in read), default=0)
            if each.kind == "max":
                self.level[each.name], running[each.name] = known + 1, known
            elif each.kind == "sum":
                self.level[each.name] = running[each.name] = (now if each.online else known) + 1
                if now < known and each.online:
                    self.online.add(each.name)
            else:
                self.level[each.name], running[each.name] = known, now
        self.reads = max(self.level.values(), default=0) + 1

    def rows(self, number: int) -> str:
        """What is known of a row after so many passes."""
        lines = [each for each in self.needed if each.kind == "row" and self.level[each.name] == number]
        return "".join(f"{each.name} = {each.text}\n" for each in lines)

    def collect(self, number: int) -> str:
        """The pass with this number: the totals that are known after it."""
        totals = [each for each in self.needed if each.kind in ("sum", "max") and self.level[each.name] == number]
        first = {"sum": "0.0", "max": ""}
        start = [f"{each.name} = tl.full([ROWS, 1], {first[each.kind] or each.least}, tl.float32)\n" for each in totals]
        names = {each.name for each in totals}
        used = _needed([each for each in self.needed if each.kind == "class" or each in totals], names)
        grown = {name for each in totals if each.name in self.online for name in _names(each.online)}
        step = [self._step(each, grown) for each in used]
        return "".join(start) + _loop(_READ.format(start="start + ") + "".join(step))

    def _step(self, each: Assignment, grown: set[str]) -> str:
        if each.kind == "class":
            return f"{each.name} = {each.text}\n"
        if each.kind == "sum":
            so_far = each.online.format(each.name) if each.name in self.online else each.name
            return f"{each.name} = {so_far} + {_reduced(each)}\n"
        grows = _GROWTH.get(each.name, "")
        grows = grows if grown & set(_names(grows)) else ""
        keep = f"before = {each.name}\n" if grows else ""
        return f"{keep}{each.name} = tl.maximum({each.name}, {_reduced(each)})\n{grows}"

    def write(self) -> str:
        """The last pass, which writes the gradient."""
        used = _needed([each for each in self.needed if each.kind == "class"], ["gradient"])
        lines = "".join(f"{each.name} = {each.text}\n" for each in used)
        return _loop(_READ.format(start="start + ") + lines + _WRITE)


def _reduced(each: Assignment) -> str:
    if each.kind == "sum":
        return f"total({each.text})"
    if each.kind == "max":
        return f"tl.maximum(largest({each.text}), {each.least})"
    return each.text


def _needed(assignments: Iterable[Assignment], results: Iterable[str], online: bool = False) -> list[Assignment]:
    """The assignments that the results need, in order; with ``online``, also what the rescaling of totals needs."""
    every = {each.name: each for each in assignments}
    found: set[str] = set()
    waiting = list(results)
    while waiting:
        name = waiting.pop()
        if name in every and name not in found:
            found.add(name)
            waiting += _names(every[name].text) + (_names(every[name].online) if online else [])
    return [each for name, each in every.items() if name in found]


def _names(text: str) -> list[str]:
    return re.findall(r"(?<![\w.])[a-z]\w*", text)


def _loop(body: str) -> str:
    return "for start in range(0, CLASSES, BLOCK):\n" + _indented(body)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _module(body: str) -> str:
    functions = [f"@triton.jit\n{_unannotated(inspect.getsource(function))}\n\n" for function in elementary.FUNCTIONS]
    return "import triton\nimport triton.language as tl\n\n\n" + "".join(functions) + _HEAD + _indented(body)


def _unannotated(text: str) -> str:
    """The text of a function without its types, which Triton would read."""
    return text.replace(": Any", "").replace(" -> Any", "")
