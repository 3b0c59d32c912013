"""Losses that are made of others: sums, operators, their options, and reprs that make them again."""

import functools
from collections.abc import Callable

import pytest
import torch
from conftest import CLASSES, assert_close, random_labels, random_probabilities, random_scores, value_and_grad
from in_turn import in_turn
from loss_batches import MASK, MASK_LABELS, ROUND_TRIPS, WEIGHT, at_every_label, labels_for, masked, picked
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, multi_margin_loss

import symloss
from symloss import functional
from symloss.losses.catalogue import RECORDS
from symloss.losses.potentials import CEPotential

SCORES, LABELS = random_scores(6, 4), random_labels(6)
NAMES = {name: getattr(symloss.losses, name) for name in dir(symloss.losses)}
TRANSITION = 0.1 + 0.6 * torch.eye(4, dtype=torch.float64)


def at_labels(name: str) -> Tensor:
    return symloss.create_loss(name, reduction="none", normalize=None)(SCORES, LABELS)


CE_AND_MAE = at_labels("ce") + at_labels("mae")
SUMS = {
    "sum": (symloss.CE() + symloss.MAE(), CE_AND_MAE),
    "difference": (symloss.CE() - symloss.MAE(), at_labels("ce") - at_labels("mae")),
    "multiple": (0.5 * symloss.GCE(q=0.7), 0.5 * at_labels("gce")),
    "quotient": (symloss.GCE(q=0.7) / 4, at_labels("gce") / 4),
    "negative": (-symloss.MAE(), -at_labels("mae")),
    "name": (symloss.CE() + "mae", CE_AND_MAE),
    "name first": ("mae" + symloss.CE(), CE_AND_MAE),
    "module": (symloss.MAE() + nn.CrossEntropyLoss(), CE_AND_MAE),
    "function": (symloss.MAE() + cross_entropy, CE_AND_MAE),
    "scaled part": (symloss.MAE(scale="ce") + symloss.CE(), 4 * at_labels("mae") + at_labels("ce")),  # its slope is 1/C
}


@in_turn("key", SUMS)
def test_sums(key):
    made, expected = SUMS[key]
    assert isinstance(made, nn.Module)
    assert_close(made(SCORES, LABELS), expected.mean())


def own_gce(scores: Tensor, labels: Tensor) -> Tensor:
    return (1 - picked(scores.softmax(1), labels) ** 0.5) / 0.5


class OwnGCE(nn.Module):
    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return own_gce(scores, labels)


OPERATORS = {
    "symmetrize": (symloss.symmetrize, lambda own, every: own - every.mean(1)),
    "insensitive": (lambda loss: symloss.decompose(loss).insensitive, lambda own, every: every.mean(1)),
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
    made = apply(given)
    assert isinstance(made, symloss.Criterion)
    assert_close(made(SCORES, LABELS), formula(picked(every, LABELS), every).mean())


def test_blend_takes_losses_of_every_kind():
    expected = symloss.AlphaMAE(alpha=0.5, normalize=None)(SCORES, LABELS)
    for given in (symloss.MAE(), "mae", lambda z, y: 1 - picked(z.softmax(1), y)):
        assert_close(symloss.blend(given, 0.5)(SCORES, LABELS), expected)


@in_turn("operator", [name for name in OPERATORS if name != "insensitive"])
def test_options_of_the_whole_go_with_the_operator(operator):
    apply, kept = OPERATORS[operator][0], LABELS != 0
    made = apply("gce:q=0.5", reduction="sum", ignore_index=0)
    assert_close(made(SCORES, LABELS), apply("gce:q=0.5")(SCORES[kept], LABELS[kept]) * kept.sum())


def test_an_option_that_is_given_once_holds_for_the_whole():
    whole = symloss.CE(reduction="sum") + symloss.MAE()
    assert_close(whole(SCORES, LABELS), CE_AND_MAE.sum())
    assert (symloss.SGCE(q=0.5) + symloss.CE(normalize="l2")).normalize == "l2"
    raw = symloss.SGCE(q=0.5, normalize=None) + symloss.CE()
    assert_close(raw(SCORES, LABELS), (at_labels("sgce:q=0.5") + at_labels("ce")).mean())
    weighted = symloss.CE(weight=[1, 2, 3, 4]) + 2 * symloss.GCE()
    expected = symloss.Criterion("ce + 2*gce", weight=torch.tensor([1.0, 2, 3, 4]))
    assert_close(weighted(SCORES, LABELS), expected(SCORES, LABELS))
    assert symloss.Criterion(symloss.SGCE(), reduction="sum").normalize == "l2"
    assert symloss.Criterion("sgce:q=0.5", normalize=symloss.losses.UnitScores(0.1)).normalize != "l2"


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
    with pytest.raises(IndexError):
        robust(SCORES, torch.full((6,), 9))
    module.forward = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        robust(SCORES, LABELS)
    assert module.reduction == "mean", "it is put back when the module fails"


def test_a_random_loss_is_drawn_once_for_the_label_and_the_mean():
    """Otherwise the sum over labels would not be 0."""

    def random(scores: Tensor, labels: Tensor) -> Tensor:
        return torch.rand(len(scores), dtype=scores.dtype) * cross_entropy(scores, labels, reduction="none")

    assert_close(symloss.symmetrize(random).per_class(SCORES).sum(1), torch.zeros(6).double())


# --- ``symmetrize`` and ``decompose`` of anything ---------------------------------------------------------------------


def user_function(scores: Tensor, labels: Tensor) -> Tensor:
    """Neither symmetric nor a function of log p."""
    return (1 + labels) * picked(scores, labels).square() - scores[:, 0]


class UserModule(nn.Module):
    """A loss with a parameter, that returns one value for each example."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.5, 2.0, CLASSES, dtype=torch.float64))

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.gain * scores, labels, reduction="none")


singly = functools.partial(functools.partial, reduction="none")
SCALED, WEIGHTED = {"q": 0.5, "scale": "ce", "normalize": "l2"}, {"q": 0.5, "weight": WEIGHT}
FOREIGN: dict[str, tuple[Callable[[], Callable], Callable[..., Tensor]]] = {
    # name: (what is given to symmetrize, its value for each example)
    "cross-entropy": (nn.CrossEntropyLoss, singly(cross_entropy)),
    "weighted": (lambda: nn.CrossEntropyLoss(WEIGHT, reduction="sum"), singly(cross_entropy, weight=WEIGHT)),
    "ignoring": (lambda: nn.CrossEntropyLoss(ignore_index=1), singly(cross_entropy)),
    "sum": (lambda: nn.CrossEntropyLoss(reduction="sum"), singly(cross_entropy)),
    "none": (lambda: nn.CrossEntropyLoss(reduction="none"), singly(cross_entropy)),
    "smoothed": (lambda: nn.CrossEntropyLoss(label_smoothing=0.2), singly(cross_entropy, label_smoothing=0.2)),
    "multi-margin": (nn.MultiMarginLoss, singly(multi_margin_loss)),
    "function": (lambda: cross_entropy, singly(cross_entropy)),
    "user-function": (lambda: user_function, user_function),
    "user-module": (UserModule, UserModule()),
    "own-module": (lambda: symloss.GCE(q=0.5), singly(functional.gce, q=0.5)),
    "own-weighted": (lambda: symloss.GCE(**WEIGHTED, reduction="sum"), singly(functional.gce, **WEIGHTED)),
    "own-scaled": (lambda: symloss.GCE(**SCALED, ignore_index=2), singly(functional.gce, **SCALED)),
}
PRIOR = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


def reduced(values: Tensor, labels: Tensor, like: object) -> Tensor:
    """As the loss that was given says: its ignore_index, its reduction (the mean for functions)."""
    kept = labels != getattr(like, "ignore_index", -100)
    reduction = getattr(like, "reduction", "mean")
    values = torch.where(kept, values, 0.0)
    return values if reduction == "none" else values.sum() / (kept.sum() if reduction == "mean" else 1)


@in_turn("key", FOREIGN)
@in_turn("prior", [None, PRIOR, PRIOR.tolist()])
def test_decomposition_adds_up_to_the_loss(key, prior):
    """The first part has the mean 0 over labels (under the prior), the second is the same at every label."""
    make, single = FOREIGN[key]
    original = make()
    symmetric, insensitive = symloss.decompose(original, prior)
    assert_close(
        value_and_grad(lambda z, y: symmetric(z, y) + insensitive(z, y), SCORES, LABELS),
        value_and_grad(lambda z, y: reduced(single(z, y), y, original), SCORES, LABELS),
    )
    if not key.startswith("user"):  # the users' return one value for each example
        assert_close(symmetric(SCORES, LABELS) + insensitive(SCORES, LABELS), original(SCORES, LABELS))
    shares = torch.full((4,), 0.25).double() if prior is None else PRIOR
    assert_close(symmetric.per_class(SCORES) @ shares, torch.zeros(6).double())
    every = insensitive.per_class(SCORES)
    assert_close(every, every[:, :1].expand_as(every))


def test_mean_of_a_weighted_loss_is_over_examples():
    """torch divides a weighted mean by the labels' weights: no function of single examples, so it has no such part."""
    symmetric, insensitive = symloss.decompose(nn.CrossEntropyLoss(weight=WEIGHT))
    single = cross_entropy(SCORES, LABELS, weight=WEIGHT, reduction="none")
    assert_close(symmetric(SCORES, LABELS) + insensitive(SCORES, LABELS), single.mean())


@in_turn("key", ["ignoring", "sum", "none", "smoothed"])
@in_turn("shape", [(4,), (3, 4, 2), (2, 4, 3, 2), (0, 4)])
def test_decomposition_in_every_shape(key, shape):
    original = FOREIGN[key][0]()
    scores = random_scores(*shape)
    labels = labels_for(scores)
    symmetric, insensitive = symloss.decompose(original)
    assert_close(symmetric(scores, labels) + insensitive(scores, labels), original(scores, labels), equal_nan=True)


def test_soft_labels_of_a_symmetrized_loss():
    soft = random_probabilities(6, CLASSES)
    every = at_every_label(FOREIGN["multi-margin"][1], SCORES)
    expected = (soft * (every - every.mean(1, keepdim=True))).sum(1).mean()
    assert_close(symloss.symmetrize(nn.MultiMarginLoss())(SCORES, soft), expected)


@in_turn(
    "make",
    [
        lambda: nn.CrossEntropyLoss(weight=WEIGHT.clone(), ignore_index=1, reduction="sum", label_smoothing=0.1),
        lambda: nn.MultiMarginLoss(margin=2.0, reduction="none"),
        UserModule,
        lambda: symloss.GCE(weight=WEIGHT.clone(), ignore_index=1),
    ],
)
def test_the_loss_given_is_not_modified(make):
    given, untouched = make(), make()
    for part in symloss.decompose(given):
        part(SCORES, LABELS)
    plain, unchanged = (
        {key: value if isinstance(value, (int, float, str)) else None for key, value in vars(module).items()}
        for module in (given, untouched)
    )
    assert plain == unchanged
    assert_close(dict(given.state_dict()), dict(untouched.state_dict()))
    assert torch.equal(given(SCORES, LABELS), untouched(SCORES, LABELS))


def test_parameters_of_a_users_loss_train_with_the_model():
    """A module of one's own is a part of the result: a loss with dropout must stop dropping in ``eval()``."""
    module = UserModule()
    robust = symloss.symmetrize(module)
    for training in (False, True):
        robust.train(training)
        assert module.training == training
    (gain,) = robust.parameters()
    robust(SCORES, LABELS).backward()
    assert gain.grad.isfinite().all()
    assert (gain.grad != 0).any()
    assert list(robust.state_dict()) == ["parts.0.gain"]
    assert robust.to(torch.float32)(SCORES.float(), LABELS).dtype == torch.float32


@in_turn("way", ROUND_TRIPS)
@in_turn("make", [lambda: nn.CrossEntropyLoss(weight=WEIGHT.clone()), UserModule])
def test_symmetrized_modules_survive_copies(way, make):
    robust = symloss.symmetrize(make())
    twin = ROUND_TRIPS[way](robust)
    expected = robust(SCORES, LABELS).detach()
    assert torch.equal(twin(SCORES, LABELS), expected)
    with torch.no_grad():
        for tensor in twin.state_dict().values():
            tensor.mul_(3)
    assert not torch.equal(twin(SCORES, LABELS), expected), "the copy's own weights are the ones it uses"
    assert torch.equal(robust(SCORES, LABELS), expected), "and the original's are left alone"


def test_masked_classes_are_left_out():
    """The mean under q is over the classes that are present, with q scaled to sum to 1 over them; also of torch's."""
    scores = masked(SCORES[:4], MASK)
    values = symloss.symmetrize(CEPotential(), PRIOR)(scores, MASK_LABELS, reduction="none")
    for value, row, label, mask in zip(values, scores, MASK_LABELS, MASK, strict=True):
        assert_close(value, (PRIOR[mask] * row[mask]).sum() / PRIOR[mask].sum() - row[label])
    expected = value_and_grad(symloss.Unhinged(normalize=None), scores, MASK_LABELS)
    for given in (nn.CrossEntropyLoss(), cross_entropy):
        assert_close(value_and_grad(symloss.symmetrize(given), scores, MASK_LABELS), expected)
