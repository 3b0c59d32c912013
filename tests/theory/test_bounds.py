"""Proposition 5.3: the bound, the inequality on the remainder of networks, and the gap on one layer and on two."""

import functools
import itertools
import math

import pytest
import torch
from conftest import generator
from in_turn import in_turn
from refusals import all_refused, refused
from torch import nn

import symloss
from symloss.losses.catalogue import RECORDS
from symloss.losses.potentials import CEPotential
from symloss.theory import bounds
from symloss.theory.certificates import Constant

UNHINGED = RECORDS["unhinged"].loss()
CLASSES = 3
every_loss = in_turn("loss", [CEPotential(), RECORDS["alpha-mae"].loss(alpha=0.5), RECORDS["alpha-mae"].loss()])


@functools.cache
def smoothness(loss):
    """As measured; each loss has the unhinged loss as its linear approximation at 0."""
    certificate = symloss.certify(loss, CLASSES)
    assert (certificate.slope, certificate.distance_from_unhinged) == pytest.approx((1, 0), rel=1e-9, abs=1e-9)
    return certificate.smoothness


def network(layers, activation, scale, seed=0):
    torch.manual_seed(seed)
    sizes = [5, *[7] * (layers - 1), CLASSES]
    parts = [p for a, b in itertools.pairwise(sizes) for p in (nn.Linear(a, b, bias=False), activation())]
    model = nn.Sequential(*parts[:-1]).double()
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(scale / weights.norm())
    return model


def inputs(radius, n=200):
    x = torch.randn(n, 5, dtype=torch.float64, generator=generator(1))
    return radius * x / x.norm(dim=1, keepdim=True) * torch.rand(n, 1, dtype=torch.float64, generator=generator(2))


def test_formula():
    for b, big, small, c, layers in ((0.5, 2.0, 3.0, 1.0, 1), (0.25, 1.5, 0.7, 1.1, 4)):
        assert bounds.output_bound(big, small, c, layers) == pytest.approx(big * c ** (layers - 1) * small)
        expected = big**2 * b * c ** (2 * (layers - 1)) * small**2
        assert bounds.unhinged_gap_bound(b, big, small, c, layers) == pytest.approx(expected)
        assert bounds.remainder_bound(b, big, small, c, layers) == pytest.approx(expected / 2)
    assert bounds.unhinged_gap_bound(0.0, 5.0, 5.0, 1.0, 2) == 0  # the unhinged loss itself


@in_turn("activation", [nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.Softsign, nn.ReLU6])
def test_proposition_5_3_outputs_of_networks(activation):
    """What the bound takes for c is at least the steepest slope of the non-linearity, and not much more."""
    c = {nn.GELU: 1.13, nn.SiLU: 1.1}.get(activation, 1.0)
    x = torch.linspace(-9, 9, 20001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(activation()(x).sum(), x)
    assert float(activation()(torch.zeros(1))) == 0
    assert 0.99 * c <= float(slope.abs().max()) <= c * (1 + 1e-12)
    for layers in (1, 4):
        for seed in range(3):
            model = network(layers, activation, 1.7, seed)
            assert bounds.weight_product(model) == pytest.approx(1.7**layers)
            longest = float(model(inputs(2.0)).detach().norm(dim=1).max())
            assert longest <= bounds.output_bound(2.0, bounds.weight_product(model), c, layers)
            bound = bounds.unhinged_gap_bound(0.5, 2.0, 1.7**layers, c, layers)
            assert bounds.network_gap_bound(model, 0.5, 2.0) == pytest.approx(bound)


@in_turn("scale", [0.3, 2.5])
@in_turn("layers", [1, 3])
@every_loss
def test_proposition_5_3_remainder_on_networks(loss, layers, scale):
    """|phi(z, y) - phi(0, y) - unhinged(z, y)| <= beta/2 (R c^(l-1) r)^2 for every output z and every label."""
    beta, model = smoothness(loss), network(layers, nn.ReLU, scale)
    for radius in (0.5, 3.0):
        z = model(inputs(radius)).detach()
        remainder = loss.per_class(z) - loss.per_class(torch.zeros_like(z)) - UNHINGED.per_class(z)
        bound = bounds.remainder_bound(beta, radius, bounds.weight_product(model), 1.0, layers)
        assert float(remainder.abs().max()) <= bound * (1 + 1e-9)
        own = beta / 2 * z.square().sum(1, keepdim=True)
        assert bool((remainder.abs() <= own * (1 + 1e-6) + 1e-12).all())


@in_turn("r", [0.3, 3.0])
@every_loss
def test_proposition_5_3_gap_on_one_layer(loss, r):
    """One layer with |W| <= r: the best for unhinged is the centroid's, the best for phi is found by descent."""
    x = inputs(1.0, 60)
    y = (x[:, 0] > 0.1).long() + (x[:, 1] > 0).long()
    w = torch.zeros(CLASSES, 5, dtype=torch.float64, requires_grad=True)
    for _ in range(1500):
        (slope,) = torch.autograd.grad(loss(x @ w.T, y), w)
        with torch.no_grad():
            w -= slope
            w *= (r / w.norm()).clamp_max(1)
    centroid = (torch.eye(CLASSES, dtype=torch.float64)[y] - 1 / CLASSES).T @ x / len(x)
    best = r * centroid / centroid.norm()
    assert float(UNHINGED(x @ best.T, y)) == pytest.approx(-r * float(centroid.norm()))
    gap = float(UNHINGED(x @ w.detach().T, y) - UNHINGED(x @ best.T, y))
    assert -1e-9 <= gap <= bounds.unhinged_gap_bound(smoothness(loss), 1.0, r, 1.0, 1)


def two_layers(weights, x):
    first, second = weights
    return (x @ first.T).relu() @ second.T


def best_neuron(x, y, r):
    """The best two layers for unhinged with |W1| |W2| <= r, in the plane: one neuron, found by its angle.

    The unhinged risk is linear in the outputs. A network is a sum of neurons, the norms of which add up to at most r,
    so the best neuron alone is the best network.
    """
    angles = torch.linspace(0, 2 * math.pi, 20001, dtype=torch.float64)
    directions = torch.stack([angles.cos(), angles.sin()], 1)
    centred = torch.eye(CLASSES, dtype=torch.float64)[y] - 1 / CLASSES
    gains = (x @ directions.T).relu().T @ centred / len(x)
    best = int(gains.norm(dim=1).argmax())
    return directions[best : best + 1], (r * gains[best] / gains[best].norm())[:, None], r * float(gains[best].norm())


@in_turn("r", [0.5, 2.0])
@every_loss
def test_proposition_5_3_gap_on_two_layers(loss, r):
    """phi-risk no larger than that of the best for unhinged is all the proof needs: descent starts from there."""
    x = inputs(1.0, 60)[:, :2]
    y = (x[:, 0] > 0.05).long() + (x[:, 1] > 0).long()
    *best, gain = best_neuron(x, y, r)
    assert float(UNHINGED(two_layers(best, x), y)) == pytest.approx(-gain)
    spare = 0.3 * torch.randn(8, 2 + CLASSES, dtype=torch.float64, generator=generator(4))
    weights = [torch.cat([best[0], spare[:, :2]]), torch.cat([best[1], 0 * spare[:, 2:].T], 1)]
    weights = [(w * (r**0.5 / w.norm())).requires_grad_() for w in weights]
    for _ in range(400):
        slopes = torch.autograd.grad(loss(two_layers(weights, x), y), weights)
        with torch.no_grad():
            for layer, slope in zip(weights, slopes, strict=True):
                layer.sub_(slope, alpha=0.5).mul_((r**0.5 / layer.norm()).clamp_max(1))
    found = [w.detach() for w in weights]
    assert found[0].norm() * found[1].norm() <= r * (1 + 1e-12)
    assert float(loss(two_layers(found, x), y)) <= float(loss(two_layers(best, x), y))
    gap = float(UNHINGED(two_layers(found, x), y)) + gain
    assert 0 <= gap <= bounds.unhinged_gap_bound(smoothness(loss), float(x.norm(dim=1).max()), r, 1.0, 2)


@in_turn(
    ("layer", "size"),
    [
        (nn.Conv2d(2, 3, 3, padding=1, bias=False), (2, 6, 6)),
        (nn.Conv2d(2, 3, 5, stride=2, bias=False), (2, 9, 9)),
        (nn.Conv2d(2, 3, 3, stride=2, dilation=2, bias=False), (2, 9, 9)),
        (nn.Conv1d(4, 6, 3, groups=2, padding="same", bias=False), (4, 11)),
        (nn.Conv2d(2, 3, (2, 3), stride=(2, 3), bias=False), (2, 4, 6)),
        (nn.Conv3d(1, 2, 2, bias=False), (1, 4, 4, 4)),
    ],
)
def test_norm_of_a_convolution(layer, size):
    """Never below the largest singular value of the matrix, whatever the kernel; a constant one comes close to it.

    It is exact where patches do not overlap.
    """
    basis = torch.eye(math.prod(size), dtype=torch.float64).reshape(-1, *size)

    def exact():
        return float(torch.linalg.matrix_norm(layer.double()(basis).detach().flatten(1).T, 2))

    for seed in range(3):
        layer.weight.data.normal_(generator=generator(seed))
        bound = bounds.convolution_norm_bound(layer)
        assert exact() <= bound * (1 + 1e-12)
        assert layer.stride != layer.kernel_size or bound == pytest.approx(exact(), rel=1e-12)
    layer.weight.data.fill_(1.0)
    assert exact() >= 0.6 * bounds.convolution_norm_bound(layer)


def test_proposition_5_3_outputs_of_networks_with_convolutions():
    """The bound of the network is the one of its layers, and no output is longer."""
    first = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.GELU(), nn.MaxPool2d(2)
    second = nn.Conv2d(4, 5, 2, bias=False), nn.ReLU(), nn.AvgPool2d(2, stride=(2, 3))
    model = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(5, CLASSES, bias=False)).double()
    x = torch.randn(200, 1, 7, 7, dtype=torch.float64, generator=generator(3))
    radius = float(x.flatten(1).norm(dim=1).max())
    norms = [bounds.convolution_norm_bound(model[k]) for k in (0, 3)] + [float(model[7].weight.detach().norm())]
    assert bounds.weight_product(model) == pytest.approx(math.prod(norms))
    longest = float(model(x).detach().norm(dim=1).max())
    assert longest <= bounds.output_bound(radius, bounds.weight_product(model), 1.13, 2)
    bound = bounds.unhinged_gap_bound(0.5, radius, bounds.weight_product(model), 1.13, 2)  # one slope of 1.13, one of 1
    assert bounds.network_gap_bound(model, 0.5, radius) == pytest.approx(bound)


def test_a_lower_bound_is_refused_unless_an_estimate_will_do():
    measured = symloss.certify("sgce", 10).smoothness
    assert not measured.exact
    model = network(2, nn.ReLU, 1.0)
    given = [functools.partial(bound, R=1.0, r=1.0) for bound in (bounds.unhinged_gap_bound, bounds.remainder_bound)]
    for bound in (*given, functools.partial(bounds.network_gap_bound, model, R=1.0)):
        for beta, shown in ((measured, "0.227398"), (2 * measured / 3, "0.151598")):  # a multiple is no better
            with refused(ValueError, "beta", f"{shown} (at least)", "allow_lower_bound=True"):
                bound(beta=beta)
        assert bound(beta=measured, allow_lower_bound=True) == bound(beta=float(measured)) > 0
    assert bounds.unhinged_gap_bound(Constant(0.5, exact=True), 1.0, 1.0) == 0.5


def test_bad_input():
    for name in ("beta", "R", "r", "c"):
        values = {"beta": 1.0, "R": 1.0, "r": 1.0, "c": 1.0}
        for wrong in (-1.0, math.inf, math.nan, "1"):
            with refused(TypeError if wrong == "1" else ValueError, name, "[0, inf)"):
                bounds.unhinged_gap_bound(**values | {name: wrong})
    for layers in (0, 1.5):
        with refused(ValueError, "layers", "[1, inf)", layers):
            bounds.unhinged_gap_bound(1.0, 1.0, 1.0, 1.0, layers)
    for pool in (nn.MaxPool2d(3, stride=2), nn.MaxPool2d(2, dilation=2), nn.AvgPool2d(2, divisor_override=1)):
        with refused(ValueError, "do not overlap", pool):
            bounds.weight_product(pool)
    circular = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular", bias=False)
    sigmoid = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Sigmoid())  # which is not 0 at 0
    all_refused(
        (ValueError, "pad with zeros ... circular", lambda: bounds.weight_product(circular)),
        (TypeError, "nn.Sequential of Linear, Conv1d ... Sigmoid", lambda: bounds.network_gap_bound(sigmoid, 1.0, 1.0)),
        (ValueError, "bias-free ... bias=True", lambda: bounds.weight_product(nn.Linear(2, 2))),
        (ValueError, "at least one nn.Linear", lambda: bounds.weight_product(nn.Sequential(nn.ReLU()))),
        (TypeError, "nn.Sequential of ... 3", lambda: bounds.weight_product(3)),
    )
