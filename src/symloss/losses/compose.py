"""Functions that make new losses out of any loss: symmetrize, decompose, relative, complement, blend, dirichlet, noisy.

Each takes a loss of this package, a spec such as ``"focal:gamma=2"``, or any torch module or function of (input,
target), and returns a module like any other loss. Its options are those of the loss, and those that are passed override
them. An expression of the algebra (:class:`symloss.losses.Loss`) without options gives an expression.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation
from symloss.losses.base import Loss
from symloss.losses.criterion import AnyLoss, Criterion, LossOptions, Numbers, as_criterion, numbers
from symloss.losses.operators import Blend, Complement, Dirichlet, Insensitive, Noisy, Relative, Symmetrize, Wrapped
from symloss.losses.potentials import Potential


class Decomposition(NamedTuple):
    """The two parts of a loss, which add up to it (proposition 4.1 of the paper)."""

    symmetric: Any
    """The symmetric part: its sum over all labels is 0."""
    insensitive: Any
    """The class-insensitive part: it has the same value at every label."""


def symmetrize(loss: AnyLoss, prior: Numbers | None = None, **options: Unpack[LossOptions]) -> Any:
    """Return the symmetric part of any loss: the loss minus its mean over all labels. It is robust to symmetric noise.

    A torch module or function is called once for each batch, with C times the rows: one for each label. So a random
    loss is drawn once, for the label and for the mean. A module keeps its state: what ``forward`` changes stays so.

    Args:
        loss: of any kind, if it can return one value for each example. Class weights and label smoothing are a part of
            the loss whose symmetric part is taken.
        prior: probabilities of the labels, shape (C,). The mean is taken under them. The result is then robust to
            noise that replaces labels by draws from the prior. None: all labels are equally likely.
        options: those of :class:`Criterion`, for the result.

    Shapes: the result takes those of :class:`Criterion`.

    Reference: equation 1 of the paper.

    >>> robust = symmetrize(torch.nn.CrossEntropyLoss())
    >>> robust(torch.tensor([[1.0, 2.0, 6.0]]), torch.tensor([2]))  # mean(z) - z_y
    tensor(-3.)
    >>> symmetrize("focal:gamma=2", reduction="sum")
    Criterion(symmetrize(Focal(gamma=2.0)), reduction='sum')
    """
    q = _prior(prior)
    return _apply(lambda expression: Symmetrize(expression, q), loss, options)


def decompose(loss: AnyLoss, prior: Numbers | None = None) -> Decomposition:
    """Split any loss into a symmetric part and a part that is the same at every label.

    The parts add up to the loss, example by example. One case needs care: a module of torch with class weights and
    ``reduction="mean"`` divides by the sum of the weights, but the parts divide by the number of examples.

    Args:
        loss, prior: as in :func:`symmetrize`.

    Shapes: the parts take those of :class:`Criterion`.

    Reference: proposition 4.1 of the paper.

    >>> symmetric, insensitive = decompose(torch.nn.functional.cross_entropy)
    >>> z, y = torch.tensor([[1.0, 2.0, 6.0]]), torch.tensor([2])
    >>> symmetric(z, y), insensitive(z, y)
    (tensor(-3.), tensor(3.0247))
    >>> torch.nn.functional.cross_entropy(z, y)
    tensor(0.0247)
    """
    q = _prior(prior)
    return Decomposition(symmetrize(loss, q), _apply(lambda expression: Insensitive(expression, q), loss, {}))


def relative(loss: AnyLoss, **options: Unpack[LossOptions]) -> Any:
    """Normalise a loss: L_y / sum_k L_k. It is symmetric.

    Args:
        loss: of any kind, with values of at least 0.
        options: those of :class:`Criterion`, for the result.

    Reference: Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML 2020.

    >>> import symloss
    >>> relative(symloss.CE()).per_class(torch.zeros(4))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    return _apply(Relative, loss, options)


def complement(loss: AnyLoss, p_min: float = 1e-7, bound: float | None = None, **options: Unpack[LossOptions]) -> Any:
    """Return the normalised negative of a loss: 1 - (A - L_y) / sum_k (A - L_k), with L cut at A.

    Args:
        loss: of any kind.
        p_min: A is the loss of a label with this probability. The loss must depend on nothing else.
        bound: A itself, for any loss.
        options: those of :class:`Criterion`, for the result.

    Reference: Ye et al.: Active negative loss functions for learning with noisy labels. NeurIPS 2023.

    >>> import symloss
    >>> complement(symloss.MAE(), bound=1.0).per_class(torch.zeros(4))
    tensor([0.7500, 0.7500, 0.7500, 0.7500])
    """

    def operator(expression: Loss) -> Loss:
        largest = bound
        if largest is None:
            if not isinstance(expression, Potential):
                raise ValueError(
                    f"complement needs bound=... for {checks.brief(expression)}, which is no function of the label's "
                    "probability alone"
                )
            checks.number("p_min", p_min, "(0, 1)")
            largest = float(expression.phi(torch.tensor(math.log(p_min), dtype=torch.float64)))
        return Complement(expression, checks.number("bound", largest, "(-inf, inf)"))

    return _apply(operator, loss, options)


def blend(loss: AnyLoss, alpha: float, **options: Unpack[LossOptions]) -> Any:
    """Blend a symmetric loss with the unhinged loss: (1 - alpha) unhinged + alpha L / slope.

    The slope is that of the loss at equal scores, for example 1/C for MAE and C**-q for SGCE. So alpha scales only the
    part of the loss that is not linear in the scores.

    Args:
        loss: a symmetric, permutation-invariant loss of any kind.
        alpha: at least 0. At 0 the blend is the unhinged loss, at 1 it is L / slope.
        options: those of :class:`Criterion`, for the result.

    Reference: section 6 of the paper.

    >>> import symloss
    >>> blend(symloss.MAE(), alpha=0.5).per_class(torch.zeros(4))
    tensor([1.5000, 1.5000, 1.5000, 1.5000])
    """
    alpha = checks.number("alpha", alpha, "[0, inf)")
    return _apply(lambda expression: Blend(expression, alpha), loss, options)


def dirichlet(loss: AnyLoss, alpha: float | Numbers, **options: Unpack[LossOptions]) -> Any:
    """Add a Dirichlet prior on the outputs to a loss: L_y + sum_k (alpha_k - 1) L_k.

    Args:
        loss: of any kind.
        alpha: the parameter of the prior, above 0: a number, a tensor or list (C,), or a tensor in the shape of the
            scores. At 1 the loss stays as it is.
        options: those of :class:`Criterion`, for the result.

    Reference: appendix E of the paper.

    >>> import symloss
    >>> dirichlet(symloss.CE(), alpha=0.75).per_class(torch.zeros(4))  # 1 - 1/C makes it the unhinged loss
    tensor([0., 0., 0., 0.])
    """
    a = alpha if isinstance(alpha, (Tensor, bool, int, float, str)) else numbers("alpha", alpha)
    if isinstance(a, Tensor):
        if validation.can_look(a) and not bool((a > 0).all()):
            raise ValueError(f"alpha must be above 0; got {float(a.min()):g}")
    else:
        a = checks.number("alpha", a, "(0, inf)")
    return _apply(lambda expression: Dirichlet(expression, a), loss, options)


def noisy(loss: AnyLoss, transition: Numbers, **options: Unpack[LossOptions]) -> Any:
    """Return the expected loss under label noise: sum_k T[y, k] L_k.

    Args:
        loss: of any kind.
        transition: the matrix T, shape (C, C), as a tensor or a list of lists. T[y, k] is the probability that the true
            class y gets the label k.
        options: those of :class:`Criterion`, for the result.

    Reference: appendix A of the paper.

    >>> import symloss
    >>> noisy(symloss.MAE(), [[0.9, 0.1], [0.1, 0.9]]).per_class(torch.tensor([0.0, 100.0]))
    tensor([0.9000, 0.1000])
    """
    t = numbers("transition", transition)
    if t.dim() != 2 or t.shape[0] != t.shape[1]:
        raise ValueError(f"transition must be a square tensor, row = true class; got {tuple(t.shape)}")
    if not t.is_floating_point():
        raise TypeError(f"transition must hold floating-point probabilities; got {t.dtype}")
    validation.probabilities(t, 1, "transition")
    return _apply(lambda expression: Noisy(expression, t), loss, options)


def _prior(prior: Numbers | None) -> Tensor | None:
    if prior is None:
        return None
    q = numbers("prior", prior)
    validation.class_vector("prior", q)
    validation.probabilities(q, 0, "prior")
    return q


def _apply(operator: Callable[[Loss], Loss], loss: AnyLoss, options: LossOptions) -> Any:
    """Apply an operator of the algebra to a loss of any kind."""
    if isinstance(loss, Loss):
        return Criterion(operator(loss), **options) if options else operator(loss)
    whole = as_criterion(loss)
    if whole.weight is None and whole.label_smoothing == 0:
        made = Criterion(operator(whole.loss), **{**whole.options(), **options})
        made.given |= whole.given - {"scale"}
        return made
    kept: dict[str, Any] = {"reduction": whole.reduction, "ignore_index": whole.ignore_index}
    return Criterion(operator(Wrapped(whole)), **{**kept, **options})
