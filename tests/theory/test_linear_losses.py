"""Modules for networks: linear losses, bounds on the output, weight decay; and certificates of regression losses."""

import itertools
import math

import pytest
import torch
from conftest import assert_close, generator
from refusals import all_refused, refused
from torch import (
    distributions as D,  # noqa: N812
    nn,
)

from symloss.theory.regression import (
    BoundedOutput,
    LinearRegressionLoss,
    UnhingedRegressionLoss,
    certify_regression,
    symmetrize_regression,
    weight_decay,
)

Z = torch.linspace(-4, 4, 9, dtype=torch.float64)
Y = torch.tensor([0.0, 3.0, -1.0, 2.0, 8.0, -6.0, 0.5, 1.0, -0.2], dtype=torch.float64)


def test_unhinged_is_half_the_symmetrized_squared_error():
    """For any mean of the corruption, up to what does not read the prediction."""
    for q in (D.Normal(1.5, 2.0), D.Exponential(0.5), D.Uniform(-1.0, 4.0)):
        m = float(q.mean)
        half = symmetrize_regression(nn.MSELoss(), q, reduction="none")(Z, Y) / 2
        rest = half - UnhingedRegressionLoss(corruption_mean=m, reduction="none")(Z, Y)
        assert_close(rest, ((Y - m) ** 2 - float(q.variance)) / 2, 1e-6)


def test_values_and_reductions():
    loss = UnhingedRegressionLoss(2.0, 1.0, reduction="none")
    expected = torch.tensor([-max(-2, min(2, y - 1)) * (z - 1) for z, y in zip(Z.tolist(), Y.tolist(), strict=True)])
    assert_close(loss(Z, Y), expected.double(), 1e-6)
    assert_close(UnhingedRegressionLoss(2.0, 1.0)(Z, Y), loss(Z, Y).mean())
    assert_close(UnhingedRegressionLoss(2.0, 1.0, reduction="sum")(Z, Y), loss(Z, Y).sum())
    assert loss(Z.half(), Y.half()).dtype == torch.float32
    assert loss(Z, Y.round().long()).dtype == torch.float64
    assert "delta=2.0" in repr(loss)


def test_bounded_output():
    bounded = BoundedOutput(3.0, 1.0)
    far = torch.tensor([-1e9, 1e9, 1.0], dtype=torch.float64)
    assert_close(bounded(far), torch.tensor([-2.0, 4.0, 1.0], dtype=torch.float64))
    z = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    assert float(torch.autograd.grad(bounded(z), z)[0]) == 1  # the linear approximation is untouched
    linear = LinearRegressionLoss(torch.neg, bound=3.0, reduction="none")
    for loss in (UnhingedRegressionLoss(None, 1.0, bound=3.0, reduction="none"), linear):
        assert float(loss(1e9 * Z, Y).abs().max()) <= 3 * 8
    with refused(ValueError, "bound", "(0, inf)", 0):
        BoundedOutput(0)


def test_a_bound_keeps_the_symmetry():
    q = D.Normal(1.0, 2.0)
    for bound in (None, 0.5, 5.0):
        assert certify_regression(UnhingedRegressionLoss(None, 1.0, bound=bound), q).symmetric
        assert certify_regression(LinearRegressionLoss(torch.neg, q, bound=bound), q).symmetric
    assert not certify_regression(UnhingedRegressionLoss(None, 1.0, bound=0.5), q).affine


def test_linear_loss_under_a_corruption_that_depends_on_x():
    def q(x):
        return D.Normal(x, 1.0)

    x = torch.linspace(-1, 1, 9, dtype=torch.float64)
    loss = LinearRegressionLoss(lambda y: -y, q, reduction="none")
    assert_close(loss(Z, Y, x), -(Y - x) * Z, 1e-9)
    assert_close(loss.mean(x), -x, 1e-9)
    assert certify_regression(loss, q, x=x).symmetric
    fixed = LinearRegressionLoss(lambda y: -y, D.Normal(0.0, 1.0))
    shifted = certify_regression(fixed, q, x=x)
    assert not shifted.symmetric
    assert shifted.symmetric.measure == pytest.approx(20, rel=1e-6)


def train(penalty=None, bound=None, layers=3, steps=400):
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
        value = loss(z, y)
        if penalty is not None:
            value = value + penalty(network)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    final = BoundedOutput(bound)(network(x)) if bound else network(x)
    return float(final.detach().abs().max())


@pytest.mark.slow
def test_what_keeps_a_deep_network_finite():
    """Nothing: it diverges. Plain weight decay: too weak. A power that fits the depth, or a bound: finite."""
    assert train() == math.inf
    assert train(lambda network: weight_decay(network, 0.1)) == math.inf
    assert train(lambda network: weight_decay(network, 0.1, layers=3)) < 100
    assert train(bound=2.0) <= 2
    assert train(lambda network: weight_decay(network, 1.0), layers=1) < 100


def test_weight_decay_values():
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    squares = sum(float(w.detach().square().sum()) for w in network.parameters())
    for layers in (1, 2, 3):
        assert float(weight_decay(network, 0.6, layers).detach()) == pytest.approx(0.3 * squares**layers, rel=1e-5)
    all_refused(
        (ValueError, "decay ... (0, inf) ... 0", lambda: weight_decay(network, 0)),
        (ValueError, "layers ... [1, inf) ... 0", lambda: weight_decay(network, 1.0, 0)),
        (ValueError, "parameters ... at least one", lambda: weight_decay([], 1.0)),
        (TypeError, "parameters ... float", lambda: weight_decay([1.0], 1.0)),
    )


def test_bad_input_of_losses():
    all_refused(
        (ValueError, "delta ... (0, inf) ... 0", lambda: UnhingedRegressionLoss(0)),
        (ValueError, "corruption_mean ... inf", lambda: UnhingedRegressionLoss(corruption_mean=math.inf)),
        (ValueError, "reduction ... 'avg'", lambda: UnhingedRegressionLoss(reduction="avg")),
        (TypeError, "f must be a function ... 2", lambda: LinearRegressionLoss(2)),
        (ValueError, "shape (9,) ... (9, 1)", lambda: UnhingedRegressionLoss()(Z, Y[:, None])),
        (ValueError, "Cauchy ... does not exist", lambda: LinearRegressionLoss(torch.neg, D.Cauchy(0.0, 1.0))),
    )
    with refused(ValueError, "f must return one number", "(9,)", "shape ()"):
        LinearRegressionLoss(lambda y: y.sum())(Z, Y)
    with refused(ValueError, "batch must broadcast", "(4,)"):
        LinearRegressionLoss(torch.neg, D.Normal(torch.zeros(4), 1.0))(Z, Y)


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
    assert "no   symmetric" in str(welsch)
    assert "predictions from -5 to 5" in str(welsch)


def test_certificates_do_not_trust_closed_forms():
    """The mean is taken by quadrature, which feels a kink, though the loss itself has a closed form."""
    q = D.Normal(0.0, 1.0)
    loss = symmetrize_regression(nn.L1Loss(), q)
    assert loss.method() == "closed form"
    assert certify_regression(loss, q).symmetric
    assert certify_regression(loss, q).error > 1e-6
    assert certify_regression(nn.L1Loss(), q).error > 1e-6


def test_certificates_refuse_bad_input():
    q = D.Normal(0.0, 1.0)
    all_refused(
        (TypeError, "loss ... MSELoss", lambda: certify_regression(nn.MSELoss, q)),
        (ValueError, "points ... [5, 100000] ... 2", lambda: certify_regression(nn.MSELoss(), q, points=2)),
        (ValueError, "does not exist ... Cauchy", lambda: certify_regression(lambda z, y: -y * z, D.Cauchy(0.0, 1.0))),
        (TypeError, "x must be given", lambda: certify_regression(nn.MSELoss(), lambda x: D.Normal(x, 1.0))),
    )
    with refused(ValueError, "low must be below high", "2", "1"):
        certify_regression(nn.MSELoss(), q, low=2.0, high=1.0)
