"""``create_loss("sgce:q=0.8")`` makes a loss from text."""

from __future__ import annotations

from typing import Any, overload

from symloss import checks
from symloss.loss_names import LossName
from symloss.losses.algebra import Loss
from symloss.losses.catalogue import LOSSES, RECORDS
from symloss.losses.criterion import Criterion
from symloss.losses.deviations import deviate
from symloss.losses.record import Record
from symloss.losses.spec import OPERATORS, Tree, parse, tree_of
from symloss.losses.wrapped import as_loss
from symloss.own_code import load


def list_losses() -> list[str]:
    """The names of all losses of the catalogue, for ``create_loss``.

    >>> list_losses()[:4]
    ['unhinged', 'sgce', 'alpha-mae', 'symmetrized-mse']
    """
    return list(RECORDS)


@overload  # editors complete the names of the first, and all other texts are of the second
def create_loss(spec: LossName, **options: Any) -> Criterion: ...
@overload
def create_loss(spec: str, **options: Any) -> Criterion: ...
def create_loss(spec: str, **options: Any) -> Criterion:
    """A loss by its name, with parameters and options as keywords or inside the string.

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
    loss = LOSSES[name](**values) if name in LOSSES else Criterion(record.loss(), **values)
    if deviation is not None:
        loss.loss, loss.deviation = deviate(loss.loss, deviation), deviation
    return loss


def describe(name: str) -> Record:
    """The record of a loss, by its name as ``parse`` returns it. An expression gets a record of its own."""
    tree = tree_of(name)
    if not tree.terms and ":" not in name:
        return find(name)
    return Record(name, "composed" if tree.terms else "your own", lambda: build(tree))


def find(name: str) -> Record:
    """The record of a loss of the catalogue; an error with the nearest name where there is none."""
    if name not in RECORDS:
        raise ValueError(f"there is no loss named {checks.brief(name)}; {checks.nearest(name, RECORDS)}")
    return RECORDS[name]


def build(tree: Tree) -> Loss:
    """The expression of the algebra that a spec describes. It imports the user's code from the working folder."""
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
