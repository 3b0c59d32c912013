"""Calibration: temperature, transition matrix and noise rate from examples that were drawn from a known model."""

import pytest
import torch
from conftest import generator, random_scores
from in_turn import in_turn
from refusals import all_refused

from symloss.noise import parse, transition_matrix
from symloss.noise.calibration import calibrate, noise_rate_interval

PAIR = torch.tensor([[0.7, 0.3, 0, 0], [0, 0.7, 0.3, 0], [0, 0, 0.7, 0.3], [0.3, 0, 0, 0.7]], dtype=torch.float64)
UNEQUAL = torch.tensor([[0.6, 0.4, 0, 0], [0, 1, 0, 0], [0.1, 0.1, 0.7, 0.1], [0, 0, 0.2, 0.8]], dtype=torch.float64)
NOTHING = torch.eye(4, dtype=torch.float64)


def draw(transition, count=4000, temperature=0.5, seed=0):
    """Scores, the true classes by softmax(scores / temperature), and labels by the transition matrix."""
    scores = random_scores(count, len(transition), seed=seed)
    true = torch.multinomial((scores / temperature).softmax(1), 1, generator=generator(seed + 1)).squeeze(1)
    labels = torch.multinomial(transition[true], 1, generator=generator(seed + 2)).squeeze(1)
    return scores, true, labels


def share_wrong(true, labels, within):
    return pytest.approx(float((labels != true).double().mean()), abs=within)


@in_turn("transition", [PAIR, UNEQUAL, NOTHING])
def test_it_finds_what_the_examples_were_drawn_from(transition):
    scores, true, labels = draw(transition)
    found = calibrate(scores, labels)
    assert found.temperature == pytest.approx(0.5, rel=0.15)
    assert torch.allclose(found.transition, transition, atol=0.05)
    assert found.noise_rate == share_wrong(true, labels, 0.03)


def test_probabilities_are_those_of_the_true_class():
    """Among predictions of probability p a share p is right; a temperature for the noisy labels promises far less."""
    scores, true, labels = draw(PAIR, count=20_000)
    plain = calibrate(scores, labels, transition=NOTHING)
    for calibration, honest in ((calibrate(scores, labels), True), (plain, False)):
        confidence, guess = calibration.probabilities(scores).max(1)
        assert (abs(float(confidence.mean() - (guess == true).double().mean())) < 0.02) == honest


def test_the_label_tells_more_about_the_true_class():
    scores, true, labels = draw(UNEQUAL, temperature=1.5)
    found = calibrate(scores, labels)
    posterior = found.posterior(scores, labels)
    assert torch.allclose(posterior.sum(1), torch.ones(len(labels), dtype=torch.float64))
    by_scores = (found.probabilities(scores).argmax(1) == true).double().mean()
    assert (posterior.argmax(1) == true).double().mean() > by_scores + 0.02
    # A constant added to the scores changes nothing, and a matrix that is known stays.
    scores, _, labels = draw(PAIR, count=500)
    assert calibrate(scores + 100, labels).temperature == pytest.approx(calibrate(scores, labels).temperature, rel=1e-6)
    assert torch.equal(calibrate(scores, labels, transition=PAIR).transition, PAIR)


def test_noise_that_depends_on_the_features_needs_classes_that_are_apart():
    """Labels of one half of the space are wrong: that may as well be a region in which classes overlap."""
    scores = 4 * draw(NOTHING)[0]
    true = scores.argmax(1)
    doubt = torch.rand(len(true), generator=generator(9)) < 0.6 * (scores.sort(1).values.diff()[:, -1] < 4)
    labels = torch.where(doubt, scores.argsort(1)[:, -2], true)
    rate = float((labels != true).double().mean())
    assert calibrate(scores, labels).noise_rate < 0.6 * rate
    assert calibrate(scores, labels, separation=2.0).noise_rate == pytest.approx(rate, abs=0.05)


def test_few_examples_of_many_classes_have_one_rate_and_equal_scores_say_nothing():
    transition = torch.tensor(transition_matrix(parse("sym:0.3"), 60))
    scores, true, labels = draw(transition, count=3000, temperature=0.2)
    found = calibrate(scores, labels)
    assert found.transition.unique().numel() == 2
    assert found.noise_rate == share_wrong(true, labels, 0.03)
    found = calibrate(torch.zeros(50, 2), torch.arange(50) % 2)
    assert found.temperature == 1
    assert torch.allclose(found.probabilities(torch.zeros(3, 2)), torch.full((3, 2), 0.5, dtype=torch.float64))


def test_the_interval_covers_the_rate():
    """Nineteen of twenty would: with twelve samples, ten or more."""
    covered = 0
    for seed in range(0, 36, 3):
        scores, true, labels = draw(PAIR, count=800, seed=seed)
        found = calibrate(scores, labels)
        low, high = noise_rate_interval(found, scores, labels, draws=40)
        covered += low <= float((labels != true).double().mean()) <= high
        assert 0.02 < high - low < 0.15
    assert covered >= 10
    # More examples than choose the temperature.
    scores, true, labels = draw(PAIR, count=25_000)
    found = calibrate(scores, labels)
    assert found.noise_rate == share_wrong(true, labels, 0.01)
    low, high = noise_rate_interval(found, scores, labels, draws=20)
    assert found.noise_rate - 0.02 < low < found.noise_rate < high < found.noise_rate + 0.02


def test_bad_input():
    zeros, classes = torch.zeros(2, 2), torch.tensor([0, 1])
    all_refused(
        (ValueError, "scores must have shape (N, C) ... got (2,)", lambda: calibrate(zeros[0], classes)),
        (ValueError, "labels shape (N,); got (2, 2) and (1,)", lambda: calibrate(zeros, classes[:1])),
        (ValueError, "whole numbers from 0 to 1; got [0, 2]", lambda: calibrate(zeros, 2 * classes)),
        (ValueError, "whole numbers from 0 to 1", lambda: calibrate(zeros, classes.float())),
        (ValueError, "scores must be finite", lambda: calibrate(zeros / 0, classes)),
        (ValueError, "must have shape (2, 2); got (3, 3)", lambda: calibrate(zeros, classes, torch.eye(3))),
    )
