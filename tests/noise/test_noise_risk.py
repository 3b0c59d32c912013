"""Appendix A on data: the risk under noise, directly and by the identity, against labels that are really drawn."""

import itertools

import numpy as np
import pytest
import torch
from conftest import generator, random_scores
from in_turn import in_turn
from refusals import all_refused
from torch import nn

import symloss
from symloss.noise import corrupt, noisy_risk, parse, transition_matrix

CLASSES = 4
SCORES = random_scores(50, CLASSES, seed=3).double()
LABELS = torch.randint(CLASSES, (50,), generator=generator(1))
PAIR = transition_matrix(parse("pair:0.3"), CLASSES)


def own(z, y):
    return (1 - z.softmax(1).gather(1, y[:, None])[:, 0]).square()


LOSSES = {
    "ce": symloss.CE(),
    "mae": symloss.MAE(),
    "unhinged": symloss.Unhinged(),
    "sgce": "sgce:q=0.8",
    "nce+rce": "nce+rce",
    "weighted": symloss.SGCE(weight=[1.0, 2.0, 0.5, 1.0]),
    "smooth": symloss.CE(label_smoothing=0.3),
    "torch": nn.CrossEntropyLoss(),
    "own": own,
}
SYMMETRIC = {"mae", "unhinged", "sgce", "nce+rce", "weighted"}


def by_hand(loss, z, y):
    """The loss of every example at a label, by the module itself, one example at a time."""
    if loss is own:
        return own(z, y)
    module = symloss.create_loss(loss) if isinstance(loss, str) else loss
    return torch.stack([module(row[None], label[None]) for row, label in zip(z, y, strict=True)])


@in_turn("name", LOSSES)
@in_turn(("noise", "p"), [("sym-any:0.6", 0.6), ("sym:0.6", 0.8), ("clean", 0.0), (PAIR, 0.4)])
def test_both_sides_of_the_identity(name, noise, p):
    """The p/C E[sum_k L] + (1 - p) L_D of the paper, from the module's own values; a rest only without uniformity."""
    loss = LOSSES[name]
    found = noisy_risk(SCORES, LABELS, loss, noise)
    clean = by_hand(loss, SCORES, LABELS).mean()
    labels = [torch.full_like(LABELS, k) for k in range(CLASSES)]
    # Class weights: a mean over one example divides by its weight, so they are taken without reduction.
    if name == "weighted":
        module = symloss.SGCE(weight=[1.0, 2.0, 0.5, 1.0], reduction="none")
        clean, every = module(SCORES, LABELS).mean(), torch.stack([module(SCORES, y) for y in labels], 1)
    else:
        every = torch.stack([by_hand(loss, SCORES, y) for y in labels], 1)
    assert found.p == pytest.approx(p)
    assert found.clean == pytest.approx(float(clean))
    assert found.p * found.insensitive == pytest.approx(p / CLASSES * float(every.sum(1).mean()), abs=1e-12)
    assert (found.low, found.high) == pytest.approx([float(end) for end in every.mean(1).aminmax()], abs=1e-12)
    assert found.constant == (name in SYMMETRIC)
    assert found.noisy == pytest.approx(found.identity, abs=1e-12)
    transition = torch.as_tensor(PAIR if noise is PAIR else transition_matrix(parse(noise), CLASSES))
    assert found.noisy == pytest.approx(float((transition[LABELS] * every).sum(1).mean()), abs=1e-12)
    assert (found.remainder == 0) == (noise is not PAIR)
    assert found.examples == 50


def test_the_risk_is_that_of_labels_that_were_drawn():
    draws = [
        corrupt(LABELS.numpy(), "sym:0.4", num_classes=CLASSES, seed=s, counts="sampled").labels for s in range(400)
    ]
    measured = [float(symloss.CE()(SCORES, torch.as_tensor(labels))) for labels in draws]
    error = np.std(measured) / 20
    assert abs(noisy_risk(SCORES, LABELS, "ce", "sym:0.4").noisy - np.mean(measured)) < 4 * error < 0.1


def test_a_symmetric_loss_ranks_models_as_clean_labels_do():
    """Over many models the noisy risk is affine in the clean one; that of cross-entropy is not."""
    models = [SCORES * scale + shift for scale, shift in itertools.product((0.1, 1, 5), (0, SCORES.flip(0)))]
    for loss, ranks in (("sgce", True), ("ce", False)):
        found = [noisy_risk(model, LABELS, loss, "sym:0.6") for model in models]
        rest = [each.noisy - (1 - each.p) * each.clean for each in found]
        assert (np.ptp(rest) < 1e-12) == ranks


def test_kinds_of_input():
    expected = noisy_risk(SCORES, LABELS, "ce", "sym:0.3")
    one_hot = nn.functional.one_hot(LABELS, CLASSES).double()
    for labels in (LABELS.tolist(), LABELS.numpy(), LABELS.int(), one_hot, one_hot.tolist()):
        assert noisy_risk(SCORES.numpy(), labels, "ce", parse("sym:0.3")) == expected
    matrix = torch.tensor(transition_matrix(parse("sym:0.3"), CLASSES))
    for noise in (matrix, matrix.tolist()):
        assert noisy_risk(SCORES.requires_grad_(), LABELS, "ce", noise).noisy == pytest.approx(expected.noisy)
    SCORES.requires_grad_(False)
    # Soft labels: the mixture of the risks at each label. Prior noise: draws by the frequencies of the labels.
    uniform = torch.full((50, CLASSES), 1 / CLASSES)
    soft = noisy_risk(SCORES, uniform, "ce", "sym:0.3")
    assert soft.clean == pytest.approx(soft.insensitive)
    frequencies = np.bincount(LABELS, minlength=CLASSES) / 50
    prior = noisy_risk(SCORES, LABELS, "ce", "prior:0.4")
    given = noisy_risk(SCORES, LABELS, "ce", 0.6 * np.eye(CLASSES) + 0.4 * frequencies)
    assert prior.noisy == pytest.approx(given.noisy)
    ten = random_scores(20, 10, seed=4)
    assert noisy_risk(ten, [7] * 20, "ce", "asym:0.4", dataset="mnist").remainder != 0


def test_what_it_prints():
    text = repr(noisy_risk(SCORES, LABELS, "mae", "sym-any:0.6"))
    assert "p = 0.6, constant over 50 examples" in text
    assert "remainder" not in text
    text = repr(noisy_risk(SCORES, LABELS, "ce", PAIR))
    assert "constant" not in text
    assert [line.split("  ")[0].strip() or line.split()[0] for line in text.splitlines()] == [
        "noisy risk", "p", "(1", "remainder", "by the identity",
    ]  # fmt: skip


def test_bad_input():
    def risk(scores=SCORES, labels=LABELS, loss="ce", noise="sym:0.3"):
        return lambda: noisy_risk(scores, labels, loss, noise)

    nan = SCORES.clone()
    nan[3, 2] = torch.nan
    all_refused(
        (ValueError, "scores ... (N, C) ... (4,)", risk(scores=SCORES[0])),
        (ValueError, "scores ... C at least 2 ... (50, 1)", risk(scores=SCORES[:, :1])),
        (TypeError, "scores must be an array of numbers ... 'x'", risk(scores="x")),
        (ValueError, "labels must have shape (50,) or (50, 4); got (3,)", risk(labels=LABELS[:3])),
        (ValueError, "labels must have shape (50, 4); got (50, 3)", risk(labels=torch.ones(50, 3) / 3)),
        (ValueError, "labels must be 0 to 3 ... got 9", risk(labels=LABELS + 9 * (LABELS == 0))),
        (ValueError, "labels must be 0 to 3 ... got -100", risk(labels=[-100] * 50)),
        (TypeError, "labels ... whole numbers ... float64", risk(labels=LABELS.double())),
        (ValueError, "rows of the noise must sum to 1 ... 0.9", risk(noise=0.9 * np.eye(4))),
        (ValueError, "noise must have shape (4, 4); got (4,)", risk(noise=np.ones(4) / 4)),
        (TypeError, "noise must be 'sym:0.3' ... 'sym-any:0.3' ... got the number 0.3", risk(noise=0.3)),
        (ValueError, "noise must be of a kind that has a transition matrix ... instance", risk(noise="instance:0.3")),
        (ValueError, "finite at every label ... nan in row 3 at label 0", risk(scores=nan)),
    )
