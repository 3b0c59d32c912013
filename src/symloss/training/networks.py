"""Networks: an MLP, LeNet-5, two plain convolutional networks, and ResNets for small and large images."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from symloss import checks


def mlp(
    input_shape: tuple[int, ...],
    num_classes: int,
    hidden: Sequence[int] = (256, 256),
    norm: str | None = None,
    bias: bool = True,
) -> nn.Module:
    """Build linear layers with ReLU between them, and batch normalisation unless ``norm`` is "none"."""
    batch_norm = _has_batch_norm(norm, bias)
    layers: list[nn.Module] = [nn.Flatten()]
    features = math.prod(input_shape)
    for given in hidden:
        size = int(checks.number("hidden", given, "[1, inf)", whole=True))
        layers.append(nn.Linear(features, size, bias=bias))
        layers += [nn.BatchNorm1d(size)] if batch_norm else []
        layers.append(nn.ReLU(inplace=True))
        features = size
    return initialise(nn.Sequential(*layers, nn.Linear(features, num_classes, bias=bias)))


def _has_batch_norm(norm: str | None, bias: bool) -> bool:
    """Return whether a network has batch normalisation; None stands for "batch", and for "none" without biases."""
    if norm is not None:
        checks.choice("norm", norm, ("batch", "none"))
    if norm == "batch" and not bias:
        raise ValueError("bias=false needs norm=none, because batch normalisation has a bias; got norm=batch")
    return bias and norm != "none"


def lenet5(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build LeNet-5 with average pools and ReLU. Weights are normal with sigma 0.1, truncated at two sigmas.

    As in the replication of Menon et al. 2020 (ReScience C, 2021).
    """
    channels, *sides = image_shape("lenet5", input_shape, smallest=12)
    last = [(side // 2 - 4) // 2 for side in sides]  # halved, four less, halved
    model = nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(inplace=True),
        AveragePool(),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(inplace=True),
        AveragePool(),
        nn.Flatten(),
        nn.Linear(16 * math.prod(last), 120),
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


def cnn(
    name: str,
    input_shape: tuple[int, ...],
    num_classes: int,
    width: float = 1.0,
    norm: str | None = None,
    bias: bool = True,
    *,
    stages: Sequence[Sequence[int]],
    hidden: int,
) -> nn.Module:
    """Build convolutions in stages, with a pool at the end of each, and two linear layers.

    ``stages`` are the channels, ``hidden`` is the size of the first linear layer. ``width`` scales both. There is batch
    normalisation behind every layer but the last, unless ``norm`` is "none".
    """
    batch_norm = _has_batch_norm(norm, bias)
    width = checks.number("width", width, "(0, 8]")
    channels, height, across = image_shape(name, input_shape, smallest=2 ** len(stages))
    layers: list[nn.Module] = []
    for stage in stages:
        for size in stage:
            out = max(1, round(size * width))
            layers.append(nn.Conv2d(channels, out, 3, padding=1, bias=bias))
            layers += [nn.BatchNorm2d(out)] if batch_norm else []
            layers.append(nn.ReLU(inplace=True))
            channels = out
        # Before the ReLU that ends the stage: the same values and gradients, of a quarter of the work.
        layers.insert(-1, nn.MaxPool2d(2))
        height, across = height // 2, across // 2
    inner = max(1, round(hidden * width))
    layers += [nn.Flatten(), nn.Linear(channels * height * across, inner, bias=bias)]
    layers += [nn.BatchNorm1d(inner)] if batch_norm else []
    layers.append(nn.ReLU(inplace=True))
    return initialise(nn.Sequential(*layers, nn.Linear(inner, num_classes, bias=bias)))


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


class ResidualBlock(nn.Module):
    """x -> relu(body(x) + shortcut(x)); the shortcut is a 1x1 convolution where the shape changes.

    The body has two 3x3 convolutions; or, as a bottleneck, 1x1, 3x3 and 1x1, with the stride in the 3x3 one.
    """

    def __init__(self, channels: int, inner: int, stride: int, bottleneck: bool):
        super().__init__()
        out = 4 * inner if bottleneck else inner
        if bottleneck:
            kernels = [(channels, inner, 1, 1), (inner, inner, 3, stride), (inner, out, 1, 1)]
        else:
            kernels = [(channels, inner, 3, stride), (inner, out, 3, 1)]
        layers = [layer for kernel in kernels for layer in (*_conv_norm(*kernel), nn.ReLU(inplace=True))]
        self.body = nn.Sequential(*layers[:-1])
        same = channels == out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv_norm(channels, out, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


def resnet(
    name: str,
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    stages: tuple[int, ...],
    bottleneck: bool = False,
    small_images: bool = False,
) -> nn.Module:
    """Build a ResNet of blocks with 64, 128, 256 and 512 channels, as many as each stage has, and the mean of the map.

    For large images, the stem is 7x7 with stride 2, then a max-pool. For small ones, it is 3x3 with stride 1.
    """
    channels, _, _ = image_shape(name, input_shape)
    if small_images:
        stem = nn.Sequential(*_conv_norm(channels, 64, 3), nn.ReLU(inplace=True))
    else:
        stem = nn.Sequential(*_conv_norm(channels, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1))
    blocks: list[nn.Module] = []
    channels = 64
    for stage, count in enumerate(stages):
        inner = 64 * 2**stage
        for position in range(count):
            stride = 2 if stage > 0 and position == 0 else 1
            blocks.append(ResidualBlock(channels, inner, stride, bottleneck))
            channels = 4 * inner if bottleneck else inner
    model = nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))
    if small_images:
        return initialise(model)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return model


def _conv_norm(channels: int, out: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(out)]
