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

import contextlib
import functools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, overload

import torch
from torch import Tensor

from symloss import checks
from symloss.loss_names import LossName
from symloss.losses.base import Loss
from symloss.losses.catalogue import LOSSES, RECORDS
from symloss.losses.compose import blend, complement, dirichlet, relative
from symloss.losses.criterion import Criterion
from symloss.losses.operators import Symmetrize, as_loss
from symloss.losses.potentials import FocalPotential, MAEPotential, Potential, one_minus_exp
from symloss.losses.record import Record
from symloss.own_code import load

OPERATORS: Mapping[str, tuple[Callable[..., Loss], tuple[str, ...]]] = {
    "symmetrize": (Symmetrize, ()),
    "relative": (relative, ()),
    "complement": (complement, ("p_min", "bound")),
    "blend": (blend, ("alpha",)),
    "dirichlet": (dirichlet, ("alpha",)),
}
"""The operators that a spec can name, and their arguments besides the loss."""
OPTIONS = ("normalize", "temperature", "scale", "ignore_index", "reduction", "label_smoothing")
"""The options of Criterion that a spec can set."""
NESTED = 40  # how many brackets may stand inside one another

_TOKEN = re.compile(r"""(?x)\s*(?:
      (?P<factor>[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?)\s*\*
    | (?P<name>[A-Za-z_][\w.]*(?:[+-][A-Za-z_][\w.]*)*)
    | (?P<open>\()
    | (?<=\s)(?P<sign>[+-])(?=\s)
    | [\s:,]*(?:(?P<close>\))|(?P<end>\Z))
    | (?P<before>[:,])[\s:,]*(?P<item>(?P<key>\w+)\s*=\s*(?P<value>[^,()\s]*))
    | :\s*(?P<attribute>[A-Za-z_]\w*)
    | [\s:,]*(?P<other>\(|[^\s,()]+)
    )""")
"""A token. The name of its last group says what it is. Commas and colons belong to what follows."""


@dataclass(frozen=True)
class Tree:
    """A loss of the catalogue, ``module:name`` of the user's code, an operator or, without a name, a sum."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    terms: tuple[tuple[float, Tree], ...] = ()
    """The parts of a sum, or of the loss to which an operator is applied, with their factors."""

    def __str__(self) -> str:
        if not self.terms:
            return write(self.name, self.values)
        text = ""
        for number, term in self.terms:
            sign, factor = (" - " if number < 0 else " + ", abs(number)) if text else ("", number)
            shown = int(factor) if factor.is_integer() and abs(factor) < 1e15 else factor
            part = str(term) if term.name else f"({term})"
            text += sign + part if factor == 1 else f"{sign}{shown}*{part}"
        # Behind a colon the last loss would read arguments of the operator that are parameters of its own too.
        taken = term.values and not self.values.keys().isdisjoint(term.free)
        inner = f"({text})" if taken else text
        return f"{self.name}({', '.join([inner, *_items(self.values)])})" if self.name else text

    @property
    def free(self) -> list[str]:
        """The parameters that have no value yet."""
        known = (*RECORDS[self.name].defaults, "preset", "deviation") if self.name in RECORDS else ()
        return [key for key in known if key not in self.values]


def _items(values: Mapping[str, Any]) -> Iterator[str]:
    return (f"{key}={value}" for key, value in values.items())


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """Return a spec as the name of its loss and the keywords of the whole.

    The name is one of the catalogue, or an expression in its canonical form.

    >>> parse("sgce:q=0.8,normalize=none")
    ('sgce', {'q': 0.8, 'normalize': None})
    >>> parse("symmetrize( focal:gamma=2.0 , normalize=l2 )")
    ('symmetrize(focal:gamma=2.0)', {'normalize': 'l2'})
    """
    if not isinstance(spec, str):
        raise TypeError(f"spec must be a string such as 'gce:q=0.7'; got {checks.brief(spec)}")
    tree, values = _read(spec)
    if not tree.terms:
        return tree.name, tree.values | values
    return str(tree), dict(values)


def write(name: str, values: Mapping[str, Any]) -> str:
    """Return the spec of a name and keywords. ``parse`` does the reverse.

    >>> write("sgce", {"q": 0.8}), write("mae + ce", {"normalize": "l2"})
    ('sgce:q=0.8', '(mae + ce):normalize=l2')
    """
    if not values:
        return name
    bare = tree_of(name).name and ":" not in tree_of(name).name
    return f"{name if bare else f'({name})'}:{','.join(_items(values))}"


def tree_of(name: str) -> Tree:
    """Return the tree of a loss, from its name as ``parse`` returns it."""
    return _read(name)[0]


def split(text: str) -> list[str]:
    """Split a list of losses at its commas. A comma inside brackets, or before key=value, does not split.

    >>> split("ce,nce+agce:alpha=1,beta=4, blend(sgce:q=0.5, alpha=0.3),gce")
    ['ce', 'nce+agce:alpha=1,beta=4', 'blend(sgce:q=0.5, alpha=0.3)', 'gce']
    """
    losses, depth = [""], 0
    for piece in re.split(r"(,(?!\s*[A-Za-z_]\w*\s*=)|[()])", text):
        depth += (piece == "(") - (piece == ")")
        if piece == "," and depth == 0:
            losses.append("")
        else:
            losses[-1] += piece
    return [loss.strip() for loss in losses]


class _Reader:
    """Reads a spec from left to right."""

    def __init__(self, text: str):
        self.text, self.tokens = text, list(_TOKEN.finditer(text))[::-1]  # the next token comes last
        self.last = Tree("")  # the loss of the catalogue that was read last
        self.options: dict[str, Any] = {}  # those of the whole that stand inside the brackets of the outermost operator

    def sum(self, depth: int) -> Tree:
        """Return a weighted sum inside ``depth`` brackets."""
        terms: list[tuple[float, Tree]] = []
        sign = "+"
        while sign:
            start, factor = self.tokens[-1], float(self._take("factor") or 1)
            if not math.isfinite(factor):
                raise self._error("a factor must be finite", start)
            terms.append((-factor if sign == "-" else factor, self._one(depth)))
            sign = "" if self.options else self._take("sign")
        return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else Tree("", {}, tuple(terms))

    def _one(self, depth: int) -> Tree:
        start, name = self.tokens[-1], self._take("name")
        if self._take("open"):
            return self._bracketed(name, start, depth)
        if name in RECORDS:
            self.last = Tree(name, self._keywords(Tree(name).free) if self.tokens[-1]["before"] == ":" else {})
            return self.last
        if all(map(str.isidentifier, name.split("."))) and (attribute := self._take("attribute")):
            return Tree(f"{name}:{attribute}")
        raise self._error(f"expected a loss; {checks.nearest(name, RECORDS)}", start)

    def _bracketed(self, operator: str, start: re.Match[str], depth: int) -> Tree:
        if operator and operator not in OPERATORS:
            raise self._error(f"expected an operator; {checks.nearest(operator, OPERATORS)}", start)
        if depth == NESTED:
            raise self._error(f"more than {NESTED} brackets stand inside one another", start)
        inner, arguments = self.sum(depth + 1), OPERATORS[operator][1] if operator else ()
        outermost = operator and not self.text[: start.start("name")].strip()
        values = self.closed("close", (*arguments, *OPTIONS) if outermost else arguments)
        if "alpha" in arguments and "alpha" not in values:
            raise self._error("expected alpha=... after the loss; put brackets around a loss that has one too", start)
        self.options |= {key: value for key, value in values.items() if key in OPTIONS}
        own = {key: value for key, value in values.items() if key in arguments}
        return Tree(operator, own, ((1.0, inner),) if inner.name else inner.terms) if operator else inner

    def closed(self, closing: str, keys: Collection[str]) -> dict[str, Any]:
        """Read key=value, ... up to the closing bracket or the end. Anything else raises an error."""
        values, token = self._keywords(keys), self.tokens.pop()
        if token.lastgroup == closing:
            return values
        if (key := token["key"]) in values | self.options | self.last.values:
            what = f"{key} is given twice"
        elif key is None or key in OPTIONS:
            wanted = "the end" if closing == "end" else "')'"
            what = f"expected key=value or {wanted} (losses are added by ' + ', options of the whole come last)"
        else:
            what = f"nothing takes this key; {checks.nearest(key, {*keys, *self.last.free, *OPTIONS})}"
        raise self._error(what, token)

    def _take(self, kind: str) -> str:
        """Read the next token if it is of this kind. Otherwise the result is empty."""
        return self.tokens.pop()[kind] if self.tokens[-1].lastgroup == kind else ""

    def _keywords(self, keys: Collection[str]) -> dict[str, Any]:
        """Read key=value, ... as long as each key is one of these, and new."""
        values: dict[str, Any] = {}
        while (key := self.tokens[-1]["key"]) in keys and key not in values:
            values[key] = _value(key, self.tokens.pop()["value"])
        return values

    def _error(self, what: str, token: re.Match[str]) -> ValueError:
        kind = token.lastgroup or "end"
        got = checks.brief(token[kind]) if token[kind] else "the end"
        return ValueError(f"spec {checks.brief(self.text)}, character {token.start(kind) + 1}, at {got}: {what}")


@functools.lru_cache(maxsize=1024)
def _read(spec: str) -> tuple[Tree, dict[str, Any]]:
    """Return the tree of a spec, and the options of the whole loss."""
    reader = _Reader(spec)
    *others, first = reader.tokens
    if first["name"] and all(each.lastgroup in ("item", "end") for each in others):
        reader.tokens.pop()  # create_loss refuses unknown names and keys, and here they need no position
        return Tree(first["name"]), reader.closed("end", [each["key"] for each in others if each["key"]])
    tree = reader.sum(0)
    keys = [key for key in (*OPTIONS, *tree.free) if key not in reader.options]
    return tree, reader.options | reader.closed("end", keys)


def _value(key: str, text: str) -> Any:
    if text.lower() == "none" and key != "reduction":  # a reduction is called "none"
        return None
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text)
    return text


def list_losses() -> list[str]:
    """Return the names of all losses of the catalogue, for ``create_loss``.

    >>> list_losses()[:4]
    ['unhinged', 'sgce', 'alpha-mae', 'symmetrized-mse']
    """
    return list(RECORDS)


@overload  # editors complete the names of the first, and all other texts are of the second
def create_loss(spec: LossName, **options: Any) -> Criterion: ...
@overload
def create_loss(spec: str, **options: Any) -> Criterion: ...
def create_loss(spec: str, **options: Any) -> Criterion:
    """Return a loss by its name, with parameters and options as keywords or inside the string.

    Args:
        spec: a name of ``list_losses()``, or a text such as ``"sgce:q=0.8"``, ``"symmetrize(focal:gamma=2)"``,
            ``"0.5*gce + 0.5*mae"`` or ``"package.module:name"``.
        options: the parameters of the loss and the options of :class:`Criterion`. ``preset="cifar10"`` takes published
            settings; values that you pass override them. ``deviation=...`` computes the loss as a public
            implementation does, where that differs.

    Shapes: those of :class:`Criterion`.

    >>> create_loss("alpha-mae", alpha=2.0)
    AlphaMAE(alpha=2.0)
    >>> create_loss("nce+agce:alpha=1,beta=4,a=6,q=1.5").loss
    relative(CE()) + 4 * AGCE(a=6.0, q=1.5)
    >>> create_loss("sgce:preset=cifar100").loss
    symmetrize(GCE(q=0.65))
    """
    name, keywords = parse(spec)
    for key in keywords.keys() & options.keys():
        raise TypeError(f"{key} is given twice, in {checks.brief(spec)} and as a keyword; pass it once")
    record, values = describe(name), keywords | options
    preset, deviation = values.pop("preset", None), values.pop("deviation", None)
    if preset is not None:
        if preset not in list(record.presets):  # a list, because what was passed may have no hash
            known = ", ".join(record.presets) or "none"
            raise ValueError(f"{checks.shortened(name)} has no preset {checks.brief(preset)}; its presets are: {known}")
        values = record.overridden(record.presets[preset].values, values)
    record.refuse_unknown(values, extra=("preset", "deviation"))
    loss = LOSSES[name](**values) if name in LOSSES else _named(record, values)
    if deviation is not None:
        loss.loss, loss.deviation = deviate(loss.loss, deviation), deviation
    return loss


def _named(record: Record, values: dict[str, Any]) -> Criterion:
    """Return a loss that has no class: a weighted sum of the catalogue, or an expression."""
    parameters = {key: values.pop(key) for key in record.defaults if key in values}
    loss = Criterion(record.loss(**parameters), **values)
    if record.name in RECORDS:
        loss.name, loss.values = record.name, record.checked(**parameters)
    return loss


def describe(name: str) -> Record:
    """Return the record of a loss, by its name as ``parse`` returns it. An expression gets a record of its own."""
    tree = tree_of(name)
    if not tree.terms and ":" not in name:
        return find(name)
    return Record(name, "composed" if tree.terms else "your own", lambda: build(tree))


def find(name: str) -> Record:
    """Return the record of a loss of the catalogue; an error with the nearest name where there is none."""
    if name not in RECORDS:
        raise ValueError(f"there is no loss named {checks.brief(name)}; {checks.nearest(name, RECORDS)}")
    return RECORDS[name]


def build(tree: Tree) -> Loss:
    """Return the expression that a spec describes. Import the user's code from the working folder."""
    if not tree.terms and ":" in tree.name:
        return as_loss(load(tree.name, "loss", "a function or module of (input, target)"))
    parts = [build(term) if factor == 1 else factor * build(term) for factor, term in tree.terms]
    if not tree.name:
        return sum(parts[1:], parts[0])
    try:
        if not parts:
            return create_loss(str(tree)).loss
        return OPERATORS[tree.name][0](sum(parts[1:], parts[0]), **tree.values)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{error} (in {checks.shortened(str(tree))})") from None


@dataclass(frozen=True)
class HeldFocal(Potential):
    """Focal loss whose factor (1-p)^gamma is held constant in the gradient."""

    gamma: float

    def phi(self, logp: Tensor) -> Tensor:
        return self.derivative(logp).detach() * logp

    def derivative(self, logp: Tensor) -> Tensor:
        return -one_minus_exp(logp).pow(self.gamma)


@dataclass(frozen=True)
class Clamped(Potential):
    """A potential of max(p, p_min). Below p_min it is flat, so an improbable label has no gradient."""

    inner: Potential
    p_min: float = 1e-7

    def phi(self, logp: Tensor) -> Tensor:
        return self.inner.phi(logp.clamp_min(math.log(self.p_min)))

    def derivative(self, logp: Tensor) -> Tensor:
        return torch.where(logp > math.log(self.p_min), self.inner.derivative(logp), 0.0)


DEVIATIONS: dict[str, Callable[[Loss], Loss]] = {
    "held-focal-factor": lambda leaf: HeldFocal(leaf.gamma) if isinstance(leaf, FocalPotential) else leaf,
    "clamped-probability": lambda leaf: Clamped(leaf) if isinstance(leaf, Potential) else leaf,
    "doubled-mae": lambda leaf: MAEPotential(scale=2.0) if leaf == MAEPotential() else leaf,
}
"""What each deviation makes of a loss that is made of no others."""


def deviate(loss: Loss, name: str) -> Loss:
    """Return the loss with a deviation: ``held-focal-factor``, ``clamped-probability`` (at 1e-7) or ``doubled-mae``.

    >>> deviate(MAEPotential(), "doubled-mae")
    2.0 * MAE()
    """
    checks.choice("deviation", name, DEVIATIONS)
    changed = loss.map(DEVIATIONS[name])
    # Labels from very improbable to nearly certain: a deviation must show in a value or a gradient.
    points = torch.tensor([[lead, 0.5, -0.5, 0.0] for lead in (-40, -20, -8, -2, 0, 2, 8, 20)], dtype=torch.float64)
    values = [each.per_class(points) for each in (loss, changed)]
    gradients = [torch.func.vmap(torch.func.jacrev(each.per_class))(points) for each in (loss, changed)]
    if all(torch.allclose(one, other, rtol=1e-9, atol=1e-12) for one, other in (values, gradients)):
        raise ValueError(f"deviation {name!r} changes nothing in {checks.brief(loss)}; leave it out")
    return changed
