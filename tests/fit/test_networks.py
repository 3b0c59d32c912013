"""RobustClassifier with a network of the user's choice: names, factories, images, what a budget buys, and bad input."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from in_turn import in_turn
from sklearn.base import clone
from sklearn.datasets import load_iris
from torch import nn

from symloss import RobustClassifier
from symloss.fit.choice import Judged, leaders, weights
from symloss.fit.ensemble import mean_scores
from symloss.fit.held_out import Trainer, network_predictions
from symloss.fit.learners import Candidate
from symloss.fit.networks import NetworkModel, chosen_model
from symloss.fit.search import PLANS, network_plan
from symloss.fit.stacks import PERCEPTRON
from symloss.fit.storage import load_predictor, save_predictor
from symloss.fit.training_data import TrainingData, folds
from symloss.noise import corrupt

pytestmark = pytest.mark.filterwarnings("ignore:Nothing was learnt")  # from few images, in few epochs


def tiny(input_shape, num_classes):
    """A factory for inputs of any shape, with dropout: training is random too."""
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(int(np.prod(input_shape)), num_classes))


def networks(model, **options):
    common = {"learners": ["network"], "losses": ["ce"], "rounds": 2, "budget": 1.0}
    return RobustClassifier(model=model, **common | options)


def bars(side=12, rows=90, channels=1, wrong=0.2):
    """Images with a bar that lies, stands, or is missing, at a random place, bright or dark."""
    rng = np.random.default_rng(0)
    true = np.arange(rows) % 3
    images = rng.normal(size=(rows, channels, side, side)).astype(np.float32)
    for image, kind in zip(images, true, strict=True):
        place, brightness = rng.integers(side), rng.choice([-4.0, 4.0])
        image[:, place, :] += brightness * (kind == 0)
        image[:, :, place] += brightness * (kind == 1)
    return images, corrupt(true, f"sym:{wrong}", num_classes=3, seed=0).labels, true


IMAGES, LABELS, TRUE = bars()


@pytest.fixture(scope="module")
def tiny_fit():
    return networks(tiny).fit(IMAGES, LABELS)


@in_turn("model", ["cnn4:width=0.1", tiny])
def test_a_name_or_a_factory(tmp_path, model):
    """What was found so far is kept for names only."""
    fitted = networks(model, memory=tmp_path / "memory").fit(IMAGES, LABELS)
    assert (tmp_path / "memory").exists() == (model is not tiny)
    assert fitted.learner_ == "network"
    assert fitted.predict_proba(IMAGES).shape == (90, 3)
    name = model if isinstance(model, str) else "tiny"
    assert all(candidate.startswith(f"network {name} ce") for candidate in fitted.candidates_["candidate"])
    assert fitted.predictor_.members[0].candidate.model == model
    copy = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(copy.predict_proba(IMAGES), fitted.predict_proba(IMAGES))
    assert clone(fitted).model == model


@pytest.mark.slow
def test_images_get_a_convolutional_network_by_default():
    """It finds bars that are anywhere, where learners that see rows of pixels cannot."""
    images, labels, true = bars(rows=180)
    fitted = RobustClassifier(learners=["network", "logistic"], losses=["ce"], budget=5, rounds=1)
    fitted.fit(images, labels)
    names = fitted.candidates_["candidate"]
    assert "network cnn4:width=0.5 ce decay=0.001 epochs=10 (channels)" in names
    convolutional = np.array(["cnn4" in name for name in names])
    accuracy = fitted.candidates_["noisy_accuracy"]
    assert accuracy[convolutional].max() > accuracy[~convolutional].max() + 0.1
    assert fitted.learner_ == "network"
    assert fitted.score(images, true) > 0.75


def test_same_seed_same_result(tiny_fit):
    torch.manual_seed(5)
    state = torch.get_rng_state()
    same, other = (networks(tiny, random_state=seed).fit(IMAGES, LABELS) for seed in (0, 2))
    assert np.array_equal(tiny_fit.predict_proba(IMAGES), same.predict_proba(IMAGES))
    assert not np.array_equal(tiny_fit.predict_proba(IMAGES), other.predict_proba(IMAGES))
    assert torch.equal(torch.get_rng_state(), state)


def test_networks_alone_are_as_good_as_stacked_ones():
    """The same architecture, folds and candidates: accuracy on held-out rows, and everything that a stack offers."""
    rng = np.random.default_rng(0)
    true = np.arange(400) % 4
    features = (rng.normal(size=(400, 10)) + 3 * np.eye(10)[true]).astype(np.float32)
    noisy = corrupt(true, "sym:0.3", num_classes=4, seed=0).labels
    data, splits = TrainingData(features, noisy, 4), folds(noisy, 3, 0)
    rows = np.concatenate([split.held_out for split in splits])
    accuracies = {}
    for model in (None, PERCEPTRON):
        tried = [Candidate("network", (("decay", 0.1),), "raw", loss, model) for loss in ("ce", "alpha-mae")]
        trained = Trainer(data, seed=0).networks(tried, splits)
        assert [(m.loss, m.fold) for m in trained.members] == [(c.loss, f) for c in tried for f in range(3)]
        for _ in range(4):
            trained.train_epoch()
        accuracies[model] = [np.mean(p.argmax(1) == true[rows]) for p in network_predictions(trained, splits)]
        trained.keep([3, 4, 5])
        module, held_out = trained.module(1), torch.from_numpy(splits[1].held_out)
        scores = trained.scores([held_out] * 3)[1]
        inputs = torch.from_numpy(data.scaled("raw"))[held_out]
        torch.testing.assert_close(module(inputs).detach(), scores, rtol=1e-4, atol=1e-4)
        trained.train_epoch()
        assert trained.epoch == 5
        assert not torch.allclose(trained.scores([held_out] * 3)[1], scores)
        torch.testing.assert_close(module(inputs).detach(), scores, rtol=1e-4, atol=1e-4)
    stacked, single = accuracies.values()
    assert min(stacked) > 0.75
    np.testing.assert_allclose(single, stacked, atol=0.06)


def lazy(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))


def test_weight_decay_is_of_matrices_only():
    data = TrainingData(np.ones((8, 2), np.float32), np.arange(8) % 2, 2, sample_weight=np.zeros(8))
    tried = [Candidate("network", (("decay", 100.0),), "raw", "ce", lambda shape, classes: nn.Linear(2, classes))]
    trained = Trainer(data, seed=0).networks(tried, folds(data.given, 2, 0))
    weight, bias = (p.detach().clone() for p in trained.groups[0].net.parameters())
    trained.train_epoch()
    after = trained.groups[0].net
    torch.testing.assert_close(after.bias.detach(), bias)
    # One step or more of 1 - 0.003 * 100; the rows weigh nothing, so there is no gradient.
    assert after.weight.norm() <= 0.701 * weight.norm()


@in_turn("model", [None, tiny])
def test_networks_stop_learning_after_the_epochs_of_their_candidate(model):
    features = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    data = TrainingData(features, np.arange(40) % 2, 2)
    tried = [Candidate("network", (("decay", 0.1), ("epochs", 2)), "raw", "ce", model)]
    trained = Trainer(data, seed=0).networks(tried, folds(data.given, 2, 0))
    weights = []
    for _ in range(4):
        trained.train_epoch()
        weights.append(nn.utils.parameters_to_vector(trained.module(0).parameters()).detach().clone())
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[2], weights[3])


def test_work_is_counted_and_lazy_layers_depend_on_the_seed_alone():
    model = NetworkModel("cnn4:width=0.5", (3, 32, 32), 10)
    by_hand = 32 * 32 * 16 * 27 + 16 * 16 * 32 * 16 * 9 + 32 * 64 * 64 + 64 * 10
    assert model.work[0] == by_hand
    assert model.seconds(2000) > model.seconds(1000) > 0
    model = NetworkModel(lazy, (1, 12, 12), 3)
    one, same, other = (model.build(seed)[1].weight for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert model.work[0] == 144 * 3 + 3
    for shape in ((64,), (1, 8, 8), (1, 28, 11), (40, 40)):
        assert chosen_model("auto", shape, 10) is None
    assert chosen_model("auto", (1, 12, 12), 10).model == "cnn4:width=0.5"


def test_expensive_networks_are_tried_less():
    assert [plan.trainings for plan in PLANS] == sorted((plan.trainings for plan in PLANS), reverse=True)
    assert network_plan(1.0, 1000, 5) == PLANS[0]
    assert network_plan(1.0, 4, 5) == PLANS[4]
    assert network_plan(1.0, 0.2, 5) is None
    assert network_plan(1.0, 1000, 3).folds == network_plan(1.0, 1000, 3).judged == 3
    fixed = network_plan(1.0, 8, 4, fixed=True)
    assert (fixed.folds, fixed.judged) == (4, 4)


def test_a_small_plan_trains_on_all_rows_in_the_end():
    model = NetworkModel(tiny, (1, 12, 12), 3)
    fitted = networks(tiny, losses=["ce", "mae"], budget=2 * model.seconds(90)).fit(IMAGES, LABELS)
    assert fitted.plan_ == PLANS[5]
    assert len(fitted.folds_) == 3
    assert len(fitted.candidates_["candidate"]) == 2
    assert [len(member.networks) for member in fitted.predictor_.members] == [1]


def test_a_budget_that_is_too_small_for_the_network_leaves_the_others():
    fitted = networks("cnn8", learners=["network", "closed-form"]).fit(IMAGES, LABELS)
    assert fitted.plan_ is None
    assert fitted.learner_ != "network"
    with pytest.raises(ValueError, match="budget must allow one training; got 1 seconds, too few for 90 rows"):
        networks("cnn8").fit(IMAGES, LABELS)


@in_turn(
    "model, error, message",
    [
        ("cnn5", ValueError, "model 'cnn5' does not exist: "),
        ("cnn8:depth=2", ValueError, "options of cnn8 must be among"),
        (3, TypeError, 'model must be "auto", a name, or a function of input_shape and num_classes .*; got 3'),
        (nn.Linear(2, 3), TypeError, "model must be .*; got Linear"),
        (
            lambda shape, classes: tiny(shape, classes + 1),
            ValueError,
            r"must turn inputs \(2, 1, 12, 12\) into scores \(2, 3\); got \(2, 4\)",
        ),
        (
            lambda shape, classes: tiny((5,), classes),
            ValueError,
            r"model must take inputs \(2, 1, 12, 12\); got an error \(.*shapes",
        ),
        (lambda shape, classes: nn.Identity(), ValueError, r"into scores \(2, 3\); got \(2, 1, 12, 12\)"),
        (lambda shape, classes: None, TypeError, "model must return a torch.nn.Module; got NoneType"),
    ],
)
def test_bad_models(model, error, message):
    with pytest.raises(error, match=message):
        networks(model).fit(IMAGES, LABELS)


def test_lists_of_images(tiny_fit):
    tensors = [torch.from_numpy(image) for image in IMAGES]
    assert np.array_equal(networks(tiny).fit(tensors, LABELS).predict(list(IMAGES)), tiny_fit.predict(IMAGES))
    mixed = [*IMAGES[:-1], np.zeros((1, 9, 12), np.float32)]
    with pytest.raises(ValueError, match=r"images of one size; got \(1, 12, 12\) and \(1, 9, 12\): resize them first"):
        networks(tiny).fit(mixed, LABELS)
    with pytest.raises(ValueError, match=r"X must hold rows \(1, 12, 12\) as in fit; got \(1, 12, 13\)"):
        tiny_fit.predict(np.zeros((2, 1, 12, 13)))


@in_turn("model, learners", [("cnn4:width=0.1", ["network"]), ("auto", ["network", "linear", "closed-form"])])
def test_it_is_saved(tmp_path, tiny_fit, model, learners):
    """Networks by their name, and the stacked ones, which see small images as rows. No file names code."""
    with pytest.raises(ValueError, match="a model that is saved must be one of symloss or timm; got 'tiny'"):
        save_predictor(tiny_fit.predictor_, tmp_path)
    assert not any(tmp_path.iterdir())
    images = IMAGES[:, :, :8, :8]
    fitted = networks(model, learners=learners).fit(images, LABELS)
    assert any(member.networks for member in fitted.predictor_.members)
    rows = images.reshape(90, -1)
    description = save_predictor(fitted.predictor_, tmp_path)
    loaded = load_predictor(description, tmp_path)
    np.testing.assert_array_equal(loaded.probabilities(rows), fitted.predict_proba(images))
    description["members"][0]["model"] = "antigravity:run"
    with pytest.raises(ValueError, match="must be one of symloss or timm; got 'antigravity:run'"):
        load_predictor(description, tmp_path)


def test_channels_are_scaled():
    images = np.random.default_rng(0).normal([[[5.0]], [[-1.0]]], [[[2.0]], [[0.1]]], size=(50, 2, 4, 4))
    images[:, :, 0, 0] = 0.0
    data = TrainingData(images.reshape(50, -1), np.arange(50) % 2, 2, (2, 4, 4))
    expected = (images - images.mean((0, 2, 3), keepdims=True)) / images.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(data.scaled("channels").reshape(images.shape), expected, atol=1e-5)


def judged_at(accuracy, model=None, learner="network", rows=400):
    """A candidate that is right for the first rows."""
    right = (np.arange(rows) < accuracy * rows).astype(float)
    loss = "ce" if learner == "network" else None
    return Judged(Candidate(learner, (), "raw", loss, model), 1, accuracy, right, np.zeros((rows, 2)))


def test_networks_that_are_trained_alone_lead_without_those_far_behind():
    found = [judged_at(0.43, "cnn4"), judged_at(0.4275, "cnn8"), judged_at(0.425, None, "svc")]
    found.append(judged_at(0.3, None, "k-nn"))
    assert leaders(found) == found[:3]
    near = [judged_at(0.43 - 0.01 * k, None, learner) for k, learner in enumerate(("svc", "k-nn", "lda") * 2)]
    assert leaders(near) == near[:5]
    assert leaders(found, 1) == [found[0], found[2]]
    assert leaders(found, 2) == found[:3]


def test_no_more_than_two_of_a_kind_lead_and_none_that_predicts_one_class():
    """Networks with another loss are of another kind."""
    alike = [judged_at(0.43 - 0.001 * k, None, "svc") for k in range(4)]
    others = [judged_at(0.42, None, "forest"), judged_at(0.419)]
    assert leaders([*alike, *others]) == [*alike[:2], *others]
    blind = replace(judged_at(0.9, None, "lda"), nearly_constant=True)
    assert leaders([blind, *others]) == others
    assert leaders([blind]) == [blind]


def test_leaders_count_by_how_far_they_are_behind():
    best, same, near, far = (judged_at(accuracy) for accuracy in (0.9, 0.9, 0.895, 0.2))
    error = np.sqrt(0.005 * 0.995 / 400)  # of a gap of two rows
    expected = [np.exp(-0.005 / error), 1, 1, np.exp(-10)]
    assert weights([near, best, same, far]) == pytest.approx(expected), "the best need not come first"
    predictions = [np.array([[0.8, 0.2]]), np.array([[0.4, 0.6]])]
    mean = np.exp(mean_scores(predictions, (1.0, 1.0), (3.0, 1.0)))
    np.testing.assert_allclose(mean, [[0.7, 0.3]], atol=1e-5)


def test_processes_come_to_the_same_networks():
    features, labels = load_iris(return_X_y=True)
    options = {"model": "mlp:hidden=8", "losses": ["mae", "ce"], "learners": ["network", "k-nn"], "budget": 1}
    alone, shared = (RobustClassifier(**options, n_jobs=jobs).fit(features, labels) for jobs in (None, 2))
    assert alone.learner_ == shared.learner_
    np.testing.assert_array_equal(alone.candidates_["noisy_accuracy"], shared.candidates_["noisy_accuracy"])
    np.testing.assert_array_equal(alone.predict_proba(features), shared.predict_proba(features))
    np.testing.assert_array_equal(alone.label_scores_, shared.label_scores_)
