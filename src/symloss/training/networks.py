"""Networks: an MLP, LeNet-5, two plain convolutional networks, and ResNets for small and large images."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from symloss import checks


def mlp(
    input_shape: tuple[int, ...], num_classes: int, hidden: Sequence[int] = (256, 256), norm: str = "batch"
) -> nn.Module:
    """Build linear layers with ReLU between them, and batch normalisation unless ``norm`` is "none"."""
    checks.choice("norm", norm, ("batch", "none"))
    layers: list[nn.Module] = [nn.Flatten()]
    features = math.prod(input_shape)
    for given in hidden:
        size = int(checks.number("hidden", given, "[1, inf)", whole=True))
        layers.append(nn.Linear(features, size))
        layers += [nn.BatchNorm1d(size)] if norm == "batch" else []
        layers.append(nn.ReLU(inplace=True))
        features = size
    return initialise(nn.Sequential(*layers, nn.Linear(features, num_classes)))


def lenet5(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build LeNet-5 with average pools and ReLU. Weights are normal with sigma 0.1, truncated at two sigmas.

    As in the replication of Menon et al. 2020 (ReScience C, 2021).
    """
    channels, height, width = image_shape("lenet5", input_shape, smallest=12)
    model = nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(inplace=True),
        AveragePool(),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(inplace=True),
        AveragePool(),
        nn.Flatten(),
        nn.Linear(16 * _side(height) * _side(width), 120),
        nn.ReLU(inplace=True),
        nn.Linear(120, 84),
        nn.ReLU(inplace=True),
        nn.Linear(84, num_classes),
    )
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.1, a=-0.2, b=0.2)
    return model


class AveragePool(nn.Module):
    """The same as ``nn.AvgPool2d(2)``: means of 2 x 2 pixels; an odd last row or column is left out.

    It takes half the time on a CPU, where the pools took two fifths of a step of this network.
    """

    def forward(self, images: Tensor) -> Tensor:
        height, width = (side // 2 * 2 for side in images.shape[-2:])
        rows = images[..., 0:height:2, :width] + images[..., 1:height:2, :width]
        return (rows[..., 0::2] + rows[..., 1::2]) * 0.25


def _side(size: int) -> int:
    """Return the side of the last feature map: halved, four less, halved."""
    return (size // 2 - 4) // 2


def cnn4(input_shape: tuple[int, ...], num_classes: int, width: float = 1.0) -> nn.Module:
    """Build two convolutions, each followed by a pool, and two linear layers (for MNIST)."""
    shape = image_shape("cnn4", input_shape, smallest=4)
    return _cnn(shape, num_classes, stages=((32,), (64,)), hidden=128, width=width)


def cnn8(input_shape: tuple[int, ...], num_classes: int, width: float = 1.0) -> nn.Module:
    """Build six convolutions with a pool after every second, and two linear layers (for CIFAR-10)."""
    shape = image_shape("cnn8", input_shape, smallest=8)
    return _cnn(shape, num_classes, stages=((64, 64), (128, 128), (196, 196)), hidden=256, width=width)


def _cnn(
    shape: tuple[int, int, int], num_classes: int, *, stages: Sequence[Sequence[int]], hidden: int, width: float
) -> nn.Module:
    """Build a network in which a pool ends each stage. ``width`` scales the channels and the hidden linear layer."""
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
    return initialise(nn.Sequential(*layers, nn.Linear(inner, num_classes)))


def _convolution(channels: int, out: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]


def _scaled(size: int, width: float) -> int:
    return max(1, round(size * width))


def image_shape(model: str, shape: tuple[int, ...], smallest: int = 1) -> tuple[int, int, int]:
    """Check that the model can take images of this shape, and return (channels, height, width)."""
    if len(shape) != 3 or min(shape) < 1 or min(shape[1:]) < smallest:
        raise ValueError(
            f"input_shape of {model} must be (channels, height, width) with sides of at least {smallest}; "
            f"got {tuple(shape)}"
        )
    channels, height, width = shape
    return channels, height, width


def initialise(model: nn.Module) -> nn.Module:
    """Initialise convolutions Kaiming-uniform and linear layers Xavier-uniform. Biases stay as torch draws them."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_uniform_(layer.weight, mode="fan_in", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return model


STAGES = (3, 4, 6, 3)
"""The number of blocks with 64, 128, 256 and 512 channels, in resnet34 and resnet50."""
FEWER = (2, 2, 2, 2)
"""The same of resnet18."""


class ResidualBlock(nn.Module):
    """x -> relu(body(x) + shortcut(x)); the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, body: nn.Sequential, channels: int, out: int, stride: int):
        super().__init__()
        self.body = body
        same = channels == out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv_norm(channels, out, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


class Basic(ResidualBlock):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, channels: int, inner: int, stride: int):
        body = nn.Sequential(
            *_conv_norm(channels, inner, 3, stride),
            nn.ReLU(inplace=True),
            *_conv_norm(inner, inner, 3),
        )
        super().__init__(body, channels, inner, stride)


class Bottleneck(ResidualBlock):
    """Convolutions 1x1, 3x3, 1x1. The stride is in the 3x3 convolution (the version called 1.5)."""

    expansion = 4

    def __init__(self, channels: int, inner: int, stride: int):
        body = nn.Sequential(
            *_conv_norm(channels, inner, 1),
            nn.ReLU(inplace=True),
            *_conv_norm(inner, inner, 3, stride),
            nn.ReLU(inplace=True),
            *_conv_norm(inner, 4 * inner, 1),
        )
        super().__init__(body, channels, 4 * inner, stride)


def resnet34(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build a ResNet-34 for small images: a 3x3 stem with stride 1, no max-pool, the mean of the last map."""
    channels, _, _ = image_shape("resnet34", input_shape)
    stem = nn.Sequential(*_conv_norm(channels, 64, 3), nn.ReLU(inplace=True))
    return initialise(_resnet(stem, Basic, num_classes))


def resnet18(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build a ResNet-18 for large images: a 7x7 stem with stride 2, then a max-pool."""
    return _for_large_images("resnet18", input_shape, Basic, num_classes, FEWER)


def resnet50(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build a ResNet-50 for large images: a 7x7 stem with stride 2, then a max-pool."""
    return _for_large_images("resnet50", input_shape, Bottleneck, num_classes, STAGES)


def _for_large_images(
    name: str, input_shape: tuple[int, ...], block: type[Basic | Bottleneck], num_classes: int, stages: tuple[int, ...]
) -> nn.Module:
    channels, _, _ = image_shape(name, input_shape)
    stem = nn.Sequential(*_conv_norm(channels, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1))
    model = _resnet(stem, block, num_classes, stages)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return model


def _resnet(
    stem: nn.Sequential, block: type[Basic | Bottleneck], num_classes: int, stages: tuple[int, ...] = STAGES
) -> nn.Module:
    blocks: list[nn.Module] = []
    channels = 64
    for stage, count in enumerate(stages):
        inner = 64 * 2**stage
        for position in range(count):
            blocks.append(block(channels, inner, stride=2 if stage > 0 and position == 0 else 1))
            channels = inner * block.expansion
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


def _conv_norm(channels: int, out: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(out)]
