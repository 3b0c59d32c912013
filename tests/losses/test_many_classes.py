"""Unit scores of many classes: ``temperature="auto"``, and a warning where temperature 1 flattens them."""

import math
import pickle
import runpy
import warnings
from pathlib import Path

import pytest
import torch
from conftest import assert_close, random_labels, random_scores, value_and_grad
from in_turn import in_turn
from refusals import refused

import symloss
from symloss import functional
from symloss.losses import criterion
from symloss.losses.layers import auto_temperature
from symloss.losses.potentials import CEPotential, GCEPotential

ROOT = Path(__file__).parents[2]
SIZES = (11, 100, 1_000, 50_257, 151_936)


def attainable(classes: int, temperature: float) -> float:
    return 1 / (1 + (classes - 1) * math.exp(-math.sqrt(classes / (classes - 1)) / temperature))


@in_turn("classes, temperature", [(2, 1.0), (3, 0.3), (10, 1.0), (50, 0.5), (60, auto_temperature(60))])
def test_the_largest_attainable_probability(classes, temperature):
    """It is reached where all other scores are equal, and by no unit vector near it or at random."""
    best = torch.full((classes,), -1 / (classes - 1), dtype=torch.float64)
    best[0] = 1
    vectors = torch.cat([best[None], best + 0.01 * random_scores(500, classes), random_scores(500, classes)])
    found = (vectors / vectors.norm(dim=1, keepdim=True) / temperature).softmax(1)[:, 0]
    assert found[0].item() == pytest.approx(attainable(classes, temperature), rel=1e-9)
    assert found.max() <= found[0] * (1 + 1e-12)


def test_auto_keeps_the_largest_probability_of_ten_classes():
    assert attainable(10, 1.0) == pytest.approx(0.2417, abs=1e-4)
    for classes in SIZES:
        assert attainable(classes, auto_temperature(classes)) == pytest.approx(attainable(10, 1.0), rel=1e-12)
    assert [auto_temperature(classes) for classes in range(1, 11)] == [1.0] * 10
    assert auto_temperature(11) < 1
    # The label of four classes has at least 1/4 where it is most probable: more than what ten classes reach.
    assert attainable(4, 1e9) > attainable(10, 1.0)


@in_turn("name", ["unhinged", "sgce", "mse"])
@in_turn("shape", [(12,), (5, 12), (3, 12, 2), (5, 4)])
def test_auto_is_its_number(name, shape):
    dim = 0 if len(shape) == 1 else 1
    scores, labels = random_scores(*shape), random_labels(*shape[:dim], *shape[dim + 1 :], classes=shape[dim])
    number = auto_temperature(shape[dim])
    expected = value_and_grad(symloss.create_loss(name, normalize="l2", temperature=number), scores, labels)
    function = getattr(functional, name.replace("-", "_"))
    for loss in (
        symloss.create_loss(f"{name}:normalize=l2,temperature=auto"),
        lambda z, y: function(z, y, normalize="l2", temperature="auto"),
        lambda z, y: symloss.create_loss(name, normalize=None)(symloss.losses.UnitScores("auto")(z), y),
    ):
        assert_close(value_and_grad(loss, scores, labels), expected)
        with symloss.losses.plain():
            assert_close(value_and_grad(loss, scores, labels), expected)


@in_turn("name", ["unhinged", "sgce"])
def test_auto_in_a_head(name):
    head = symloss.LinearLoss(f"{name}:temperature=auto", 4, 40)
    features, labels = torch.randn(64, 4), random_labels(64, classes=40)
    expected = symloss.create_loss(name, temperature=auto_temperature(40))(head.logits(features), labels)
    torch.testing.assert_close(head(features, labels), expected)
    with symloss.losses.plain():
        torch.testing.assert_close(head(features, labels), expected)


def test_auto_goes_with_unit_scores():
    with refused(ValueError, "temperature='auto' needs normalize='l2'", "got normalize=None"):
        symloss.GCE(temperature="auto")
    for door in (symloss.losses.UnitScores, lambda temperature: symloss.SGCE(temperature=temperature)):
        with refused(ValueError, "temperature must be a number in (0, inf) or 'auto'", "got 'hot'"):
            door("hot")


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


@pytest.fixture
def judged(monkeypatch):
    """No loss has been warned about."""
    monkeypatch.setattr(criterion, "_judged", set())


def told(action) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    assert all(each.category is UserWarning for each in caught)
    return [str(each.message) for each in caught]


SCORES, LABELS = torch.randn(2, 501), torch.tensor([0, 500])


@pytest.mark.usefixtures("judged")
def test_a_kind_of_loss_is_warned_about_once():
    (message,) = told(lambda: symloss.SGCE()(SCORES, LABELS))
    for words in ("normalize='l2' at temperature 1", "501 classes", "temperature='auto' and scale='ce'", "=None"):
        assert words in message
    assert "\n" not in message
    assert told(lambda: symloss.SGCE(q=0.3)(SCORES, LABELS)) == []
    (message,) = told(lambda: functional.alpha_mae(SCORES, LABELS, kappa=2.0))
    assert "take temperature='auto', or normalize=None" in message  # its slope is that of cross-entropy already
    assert told(lambda: symloss.AlphaMAE(kappa=3)(SCORES, SCORES.softmax(1))) == []


@pytest.mark.usefixtures("judged")
def test_what_needs_no_warning():
    for spec in (
        *("unhinged", "unhinged:scale=ce", "2*unhinged + unhinged:normalize=l2", "sgce:temperature=auto"),
        *("sgce:scale=ce", "sgce:normalize=none", "sgce:temperature=0.1", "gce"),
    ):
        criterion._judged.clear()
        assert told(lambda spec=spec: symloss.create_loss(spec)(SCORES, LABELS)) == [], spec
    assert told(lambda: symloss.SGCE()(SCORES[:, :500], LABELS % 500)) == []


@pytest.mark.usefixtures("judged")
def test_what_was_well_is_still_warned_about_at_temperature_1():
    assert told(lambda: symloss.SGCE(temperature="auto")(SCORES, LABELS)) == []
    head = symloss.LinearLoss("sgce:temperature=2", in_features=4, num_classes=501)
    assert [len(told(lambda: head(torch.randn(2, 4), LABELS))) for _ in range(2)] == [1, 0]
    assert len(told(lambda: symloss.Criterion(CEPotential() + GCEPotential(0.5), normalize="l2")(SCORES, LABELS))) == 1
    assert len(told(lambda: symloss.create_loss("cosine:normalize=l2")(SCORES, LABELS))) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("judged")
def test_compiled_nothing_is_said_and_auto_knows_the_number_of_classes():
    compiled = torch.compile(symloss.SGCE(), backend="eager", fullgraph=True)
    assert told(lambda: compiled(SCORES, LABELS)) == []
    assert criterion._judged == set()
    layer = symloss.losses.UnitScores("auto")
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    for classes in (12, 30):
        assert_close(compiled(random_scores(3, classes)), layer(random_scores(3, classes)))
