"""Losses that are made of others: sums, operators, their options, and reprs that make them again."""

from __future__ import annotations

import pytest
import torch
from conftest import assert_close, random_labels, random_scores
from in_turn import in_turn
from loss_batches import at_every_label
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import symloss
from symloss.losses.catalogue import RECORDS

SCORES, LABELS = random_scores(6, 4), random_labels(6)
NAMES = {name: getattr(symloss.losses, name) for name in dir(symloss.losses)}
TRANSITION = 0.1 + 0.6 * torch.eye(4, dtype=torch.float64)


def at_labels(name: str) -> Tensor:
    return symloss.create_loss(name, reduction="none", normalize=None)(SCORES, LABELS)


SUMS = {
    "sum": (lambda: symloss.CE() + symloss.MAE(), lambda: at_labels("ce") + at_labels("mae")),
    "difference": (lambda: symloss.CE() - symloss.MAE(), lambda: at_labels("ce") - at_labels("mae")),
    "multiple": (lambda: 0.5 * symloss.GCE(q=0.7), lambda: 0.5 * at_labels("gce")),
    "quotient": (lambda: symloss.GCE(q=0.7) / 4, lambda: at_labels("gce") / 4),
    "negative": (lambda: -symloss.MAE(), lambda: -at_labels("mae")),
    "name": (lambda: symloss.CE() + "mae", lambda: at_labels("ce") + at_labels("mae")),
    "name first": (lambda: "mae" + symloss.CE(), lambda: at_labels("ce") + at_labels("mae")),
    "module": (lambda: symloss.MAE() + nn.CrossEntropyLoss(), lambda: at_labels("ce") + at_labels("mae")),
    "function": (lambda: symloss.MAE() + cross_entropy, lambda: at_labels("ce") + at_labels("mae")),
    "scaled part": (
        lambda: symloss.MAE(scale="ce") + symloss.CE(),
        lambda: 4 * at_labels("mae") + at_labels("ce"),  # the slope of MAE is 1/C
    ),
}


@in_turn("key", SUMS)
def test_sums(key):
    make, expected = SUMS[key]
    assert isinstance(make(), nn.Module)
    assert_close(make()(SCORES, LABELS), expected().mean())


def own_gce(scores: Tensor, labels: Tensor) -> Tensor:
    return (1 - scores.softmax(1).gather(1, labels[:, None])[:, 0] ** 0.5) / 0.5


class OwnGCE(nn.Module):
    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return own_gce(scores, labels)


OPERATORS = {
    "symmetrize": (symloss.symmetrize, lambda own, every: own - every.mean(1)),
    "insensitive": (lambda loss, **o: symloss.decompose(loss).insensitive, lambda own, every: every.mean(1)),
    "relative": (symloss.losses.relative, lambda own, every: own / every.sum(1)),
    "complement": (
        lambda loss, **o: symloss.losses.complement(loss, bound=2.0, **o),
        lambda own, every: 1 - (2 - own) / (2 - every).sum(1),
    ),
    "dirichlet": (
        lambda loss, **o: symloss.losses.dirichlet(loss, 0.3, **o),
        lambda own, every: own - 0.7 * every.sum(1),
    ),
    "noisy": (
        lambda loss, **o: symloss.losses.noisy(loss, TRANSITION, **o),
        lambda own, every: 0.6 * own + 0.1 * every.sum(1),
    ),
}


@in_turn("operator", OPERATORS)
@in_turn("given", [symloss.GCE(q=0.5), "gce:q=0.5", OwnGCE(), own_gce])
def test_operators_take_losses_of_every_kind(given, operator):
    apply, formula = OPERATORS[operator]
    every = at_every_label(symloss.GCE(q=0.5, reduction="none"), SCORES)
    expected = formula(every.gather(1, LABELS[:, None])[:, 0], every)
    made = apply(given)
    assert isinstance(made, symloss.Criterion)
    assert_close(made(SCORES, LABELS), expected.mean())


def test_blend_takes_losses_of_every_kind():
    expected = symloss.AlphaMAE(alpha=0.5, normalize=None)(SCORES, LABELS)
    for given in (symloss.MAE(), "mae", lambda z, y: 1 - z.softmax(1).gather(1, y[:, None])[:, 0]):
        assert_close(symloss.blend(given, 0.5)(SCORES, LABELS), expected)


@in_turn("operator", [name for name in OPERATORS if name != "insensitive"])
def test_options_of_the_whole_go_with_the_operator(operator):
    made = OPERATORS[operator][0]("gce:q=0.5", reduction="sum", ignore_index=0)
    plain = OPERATORS[operator][0]("gce:q=0.5")
    kept = LABELS != 0
    assert_close(made(SCORES, LABELS), plain(SCORES[kept], LABELS[kept]) * kept.sum())


def test_an_option_that_is_given_once_holds_for_the_whole():
    whole = symloss.CE(reduction="sum") + symloss.MAE()
    assert_close(whole(SCORES, LABELS), (at_labels("ce") + at_labels("mae")).sum())
    unit = symloss.SGCE(q=0.5) + symloss.CE(normalize="l2")
    assert unit.normalize == "l2"
    raw = symloss.SGCE(q=0.5, normalize=None) + symloss.CE()
    assert_close(raw(SCORES, LABELS), (at_labels("sgce:q=0.5") + at_labels("ce")).mean())
    weighted = symloss.CE(weight=[1, 2, 3, 4]) + 2 * symloss.GCE()
    expected = symloss.Criterion("ce + 2*gce", weight=torch.tensor([1.0, 2, 3, 4]))
    assert_close(weighted(SCORES, LABELS), expected(SCORES, LABELS))


CONTRADICTIONS = {
    "reduction": lambda: symloss.CE(reduction="sum") + symloss.MAE(reduction="none"),
    "weight": lambda: symloss.CE(weight=[1, 2, 3, 4]) + symloss.MAE(weight=[4, 3, 2, 1]),
    "normalize": lambda: symloss.SGCE() + symloss.CE(),  # their defaults differ
    "ignore_index": lambda: symloss.CE(ignore_index=1) + "mae:ignore_index=2",
    "label_smoothing": lambda: symloss.Criterion(symloss.CE(label_smoothing=0.1), label_smoothing=0.2),
}


@in_turn("option", CONTRADICTIONS)
def test_options_of_parts_must_not_contradict(option):
    with refused(ValueError, option, "must be the same for all parts", "CE("):
        CONTRADICTIONS[option]()


def test_a_criterion_takes_over_the_options_of_its_loss():
    assert symloss.Criterion(symloss.SGCE(), reduction="sum").normalize == "l2"
    assert symloss.Criterion("sgce:q=0.5", normalize=symloss.losses.UnitScores(0.1)).normalize != "l2"


@in_turn("what", [3, None, "no-such-loss", nn.CrossEntropyLoss])
def test_what_is_no_loss_cannot_be_added(what):
    with pytest.raises((TypeError, ValueError)):
        symloss.CE() + what


REPRS = {
    "SGCE(q=0.8)": lambda: symloss.SGCE(q=0.8),
    "AlphaMAE(alpha=2.0)": symloss.AlphaMAE,
    "CE(weight=[1.0, 2.0, 3.0, 4.0], reduction='sum')": lambda: symloss.CE(weight=[1, 2, 3, 4], reduction="sum"),
    "CE() + MAE()": lambda: symloss.CE() + symloss.MAE(),
    "0.1 * CE() + 0.333333333 * MAE()": lambda: 0.1 * symloss.CE() + 0.333333333 * symloss.MAE(),
    "Criterion(0.5 * symmetrize(GCE(q=0.7)), normalize='l2')": lambda: 0.5 * symloss.SGCE(),
    "Criterion(GCE(q=0.7), scale='ce') + CE()": lambda: symloss.GCE(scale="ce") + symloss.CE(),
    "symmetrize(CE(), prior=[0.1, 0.2, 0.3, 0.4])": lambda: symloss.symmetrize("ce", [0.1, 0.2, 0.3, 0.4]),
    "decompose(TaylorCE(t=2)).insensitive": lambda: symloss.decompose("taylor-ce").insensitive,
    "create_loss('mae', deviation='doubled-mae')": lambda: symloss.create_loss("mae:deviation=doubled-mae"),
}


@in_turn("text", REPRS)
def test_the_repr_is_the_expression_that_makes_the_loss(text):
    loss = REPRS[text]()
    assert repr(loss) == text
    again = eval(text, NAMES)
    assert repr(again) == text
    assert torch.equal(again(SCORES, LABELS), loss(SCORES, LABELS))


@in_turn("name", RECORDS)
def test_the_repr_of_every_loss_and_of_its_formula_makes_it_again(name):
    loss = symloss.create_loss(name, normalize=None)
    assert torch.equal(eval(repr(loss), NAMES)(SCORES, LABELS), loss(SCORES, LABELS))
    if not name.startswith("jal"):  # their second part has no name of its own
        assert_close(eval(repr(loss.loss), NAMES)(SCORES, LABELS), loss(SCORES, LABELS))


class Counting(nn.Module):
    """Plain state, a buffer, and a factor that depends on them."""

    def __init__(self):
        super().__init__()
        self.step, self.reduction = 0, "mean"
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        self.step += 1
        self.steps = self.steps + 1
        return self.step * cross_entropy(scores, labels, reduction=self.reduction)


def test_the_state_of_a_symmetrized_module_survives():
    module = Counting()
    robust = symloss.symmetrize(module)
    once, twice = robust(SCORES, LABELS), robust(SCORES, LABELS)
    assert_close(twice, 2 * once)
    assert (module.step, float(module.steps), module.reduction) == (2, 2.0, "mean")


def test_a_module_that_fails_gets_its_reduction_back():
    module = Counting()
    with pytest.raises(IndexError):
        symloss.symmetrize(module)(SCORES, torch.full((6,), 9))
    module.forward = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        symloss.symmetrize(module)(SCORES, LABELS)
    assert module.reduction == "mean"


def test_a_random_loss_is_drawn_once_for_the_label_and_the_mean():
    """Otherwise the sum over labels would not be 0."""

    def random(scores: Tensor, labels: Tensor) -> Tensor:
        return torch.rand(len(scores), dtype=scores.dtype) * cross_entropy(scores, labels, reduction="none")

    robust = symloss.symmetrize(random)
    assert_close(robust.per_class(SCORES).sum(1), torch.zeros(6, dtype=torch.float64))
