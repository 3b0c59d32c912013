"""``Criterion`` turns a loss into a torch module. Criterions can be added and multiplied by numbers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation
from symloss.losses.base import Loss, NoSlopeError, Scalable, is_key, same, shown
from symloss.losses.kernels.batch import BatchLoss, Examples
from symloss.losses.kernels.forms import Number
from symloss.losses.kernels.linear import Unit
from symloss.losses.kernels.targets import LABELS, PROBABILITIES, WEIGHTS, kernel_for
from symloss.losses.layers import Temperature, UnitScores, checked_temperature
from symloss.losses.logits import Scores, full_precision
from symloss.losses.operators import Symmetrize, UnitSlope, Wrapped
from symloss.losses.validation import PLAIN

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
        self.name: str | None = None  # the name of a loss of the catalogue
        self.values: dict[str, float | None] = {}  # the parameters of a loss of the catalogue
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
            setattr(self, name, _agreed(name, [self, part] if name in self.given else [part]))
        changed = {name for name in part.options() if not same(getattr(self, name), DEFAULTS[name])}
        self.given |= changed | (part.given - {"scale"})
        return part.loss

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
        return _sum(self, factor=factor)

    def __repr__(self) -> str:
        if "loss" not in self.__dict__:  # while it is being made
            return type(self).__name__
        options = [f"{name}={shown(getattr(self, name))}" for name in LossOptions.__annotations__ if name in self.given]
        if self.name is not None:
            values = [f"{name}={value!r}" for name, value in self.values.items() if value is not None]
            if self.deviation is None and type(self) is not Criterion:
                return f"{type(self).__name__}({', '.join([*values, *options])})"
            deviation = [] if self.deviation is None else [f"deviation={self.deviation!r}"]
            return f"create_loss({', '.join([repr(self.name), *values, *options, *deviation])})"
        loss = self.loss.inner if isinstance(self.loss, UnitSlope) and self.scale else self.loss
        return f"Criterion({', '.join([repr(loss), *options])})" if options else repr(loss)


class NamedLoss(Criterion):
    """The base class of the losses of the catalogue. A subclass has a record, and parameters if it needs any.

    Args:
        options: those of :class:`symloss.Criterion`.
    """

    record: ClassVar[Any]

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        self._start(options)

    def _start(self, options: LossOptions, **values: float | None) -> None:
        """Initialise a loss of the catalogue with its parameters and the options that it was given."""
        checked = self.record.checked(**values)
        Criterion.__init__(self, self.record.build(**checked), **self.record.options(options))
        self.name, self.values, self.given = self.record.name, checked, set(options)


DEFAULTS: dict[str, Any] = Criterion.__init__.__kwdefaults__ or {}  # the options that a loss has if it was given none


def as_criterion(loss: AnyLoss) -> Criterion:
    """Return a loss of any kind as a module. A torch module keeps its reduction and its ignored label."""
    if isinstance(loss, Criterion):
        return loss
    if isinstance(loss, str):
        from symloss.losses.spec import create_loss  # noqa: PLC0415 (names are built on this module)

        return create_loss(loss)
    if isinstance(loss, Loss):
        return Criterion(loss)
    names = ("reduction", "ignore_index") if isinstance(loss, nn.Module) else ()
    return Criterion(Wrapped(loss), **{name: getattr(loss, name) for name in names if hasattr(loss, name)})


def _is_loss(other: object) -> bool:
    return isinstance(other, (str, Loss, nn.Module)) or (callable(other) and not isinstance(other, type))


def _sum(*parts: Criterion, factor: float = 1.0) -> Criterion:
    """Return a multiple of a loss, or the sum of two, with the options of its parts."""
    first, *others = parts
    loss = first.loss + others[0].loss if others else factor * first.loss
    made = Criterion(loss, **{name: _agreed(name, [*parts]) for name in first.options()})
    made.given |= {name for part in parts for name in part.given if name != "scale"}
    return made


def _agreed(name: str, parts: list[Criterion]) -> Any:
    """Return an option of the whole: what parts were given, or else the default of all of them."""
    asked = [part for part in parts if name in part.given] or parts
    for part in asked[1:]:
        first, second = getattr(asked[0], name), getattr(part, name)
        if not same(first, second):
            raise ValueError(
                f"{name} must be the same for all parts of a loss; got {shown(first)} of {asked[0]!r} "
                f"and {shown(second)} of {part!r}"
            )
    return getattr(asked[0], name)


REDUCTIONS = ("mean", "sum", "none")


def check_options(ignore_index: object, reduction: object, label_smoothing: object) -> None:
    """Raise an error if an option of ``F.cross_entropy`` has a value that it cannot have."""
    checks.choice("reduction", reduction, REDUCTIONS)
    checks.number("label_smoothing", label_smoothing, "[0, 1]")
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
        raise TypeError(f"ignore_index must be a whole number; got {checks.brief(ignore_index)}")


class Options(NamedTuple):
    """The options of an evaluation. :class:`symloss.Criterion` explains them."""

    weight: Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0
    score_map: Callable[[Tensor], Tensor] | None = None
    overwrite: bool = False


def evaluate(loss: Loss, input: Tensor, target: Tensor, options: Options) -> Tensor:
    """Return the loss of scores at targets, with the shapes and options of ``F.cross_entropy``; in float32 at least."""
    ignore_index, reduction, smoothing = options[1:4]
    usual = type(ignore_index) is int and reduction in REDUCTIONS and type(smoothing) is float and smoothing == 0
    if not usual and not torch.compiler.is_compiling():
        check_options(ignore_index, reduction, smoothing)
    soft = validation.is_soft(input, target)
    if input.dim() == 1:
        value = evaluate(loss, input[None], target[None], options)
        return value[0] if options.reduction == "none" else value
    classes, scores = input.shape[1], options.score_map
    if scores is not None and classes > MANY:
        warn_of_flat_scores(loss, scores, classes)
    weight, kind = options.weight, LABELS
    if weight is not None:
        validation.class_vector("weight", weight, classes)
    if soft:
        examples, kind = _soft(loss, input, target, options)
    else:
        labels = target.long()
        kept = validation.kept(labels, classes, ignore_index)
        if smoothing > 0 or (weight is not None and loss.symmetric):
            examples, kind = _weighed(loss, input, labels, kept, options)
        else:
            examples = Examples(labels, kept, None, reduction)
            examples = examples if weight is None else examples.weighed(weight)

    def plain(z: Tensor) -> Tensor:
        return _plain(loss, full_precision(z), examples, scores)

    if (
        input.numel() == 0
        or not (scores is None or isinstance(scores, UnitScores))
        or not validation.is_eager()
        or PLAIN.get()
    ):
        return plain(input)
    unit = None if scores is None else Unit(scores.temperature, scores.eps)
    kernel = kernel_for(loss, classes, unit, kind)
    quick = None if kernel is None else BatchLoss(examples, plain, kernel, options.overwrite).loss(input)
    return plain(input) if quick is None else quick


def _soft(loss: Loss, input: Tensor, target: Tensor, options: Options) -> tuple[Examples, str]:
    """Return the targets of a batch of probabilities, what each example counts for, and the kind of the targets."""
    if options.ignore_index >= 0:
        raise ValueError(f"ignore_index={options.ignore_index} needs a target of class indices; got probabilities")
    validation.probabilities(target, 1)
    looks = validation.can_look(target, input) and target.numel() > 0
    masked = looks and float(input.detach().amin()) == -torch.inf
    if masked and bool(((target > 0) & (input == -torch.inf)).any()):
        raise ValueError(
            "target gives probability to a class whose score is -inf, that is, masked out; it must be 0 there"
        )
    if options.label_smoothing > 0 or options.weight is not None:
        return _weighed(loss, input, target, None, options)
    t = target.to(full_precision(input[:0]).dtype)
    return Examples(t, None, None, options.reduction, float(t.numel() // t.shape[1])), PROBABILITIES


def _weighed(loss: Loss, input: Tensor, target: Tensor, kept: Tensor | None, options: Options) -> tuple[Examples, str]:
    """Return the weight of each class that smoothing and class weights make of labels or probabilities.

    Label smoothing adds the mean over labels, which is constant for a symmetric loss. torch's class weights, w_y L_y,
    would break the symmetry of such a loss. It becomes w_y L_y - mean_k w_k L_k + mean(w) mean_k L_k instead, which is
    symmetric, and equals L_y if all w are 1.
    """
    z, smoothing, soft = full_precision(input.detach()), options.label_smoothing, target.is_floating_point()
    target = target if kept is None else torch.where(kept, target, 0)
    masked = not validation.can_look(z) or (z.numel() > 0 and float(z.amin()) == -torch.inf)
    s, symmetric = Scores(z, 1) if masked else None, loss.symmetric
    weight = None if options.weight is None else options.weight.to(z)
    w = 1.0 if weight is None else weight.reshape(-1, *[1] * (z.dim() - 2))
    count = z.shape[1] if s is None else s.count
    mean_weight = 1.0 if not isinstance(w, Tensor) else w.mean() if s is None else s.mean(w.expand_as(s.z))
    spread = offset = None
    if symmetric:
        spread = None if weight is None else (1 - smoothing) * (mean_weight - w) / count
        offset = None if smoothing == 0 else smoothing * mean_weight * _level(loss, z, s)
        offset = offset.squeeze(1) if isinstance(offset, Tensor) and offset.dim() else offset
    elif smoothing > 0:
        spread = smoothing / count * w
    if s is not None and not soft:
        counted = torch.ones_like(target, dtype=torch.bool) if kept is None else kept
        validation.present_labels(z, target.unsqueeze(1), counted.unsqueeze(1), 1)
    chosen = 1.0 if weight is None or soft else weight[target]
    each = mean_weight if symmetric else chosen
    divisor = _total(each, kept, target[:, 0] if soft else target)
    if spread is None and not soft:
        factor = torch.full_like(target, 1 - smoothing, dtype=z.dtype)
        return Examples(target, kept, factor, options.reduction, divisor, offset), LABELS
    t = (1 - smoothing) * w * target.to(z.dtype) if soft else _placed(spread, target, (1 - smoothing) * chosen, z)
    t = t + spread if soft and spread is not None else t
    t = t if s is None else torch.where(s.present, t, 0.0)
    kind = PROBABILITIES if weight is None and (smoothing == 0 or not symmetric) else WEIGHTS
    return Examples(t, kept, None, options.reduction, divisor, offset), kind


def _total(each: Number, kept: Tensor | None, like: Tensor) -> Number:
    """Return the sum over the examples that count of what each counts for."""
    if not isinstance(each, Tensor) or each.dim() == 0:
        return each * (like.numel() if kept is None else kept.sum())
    every = each.squeeze(1).expand_as(like) if each.dim() > like.dim() else each
    return (every if kept is None else torch.where(kept, every, 0.0)).sum()


def _placed(spread: Number | None, target: Tensor, chosen: Number, z: Tensor) -> Tensor:
    """Return the weights ``spread`` of all classes, with ``chosen`` added at the label."""
    at_label = chosen.unsqueeze(1) if isinstance(chosen, Tensor) else z.new_full((), chosen)
    labels, spread = target.unsqueeze(1), torch.as_tensor(spread, dtype=z.dtype, device=z.device)
    if validation.is_eager():
        return spread.expand_as(z).clone().scatter_add_(1, labels, at_label.expand(labels.shape))
    return spread + torch.where(Scores(z, 1).index == labels, at_label, 0.0)


def _level(loss: Loss, z: Tensor, s: Scores | None) -> Number:
    """Return the mean over labels of a symmetric loss, which is its value at equal scores."""
    if s is None and is_key(loss):
        return _constant_level(loss, z.shape[1])
    return _mean_over_labels(loss, Scores(z, 1) if s is None else s)


@functools.lru_cache(maxsize=256)
def _constant_level(loss: Loss, classes: int) -> float:
    return float(_mean_over_labels(loss, Scores(torch.zeros(classes, dtype=torch.float64))))


def _mean_over_labels(loss: Loss, s: Scores) -> Tensor:
    try:
        return loss.first_order(s).value
    except NoSlopeError:
        return s.mean(loss.values(s)).detach()


def _plain(loss: Loss, z: Tensor, examples: Examples, score_map: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Return the loss by the plain formulas."""
    s = Scores(z if score_map is None else _mapped(z, score_map), 1)
    kept, target = examples.kept, examples.labels
    if validation.can_look(s.z):
        counted = torch.ones_like(s.count, dtype=torch.bool) if kept is None else kept.unsqueeze(1)
        loss.refuse(s, counted)
        if not target.is_floating_point():
            validation.present_labels(s.z, target, counted, 1)
    if target.is_floating_point():
        return examples.reduced(s.sum(target * loss.values(s)))
    return examples.reduced(loss.values(s, target))


def _mapped(z: Tensor, score_map: Callable[[Tensor], Tensor]) -> Tensor:
    scores = score_map(z)
    if not isinstance(scores, Tensor):
        raise TypeError(f"normalize must map scores to a tensor of scores; got {type(scores).__name__}")
    if scores.shape != z.shape:
        raise ValueError(f"normalize must keep the scores' shape {tuple(z.shape)}; got {tuple(scores.shape)}")
    return scores


MANY = 500  # above this number of classes the probabilities of unit scores differ by a few percent at temperature 1

_judged: set[str] = set()  # the kinds of losses that were looked at, and warned about if need be


def warn_of_flat_scores(loss: Loss, score_map: Callable[[Tensor], Tensor], classes: int) -> None:
    """Warn, once for each kind of loss, if the loss sees many classes as nearly equally probable.

    A loss that is linear in the scores sees no probabilities, and one with ``scale="ce"`` has a larger gradient.
    """
    if classes <= MANY or torch.compiler.is_compiling() or not isinstance(score_map, UnitScores):
        return
    temperature = score_map.temperature
    if temperature == "auto" or temperature < 1 or (kind := _kind(loss)) in _judged:
        return
    _judged.add(kind)
    bare = loss.inner if isinstance(loss, UnitSlope) else loss
    try:
        is_weak = abs(bare.slope(classes)) < 0.5
    except NoSlopeError:
        is_weak = False
    if _is_linear(bare) or (is_weak and bare is not loss):
        return
    warnings.warn(
        f"normalize='l2' at temperature {temperature:g} makes {classes} classes nearly equally probable, so that "
        f"{checks.brief(loss)} hardly tells them apart, with a gradient far below that of cross-entropy; "
        f"take temperature='auto'{' and scale=' + repr('ce') if is_weak else ''}, or normalize=None",
        stacklevel=3,
    )


def _is_linear(loss: Loss) -> bool:
    """Whether a loss is linear in the scores."""
    linear_parts = bool(loss.children) and all(map(_is_linear, loss.children))
    return loss.affine and (isinstance(loss, Symmetrize) or linear_parts)


def _kind(loss: Loss) -> str:
    """Return a loss without its parameters."""
    return f"{type(loss).__name__}({', '.join(map(_kind, loss.children))})"
