"""Symmetrization as a Dirichlet prior on the outputs of a network: the distribution, a penalty and a plot (app. E).

The symmetrized log-likelihood -log p_y + sum_k q_k log p_k is the negative log-posterior of one example under the
prior Dirichlet(1 - q) on p, up to a constant. For uniform q that is alpha = (C - 1) / C, with two classes
Beta(1/2, 1/2). This prior favours confident outputs. See also ``symloss.losses.dirichlet(loss, alpha)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributions import Beta, Dirichlet

from symloss import checks, extras
from symloss.losses import validation
from symloss.losses.criterion import REDUCTIONS, numbers
from symloss.losses.logits import Scores, full_precision, reduced

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def symmetrizing_prior(num_classes: int, prior: Tensor | Iterable[float] | None = None) -> Dirichlet:
    """Return the Dirichlet prior on the outputs that makes a likelihood symmetric: alpha_k = 1 - q_k (lemma E.1).

    Args:
        num_classes: the number of classes C.
        prior: the q of ``symloss.symmetrize(loss, prior=q)``, each entry below 1. None for the uniform prior, which
            gives alpha = (C - 1) / C.

    >>> symmetrizing_prior(2).concentration  # Beta(1/2, 1/2)
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    num_classes = int(checks.number("num_classes", num_classes, "[2, inf)", whole=True))
    q = numbers("prior", [1 / num_classes] * num_classes if prior is None else prior).detach().double()
    validation.class_vector("prior", q, num_classes)
    validation.probabilities(q, 0, "prior")
    if bool((q >= 1).any()):
        raise ValueError("prior must leave every class below 1; got all of it on one class, for which no prior exists")
    return Dirichlet(1 - q)


class DirichletPenalty(nn.Module):
    """The negative log-density of a Dirichlet prior on softmax(scores), up to a constant: sum_k (1 - alpha_k) log p_k.

    Add it to a negative log-likelihood. With the default alpha, (C - 1) / C, cross-entropy becomes the unhinged loss.
    alpha below 1 favours confident outputs, and the penalty has no lower bound. alpha above 1 favours uncertain ones.

    Args:
        alpha: a number above 0, a tensor with one for each class, a function of x, or None for (C - 1) / C. The
            function is the alpha(x) of a data-dependent prior. It returns a tensor of shape (), (C,), (N, 1) or (N, C).
            x is the second argument of the call.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over examples.

    Shapes: scores (C,), (N, C) or (N, C, d1, ...). A score of ``-inf`` masks its class out.

    >>> from torch.nn import functional as F
    >>> z, y = torch.tensor([[1.0, 2.0, 6.0]]), torch.tensor([2])
    >>> F.cross_entropy(z, y) + DirichletPenalty()(z)  # mean(z) - z_y
    tensor(-3.)
    >>> doubtful = DirichletPenalty(lambda x: 1 + x)  # the larger x, the more the prior favours doubt
    >>> doubtful(z, x=torch.tensor([[0.5]])) > 0
    tensor(True)
    """

    alpha: Tensor | None

    def __init__(self, alpha: float | Tensor | Callable[[Any], Tensor] | None = None, reduction: str = "mean"):
        super().__init__()
        checks.choice("reduction", reduction, REDUCTIONS)
        self.alpha_of_x: Callable[[Any], Tensor] | None = None
        if isinstance(alpha, Tensor):
            validation.class_vector("alpha", alpha)
            _refuse_not_positive("alpha", alpha)
        elif callable(alpha):
            self.alpha_of_x, alpha = alpha, None
        elif alpha is not None:
            alpha = torch.tensor(checks.number("alpha", alpha, "(0, inf)"), dtype=torch.float64)
        self.register_buffer("alpha", alpha)
        self.reduction = reduction

    def forward(self, scores: Tensor, x: Any = None) -> Tensor:
        validation.scores(scores)
        s = Scores(full_precision(scores), validation.class_dim(scores))
        values = s.sum(self._lack(s, x) * s.logp).squeeze(s.dim)
        return reduced(values, self.reduction)

    def _lack(self, s: Scores, x: Any) -> Tensor:
        """Return 1 - alpha_k."""
        if self.alpha_of_x is not None:
            return 1 - self._alpha_at(x, s)
        if self.alpha is None:
            return 1 / s.count
        if self.alpha.dim():
            validation.class_vector("alpha", self.alpha, s.classes)
        return 1 - _aligned(self.alpha, s)

    def _alpha_at(self, x: Any, s: Scores) -> Tensor:
        """Return alpha(x), shaped to broadcast against the scores."""
        assert self.alpha_of_x is not None
        if x is None:
            raise TypeError("x must be given, because alpha is a function of x; got None")
        alpha = self.alpha_of_x(x)
        if not isinstance(alpha, Tensor) or not alpha.is_floating_point():
            given = str(alpha.dtype) if isinstance(alpha, Tensor) else type(alpha).__name__
            raise TypeError(f"alpha(x) must be a floating-point tensor; got {given}")
        one_each = (*s.z.shape[: s.dim], 1, *s.z.shape[s.dim + 1 :])
        if alpha.shape not in ((), (s.classes,), s.z.shape, one_each):
            raise ValueError(
                f"alpha(x) must have shape (), ({s.classes},), {one_each} or that of the scores, "
                f"{tuple(s.z.shape)}; got {tuple(alpha.shape)}"
            )
        _refuse_not_positive("alpha(x)", alpha)
        return _aligned(alpha, s)

    def extra_repr(self) -> str:
        if self.alpha_of_x is not None:
            alpha = getattr(self.alpha_of_x, "__qualname__", type(self.alpha_of_x).__name__) + "(x)"
        else:
            alpha = "(C - 1) / C" if self.alpha is None else self.alpha.tolist()
        return f"alpha={alpha}, reduction={self.reduction!r}"


def _aligned(alpha: Tensor, s: Scores) -> Tensor:
    return s.align(alpha.to(s.z)) if alpha.dim() == 1 else alpha.to(s.z)


def _refuse_not_positive(argument: str, alpha: Tensor) -> None:
    if validation.can_look(alpha) and len(wrong := alpha[~((alpha > 0) & alpha.isfinite())]):
        raise ValueError(f"{argument} must be above 0 and finite; got {float(wrong[0]):g}")


def plot_prior(num_classes: int = 2, path: str | Path | None = None) -> Figure:
    """Plot the prior that a symmetrized likelihood corresponds to (app. E).

    On the left is the density of the probability of one class, whatever the others: Beta(alpha, (C - 1) alpha). For two
    classes that is the whole prior, Beta(1/2, 1/2). On the right is the penalty where the other classes share the rest
    equally. Beside it are those of cross-entropy alone, and of a prior that favours uncertain outputs. It needs
    matplotlib: ``pip install 'symloss[plot]'``.

    Args:
        num_classes: the number of classes C.
        path: the file to write (.png, .svg, .pdf); None for no file.
    """
    symmetrized = float(symmetrizing_prior(num_classes).concentration[0])
    with extras.needed_by("plot_prior"):
        from matplotlib.figure import Figure  # noqa: PLC0415 (not always installed)
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    # Dense towards 0 and 1, where the density has its poles.
    p = torch.linspace(-7, 7, 801, dtype=torch.float64).sigmoid()
    rest = num_classes - 1
    z = torch.stack([p.log(), *[((1 - p) / rest).log()] * rest], 1)
    densities, penalties = figure.subplots(1, 2)
    for alpha, name in ((symmetrized, "symmetrized"), (1.0, "cross-entropy alone"), (2.0, "favours doubt")):
        marginal: Any = Beta(alpha, rest * alpha)
        densities.plot(p, marginal.log_prob(p).exp(), label=f"Beta({alpha:.3g}, {rest * alpha:.3g}), {name}")
        penalties.plot(p, DirichletPenalty(alpha, "none")(z))
    densities.set(xlabel=f"p of one of {num_classes} classes", ylabel="density of the prior", ylim=(0, 4))
    penalties.set(xlabel=f"p of one of {num_classes} classes", ylabel="penalty added to the loss", ylim=(-4, 8))
    densities.legend(fontsize="small")
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure
