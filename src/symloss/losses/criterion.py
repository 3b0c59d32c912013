"""The module that trains with a loss, the robust part of any loss, and its decomposition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation
from symloss.losses.algebra import Loss, refuse_no_loss
from symloss.losses.evaluate import Options, check_options, evaluate
from symloss.losses.operators import Insensitive, Symmetrize, UnitSlope
from symloss.losses.scores import UnitScores
from symloss.losses.wrapped import Wrapped, as_loss

ScoreMap = Callable[[Tensor], Tensor]
AnyLoss = Loss | nn.Module | Callable[..., Tensor]


def score_map(normalize: str | ScoreMap | None, temperature: float) -> ScoreMap | None:
    """What ``normalize`` and ``temperature`` say, as a map of the scores."""
    if isinstance(normalize, str) and normalize == "l2":
        return UnitScores(temperature)
    if checks.number("temperature", temperature, "(0, inf)") != 1:
        raise ValueError(f"temperature={temperature!r} needs normalize='l2'; got normalize={checks.brief(normalize)}")
    if normalize is None or (callable(normalize) and not isinstance(normalize, str)):
        return normalize
    raise ValueError(f"normalize must be None, 'l2' or a function of the scores; got {checks.brief(normalize)}")


def scaled(loss: Loss, scale: str | None) -> Loss:
    checks.choice("scale", scale, (None, "ce"))
    return UnitSlope(loss) if scale == "ce" else loss


class LossOptions(TypedDict, total=False):
    """The options of every loss, as keywords. :class:`Criterion` says what they do."""

    weight: Tensor | None
    ignore_index: int
    reduction: str
    label_smoothing: float
    normalize: str | ScoreMap | None
    temperature: float
    scale: str | None


class Criterion(nn.CrossEntropyLoss):
    """A loss to train with, wherever ``torch.nn.CrossEntropyLoss`` would do.

    It is a ``CrossEntropyLoss`` to libraries that look for one: skorch then knows that the model's outputs are scores,
    and returns probabilities. The class weights belong to the constructor, not to a checkpoint: ``state_dict`` leaves
    them out, and loading ignores them.

    Args:
        loss: an expression of the algebra.
        weight, ignore_index, reduction, label_smoothing: as in ``torch.nn.CrossEntropyLoss``. On a symmetric loss
            weights keep the symmetry, and label smoothing only scales the loss and adds a constant.
        normalize: ``"l2"`` divides each score vector by its norm, None leaves it; or any label-free function of the
            scores, such as ``EpsSoftmax(m)``.
        temperature: with ``"l2"``, what the unit scores are divided by. 1 is the paper's, 0.04 LogitNorm's.
        scale: ``"ce"`` divides the loss by its slope at equal scores, so that a learning rate that was found for
            cross-entropy still works.

    Shapes: input (C,), (N, C) or (N, C, d1, ...); target class indices () / (N,) / (N, d1, ...), or probabilities of
    the input's shape. A score of ``-inf`` masks its class out.

    >>> from symloss.losses.leaves import CE, MAE
    >>> loss = Criterion(0.1 * CE() + MAE(), reduction="sum")
    >>> loss(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.7773)
    """

    weight: Tensor | None

    def __init__(
        self,
        loss: Loss,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        normalize: str | ScoreMap | None = None,
        temperature: float = 1.0,
        scale: str | None = None,
    ):
        refuse_no_loss(loss)
        check_options(ignore_index, reduction, label_smoothing)
        if weight is not None:
            validation.class_vector("weight", weight)
        super().__init__(ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        self.register_buffer("weight", weight, persistent=False)
        self.score_map = score_map(normalize, temperature)
        self.normalize, self.temperature, self.scale = normalize, temperature, scale
        self.loss = scaled(loss, scale)
        # Registered so that .to(device) reaches the weights inside a loss of somebody else's.
        self.parts = nn.ModuleList(self.loss.modules)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        options = Options(self.weight, self.ignore_index, self.reduction, self.label_smoothing, self.score_map)
        return evaluate(self.loss, input, target, options)

    def activation(self, scores: Tensor) -> Tensor:
        """The probabilities of the classes, as the loss sees them; fastai asks for them by this name.

        That is the softmax of the scores after ``normalize``. Shapes are those of ``forward``'s input.

        >>> from symloss.losses.leaves import CE
        >>> Criterion(CE()).activation(torch.tensor([[0.0, 0.0]]))
        tensor([[0.5000, 0.5000]])
        """
        mapped = scores if self.score_map is None else self.score_map(scores)
        return mapped.softmax(validation.class_dim(scores))

    def decodes(self, scores: Tensor) -> Tensor:
        """The class with the largest score; fastai asks for it by this name.

        >>> from symloss.losses.leaves import CE
        >>> Criterion(CE()).decodes(torch.tensor([[0.0, 1.0]]))
        tensor([1])
        """
        return scores.argmax(validation.class_dim(scores))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Without the class weights, which older checkpoints hold."""
        state_dict.pop(f"{prefix}weight", None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _options(self) -> dict[str, Any]:
        names = ("ignore_index", "reduction", "label_smoothing", "normalize", "temperature", "scale")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        defaults = Criterion.__init__.__kwdefaults__ or {}
        given = [f"{name}={value!r}" for name, value in self._options().items() if value != defaults[name]]
        return ", ".join([repr(self.loss), *given])


class Decomposition(NamedTuple):
    """The two parts that sum to a loss: one symmetric, one that does not depend on the label (prop. 4.1)."""

    symmetric: Any
    insensitive: Any


def symmetrize(loss: AnyLoss, prior: Tensor | Iterable[float] | None = None) -> Any:
    """The symmetric, noise-robust part of any loss: its value less its mean over labels (eq. 1).

    Takes a loss of the algebra, or any module or function of (input, target) that can return one value for each
    example; that one is called once for each batch, with every label in turn (C times the rows). A module gives a
    :class:`Criterion`, anything else a loss of the algebra.

    With ``prior`` q the mean is taken under q: robust to noise that replaces labels by draws from q.

    >>> robust = symmetrize(torch.nn.CrossEntropyLoss())
    >>> robust(torch.tensor([[1.0, 2.0, 6.0]]), torch.tensor([2]))  # mean(z) - z_y
    tensor(-3.)
    """
    q = _prior(prior)
    return _lift(loss, lambda expression: Symmetrize(expression, q))


def decompose(loss: AnyLoss, prior: Tensor | Iterable[float] | None = None) -> Decomposition:
    """Any loss as the sum of a symmetric part and a part that is the same at every label.

    The parts add up example by example. (A weighted loss of torch's divides its mean by the weights of the labels
    that occur, the parts by the number of examples: with ``reduction="mean"`` the two differ by that factor.)

    >>> symmetric, insensitive = decompose(torch.nn.functional.cross_entropy)
    >>> z, y = torch.tensor([[1.0, 2.0, 6.0]]), torch.tensor([2])
    >>> symmetric(z, y), insensitive(z, y)
    (tensor(-3.), tensor(3.0247))
    >>> torch.nn.functional.cross_entropy(z, y)
    tensor(0.0247)
    """
    q = _prior(prior)
    return Decomposition(symmetrize(loss, q), _lift(loss, lambda expression: Insensitive(expression, q)))


def _prior(prior: Tensor | Iterable[float] | None) -> Tensor | None:
    if prior is None:
        return None
    try:
        q = prior if isinstance(prior, Tensor) else torch.tensor(list(prior), dtype=torch.float64)
    except (TypeError, ValueError) as error:
        wanted = "prior must hold one entry for each class, all numbers"
        raise TypeError(f"{wanted}; got {checks.brief(prior)}") from error
    validation.class_vector("prior", q)
    validation.probabilities(q, 0, "prior")
    return q


def _lift(loss: AnyLoss, operator: Callable[[Loss], Loss]) -> Any:
    """An operator of the algebra, applied to anything: functions join the algebra, modules stay modules."""
    if not isinstance(loss, nn.Module):
        return operator(as_loss(loss))
    if isinstance(loss, Criterion) and loss.weight is None and loss.label_smoothing == 0 and loss.scale is None:
        return Criterion(operator(loss.loss), **loss._options())
    kept = {name: getattr(loss, name) for name in ("reduction", "ignore_index") if hasattr(loss, name)}
    return Criterion(operator(Wrapped(loss)), **kept)
