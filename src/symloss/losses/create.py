"""From a record to what people use: a module class, a function, a name that can be typed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import operators
from symloss.losses.algebra import Loss
from symloss.losses.catalogue import RECORDS, find
from symloss.losses.criterion import Criterion, scaled, score_map
from symloss.losses.deviations import deviate
from symloss.losses.evaluate import Options, evaluate
from symloss.losses.foreign import as_loss
from symloss.losses.record import Record
from symloss.losses.spec import Applied, Named, Own, Total, Tree, parse, tree_of
from symloss.own_code import load

_OPTIONS = [p for p in inspect.signature(Criterion).parameters.values() if p.kind is p.KEYWORD_ONLY]


def list_losses() -> list[str]:
    """The names that ``create_loss`` takes.

    >>> list_losses()[:4]
    ['unhinged', 'sgce', 'alpha-mae', 'symmetrized-mse']
    """
    return list(RECORDS)


def create_loss(spec: str, **options: Any) -> Criterion:
    """A loss by its name, with parameters and options as keywords or inside the string.

    Besides the loss's own parameters and the options of :class:`Criterion`: ``preset="cifar10"`` takes published
    settings (given values win over it), ``deviation=...`` what public code does differently.

    >>> create_loss("alpha-mae", alpha=2.0)
    AlphaMAE(
      blend(MAE(scale=1.0), alpha=2.0), normalize='l2'
      (score_map): UnitScores(temperature=1, eps=1e-05)
      (parts): ModuleList()
    )
    >>> create_loss("nce+agce:alpha=1,beta=4,a=6,q=1.5").loss
    relative(CE()) + 4 * AGCE(a=6.0, q=1.5)
    >>> create_loss("sgce:preset=cifar100").loss
    symmetrize(GCE(q=0.65))
    """
    name, given = parse(spec)
    for key in given.keys() & options.keys():
        raise TypeError(f"{key} is given twice: {given[key]!r} in {spec!r} and {options[key]!r} as a keyword")
    given |= options
    record = describe(name)
    deviation = given.pop("deviation", None)
    values = _preset(record, given.pop("preset", None)) | given
    _refuse_unknown(record, values, extra=("preset", "deviation"))
    loss = MODULES[record.class_name](**values) if record.name in RECORDS else Criterion(record.loss(), **values)
    if deviation is not None:
        loss.loss = deviate(loss.loss, deviation)
    return loss


def describe(name: str) -> Record:
    """The record of a loss, by its name as ``parse`` returns it: the catalogue's, or one made for an expression."""
    tree = tree_of(name)
    if isinstance(tree, Named):
        return find(name)
    source = "your own" if isinstance(tree, Own) else "composed"
    return Record(name, "Criterion", lambda: build(tree), name, source)


def build(tree: Tree) -> Loss:
    """The expression that a spec describes. Code of the user's own is imported here, from the working folder."""
    if isinstance(tree, Own):
        return as_loss(load(str(tree), "loss", "a function or module of (input, target)"))
    if isinstance(tree, Total):
        first, *others = (factor * build(term) for factor, term in tree.terms)
        return sum(others, first)
    inner = [build(tree.inner)] if isinstance(tree, Applied) else []
    try:
        return _OPERATORS[tree.operator](*inner, **tree.arguments) if isinstance(tree, Applied) else _named(tree)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{error} (in {tree})") from None


def _named(tree: Named) -> Loss:
    return create_loss(str(tree)).loss


_OPERATORS: dict[str, Callable[..., Loss]] = {
    "symmetrize": operators.Symmetrize,
    "relative": operators.relative,
    "complement": operators.complement,
    "blend": operators.blend,
    "dirichlet": operators.dirichlet,
}


def _preset(record: Record, name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    if not isinstance(name, str) or name not in record.presets:
        known = ", ".join(record.presets) or "none"
        raise ValueError(f"{record.name} has no preset {checks.brief(name)}; its presets are: {known}")
    return dict(record.presets[name].values)


def _refuse_unknown(record: Record, values: dict[str, Any], extra: tuple[str, ...] = ()) -> None:
    options = [option.name for option in _OPTIONS]
    for key in values:
        if key not in record.defaults and key not in options:
            own = ", ".join(record.defaults) or "none"
            raise TypeError(
                f"{record.name} has no parameter {key!r}; its parameters are: {own}; "
                f"options are: {', '.join([*options, *extra])}"
            )


def _signature(record: Record, first: list[inspect.Parameter], kind: Any) -> inspect.Signature:
    own = [inspect.Parameter(p.name, kind, default=p.default, annotation=float) for p in record.parameters]
    options = [o.replace(default=record.normalize) if o.name == "normalize" else o for o in _OPTIONS]
    return inspect.Signature([*first, *own, *options])


def _doc(record: Record, body: str) -> str:
    parameters = "".join(f"\n    {p.name}: in {p.interval}, {p.meaning}." for p in record.parameters)
    arguments = f"\n\nParameters:{parameters}" if parameters else ""
    return (
        f"{record.formula}\n\n{body}{arguments}\n\nOptions as in :class:`symloss.Criterion`. Source: {record.source}."
    )


def _module(record: Record) -> type[Criterion]:
    takes = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    signature = _signature(record, takes, inspect.Parameter.POSITIONAL_OR_KEYWORD)

    def initialise(self: Criterion, *args: Any, **kwargs: Any) -> None:
        _refuse_unknown(record, kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        del values["self"]
        loss = record.loss(**{p.name: values.pop(p.name) for p in record.parameters})
        Criterion.__init__(self, loss, **values)

    initialise.__signature__ = signature  # type: ignore[attr-defined]
    example = "symloss.create_loss(" + repr(record.name) + ")"
    body = {"__init__": initialise, "__doc__": _doc(record, f"The module ``{example}``."), "record": record}
    return type(record.class_name, (Criterion,), body | {"__module__": __name__, "__qualname__": record.class_name})


def _remembered(build: Callable[..., Any]) -> Callable[..., Any]:
    """The same, built once for each set of arguments; what cannot be a key is built anew, and refused there."""
    cached = functools.lru_cache(maxsize=256, typed=True)(build)

    @functools.wraps(build)
    def look_up(*args: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return build(*args, **options)
        try:
            return cached(*args, **options)
        except TypeError:
            return build(*args, **options)

    return look_up


@_remembered
def _expression(name: str, scale: str | None, **values: float) -> Loss:
    return scaled(RECORDS[name].loss(**values), scale)


_score_map = _remembered(score_map)


def _function(record: Record) -> Callable[..., Tensor]:
    takes = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Tensor)
        for name in ("input", "target")
    ]
    signature = _signature(record, takes, inspect.Parameter.KEYWORD_ONLY)

    def function(input: Tensor, target: Tensor, **options: Any) -> Tensor:
        values = record.defaults | {key: options.pop(key) for key in record.defaults if key in options}
        _refuse_unknown(record, options)
        scores = _score_map(options.pop("normalize", record.normalize), options.pop("temperature", 1.0))
        loss = _expression(record.name, options.pop("scale", None), **values)
        return evaluate(loss, input, target, Options(score_map=scores, **options))

    function.__name__ = function.__qualname__ = function_name(record)
    function.__module__ = "symloss.functional"
    function.__doc__ = _doc(record, f"The loss ``{record.name}`` as a function.")
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def function_name(record: Record) -> str:
    return record.name.replace("-", "_").replace("+", "_")


MODULES: dict[str, type[Criterion]] = {record.class_name: _module(record) for record in RECORDS.values()}
FUNCTIONS: dict[str, Callable[..., Tensor]] = {function_name(record): _function(record) for record in RECORDS.values()}
# Pickle looks a class up by its module and name.
globals().update(MODULES)
