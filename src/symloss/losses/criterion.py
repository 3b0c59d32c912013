"""``Criterion`` turns a loss into a torch module. ``symmetrize`` and ``decompose`` take any loss apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation
from symloss.losses.algebra import Loss, refuse_no_loss
from symloss.losses.evaluate import Options, check_options, evaluate
from symloss.losses.layers import Temperature, UnitScores, checked_temperature
from symloss.losses.operators import Insensitive, Symmetrize, UnitSlope
from symloss.losses.wrapped import Wrapped, as_loss

ScoreMap = Callable[[Tensor], Tensor]
AnyLoss = Loss | nn.Module | Callable[..., Tensor]


def score_map(normalize: str | ScoreMap | None, temperature: Temperature) -> ScoreMap | None:
    """The function of the scores that ``normalize`` and ``temperature`` stand for; None if scores stay as they are."""
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
    """The loss divided by its slope at equal scores if ``scale`` is "ce"; the loss itself if it is None."""
    checks.choice("scale", scale, (None, "ce"))
    return UnitSlope(loss) if scale == "ce" else loss


class LossOptions(TypedDict, total=False):
    """The options of every loss, as keywords. :class:`Criterion` explains them."""

    weight: Tensor | None
    ignore_index: int
    reduction: str
    label_smoothing: float
    normalize: str | ScoreMap | None
    temperature: Temperature
    scale: str | None
    overwrite: bool


class Criterion(nn.CrossEntropyLoss):
    """A module that computes a loss. It takes the place of ``torch.nn.CrossEntropyLoss``.

    It is a subclass of ``CrossEntropyLoss`` because some libraries look for one. skorch, for example, then knows that
    the model returns scores, and turns them into probabilities. The class weights are an argument of the constructor
    and no part of a checkpoint: ``state_dict`` does not hold them, and loading ignores them.

    Args:
        loss: an expression of the algebra.
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

    Reference: Lemire Paquin, Chaib-draa, Giguère: Symmetrization of loss functions for robust training of neural
    networks in the presence of noisy labels. Section 7.2 explains ``normalize="l2"``.

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
        temperature: Temperature = 1.0,
        scale: str | None = None,
        overwrite: bool = False,
    ):
        refuse_no_loss(loss)
        check_options(ignore_index, reduction, label_smoothing)
        if weight is not None:
            validation.class_vector("weight", weight)
        super().__init__(ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        self.register_buffer("weight", weight, persistent=False)
        self.score_map = score_map(normalize, temperature)
        self.normalize, self.temperature, self.scale = normalize, temperature, scale
        self.overwrite = bool(overwrite)
        self.loss = scaled(loss, scale)
        # They are registered so that .to(device) moves the weights of a wrapped torch module.
        self.parts = nn.ModuleList(self.loss.modules)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        options = Options(
            self.weight, self.ignore_index, self.reduction, self.label_smoothing, self.score_map, self.overwrite, True
        )
        return evaluate(self.loss, input, target, options)

    def activation(self, scores: Tensor) -> Tensor:
        """The softmax of the scores after ``normalize``. fastai calls this method.

        Args:
            scores: in a shape of ``forward``'s input. The result has the same shape.

        >>> from symloss.losses.leaves import CE
        >>> Criterion(CE()).activation(torch.tensor([[0.0, 0.0]]))
        tensor([[0.5000, 0.5000]])
        """
        mapped = scores if self.score_map is None else self.score_map(scores)
        return mapped.softmax(validation.class_dim(scores))

    def decodes(self, scores: Tensor) -> Tensor:
        """The class with the largest score. fastai calls this method.

        Args:
            scores: in a shape of ``forward``'s input. The result has the shape of the labels.

        >>> from symloss.losses.leaves import CE
        >>> Criterion(CE()).decodes(torch.tensor([[0.0, 1.0]]))
        tensor([1])
        """
        return scores.argmax(validation.class_dim(scores))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load without the class weights, which older checkpoints hold."""
        state_dict.pop(f"{prefix}weight", None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _options(self) -> dict[str, Any]:
        names = ("ignore_index", "reduction", "label_smoothing", "normalize", "temperature", "scale", "overwrite")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        defaults = Criterion.__init__.__kwdefaults__ or {}
        changed = [f"{name}={value!r}" for name, value in self._options().items() if value != defaults[name]]
        return ", ".join([repr(self.loss), *changed])


class Decomposition(NamedTuple):
    """The two parts of a loss, which add up to it (proposition 4.1 of the paper)."""

    symmetric: Any
    """The symmetric part: its sum over all labels is 0."""
    insensitive: Any
    """The class-insensitive part: it has the same value at every label."""


def symmetrize(loss: AnyLoss, prior: Tensor | Iterable[float] | None = None) -> Any:
    """The symmetric part of any loss: the loss minus its mean over all labels. It is robust to symmetric noise.

    The result is a :class:`Criterion` if ``loss`` is a torch module, and a loss of the algebra otherwise.

    Args:
        loss: a loss of the algebra, or any module or function of (input, target) that can return one value for each
            example. A module or function is called once for each batch, with C times the rows: one for each label.
        prior: probabilities of the labels, shape (C,). The mean is taken under them. The result is then robust to
            noise that replaces labels by draws from the prior. None: all labels are equally likely.

    Shapes: the result takes those of :class:`Criterion`.

    Reference: Lemire Paquin, Chaib-draa, Giguère: Symmetrization of loss functions for robust training of neural
    networks in the presence of noisy labels. Equation 1.

    >>> robust = symmetrize(torch.nn.CrossEntropyLoss())
    >>> robust(torch.tensor([[1.0, 2.0, 6.0]]), torch.tensor([2]))  # mean(z) - z_y
    tensor(-3.)
    """
    q = _prior(prior)
    return _lift(loss, lambda expression: Symmetrize(expression, q))


def decompose(loss: AnyLoss, prior: Tensor | Iterable[float] | None = None) -> Decomposition:
    """Split any loss into a symmetric part and a part that is the same at every label.

    The parts add up to the loss, example by example. One case needs care: a module of torch with class weights and
    ``reduction="mean"`` divides by the sum of the weights, but the parts divide by the number of examples.

    Args:
        loss: as in :func:`symmetrize`.
        prior: as in :func:`symmetrize`.

    Shapes: the parts take those of :class:`Criterion`.

    Reference: Lemire Paquin, Chaib-draa, Giguère: Symmetrization of loss functions for robust training of neural
    networks in the presence of noisy labels. Proposition 4.1.

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
    """Apply an operator of the algebra to a loss of any kind. A module gives a module, a function a Loss."""
    if not isinstance(loss, nn.Module):
        return operator(as_loss(loss))
    if isinstance(loss, Criterion) and loss.weight is None and loss.label_smoothing == 0 and loss.scale is None:
        return Criterion(operator(loss.loss), **loss._options())
    kept = {name: getattr(loss, name) for name in ("reduction", "ignore_index") if hasattr(loss, name)}
    return Criterion(operator(Wrapped(loss)), **kept)
