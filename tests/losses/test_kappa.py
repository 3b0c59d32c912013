"""alpha-MAE by ``kappa``: against the plain formula, against alpha, and at every door."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import assert_close, random_labels, random_scores, value_and_grad
from in_turn import in_turn
from refusals import refused
from torch.nn.functional import cross_entropy

import symloss
from symloss import functional
from symloss.experiments.layers import resolve_layers
from symloss.losses.catalogue import RECORDS
from symloss.losses.kernels.dispatch import Unit, kernel_for
from symloss.losses.spec import parse, write


def plain(z, y, kappa):
    """unhinged + kappa (1 - p)."""
    label = z.gather(1, y[:, None]).squeeze(1)
    return (z.mean(1) - label + kappa * (1 - z.softmax(1).gather(1, y[:, None]).squeeze(1))).mean()


@in_turn("kappa", [0.0, 0.5, 2.0, 100.0])
def test_the_plain_formula(kappa):
    scores, labels = random_scores(8, 10), random_labels(8, classes=10)
    expected = value_and_grad(lambda z, y: plain(z, y, kappa), scores, labels)
    for loss in (
        symloss.AlphaMAE(kappa=kappa, normalize=None),
        symloss.create_loss(f"alpha-mae:kappa={kappa},normalize=none"),
        symloss.create_loss("alpha-mae", kappa=kappa, normalize=None),
        lambda z, y: functional.alpha_mae(z, y, kappa=kappa, normalize=None),
    ):
        assert_close(value_and_grad(loss, scores, labels), expected)
    with symloss.losses.plain():
        assert_close(value_and_grad(symloss.AlphaMAE(kappa=kappa, normalize=None), scores, labels), expected)
    unit = scores / scores.norm(dim=1, keepdim=True)
    assert_close(symloss.AlphaMAE(kappa=kappa)(scores, labels), plain(unit, labels, kappa))


@in_turn("classes", [2, 10, 151_936])
def test_alpha_and_kappa_give_each_other(classes):
    scores, labels = random_scores(2, classes, spread=3.0), random_labels(2, classes=classes)
    kappa = 2.0
    alpha = kappa / (kappa + classes)
    for given, other, factor in (({"alpha": alpha}, kappa, 1 - alpha), ({"alpha": 0.25}, classes / 3, 0.75)):
        one = value_and_grad(symloss.AlphaMAE(**given, normalize=None), scores, labels)
        two = value_and_grad(symloss.AlphaMAE(kappa=other, normalize=None), scores, labels)
        assert_close(one, tuple(factor * each for each in two), tolerance=1e-11)


@in_turn("classes", [10, 151_936])
def test_gradient_against_that_of_cross_entropy(classes):
    """At equal scores it is 1 + kappa / C by kappa, and 1 by alpha; with p = 1/2 about 1 + kappa p and alpha C p."""
    labels = torch.tensor([3])
    equal = torch.zeros(1, classes, dtype=torch.float64)
    half = equal.clone()
    half[0, 3] = math.log(classes - 1)

    def against_ce(scores, **parameters):
        loss = symloss.AlphaMAE(**parameters, normalize=None)
        slope = value_and_grad(loss, scores, labels)[1] / value_and_grad(cross_entropy, scores, labels)[1]
        return float(slope[0, 3])

    assert against_ce(equal, kappa=2.0) == pytest.approx(1 + 2 / classes, rel=1e-9)
    assert against_ce(equal, alpha=2.0) == pytest.approx(1, rel=1e-9)
    assert against_ce(half, kappa=2.0) == pytest.approx((1 - 1 / classes) * 2 + 1, rel=1e-9)
    assert against_ce(half, alpha=2.0) == pytest.approx(classes - 2 * (1 - 1 / classes), rel=1e-9)


def test_kernels_serve_it():
    loss = symloss.AlphaMAE(kappa=2.0).loss
    assert kernel_for(loss, 10) is not None
    assert kernel_for(loss, 10, Unit(1.0, 1e-5)) is not None
    features, weight, labels = random_scores(8, 5), random_scores(300, 5, seed=3), random_labels(8, classes=300)
    for normalize in (None, "l2"):
        options = {"normalize": normalize, "temperature": 0.1} if normalize else {"normalize": None}
        head = functional.linear_loss(loss, features, weight, None, labels, **options)
        assert_close(head, symloss.AlphaMAE(kappa=2.0, **options)(features @ weight.T, labels))


def test_alpha_stays_the_default():
    assert symloss.AlphaMAE().loss == symloss.AlphaMAE(2.0).loss == symloss.AlphaMAE(alpha=None, kappa=None).loss
    assert RECORDS["alpha-mae"].defaults == {"alpha": 2.0, "kappa": None}


@pytest.mark.parametrize("alpha", [2.0, 0.5])
def test_alpha_and_kappa_together(alpha):
    scores, labels = torch.zeros(2, 4), torch.tensor([0, 3])
    for door in (
        lambda: symloss.AlphaMAE(alpha=alpha, kappa=3.0),
        lambda: symloss.AlphaMAE(alpha, 3.0),
        lambda: symloss.create_loss(f"alpha-mae:alpha={alpha},kappa=3.0"),
        lambda: functional.alpha_mae(scores, labels, alpha, kappa=3.0),
    ):
        with refused(ValueError, "alpha-mae takes alpha or kappa, not both", f"got alpha={alpha} and kappa=3.0"):
            door()


def test_bad_numbers():
    with refused(ValueError, "kappa must", "[0, 1e6]", "got -1"):
        symloss.AlphaMAE(kappa=-1)
    with refused(TypeError, "kappa must", "[0, 1e6]", "got 'high'"):
        symloss.AlphaMAE(kappa="high")


def test_text():
    for text in ("alpha-mae:kappa=2", "alpha-mae:kappa=0.5,scale=ce"):
        assert write(*parse(text)) == text
    assert parse("symmetrize(alpha-mae:kappa=2)")[0] == "symmetrize(alpha-mae:kappa=2)"
    assert symloss.create_loss("alpha-mae:kappa=2").loss == symloss.AlphaMAE(kappa=2).loss
    assert repr(symloss.AlphaMAE(kappa=2).loss) == "symmetrize(CE()) + 2 * MAE()"


def test_it_overrides_the_alpha_of_a_preset():
    assert symloss.create_loss("alpha-mae:preset=cifar10,kappa=3").loss == symloss.AlphaMAE(kappa=3).loss
    resolved = resolve_layers("cifar10", "cifar10", "alpha-mae:kappa=3")
    assert resolved.settings.loss == "alpha-mae:kappa=3"
    assert resolved.parameters == {"loss.kappa": 3}
    assert resolve_layers("cifar10", "cifar10", "alpha-mae").parameters == {"loss.alpha": 2.0}


@pytest.mark.parametrize("kappa", [0.0, 3.0])
def test_certificate(kappa):
    record = RECORDS["alpha-mae"]
    certificate = symloss.certify(f"alpha-mae:kappa={kappa}", num_classes=3)
    measured = {fact: bool(finding) for fact, finding in certificate.findings.items()}
    assert measured == record.facts.at(3, alpha=2.0, kappa=kappa)
    known = record.constants.at(3, alpha=2.0, kappa=kappa)["smoothness"]
    assert certificate.smoothness == pytest.approx(known, rel=1e-4)
    assert certificate.slope == pytest.approx(1 + kappa / 3, rel=1e-9)
