"""Losses as text: composed losses and losses of one's own, what they are, and where a bad one is wrong."""

import math
import sys
from collections.abc import Callable

import pytest
import torch
from conftest import CLASSES, assert_close, random_labels, random_scores, value_and_grad
from in_turn import in_turn
from loss_batches import picked
from refusals import refused
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, normalize

import symloss
from symloss import functional
from symloss.losses.operators import as_loss
from symloss.losses.spec import describe, parse, split, write

SCORES, LABELS = random_scores(6, 4), random_labels(6)
P = SCORES.softmax(1)
P_Y = picked(P, LABELS)
UNHINGED = (SCORES.mean(1) - picked(SCORES, LABELS)).mean()
CE, MAE = cross_entropy(SCORES, LABELS), (1 - P_Y).mean()


SPEC_STRINGS = {
    "gce": ("gce", {}),
    "gce:": ("gce", {}),
    "gce:q=.5,": ("gce", {"q": 0.5}),
    " gce : q = 0.7 , scale = ce ": ("gce", {"q": 0.7, "scale": "ce"}),
    "sgce:normalize=None": ("sgce", {"normalize": None}),
    "taylor-ce:t=3": ("taylor-ce", {"t": 3}),
    "label-smoothing:r=-2e-1": ("label-smoothing", {"r": -0.2}),
    "nce+agce:alpha=1,beta=4,a=6,q=1.5": ("nce+agce", {"alpha": 1, "beta": 4, "a": 6, "q": 1.5}),
    "ce:ignore_index=-1,reduction=sum": ("ce", {"ignore_index": -1, "reduction": "sum"}),
    "gce:reduction=none,normalize=none": ("gce", {"reduction": "none", "normalize": None}),
    "sgce:preset=cifar100-step": ("sgce", {"preset": "cifar100-step"}),
    "mae:deviation=doubled-mae": ("mae", {"deviation": "doubled-mae"}),
}


@in_turn("spec", SPEC_STRINGS)
def test_spec_strings_are_read(spec):
    name, values = SPEC_STRINGS[spec]
    assert repr(parse(spec)) == repr((name, values)), "types too"
    assert repr(symloss.create_loss(spec)) == repr(symloss.create_loss(name, **values))


FOCAL, FOCAL_Y = (-((1 - p) ** 2) * p.log() for p in (P, P_Y))
REFERENCE = {
    "symmetrize(focal:gamma=2)": (FOCAL_Y - FOCAL.mean(1)).mean(),
    "blend(sgce:q=0.5, alpha=0.3)": 0.7 * UNHINGED + 0.3 * 4**0.5 * ((P**0.5).mean(1) - P_Y**0.5).mean() / 0.5,
    "0.5*gce:q=0.7 + 0.5*symmetrize(mse)": (0.5 * (1 - P_Y**0.7) / 0.7 + 0.25 - P_Y).mean(),
    "2*(ce - 0.5*mae)": 2 * CE - MAE,
    "symmetrize(2*ce)": 2 * UNHINGED,
    "-1*mae + ce": CE - MAE,
    "relative(ce)": (P_Y.log() / log_softmax(SCORES, 1).sum(1)).mean(),
    "dirichlet((sce:beta=0), alpha=0.5)": CE + 0.5 * log_softmax(SCORES, 1).sum(1).mean(),
    "complement(mae, bound=1)": MAE,
    "symmetrize(ce):normalize=l2": functional.unhinged(normalize(SCORES), LABELS, normalize=None),
    "symmetrize(ce, normalize=l2,temperature=0.5)": functional.unhinged(SCORES, LABELS, temperature=0.5),
    "(ce + mae):reduction=sum": 6 * (CE + MAE),
    "torch.nn.functional:cross_entropy": CE,
    "symmetrize(torch.nn.functional:cross_entropy)": UNHINGED,
    "0.5*torch.nn.functional:cross_entropy + mae": 0.5 * CE + MAE,
}


@in_turn("spec", REFERENCE)
def test_a_composed_loss_is_what_it_says(spec):
    assert_close(symloss.create_loss(spec)(SCORES, LABELS), REFERENCE[spec])


@in_turn("spec", [*REFERENCE, "sgce:q=0.5,normalize=none", "dirichlet(ce + (sce:beta=1), alpha=2)"])
def test_what_is_written_is_read_as_the_same(spec):
    assert parse(write(*parse(spec))) == parse(spec)


def test_one_loss_has_one_text():
    """Two ways to write it are one run."""
    texts = ["blend(sgce:q=0.5,alpha=0.3)", " blend( sgce:q=.5 , alpha = 0.30 ) ", "blend((sgce:q=0.5), alpha=0.3)"]
    assert {write(*parse(text)) for text in texts} == {"blend(sgce:q=0.5, alpha=0.3)"}
    assert write(*parse("symmetrize(ce, normalize=l2)")) == write(*parse("symmetrize(ce):normalize=l2"))
    assert parse("(gce:q=0.5)") == parse("gce:q=0.5")


def test_keywords_join_the_spec():
    """A composed loss acts on raw scores, also where a loss inside it would take them divided by their norm."""
    weight = torch.ones(4)
    loss = symloss.create_loss("sgce:q=0.5", normalize=None, weight=weight)
    assert repr(loss) == repr(symloss.SGCE(0.5, normalize=None, weight=[1, 1, 1, 1]))
    assert loss.weight is weight
    assert_close(symloss.create_loss("2*unhinged")(SCORES, LABELS), 2 * UNHINGED)
    assert symloss.create_loss("2*unhinged", normalize="l2").normalize == "l2"
    loss = symloss.create_loss("symmetrize(ce)", reduction="none", label_smoothing=0.2)
    assert (loss.reduction, loss.label_smoothing) == ("none", 0.2)
    with refused(TypeError, "symmetrize(ce) has no parameter 'q'", "options are"):
        symloss.create_loss("symmetrize(ce)", q=0.5)


def test_commas_inside_brackets_never_separate_losses():
    text = "ce, blend(sgce:q=0.5, alpha=0.3),0.5*sce:alpha=1,beta=2 + mae,mine:loss,symmetrize(ce),normalize=l2"
    first = ["ce", "blend(sgce:q=0.5, alpha=0.3)", "0.5*sce:alpha=1,beta=2 + mae"]
    assert split(text) == [*first, "mine:loss", "symmetrize(ce),normalize=l2"]


BAD = {
    "": (1, "at the end", "expected a loss", "gce"),
    "symmetrize(focl:gamma=2)": (12, "'focl'", "did you mean 'focal'?"),
    "symmetrize(focal:gama=2)": (18, "'gama=2'", "did you mean 'gamma'?"),
    "gce:gamma=2 + ce": (5, "'gamma=2'", "nothing takes this key", "q"),
    "symetrize(ce)": (1, "'symetrize'", "did you mean 'symmetrize'?"),
    "symmetrize(ce": (14, "at the end", "expected key=value or ')'"),
    "symmetrize(ce))": (15, "')'", "or the end"),
    "symmetrize(ce, mae)": (16, "'mae'", "key=value"),
    "symmetrize(ce, alpha=3)": (16, "'alpha=3'", "known are", "normalize"),
    "blend(sgce, alpa=3)": (13, "'alpa=3'", "did you mean 'alpha'?"),
    "symmetrize(symmetrize(ce, normalize=l2))": (27, "'normalize=l2'", "options of the whole come last"),
    "symmetrize(ce, normalize=l2):normalize=none": (30, "normalize is given twice"),
    "symmetrize(ce, normalize=l2) + mae": (30, "'+'", "options of the whole come last"),
    "2*symmetrize(ce, normalize=l2)": (18, "'normalize=l2'", "options of the whole come last"),
    "ce + ": (6, "expected a loss"),
    "ce +mae": (4, "'+mae'", "' + '"),
    "ce + mae:q=3": (10, "'q=3'", "nothing takes this key"),
    "gce q=.5": (5, "'q'"),
    "1e999*ce": (1, "'1e999'", "finite"),
    "blend(sgce)": (1, "alpha=... after the loss"),
    "dirichlet(sce:beta=1, alpha=0.5)": (1, "alpha", "brackets"),
    "(" * 100_000: (41, "more than 40 brackets"),
    100_000 * "symmetrize(" + "ce" + 100_000 * ")": (441, "more than 40 brackets"),
}


@in_turn("spec", BAD)
def test_a_bad_spec_is_refused_at_its_place(spec):
    place, *ingredients = BAD[spec]
    with refused(ValueError, f"character {place},", *ingredients):
        symloss.create_loss(spec)


@in_turn(
    "spec, exception, ingredients",
    [
        ("blend(sgce:q=7, alpha=0.3)", ValueError, ["q must be a number in (0, 1]", "got 7", "(in sgce:q=7)"]),
        ("blend(ce, alpha=0.3)", ValueError, ["symmetric", "(in blend(ce, alpha=0.3))"]),
        ("no_such_package.losses:mine", ValueError, ["no module 'no_such_package'"]),
        ("torch.nn:mine", ValueError, ["'torch.nn:mine'", "has no 'mine'"]),
        ("torch.nn:CrossEntropyLoss", TypeError, ["the class CrossEntropyLoss", "an instance"]),
        ("ce+mae", ValueError, ["no loss named 'ce+mae'", "did you mean 'nce+mae'?"]),
    ],
)
def test_a_loss_that_cannot_be_built(spec, exception, ingredients):
    with refused(exception, *ingredients):
        symloss.create_loss(spec)


@pytest.fixture
def own_losses(tmp_path, monkeypatch):
    (tmp_path / "losses_of_mine.py").write_text(
        "import torch, symloss\n"
        "def linear(input, target):\n    return -input.gather(1, target[:, None]).squeeze(1)\n"
        "module = torch.nn.CrossEntropyLoss()\n"
        "expression = symloss.symmetrize(linear)\n"
    )
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("losses_of_mine", None)


def test_a_loss_of_ones_own(own_losses):
    assert describe(parse("symmetrize(losses_of_mine:linear)")[0]).name == "symmetrize(losses_of_mine:linear)"
    assert "losses_of_mine" not in sys.modules, "reading a spec imports nothing"
    for spec, expected in {
        "losses_of_mine:linear": -picked(SCORES, LABELS).mean(),
        "symmetrize(losses_of_mine:linear)": UNHINGED,
        "losses_of_mine:expression": UNHINGED,
        "2*losses_of_mine:module": 2 * CE,
    }.items():
        assert_close(symloss.create_loss(spec)(SCORES, LABELS), expected)
    assert symloss.certify("symmetrize(losses_of_mine:linear)", 3).symmetric.holds
    assert not symloss.certify("losses_of_mine:linear", 3).symmetric.holds


def test_a_loss_at_its_labels_is_called_once_for_each_row():
    """Only what needs every label calls a function of one's own with every label."""
    rows = []

    def counted(input, target):
        rows.append(len(input))
        return cross_entropy(input, target, reduction="none")

    symloss.Criterion(as_loss(counted))(SCORES, LABELS)
    symloss.symmetrize(counted)(SCORES, LABELS)
    assert rows == [6, 24]


# --- What public code computes differently from its paper, when it is asked for ---------------------------------------

LOG_ZERO, BOUND = -math.log(1e-4), -math.log(1e-7)
# Scores with probabilities below 1e-7, where a clamp shows.
FAR = torch.tensor([[25.0, 0.0, 1.0, 2.0], [-1.0, 0.5, 20.0, 1.0]], dtype=torch.float64)


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


@in_turn("spec, deviation", DEVIATIONS)
def test_a_deviation_is_what_public_code_computes(spec, deviation):
    """Value and gradient, at every label, far below the clamp too; and it is never the default."""
    formula = DEVIATIONS[spec, deviation]
    loss, default = (symloss.create_loss(spec, reduction="none", **o) for o in ({"deviation": deviation}, {}))
    scores = torch.cat([random_scores(4, CLASSES), FAR])
    for label in range(CLASSES):
        labels = torch.full((6,), label)
        found = value_and_grad(loss, scores, labels)
        expected = value_and_grad(lambda z, y: picked(formula(z.softmax(1)), y), scores, labels)
        assert_close(found, expected, tolerance=1e-8)
    assert not torch.equal(found[1], value_and_grad(default, scores, labels)[1])
