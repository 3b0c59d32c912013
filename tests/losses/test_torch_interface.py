"""Every loss goes wherever ``torch.nn.CrossEntropyLoss`` goes: shapes, targets, options, modules, and what we add."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from conftest import (
    CLASSES,
    LOSSES,
    assert_close,
    every_loss,
    random_labels,
    random_probabilities,
    random_scores,
    value_and_grad,
)
from doors import FUNCTIONS, MODULES, function_name
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, multi_margin_loss

import symloss
from symloss import functional
from symloss.losses.catalogue import RECORDS
from symloss.losses.potentials import CE, MAE
from symloss.losses.spec import parse

REDUCTIONS = ("mean", "sum", "none")
NORMALIZED = ("unhinged", "sgce", "alpha-mae")
WEIGHT = torch.tensor([0.5, 3.0, 0.0, 1.5], dtype=torch.float64)

reductions = pytest.mark.parametrize("reduction", REDUCTIONS)
kinds = pytest.mark.parametrize("kind", ["indices", "ignored=0", "probabilities"])


def one_hot(labels: Tensor) -> Tensor:
    return nn.functional.one_hot(labels, CLASSES).movedim(-1, 1).double()


def picked(every: Tensor, labels: Tensor) -> Tensor:
    return every.gather(1, labels[:, None])[:, 0]


def at_every_label(loss: Callable[..., Tensor], scores: Tensor) -> Tensor:
    """The values (N, C) of a loss with reduction none, label after label."""
    return torch.stack([loss(scores, torch.full(scores.shape[:1], k)) for k in range(scores.shape[1])], 1)


def values_of(spec: str, scores: Tensor, **options: object) -> Tensor:
    return at_every_label(symloss.create_loss(spec, reduction="none", **options), scores)


def spread_of_sum(every: Tensor) -> float:
    total = every.sum(1)
    return float(total.max() - total.min())


def is_symmetric(spec: str) -> bool:
    """Measured, not read from the package: does the sum over labels stay the same?"""
    return spread_of_sum(values_of(spec, random_scores(20, CLASSES, seed=9))) < 1e-9


# Besides the defaults, parameters at which a loss becomes symmetric or stops being so.
SPECS = (*LOSSES, "gce:q=1", "agce:q=1", "aul:q=1", "taylor-ce:t=1", "sce:alpha=0", "nce+agce:beta=0", "nce+ael:beta=0")
SYMMETRIC = [spec for spec in SPECS if is_symmetric(spec)]


# --- ce is torch's cross-entropy ---------------------------------------------------------------------------------

SHAPES = {"C": (4,), "NC": (5, 4), "NCd": (3, 4, 2), "NCd1d2": (2, 4, 3, 2)}
TARGETS = ("indices", "ignored=-100", "ignored=0", "ignored=255", "probabilities")

shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
targets = pytest.mark.parametrize("kind", TARGETS)
weighted = pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0], ids="smoothing={}".format)


def labels_for(scores: Tensor, ignore_index: int | None = None) -> Tensor:
    """Labels for these scores, every third one ignored if that is asked for."""
    dim = 0 if scores.dim() == 1 else 1
    labels = random_labels(*scores.shape[:dim], *scores.shape[dim + 1 :])
    if ignore_index is not None:
        labels.view(-1)[::3] = ignore_index
    return labels


def target_and_options(scores: Tensor, kind: str) -> tuple[Tensor, dict[str, int]]:
    if kind == "probabilities":
        return random_probabilities(*scores.shape, dim=0 if scores.dim() == 1 else 1), {}
    if kind == "indices":
        return labels_for(scores), {}
    index = int(kind.removeprefix("ignored="))
    return labels_for(scores, index), {"ignore_index": index}


def assert_like_torch(scores: Tensor, target: Tensor, torchs_target: Tensor | None = None, **options: object) -> None:
    """Function and module agree with torch's, value and gradient."""
    torchs_target = target if torchs_target is None else torchs_target
    expected = value_and_grad(cross_entropy, scores, torchs_target, **options)
    assert_close(value_and_grad(nn.CrossEntropyLoss(**options), scores, torchs_target), expected, equal_nan=True)
    assert_close(value_and_grad(functional.ce, scores, target, **options), expected, equal_nan=True)
    assert_close(value_and_grad(symloss.CE(**options), scores, target), expected, equal_nan=True)


@shapes
@targets
@weighted
@smoothings
@reductions
def test_ce_is_torchs(shape, kind, weight, smoothing, reduction):
    scores = random_scores(*shape)
    target, options = target_and_options(scores, kind)
    assert_like_torch(scores, target, weight=weight, label_smoothing=smoothing, reduction=reduction, **options)


@pytest.mark.parametrize("shape", [(0, 4), (0, 4, 2), (2, 4, 0), (1, 4), (1, 4, 1)], ids=str)
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
@reductions
def test_ce_of_empty_and_single_batches_is_torchs(shape, kind, reduction):
    scores = random_scores(*shape)
    target, _ = target_and_options(scores, kind)
    assert_like_torch(scores, target, reduction=reduction)


@shapes
@weighted
@smoothings
@reductions
def test_ce_with_all_targets_ignored_is_torchs(shape, weight, smoothing, reduction):
    """torch's mean over nothing is nan, its sum 0, its gradient 0."""
    scores = random_scores(*shape)
    ignored = torch.full_like(labels_for(scores), 255)
    assert_like_torch(scores, ignored, weight=weight, label_smoothing=smoothing, reduction=reduction, ignore_index=255)


@pytest.mark.parametrize(
    ("dtype", "ignore_index"),
    [
        (torch.int8, -100),
        (torch.int16, 255),
        (torch.int32, -100),
        (torch.int32, 0),
        (torch.uint8, 0),
        (torch.uint8, 255),
    ],
    ids=str,
)
def test_labels_of_any_integer_type(dtype, ignore_index):
    """torch takes int64 and uint8 alone; images hold uint8 labels with 255 for 'ignore'."""
    scores = random_scores(7, CLASSES)
    labels = labels_for(scores, ignore_index)
    assert_like_torch(scores, labels.to(dtype), labels, ignore_index=ignore_index)


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "transposed": lambda: random_scores(2, 3, 2, 4).movedim(-1, 1),
    "strided": lambda: random_scores(4, 8, 3, 2)[::2, ::2],
    "expanded": lambda: random_scores(1, 4, 1, 1).expand(2, 4, 3, 2),
    "channels-last": lambda: random_scores(2, 4, 3, 2).contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@kinds
def test_ce_of_any_memory_layout_is_torchs(layout, kind):
    scores = LAYOUTS[layout]()
    target, options = target_and_options(scores, kind)
    assert_like_torch(scores, target, weight=WEIGHT, label_smoothing=0.1, **options)


def test_labels_of_any_memory_layout():
    scores, labels = random_scores(2, CLASSES, 3, 2), random_labels(2, 2, 3).transpose(1, 2)
    assert not labels.is_contiguous()
    assert_like_torch(scores, labels)


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_single(name, dtype):
    scores, labels = random_scores(5, CLASSES).to(dtype), random_labels(5)
    loss = symloss.create_loss(name)
    value, gradient = value_and_grad(loss, scores, labels)
    assert value.dtype == torch.float32
    expected, expected_gradient = value_and_grad(loss, scores.float(), labels)
    assert torch.equal(value, expected)
    assert torch.equal(gradient, expected_gradient.to(dtype))


def test_the_loss_has_the_type_of_the_scores():
    """Weights and probabilities follow, whatever type they have."""
    scores, soft = random_scores(5, CLASSES), random_probabilities(5, CLASSES).float()
    for dtype in (torch.float32, torch.float64):
        value = functional.sgce(scores.to(dtype), soft, weight=WEIGHT.to(torch.bfloat16))
        assert value.dtype == dtype


# --- Every loss: shapes, targets, reductions -------------------------------------------------------------------------


@every_loss
def test_images_are_rows_of_pixels(name):
    scores, labels = random_scores(2, CLASSES, 3, 2), random_labels(2, 3, 2)
    loss = symloss.create_loss(name, reduction="none")
    rows = scores.movedim(1, -1).flatten(0, 2)
    value, gradient = value_and_grad(loss, scores, labels)
    flat_value, flat_gradient = value_and_grad(loss, rows, labels.flatten())
    assert_close(value.flatten(), flat_value)
    assert_close(gradient.movedim(1, -1).flatten(0, 2), flat_gradient)
    one_value, one_gradient = value_and_grad(loss, rows[0], labels.flatten()[0])
    assert_close(one_value, flat_value[0])
    assert_close(one_gradient, flat_gradient[0])


@every_loss
def test_one_hot_probabilities_are_labels(name):
    scores, labels = random_scores(3, CLASSES, 2), random_labels(3, 2)
    for reduction in REDUCTIONS:
        loss = symloss.create_loss(name, reduction=reduction)
        assert_close(value_and_grad(loss, scores, one_hot(labels)), value_and_grad(loss, scores, labels))


@every_loss
@kinds
def test_sum_and_mean_are_of_the_single_values(name, kind):
    scores = random_scores(5, CLASSES)
    target, options = target_and_options(scores, kind)
    single, total, mean = (
        symloss.create_loss(name, reduction=r, **options)(scores, target) for r in ("none", "sum", "mean")
    )
    kept = single if kind == "probabilities" else single[target != options.get("ignore_index", -100)]
    assert single.shape == (5,)
    assert_close(total, kept.sum())
    assert_close(mean, kept.mean())


@every_loss
@pytest.mark.parametrize("smoothing", [0.1, 1.0])
def test_label_smoothing_is_the_dot_with_smoothed_labels(name, smoothing):
    scores, labels, soft = random_scores(5, CLASSES), random_labels(5), random_probabilities(5, CLASSES)
    loss = symloss.create_loss(name, label_smoothing=smoothing, reduction="none")
    for target, probabilities in ((labels, one_hot(labels)), (soft, soft)):
        smoothed = (1 - smoothing) * probabilities + smoothing / CLASSES
        assert_close(
            value_and_grad(loss, scores, target),
            value_and_grad(lambda z, t=smoothed: (t * values_of(name, z)).sum(1), scores),
        )


@pytest.mark.parametrize("spec", SYMMETRIC)
def test_label_smoothing_only_scales_a_symmetric_loss(spec):
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    _, gradient = value_and_grad(symloss.create_loss(spec), scores, labels)
    _, smoothed = value_and_grad(symloss.create_loss(spec, label_smoothing=0.3), scores, labels)
    assert_close(smoothed, 0.7 * gradient)


# --- Every loss: function, module, spec ------------------------------------------------------------------------------


def other_parameters(name: str) -> dict[str, float]:
    """Allowed values that are not the defaults."""
    return {p.name: p.default + 1 if p.whole else 0.9 * p.default for p in RECORDS[name].parameters}


@every_loss
@pytest.mark.parametrize("own", [False, True], ids=["defaults", "parameters"])
def test_function_module_and_spec_agree_bit_for_bit(name, own):
    record = RECORDS[name]
    values = other_parameters(name) if own else {}
    spec = f"{name}:{','.join(f'{key}={value!r}' for key, value in values.items())}"
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    expected = value_and_grad(getattr(functional, function_name(record)), scores, labels, **values)
    modules = (
        getattr(symloss, record.class_name)(**values),
        getattr(symloss, record.class_name)(*values.values()),
        symloss.create_loss(name, **values),
        symloss.create_loss(spec),
    )
    for module in modules:
        value, gradient = value_and_grad(module, scores, labels)
        assert torch.equal(value, expected[0])
        assert torch.equal(gradient, expected[1])
    if values:
        assert not torch.equal(expected[0], getattr(functional, function_name(record))(scores, labels))


@every_loss
@pytest.mark.parametrize(
    "options",
    [
        {"reduction": "sum", "ignore_index": 0},
        {"label_smoothing": 0.2, "weight": WEIGHT},
        {"normalize": "l2", "temperature": 0.5},
        {"normalize": None},
    ],
    ids=",".join,
)
def test_function_and_module_take_the_same_options(name, options):
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    function = getattr(functional, function_name(RECORDS[name]))(scores, labels, **options)
    assert torch.equal(function, symloss.create_loss(name, **options)(scores, labels))


def test_public_names_exist_and_are_listed():
    for name in LOSSES:
        record = RECORDS[name]
        assert record.class_name in dir(symloss)
        assert function_name(record) in dir(functional)
        assert isinstance(symloss.create_loss(name), getattr(symloss, record.class_name))


ROUND_TRIPS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "deepcopy": copy.deepcopy,
}


@every_loss
@pytest.mark.parametrize("way", ROUND_TRIPS)
def test_modules_survive_copies(name, way):
    loss = symloss.create_loss(
        name,
        weight=WEIGHT.clone(),
        ignore_index=1,
        label_smoothing=0.1,
        normalize="l2",
        temperature=0.5,
        **other_parameters(name),
    )
    twin = ROUND_TRIPS[way](loss)
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    assert type(twin) is type(loss)
    assert repr(twin) == repr(loss)
    assert torch.equal(twin(scores, labels), loss(scores, labels))
    twin.weight.fill_(1)
    assert torch.equal(loss.weight, WEIGHT), "the copy has a weight of its own"


@every_loss
def test_repr_says_what_was_chosen(name):
    plain = repr(symloss.create_loss(name, normalize=None))
    assert plain.startswith(f"{RECORDS[name].class_name}(")
    assert "reduction" not in plain
    values = other_parameters(name)
    text = repr(symloss.create_loss(name, reduction="sum", ignore_index=7, normalize="l2", temperature=0.25, **values))
    for expected in ("reduction='sum'", "ignore_index=7", "normalize='l2'", "temperature=0.25"):
        assert expected in text
    if set(values) - {"r"}:  # label smoothing is written as the sum it is
        assert repr(symloss.create_loss(name).loss) != repr(symloss.create_loss(name, **values).loss)


@every_loss
def test_weight_moves_and_is_no_part_of_a_checkpoint(name):
    """Moved with ``.to``, as torch's; but what was saved with weights can be loaded without them, and the reverse."""
    loss = symloss.create_loss(name, weight=WEIGHT.float())
    assert list(loss.parameters()) == []
    assert loss.state_dict() == symloss.create_loss(name).state_dict() == {}
    symloss.create_loss(name).load_state_dict({"weight": WEIGHT})  # of a checkpoint of version 0.1
    loss.load_state_dict({"weight": torch.ones(CLASSES)})
    assert torch.equal(loss.weight, WEIGHT.float())
    loss.to(torch.float64)
    assert loss.weight.dtype == torch.float64
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    assert_close(loss(scores, labels), symloss.create_loss(name, weight=WEIGHT)(scores, labels))


# --- Class weights -----------------------------------------------------------------------------------------------


def symmetric_rule(every: Tensor, weight: Tensor = WEIGHT) -> Tensor:
    """w_y L_y - mean_k w_k L_k + mean(w) mean_k L_k, of every label's value."""
    return weight * every - (weight * every).mean(1, keepdim=True) + weight.mean() * every.mean(1, keepdim=True)


@every_loss
@kinds
def test_weights_of_one_change_nothing(name, kind):
    scores = random_scores(5, CLASSES)
    target, given = target_and_options(scores, kind)
    ones = torch.ones(CLASSES, dtype=torch.float64)
    for reduction, smoothing in itertools.product(REDUCTIONS, (0.0, 0.1)):
        options = given | {"reduction": reduction, "label_smoothing": smoothing}
        assert_close(
            value_and_grad(symloss.create_loss(name, weight=ones, **options), scores, target),
            value_and_grad(symloss.create_loss(name, **options), scores, target),
        )


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@kinds
def test_weighted_values_follow_the_rule_of_the_loss(spec, smoothing, kind):
    """torch's w_y L_y, or the one that stays symmetric; soft and smoothed labels dot the same values."""
    scores = random_scores(6, CLASSES)
    target, options = target_and_options(scores, kind)
    loss = symloss.create_loss(spec, weight=WEIGHT, label_smoothing=smoothing, reduction="none", **options)

    def rule(z: Tensor) -> Tensor:
        every = values_of(spec, z)
        every = symmetric_rule(every) if spec in SYMMETRIC else WEIGHT * every
        kept = torch.ones(6) if kind == "probabilities" else (target != options.get("ignore_index", -100))
        probabilities = target if kind == "probabilities" else one_hot(torch.where(kept, target, 0))
        return kept * (((1 - smoothing) * probabilities + smoothing / CLASSES) * every).sum(1)

    assert_close(value_and_grad(loss, scores, target), value_and_grad(rule, scores))


@pytest.mark.parametrize("spec", SYMMETRIC)
def test_weights_keep_a_symmetric_loss_symmetric(spec):
    scores = random_scores(20, CLASSES, seed=9)
    assert spread_of_sum(values_of(spec, scores, weight=WEIGHT)) < 1e-9


@pytest.mark.parametrize("spec", SPECS)
@kinds
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


# --- Masked classes ----------------------------------------------------------------------------------------------

MASK = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1], [0, 1, 0, 1]], dtype=torch.bool)
MASK_LABELS = torch.tensor([3, 1, 0, 3])
EDGES = {
    "plain": {},
    "weighted": {"weight": WEIGHT},
    "smoothed": {"label_smoothing": 0.1},
    "l2": {"normalize": "l2"},
    "l2-weighted-smoothed": {"normalize": "l2", "temperature": 0.5, "weight": WEIGHT, "label_smoothing": 0.1},
    "scaled": {"normalize": None, "scale": "ce"},
}
WITHOUT_SLOPE = ("cosine", "symmetrized-cosine")


def _edges() -> pytest.MarkDecorator:
    pairs = [(name, edge) for name in LOSSES for edge in EDGES if edge != "scaled" or name not in WITHOUT_SLOPE]
    return pytest.mark.parametrize(("name", "edge"), pairs, ids=["-".join(pair) for pair in pairs])


edges = _edges()
hard_or_soft = pytest.mark.parametrize("soft", [False, True], ids=["labels", "probabilities"])


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, scores, -torch.inf)


def target_within(mask: Tensor, labels: Tensor, soft: bool) -> Tensor:
    if not soft:
        return labels
    probabilities = random_probabilities(*mask.shape) * mask
    return probabilities / probabilities.sum(1, keepdim=True)


def removed(scores: Tensor, target: Tensor, mask: Tensor, options: dict) -> tuple[Tensor, Tensor, dict]:
    """The same batch with the masked classes cut out of scores, target and weight (one mask for all rows)."""
    position = mask.cumsum(0) - 1
    target = target[:, mask] if target.is_floating_point() else position[target]
    weight = {"weight": options["weight"][mask]} if "weight" in options else {}
    return scores[:, mask], target, options | weight


@edges
@hard_or_soft
def test_masked_classes_are_absent_row_by_row(name, edge, soft):
    """Value and gradient of each row are those of the loss without the class, whatever the other rows mask."""
    scores, target = random_scores(*MASK.shape), target_within(MASK, MASK_LABELS, soft)
    loss = symloss.create_loss(name, reduction="none", **EDGES[edge])
    values, gradients = value_and_grad(loss, masked(scores, MASK), target)
    assert (gradients[~MASK] == 0).all()
    for i, mask in enumerate(MASK):
        row, label, options = removed(scores[i : i + 1], target[i : i + 1], mask, EDGES[edge])
        value, gradient = value_and_grad(symloss.create_loss(name, reduction="none", **options), row, label)
        assert_close(values[i : i + 1], value)
        assert_close(gradients[i : i + 1, mask], (i + 1) * gradient)


@edges
@hard_or_soft
def test_a_class_masked_in_every_row_is_absent_from_the_mean(name, edge, soft):
    mask = torch.tensor([True, True, False, True])
    scores, target = random_scores(*MASK.shape), target_within(mask.expand(4, 4), MASK_LABELS, soft)
    value, gradient = value_and_grad(symloss.create_loss(name, **EDGES[edge]), masked(scores, mask), target)
    rows, labels, options = removed(scores, target, mask, EDGES[edge])
    expected, expected_gradient = value_and_grad(symloss.create_loss(name, **options), rows, labels)
    assert_close(value, expected)
    assert_close(gradient[:, mask], expected_gradient)


@edges
@hard_or_soft
def test_a_single_class_present_is_finite_and_flat(name, edge, soft):
    mask = torch.tensor([[False, True, False, False], [False, False, False, True]])
    scores = masked(torch.tensor([[0.7], [-2.0]], dtype=torch.float64), mask)
    target = mask.double() if soft else torch.tensor([1, 3])
    values, gradient = value_and_grad(symloss.create_loss(name, reduction="none", **EDGES[edge]), scores, target)
    assert values.isfinite().all()
    assert (gradient == 0).all()


@every_loss
def test_an_ignored_row_may_be_masked_completely(name):
    """Padding: no class, no label, and nothing of it may reach the other rows."""
    scores, labels = random_scores(3, CLASSES), torch.tensor([0, -100, 2])
    padded = scores.clone()
    padded[1] = -torch.inf
    loss = symloss.create_loss(name)
    value, gradient = value_and_grad(loss, padded, labels)
    assert_close(value, loss(scores, labels))
    assert gradient.isfinite().all()
    assert (gradient[1] == 0).all()


# --- symmetrize and decompose, of anything ---------------------------------------------------------------------------


def user_function(scores: Tensor, labels: Tensor) -> Tensor:
    """Neither symmetric nor a function of log p."""
    return (1 + labels) * picked(scores, labels).square() - scores[:, 0]


class UserModule(nn.Module):
    """A loss with a parameter, that returns one value for each example."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.5, 2.0, CLASSES, dtype=torch.float64))

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.gain * scores, labels, reduction="none")


class NoisyModule(UserModule):
    """Behaves differently in training, as dropout does."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return super().forward(scores, labels) + (100 if self.training else 0) * labels


FOREIGN: dict[str, tuple[Callable[[], Callable], Callable[..., Tensor]]] = {
    # name: (what is given to symmetrize, its value for each example)
    "cross-entropy": (nn.CrossEntropyLoss, lambda z, y: cross_entropy(z, y, reduction="none")),
    "weighted": (
        lambda: nn.CrossEntropyLoss(weight=WEIGHT, reduction="sum"),
        lambda z, y: cross_entropy(z, y, weight=WEIGHT, reduction="none"),
    ),
    "ignoring": (lambda: nn.CrossEntropyLoss(ignore_index=1), lambda z, y: cross_entropy(z, y, reduction="none")),
    "sum": (lambda: nn.CrossEntropyLoss(reduction="sum"), lambda z, y: cross_entropy(z, y, reduction="none")),
    "none": (lambda: nn.CrossEntropyLoss(reduction="none"), lambda z, y: cross_entropy(z, y, reduction="none")),
    "smoothed": (
        lambda: nn.CrossEntropyLoss(label_smoothing=0.2),
        lambda z, y: cross_entropy(z, y, reduction="none", label_smoothing=0.2),
    ),
    "multi-margin": (nn.MultiMarginLoss, lambda z, y: multi_margin_loss(z, y, reduction="none")),
    "function": (lambda: cross_entropy, lambda z, y: cross_entropy(z, y, reduction="none")),
    "user-function": (lambda: user_function, user_function),
    "user-module": (UserModule, UserModule()),
    "own-module": (lambda: symloss.GCE(q=0.5), lambda z, y: functional.gce(z, y, q=0.5, reduction="none")),
    "own-weighted": (
        lambda: symloss.GCE(q=0.5, weight=WEIGHT, reduction="sum"),
        lambda z, y: functional.gce(z, y, q=0.5, weight=WEIGHT, reduction="none"),
    ),
    "own-scaled": (
        lambda: symloss.GCE(q=0.5, scale="ce", normalize="l2", ignore_index=2),
        lambda z, y: functional.gce(z, y, q=0.5, scale="ce", normalize="l2", reduction="none"),
    ),
}
PRIOR = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)

foreign = pytest.mark.parametrize("key", FOREIGN)
priors = pytest.mark.parametrize("prior", [None, PRIOR, PRIOR.tolist()], ids=["uniform", "prior", "prior-list"])


def mean_under(every: Tensor, prior: Tensor | list[float] | None) -> Tensor:
    return every.mean(1) if prior is None else every @ torch.as_tensor(prior, dtype=every.dtype)


def reduced(values: Tensor, labels: Tensor, like: object) -> Tensor:
    """As the loss that was given says: its ignore_index, its reduction (the mean for functions)."""
    kept = labels != getattr(like, "ignore_index", -100)
    reduction = getattr(like, "reduction", "mean")
    values = torch.where(kept, values, 0.0)
    return values if reduction == "none" else values.sum() / (kept.sum() if reduction == "mean" else 1)


@foreign
@priors
def test_symmetrize_takes_the_mean_over_labels_away(key, prior):
    make, single = FOREIGN[key]
    scores, labels = random_scores(6, CLASSES), random_labels(6)
    given = make()

    def expected(z: Tensor, y: Tensor) -> Tensor:
        every = at_every_label(single, z)
        return reduced(picked(every, y) - mean_under(every, prior), y, given)

    robust = symloss.symmetrize(given, prior)
    assert_close(value_and_grad(robust, scores, labels), value_and_grad(expected, scores, labels))


@foreign
@priors
def test_decomposition_adds_up_to_the_loss(key, prior):
    make, single = FOREIGN[key]
    scores, labels = random_scores(6, CLASSES), random_labels(6)
    original = make()
    symmetric, insensitive = symloss.decompose(original, prior)
    assert_close(
        value_and_grad(lambda z, y: symmetric(z, y) + insensitive(z, y), scores, labels),
        value_and_grad(lambda z, y: reduced(single(z, y), y, original), scores, labels),
    )
    if not key.startswith("user"):  # the users' return one value for each example
        assert_close(symmetric(scores, labels) + insensitive(scores, labels), original(scores, labels))


def one_by_one(part: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The values of single examples; what was a module still is one, and holds its reduction."""
    if not isinstance(part, nn.Module):
        return functools.partial(part, reduction="none")
    part.reduction = "none"
    return part


@pytest.mark.parametrize("key", ["weighted", "smoothed", "multi-margin", "user-function", "user-module"])
@priors
def test_parts_are_symmetric_and_insensitive(key, prior):
    """The first sums to 0 over labels (drawn from the prior), the second is the same at every label."""
    single = FOREIGN[key][1]
    scores = random_scores(6, CLASSES)
    symmetric, insensitive = (one_by_one(part) for part in symloss.decompose(single, prior))
    assert_close(mean_under(at_every_label(symmetric, scores), prior), torch.zeros(6, dtype=torch.float64))
    every = at_every_label(insensitive, scores)
    assert_close(every, every[:, :1].expand_as(every))


def test_mean_of_a_weighted_loss_is_over_examples():
    """torch divides a weighted mean by the labels' weights: no function of single examples, so it has no such part."""
    scores, labels = random_scores(6, CLASSES), random_labels(6)
    symmetric, insensitive = symloss.decompose(nn.CrossEntropyLoss(weight=WEIGHT))
    single = cross_entropy(scores, labels, weight=WEIGHT, reduction="none")
    assert_close(symmetric(scores, labels) + insensitive(scores, labels), single.mean())


@pytest.mark.parametrize("key", ["cross-entropy", "ignoring", "sum", "none", "smoothed", "weighted"])
@pytest.mark.parametrize("shape", [(4,), (3, 4, 2), (2, 4, 3, 2), (0, 4)], ids=str)
def test_decomposition_in_every_shape(key, shape):
    original = FOREIGN[key][0]()
    scores = random_scores(*shape)
    labels = labels_for(scores)
    symmetric, insensitive = symloss.decompose(original)
    assert_close(symmetric(scores, labels) + insensitive(scores, labels), original(scores, labels), equal_nan=True)


@pytest.mark.parametrize("key", ["multi-margin", "user-function", "user-module"])
def test_losses_of_rows_work_on_images(key):
    """They know (N, C) alone; symmetrized they take what torch's cross-entropy takes."""
    robust = symloss.symmetrize(FOREIGN[key][0]())
    scores, labels = random_scores(2, CLASSES, 3), random_labels(2, 3)
    rows = scores.movedim(1, -1).flatten(0, 1)
    assert_close(robust(scores, labels), robust(rows, labels.flatten()))


def test_soft_labels_of_a_symmetrized_loss():
    robust = symloss.symmetrize(nn.MultiMarginLoss())
    scores, soft = random_scores(5, CLASSES), random_probabilities(5, CLASSES)
    every = at_every_label(FOREIGN["multi-margin"][1], scores)
    assert_close(robust(scores, soft), (soft * (every - every.mean(1, keepdim=True))).sum(1).mean())


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.CrossEntropyLoss(weight=WEIGHT.clone(), ignore_index=1, reduction="sum", label_smoothing=0.1),
        lambda: nn.MultiMarginLoss(margin=2.0, reduction="none"),
        UserModule,
        lambda: symloss.GCE(weight=WEIGHT.clone(), ignore_index=1),
    ],
    ids=["cross-entropy", "multi-margin", "user-module", "own-module"],
)
@pytest.mark.parametrize("take", [symloss.symmetrize, symloss.decompose], ids=["symmetrize", "decompose"])
def test_the_loss_given_is_not_modified(make, take):
    given, untouched = make(), make()
    scores, labels = random_scores(6, CLASSES), random_labels(6)
    taken = take(given)
    for part in taken if isinstance(taken, tuple) else (taken,):
        part(scores, labels)
    plain = {key: value for key, value in vars(untouched).items() if isinstance(value, (int, float, str, type(None)))}
    assert {key: vars(given)[key] for key in plain} == plain
    assert set(vars(given)) == set(vars(untouched))
    assert_close(dict(given.state_dict()), dict(untouched.state_dict()))
    assert torch.equal(given(scores, labels), untouched(scores, labels))


def test_parameters_of_a_users_loss_train_with_the_model():
    robust = symloss.symmetrize(UserModule())
    (gain,) = robust.parameters()
    robust(random_scores(6, CLASSES), random_labels(6)).backward()
    assert gain.grad.isfinite().all()
    assert (gain.grad != 0).any()
    assert list(robust.state_dict()) == ["parts.0.gain"]
    assert robust.to(torch.float32)(random_scores(6, CLASSES).float(), random_labels(6)).dtype == torch.float32


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_train_and_eval_reach_a_users_loss(training):
    """A loss with dropout must stop dropping in ``eval()``."""
    robust = symloss.symmetrize(NoisyModule()).train(training)
    scores, labels = random_scores(6, CLASSES), random_labels(6)
    expected = symloss.symmetrize(NoisyModule().train(training).forward)
    assert_close(robust(scores, labels), expected(scores, labels))


@pytest.mark.parametrize("way", ROUND_TRIPS)
@pytest.mark.parametrize(
    "make", [lambda: nn.CrossEntropyLoss(weight=WEIGHT.clone()), UserModule], ids=["torch", "user"]
)
def test_symmetrized_modules_survive_copies(way, make):
    robust = symloss.symmetrize(make())
    twin = ROUND_TRIPS[way](robust)
    scores, labels = random_scores(6, CLASSES), random_labels(6)
    expected = robust(scores, labels).detach()
    assert torch.equal(twin(scores, labels), expected)
    with torch.no_grad():
        for tensor in twin.state_dict().values():
            tensor.mul_(3)
    assert not torch.equal(twin(scores, labels), expected), "the copy's own weights are the ones it uses"
    assert torch.equal(robust(scores, labels), expected), "and the original's are left alone"


def test_symmetrize_keeps_the_options_of_our_modules():
    given = symloss.CE(normalize="l2", temperature=0.5, ignore_index=2, reduction="sum")
    scores, labels = random_scores(6, CLASSES), random_labels(6)
    expected = symloss.Unhinged(normalize="l2", temperature=0.5, ignore_index=2, reduction="sum")
    assert_close(symloss.symmetrize(given)(scores, labels), expected(scores, labels))


def test_symmetrize_of_an_expression_is_an_expression():
    robust = symloss.symmetrize(CE())
    assert isinstance(robust, symloss.Loss)
    scores, labels = random_scores(6, CLASSES), random_labels(6)
    assert torch.equal(robust(scores, labels), functional.unhinged(scores, labels, normalize=None))


def test_a_symmetrized_function_joins_the_algebra():
    robust = symloss.symmetrize(lambda z, y: cross_entropy(z, y, reduction="none"))
    scores, labels = random_scores(6, CLASSES), random_labels(6)
    raw, unit = functional.unhinged(scores, labels, normalize=None), functional.unhinged(scores, labels)
    assert_close((0.5 * robust + MAE())(scores, labels), 0.5 * raw + functional.mae(scores, labels))
    assert_close(symloss.Criterion(robust, normalize="l2")(scores, labels), unit)
    assert_close(symloss.blend(robust, 0.3)(scores, labels), raw)


def test_a_prior_leaves_out_masked_classes():
    """The mean under q is over the classes that are present, with q scaled to sum to 1 over them."""
    scores, labels = random_scores(*MASK.shape), MASK_LABELS
    values = symloss.symmetrize(CE(), PRIOR)(masked(scores, MASK), labels, reduction="none")
    for value, row, label, mask in zip(values, scores, labels, MASK, strict=True):
        prior = PRIOR[mask] / PRIOR[mask].sum()
        assert_close(value, (prior * row[mask]).sum() - row[label])


@pytest.mark.parametrize("key", ["cross-entropy", "function"])
def test_masked_classes_of_torchs_cross_entropy(key):
    scores = random_scores(*MASK.shape)
    robust, unhinged = symloss.symmetrize(FOREIGN[key][0]()), symloss.Unhinged(normalize=None)
    expected = value_and_grad(unhinged, masked(scores, MASK), MASK_LABELS)
    assert_close(value_and_grad(robust, masked(scores, MASK), MASK_LABELS), expected)


# --- Options of ours ---------------------------------------------------------------------------------------------


def divided_by_norm(scores: Tensor, temperature: float = 1.0, dim: int = 1) -> Tensor:
    return scores / scores.norm(dim=dim, keepdim=True).clamp_min(1e-5) / temperature


@every_loss
def test_only_the_papers_losses_divide_by_the_norm(name):
    record = RECORDS[name]
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    raw = symloss.create_loss(name, normalize=None)
    expected = raw(divided_by_norm(scores) if name in NORMALIZED else scores, labels)
    for loss in (
        symloss.create_loss(name),
        MODULES[record.class_name](),
        FUNCTIONS[function_name(record)],
        symloss.create_loss(f"{name}:temperature=1"),
    ):
        assert_close(loss(scores, labels), expected)


@every_loss
@pytest.mark.parametrize("temperature", [0.04, 1, 2.5])
def test_l2_divides_by_temperature_times_norm(name, temperature):
    scores, labels = random_scores(3, CLASSES, 2), random_labels(3, 2)
    loss = symloss.create_loss(name, normalize="l2", temperature=temperature)
    raw = symloss.create_loss(name, normalize=None)
    assert_close(
        value_and_grad(loss, scores, labels),
        value_and_grad(lambda z, y: raw(divided_by_norm(z, temperature), y), scores, labels),
        tolerance=1e-10,
    )


@pytest.mark.parametrize("name", NORMALIZED)
def test_l2_of_zero_scores_is_finite(name):
    value, gradient = value_and_grad(symloss.create_loss(name), torch.zeros(2, CLASSES), torch.tensor([0, 1]))
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in WITHOUT_SLOPE])
@pytest.mark.parametrize("classes", [2, 4, 10], ids="C={}".format)
@pytest.mark.parametrize("own", [False, True], ids=["defaults", "parameters"])
def test_scale_ce_starts_with_the_gradient_of_cross_entropy(name, classes, own):
    scores, labels = torch.full((3, classes), 0.3, dtype=torch.float64), random_labels(3, classes=classes)
    values = other_parameters(name) if own else {}
    _, expected = value_and_grad(cross_entropy, scores, labels)
    function = getattr(functional, function_name(RECORDS[name]))
    for loss in (
        symloss.create_loss(name, scale="ce", normalize=None, **values),
        symloss.create_loss(f"{name}:scale=ce,normalize=none", **values),
    ):
        assert_close(value_and_grad(loss, scores, labels)[1], expected)
    assert_close(value_and_grad(function, scores, labels, scale="ce", normalize=None, **values)[1], expected)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in WITHOUT_SLOPE])
def test_scale_ce_is_one_factor(name):
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    raw = symloss.create_loss(name, normalize=None)
    scaled = symloss.create_loss(name, normalize=None, scale="ce")
    assert_close(scaled(scores, labels) * raw.loss.slope(CLASSES), raw(scores, labels))


@pytest.mark.parametrize("name", ["ce", "gce", "unhinged", "nce+rce"])
@pytest.mark.parametrize("shape", [(4,), (5, 4), (3, 4, 2)], ids=str)
@pytest.mark.parametrize("m", [0.0, 1.0, 20.0])
def test_normalize_takes_a_function_of_the_scores(name, shape, m):
    dim = 0 if len(shape) == 1 else 1
    scores = random_scores(*shape)
    labels = labels_for(scores)
    epsilon = symloss.EpsSoftmax(m)

    def plain(z: Tensor) -> Tensor:
        p = z.softmax(dim)
        return ((p + m * torch.zeros_like(p).scatter(dim, p.argmax(dim, keepdim=True), 1.0)) / (m + 1)).log()

    assert_close(epsilon(scores).softmax(dim), plain(scores).exp())
    raw = symloss.create_loss(name, normalize=None)
    if name != "unhinged":  # which depends on the scores, not on their softmax alone
        expected = value_and_grad(lambda z, y: raw(plain(z), y), scores, labels)
    else:
        expected = value_and_grad(lambda z, y: raw(epsilon(z), y), scores, labels)
    record = RECORDS[name]
    for loss in (symloss.create_loss(name, normalize=epsilon), MODULES[record.class_name](normalize=epsilon)):
        assert_close(value_and_grad(loss, scores, labels), expected)
    assert_close(value_and_grad(FUNCTIONS[function_name(record)], scores, labels, normalize=epsilon), expected)


def test_eps_softmax_leaves_masked_classes_out():
    scores = masked(random_scores(*MASK.shape), MASK)
    mapped = symloss.EpsSoftmax(1.0)(scores)
    assert torch.equal(mapped == -torch.inf, ~MASK)
    _, gradient = value_and_grad(symloss.CE(normalize=symloss.EpsSoftmax(1.0)), scores, MASK_LABELS)
    assert gradient.isfinite().all()
    assert (gradient[~MASK] == 0).all()


@pytest.mark.parametrize("m", [0.0, 1e-30, 1.0, 1e300])
@pytest.mark.parametrize("lead", [50.0, 104.0, 1000.0])
def test_eps_softmax_of_classes_whose_probability_is_no_number(lead, m):
    """In float32 e^-104 is 0, of which the logarithm has no slope. With p = 1 at the leader its entry is log(1 + m)."""
    scores = torch.tensor([lead, 0.0, -1.0], requires_grad=True)
    mapped = symloss.EpsSoftmax(m)(scores)
    assert_close(mapped, torch.tensor([math.log1p(m), -lead, -lead - 1]), 1e-6)
    (gradient,) = torch.autograd.grad(mapped.sum(), scores)
    assert_close(gradient, torch.tensor([-2.0, 1.0, 1.0]))


@pytest.mark.parametrize("spec", SYMMETRIC)
@pytest.mark.parametrize(
    "normalize",
    ["l2", symloss.EpsSoftmax(1.0), nn.BatchNorm1d(CLASSES, dtype=torch.float64)],
    ids=["l2", "eps-softmax", "batch-norm"],
)
def test_maps_of_the_scores_keep_symmetry(spec, normalize):
    """The guarantee survives any map that does not see the label."""
    scores = random_scores(20, CLASSES, seed=9)
    assert spread_of_sum(values_of(spec, scores, normalize=normalize).detach()) < 1e-9


# --- Batch normalisation of the scores, and the weight penalty -------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3), (6, 4, 3, 2)], ids=str)
@pytest.mark.parametrize("classes", [None, CLASSES], ids=["lazy", "classes given"])
def test_batch_norm_scores_normalises_class_by_class(shape, classes):
    scores = random_scores(*shape).float()
    layer = symloss.BatchNormScores(classes)
    mapped = layer(scores)
    rows, others = mapped.movedim(1, -1).flatten(0, -2), scores.movedim(1, -1).flatten(0, -2)
    expected = (others - others.mean(0)) / (others.var(0, correction=0) + 1e-5).sqrt()
    assert mapped.shape == scores.shape
    assert_close(rows, expected, tolerance=1e-5)
    layer.eval()
    assert not torch.equal(layer(scores), mapped), "in evaluation the running statistics are used"


def test_batch_norm_scores_takes_the_options_of_torchs():
    layer = symloss.BatchNormScores(CLASSES, affine=False, momentum=0.5)
    assert not list(layer.parameters())
    assert layer.norm.momentum == 0.5


@pytest.mark.parametrize(
    "layer",
    [None, symloss.BatchNormScores(CLASSES), symloss.UnitScores(temperature=0.5)],
    ids=["default", "batch-norm", "unit"],
)
@pytest.mark.parametrize("spec", ["sgce:normalize=none", "anl-ce", "gce"])
def test_a_model_with_a_map_of_its_scores_trains(spec, layer):
    """One step of gradient descent, weight penalty included, lowers the loss of its batch."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    chain = symloss.append_scores(model, copy.deepcopy(layer))
    assert [name for name, _ in chain.named_children()] == ["model", "scores"]
    assert chain.model is model
    inputs, labels = random_scores(16, 6).float(), random_labels(16)
    loss = symloss.create_loss(spec)
    chain(inputs)  # makes the parameters of a lazy layer
    optimizer = torch.optim.SGD(chain.parameters(), lr=0.05)
    history = []
    for _ in range(2):
        total = loss(chain(inputs), labels) + symloss.l1_penalty(chain, 1e-4)
        optimizer.zero_grad()
        total.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in chain.parameters())
        optimizer.step()
        history.append(total.item())
    assert history[1] < history[0]


def test_l1_penalty_is_delta_times_the_sum_of_absolute_values():
    model = nn.Linear(3, 2, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0, 0.0], [0.5, 4.0, -1.5]]))
        model.bias.copy_(torch.tensor([-3.0, 1.0]))
    penalty = symloss.l1_penalty(model, delta=0.1)
    assert_close(penalty, torch.tensor(1.3, dtype=torch.float64))
    penalty.backward()
    assert_close(model.weight.grad, 0.1 * model.weight.sign())
    for same in (model.parameters(), list(model.parameters())):
        assert_close(symloss.l1_penalty(same, 0.1), penalty)
    assert symloss.l1_penalty(model, 0.0).item() == 0


# --- Presets -----------------------------------------------------------------------------------------------------

PUBLISHED = {
    # The baselines' table, written out again: parameters, then values for mnist, cifar10, cifar100 and webvision.
    "gce": ("q", ".7", ".7", ".7", ".7"),
    "sce": ("alpha beta", ".01 1", ".1 1", "6 .1", "10 1"),
    "nce+rce": ("alpha beta", "1 10", "1 1", "10 .1", "50 .1"),
    "nce+mae": ("alpha beta", "1 10", "1 1", "10 .1", None),
    "nfl+rce": ("alpha beta gamma", "1 10 .5", "1 1 .5", "10 .1 .5", None),
    "nce+agce": ("alpha beta a q", "0 1 4 .2", "1 4 6 1.5", "10 .1 1.8 3", "50 .1 2.5 3"),
    "nce+aul": ("alpha beta a q", "0 1 3 .1", "1 4 6.3 1.5", "10 .015 6 3", None),
    "nce+ael": ("alpha beta a", "0 1 3.5", "1 4 5", "10 .1 1.5", None),
    "anl-ce": ("alpha beta delta", "1 1 1e-6", "5 5 5e-5", "10 1 5e-7", "20 1 5e-6"),
    "anl-fl": ("alpha beta delta gamma", "1 1 1e-6 .5", "5 5 5e-5 .5", "10 1 5e-7 .5", None),
}
PRESETS = [(name, where) for name in LOSSES for where in RECORDS[name].presets]


@pytest.mark.parametrize(("name", "where"), PRESETS, ids=[f"{name}-{where}" for name, where in PRESETS])
def test_a_preset_is_the_values_it_states(name, where):
    preset = RECORDS[name].presets[where]
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    stated = symloss.create_loss(name, **preset.values)
    for loss in (symloss.create_loss(name, preset=where), symloss.create_loss(f"{name}:preset={where}")):
        assert repr(loss) == repr(stated)
        assert torch.equal(loss(scores, labels), stated(scores, labels))
    assert preset.source
    assert not (preset.batch_norm_scores and stated.normalize), "batch norm or division by the norm, not both"


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_the_published_ones(name):
    names, *columns = PUBLISHED[name]
    published = dict(zip(("mnist", "cifar10", "cifar100", "webvision"), columns, strict=True))
    presets = RECORDS[name].presets
    assert set(presets) == {where for where, numbers in published.items() if numbers}
    for where, preset in presets.items():
        values = dict(zip(names.split(), map(float, published[where].split()), strict=True))
        assert preset.penalty == values.pop("delta", None)
        assert dict(preset.values) == values


def test_given_values_win_over_a_preset():
    loss = symloss.create_loss("nce+agce:preset=cifar10", q=2.0, reduction="sum")
    stated = symloss.create_loss("nce+agce:alpha=1,beta=4,a=6,q=2", reduction="sum")
    assert repr(loss) == repr(stated)


# --- Deviations --------------------------------------------------------------------------------------------------

LOG_ZERO, BOUND = -math.log(1e-4), -math.log(1e-7)
FAR = torch.tensor([[25.0, 0.0, 1.0, 2.0], [-1.0, 0.5, 20.0, 1.0]], dtype=torch.float64)
"""Scores with probabilities below 1e-7, where a clamp shows."""


def held(p: Tensor, gamma: float = 0.5) -> Tensor:
    return -((1 - p) ** gamma).detach() * p.log()


def share(every: Tensor) -> Tensor:
    return every / every.sum(1, keepdim=True)


def clamped(p: Tensor) -> Tensor:
    return p.clamp_min(1e-7)


HELD_BOUND = BOUND * (1 - 1e-7) ** 0.5
DEVIATIONS: dict[tuple[str, str], Callable[[Tensor], Tensor]] = {
    # (spec, deviation): the plain formula, of probabilities, at every label
    ("focal", "held-focal-factor"): held,
    ("focal:gamma=2", "held-focal-factor"): lambda p: held(p, 2.0),
    ("nfl", "held-focal-factor"): lambda p: share(held(p)),
    ("nnfl", "held-focal-factor"): lambda p: 1 - share((HELD_BOUND - held(p)).clamp_min(0)),
    ("nfl+mae:alpha=2", "held-focal-factor"): lambda p: 2 * share(held(p)) + 1 - p,
    ("nfl+rce:beta=3", "held-focal-factor"): lambda p: share(held(p)) + 3 * LOG_ZERO * (1 - p),
    ("anl-fl:alpha=5,beta=2", "held-focal-factor"): lambda p: (
        5 * share(held(p)) + 2 * (1 - share((HELD_BOUND - held(p)).clamp_min(0)))
    ),
    ("ce", "clamped-probability"): lambda p: -clamped(p).log(),
    ("mae", "clamped-probability"): lambda p: 1 - clamped(p),
    ("gce:q=0.5", "clamped-probability"): lambda p: (1 - clamped(p) ** 0.5) / 0.5,
    ("nce", "clamped-probability"): lambda p: share(-clamped(p).log()),
    ("sce:alpha=0.1", "clamped-probability"): lambda p: -0.1 * clamped(p).log() + LOG_ZERO * (1 - clamped(p)),
    ("anl-ce", "clamped-probability"): lambda p: share(-clamped(p).log()) + 1 - share(BOUND + clamped(p).log()),
    ("unhinged:normalize=none", "clamped-probability"): lambda p: (
        clamped(p).log().mean(1, keepdim=True) - clamped(p).log()
    ),
    ("mae", "doubled-mae"): lambda p: 2 * (1 - p),
    ("nce+mae:beta=3", "doubled-mae"): lambda p: share(-p.log()) + 6 * (1 - p),
    ("nfl+mae:gamma=2", "doubled-mae"): lambda p: share(-((1 - p) ** 2) * p.log()) + 2 * (1 - p),
}


@pytest.mark.parametrize(
    ("spec", "deviation"), DEVIATIONS, ids=[f"{spec}-{deviation}" for spec, deviation in DEVIATIONS]
)
def test_a_deviation_is_what_public_code_computes(spec, deviation):
    """Value and gradient, at every label, far below the clamp too."""
    formula = DEVIATIONS[spec, deviation]
    loss = symloss.create_loss(spec, deviation=deviation, reduction="none")
    scores = torch.cat([random_scores(4, CLASSES), FAR])
    for label in range(CLASSES):
        labels = torch.full((6,), label)
        assert_close(
            value_and_grad(loss, scores, labels),
            value_and_grad(lambda z, y: picked(formula(z.softmax(1)), y), scores, labels),
            tolerance=1e-8,
        )


@pytest.mark.parametrize(
    ("spec", "deviation"), DEVIATIONS, ids=[f"{spec}-{deviation}" for spec, deviation in DEVIATIONS]
)
def test_a_deviation_is_never_the_default(spec, deviation):
    scores, labels = torch.cat([random_scores(4, CLASSES), FAR]), torch.tensor([0, 1, 2, 3, 1, 0])
    plain = symloss.create_loss(spec)
    changed = symloss.create_loss(spec, deviation=deviation)
    assert repr(changed) != repr(plain)
    assert not torch.equal(value_and_grad(changed, scores, labels)[1], value_and_grad(plain, scores, labels)[1])


def test_a_clamp_silences_hard_examples_and_the_default_does_not():
    labels = torch.tensor([1, 0])
    assert (value_and_grad(symloss.create_loss("ce:deviation=clamped-probability"), FAR, labels)[1] == 0).all()
    assert (value_and_grad(symloss.create_loss("ce"), FAR, labels)[1] != 0).all()


# --- Spec strings ------------------------------------------------------------------------------------------------

SPEC_STRINGS = {
    "gce": ("gce", {}),
    "gce:": ("gce", {}),
    "gce:q=0.7": ("gce", {"q": 0.7}),
    "gce:q=.5,": ("gce", {"q": 0.5}),
    " gce : q = 0.7 , scale = ce ": ("gce", {"q": 0.7, "scale": "ce"}),
    "sgce:normalize=none": ("sgce", {"normalize": None}),
    "sgce:normalize=None": ("sgce", {"normalize": None}),
    "taylor-ce:t=3": ("taylor-ce", {"t": 3}),
    "label-smoothing:r=-2e-1": ("label-smoothing", {"r": -0.2}),
    "nce+agce:alpha=1,beta=4,a=6,q=1.5": ("nce+agce", {"alpha": 1, "beta": 4, "a": 6, "q": 1.5}),
    "ce:ignore_index=-1,reduction=sum": ("ce", {"ignore_index": -1, "reduction": "sum"}),
    "sgce:preset=cifar100-step": ("sgce", {"preset": "cifar100-step"}),
    "mae:deviation=doubled-mae": ("mae", {"deviation": "doubled-mae"}),
}


@pytest.mark.parametrize("spec", SPEC_STRINGS)
def test_spec_strings_are_read(spec):
    name, values = SPEC_STRINGS[spec]
    parsed = parse(spec)
    assert parsed == (name, values)
    assert [type(value) for value in parsed[1].values()] == [type(value) for value in values.values()]
    assert repr(symloss.create_loss(spec)) == repr(symloss.create_loss(name, **values))


def test_keywords_join_the_spec():
    loss = symloss.create_loss("sgce:q=0.5", normalize=None, weight=WEIGHT)
    assert repr(loss) == repr(symloss.SGCE(0.5, normalize=None))
    assert loss.weight is WEIGHT
