"""alpha-MAE by ``kappa``: against alpha, and at every door. The reference has its formula."""

import pytest
import torch
from conftest import assert_close, random_labels, random_scores, value_and_grad
from in_turn import in_turn
from refusals import refused

import symloss
from symloss import functional
from symloss.experiments.layers import resolve_layers
from symloss.losses.catalogue import RECORDS
from symloss.losses.spec import parse, write


@in_turn("classes", [2, 10, 151_936])
def test_alpha_and_kappa_give_each_other(classes):
    """At alpha = kappa / (kappa + C) the loss is 1 - alpha times that of kappa."""
    scores, labels = random_scores(2, classes, spread=3.0), random_labels(2, classes=classes)
    for alpha, kappa in ((2 / (2 + classes), 2.0), (0.25, classes / 3)):
        expected = value_and_grad(symloss.AlphaMAE(kappa=kappa, normalize=None), scores, labels)
        found = value_and_grad(symloss.AlphaMAE(alpha, normalize=None), scores, labels)
        assert_close(found, tuple((1 - alpha) * each for each in expected), tolerance=1e-11)


def test_alpha_and_kappa_together():
    for alpha, door in (
        (2.0, lambda: symloss.AlphaMAE(2.0, 3.0)),
        (0.5, lambda: symloss.create_loss("alpha-mae:alpha=0.5,kappa=3.0")),
        (0.5, lambda: functional.alpha_mae(torch.zeros(2, 4), torch.tensor([0, 3]), 0.5, kappa=3.0)),
    ):
        with refused(ValueError, "alpha-mae takes alpha or kappa, not both", f"got alpha={alpha} and kappa=3.0"):
            door()
    with refused(ValueError, "kappa must", "[0, 1e6]", "got -1"):
        symloss.AlphaMAE(kappa=-1)


def test_text():
    for text in ("alpha-mae:kappa=2", "alpha-mae:kappa=0.5,scale=ce"):
        assert write(*parse(text)) == text
    assert parse("symmetrize(alpha-mae:kappa=2)")[0] == "symmetrize(alpha-mae:kappa=2)"
    assert symloss.create_loss("alpha-mae:kappa=2").loss == symloss.AlphaMAE(kappa=2).loss
    assert repr(symloss.AlphaMAE(kappa=2).loss) == "symmetrize(CE()) + 2 * MAE()"
    assert symloss.AlphaMAE().loss == symloss.AlphaMAE(2.0).loss == symloss.AlphaMAE(alpha=None, kappa=None).loss


def test_it_overrides_the_alpha_of_a_preset():
    assert symloss.create_loss("alpha-mae:preset=cifar10,kappa=3").loss == symloss.AlphaMAE(kappa=3).loss
    resolved = resolve_layers("cifar10", "cifar10", "alpha-mae:kappa=3")
    assert resolved.settings.loss == "alpha-mae:kappa=3"
    assert resolved.parameters == {"loss.kappa": 3}
    assert resolve_layers("cifar10", "cifar10", "alpha-mae").parameters == {"loss.alpha": 2.0}


@in_turn("kappa", [0.0, 3.0])
def test_certificate(kappa):
    record = RECORDS["alpha-mae"]
    certificate = symloss.certify(f"alpha-mae:kappa={kappa}", num_classes=3)
    measured = {fact: bool(finding) for fact, finding in certificate.findings.items()}
    assert measured == record.facts.at(3, alpha=2.0, kappa=kappa)
    known = record.constants.at(3, alpha=2.0, kappa=kappa)["smoothness"]
    assert certificate.smoothness == pytest.approx(known, rel=1e-4)
    assert certificate.slope == pytest.approx(1 + kappa / 3, rel=1e-9)  # against cross-entropy at equal scores
