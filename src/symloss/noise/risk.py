"""The risk of a model under label noise, computed directly and by the identity of appendix A."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from symloss import checks
from symloss.losses.criterion import AnyLoss, Criterion, as_criterion
from symloss.losses.operators import Wrapped
from symloss.noise.spec import Spec, parse
from symloss.noise.transition import Matrix, distributions, transition_matrix

ROUNDING = 1e-13  # what two values of the insensitive term may differ by, relative to the losses it is the mean of


@dataclass(frozen=True, repr=False)
class NoisyRisk:
    """A risk under noise, computed in two ways: ``noisy`` and ``identity`` are equal up to rounding.

    For labels the insensitive term of an example x is 1/C sum_k L(h(x), k), the mean loss over all labels. So p times
    its mean is the p/C E[sum_k L(h(x), k)] of appendix A. For targets of a regression it is the gamma_h(x) of
    lemma F.2, the mean loss over corrupted targets.
    """

    noisy: float
    """The mean over the examples of the expected loss under noise, computed directly."""
    clean: float
    """L_D, the mean loss at the clean labels or targets."""
    insensitive: float
    """The mean over the examples of the insensitive term, which does not read the label."""
    low: float
    """The smallest insensitive term of an example."""
    high: float
    """The largest insensitive term of an example."""
    constant: bool
    """Whether the insensitive term is the same at every example, up to rounding, as it is for a symmetric loss."""
    p: float
    """The weight of the uniform draw (or of the corrupted targets). The noise rate of labels is (C - 1)/C p."""
    remainder: float
    """What the part of the noise that is not uniform adds; 0 for uniform noise."""
    examples: int
    """How many examples there are."""

    @property
    def identity(self) -> float:
        """P times the insensitive term, plus (1 - p) times the clean risk, plus the remainder."""
        return self.p * self.insensitive + (1 - self.p) * self.clean + self.remainder

    def __repr__(self) -> str:
        over = "constant" if self.constant else f"from {self.low:.6g} to {self.high:.6g}"
        rows = [
            ("noisy risk", self.noisy, "computed directly"),
            (
                "  p * insensitive term",
                self.p * self.insensitive,
                f"p = {self.p:.6g}, {over} over {self.examples} examples",
            ),
            ("  (1 - p) * clean risk", (1 - self.p) * self.clean, f"clean risk {self.clean:.6g}"),
        ]
        if self.remainder:
            rows.append(("  remainder", self.remainder, "of the part of the noise that is not uniform"))
        rows.append(("by the identity", self.identity, ""))
        return "\n".join(f"{name:<24}{value:<13.6g}{meaning}".rstrip() for name, value, meaning in rows)


def noisy_risk(
    scores: Any, labels: Any, loss: AnyLoss, noise: str | Spec | ArrayLike, *, dataset: str | None = None
) -> NoisyRisk:
    """Return the risk of a model's scores under label noise, directly and by the identity of appendix A.

    The identity is p/C E[sum_k L(h(x), k)] + (1 - p) L_D(h). The first term does not read the labels. Where it is
    constant, as for every symmetric loss, the noisy risk is an increasing function of the clean one.

    A transition matrix T that is not uniform is split into its uniform part, (1 - p) I + p/C with the same trace, and a
    rest. What the rest adds to the risk is the remainder. No symmetry makes it constant.

    Args:
        scores: (N, C), such as the outputs of a network.
        labels: the clean labels (N,), or the probabilities of the clean labels (N, C).
        loss: of any kind; with ``normalize``, class weights and label smoothing if it has any. The risk is the mean of
            its values without reduction over the examples.
        noise: a spec such as ``"sym:0.6"`` (the noise rate eta), ``"sym-any:0.6"`` (the paper's p) or ``"pair:0.3"``,
            or a transition matrix (C, C), row = true class. ``prior`` noise takes the frequencies of the labels.
        dataset: mnist, digits, cifar10 or cifar100, for ``asym`` noise.

    Reference: appendix A of the paper.

    >>> scores, labels = [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0]], [0, 1, 1]
    >>> noisy_risk(scores, labels, "mae", "sym:0.4")
    noisy risk              0.612216     computed directly
      p * insensitive term  0.4          p = 0.6, constant over 3 examples
      (1 - p) * clean risk  0.212216     clean risk 0.53054
    by the identity         0.612216
    >>> noisy_risk(scores, labels, "ce", "sym:0.4").constant
    False
    """
    values = _at_every_label(scores, loss)
    examples, num_classes = values.shape
    clean = _label_distributions(labels, examples, num_classes)
    transition = _transition(noise, num_classes, clean, dataset)
    p = (num_classes - np.trace(transition)) / (num_classes - 1)
    rest = transition - (1 - p) * np.eye(num_classes) - p / num_classes
    rest[np.abs(rest) < 1e-12] = 0.0

    def risk(targets: Matrix) -> float:
        return float((targets * values).sum(1).mean())

    insensitive, slack = values.mean(1), ROUNDING * np.abs(values).mean(1)
    return NoisyRisk(
        noisy=risk(clean @ transition),
        clean=risk(clean),
        insensitive=float(insensitive.mean()),
        low=float(insensitive.min()),
        high=float(insensitive.max()),
        constant=bool((insensitive - slack).max() <= (insensitive + slack).min()),
        p=float(p),
        remainder=risk(clean @ rest),
        examples=examples,
    )


def _at_every_label(scores: Any, loss: AnyLoss) -> Matrix:
    """Return the loss of each example at every label, (N, C)."""
    try:
        z = torch.as_tensor(scores).detach()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"scores must be an array of numbers of shape (N, C); got {checks.brief(scores)}") from None
    if z.dim() != 2 or z.shape[0] < 1 or z.shape[1] < 2:
        raise ValueError(f"scores must have shape (N, C) with N at least 1 and C at least 2; got {tuple(z.shape)}")
    criterion = as_criterion(loss)
    if criterion.weight is not None or criterion.label_smoothing:  # which the expression behind it does not have
        criterion = Criterion(Wrapped(criterion))
    with torch.no_grad():
        values: Tensor = criterion.per_class(z.double())
    found: Matrix = values.cpu().double().numpy()
    off = np.argwhere(~np.isfinite(found))
    if len(off):
        row, label = off[0]
        raise ValueError(
            f"the loss must be finite at every label; got {found[row, label]} in row {row} at label {label}"
        )
    return found


def _label_distributions(labels: Any, examples: int, num_classes: int) -> Matrix:
    given = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if given.ndim == 2:
        return distributions("labels", given, (examples, num_classes))
    if given.shape != (examples,):
        raise ValueError(f"labels must have shape ({examples},) or ({examples}, {num_classes}); got {given.shape}")
    if given.dtype.kind not in "iu":
        raise TypeError(f"labels of shape (N,) must be whole numbers; got {given.dtype}")
    wrong = given[(given < 0) | (given >= num_classes)]
    if len(wrong):
        raise ValueError(f"labels must be 0 to {num_classes - 1}, one for each column of the scores; got {wrong[0]}")
    one_hot: Matrix = np.eye(num_classes)[given]
    return one_hot


def _transition(noise: str | Spec | ArrayLike, num_classes: int, clean: Matrix, dataset: str | None) -> Matrix:
    if isinstance(noise, (str, Spec)):
        spec = parse(noise) if isinstance(noise, str) else noise
        return transition_matrix(spec, num_classes, dataset=dataset, prior=clean.mean(0))
    if isinstance(noise, (int, float)):
        wanted = f"'sym:{noise}' (a noise rate), 'sym-any:{noise}' (the paper's p) or a transition matrix"
        raise TypeError(f"noise must be {wanted}; got the number {noise}")
    if isinstance(noise, Tensor):
        noise = noise.detach().cpu().numpy()
    return distributions("noise", noise, (num_classes, num_classes))
