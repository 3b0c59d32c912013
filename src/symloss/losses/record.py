"""What is written down of a loss, once: its name, formula, source, parameters, and what is claimed of it."""

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
    """The values that a parameter may take, and what they do. The default is in the signature of the loss."""

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
    """What is claimed of a loss of raw scores; a claim may depend on the parameters and on the number of classes C."""

    symmetric: Fact = False
    non_increasing: Fact = True
    convex: Fact = False
    bounded: Fact = True
    permutation_invariant: Fact = True

    def at(self, classes: int, **parameters: float) -> dict[str, bool]:
        point = SimpleNamespace(C=classes, **parameters)
        return {name: fact if isinstance(fact, bool) else fact(point) for name, fact in vars(self).items()}


Known = float | Callable[[SimpleNamespace], float | None] | None


@dataclass(frozen=True)
class Constants:
    """Constants of a loss of raw scores for which there is a formula; None where there is none."""

    lipschitz: Known = None
    smoothness: Known = None

    def at(self, classes: int, **parameters: float) -> dict[str, float | None]:
        point = SimpleNamespace(C=classes, **parameters)
        return {name: known(point) if callable(known) else known for name, known in vars(self).items()}


@dataclass(eq=False)
class Record:
    """The facts of a loss. It stands in the class of the loss, and takes name and defaults from that class.

    Args:
        name: what ``create_loss`` calls the loss.
        formula: in plain text.
        source: a key of ``catalogue.SOURCES``.
        build: the parameters to an expression of the algebra.
        ranges: by parameter, the values that it may take.
        facts, constants: claims, which the tests verify.
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
        """The expression at these parameters, checked, with defaults for the rest."""
        unknown = sorted(set(values) - set(self.defaults))
        if unknown:
            known = ", ".join(self.defaults) or "none"
            raise TypeError(f"{self.name} has no parameter {unknown[0]!r}; its parameters are: {known}")
        checked = {
            p.name: checks.number(p.name, values.get(p.name, p.default), p.interval, p.whole) for p in self.parameters
        }
        return self.build(**checked)

    def options(self, given: LossOptions) -> LossOptions:
        """The options of Criterion that a user gave, with the default of ``normalize`` for this loss."""
        self.refuse_unknown(given)
        return {"normalize": self.normalize, **given}

    def refuse_unknown(self, keywords: Iterable[str], extra: tuple[str, ...] = ()) -> None:
        """An error for a keyword that is neither a parameter of the loss, nor an option of every loss."""
        options = [*LossOptions.__annotations__, *extra]
        for key in keywords:
            if key not in self.defaults and key not in options:
                known = ", ".join(self.defaults) or "none"
                raise TypeError(
                    f"{self.name} has no parameter {key!r}; its parameters are: {known}; "
                    f"options are: {', '.join(options)}"
                )
