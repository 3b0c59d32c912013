"""Appendix E: the prior that a symmetrized likelihood corresponds to, as a distribution, a loss and a picture."""

import math
import sys

import numpy as np
import pytest
import torch
from conftest import assert_close, random_labels, random_scores
from in_turn import in_turn
from refusals import all_refused, refused
from scipy import integrate, stats
from torch.nn import functional as F  # noqa: N812

import symloss
from symloss.losses.potentials import CEPotential
from symloss.theory.priors import DirichletPenalty, plot_prior, symmetrizing_prior

Z, Y = random_scores(16, 4), random_labels(16)


def test_lemma_e_1_alpha():
    """The prior has alpha = (C - 1) / C. ``test_paper.py`` proves that no other number gives a symmetric loss."""
    for classes in (2, 3, 10):
        alpha = symmetrizing_prior(classes).concentration
        assert_close(alpha, torch.full((classes,), (classes - 1) / classes, dtype=torch.float64))


def test_appendix_e_binary_prior_is_beta():
    prior = symmetrizing_prior(2)
    p = torch.linspace(0.01, 0.99, 33, dtype=torch.float64)
    density = prior.log_prob(torch.stack([p, 1 - p], 1)).exp()
    assert_close(density, torch.from_numpy(stats.beta(0.5, 0.5).pdf(p.numpy())), 1e-9)


def test_appendix_e_penalty_is_the_log_density_of_the_prior():
    """Up to a constant, for any alpha; with the likelihood it is the negative log-posterior of one example."""
    alpha = torch.tensor([0.3, 0.9, 1.7, 0.5], dtype=torch.float64)
    for penalty, concentration in (
        (DirichletPenalty(alpha, "none"), alpha),
        (DirichletPenalty(0.4, "none"), torch.full((4,), 0.4, dtype=torch.float64)),
        (DirichletPenalty(reduction="none"), symmetrizing_prior(4).concentration),
    ):
        found = penalty(Z) + torch.distributions.Dirichlet(concentration).log_prob(Z.softmax(1))
        assert_close(found, found[:1].expand(16), 1e-9)
        both = F.cross_entropy(Z, Y, reduction="none") + penalty(Z)
        assert_close(both, symloss.losses.dirichlet(CEPotential(), concentration)(Z, Y, reduction="none"), 1e-10)


def test_appendix_e_the_prior_favours_less_entropy():
    """Along a line from doubt to certainty the penalty falls; with alpha above 1 it rises."""
    direction = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    line = torch.linspace(0, 10, 21, dtype=torch.float64)[:, None] * direction
    assert bool((DirichletPenalty(reduction="none")(line).diff() < 0).all())
    assert bool((DirichletPenalty(3.0, "none")(line).diff() > 0).all())


def test_a_prior_of_the_labels():
    """symmetrize(CE, prior=q) is the posterior under Dirichlet(1 - q)."""
    q = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    prior = symmetrizing_prior(4, q)
    assert_close(prior.concentration, 1 - q)
    assert_close(symmetrizing_prior(4, q.tolist()).concentration, 1 - q)
    robust = symloss.symmetrize(CEPotential(), prior=q)(Z, Y, reduction="none")
    both = F.cross_entropy(Z, Y, reduction="none") + DirichletPenalty(prior.concentration, "none")(Z)
    assert_close(both, robust, 1e-10)


# A prior that depends on x: alpha_k(x), here for examples x of two features.
X = random_scores(16, 2, seed=5)
TURN = random_scores(2, 4, seed=6)


def alpha_of(x):
    return 0.2 + (x @ TURN).sigmoid()


def test_appendix_e_alpha_that_depends_on_x():
    """Each example has the prior Dirichlet(alpha(x)): the log-posterior of all of them, but for a constant of x."""
    penalty = DirichletPenalty(alpha_of, "none")
    found = penalty(Z, X)
    for z, x, value in zip(Z, X, found, strict=True):
        assert_close(DirichletPenalty(alpha_of(x), "none")(z), value, 1e-10)
    prior = torch.distributions.Dirichlet(alpha_of(X))
    doubt = torch.zeros_like(Z)
    density = prior.log_prob(Z.softmax(1)) - prior.log_prob(doubt.softmax(1))
    assert_close(found - penalty(doubt, X), -density, 1e-9)
    assert_close(DirichletPenalty(alpha_of)(Z, X), found.mean())


def test_appendix_e_a_prior_of_the_labels_that_depends_on_x():
    """With alpha_k(x) = 1 - q_k(x) the mean of the loss under q(x) is the same at all scores: lemma E.1 at each x."""
    q = (X @ TURN).softmax(1)
    for shift, symmetric in ((0.0, True), (0.1, False)):
        penalty = DirichletPenalty(lambda x, shift=shift: 1 + shift - (x @ TURN).softmax(1), "none")
        loss = torch.stack([F.cross_entropy(Z, torch.full((16,), k), reduction="none") for k in range(4)], 1)
        mean = (q * (loss + penalty(Z, X)[:, None])).sum(1)
        assert bool((mean.abs() < 1e-10).all()) == symmetric


def test_shapes_of_alpha_of_x():
    none = DirichletPenalty(0.5, "none")(Z)
    image = Z.T.reshape(1, 4, 4, 4)
    for shape in ((), (4,), (16, 1), (16, 4)):
        assert_close(DirichletPenalty(lambda x, shape=shape: torch.full(shape, 0.5), "none")(Z, X), none)
    for shape in ((), (4,), (1, 1, 4, 4), (1, 4, 4, 4)):
        found = DirichletPenalty(lambda x, shape=shape: torch.full(shape, 0.5), "none")(image, X)
        assert_close(found.flatten(), none)
    network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Softplus()).double()
    module = DirichletPenalty(network)
    module(Z, X).backward()
    assert network[0].weight.grad is not None
    assert "alpha=alpha_of(x)" in repr(DirichletPenalty(alpha_of))
    assert "alpha=Sequential(x)" in repr(module)


def test_bad_alpha_of_x():
    with refused(TypeError, "x must be given", "None"):
        DirichletPenalty(alpha_of)(Z)
    with refused(ValueError, "alpha(x)", "(4,), (16, 1)", "(16, 4)", "(16, 2)"):
        DirichletPenalty(lambda x: x.abs() + 1)(Z, X)
    with refused(ValueError, "alpha(x)", "above 0", "-3"):
        DirichletPenalty(lambda x: torch.tensor(-3.0))(Z, X)
    for value, given in ((3, "int"), (torch.tensor(3), "torch.int64")):
        with refused(TypeError, "alpha(x)", "floating-point tensor", given):
            DirichletPenalty(lambda x, value=value: value)(Z, X)


def test_shapes_masks_precision_and_reductions():
    none = DirichletPenalty(reduction="none")
    assert_close(DirichletPenalty()(Z), none(Z).mean())
    assert_close(DirichletPenalty(reduction="sum")(Z), none(Z).sum())
    assert_close(none(Z[0]), none(Z)[0])
    image = Z.T.reshape(1, 4, 4, 4)
    assert_close(none(image).flatten(), none(Z))
    masked = torch.cat([Z, torch.full((16, 2), -math.inf, dtype=torch.float64)], 1)
    assert_close(none(masked), none(Z))
    assert none(Z.bfloat16()).dtype == torch.float32
    alpha = torch.tensor([0.5, 0.6, 0.7, 0.8])
    assert "alpha" in DirichletPenalty(alpha).state_dict()
    assert "(C - 1) / C" in repr(none)


def test_bad_input():
    for alpha in (0, -1.0, math.inf):
        with refused(ValueError, "alpha", "(0, inf)"):
            DirichletPenalty(alpha)
    all_refused(
        (ValueError, "classes ... [2, inf) ... 1", lambda: symmetrizing_prior(1)),
        (ValueError, "prior ... sum to 1 ... 0.9", lambda: symmetrizing_prior(2, [0.5, 0.4])),
        (ValueError, "prior ... (3,) ... (2,)", lambda: symmetrizing_prior(3, [0.5, 0.5])),
        (ValueError, "prior ... one class", lambda: symmetrizing_prior(2, [1.0, 0.0])),
        (ValueError, "alpha ... above 0 ... -1", lambda: DirichletPenalty(torch.tensor([1.0, -1.0]))),
        (ValueError, "alpha ... above 0 ... inf", lambda: DirichletPenalty(torch.tensor([1.0, math.inf]))),
        (ValueError, "alpha ... (4,) ... (2,)", lambda: DirichletPenalty(torch.ones(2))(Z)),
        (ValueError, "reduction ... 'avg'", lambda: DirichletPenalty(reduction="avg")),
        (TypeError, "input ... torch.int64", lambda: DirichletPenalty()(torch.zeros(2, 3, dtype=torch.long))),
    )


@in_turn("classes", [2, 3])
def test_picture(classes, tmp_path):
    """The density of the probability of one class: integrated over the others, by scipy."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "prior.png"
    axes, penalties = plot_prior(classes, path).axes
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["prior.png"]
    alpha = 1 - 1 / classes
    p, density = axes.get_lines()[0].get_data()
    some = [k for k in range(0, 801, 80) if 0.01 < p[k] < 0.99]
    prior = stats.dirichlet([alpha] * classes)
    if classes == 2:
        expected = [prior.pdf([p[k], 1 - p[k]]) for k in some]
    else:
        expected = [integrate.quad(lambda q, r=p[k]: prior.pdf([r, q, 1 - r - q]), 0, 1 - p[k])[0] for k in some]
    assert density[some] == pytest.approx(expected, rel=1e-5)
    assert axes.get_lines()[0].get_label() == f"Beta({alpha:.3g}, {(classes - 1) * alpha:.3g}), symmetrized"
    _, penalty = penalties.get_lines()[0].get_data()
    rest = (1 - p) / (classes - 1)
    assert penalty == pytest.approx((1 - alpha) * (np.log(p) + (classes - 1) * np.log(rest)), rel=1e-6)


def test_picture_refuses_bad_input(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    all_refused(
        (ValueError, "classes ... [2, inf) ... 1", lambda: plot_prior(1)),
        (ValueError, "path ... 'png' ... 'txt'", lambda: plot_prior(2, tmp_path / "prior.txt")),
        (FileNotFoundError, "folder ... none", lambda: plot_prior(2, tmp_path / "none" / "prior.png")),
    )
    assert not list(tmp_path.iterdir())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with refused(ImportError, "matplotlib", "symloss[plot]"):
        plot_prior(2)
