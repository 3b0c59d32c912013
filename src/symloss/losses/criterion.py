"""``Criterion`` turns a loss into a torch module. Criterions can be added and multiplied by numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation
from symloss.losses.algebra import Loss, Scalable, same, shown
from symloss.losses.evaluate import Options, check_options, evaluate
from symloss.losses.layers import Temperature, UnitScores, checked_temperature
from symloss.losses.operators import UnitSlope
from symloss.losses.wrapped import Wrapped

ScoreMap = Callable[[Tensor], Tensor]
AnyLoss = str | Loss | nn.Module | Callable[..., Tensor]
"""A spec such as ``"focal:gamma=2"``, a loss of this package, or any module or function of (input, target)."""
Numbers = Tensor | Iterable[float]


def score_map(normalize: str | ScoreMap | None, temperature: Temperature) -> ScoreMap | None:
    """Return the function that ``normalize`` and ``temperature`` stand for; None if scores stay as they are."""
    if isinstance(normalize, str) and normalize == "l2":
        return UnitScores(temperature)
    if checked_temperature(temperature) != 1:
        raise ValueError(
            f"temperature={checks.brief(temperature)} needs normalize='l2'; got normalize={checks.brief(normalize)}"
        )
    if normalize is None or (callable(normalize) and not isinstance(normalize, str)):
        return normalize
    raise ValueError(f"normalize must be None, 'l2' or a function of the scores; got {checks.brief(normalize)}")


def scaled(loss: Loss, scale: str | None) -> Loss:
    """Divide the loss by its slope at equal scores if ``scale`` is "ce"; return the loss itself if it is None."""
    checks.choice("scale", scale, (None, "ce"))
    return UnitSlope(loss) if scale == "ce" else loss


def numbers(argument: str, value: object, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return a tensor as it is, and a list of numbers, or of lists, as a tensor of this type."""
    if isinstance(value, Tensor):
        return value
    try:
        return torch.tensor(list(value), dtype=dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        wanted = "a floating-point tensor or a list of numbers, with one entry for each class"
        raise TypeError(f"{argument} must be {wanted}; got {checks.brief(value)}") from None


class LossOptions(TypedDict, total=False):
    """The options of every loss, as keywords. :class:`Criterion` explains them."""

    weight: Numbers | None
    ignore_index: int
    reduction: str
    label_smoothing: float
    normalize: str | ScoreMap | None
    temperature: Temperature
    scale: str | None
    overwrite: bool


class Criterion(nn.CrossEntropyLoss, Scalable["Criterion"]):
    """A module that computes a loss. It takes the place of ``torch.nn.CrossEntropyLoss``.

    Losses can be added, subtracted and multiplied by numbers. The result has the options of its parts. An option that
    some parts were given holds for the whole, and parts that contradict each other raise an error.

    It is a subclass of ``CrossEntropyLoss`` because some libraries look for one. skorch, for example, then knows that
    the model returns scores, and turns them into probabilities. The class weights are an argument of the constructor
    and no part of a checkpoint: ``state_dict`` does not hold them, and loading ignores them.

    Args:
        loss: a loss of this package, a spec such as ``"0.1*ce + mae"``, or any module or function of (input, target).
        weight, ignore_index, reduction, label_smoothing: as in ``torch.nn.CrossEntropyLoss``. A symmetric loss stays
            symmetric with class weights. Label smoothing only scales a symmetric loss and adds a constant.
        normalize: ``"l2"`` divides each score vector by its norm. None leaves the scores as they are. Any function of
            the scores that does not read the labels works too, such as ``EpsSoftmax(m)``.
        temperature: divides the scores after ``normalize="l2"``. The paper uses 1, LogitNorm 0.04. For many classes
            take ``"auto"``: it keeps the largest probability of unit scores where it is for 10 classes at 1.
        scale: ``"ce"`` divides the loss by its slope at equal scores. Then a learning rate for cross-entropy still
            works.
        overwrite: True allows the loss to turn the scores into their gradient, which saves the memory of one tensor of
            their size. Then they cannot be used again, and ``backward`` can run once.

    Shapes: input (C,), (N, C) or (N, C, d1, ...). Target: class indices () / (N,) / (N, d1, ...), or probabilities in
    the shape of the input. A score of ``-inf`` masks its class out.

    Reference: section 7.2 of the paper explains ``normalize="l2"``.

    >>> import symloss
    >>> loss = symloss.Criterion(0.1 * symloss.CE() + symloss.MAE(), reduction="sum")
    >>> loss(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.7773)
    >>> loss
    Criterion(0.1 * CE() + MAE(), reduction='sum')
    """

    weight: Tensor | None
    record: ClassVar[Any]

    def __init__(
        self,
        loss: AnyLoss,
        *,
        weight: Numbers | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        normalize: str | ScoreMap | None = None,
        temperature: Temperature = 1.0,
        scale: str | None = None,
        overwrite: bool = False,
    ):
        check_options(ignore_index, reduction, label_smoothing)
        if weight is not None:
            weight = numbers("weight", weight, torch.float32)
            validation.class_vector("weight", weight)
        super().__init__(ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        self.register_buffer("weight", weight, persistent=False)
        self.normalize, self.temperature, self.scale = normalize, temperature, scale
        self.overwrite = bool(overwrite)
        self.values: dict[str, float | None] = {}
        """The parameters of a loss of the catalogue."""
        self.deviation: str | None = None
        """The public implementation that the loss agrees with where it differs from the publication; None if none."""
        self.given = {name for name, value in DEFAULTS.items() if not same(getattr(self, name), value)}
        """The options that this loss was given, so that another part of a sum must not contradict them."""
        self.loss = scaled(self._taken(loss), scale)
        self.score_map = score_map(self.normalize, self.temperature)
        if modules := self.loss.modules:  # registered so that .to(device) moves the weights of a wrapped torch module
            self.parts = nn.ModuleList(modules)

    def _taken(self, loss: AnyLoss) -> Loss:
        """Return the expression behind a loss, and take over the options that it has and this one was not given."""
        if isinstance(loss, Loss):
            return loss
        if not isinstance(loss, (str, Criterion)):
            return Wrapped(loss)
        part = as_criterion(loss)
        for name in part.options():
            if name not in self.given:
                setattr(self, name, getattr(part, name))
            elif name in part.given:
                _agreed(name, [self, part])
        changed = {name for name in part.options() if not same(getattr(self, name), DEFAULTS[name])}
        self.given |= changed | (part.given - {"scale"})
        return part.loss

    def _start(self, options: LossOptions, **values: float | None) -> None:
        """Initialise a loss of the catalogue with its parameters and the options that it was given."""
        checked = self.record.checked(**values)
        Criterion.__init__(self, self.record.build(**checked), **self.record.options(options))
        self.values, self.given = checked, set(options)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        options = Options(
            self.weight, self.ignore_index, self.reduction, self.label_smoothing, self.score_map, self.overwrite
        )
        return evaluate(self.loss, input, target, options)

    def per_class(self, scores: Tensor, dim: int = -1) -> Tensor:
        """Return the value at every label, in the shape of the scores, after ``normalize`` and without reduction.

        >>> import symloss
        >>> symloss.MAE().per_class(torch.zeros(4))
        tensor([0.7500, 0.7500, 0.7500, 0.7500])
        """
        if self.score_map is None:
            return self.loss.per_class(scores, dim)
        last = scores.movedim(dim, -1)
        mapped = self.score_map(last.reshape(-1, last.shape[-1])).reshape(last.shape)
        return self.loss.per_class(mapped.movedim(-1, dim), dim)

    def activation(self, scores: Tensor) -> Tensor:
        """Return the softmax of the scores after ``normalize``, in their shape. fastai calls this method."""
        mapped = scores if self.score_map is None else self.score_map(scores)
        return mapped.softmax(validation.class_dim(scores))

    def decodes(self, scores: Tensor) -> Tensor:
        """Return the class with the largest score, in the shape of the labels. fastai calls this method."""
        return scores.argmax(validation.class_dim(scores))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load without the class weights, which older checkpoints hold."""
        state_dict.pop(f"{prefix}weight", None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def options(self) -> dict[str, Any]:
        """Return the options besides ``scale``, which is a part of ``loss``."""
        return {name: getattr(self, name) for name in LossOptions.__annotations__ if name != "scale"}

    def __add__(self, other: Any) -> Criterion:
        return _sum(self, as_criterion(other)) if _is_loss(other) else NotImplemented

    def __radd__(self, other: Any) -> Criterion:
        return _sum(as_criterion(other), self) if _is_loss(other) else NotImplemented

    def __sub__(self, other: Any) -> Criterion:
        return _sum(self, -as_criterion(other)) if _is_loss(other) else NotImplemented

    def times(self, factor: float) -> Criterion:
        return _made(factor * self.loss, [self])

    def __repr__(self) -> str:
        if "loss" not in self.__dict__:  # while it is being made
            return type(self).__name__
        options = [f"{name}={shown(getattr(self, name))}" for name in LossOptions.__annotations__ if name in self.given]
        if type(self) is not Criterion:
            values = [f"{name}={value!r}" for name, value in self.values.items() if value is not None]
            if self.deviation is None:
                return f"{type(self).__name__}({', '.join([*values, *options])})"
            name, deviation = repr(self.record.name), f"deviation={self.deviation!r}"
            return f"create_loss({', '.join([name, *values, *options, deviation])})"
        loss = self.loss.inner if isinstance(self.loss, UnitSlope) and self.scale else self.loss
        return f"Criterion({', '.join([repr(loss), *options])})" if options else repr(loss)


DEFAULTS: dict[str, Any] = Criterion.__init__.__kwdefaults__ or {}
"""The options that a loss has if it was given none."""


def as_criterion(loss: AnyLoss) -> Criterion:
    """Return a loss of any kind as a module. A torch module keeps its reduction and its ignored label."""
    if isinstance(loss, Criterion):
        return loss
    if isinstance(loss, str):
        from symloss.losses.create import create_loss  # noqa: PLC0415 (names are built on this module)

        return create_loss(loss)
    if isinstance(loss, Loss):
        return Criterion(loss)
    names = ("reduction", "ignore_index") if isinstance(loss, nn.Module) else ()
    return Criterion(Wrapped(loss), **{name: getattr(loss, name) for name in names if hasattr(loss, name)})


def _is_loss(other: object) -> bool:
    return isinstance(other, (str, Loss, nn.Module)) or (callable(other) and not isinstance(other, type))


def _sum(one: Criterion, other: Criterion) -> Criterion:
    return _made(one.loss + other.loss, [one, other])


def _made(loss: Loss, parts: list[Criterion]) -> Criterion:
    """Return a loss with the options of its parts."""
    made = Criterion(loss, **{name: _agreed(name, parts) for name in LossOptions.__annotations__ if name != "scale"})
    made.given |= {name for part in parts for name in part.given if name != "scale"}
    return made


def _agreed(name: str, parts: list[Criterion]) -> Any:
    """Return an option of the whole: what parts were given, or else what is the default of all of them."""
    asked = [part for part in parts if name in part.given] or parts
    for part in asked[1:]:
        first, second = getattr(asked[0], name), getattr(part, name)
        if not same(first, second):
            raise ValueError(
                f"{name} must be the same for all parts of a loss; got {shown(first)} of {asked[0]!r} "
                f"and {shown(second)} of {part!r}"
            )
    return getattr(asked[0], name)
