"""The record of a loss: its name, formula, source and parameters, and the facts that the tests verify."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, cast

import torch
from torch import Tensor

from symloss import checks
from symloss.losses.base import Loss
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.published import Preset, presets_of

Fact = bool | Callable[[SimpleNamespace], bool]
Known = float | Callable[[SimpleNamespace], float | None] | None


@dataclass(frozen=True)
class Parameter:
    """A parameter of one loss."""

    name: str
    default: float | None
    interval: str
    meaning: str
    whole: bool = False
    instead_of: str | None = None  # The parameter that this one replaces. It has no default itself.


class _AtParameters:
    """Fields that may be functions of the parameters and of the number of classes."""

    def at(self, classes: int, **parameters: float | None) -> dict[str, Any]:
        """Return the fields for this number of classes and these parameters, by name."""
        point = SimpleNamespace(C=classes, **parameters)
        return {name: value(point) if callable(value) else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class Facts(_AtParameters):
    """Properties of a loss of raw scores. Each may depend on the parameters and on the number of classes C."""

    symmetric: Fact = False
    non_increasing: Fact = True
    convex: Fact = False
    bounded: Fact = True
    permutation_invariant: Fact = True


SYMMETRIC = Facts(symmetric=True)


@dataclass(frozen=True)
class Constants(_AtParameters):
    """Constants of a loss of raw scores; None where no formula is known."""

    lipschitz: Known = None
    smoothness: Known = None


@dataclass(eq=False)
class Record:
    """The record of a loss. It is an attribute of the class of the loss.

    The defaults of the parameters are in the signature of the class. Its docstring has the formula, behind the colon
    of its first line, and what each parameter means, behind its interval.

    Args:
        name: the name that ``create_loss`` takes.
        source: a key of ``catalogue.SOURCES``.
        build: returns the expression of the algebra for given parameters.
        intervals: the values that each parameter may take, by its name. An interval ends where the loss or its gradient
            no longer fits into float32, or where the loss is nearly constant.
        facts, constants: properties of the loss. The tests verify them.
        normalize: the default of that option.
        either: parameters of which one is given. Their default is None in the signature. The first has its own here.
    """

    name: str
    source: str
    build: Callable[..., Loss]
    intervals: Mapping[str, str] = field(default_factory=dict)
    facts: Facts = Facts()
    constants: Constants = Constants()
    normalize: str | None = None
    either: Mapping[str, float | None] = field(default_factory=dict)
    class_name: str = field(default="Criterion", init=False)
    formula: str = field(default="", init=False)
    text: str = field(default="", init=False)  # what the docstring of the class says
    parameters: tuple[Parameter, ...] = field(default=(), init=False)
    defaults: dict[str, float | None] = field(default_factory=dict, init=False)

    def __set_name__(self, loss: type, attribute: str) -> None:
        """Read the signature and the docstring of the class of the loss when Python makes it."""
        signature = inspect.signature(loss.__init__).parameters  # type: ignore[misc]
        self.class_name, self.text = loss.__name__, inspect.cleandoc(loss.__doc__ or "")
        self.formula = self.text.partition("\n")[0].partition(": ")[2].removesuffix(".")
        text = " ".join(self.text.split())
        self.defaults = {name: self.either.get(name, signature[name].default) for name in self.intervals}
        first = next(iter(self.either), None)
        for name, interval in self.intervals.items():
            meaning = re.search(rf"\b{name}: in {re.escape(interval)}; (.*?)\.(?= |$)", text)
            other = first if name in self.either and name != first else None
            whole = type(self.defaults[name]) is int
            found = Parameter(name, self.defaults[name], interval, meaning[1] if meaning else "", whole, other)
            self.parameters += (found,)

    @property
    def function_name(self) -> str:
        """The name of the loss in ``symloss.functional``."""
        return self.name.replace("-", "_")

    @property
    def presets(self) -> Mapping[str, Preset]:
        """Published settings, by data set."""
        return presets_of(self.name)

    def loss(self, **values: float | None) -> Loss:
        """Return the expression of the algebra for these parameters. They are checked, and defaults are filled in."""
        return self.build(**self.checked(**values))

    def checked(self, **values: float | None) -> dict[str, float | None]:
        """Return the parameters with defaults filled in. Wrong ones raise an error.

        Of a parameter and the one that may stand in its place, one at most is given. The other one is None.
        """
        for key in sorted(set(values) - set(self.defaults)):
            raise self._unknown(key)
        given = [name for name in self.either if values.get(name) is not None] or list(self.either)[:1]
        if len(given) > 1:
            got = " and ".join(f"{name}={checks.brief(values[name])}" for name in given)
            raise ValueError(f"{self.name} takes {' or '.join(given)}, not both; got {got}")
        known: dict[str, float | None] = dict.fromkeys(self.defaults)
        for p in self.parameters:
            if p.name in given or p.name not in self.either:
                value = values.get(p.name, p.default)
                value = self.either.get(p.name) if value is None else value
                known[p.name] = checks.number(p.name, value, p.interval, p.whole)
        return known

    def overridden(self, values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Values of parameters and options, overridden by those given.

        A parameter also overrides the one that it replaces, and the reverse.

        >>> from symloss.losses.catalogue import RECORDS
        >>> RECORDS["alpha-mae"].overridden({"alpha": 2.0, "scale": "ce"}, {"kappa": 3.0})
        {'scale': 'ce', 'kappa': 3.0}
        """
        dropped = set(self.either) if given.keys() & self.either.keys() else set()
        return {name: value for name, value in values.items() if name not in dropped} | dict(given)

    def options(self, passed: LossOptions) -> LossOptions:
        """Return the options that a user passed, with this loss's default of ``normalize``."""
        self.refuse_unknown(passed)
        return {"normalize": self.normalize, **passed}

    def refuse_unknown(self, keywords: Iterable[str], extra: tuple[str, ...] = ()) -> None:
        """Raise an error for a keyword that is neither a parameter of this loss nor an option of every loss."""
        options = [*LossOptions.__annotations__, *extra]
        for key in keywords:
            if key not in self.defaults and key not in options:
                raise self._unknown(key, f"; options are: {', '.join(options)}")

    def _unknown(self, key: str, options: str = "") -> TypeError:
        known = f"its parameters are: {', '.join(self.defaults) or 'none'}{options}"
        return TypeError(f"{checks.shortened(self.name)} has no parameter {checks.brief(key)}; {known}")


P = ParamSpec("P")


def function(loss: Callable[P, Criterion]) -> Callable[Concatenate[Tensor, Tensor, P], Tensor]:
    """Return the function of (input, target) that computes the same as the class of a loss.

    The function takes the parameters and options of the class as keywords.

    >>> from symloss.losses.catalogue.probability import GCE
    >>> function(GCE)(torch.zeros(2, 4), torch.tensor([0, 3]), q=0.5)
    tensor(1.)
    """
    record: Record = cast(Any, loss).record
    remembered: Callable[..., Criterion] = functools.lru_cache(maxsize=256, typed=True)(loss)

    def call(input: Tensor, target: Tensor, *args: P.args, **keywords: P.kwargs) -> Tensor:
        # The cache keeps no class weights alive.
        anew = torch.compiler.is_compiling() or keywords.get("weight") is not None
        try:
            made = loss(*args, **keywords) if anew else remembered(*args, **keywords)
        except TypeError:  # an argument cannot be a key
            made = loss(*args, **keywords)
        value: Tensor = made(input, target)
        return value

    call.__name__ = call.__qualname__ = record.function_name
    call.__module__ = "symloss.functional"
    call.__doc__ = loss.__doc__
    return call  # type: ignore[return-value]  # typed by position; input= and target= work too
