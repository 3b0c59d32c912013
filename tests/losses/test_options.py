"""Options of losses: those of torch (targets, reductions, weights, masks, types), ``normalize``, ``scale``.

``symloss.CE`` is ``torch.nn.CrossEntropyLoss``. Each way of evaluation is tested against the values at every label.
"""

import itertools
import math
import pickle
import runpy
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import (
    CLASSES,
    assert_close,
    every_loss,
    random_labels,
    random_probabilities,
    random_scores,
    value_and_grad,
)
from in_turn import in_turn
from loss_batches import MASK, MASK_LABELS, NORMALIZED, WEIGHT, at_every_label, labels_for, masked, other_parameters
from loss_helpers import REPRESENTATIVES, WITHOUT_SLOPE, every_path, function_of
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import symloss
from symloss import functional
from symloss.losses import criterion
from symloss.losses.layers import auto_temperature
from symloss.losses.potentials import CEPotential, GCEPotential

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


# --- Options that torch does not have: ``normalize``, ``temperature`` and ``scale`` ----------------------------------


def divided_by_norm(scores: Tensor, temperature: float = 1.0) -> Tensor:
    return scores / scores.norm(dim=1, keepdim=True).clamp_min(1e-5) / temperature


@every_loss
def test_only_the_papers_losses_divide_by_the_norm(name):
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    raw = symloss.create_loss(name, normalize=None)
    expected = raw(divided_by_norm(scores) if name in NORMALIZED else scores, labels)
    for loss in (symloss.create_loss(name), function_of(name), symloss.create_loss(f"{name}:temperature=1")):
        assert_close(loss(scores, labels), expected)


@every_path
@in_turn("temperature", [0.04, 2.5, "auto"])
def test_l2_divides_by_temperature_times_norm(name, temperature):
    scores, labels = random_scores(3, 12, 2), random_labels(3, 2, classes=12)
    number = auto_temperature(12) if temperature == "auto" else temperature
    raw = symloss.create_loss(name, normalize=None)
    expected = value_and_grad(lambda z, y: raw(divided_by_norm(z, number), y), scores, labels)
    layer = symloss.losses.UnitScores(temperature)
    by_name = symloss.create_loss(f"{name}:normalize=l2,temperature={temperature}")
    for way in (nullcontext, symloss.losses.plain):
        for loss in (by_name, lambda z, y: raw(layer(z), y)):
            with way():
                assert_close(value_and_grad(loss, scores, labels), expected, tolerance=1e-10)


@in_turn("name", [name for name in symloss.list_losses() if name not in WITHOUT_SLOPE])
@in_turn("classes", [2, 10])
def test_scale_ce_starts_with_the_gradient_of_cross_entropy(name, classes):
    scores, labels = torch.full((3, classes), 0.3, dtype=torch.float64), random_labels(3, classes=classes)
    values = other_parameters(name)
    _, expected = value_and_grad(cross_entropy, scores, labels)
    scaled = symloss.create_loss(f"{name}:scale=ce,normalize=none", **values)
    assert_close(value_and_grad(scaled, scores, labels)[1], expected)
    raw, other = symloss.create_loss(name, normalize=None, **values), random_scores(3, classes)
    assert_close(scaled(other, labels) * raw.loss.slope(classes), raw(other, labels))


@in_turn("name", ["gce", "unhinged", "nce+rce"])
@in_turn("shape", [(4,), (3, 4, 2)])
@in_turn("m", [0.0, 20.0])
def test_normalize_takes_a_function_of_the_scores(name, shape, m):
    dim, scores, epsilon = int(len(shape) > 1), random_scores(*shape), symloss.losses.EpsSoftmax(m)
    labels = labels_for(scores)

    def plain(z: Tensor) -> Tensor:
        p = z.softmax(dim)
        return ((p + m * torch.zeros_like(p).scatter(dim, p.argmax(dim, keepdim=True), 1.0)) / (m + 1)).log()

    assert_close(epsilon(scores).softmax(dim), plain(scores).exp())
    raw = symloss.create_loss(name, normalize=None)
    mapped = epsilon if name == "unhinged" else plain  # it depends on the scores, not on their softmax alone
    expected = value_and_grad(lambda z, y: raw(mapped(z), y), scores, labels)
    assert_close(value_and_grad(symloss.create_loss(name, normalize=epsilon), scores, labels), expected)


def test_eps_softmax_leaves_masked_classes_out():
    scores, layer = masked(random_scores(*MASK.shape), MASK), symloss.losses.EpsSoftmax(1.0)
    assert torch.equal(layer(scores) == -torch.inf, ~MASK)
    _, gradient = value_and_grad(symloss.CE(normalize=layer), scores, MASK_LABELS)
    assert gradient.isfinite().all()
    assert (gradient[~MASK] == 0).all()


@in_turn("m", [0.0, 1e-30, 1.0, 1e300])
@in_turn("lead", [50.0, 104.0, 1000.0])
def test_eps_softmax_of_classes_whose_probability_is_no_number(lead, m):
    """In float32 e^-104 is 0, of which the logarithm has no slope. With p = 1 at the leader its entry is log(1 + m)."""
    scores = torch.tensor([lead, 0.0, -1.0], requires_grad=True)
    mapped = symloss.losses.EpsSoftmax(m)(scores)
    assert_close(mapped, torch.tensor([math.log1p(m), -lead, -lead - 1]), 1e-6)
    (gradient,) = torch.autograd.grad(mapped.sum(), scores)
    assert_close(gradient, torch.tensor([-2.0, 1.0, 1.0]))


# --- Layers behind a model --------------------------------------------------------------------------------------------


@in_turn("shape", [(6, 4), (6, 4, 3), (6, 4, 3, 2)])
@in_turn("classes", [None, CLASSES])
def test_batch_norm_scores_normalises_class_by_class(shape, classes):
    scores = random_scores(*shape).float()
    layer = symloss.losses.BatchNormScores(classes)
    mapped, over = layer(scores), [dim for dim in range(len(shape)) if dim != 1]
    variance, mean = torch.var_mean(scores, over, correction=0, keepdim=True)
    assert_close(mapped, (scores - mean) / (variance + 1e-5).sqrt(), tolerance=1e-5)
    layer.eval()
    assert not torch.equal(layer(scores), mapped), "in evaluation the running statistics are used"
    assert not list(symloss.losses.BatchNormScores(classes, affine=False).parameters()), "an option of torch's"


@in_turn("precision, expected", [(torch.float64, torch.float64), (torch.bfloat16, torch.float32)])
def test_the_appended_layer_has_the_models_precision(precision, expected):
    """Batch normalisation of bfloat16 keeps its sums in float32, as torch does under autocast."""
    model, unit = nn.Linear(6, CLASSES, dtype=precision), symloss.losses.UnitScores(temperature=0.5)
    assert dict(symloss.losses.append_scores(model, unit).named_children()) == {"model": model, "scores": unit}
    chain = symloss.losses.append_scores(model)
    assert chain(random_scores(16, 6).to(precision)).dtype == precision
    assert {part.dtype for part in chain.scores.parameters()} == {expected}


def test_l1_penalty_is_delta_times_the_sum_of_absolute_values():
    model = nn.Linear(3, 2)
    model.weight.data = torch.tensor([[1.0, -2.0, 0.0], [0.5, 4.0, -1.5]])
    model.bias.data = torch.tensor([-3.0, 1.0])
    for given in (model, model.parameters(), list(model.parameters())):
        assert symloss.losses.l1_penalty(given, delta=0.1).item() == pytest.approx(1.3)
    symloss.losses.l1_penalty(model, 0.1).backward()
    assert_close(model.weight.grad, 0.1 * model.weight.sign())
    assert symloss.losses.l1_penalty(model, 0.0).item() == 0


# --- Many classes: ``temperature="auto"``, and a warning where temperature 1 flattens unit scores ---------------------

ROOT = Path(__file__).parents[2]


def attainable(classes: int, temperature: float) -> float:
    return 1 / (1 + (classes - 1) * math.exp(-math.sqrt(classes / (classes - 1)) / temperature))


@in_turn("classes, temperature", [(2, 1.0), (3, 0.3), (10, 1.0), (50, 0.5), (60, auto_temperature(60))])
def test_the_largest_attainable_probability(classes, temperature):
    """It is reached where all other scores are equal, and by no unit vector near it or at random."""
    best = torch.eye(classes).double()[0] - 1 / classes
    vectors = torch.cat([best[None], best + 0.01 * random_scores(500, classes), random_scores(500, classes)])
    found = (vectors / vectors.norm(dim=1, keepdim=True) / temperature).softmax(1)[:, 0]
    assert found[0].item() == pytest.approx(attainable(classes, temperature), rel=1e-9)
    assert found.max() <= found[0] * (1 + 1e-12)


def test_auto_keeps_the_largest_probability_of_ten_classes():
    assert attainable(10, 1.0) == pytest.approx(0.2417, abs=1e-4)
    for classes in (11, 100, 1_000, 50_257, 151_936):
        assert attainable(classes, auto_temperature(classes)) == pytest.approx(attainable(10, 1.0), rel=1e-12)
    assert [auto_temperature(classes) for classes in range(1, 11)] == [1.0] * 10
    assert auto_temperature(11) < 1
    # The label of four classes has at least 1/4 where it is most probable: more than what ten classes reach.
    assert attainable(4, 1e9) > attainable(10, 1.0)


@in_turn("name", ["unhinged", "sgce"])
def test_auto_in_a_head(name):
    head = symloss.LinearLoss(f"{name}:temperature=auto", 4, 40)
    features, labels = torch.randn(64, 4), random_labels(64, classes=40)
    expected = symloss.create_loss(name, temperature=auto_temperature(40))(head.logits(features), labels)
    for way in (nullcontext, symloss.losses.plain):
        with way():
            torch.testing.assert_close(head(features, labels), expected)


def test_auto_is_shown_and_kept():
    loss = symloss.SGCE(temperature="auto")
    assert "temperature='auto'" in repr(loss)
    assert repr(loss.score_map) == "UnitScores(temperature=auto, eps=1e-05)"
    assert pickle.loads(pickle.dumps(loss)).temperature == "auto"
    probable = torch.tensor(attainable(1000, auto_temperature(1000)))
    assert_close(loss.activation(torch.eye(1000)[:1]).max(), probable, 0.1)


@pytest.mark.filterwarnings("ignore:normalize='l2' at temperature 1")
def test_the_table_of_the_documentation_is_what_its_script_prints():
    script = runpy.run_path(str(ROOT / "benchmarks" / "many_classes.py"))
    page = (ROOT / "docs" / "many-classes.md").read_text()
    found = {classes: script["ratios"](classes) for classes in script["CLASSES"][:3]}
    for loss in script["LOSSES"]:
        for way in script["WAYS"]:
            figures = " | ".join(f"{ratios[loss, way]:.2g}" for ratios in found.values())
            assert f"| {loss} | {way} | {figures} |" in page


@pytest.fixture(autouse=True)
def _nothing_judged(monkeypatch):
    """No loss has been warned about."""
    monkeypatch.setattr(criterion, "_judged", set())


def told(action) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    assert all(each.category is UserWarning for each in caught)
    return [str(each.message) for each in caught]


SCORES, LABELS = torch.randn(2, 501), torch.tensor([0, 500])


def test_a_kind_of_loss_is_warned_about_once():
    (message,) = told(lambda: symloss.SGCE()(SCORES, LABELS))
    for words in ("normalize='l2' at temperature 1", "501 classes", "temperature='auto' and scale='ce'", "=None"):
        assert words in message
    assert "\n" not in message
    assert told(lambda: symloss.SGCE(q=0.3)(SCORES, LABELS)) == []
    (message,) = told(lambda: functional.alpha_mae(SCORES, LABELS, kappa=2.0))
    assert "take temperature='auto', or normalize=None" in message  # its slope is that of cross-entropy already
    assert told(lambda: symloss.AlphaMAE(kappa=3)(SCORES, SCORES.softmax(1))) == []


def test_what_needs_no_warning():
    for spec in (
        *("unhinged", "unhinged:scale=ce", "2*unhinged + unhinged:normalize=l2", "sgce:temperature=auto"),
        *("sgce:scale=ce", "sgce:normalize=none", "sgce:temperature=0.1", "gce"),
    ):
        criterion._judged.clear()
        assert told(lambda spec=spec: symloss.create_loss(spec)(SCORES, LABELS)) == [], spec
    assert told(lambda: symloss.SGCE()(SCORES[:, :500], LABELS % 500)) == []
    # What was well is still warned about at temperature 1.
    assert told(lambda: symloss.SGCE(temperature="auto")(SCORES, LABELS)) == []
    head = symloss.LinearLoss("sgce:temperature=2", in_features=4, num_classes=501)
    assert [len(told(lambda: head(torch.randn(2, 4), LABELS))) for _ in range(2)] == [1, 0]
    assert len(told(lambda: symloss.Criterion(CEPotential() + GCEPotential(0.5), normalize="l2")(SCORES, LABELS))) == 1
    assert len(told(lambda: symloss.create_loss("cosine:normalize=l2")(SCORES, LABELS))) == 1


@pytest.mark.slow
def test_compiled_nothing_is_said_and_auto_knows_the_number_of_classes():
    compiled = torch.compile(symloss.SGCE(), backend="eager", fullgraph=True)
    assert told(lambda: compiled(SCORES, LABELS)) == []
    assert criterion._judged == set()
    layer = symloss.losses.UnitScores("auto")
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    for classes in (12, 30):
        assert_close(compiled(random_scores(3, classes)), layer(random_scores(3, classes)))
