"""Linear layers on features: trained side by side as each would be alone, with GCE, and with ELR, which remembers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from in_turn import in_turn
from torch import nn

from symloss import RobustClassifier, create_loss
from symloss.fit.early_learning import EarlyLearning
from symloss.fit.held_out import Trainer, network_predictions
from symloss.fit.learners import Candidate
from symloss.fit.networks import Networks, NetworkSchedule
from symloss.fit.stacks import FORGET, LinearLayers, NetworkMember, Perceptrons
from symloss.fit.storage import load_predictor, save_predictor
from symloss.fit.training_data import TrainingData, folds, rows_held_out
from symloss.noise import corrupt

ROWS, WIDTH, CLASSES = 60, 5, 3
FEATURES = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(ROWS) % CLASSES
SCHEDULE = NetworkSchedule(4, 10, 0.05)


def trained(members, epochs=3, stack=LinearLayers):
    networks = Networks(FEATURES, LABELS, torch.ones(ROWS), CLASSES, members, SCHEDULE, 0, stack)
    for _ in range(epochs):
        networks.train_epoch()
    return networks


def plain(member, epochs=3):
    """The same layer trained by torch's own AdamW, with ELR written out from its paper."""
    layer = nn.Linear(WIDTH, CLASSES)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    groups = [{"params": [layer.weight], "weight_decay": member.weight_decay}, {"params": [layer.bias]}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=FORGET, weight_decay=0.0)
    means = torch.zeros(ROWS, CLASSES)
    loss = None if member.loss.startswith("elr") else create_loss(member.loss, scale="ce")
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(1000 * member.fold + epoch)
        order = member.rows[torch.randperm(len(member.rows), generator=generator)]
        steps = len(order) // SCHEDULE.batch
        order = order[: steps * SCHEDULE.batch]
        for rate, rows in zip(SCHEDULE.rates(epoch, steps), order.split(SCHEDULE.batch), strict=True):
            scores = layer(FEATURES[rows])
            if loss is not None:
                value = loss(scores, LABELS[rows])
            else:
                p = scores.softmax(1).clamp(1e-4, 1 - 1e-4)
                means[rows] = 0.9 * means[rows] + 0.1 * (p / p.sum(1, keepdim=True)).detach()
                agreement = (means[rows] * p).sum(1)
                strength = float(member.loss.partition("=")[2])
                value = nn.functional.cross_entropy(scores, LABELS[rows]) + strength * (1 - agreement).log().mean()
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    return layer(FEATURES).detach()


@in_turn("loss", ["gce", "elr:strength=1", "elr:strength=3"])
def test_each_is_trained_as_it_would_be_alone(loss):
    """Candidate by candidate, each with all splits: rows are read once for each split."""
    parts = [torch.arange(0, 40), torch.arange(20, 60)]
    members = [NetworkMember(loss, decay, part, fold) for decay in (0.0, 3.0) for fold, part in enumerate(parts)]
    networks = trained(members)
    for member, scores in zip(members, networks.scores([torch.arange(ROWS)] * 4), strict=True):
        torch.testing.assert_close(scores, plain(member), rtol=1e-4, atol=1e-5)


def test_layers_of_other_splits_than_those_of_the_first_candidate():
    members = [NetworkMember("gce", 0.0, torch.arange(30), fold) for fold in (0, 1, 1)]
    networks = trained(members)
    for member, scores in zip(members, networks.scores([torch.arange(ROWS)] * 3), strict=True):
        torch.testing.assert_close(scores, plain(member), rtol=1e-4, atol=1e-5)


def test_what_is_remembered_stays_with_its_network():
    members = [NetworkMember("elr:strength=3", decay, torch.arange(ROWS), 0) for decay in (0.0, 30.0)]
    whole, cut = trained(members), trained(members, epochs=2)
    cut.keep([1])
    cut.train_epoch()
    rows = torch.arange(ROWS)
    torch.testing.assert_close(cut.scores([rows])[0], whole.scores([rows, rows])[1])
    torch.testing.assert_close(cut.groups[0].history[0], whole.groups[0].history[1])


def test_a_row_that_was_not_seen_is_not_remembered():
    elr, history = EarlyLearning(1.0), EarlyLearning.history(2, 4, 2)
    scores = torch.zeros(2, 1, 2, requires_grad=True)
    elr(scores, torch.tensor([[0], [1]]), history, torch.tensor([[2], [0]])).sum().backward()
    assert history.sum(2).ne(0).tolist() == [[False, False, True, False], [True, False, False, False]]
    assert torch.isfinite(scores.grad).all()
    huge = elr(
        torch.tensor([[[1e30, -1e30]], [[-1e30, 1e30]]]), torch.tensor([[0], [1]]), history, torch.zeros(2, 1).long()
    )
    assert torch.isfinite(huge).all()


@in_turn("spec", ["elr", "elr:lambda=3", "elr:strength=-1"])
def test_a_spec_without_a_strength_is_refused(spec):
    with pytest.raises(ValueError, match="strength"):
        EarlyLearning.of(spec)


def test_leaders_of_several_architectures_learn_again():
    """Each is trained with its own kind, and comes back in its own place."""
    data = TrainingData(FEATURES.numpy(), LABELS.numpy(), CLASSES)
    splits = folds(data.given, 2, 0)
    linear = Candidate("linear", (("decay", 1.0),), "standard", "gce")
    network = Candidate("network", (("decay", 0.1),), "standard", "ce")
    raw, remembering = replace(network, scaling="raw"), replace(linear, loss="elr:strength=3")
    trainer, rows, members = Trainer(data, 0), rows_held_out(splits), []
    for candidate in (network, linear, raw, remembering):
        one = trainer.networks([candidate], splits)
        for _ in range(2):
            one.train_epoch()
        predictions = network_predictions(one, splits)[0]
        members.append(judged_at_epoch(candidate, predictions, data.correct(predictions, rows)))
    predictions, modules = trainer.learn(members, splits)
    for member, found in zip(members, predictions, strict=True):
        np.testing.assert_allclose(found, member.predictions, rtol=1e-5, atol=1e-6)
    assert {k: len(found) for k, found in modules.items()} == dict.fromkeys(range(4), 2)


def judged_at_epoch(candidate, predictions, right):
    from symloss.fit.choice import Judged  # noqa: PLC0415

    return Judged(candidate, 2, float(right.mean()), right, predictions)


def test_a_fit_of_linear_layers_is_saved(tmp_path):
    rng = np.random.default_rng(0)
    true = np.arange(200) % 3
    features = (rng.normal(size=(200, 10)) + 3 * np.eye(10)[true]).astype(np.float32)
    noisy = corrupt(true, "sym:0.3", num_classes=3, seed=0).labels
    fitted = RobustClassifier(learners=["linear"], budget=2).fit(features, noisy)
    assert fitted.learner_ == "linear"
    assert fitted.score(features, true) > 0.9
    description = save_predictor(fitted.predictor_, tmp_path)
    loaded = load_predictor(description, tmp_path)
    np.testing.assert_array_equal(loaded.probabilities(features), fitted.predict_proba(features))
    assert isinstance(loaded.members[0].networks[0][1], nn.Linear)
    assert LinearLayers.model != Perceptrons.model
