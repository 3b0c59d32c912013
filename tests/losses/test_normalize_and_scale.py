"""The options that torch does not have: ``normalize``, ``temperature`` and ``scale``."""

import math

import torch
from conftest import CLASSES, LOSSES, assert_close, every_loss, random_labels, random_scores, value_and_grad
from doors import function_of
from in_turn import in_turn
from loss_batches import (
    MASK,
    MASK_LABELS,
    NORMALIZED,
    labels_for,
    masked,
    other_parameters,
)
from representatives import WITHOUT_SLOPE, every_path
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import symloss


def divided_by_norm(scores: Tensor, temperature: float = 1.0, dim: int = 1) -> Tensor:
    return scores / scores.norm(dim=dim, keepdim=True).clamp_min(1e-5) / temperature


@every_loss
def test_only_the_papers_losses_divide_by_the_norm(name):
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    raw = symloss.create_loss(name, normalize=None)
    expected = raw(divided_by_norm(scores) if name in NORMALIZED else scores, labels)
    for loss in (symloss.create_loss(name), function_of(name), symloss.create_loss(f"{name}:temperature=1")):
        assert_close(loss(scores, labels), expected)


@every_path
@in_turn("temperature", [0.04, 2.5])
def test_l2_divides_by_temperature_times_norm(name, temperature):
    scores, labels = random_scores(3, CLASSES, 2), random_labels(3, 2)
    loss = symloss.create_loss(name, normalize="l2", temperature=temperature)
    raw = symloss.create_loss(name, normalize=None)
    assert_close(
        value_and_grad(loss, scores, labels),
        value_and_grad(lambda z, y: raw(divided_by_norm(z, temperature), y), scores, labels),
        tolerance=1e-10,
    )


@in_turn("name", NORMALIZED)
def test_l2_of_zero_scores_is_finite(name):
    value, gradient = value_and_grad(symloss.create_loss(name), torch.zeros(2, CLASSES), torch.tensor([0, 1]))
    assert value.isfinite()
    assert gradient.isfinite().all()


@in_turn("name", [name for name in LOSSES if name not in WITHOUT_SLOPE])
@in_turn("classes", [2, 10])
def test_scale_ce_starts_with_the_gradient_of_cross_entropy(name, classes):
    scores, labels = torch.full((3, classes), 0.3, dtype=torch.float64), random_labels(3, classes=classes)
    values = other_parameters(name)
    _, expected = value_and_grad(cross_entropy, scores, labels)
    scaled = symloss.create_loss(f"{name}:scale=ce,normalize=none", **values)
    assert_close(value_and_grad(scaled, scores, labels)[1], expected)
    by_function = value_and_grad(function_of(name), scores, labels, scale="ce", normalize=None, **values)
    assert_close(by_function[1], expected)
    raw, other = symloss.create_loss(name, normalize=None, **values), random_scores(3, classes)
    assert_close(scaled(other, labels) * raw.loss.slope(classes), raw(other, labels))


@in_turn("name", ["gce", "unhinged", "nce+rce"])
@in_turn("shape", [(4,), (3, 4, 2)])
@in_turn("m", [0.0, 20.0])
def test_normalize_takes_a_function_of_the_scores(name, shape, m):
    dim = 0 if len(shape) == 1 else 1
    scores = random_scores(*shape)
    labels = labels_for(scores)
    epsilon = symloss.losses.EpsSoftmax(m)

    def plain(z: Tensor) -> Tensor:
        p = z.softmax(dim)
        return ((p + m * torch.zeros_like(p).scatter(dim, p.argmax(dim, keepdim=True), 1.0)) / (m + 1)).log()

    assert_close(epsilon(scores).softmax(dim), plain(scores).exp())
    raw = symloss.create_loss(name, normalize=None)
    mapped = epsilon if name == "unhinged" else plain  # it depends on the scores, not on their softmax alone
    expected = value_and_grad(lambda z, y: raw(mapped(z), y), scores, labels)
    assert_close(value_and_grad(symloss.create_loss(name, normalize=epsilon), scores, labels), expected)
    assert_close(value_and_grad(function_of(name), scores, labels, normalize=epsilon), expected)


def test_eps_softmax_leaves_masked_classes_out():
    scores = masked(random_scores(*MASK.shape), MASK)
    mapped = symloss.losses.EpsSoftmax(1.0)(scores)
    assert torch.equal(mapped == -torch.inf, ~MASK)
    _, gradient = value_and_grad(symloss.CE(normalize=symloss.losses.EpsSoftmax(1.0)), scores, MASK_LABELS)
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
    mapped = layer(scores)
    rows, others = mapped.movedim(1, -1).flatten(0, -2), scores.movedim(1, -1).flatten(0, -2)
    expected = (others - others.mean(0)) / (others.var(0, correction=0) + 1e-5).sqrt()
    assert mapped.shape == scores.shape
    assert_close(rows, expected, tolerance=1e-5)
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
    model = nn.Linear(3, 2, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0, 0.0], [0.5, 4.0, -1.5]]))
        model.bias.copy_(torch.tensor([-3.0, 1.0]))
    penalty = symloss.losses.l1_penalty(model, delta=0.1)
    assert_close(penalty, torch.tensor(1.3, dtype=torch.float64))
    penalty.backward()
    assert_close(model.weight.grad, 0.1 * model.weight.sign())
    for same in (model.parameters(), list(model.parameters())):
        assert_close(symloss.losses.l1_penalty(same, 0.1), penalty)
    assert symloss.losses.l1_penalty(model, 0.0).item() == 0
