"""Residual networks: resnet34 for small images (CIFAR-100), resnet18 and resnet50 for large ones (WebVision)."""

from __future__ import annotations

from torch import Tensor, nn

from symloss.models.small_networks import image_shape, initialise

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
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(channels, out, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


class Basic(ResidualBlock):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, channels: int, inner: int, stride: int):
        body = nn.Sequential(
            *_convolution(channels, inner, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(inner, inner, 3),
        )
        super().__init__(body, channels, inner, stride)


class Bottleneck(ResidualBlock):
    """Convolutions 1x1, 3x3, 1x1. The stride is in the 3x3 convolution (the version called 1.5)."""

    expansion = 4

    def __init__(self, channels: int, inner: int, stride: int):
        body = nn.Sequential(
            *_convolution(channels, inner, 1),
            nn.ReLU(inplace=True),
            *_convolution(inner, inner, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(inner, 4 * inner, 1),
        )
        super().__init__(body, channels, 4 * inner, stride)


def resnet34(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A 3x3 stem with stride 1 and no max-pool; the last map, 4 by 4 for CIFAR, is averaged."""
    channels, _, _ = image_shape("resnet34", input_shape)
    stem = nn.Sequential(*_convolution(channels, 64, 3), nn.ReLU(inplace=True))
    return initialise(_resnet(stem, Basic, classes))


def resnet18(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The small one for ImageNet: a 7x7 stem with stride 2, then a max-pool."""
    return _for_large_images("resnet18", input_shape, Basic, classes, FEWER)


def resnet50(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The ImageNet one: a 7x7 stem with stride 2, then a max-pool."""
    return _for_large_images("resnet50", input_shape, Bottleneck, classes, STAGES)


def _for_large_images(
    name: str, input_shape: tuple[int, ...], block: type[Basic | Bottleneck], classes: int, stages: tuple[int, ...]
) -> nn.Module:
    channels, _, _ = image_shape(name, input_shape)
    stem = nn.Sequential(*_convolution(channels, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1))
    model = _resnet(stem, block, classes, stages)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return model


def _resnet(
    stem: nn.Sequential, block: type[Basic | Bottleneck], classes: int, stages: tuple[int, ...] = STAGES
) -> nn.Module:
    blocks: list[nn.Module] = []
    channels = 64
    for stage, count in enumerate(stages):
        inner = 64 * 2**stage
        for position in range(count):
            blocks.append(block(channels, inner, stride=2 if stage > 0 and position == 0 else 1))
            channels = inner * block.expansion
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def _convolution(channels: int, out: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(out)]
