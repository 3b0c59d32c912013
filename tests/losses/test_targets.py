"""Shapes, targets, reductions, class weights, smoothed labels, masked classes and data types.

``symloss.CE`` is ``torch.nn.CrossEntropyLoss``. Each way of evaluation is tested against the values at every label.
"""

import itertools
from typing import Any

import pytest
import torch
from conftest import CLASSES, assert_close, random_labels, random_probabilities, random_scores, value_and_grad
from in_turn import in_turn
from loss_batches import MASK, MASK_LABELS, WEIGHT, at_every_label, labels_for, masked
from representatives import REPRESENTATIVES, WITHOUT_SLOPE, every_path
from torch import Tensor
from torch.nn.functional import cross_entropy

import symloss
from symloss import functional

# --- Cross-entropy is torch's ------------------------------------------------------------------------------------

SHAPES = ((4,), (5, 4), (3, 4, 2), (2, 4, 3, 2), (0, 4), (0, 4, 2), (2, 4, 0), (1, 4), (1, 4, 1))
KINDS = ("indices", "ignored=0", "probabilities")


def target_and_options(scores: Tensor, kind: str) -> tuple[Tensor, dict[str, int]]:
    if kind == "probabilities":
        return random_probabilities(*scores.shape, dim=0 if scores.dim() == 1 else 1), {}
    if kind == "all ignored":
        return torch.full_like(labels_for(scores), 255), {"ignore_index": 255}
    options = {} if kind == "indices" else {"ignore_index": int(kind.removeprefix("ignored="))}
    return labels_for(scores, **options), options


def assert_like_torch(scores: Tensor, target: Tensor, torchs_target: Tensor | None = None, **options: Any) -> None:
    """Function and module agree with torch's, value and gradient."""
    expected = value_and_grad(cross_entropy, scores, target if torchs_target is None else torchs_target, **options)
    assert_close(value_and_grad(functional.ce, scores, target, **options), expected, equal_nan=True)
    assert_close(value_and_grad(symloss.CE(**options), scores, target), expected, equal_nan=True)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@in_turn("shape", SHAPES)
@in_turn("kind", ["indices", "ignored=-100", "ignored=0", "ignored=255", "probabilities", "all ignored"])
def test_ce_is_torchs(shape, kind, weight):
    """Every combination: here options meet each other. torch's mean over nothing is nan, its sum 0, its gradient 0."""
    scores = random_scores(*shape)
    target, options = target_and_options(scores, kind)
    for smoothing, reduction in itertools.product((0.0, 0.1, 1.0), ("mean", "sum", "none")):
        assert_like_torch(scores, target, weight=weight, label_smoothing=smoothing, reduction=reduction, **options)


@in_turn("dtype, ignore_index", [(torch.int8, -100), (torch.int16, 255), (torch.int32, 0), (torch.uint8, 255)])
def test_labels_of_any_integer_type(dtype, ignore_index):
    """torch takes int64 and uint8 alone; images hold uint8 labels with 255 for 'ignore'."""
    scores = random_scores(7, CLASSES)
    labels = labels_for(scores, ignore_index)
    assert_like_torch(scores, labels.to(dtype), labels, ignore_index=ignore_index)


# --- Each way of evaluation ----------------------------------------------------------------------------------------


@every_path
def test_images_are_rows_of_pixels(name):
    scores, labels = random_scores(2, CLASSES, 3, 2), random_labels(2, 3, 2)
    loss = symloss.create_loss(name, reduction="none")
    rows = scores.movedim(1, -1).flatten(0, 2)
    value, gradient = value_and_grad(loss, scores, labels)
    flat = value_and_grad(loss, rows, labels.flatten())
    assert_close((value.flatten(), gradient.movedim(1, -1).flatten(0, 2)), flat)
    assert_close(value_and_grad(loss, rows[0], labels.flatten()[0]), (flat[0][0], flat[1][0]))


@every_path
@in_turn("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(name, dtype):
    """The options of the losses included: the division by the norm, which loses digits in half precision."""
    scores, labels = random_scores(5, CLASSES).to(dtype), random_labels(5)
    loss = symloss.create_loss(name)
    expected, gradient = value_and_grad(loss, scores.float(), labels)
    assert_close(value_and_grad(loss, scores, labels), (expected, gradient.to(dtype)), tolerance=0.0)


def test_the_loss_has_the_type_of_the_scores():
    """Weights and probabilities follow, whatever type they have."""
    scores, soft = random_scores(5, CLASSES), random_probabilities(5, CLASSES).float()
    for dtype in (torch.float32, torch.float64):
        assert functional.sgce(scores.to(dtype), soft, weight=WEIGHT.to(torch.bfloat16)).dtype == dtype


# --- Class weights and smoothed labels -------------------------------------------------------------------------------


def values_of(spec: str, scores: Tensor) -> Tensor:
    return at_every_label(symloss.create_loss(spec, reduction="none"), scores)


# Besides the defaults, parameters at which a loss becomes symmetric or stops being so.
SPECS = (*REPRESENTATIVES, "gce:q=1", "taylor-ce:t=1", "sce:alpha=0", "nce+agce:beta=0")
SYMMETRIC = [spec for spec in SPECS if values_of(spec, random_scores(20, CLASSES, seed=9)).sum(1).std() < 1e-9]
"""Measured, not read from the package: the sum over labels stays the same."""


def symmetric_rule(every: Tensor) -> Tensor:
    """w_y L_y - mean_k w_k L_k + mean(w) mean_k L_k, of every label's value."""
    return WEIGHT * every - (WEIGHT * every).mean(1, keepdim=True) + WEIGHT.mean() * every.mean(1, keepdim=True)


@in_turn("spec", SPECS)
@in_turn("smoothing", [0.0, 0.1, 1.0])
@in_turn("kind", KINDS)
def test_values_follow_the_rule_of_the_loss(spec, smoothing, kind):
    """torch's w_y L_y, or the one that stays symmetric; soft and smoothed labels dot the same values."""
    scores = random_scores(6, CLASSES)
    target, options = target_and_options(scores, kind)

    def rule(z: Tensor, weight: Tensor | None) -> Tensor:
        every = values_of(spec, z)
        if weight is not None:
            every = symmetric_rule(every) if spec in SYMMETRIC else weight * every
        kept = torch.ones(6) if kind == "probabilities" else (target != options.get("ignore_index", -100))
        probabilities = target if kind == "probabilities" else torch.eye(CLASSES).double()[torch.where(kept, target, 0)]
        return kept * (((1 - smoothing) * probabilities + smoothing / CLASSES) * every).sum(1)

    for weight in (None, WEIGHT):
        loss = symloss.create_loss(spec, weight=weight, label_smoothing=smoothing, reduction="none", **options)
        assert_close(value_and_grad(loss, scores, target), value_and_grad(rule, scores, weight))


@in_turn("spec", SPECS)
@in_turn("kind", KINDS)
def test_mean_of_weighted_values_divides_by_what_counts(spec, kind):
    """Symmetric: the count times mean(w). Otherwise torch's: the sum of w_y, and for probabilities the count."""
    scores = random_scores(6, CLASSES)
    target, options = target_and_options(scores, kind)
    options |= {"weight": WEIGHT}
    soft = kind == "probabilities"
    kept = target if soft else target[target != options.get("ignore_index", -100)]
    torchs = len(kept) if soft else WEIGHT[kept].sum()
    divisor = len(kept) * WEIGHT.mean() if spec in SYMMETRIC else torchs
    for options["label_smoothing"] in (0.0, 0.1):
        single, mean = (symloss.create_loss(spec, reduction=r, **options)(scores, target) for r in ("none", "mean"))
        assert_close(mean, single.sum() / divisor)


# --- A score of -inf takes a class away ------------------------------------------------------------------------------

EDGES = (
    *({}, {"weight": WEIGHT}, {"label_smoothing": 0.1}, {"normalize": "l2"}, {"normalize": None, "scale": "ce"}),
    {"normalize": "l2", "temperature": 0.5, "weight": WEIGHT, "label_smoothing": 0.1},
)


def edges_and_targets(name: str, mask: Tensor, labels: Tensor) -> itertools.product:
    """Options with labels, and with probabilities that give nothing to masked classes."""
    probabilities = random_probabilities(*mask.shape) * mask
    edges = [options for options in EDGES if "scale" not in options or name not in WITHOUT_SLOPE]
    return itertools.product(edges, (labels, probabilities / probabilities.sum(1, keepdim=True)))


def removed(scores: Tensor, target: Tensor, mask: Tensor, options: dict) -> tuple[Tensor, Tensor, dict]:
    """The same batch with the masked classes cut out of scores, target and weight (one mask for all rows)."""
    target = target[:, mask] if target.is_floating_point() else (mask.cumsum(0) - 1)[target]
    weight = {"weight": options["weight"][mask]} if "weight" in options else {}
    return scores[:, mask], target, options | weight


@every_path
def test_masked_classes_are_absent_row_by_row(name):
    """Value and gradient of each row are those of the loss without the class, whatever the other rows mask."""
    scores = random_scores(*MASK.shape)
    for edge, target in edges_and_targets(name, MASK, MASK_LABELS):
        loss = symloss.create_loss(name, reduction="none", **edge)
        values, gradients = value_and_grad(loss, masked(scores, MASK), target)
        assert (gradients[~MASK] == 0).all(), edge
        for i, mask in enumerate(MASK):
            row, label, options = removed(scores[i : i + 1], target[i : i + 1], mask, edge)
            value, gradient = value_and_grad(symloss.create_loss(name, reduction="none", **options), row, label)
            assert_close((values[i : i + 1], gradients[i : i + 1, mask]), (value, (i + 1) * gradient))


@every_path
def test_a_class_masked_in_every_row_is_absent_from_the_mean(name):
    mask, scores = torch.tensor([True, True, False, True]), random_scores(*MASK.shape)
    for edge, target in edges_and_targets(name, mask.expand(4, 4), MASK_LABELS):
        value, gradient = value_and_grad(symloss.create_loss(name, **edge), masked(scores, mask), target)
        rows, labels, options = removed(scores, target, mask, edge)
        expected = value_and_grad(symloss.create_loss(name, **options), rows, labels)
        assert_close((value, gradient[:, mask]), expected)


@every_path
def test_a_single_class_present_is_finite_and_flat(name):
    mask = torch.tensor([[False, True, False, False], [False, False, False, True]])
    scores = masked(torch.tensor([[0.7], [-2.0]], dtype=torch.float64), mask)
    for edge, target in edges_and_targets(name, mask, torch.tensor([1, 3])):
        values, gradient = value_and_grad(symloss.create_loss(name, reduction="none", **edge), scores, target)
        assert values.isfinite().all(), edge
        assert (gradient == 0).all(), edge


@every_path
def test_an_ignored_row_may_be_masked_completely(name):
    """Padding: no class, no label, and nothing of it may reach the other rows."""
    scores, labels, loss = random_scores(3, CLASSES), torch.tensor([0, -100, 2]), symloss.create_loss(name)
    padded = scores.index_fill(0, torch.tensor([1]), -torch.inf)
    assert_close(value_and_grad(loss, padded, labels), value_and_grad(loss, scores, labels))
