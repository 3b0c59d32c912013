"""A linear layer and its loss in one. Most losses then never need the whole matrix of scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from symloss import checks
from symloss.losses import validation
from symloss.losses.algebra import Loss
from symloss.losses.create import create_loss
from symloss.losses.criterion import Criterion, ScoreMap, score_map
from symloss.losses.evaluate import Options, check_options, evaluate
from symloss.losses.fast.batch import Unit
from symloss.losses.fast.linear_head import Head, by_head_kernel
from symloss.losses.fast.switch import PLAIN
from symloss.losses.flat_scores import warn_of_flat_scores
from symloss.losses.leaves import CE
from symloss.losses.operators import Symmetrize
from symloss.losses.scores import Temperature, UnitScores, full_precision


def linear_unhinged(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    normalize: str | None = "l2",
    **options: Any,
) -> Tensor:
    """The unhinged loss of the scores features @ weight.T + bias. The scores are not computed.

    Args:
        features: inputs of the linear layer, shape (..., d).
        weight: of the linear layer, shape (C, d).
        bias: of the linear layer, shape (C,), or None.
        target: class indices, shape (...).
        normalize: ``"l2"`` divides each score vector by its norm, None does not.
        options: ``temperature``, ``class_weight``, ``ignore_index`` and ``reduction``, as in :func:`linear_loss`.

    Reference: Lemire Paquin, Chaib-draa, Giguère: Symmetrization of loss functions for robust training of neural
    networks in the presence of noisy labels. Section 4.1.

    >>> from symloss.functional import linear_unhinged, unhinged
    >>> h, w, y = torch.randn(80, 4), torch.randn(100, 4), torch.arange(80)
    >>> torch.allclose(linear_unhinged(h, w, None, y), unhinged(h @ w.T, y), atol=1e-6)
    True
    """
    return linear_loss(Symmetrize(CE()), features, weight, bias, target, normalize=normalize, **options)


def linear_loss(
    loss: Loss,
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    normalize: str | ScoreMap | None = None,
    temperature: Temperature = 1.0,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Any loss of the scores features @ weight.T + bias. Most losses need only a block of the scores at a time.

    Args:
        loss: an expression of the algebra.
        features: inputs of the linear layer, shape (..., d).
        weight: of the linear layer, shape (C, d).
        bias: of the linear layer, shape (C,), or None.
        target: class indices, shape (...).
        normalize, temperature, ignore_index, reduction: as in :class:`symloss.Criterion`.
        class_weight: a weight for each class, shape (C,), as ``weight`` in :class:`symloss.Criterion`.

    >>> from symloss.losses.leaves import MAE
    >>> linear_loss(MAE(), torch.zeros(2, 3), torch.ones(4, 3), None, torch.tensor([0, 3]))
    tensor(0.7500)
    """
    if not torch.compiler.is_compiling():
        check_options(ignore_index, reduction, 0.0)
    _check_shapes(features, weight, bias, target)
    if class_weight is not None:
        validation.class_vector("class_weight", class_weight, len(weight))
    scores = score_map(normalize, temperature)
    if scores is not None:
        warn_of_flat_scores(loss, scores, len(weight))
    labels = target.reshape(-1).long()
    with torch.autocast(features.device.type, enabled=False):
        rows = features.reshape(-1, features.shape[-1])
        head = Head(full_precision(rows), full_precision(weight), None if bias is None else full_precision(bias))
        options = Options(class_weight, ignore_index, reduction, score_map=scores)
        value = _quick(loss, head, labels, options)
        if value is None:
            value = evaluate(loss, head.scores(), labels, options)
    return value.reshape(target.shape) if reduction == "none" else value


def _quick(loss: Loss, head: Head, labels: Tensor, options: Options) -> Tensor | None:
    """The loss by a kernel that never holds all scores; None if there is no kernel for this case.

    The heads ask for a kernel only here.
    """
    scores, parts = options.score_map, [part for part in head if part is not None]
    if (
        not (scores is None or isinstance(scores, UnitScores))
        or labels.numel() == 0
        or len({part.dtype for part in parts}) > 1
        or not validation.is_eager(*parts)
        or PLAIN.get()
    ):
        return None
    unit = None if scores is None else Unit(scores.temperature_for(len(head.weight)), scores.eps)
    kept = validation.kept(labels, len(head.weight), options.ignore_index)

    def plain(z: Tensor) -> Tensor:
        return evaluate(loss, z, labels, options)

    return by_head_kernel(loss, head, labels, kept, unit, options.weight, options.reduction, plain)


def _check_shapes(features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> None:
    if weight.dim() != 2 or features.dim() < 1 or features.shape[-1] != weight.shape[1]:
        raise ValueError(
            "features must have shape (..., d) and weight (C, d); "
            f"got {tuple(features.shape)} and {tuple(weight.shape)}"
        )
    if bias is not None:
        validation.class_vector("bias", bias, len(weight))
    if target.is_floating_point() or target.dtype == torch.bool or target.shape != features.shape[:-1]:
        raise ValueError(
            f"target must hold class indices of shape {tuple(features.shape[:-1])}; "
            f"got {target.dtype} of shape {tuple(target.shape)}"
        )


class LinearLoss(nn.Module):
    """A linear layer and a loss in one module, for many classes. The scores of a batch are never all in memory.

    The parameters ``weight`` and ``bias`` start as in ``torch.nn.Linear``.

    Args:
        loss: a name such as ``"unhinged"`` or ``"sgce:q=0.8"``, or a loss of this package.
        in_features: size d of the features.
        classes: number of classes C.
        bias: whether the layer has a bias.
        class_weight: a weight for each class, shape (C,).
        options: parameters and options of the loss, if ``loss`` is a name.

    Shapes: features (..., d), target (...) of class indices.

    >>> head = LinearLoss("unhinged", in_features=16, classes=1000)
    >>> features = torch.randn(8, 16)
    >>> head(features, torch.arange(8)).backward()
    >>> head.predict(features).shape
    torch.Size([8])
    """

    def __init__(
        self,
        loss: str | Criterion,
        in_features: int,
        classes: int,
        bias: bool = True,
        *,
        class_weight: Tensor | None = None,
        **options: Any,
    ):
        super().__init__()
        checks.number("in_features", in_features, "[1, inf)", whole=True)
        checks.number("classes", classes, "[1, inf)", whole=True)
        if isinstance(loss, Criterion) and options:
            raise TypeError(
                f"options such as {next(iter(options))} go with the name of a loss; got a loss that has its own"
            )
        if not isinstance(loss, (str, Criterion)):
            raise TypeError(f"loss must be a name or a loss of this package; got {type(loss).__name__}")
        self.criterion = create_loss(loss, **options) if isinstance(loss, str) else loss
        if self.criterion.label_smoothing > 0:
            raise ValueError("LinearLoss takes no label_smoothing; on a symmetric loss it would only scale it")
        layer = nn.Linear(in_features, classes, bias)
        self.weight, self.bias = layer.weight, layer.bias
        class_weight = self.criterion.weight if class_weight is None else class_weight
        self.register_buffer("class_weight", class_weight, persistent=False)

    class_weight: Tensor | None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load without the class weights, which older checkpoints hold."""
        state_dict.pop(f"{prefix}class_weight", None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, features: Tensor, target: Tensor) -> Tensor:
        c = self.criterion
        return linear_loss(
            c.loss, features, self.weight, self.bias, target,
            normalize=c.normalize, temperature=c.temperature, class_weight=self.class_weight,
            ignore_index=c.ignore_index, reduction=c.reduction,
        )  # fmt: skip

    def logits(self, features: Tensor) -> Tensor:
        """The scores (..., C) of features (..., d), for inference."""
        return F.linear(features, self.weight, self.bias)

    def predict(self, features: Tensor) -> Tensor:
        """The class with the largest score, shape (...), of features (..., d)."""
        return self.logits(features).argmax(-1)

    def extra_repr(self) -> str:
        classes, in_features = self.weight.shape
        return f"in_features={in_features}, classes={classes}, bias={self.bias is not None}"
