"""The record of a loss: its name, formula, source and parameters, and the facts that the tests verify."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

from symloss import checks
from symloss.losses.algebra import Loss
from symloss.losses.criterion import LossOptions
from symloss.recipes.published_settings import Preset, presets_of

Fact = bool | Callable[[SimpleNamespace], bool]


@dataclass(frozen=True)
class Range:
    """The values that a parameter may take, and what it means. The default is in the signature of the loss."""

    interval: str
    meaning: str
    whole: bool = False


@dataclass(frozen=True)
class Parameter:
    """A parameter of one loss."""

    name: str
    default: float
    interval: str
    meaning: str
    whole: bool = False


@dataclass(frozen=True)
class Facts:
    """Properties of a loss of raw scores. Each may depend on the parameters and on the number of classes C."""

    symmetric: Fact = False
    non_increasing: Fact = True
    convex: Fact = False
    bounded: Fact = True
    permutation_invariant: Fact = True

    def at(self, classes: int, **parameters: float) -> dict[str, bool]:
        """The facts for this number of classes and these parameters, by name."""
        point = SimpleNamespace(C=classes, **parameters)
        return {name: fact if isinstance(fact, bool) else fact(point) for name, fact in vars(self).items()}


Known = float | Callable[[SimpleNamespace], float | None] | None


@dataclass(frozen=True)
class Constants:
    """Constants of a loss of raw scores; None where no formula is known."""

    lipschitz: Known = None
    smoothness: Known = None

    def at(self, classes: int, **parameters: float) -> dict[str, float | None]:
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
    defaults: dict[str, float] = field(default_factory=dict, init=False)

    def __set_name__(self, loss: type, attribute: str) -> None:
        """Called by Python when the class of the loss is made: its signature holds the defaults."""
        signature = inspect.signature(loss.__init__).parameters  # type: ignore[misc]
        self.class_name = loss.__name__
        self.defaults = {name: signature[name].default for name in self.ranges}
        self.parameters = tuple(
            Parameter(name, self.defaults[name], possible.interval, possible.meaning, possible.whole)
            for name, possible in self.ranges.items()
        )

    @property
    def function_name(self) -> str:
        """The name of the loss in ``symloss.functional``."""
        return self.name.replace("-", "_").replace("+", "_")

    @property
    def presets(self) -> Mapping[str, Preset]:
        """Published settings, by data set."""
        return presets_of(self.name)

    def loss(self, **values: float) -> Loss:
        """The expression of the algebra for these parameters. They are checked, and defaults are filled in."""
        unknown = sorted(set(values) - set(self.defaults))
        if unknown:
            known = ", ".join(self.defaults) or "none"
            raise TypeError(f"{self.name} has no parameter {unknown[0]!r}; its parameters are: {known}")
        checked = {
            p.name: checks.number(p.name, values.get(p.name, p.default), p.interval, p.whole) for p in self.parameters
        }
        return self.build(**checked)

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
                    f"{self.name} has no parameter {key!r}; its parameters are: {known}; "
                    f"options are: {', '.join(options)}"
                )
