"""``symmetrize`` and ``decompose`` of anything: torch's losses, functions and modules of the user's, our own."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from conftest import CLASSES, assert_close, random_labels, random_probabilities, random_scores, value_and_grad
from in_turn import in_turn
from loss_batches import MASK, MASK_LABELS, ROUND_TRIPS, WEIGHT, at_every_label, labels_for, masked, picked
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, multi_margin_loss

import symloss
from symloss import functional
from symloss.losses.potentials import CEPotential, MAEPotential


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


class NoisyModule(UserModule):
    """Behaves differently in training, as dropout does."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        return super().forward(scores, labels) + (100 if self.training else 0) * labels


def singly(loss: Callable[..., Tensor], **options: object) -> Callable[..., Tensor]:
    return functools.partial(loss, reduction="none", **options)


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

SCORES, LABELS = random_scores(6, CLASSES), random_labels(6)

foreign = in_turn("key", FOREIGN)
priors = in_turn("prior", [None, PRIOR, PRIOR.tolist()])


def mean_under(every: Tensor, prior: Tensor | list[float] | None) -> Tensor:
    return every.mean(1) if prior is None else every @ torch.as_tensor(prior, dtype=every.dtype)


def reduced(values: Tensor, labels: Tensor, like: object) -> Tensor:
    """As the loss that was given says: its ignore_index, its reduction (the mean for functions)."""
    kept = labels != getattr(like, "ignore_index", -100)
    reduction = getattr(like, "reduction", "mean")
    values = torch.where(kept, values, 0.0)
    return values if reduction == "none" else values.sum() / (kept.sum() if reduction == "mean" else 1)


@foreign
@priors
def test_symmetrize_takes_the_mean_over_labels_away(key, prior):
    make, single = FOREIGN[key]
    given = make()

    def expected(z: Tensor, y: Tensor) -> Tensor:
        every = at_every_label(single, z)
        return reduced(picked(every, y) - mean_under(every, prior), y, given)

    robust = symloss.symmetrize(given, prior)
    assert_close(value_and_grad(robust, SCORES, LABELS), value_and_grad(expected, SCORES, LABELS))


@foreign
@priors
def test_decomposition_adds_up_to_the_loss(key, prior):
    """The first part has the mean 0 over LABELS (under the prior), the second is the same at every label."""
    make, single = FOREIGN[key]
    original = make()
    symmetric, insensitive = symloss.decompose(original, prior)
    assert_close(
        value_and_grad(lambda z, y: symmetric(z, y) + insensitive(z, y), SCORES, LABELS),
        value_and_grad(lambda z, y: reduced(single(z, y), y, original), SCORES, LABELS),
    )
    if not key.startswith("user"):  # the users' return one value for each example
        assert_close(symmetric(SCORES, LABELS) + insensitive(SCORES, LABELS), original(SCORES, LABELS))
    assert_close(mean_under(symmetric.per_class(SCORES), prior), torch.zeros(6, dtype=torch.float64))
    every = insensitive.per_class(SCORES)
    assert_close(every, every[:, :1].expand_as(every))


def test_mean_of_a_weighted_loss_is_over_examples():
    """torch divides a weighted mean by the LABELS' weights: no function of single examples, so it has no such part."""
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


@in_turn("key", ["multi-margin", "user-function", "user-module"])
def test_losses_of_rows_work_on_images(key):
    """They know (N, C) alone; symmetrized they take what torch's cross-entropy takes."""
    robust = symloss.symmetrize(FOREIGN[key][0]())
    scores, labels = random_scores(2, CLASSES, 3), random_labels(2, 3)
    rows = scores.movedim(1, -1).flatten(0, 1)
    assert_close(robust(scores, labels), robust(rows, labels.flatten()))


def test_soft_labels_of_a_symmetrized_loss():
    robust = symloss.symmetrize(nn.MultiMarginLoss())
    scores, soft = random_scores(5, CLASSES), random_probabilities(5, CLASSES)
    every = at_every_label(FOREIGN["multi-margin"][1], scores)
    assert_close(robust(scores, soft), (soft * (every - every.mean(1, keepdim=True))).sum(1).mean())


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.CrossEntropyLoss(weight=WEIGHT.clone(), ignore_index=1, reduction="sum", label_smoothing=0.1),
        lambda: nn.MultiMarginLoss(margin=2.0, reduction="none"),
        UserModule,
        lambda: symloss.GCE(weight=WEIGHT.clone(), ignore_index=1),
    ],
    ids=["cross-entropy", "multi-margin", "user-module", "own-module"],
)
@pytest.mark.parametrize("take", [symloss.symmetrize, symloss.decompose], ids=["symmetrize", "decompose"])
def test_the_loss_given_is_not_modified(make, take):
    given, untouched = make(), make()
    taken = take(given)
    for part in taken if isinstance(taken, tuple) else (taken,):
        part(SCORES, LABELS)
    plain = {key: value for key, value in vars(untouched).items() if isinstance(value, (int, float, str, type(None)))}
    assert {key: vars(given)[key] for key in plain} == plain
    assert set(vars(given)) == set(vars(untouched))
    assert_close(dict(given.state_dict()), dict(untouched.state_dict()))
    assert torch.equal(given(SCORES, LABELS), untouched(SCORES, LABELS))


def test_parameters_of_a_users_loss_train_with_the_model():
    robust = symloss.symmetrize(UserModule())
    (gain,) = robust.parameters()
    robust(random_scores(6, CLASSES), random_labels(6)).backward()
    assert gain.grad.isfinite().all()
    assert (gain.grad != 0).any()
    assert list(robust.state_dict()) == ["parts.0.gain"]
    assert robust.to(torch.float32)(random_scores(6, CLASSES).float(), random_labels(6)).dtype == torch.float32


@in_turn("training", [True, False])
def test_train_and_eval_reach_a_users_loss(training):
    """A loss with dropout must stop dropping in ``eval()``."""
    robust = symloss.symmetrize(NoisyModule()).train(training)
    expected = symloss.symmetrize(NoisyModule().train(training).forward)
    assert_close(robust(SCORES, LABELS), expected(SCORES, LABELS))


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


def test_symmetrize_keeps_the_options_of_our_modules():
    given = symloss.CE(normalize="l2", temperature=0.5, ignore_index=2, reduction="sum")
    expected = symloss.Unhinged(normalize="l2", temperature=0.5, ignore_index=2, reduction="sum")
    assert_close(symloss.symmetrize(given)(SCORES, LABELS), expected(SCORES, LABELS))


def test_symmetrize_of_an_expression_is_an_expression():
    robust = symloss.symmetrize(CEPotential())
    assert isinstance(robust, symloss.losses.Loss)
    assert torch.equal(robust(SCORES, LABELS), functional.unhinged(SCORES, LABELS, normalize=None))


def test_a_symmetrized_function_joins_the_algebra():
    robust = symloss.symmetrize(lambda z, y: cross_entropy(z, y, reduction="none"))
    raw, unit = functional.unhinged(SCORES, LABELS, normalize=None), functional.unhinged(SCORES, LABELS)
    assert_close((0.5 * robust + MAEPotential())(SCORES, LABELS), 0.5 * raw + functional.mae(SCORES, LABELS))
    assert_close(symloss.Criterion(robust, normalize="l2")(SCORES, LABELS), unit)
    assert_close(symloss.losses.blend(robust, 0.3)(SCORES, LABELS), raw)


def test_a_prior_leaves_out_masked_classes():
    """The mean under q is over the classes that are present, with q scaled to sum to 1 over them."""
    scores, labels = random_scores(*MASK.shape), MASK_LABELS
    values = symloss.symmetrize(CEPotential(), PRIOR)(masked(scores, MASK), labels, reduction="none")
    for value, row, label, mask in zip(values, scores, labels, MASK, strict=True):
        prior = PRIOR[mask] / PRIOR[mask].sum()
        assert_close(value, (prior * row[mask]).sum() - row[label])


@pytest.mark.parametrize("key", ["cross-entropy", "function"])
def test_masked_classes_of_torchs_cross_entropy(key):
    scores = random_scores(*MASK.shape)
    robust, unhinged = symloss.symmetrize(FOREIGN[key][0]()), symloss.Unhinged(normalize=None)
    expected = value_and_grad(unhinged, masked(scores, MASK), MASK_LABELS)
    assert_close(value_and_grad(robust, masked(scores, MASK), MASK_LABELS), expected)
