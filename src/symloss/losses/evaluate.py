"""The evaluation of a loss on a batch, with the interface of ``torch.nn.functional.cross_entropy``."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation
from symloss.losses.algebra import Loss
from symloss.losses.fast.batch import BatchLoss
from symloss.losses.fast.computing import computing_for
from symloss.losses.fast.kernel_choice import unit_of
from symloss.losses.fast.labelled import labelled
from symloss.losses.flat_scores import MANY, warn_of_flat_scores
from symloss.losses.layers import UnitScores
from symloss.losses.logits import Scores, full_precision
from symloss.losses.switches import PLAIN

REDUCTIONS = ("mean", "sum", "none")


def check_options(ignore_index: object, reduction: object, label_smoothing: object) -> None:
    """Raise an error if an option of ``F.cross_entropy`` has a value that it cannot have."""
    if (
        type(ignore_index) is int
        and reduction in REDUCTIONS
        and type(label_smoothing) is float
        and label_smoothing == 0
    ):
        return
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
    made_before: bool = False
    """Whether the loss was made before a graph is traced. Only such a loss can become a part of the graph as it is."""


NO_OPTIONS = Options()


def evaluate(loss: Loss, input: Tensor, target: Tensor, options: Options = NO_OPTIONS) -> Tensor:
    """The loss of scores at targets, in the shapes and with the options of ``F.cross_entropy``.

    Scores in half precision are turned into float32, and the loss is float32 then.

    Args:
        loss: an expression of the algebra.
        input: scores (C,), (N, C) or (N, C, d1, ...).
        target: class indices () / (N,) / (N, d1, ...), or probabilities in the shape of the input.
        options: weights, reduction and the like.
    """
    compiling = torch.compiler.is_compiling()
    if not compiling:
        check_options(options.ignore_index, options.reduction, options.label_smoothing)
    soft = validation.is_soft(input, target)
    if options.score_map is not None and (classes := input.shape[validation.class_dim(input)]) > MANY:
        warn_of_flat_scores(loss, options.score_map, classes)
    if soft:
        z = full_precision(input)
        return _soft(loss, z, target.to(z.dtype), options)
    target = target.long()
    quick = None if compiling else _quick(loss, input, target, options)
    return _hard(loss, full_precision(input), target, options) if quick is None else quick


def _quick(loss: Loss, z: Tensor, target: Tensor, options: Options) -> Tensor | None:
    """The loss by a kernel, which computes the gradient with the value; None if there is no kernel for this case.

    The evaluation asks for a kernel only here.
    """
    scores, weight = options.score_map, options.weight
    if (
        (weight is not None and loss.symmetric)
        or options.label_smoothing > 0
        or not (scores is None or isinstance(scores, UnitScores))
        or z.dim() < 2
        or target.numel() == 0
        or not validation.is_eager()
        or PLAIN.get()
    ):
        return None
    unit = unit_of(scores, z.shape[1])
    compute = computing_for(loss, z.shape[1], unit)
    if compute is None:
        return None
    if weight is not None:
        validation.class_vector("weight", weight, z.shape[1])
    examples = labelled(target, z.shape[1], options.ignore_index, weight, options.reduction)

    def plain(z: Tensor) -> Tensor:
        return _hard(loss, full_precision(z), target, options)

    return BatchLoss(compute, examples, plain, options.overwrite).loss(z)


def _hard(loss: Loss, z: Tensor, target: Tensor, options: Options) -> Tensor:
    """The loss at class indices, by the plain formulas."""
    s = _scores(z, options)
    validation.labels(target, s.classes, options.ignore_index)
    kept = target != options.ignore_index
    values, share = _hard_values(loss, s, torch.where(kept, target, 0), kept, options)
    return _reduced(values, share, options.reduction)


def _soft(loss: Loss, z: Tensor, target: Tensor, options: Options) -> Tensor:
    """The loss at probabilities, by the plain formulas."""
    if options.ignore_index >= 0:
        raise ValueError(f"ignore_index={options.ignore_index} needs a target of class indices; got probabilities")
    values, share = _soft_values(loss, _scores(z, options), target, options)
    return _reduced(values, share, options.reduction)


def _reduced(values: Tensor, share: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return values
    return values.sum() if reduction == "sum" else values.sum() / share.sum()


def _scores(z: Tensor, options: Options) -> Scores:
    s = Scores(z if options.score_map is None else _mapped(z, options.score_map), validation.class_dim(z))
    if options.weight is not None:
        validation.class_vector("weight", options.weight, s.classes)
    return s


def _mapped(z: Tensor, score_map: Callable[[Tensor], Tensor]) -> Tensor:
    scores = score_map(z)
    if not isinstance(scores, Tensor):
        raise TypeError(f"normalize must map scores to a tensor of scores; got {type(scores).__name__}")
    if scores.shape != z.shape:
        raise ValueError(f"normalize must keep the scores' shape {tuple(z.shape)}; got {tuple(scores.shape)}")
    return scores


def _hard_values(loss: Loss, s: Scores, target: Tensor, kept: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """The value of each example, and its weight in the mean. Both are 0 for an ignored example."""
    labels = target.unsqueeze(s.dim)
    each = kept.unsqueeze(s.dim)
    validation.present_labels(s.z, labels, each, s.dim)
    if validation.can_look(s.z):
        loss.refuse(s, each)
    weight, smoothing = options.weight, options.label_smoothing
    if weight is None and smoothing == 0:
        values, share = loss.values(s, labels), torch.ones_like(target, dtype=s.z.dtype)
    else:
        every, share_of_class = _weighted(loss, s, weight)
        values = s.select(every, labels)
        if smoothing > 0:
            # The mean of a symmetric loss is constant. All that autograd could find is the rounding of its sum.
            mean = s.mean(every.detach() if loss.symmetric else every)
            values = (1 - smoothing) * values + smoothing * mean
        share = s.select(share_of_class, labels).squeeze(s.dim)
    return torch.where(kept, values.squeeze(s.dim), 0.0), torch.where(kept, share, 0.0)


def _soft_values(loss: Loss, s: Scores, target: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    smoothing = options.label_smoothing
    validation.probabilities(target, s.dim)
    if validation.can_look(target) and bool(((target > 0) & ~s.present).any()):
        raise ValueError(
            "target gives probability to a class whose score is -inf, that is, masked out; it must be 0 there"
        )
    if validation.can_look(s.z):
        loss.refuse(s, torch.ones_like(s.count, dtype=torch.bool))
    every, share = _weighted(loss, s, options.weight)
    target = (1 - smoothing) * target + smoothing / s.count
    values = s.sum(target * every).squeeze(s.dim)
    # torch divides by the number of examples here, whatever the class weights. So do we if the loss is not symmetric.
    counted = share.mean(s.dim) if loss.symmetric else torch.ones_like(values)
    return values, counted


def _weighted(loss: Loss, s: Scores, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """The value at every label with class weights, and the weight of each label in the mean.

    torch computes w_y L_y, which would break the symmetry of a symmetric loss. Such a loss becomes
    w_y L_y - mean_k w_k L_k + mean(w) mean_k L_k instead. That is symmetric, and equals L_y if all w are 1.
    """
    every = loss.values(s).expand_as(s.z)
    if weight is None:
        return every, torch.ones_like(s.z)
    w = s.align(weight.to(s.z))
    if not loss.symmetric:
        return w * every, w.expand_as(s.z)
    mean_weight = s.mean(w)
    balanced = w * every - s.mean(w * every) + mean_weight * s.mean(every)
    return balanced, mean_weight.expand_as(s.z)
