"""The evaluation of a loss on a batch, with the interface of ``torch.nn.functional.cross_entropy``.

Every target becomes labels, or a weight for each class: sum_k t_k L_k is the loss at probabilities, at smoothed labels
and with class weights. A kernel computes it where there is one, and the plain formulas wherever a graph is traced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation
from symloss.losses.algebra import Loss, NoSlopeError
from symloss.losses.flat_scores import MANY, warn_of_flat_scores
from symloss.losses.kernels.batch import BatchLoss, Examples
from symloss.losses.kernels.choice import LABELS, PROBABILITIES, WEIGHTS, has_hash, kernel_for
from symloss.losses.kernels.forms import Number
from symloss.losses.kernels.unit import Unit
from symloss.losses.layers import UnitScores
from symloss.losses.logits import Scores, full_precision
from symloss.losses.switches import PLAIN

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


NO_OPTIONS = Options()


def evaluate(loss: Loss, input: Tensor, target: Tensor, options: Options = NO_OPTIONS) -> Tensor:
    """Return the loss of scores at targets, in the shapes and with the options of ``F.cross_entropy``.

    Scores in half precision are turned into float32, and the loss is float32 then.
    """
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
    quick = None if kernel is None else BatchLoss(kernel, examples, plain, options.overwrite).loss(input)
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
    mean_weight: Number = 1.0
    if isinstance(w, Tensor):
        mean_weight = w.mean() if s is None else s.mean(w.expand_as(s.z))
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
    if s is not None:
        return _mean_over_labels(loss, s)
    # A loss that holds tensors or modules may change, and no cache may keep it alive.
    constant = _known_level if loss.any_classes and has_hash(loss) else _new_level
    return constant(loss, z.shape[1])


def _new_level(loss: Loss, classes: int) -> float:
    return float(_mean_over_labels(loss, Scores(torch.zeros(classes, dtype=torch.float64))))


_known_level = functools.lru_cache(maxsize=256)(_new_level)


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
