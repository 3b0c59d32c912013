"""Regression: means by quadrature and in closed form, with their errors; linear losses; certificates; bad input."""

import copy
import functools
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from conftest import assert_close, generator
from in_turn import in_turn
from refusals import all_refused, refused
from scipy import integrate, stats
from torch import distributions as D, nn  # noqa: N812
from torch.nn import functional as F  # noqa: N812

from symloss.theory import regression
from symloss.theory.regression import UnhingedRegressionLoss, certify_regression, symmetrize_regression
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
    return t.abs() + torch.log1p((-2 * t.abs()).exp()) - math.log(2)


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


class Onesided(D.HalfNormal):
    """A density of the real line that is 0 on one side of its mode."""

    support = D.constraints.real

    def log_prob(self, value):
        return torch.where(value >= 0, super().log_prob(value.abs()), -math.inf)


HEAVY = 2 * math.sqrt(1.5) * math.gamma(1.25) / (math.sqrt(math.pi) * math.gamma(0.75) * 0.5)
MEANS = [
    (D.StudentT(1.5), torch.abs, HEAVY, 1e-9),  # of heavy tails, by its formula
    (D.Gamma(torch.tensor(0.3, dtype=torch.float64), 1.0), torch.square, 0.3 * 1.3, 1e-9),  # with a pole at the end
    (D.Beta(0.5, 0.5), torch.square, 3 / 8, 1e-7),
    (Onesided(1.5), torch.abs, 1.5 * math.sqrt(2 / math.pi), 1e-7),  # a side without mass adds nothing
    (Onesided(1.5), torch.square, 1.5**2, 1e-7),
    (D.HalfCauchy(1.0), lambda t: 1 / (1 + t**2), 0.5, 1e-9),  # which has no mean itself
    (D.Bernoulli(0.3), torch.square, 0.3, 1e-6),  # whole numbers are summed
    (D.Categorical(torch.tensor([0.2, 0.3, 0.5])), torch.square, 0.3 + 4 * 0.5, 1e-6),
    (D.Binomial(4, torch.tensor(0.5)), torch.square, 1 + 4, 1e-6),
    (D.Poisson(3.0), torch.square, 3 + 9, 1e-6),
    (D.Geometric(0.25), torch.square, 12 + 9, 1e-6),
]


@in_turn(("distribution", "function", "expected", "error"), MEANS)
def test_heavy_tails_poles_one_sided_densities_and_whole_numbers(distribution, function, expected, error):
    """The ends are where terms that do not vanish show that a mean does not exist."""
    assert float(mean(distribution, function)) == pytest.approx(expected, rel=error)
    found = rule(D.HalfCauchy(1.0), 64)
    assert sorted(found.points[list(found.ends)].tolist()) == [float(found.points.min()), float(found.points.max())]


@in_turn("kind", [D.Normal, D.Laplace, D.Gumbel])
def test_a_batch_is_one_rule_for_each_entry(kind):
    loc, scale = torch.tensor([[0.0, 1.0, -5.0]]), torch.tensor([[1.0], [0.2]])
    together = mean(kind(loc, scale), logcosh)
    alone = [[float(mean(kind(each, size), logcosh)) for each in loc[0]] for size in scale[:, 0]]
    torch.testing.assert_close(together, torch.tensor(alone, dtype=torch.float64), rtol=1e-6, atol=0)


Z = torch.tensor([-30.0, -4.0, -1.3, 0.0, 0.2, 1.0, 2.5, 7.0, 1000.0], dtype=torch.float64)
Y = torch.tensor([2.0, 0.1, -0.7, 0.0, 3.0, -9.0, 2.5, 1.0, -2.0], dtype=torch.float64)


def double(*values):
    return [torch.tensor(value, dtype=torch.float64) for value in values]


CORRUPTIONS = {
    "normal": D.Normal(*double(0.4, 1.5)),
    "uniform": D.Uniform(*double(-2.0, 3.5)),
    "laplace": D.Laplace(*double(-0.3, 0.8)),
    "mixture": D.MixtureSameFamily(D.Categorical(*double([0.25, 0.75])), D.Normal(*double([-4.0, 1.0], [0.5, 1.0]))),
}
PIECEWISE = {
    "squared": (nn.MSELoss(), lambda u: u**2),
    "absolute": (nn.L1Loss(), abs),
    "huber": (nn.HuberLoss(delta=0.7), lambda u: u**2 / 2 if abs(u) <= 0.7 else 0.7 * abs(u) - 0.7**2 / 2),
    "smooth": (nn.SmoothL1Loss(beta=0.5), lambda u: u**2 if abs(u) <= 0.5 else abs(u) - 0.25),
}


def by_scipy(plain, q, z):
    """The mean by adaptive integration, cut where the loss and the density have kinks."""
    low, high = (-2.0, 3.5) if isinstance(q, D.Uniform) else (-60.0, 60.0)
    cuts = {low, -8.0, -4.0, -2.0, -0.3, 0.4, 1.0, 3.5, high, *(z + k for k in (-0.7, -0.5, 0, 0.5, 0.7))}

    def density(t):
        return plain(z - t) * math.exp(float(q.log_prob(torch.tensor(t, dtype=torch.float64))))

    pairs = itertools.pairwise(sorted(cut for cut in cuts if low <= cut <= high))
    return sum(integrate.quad(density, a, b, epsabs=1e-12)[0] for a, b in pairs)


def assert_slope(robust):
    """The gradient of the mean against central differences of the mean itself, away from kinks."""
    z, h = (Z[1:-1] + 0.123).requires_grad_(), 1e-5
    (slope,) = torch.autograd.grad(robust.expected(z).sum(), z)
    with torch.no_grad():
        assert_close(slope, (robust.expected(z + h) - robust.expected(z - h)) / (2 * h), 1e-6)


@pytest.mark.slow
@in_turn("q", CORRUPTIONS.values())
@in_turn("name", PIECEWISE)
def test_closed_forms(name, q):
    loss, plain = PIECEWISE[name]
    robust = symmetrize_regression(loss, q, reduction="none")
    assert robust.method() == "closed form"
    assert not robust.error(Z).any()
    places = Z[[1, 2, 4, 6, 7]]
    expected = [by_scipy(plain, q, z) for z in places.tolist()]
    assert robust.expected(places).tolist() == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert_slope(robust)


@in_turn("name", PIECEWISE)
def test_closed_form_of_a_sample_is_its_mean(name):
    loss, plain = PIECEWISE[name]
    sample = 3 * torch.randn(500, dtype=torch.float64, generator=generator(0)) + 1
    sample[:3] = Z[[2, 4, 4]]  # predictions that meet a member of the sample
    robust = symmetrize_regression(loss, sample, reduction="none")
    assert robust.method() == "closed form"
    (expected,) = double([sum(plain(z - t) for t in sample.tolist()) / 500 for z in Z.tolist()])
    assert_close(robust.expected(Z), expected, 1e-12)
    (own,) = double([plain(u) for u in (Z - Y).tolist()])
    assert_close(robust(Z, Y), own - expected, 1e-9)
    assert_slope(symmetrize_regression(loss, Y))
    spread = np.std([plain(-t) for t in sample.tolist()], ddof=1) / math.sqrt(500)
    assert float(robust.error(torch.zeros(1))) == pytest.approx(spread)
    assert float(symmetrize_regression(loss, [3.0]).error(torch.zeros(1))) == math.inf


def test_functions_of_torch_are_known_too_and_squared_error_needs_moments_only():
    functions = F.mse_loss, F.l1_loss, F.huber_loss, F.smooth_l1_loss
    for function, module in zip(functions, (nn.MSELoss, nn.L1Loss, nn.HuberLoss, nn.SmoothL1Loss), strict=True):
        by_name, by_module = (symmetrize_regression(loss, Y, reduction="none") for loss in (function, module()))
        assert by_name.method() == "closed form"
        assert_close(by_name(Z, Y), by_module(Z, Y))
    for q in (D.Poisson(3.0), D.Exponential(0.5), D.Gumbel(0.0, 1.0), D.StudentT(3.0), D.Beta(0.5, 0.5)):
        robust = symmetrize_regression(nn.MSELoss(), q, reduction="none")
        assert robust.method() == "closed form"
        assert_close(robust(Z, Y), (Z - Y) ** 2 - (Z - q.mean.double()) ** 2 - q.variance.double(), 1e-6)


def test_smooth_losses_by_quadrature_with_an_honest_error():
    """Last, e^(6 t) under a normal density, of which a thousandth lies beyond the last point."""

    def linex(z, y):
        return (0.5 * (z - y)).exp() - 0.5 * (z - y) - 1

    z, shifted = Z[1:-1], 0.5 * (Z[1:-1] - 0.4)
    robust = symmetrize_regression(linex, D.Normal(0.4, 1.5), reduction="none")
    assert robust.method() == "quadrature"
    exact = (shifted + 0.125 * 1.5**2).exp() - shifted - 1
    assert_close(robust.expected(z), exact, 1e-6)  # float32 parameters of the distribution
    assert float(robust.error(z).max()) < 1e-9
    rough = symmetrize_regression(linex, D.Normal(0.0, 4.0), nodes=12, reduction="none")
    off = (rough.expected(z) - ((0.5 * z + 0.125 * 16).exp() - 0.5 * z - 1)).abs()
    assert float(off.max()) > 1e-6
    assert bool((off <= 1.01 * rough.error(z) + 1e-12).all())
    assert bool((rough.error(z) <= 300 * off).all())
    cut = symmetrize_regression(lambda z, y: (6 * (y - z)).exp(), D.Normal(*double(0.0, 1.0)))
    off = abs(float(cut.expected(Z[3])) - math.exp(18))
    assert 1e-4 < off / math.exp(18) < 1e-2
    assert off / 3 < float(cut.error(Z[3])) < 30 * off


@in_turn("nodes", [32, 64, 150])
def test_error_of_a_kink_is_stated(nodes):
    """A function of one's own with a kink: the error is rough, yet of the right size over a range of predictions."""
    z = torch.linspace(-2, 2, 41, dtype=torch.float64)
    mine = symmetrize_regression(lambda z, y: (z - y).abs(), D.Normal(0.0, 1.0), nodes=nodes, reduction="none")
    exact = symmetrize_regression(nn.L1Loss(), D.Normal(0.0, 1.0), reduction="none").expected(z)
    off = (mine.expected(z) - exact).abs()
    assert float(off.max()) > 1e-4
    assert float(off.max()) / 2 < float(mine.error(z).max()) < 4 * float(off.max())


def test_corruption_that_depends_on_x():
    def q(x):
        return D.Normal(x[..., 0], x[..., 1].exp())

    x, z = torch.randn(9, 2, dtype=torch.float64, generator=generator(1)), Z.clamp(-30, 30)
    for loss in (nn.HuberLoss(), lambda z, y: (z - y).cosh().log()):
        together = symmetrize_regression(loss, q, reduction="none")
        assert together.error(z, x).shape == Z.shape
        alone = [symmetrize_regression(loss, q(x[i]), reduction="none")(z[i], Y[i]) for i in range(9)]
        assert_close(together(z, Y, x), torch.stack(alone), 1e-9)
    assert symmetrize_regression(nn.HuberLoss(), q).method(x) == "closed form"
    with refused(TypeError, "x must be given", "None"):
        together(Z, Y)


def test_corruption_with_a_batch_and_outputs_of_several_numbers():
    q = D.Laplace(torch.tensor([0.0, 5.0]), torch.tensor([1.0, 2.0]))
    z, y = Z[:8].reshape(4, 2), Y[:8].reshape(4, 2)
    for loss in (nn.L1Loss(), nn.MSELoss(), lambda z, y: (z - y).square().log1p()):
        together = symmetrize_regression(loss, q, reduction="none")
        for k, (m, s) in enumerate([(0.0, 1.0), (5.0, 2.0)]):
            alone = symmetrize_regression(loss, D.Laplace(m, s), reduction="none")
            off = (together(z, y)[:, k] - alone(z[:, k], y[:, k])).abs()
            assert bool((off <= 1e-12 + together.error(z)[:, k] + alone.error(z[:, k])).all())
            assert float(off.max()) < 1e-3
    share, loc = double([[0.6, 0.4], [0.3, 0.7]], [[-1.0, 2.0], [0.5, 3.0]])
    mixture = D.MixtureSameFamily(D.Categorical(share), D.Normal(loc, torch.ones_like(loc)))
    for loss in (nn.HuberLoss(), lambda z, y: (z - y).square().log1p()):
        parts = [symmetrize_regression(loss, D.Normal(loc[:, k], 1.0)).expected(z) for k in range(2)]
        expected = share[:, 0] * parts[0] + share[:, 1] * parts[1]
        assert_close(symmetrize_regression(loss, mixture).expected(z), expected, 1e-9)


def test_reductions_precision_copies_and_pickles():
    q = D.Normal(0.0, 1.0)
    none, mean, total = (symmetrize_regression(nn.HuberLoss(), q, reduction=r) for r in ("none", "mean", "sum"))
    assert_close(mean(Z, Y), none(Z, Y).mean())
    assert_close(total(Z, Y), none(Z, Y).sum())
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        z, y = Z[1:8].to(dtype), Y[1:8].to(dtype)
        assert none(z, y).dtype == torch.float32
        assert_close(none(z, y).double(), none(z.double(), y.double()), 1e-6)
    # The reduction a loss came with is set aside, and the loss itself is left alone.
    inner = nn.HuberLoss(reduction="sum")
    assert_close(symmetrize_regression(inner, q, reduction="none")(Z, Y), none(Z, Y))
    assert inner.reduction == "sum"
    for twin in (copy.deepcopy(mean), pickle.loads(pickle.dumps(mean))):
        assert_close(twin(Z, Y), mean(Z, Y))
    assert "HuberLoss" in repr(mean)
    assert "Normal(loc: 0.0, scale: 1.0)" in repr(mean)


def test_means_that_do_not_exist_are_refused():
    for q in (D.Cauchy(0.0, 1.0), D.StudentT(1.5)):
        with refused(ValueError, "does not exist or needs more nodes", type(q).__name__, "error"):
            symmetrize_regression(nn.MSELoss(), q)
    with refused(ValueError, "Cauchy", "does not exist"):
        symmetrize_regression(lambda z, y: -y * z, D.Cauchy(0.0, 1.0))  # whose sum cancels by chance
    bounded = symmetrize_regression(lambda z, y: 1 - 1 / (1 + (z - y).square()), D.Cauchy(0.0, 1.0))
    assert float(bounded.expected(Z[3])) == pytest.approx(0.5, abs=1e-9)


LINE, TARGETS = torch.linspace(-4, 4, 9, dtype=torch.float64), Y.clamp(-7, 7)


def test_values_and_reductions():
    loss, mean, total = (UnhingedRegressionLoss(2.0, 1.0, reduction=each) for each in ("none", "mean", "sum"))
    pairs = zip(LINE.tolist(), TARGETS.tolist(), strict=True)
    (expected,) = double([-max(-2, min(2, y - 1)) * (z - 1) for z, y in pairs])
    assert_close(loss(LINE, TARGETS), expected)
    assert_close((mean(LINE, TARGETS), total(LINE, TARGETS)), (expected.mean(), expected.sum()))
    assert loss(LINE.half(), TARGETS.half()).dtype == torch.float32
    assert loss(LINE, TARGETS.round().long()).dtype == torch.float64
    assert "delta=2.0" in repr(loss)
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert_close(twin(LINE, TARGETS), expected)


def test_bounded_output():
    bounded = regression.BoundedOutput(3.0, 1.0)
    z = torch.tensor([-1e9, 1e9, 1.0], dtype=torch.float64, requires_grad=True)
    assert bounded(z).tolist() == pytest.approx([-2, 4, 1])
    assert torch.autograd.grad(bounded(z).sum(), z)[0].tolist() == [0, 0, 1]  # the linear approximation is untouched
    linear = regression.LinearRegressionLoss(torch.neg, bound=3.0, reduction="none")
    for loss in (UnhingedRegressionLoss(None, 1.0, bound=3.0, reduction="none"), linear):
        assert float(loss(1e9 * LINE, TARGETS).abs().max()) <= 3 * 8
    q = D.Normal(1.0, 2.0)  # a bound keeps the symmetry
    for bound in (None, 0.5, 5.0):
        assert certify_regression(UnhingedRegressionLoss(None, 1.0, bound=bound), q).symmetric
        assert certify_regression(regression.LinearRegressionLoss(torch.neg, q, bound=bound), q).symmetric
    assert not certify_regression(UnhingedRegressionLoss(None, 1.0, bound=0.5), q).affine


def test_linear_loss_under_a_corruption_that_depends_on_x():
    q = functools.partial(D.Normal, scale=1.0)
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)
    loss = regression.LinearRegressionLoss(lambda y: -y, q, reduction="none")
    assert_close(loss(LINE, TARGETS, x), -(TARGETS - x) * LINE, 1e-9)
    assert_close(loss.mean(x), -x, 1e-9)
    assert certify_regression(loss, q, x=x).symmetric
    fixed = regression.LinearRegressionLoss(lambda y: -y, D.Normal(0.0, 1.0))
    shifted = certify_regression(fixed, q, x=x)
    assert not shifted.symmetric
    assert shifted.symmetric.measure == pytest.approx(20, rel=1e-6)


def train(penalty=lambda network: 0, bound=None, layers=3, steps=400):
    """A bias-free network under a linear loss: how large its outputs get."""
    torch.manual_seed(0)
    x = torch.randn(64, 5, dtype=torch.float64, generator=generator(1))
    y = x[:, 0] - x[:, 1]
    sizes = [5, *[8] * (layers - 1), 1]
    parts = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b, bias=False), nn.ReLU())]
    network = nn.Sequential(*parts[:-1]).double()
    loss = UnhingedRegressionLoss(bound=bound)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    for _ in range(steps):
        z = network(x).squeeze(1)
        if not bool((z.abs() < 1e6).all()):
            return math.inf
        optimizer.zero_grad()
        (loss(z, y) + penalty(network)).backward()
        optimizer.step()
    return float((regression.BoundedOutput(bound)(network(x)) if bound else network(x)).detach().abs().max())


@pytest.mark.slow
def test_what_keeps_a_deep_network_finite():
    """Nothing: it diverges. Plain weight decay: too weak. A power that fits the depth, or a bound: finite."""
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    squares = sum(float(w.detach().square().sum()) for w in network.parameters())
    for layers in (1, 2, 3):
        found = regression.weight_decay(network, 0.6, layers).item()
        assert found == pytest.approx(0.3 * squares**layers, rel=1e-5)
    assert train() == math.inf
    assert train(lambda network: regression.weight_decay(network, 0.1)) == math.inf
    assert train(lambda network: regression.weight_decay(network, 0.1, layers=3)) < 100
    assert train(bound=2.0) <= 2
    assert train(lambda network: regression.weight_decay(network, 1.0), layers=1) < 100


def test_counter_examples_hold_up():
    """What a certificate says of two predictions is true of them, by the formula."""
    q = D.Normal(0.5, 2.0)
    squared = certify_regression(nn.MSELoss(), q)
    example = squared.symmetric.counter_example
    (a,), (b,) = example.scores["a"], example.scores["b"]
    assert (a - 0.5) ** 2 - (b - 0.5) ** 2 == pytest.approx(squared.symmetric.measure, rel=1e-9)
    assert (a, b) == pytest.approx((-10, 0.5))
    assert squared.convex
    assert not squared.affine
    assert squared.affine.measure == pytest.approx(100)  # midway from -10 to 10
    welsch = certify_regression(lambda z, y: 1 - (-(z - y).square() / 2).exp(), q, low=-5.0, high=5.0)
    assert not welsch.convex
    assert welsch.convex.counter_example is not None
    assert all(part in str(welsch) for part in ("no   symmetric", "predictions from -5 to 5"))
    # The mean is taken by quadrature, which feels a kink, though the loss itself has a closed form.
    q = D.Normal(0.0, 1.0)
    loss = symmetrize_regression(nn.L1Loss(), q)
    assert loss.method() == "closed form"
    assert certify_regression(loss, q).symmetric
    assert all(certify_regression(each, q).error > 1e-6 for each in (loss, nn.L1Loss()))


def test_bad_input():
    q, own = D.Normal(0.0, 1.0), D.Normal(torch.zeros(4), 1.0)
    for wrong in (None, 3, "normal", object()):
        with refused(TypeError, "corruption must be", "distribution", "sample"):
            symmetrize_regression(nn.MSELoss(), wrong)
    for nodes in (3, 161, 10.5):
        with refused(ValueError, "nodes", "[4, 160]", nodes):
            symmetrize_regression(nn.MSELoss(), q, nodes=nodes)
    for loss in (nn.MSELoss(), lambda z, y: (z - y) ** 2):
        with refused(ValueError, "batch must broadcast", "(4,)"):
            symmetrize_regression(loss, own)(torch.zeros(3), torch.zeros(3))
    robust, linear = symmetrize_regression(nn.MSELoss(), q), regression.LinearRegressionLoss

    def squared(*given, **options):
        return lambda: symmetrize_regression(nn.MSELoss(), *given, **options)

    def certify(loss=robust, corruption=q, **options):
        return lambda: certify_regression(loss, corruption, **options)

    all_refused(
        (TypeError, "loss ... function of (input, target) ... MSELoss", lambda: symmetrize_regression(nn.MSELoss, q)),
        (ValueError, "one value for each prediction ... shape ()", lambda: symmetrize_regression(torch.dist, q)),
        (ValueError, "Normal ... finite parameters ... inf", squared(D.Normal(math.inf, 1.0))),
        (ValueError, "sample ... (M,) ... (2, 2)", squared(torch.zeros(2, 2))),
        (ValueError, "sample ... (0,)", squared([])),
        (ValueError, "sample ... finite", squared([1.0, math.nan])),
        (TypeError, "sample ... real ... bool", squared(torch.tensor([True]))),
        (ValueError, "reduction ... 'mean' ... 'avg'", squared(q, reduction="avg")),
        (ValueError, "target must have the input's shape (9, 1) ... (9,)", lambda: robust(LINE[:, None], LINE)),
        (TypeError, "input ... torch.int64", lambda: robust(LINE.long(), LINE)),
        (TypeError, "target ... list", lambda: robust(torch.zeros(1), [0.0])),
        (ValueError, "delta ... (0, inf) ... 0", lambda: UnhingedRegressionLoss(0)),
        (ValueError, "corruption_mean ... inf", lambda: UnhingedRegressionLoss(corruption_mean=math.inf)),
        (ValueError, "reduction ... 'avg'", lambda: UnhingedRegressionLoss(reduction="avg")),
        (ValueError, "shape (9,) ... (9, 1)", lambda: UnhingedRegressionLoss()(LINE, TARGETS[:, None])),
        (TypeError, "f must be a function ... 2", lambda: linear(2)),
        (ValueError, "Cauchy ... does not exist", lambda: linear(torch.neg, D.Cauchy(0.0, 1.0))),
        (ValueError, "f must return one number ... (9,) ... shape ()", lambda: linear(torch.sum)(LINE, TARGETS)),
        (ValueError, "batch must broadcast ... (4,)", lambda: linear(torch.neg, own)(LINE, TARGETS)),
        (ValueError, "bound ... (0, inf) ... 0", lambda: regression.BoundedOutput(0)),
        (ValueError, "decay ... (0, inf) ... 0", lambda: regression.weight_decay([LINE], 0)),
        (ValueError, "layers ... [1, inf) ... 0", lambda: regression.weight_decay([LINE], 1.0, 0)),
        (ValueError, "parameters ... at least one", lambda: regression.weight_decay([], 1.0)),
        (TypeError, "parameters ... float", lambda: regression.weight_decay([1.0], 1.0)),
        (TypeError, "loss ... MSELoss", certify(nn.MSELoss)),
        (ValueError, "points ... [5, 100000] ... 2", certify(points=2)),
        (ValueError, "low must be below high ... 2 ... 1", certify(low=2.0, high=1.0)),
        (ValueError, "does not exist ... Cauchy", certify(lambda z, y: -y * z, D.Cauchy(0.0, 1.0))),
        (TypeError, "x must be given", certify(corruption=lambda x: D.Normal(x, 1.0))),
        # The quadrature.
        (ValueError, "single numbers ... (2,)", lambda: rule(D.MultivariateNormal(torch.zeros(2), torch.eye(2)), 16)),
        (ValueError, "VonMises ... integrates to ... sample", lambda: rule(D.VonMises(0.0, 1.0), 64)),  # it repeats
        (ValueError, "Poisson ... too many values ... sample", lambda: rule(D.Poisson(1e9), 64)),
        *((ValueError, f"nodes ... [2, 500] ... {n}", lambda n=n: rule(q, n)) for n in (1, 501, 2.5)),
    )
