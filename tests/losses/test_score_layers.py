"""Layers behind a model: batch normalisation of the scores, their division by the norm, and the weight penalty."""

from __future__ import annotations

import copy

import pytest
import torch
from conftest import CLASSES, assert_close, random_labels, random_scores
from torch import nn

import symloss


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3), (6, 4, 3, 2)], ids=str)
@pytest.mark.parametrize("classes", [None, CLASSES], ids=["lazy", "classes given"])
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


def test_batch_norm_scores_takes_the_options_of_torchs():
    layer = symloss.losses.BatchNormScores(CLASSES, affine=False, momentum=0.5)
    assert not list(layer.parameters())
    assert layer.norm.momentum == 0.5


@pytest.mark.parametrize(
    "layer",
    [None, symloss.losses.BatchNormScores(CLASSES), symloss.losses.UnitScores(temperature=0.5)],
    ids=["default", "batch-norm", "unit"],
)
@pytest.mark.parametrize("spec", ["sgce:normalize=none", "anl-ce", "gce"])
def test_a_model_with_a_map_of_its_scores_trains(spec, layer):
    """One step of gradient descent, weight penalty included, lowers the loss of its batch."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    chain = symloss.losses.append_scores(model, copy.deepcopy(layer))
    assert [name for name, _ in chain.named_children()] == ["model", "scores"]
    assert chain.model is model
    inputs, labels = random_scores(16, 6).float(), random_labels(16)
    loss = symloss.create_loss(spec)
    chain(inputs)  # makes the parameters of a lazy layer
    optimizer = torch.optim.SGD(chain.parameters(), lr=0.05)
    history = []
    for _ in range(2):
        total = loss(chain(inputs), labels) + symloss.losses.l1_penalty(chain, 1e-4)
        optimizer.zero_grad()
        total.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in chain.parameters())
        optimizer.step()
        history.append(total.item())
    assert history[1] < history[0]


@pytest.mark.parametrize(("precision", "expected"), [(torch.float64, torch.float64), (torch.bfloat16, torch.float32)])
def test_the_appended_layer_has_the_models_precision(precision, expected):
    """Batch normalisation of bfloat16 keeps its sums in float32, as torch does under autocast."""
    chain = symloss.losses.append_scores(nn.Linear(6, CLASSES, dtype=precision))
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
