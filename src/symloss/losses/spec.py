"""A loss as text: ``sgce:q=0.8``, ``symmetrize(focal:gamma=2)``, ``0.5*gce + 0.5*symmetrize(mse)``, ``module:name``.

The grammar::

    spec      loss, key=value, ...         options such as normalize=l2 hold for the whole loss and come last
    loss      term + term - term           spaces around the sign: nce+rce is a name
    term      [number*] one
    one       name[:key=value,...]         a loss of the catalogue
              operator(loss, key=value)    symmetrize, relative, complement, blend, dirichlet
              (loss)[:key=value,...]
              module:name                  a function or module of (input, target) from the user's code

A key that is no parameter of the loss before it belongs to the operator around it, or else to the whole loss.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from symloss import checks
from symloss.losses.algebra import Loss
from symloss.losses.catalogue import RECORDS
from symloss.losses.compose import blend, complement, dirichlet, relative
from symloss.losses.operators import Symmetrize


class WrittenOperator(NamedTuple):
    """An operator that a spec can name, and its arguments besides the loss."""

    build: Callable[..., Loss]
    arguments: tuple[str, ...] = ()


OPERATORS: Mapping[str, WrittenOperator] = {
    "symmetrize": WrittenOperator(Symmetrize),
    "relative": WrittenOperator(relative),
    "complement": WrittenOperator(complement, ("p_min", "bound")),
    "blend": WrittenOperator(blend, ("alpha",)),
    "dirichlet": WrittenOperator(dirichlet, ("alpha",)),
}
_ARGUMENTS = {argument for operator in OPERATORS.values() for argument in operator.arguments}
OPTIONS = ("normalize", "temperature", "scale", "ignore_index", "reduction", "label_smoothing")
"""The options of Criterion that a spec can set."""
NESTED = 40
"""How many brackets may stand inside one another."""

_BLANK = re.compile(r"\s*")
_COMMAS = re.compile(r"\s*,[\s,]*|\s*$")
_FACTOR = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*\*\s*")
_NAME = re.compile(r"[A-Za-z_][\w.]*(?:[+-][A-Za-z_][\w.]*)*")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_OPEN, _CLOSE, _COLON = re.compile(r"\("), re.compile(r"\s*\)"), re.compile(r"\s*:\s*")
_SIGN = re.compile(r"\s+([+-])\s+")
_ITEM = re.compile(r"(\w+)\s*=\s*([^,()\s]*)")
_NEXT_ITEM = re.compile(r"[\s,]*(\w+)\s*=")
_ATTRIBUTE = re.compile(r":\s*([A-Za-z_]\w*)(?=\s*(?:[),]|$)|\s+[+-]\s)")
_KEY = re.compile(r"\s*[A-Za-z_]\w*\s*=")


@dataclass(frozen=True)
class Named:
    """A loss of the catalogue."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return write(self.name, self.values)


@dataclass(frozen=True)
class Imported:
    """A function or module from the user's code."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


@dataclass(frozen=True)
class Applied:
    """An operator that is applied to a loss."""

    operator: str
    inner: Tree
    arguments: dict[str, Any]

    def __str__(self) -> str:
        inner = f"({self.inner})" if _would_take(self.inner, self.arguments) else str(self.inner)
        return f"{self.operator}({', '.join([inner, *_items(self.arguments)])})"


@dataclass(frozen=True)
class Total:
    """A weighted sum of losses."""

    terms: tuple[tuple[float, Tree], ...]

    def __str__(self) -> str:
        (factor, first), *others = self.terms
        text = _multiple(factor, first)
        for factor, term in others:
            sign = "-" if factor < 0 else "+"
            text += f" {sign} {_multiple(abs(factor), term)}"
        return text


Tree = Named | Imported | Applied | Total
"""A spec as a tree."""


def _multiple(factor: float, tree: Tree) -> str:
    inner = f"({tree})" if isinstance(tree, Total) else str(tree)
    if factor == 1:
        return inner
    return f"{int(factor) if factor.is_integer() and abs(factor) < 1e15 else factor}*{inner}"


def _would_take(tree: Tree, arguments: Mapping[str, Any]) -> bool:
    """Whether the last loss of a text would read arguments that belong to the operator around it."""
    if isinstance(tree, Total):
        return _would_take(tree.terms[-1][1], arguments)
    if not isinstance(tree, Named) or not tree.values:
        return False
    return any(key in RECORDS[tree.name].defaults and key not in tree.values for key in arguments)


def _items(values: Mapping[str, Any]) -> Iterator[str]:
    return (f"{key}={value}" for key, value in values.items())


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """A spec as the name of its loss and the keywords of the whole.

    The name is one of the catalogue, or an expression in its canonical form.

    >>> parse("sgce:q=0.8,normalize=none")
    ('sgce', {'q': 0.8, 'normalize': None})
    >>> parse("symmetrize( focal:gamma=2.0 , normalize=l2 )")
    ('symmetrize(focal:gamma=2.0)', {'normalize': 'l2'})
    """
    if not isinstance(spec, str):
        raise TypeError(f"spec must be a string such as 'gce:q=0.7'; got {checks.brief(spec)}")
    tree, values = _read(spec)
    if isinstance(tree, Named):
        return tree.name, tree.values | values
    return str(tree), dict(values)


def write(name: str, values: Mapping[str, Any]) -> str:
    """The spec of a name and keywords. ``parse`` does the reverse.

    >>> write("sgce", {"q": 0.8}), write("mae + ce", {"normalize": "l2"})
    ('sgce:q=0.8', '(mae + ce):normalize=l2')
    """
    if not values:
        return name
    bare = isinstance(tree_of(name), (Named, Applied))
    return f"{name if bare else f'({name})'}:{','.join(_items(values))}"


def tree_of(name: str) -> Tree:
    """The tree of a loss, from its name as ``parse`` returns it."""
    return _read(name)[0]


def split(text: str) -> list[str]:
    """Split a list of losses at its commas. A comma inside brackets, or before key=value, does not split.

    >>> split("ce,nce+agce:alpha=1,beta=4, blend(sgce:q=0.5, alpha=0.3),gce")
    ['ce', 'nce+agce:alpha=1,beta=4', 'blend(sgce:q=0.5, alpha=0.3)', 'gce']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    losses: list[str] = []
    for part in parts:
        if losses and _KEY.match(part):
            losses[-1] += "," + part
        else:
            losses.append(part.strip())
    return losses


@functools.lru_cache(maxsize=1024)
def _read(spec: str) -> tuple[Tree, dict[str, Any]]:
    return _Reader(spec).whole()


class _Reader:
    """Reads a spec from left to right."""

    def __init__(self, text: str):
        self.text, self.at, self.depth = text, 0, 0
        self.options: dict[str, Any] = {}
        """Options of the whole loss that stand inside the brackets of the outermost operator."""
        self.options_at = 0
        """Where they begin in the text."""
        self.suspects: list[tuple[int, str]] = []
        """Where a name or a key is unknown, and the message. It is an error only if the spec is an expression."""

    def whole(self) -> tuple[Tree, dict[str, Any]]:
        """The tree of the spec, and the options of the whole loss."""
        self._take(_BLANK)
        tree = self._sum()
        self._take(_COLON)
        values = dict(self.options)
        simple = isinstance(tree, Named)
        known = tree.values if isinstance(tree, Named) else {}
        self._keywords(values, lambda key: key not in known and (simple or key in OPTIONS))
        self._take(_COMMAS)
        if self.at < len(self.text):
            self._refuse_rest(known | values)
        if not simple and self.suspects:
            self._fail("")
        if self.options and not isinstance(tree, Applied):
            option = next(iter(self.options))
            self._fail(f"gives {option} to a part; behind brackets it holds for the whole", self.options_at)
        return tree, values

    def _sum(self) -> Tree:
        terms = [self._term(1.0)]
        while sign := self._take(_SIGN):
            terms.append(self._term(-1.0 if sign[1] == "-" else 1.0))
        factor, tree = terms[0]
        return tree if len(terms) == 1 and factor == 1 else Total(tuple(terms))

    def _term(self, sign: float) -> tuple[float, Tree]:
        start, factor = self.at, self._take(_FACTOR)
        number = float(factor[1]) if factor else 1.0
        if not math.isfinite(number):
            self._fail(f"holds {checks.brief(self.text[start : self.at])}; a factor must be finite", start)
        return sign * number, self._one()

    def _one(self) -> Tree:
        if self._take(_OPEN):
            return self._bracketed(self._sum)
        start, word = self.at, self._take(_NAME)
        name = word[0] if word else ""
        if name and self._take(_OPEN):
            return self._bracketed(lambda: self._applied(name, start))
        attribute = None if name in RECORDS or not _MODULE.fullmatch(name) else self._take(_ATTRIBUTE)
        return Imported(name, attribute[1]) if attribute else self._named(name, start)

    def _bracketed(self, read: Callable[[], Tree]) -> Tree:
        opening = self.at - 1
        self.depth += 1
        if self.depth > NESTED:
            self._fail(f"has more than {NESTED} brackets inside one another", opening)
        self._take(_BLANK)
        tree = read()
        self._take(_COMMAS)
        if not self._take(_CLOSE):
            if self.at == len(self.text):
                self._fail("opens a bracket that must close", opening)
            self._refuse_rest({})
        self.depth -= 1
        return tree

    def _applied(self, operator: str, start: int) -> Tree:
        if operator not in OPERATORS:
            hint = checks.nearest(operator, OPERATORS)
            self._fail(
                f"holds {checks.brief(operator)} before a bracket: there is no operator of that name; {hint}", start
            )
        inner = self._sum()
        outermost, arguments = self.depth == 1, OPERATORS[operator].arguments
        values: dict[str, Any] = {}
        self.options_at = self.at
        self._keywords(values, lambda key: key in arguments or (outermost and key in OPTIONS))
        self.options |= {key: value for key, value in values.items() if key in OPTIONS}
        if "alpha" in arguments and "alpha" not in values:
            hint = "if the loss has an alpha too, put brackets around the loss"
            self._fail(f"gives {operator} no alpha; it must stand behind the loss ({hint})", start)
        return Applied(operator, inner, {key: value for key, value in values.items() if key in arguments})

    def _named(self, name: str, start: int) -> Named:
        if name not in RECORDS:
            shown = checks.brief(name)
            hint = f"holds {shown}: there is no loss named {shown}; {checks.nearest(name, RECORDS)}"
            self.suspects.append((start, hint if name else "must hold a loss"))
        allowed = (*RECORDS[name].defaults, "preset", "deviation") if name in RECORDS else ()
        values: dict[str, Any] = {}
        if self._take(_COLON):
            self._keywords(values, lambda key: key in allowed)
            stray = _NEXT_ITEM.match(self.text, self.at)
            if stray and stray[1] not in (*allowed, *OPTIONS, *_ARGUMENTS):
                known = ", ".join(RECORDS[name].defaults if name in RECORDS else ()) or "none"
                what = f"gives {checks.brief(stray[1])} to {checks.shortened(name)}; its parameters are: {known}"
                self.suspects.append((stray.start(1), what))
        return Named(name, values)

    def _keywords(self, values: dict[str, Any], accepts: Callable[[str], bool]) -> None:
        """Read key=value, ... as long as each key is accepted and new."""
        while True:
            start = self.at
            separated = self._after_colon() or self._take(_COMMAS)
            item = self._take(_ITEM) if separated else None
            if item is None or item[1] in values or not accepts(item[1]):
                self.at = start
                return
            values[item[1]] = _value(item[1], item[2])

    def _after_colon(self) -> bool:
        return self.text[: self.at].rstrip().endswith(":")

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def _refuse_rest(self, known: dict[str, Any]) -> NoReturn:
        """Raise an error about the text that is left. ``known`` holds the keywords before it."""
        self._take(_BLANK)
        self._take(_COMMAS)
        rest = self.text[self.at :]
        item = _ITEM.match(rest)
        if item and item[1] in known:
            self._fail(f"gives {item[1]} twice")
        before = self.text[: self.at].rstrip()
        word = checks.brief(re.split(r"[,()]", rest, maxsplit=1)[0].strip() or rest[:1])
        if before.endswith((":", ",")) and item is None:
            self._fail(f"holds {word}; each item after a colon or a comma must be key=value")
        if item:
            allowed = ", ".join(OPTIONS)
            self._fail(f"holds {word}, which belongs to nothing before it; options of the whole are: {allowed}")
        self._fail(f"holds {word}, where the end may stand, or ' + ' and a loss (options of the whole come last)")

    def _fail(self, what: str, at: int | None = None) -> NoReturn:
        """Raise an error about the first thing that is wrong, with its position."""
        position, what = self.suspects[0] if self.suspects else (self.at if at is None else at, what)
        raise ValueError(f"spec {checks.brief(self.text)}, character {position + 1}, {what}")


def _value(key: str, text: str) -> Any:
    if text.lower() == "none" and key != "reduction":  # a reduction is called "none"
        return None
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text
