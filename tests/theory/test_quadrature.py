"""Quadrature of means under distributions: against known moments, scipy's integrals and plain sums."""

import itertools
import math

import pytest
import torch
from in_turn import in_turn
from refusals import refused
from scipy import integrate, stats
from torch import distributions as D  # noqa: N812

from symloss.theory.target_means import rule

DENSITIES = {
    "normal": (D.Normal(1.0, 2.0), stats.norm(1, 2)),
    "uniform": (D.Uniform(-1.0, 3.0), stats.uniform(-1, 4)),
    "laplace": (D.Laplace(0.5, 2.0), stats.laplace(0.5, 2)),
    "student": (D.StudentT(5.0), stats.t(5)),
    "gamma": (D.Gamma(2.0, 1.0), stats.gamma(2)),
    "narrow gamma": (D.Gamma(100.0, 1.0), stats.gamma(100)),
    "beta": (D.Beta(5.0, 2.0), stats.beta(5, 2)),
    "lognormal": (D.LogNormal(0.0, 0.5), stats.lognorm(0.5)),
    "gumbel": (D.Gumbel(0.0, 1.0), stats.gumbel_r()),
    "exponential": (D.Exponential(1.0), stats.expon()),
    "half-normal": (D.HalfNormal(1.0), stats.halfnorm()),
    "pareto": (D.Pareto(1.0, 6.0), stats.pareto(6)),
    "weibull": (D.Weibull(1.0, 2.0), stats.weibull_min(2)),
}


def mean(distribution, function, nodes=64):
    points, weights, *_ = rule(distribution, nodes)
    return (weights * function(points)).sum(0)


def logcosh(t):
    return (t.abs() + torch.log1p((-2 * t.abs()).exp())) - math.log(2)


@in_turn("name", DENSITIES)
def test_means_of_a_smooth_loss_and_moments(name):
    ours, theirs = DENSITIES[name]
    assert float(mean(ours, torch.ones_like)) == pytest.approx(1, abs=1e-12)
    assert float(mean(ours, lambda t: t)) == pytest.approx(theirs.mean(), rel=1e-8)
    assert float(mean(ours, torch.square)) == pytest.approx(theirs.var() + theirs.mean() ** 2, rel=1e-7)
    cuts = [theirs.ppf(level) for level in (0, 1e-12, 1e-4, 0.05, 0.5, 0.95, 1 - 1e-4, 1 - 1e-12, 1)]

    def density(t):
        return float(logcosh(torch.tensor(t - 0.7, dtype=torch.float64))) * theirs.pdf(t)

    pieces = [integrate.quad(density, a, b, epsabs=1e-13, limit=200)[0] for a, b in itertools.pairwise(cuts)]
    assert float(mean(ours, lambda t: logcosh(t - 0.7))) == pytest.approx(sum(pieces), abs=1e-8, rel=1e-8)


def test_heavy_tails_and_poles():
    """E|T| of Student's t with 1.5 degrees of freedom, by its formula; moments of densities with a pole at the end."""
    v = 1.5
    formula = 2 * math.sqrt(v) * math.gamma((v + 1) / 2) / (math.sqrt(math.pi) * math.gamma(v / 2) * (v - 1))
    assert float(mean(D.StudentT(v), torch.abs)) == pytest.approx(formula, rel=1e-9)
    pole = torch.tensor(0.3, dtype=torch.float64)
    assert float(mean(D.Gamma(pole, 1.0), torch.square)) == pytest.approx(0.3 * 1.3, rel=1e-9)
    assert float(mean(D.Beta(0.5, 0.5), torch.square)) == pytest.approx(3 / 8, rel=1e-7)


class Onesided(D.HalfNormal):
    """A density of the real line that is 0 on one side of its mode."""

    support = D.constraints.real

    def log_prob(self, value):
        return torch.where(value >= 0, super().log_prob(value.abs()), -math.inf)


def test_one_sided_densities():
    """A side without mass adds nothing. E 1 / (1 + T^2) of a half-Cauchy density, which has no mean, is a half.

    The ends are where terms that do not vanish show that a mean does not exist.
    """
    assert float(mean(Onesided(1.5), torch.abs)) == pytest.approx(1.5 * math.sqrt(2 / math.pi), rel=1e-7)
    assert float(mean(Onesided(1.5), torch.square)) == pytest.approx(1.5**2, rel=1e-7)
    assert float(mean(D.HalfCauchy(1.0), lambda t: 1 / (1 + t**2))) == pytest.approx(0.5, abs=1e-9)
    found = rule(D.HalfCauchy(1.0), 64)
    assert sorted(found.points[list(found.ends)].tolist()) == [float(found.points.min()), float(found.points.max())]


@in_turn(
    ("distribution", "moment"),
    [
        (D.Bernoulli(0.3), 0.3),
        (D.Categorical(torch.tensor([0.2, 0.3, 0.5])), 0.3 + 4 * 0.5),
        (D.Binomial(4, torch.tensor(0.5)), 1 + 4),
        (D.Poisson(3.0), 3 + 9),
        (D.Geometric(0.25), 12 + 9),
    ],
)
def test_whole_numbers_are_summed(distribution, moment):
    assert float(mean(distribution, torch.square)) == pytest.approx(moment, rel=1e-6)


@in_turn("kind", [D.Normal, D.Laplace, D.Gumbel])
def test_a_batch_is_one_rule_for_each_entry(kind):
    loc, scale = torch.tensor([[0.0, 1.0, -5.0]]), torch.tensor([[1.0], [0.2]])
    together = mean(kind(loc, scale), logcosh)
    alone = [[float(mean(kind(each, size), logcosh)) for each in loc[0]] for size in scale[:, 0]]
    torch.testing.assert_close(together, torch.tensor(alone, dtype=torch.float64), rtol=1e-6, atol=0)


def test_what_is_no_density_of_numbers_is_refused():
    with refused(ValueError, "single numbers", "MultivariateNormal", "(2,)"):
        rule(D.MultivariateNormal(torch.zeros(2), torch.eye(2)), 16)
    with refused(ValueError, "VonMises", "integrates to", "sample"):  # its density repeats without end
        rule(D.VonMises(0.0, 1.0), 64)
    with refused(ValueError, "Poisson", "too many values", "sample"):
        rule(D.Poisson(1e9), 64)
    for nodes in (1, 501, 2.5):
        with refused(ValueError, "nodes", "[2, 500]", nodes):
            rule(D.Normal(0.0, 1.0), nodes)
