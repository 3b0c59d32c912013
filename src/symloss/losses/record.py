"""What is written down of a loss, once: how it is built, its parameters, what is claimed of it, published settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace

from symloss import checks
from symloss.losses.algebra import Loss
from symloss.recipes.presets import Preset, presets_of

Fact = bool | Callable[[SimpleNamespace], bool]


@dataclass(frozen=True)
class Parameter:
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


@dataclass(frozen=True)
class Record:
    name: str
    class_name: str
    build: Callable[..., Loss]
    formula: str
    source: str
    parameters: tuple[Parameter, ...] = ()
    facts: Facts = Facts()
    normalize: str | None = None
    constants: Constants = Constants()

    @property
    def presets(self) -> Mapping[str, Preset]:
        """Published settings, by data set."""
        return presets_of(self.name)

    @property
    def defaults(self) -> dict[str, float]:
        return {parameter.name: parameter.default for parameter in self.parameters}

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
