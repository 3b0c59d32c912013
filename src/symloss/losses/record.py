"""The record of a loss: its name, formula, source and parameters, and the facts that the tests verify."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from symloss import checks
from symloss.losses.algebra import Loss
from symloss.losses.criterion import LossOptions
from symloss.recipes.published_settings import Preset, presets_of

Fact = bool | Callable[[SimpleNamespace], bool]


@dataclass(frozen=True)
class Range:
    """The values that a parameter may take, and what it means. The default is in the signature of the loss.

    A parameter that may be replaced by another one has the default None there, and its own here.
    """

    interval: str
    meaning: str
    whole: bool = False
    default: float | None = None
    instead_of: str | None = None
    """The parameter that this one replaces. It has no default itself."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of one loss."""

    name: str
    default: float | None
    interval: str
    meaning: str
    whole: bool = False
    instead_of: str | None = None


@dataclass(frozen=True)
class Facts:
    """Properties of a loss of raw scores. Each may depend on the parameters and on the number of classes C."""

    symmetric: Fact = False
    non_increasing: Fact = True
    convex: Fact = False
    bounded: Fact = True
    permutation_invariant: Fact = True

    def at(self, classes: int, **parameters: float | None) -> dict[str, bool]:
        """The facts for this number of classes and these parameters, by name."""
        point = SimpleNamespace(C=classes, **parameters)
        return {name: fact if isinstance(fact, bool) else fact(point) for name, fact in vars(self).items()}


Known = float | Callable[[SimpleNamespace], float | None] | None


@dataclass(frozen=True)
class Constants:
    """Constants of a loss of raw scores; None where no formula is known."""

    lipschitz: Known = None
    smoothness: Known = None

    def at(self, classes: int, **parameters: float | None) -> dict[str, float | None]:
        """The constants for this number of classes and these parameters, by name."""
        point = SimpleNamespace(C=classes, **parameters)
        return {name: known(point) if callable(known) else known for name, known in vars(self).items()}


@dataclass(eq=False)
class Record:
    """The record of a loss. It is an attribute of the class of the loss, and reads the defaults from its signature.

    Args:
        name: the name that ``create_loss`` takes.
        formula: the formula in plain text.
        source: a key of ``catalogue.SOURCES``.
        build: returns the expression of the algebra for given parameters.
        ranges: the values that each parameter may take, by its name.
        facts, constants: properties of the loss. The tests verify them.
        normalize: the default of that option.
    """

    name: str
    formula: str
    source: str
    build: Callable[..., Loss]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    facts: Facts = Facts()
    normalize: str | None = None
    constants: Constants = Constants()
    class_name: str = field(default="Criterion", init=False)
    parameters: tuple[Parameter, ...] = field(default=(), init=False)
    defaults: dict[str, float | None] = field(default_factory=dict, init=False)

    def __set_name__(self, loss: type, attribute: str) -> None:
        """Called by Python when the class of the loss is made: its signature holds the defaults."""
        signature = inspect.signature(loss.__init__).parameters  # type: ignore[misc]
        self.class_name = loss.__name__
        own = {name: signature[name].default for name in self.ranges}
        self.defaults = {name: self.ranges[name].default if value is None else value for name, value in own.items()}
        self.parameters = tuple(
            Parameter(name, self.defaults[name], r.interval, r.meaning, r.whole, r.instead_of)
            for name, r in self.ranges.items()
        )

    @property
    def function_name(self) -> str:
        """The name of the loss in ``symloss.functional``."""
        return self.name.replace("-", "_").replace("+", "_")

    @property
    def presets(self) -> Mapping[str, Preset]:
        """Published settings, by data set."""
        return presets_of(self.name)

    def loss(self, **values: float | None) -> Loss:
        """The expression of the algebra for these parameters. They are checked, and defaults are filled in."""
        return self.build(**self.checked(**values))

    def checked(self, **values: float | None) -> dict[str, float | None]:
        """The parameters with defaults filled in. Wrong ones raise an error.

        Of a parameter and the one that may stand in its place, one at most is given. The other one is None.
        """
        unknown = sorted(set(values) - set(self.defaults))
        if unknown:
            known = ", ".join(self.defaults) or "none"
            name, key = checks.shortened(self.name), checks.brief(unknown[0])
            raise TypeError(f"{name} has no parameter {key}; its parameters are: {known}")
        left_out = self._left_out(values)
        return {p.name: None if p.name in left_out else self._checked(p, values) for p in self.parameters}

    def _checked(self, p: Parameter, values: Mapping[str, float | None]) -> float:
        value = values.get(p.name, p.default)
        return checks.number(p.name, self.ranges[p.name].default if value is None else value, p.interval, p.whole)

    def _left_out(self, values: Mapping[str, float | None]) -> set[str]:
        """The parameters that another one replaces, and those that replace none here."""
        names = set()
        for replaced, p in ((p.instead_of, p) for p in self.parameters if p.instead_of is not None):
            one, other = values.get(replaced), values.get(p.name)
            if one is not None and other is not None:
                got = f"{replaced}={checks.brief(one)} and {p.name}={checks.brief(other)}"
                raise ValueError(f"{self.name} takes {replaced} or {p.name}, not both; got {got}")
            names.add(p.name if other is None else replaced)
        return names

    def overridden(self, values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Values of parameters and options, overridden by those given.

        A parameter also overrides the one that it replaces, and the reverse.

        >>> from symloss.losses.catalogue import RECORDS
        >>> RECORDS["alpha-mae"].overridden({"alpha": 2.0, "scale": "ce"}, {"kappa": 3.0})
        {'scale': 'ce', 'kappa': 3.0}
        """
        pairs = [(p.name, p.instead_of) for p in self.parameters if p.instead_of is not None]
        dropped = {other for one, another in pairs for name, other in ((one, another), (another, one)) if name in given}
        return {name: value for name, value in values.items() if name not in dropped} | dict(given)

    def options(self, passed: LossOptions) -> LossOptions:
        """The options that a user passed, with this loss's default of ``normalize``."""
        self.refuse_unknown(passed)
        return {"normalize": self.normalize, **passed}

    def refuse_unknown(self, keywords: Iterable[str], extra: tuple[str, ...] = ()) -> None:
        """Raise an error for a keyword that is neither a parameter of this loss nor an option of every loss."""
        options = [*LossOptions.__annotations__, *extra]
        for key in keywords:
            if key not in self.defaults and key not in options:
                known = ", ".join(self.defaults) or "none"
                raise TypeError(
                    f"{checks.shortened(self.name)} has no parameter {checks.brief(key)}; "
                    f"its parameters are: {known}; options are: {', '.join(options)}"
                )
