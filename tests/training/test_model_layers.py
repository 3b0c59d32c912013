"""Models against the layer lists of the protocol: parameters counted by hand, and how the weights begin."""

import itertools
import math

import pytest
import torch
from in_turn import in_turn
from torch import nn

from symloss.training.models import create_model
from symloss.training.networks import AveragePool


def count(name: str, input_shape: tuple[int, ...], classes: int) -> int:
    model = create_model(name, input_shape=input_shape, num_classes=classes, seed=0)
    return sum(parameter.numel() for parameter in model.parameters())


def conv(channels: int, out: int, kernel: int = 3, *, bias: bool = True, norm: bool = True) -> int:
    return kernel * kernel * channels * out + bias * out + norm * 2 * out


def linear(features: int, out: int, *, norm: bool = False) -> int:
    return features * out + out + norm * 2 * out


def cnn8_convolutions(first: int, second: int, third: int) -> int:
    pairs = ((3, first), (first, first), (first, second), (second, second), (second, third), (third, third))
    return sum(conv(*pair) for pair in pairs)


def test_parameters_counted_by_hand() -> None:
    cnn4 = conv(1, 32) + conv(32, 64) + linear(128, 10)
    assert count("cnn4", (1, 28, 28), 10) == cnn4 + linear(3136, 128, norm=True) == 422_090
    assert count("cnn4", (1, 8, 8), 10) == cnn4 + linear(64 * 2 * 2, 128, norm=True)
    wide = cnn8_convolutions(64, 128, 196) + linear(3136, 256, norm=True) + linear(256, 10)
    assert count("cnn8", (3, 32, 32), 10) == wide == 1_639_794
    narrow = cnn8_convolutions(16, 32, 49) + linear(784, 64, norm=True) + linear(64, 10)
    assert count("cnn8:width=0.25", (3, 32, 32), 10) == narrow
    convs = conv(1, 6, 5, norm=False) + conv(6, 16, 5, norm=False)
    assert count("lenet5", (1, 28, 28), 10) == convs + linear(400, 120) + linear(120, 84) + linear(84, 10) == 61_706
    by_hand = linear(64, 256, norm=True) + linear(256, 256, norm=True) + linear(256, 10)
    assert count("mlp", (1, 8, 8), 10) == count("mlp", (64,), 10) == by_hand
    assert count("mlp:hidden=5-7,norm=none", (4,), 3) == linear(4, 5) + linear(5, 7) + linear(7, 3)


def test_parameters_of_resnets() -> None:
    total, channels = conv(3, 64, bias=False), 64
    for out, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        total += conv(channels, out, bias=False) + (2 * blocks - 1) * conv(out, out, bias=False)
        total += conv(channels, out, 1, bias=False) if channels != out else 0
        channels = out
    assert count("resnet34", (3, 32, 32), 100) == total + linear(512, 100) == 21_328_292
    total, channels = conv(3, 64, 7, bias=False), 64
    for inner, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        total += conv(channels, 4 * inner, 1, bias=False)
        for _ in range(blocks):
            total += conv(channels, inner, 1, bias=False) + conv(inner, inner, bias=False)
            total += conv(inner, 4 * inner, 1, bias=False)
            channels = 4 * inner
    assert count("resnet50", (3, 224, 224), 1000) == total + linear(2048, 1000) == 25_557_032


@in_turn("name, shape, last_map", [("resnet34", (3, 32, 32), (512, 4, 4)), ("resnet50", (3, 64, 64), (2048, 2, 2))])
def test_the_map_before_the_average(name, shape, last_map):
    model = create_model(name, input_shape=shape, num_classes=10, seed=0).eval()
    before = [*itertools.takewhile(lambda layer: not isinstance(layer, nn.AdaptiveAvgPool2d), model)]
    assert nn.Sequential(*before)(torch.zeros(1, *shape)).shape[1:] == last_map


@in_turn(
    "name, shape",
    [("cnn4", (1, 8, 8)), ("cnn4", (3, 30, 21)), ("cnn8:width=0.1", (1, 28, 28)), ("lenet5", (3, 32, 20)),
     ("resnet18", (3, 33, 32)), ("resnet34", (1, 8, 8)), ("resnet50", (1, 40, 33)), ("mlp", (3, 8, 8)), ("mlp", (30,))],
)  # fmt: skip
def test_one_score_a_class_for_other_shapes_too(name: str, shape: tuple[int, ...]) -> None:
    model = create_model(name, input_shape=shape, num_classes=7, seed=0)
    assert model(torch.zeros(2, *shape)).shape == (2, 7)


@in_turn("name", ["cnn4", "cnn8", "resnet34", "mlp"])
def test_convolutions_kaiming_uniform_and_linear_layers_xavier_uniform(name: str) -> None:
    model = create_model(name, input_shape=(3, 32, 32), num_classes=10, seed=0)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            assert_uniform(layer.weight, math.sqrt(6 / (layer.kernel_size[0] ** 2 * layer.in_channels)))
        elif isinstance(layer, nn.Linear):
            assert_uniform(layer.weight, math.sqrt(6 / (layer.in_features + layer.out_features)))


def assert_uniform(weight: torch.Tensor, bound: float) -> None:
    assert weight.abs().max() <= bound * 1.0001
    assert_std(weight, bound / math.sqrt(3))


def assert_std(weight: torch.Tensor, expected: float) -> None:
    assert float(weight.detach().std()) == pytest.approx(expected, rel=4 / math.sqrt(weight.numel()))


def test_lenet5_begins_with_a_normal_cut_at_two_sigmas() -> None:
    model = create_model("lenet5", input_shape=(1, 28, 28), num_classes=10, seed=0)
    weights = torch.cat([m.weight.flatten() for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)])
    assert 0.19 < weights.abs().max() <= 0.2
    # A standard normal cut at two sigmas has the standard deviation 0.8796.
    assert float(weights.detach().std()) == pytest.approx(0.08796, rel=0.01)


def test_resnet50_strides_in_its_3x3_convolutions_and_begins_kaiming_normal_fan_out() -> None:
    model = create_model("resnet50", input_shape=(3, 64, 64), num_classes=10, seed=0)
    strided = [m.kernel_size[0] for m in model.modules() if isinstance(m, nn.Conv2d) and m.stride[0] == 2]
    assert strided == [7] + [3, 1] * 3
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            assert_std(layer.weight, math.sqrt(2 / (layer.kernel_size[0] ** 2 * layer.out_channels)))


@in_turn("name, shape", [("cnn4", (1, 28, 28)), ("cnn8:width=0.25", (3, 32, 32))])
def test_pooling_before_the_relu_is_pooling_after_it(name, shape):
    """Bit for bit, values and gradients: it is only cheaper."""
    ours = create_model(name, input_shape=shape, num_classes=10, seed=0)
    layers = list(ours)
    for place in (pools := [place for place, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]):
        layers[place : place + 2] = layers[place + 1], layers[place]
    assert {type(layers[place]) for place in pools} == {nn.ReLU}
    inputs, found = torch.randn(16, *shape), []
    for model in (ours, nn.Sequential(*layers)):
        model.zero_grad()
        scores = model.train()(inputs)
        scores.square().sum().backward()
        found.append([scores.detach(), *(part.grad.clone() for part in model.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@in_turn("shape", [(2, 3, 28, 28), (2, 3, 9, 12), (1, 1, 2, 3)])
def test_average_pool_is_torchs(shape):
    images = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    ours, torchs = AveragePool()(images), nn.AvgPool2d(2)(images)
    torch.testing.assert_close(ours, torchs)
    weights = torch.randn(ours.shape, dtype=torch.float64)
    gradients = [torch.autograd.grad((pooled * weights).sum(), images)[0] for pooled in (ours, torchs)]
    torch.testing.assert_close(*gradients)
