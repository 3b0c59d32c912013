"""The two plain convolutional networks of the protocol: cnn4 (MNIST) and cnn8 (CIFAR-10)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from symloss import checks
from symloss.models.layers import image_shape, initialise


def cnn4(input_shape: tuple[int, ...], classes: int, width: float = 1.0) -> nn.Module:
    """Two convolutions, each followed by a pool, and two linear layers."""
    shape = image_shape("cnn4", input_shape, smallest=4)
    return _cnn(shape, classes, stages=((32,), (64,)), hidden=128, width=width)


def cnn8(input_shape: tuple[int, ...], classes: int, width: float = 1.0) -> nn.Module:
    """Six convolutions with a pool after every second, and two linear layers."""
    shape = image_shape("cnn8", input_shape, smallest=8)
    return _cnn(shape, classes, stages=((64, 64), (128, 128), (196, 196)), hidden=256, width=width)


def _cnn(
    shape: tuple[int, int, int], classes: int, *, stages: Sequence[Sequence[int]], hidden: int, width: float
) -> nn.Module:
    """A pool ends each stage. ``width`` scales the channels and the hidden linear layer."""
    width = checks.number("width", width, "(0, 8]")
    channels, height, across = shape
    layers: list[nn.Module] = []
    for stage in stages:
        for size in stage:
            layers += _convolution(channels, _scaled(size, width))
            channels = _scaled(size, width)
        # Before the ReLU that ends the stage: the same values and gradients, of a quarter of the work.
        layers.insert(-1, nn.MaxPool2d(2))
        height, across = height // 2, across // 2
    inner = _scaled(hidden, width)
    layers += [nn.Flatten(), nn.Linear(channels * height * across, inner), nn.BatchNorm1d(inner), nn.ReLU(inplace=True)]
    return initialise(nn.Sequential(*layers, nn.Linear(inner, classes)))


def _convolution(channels: int, out: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]


def _scaled(size: int, width: float) -> int:
    return max(1, round(size * width))
