"""Random changes to training images: whole batches on their device, driven by numbers that are drawn beforehand.

Every step reads uniform numbers, a row for each example, so what happens to an example depends on its row alone: not
on the device, the process or the batch it lies in. Images are raw here (black is 0); normalisation comes later.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image, ImageEnhance
from torch import Tensor

from symloss import checks


class Step(ABC):
    """One random change of images. It reads ``columns`` uniform numbers in [0, 1) for each image, on the CPU."""

    columns: ClassVar[int]

    @abstractmethod
    def apply(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Change the images (N, C, H, W), as the uniform numbers (N, columns) say."""


@dataclass(frozen=True)
class Crop(Step):
    """Add a black frame of ``padding`` pixels, then cut out a window of the original size at random."""

    padding: int
    columns: ClassVar[int] = 2

    def apply(self, images: Tensor, uniform: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        top, left = (uniform * (2 * self.padding + 1)).long().to(images.device).T.view(2, count, 1, 1)
        padded = F.pad(images, 4 * (self.padding,))
        # Each row of the result is a run of memory: copying runs is three times as fast as gathering pixels.
        planes = torch.arange(count * channels, device=images.device).view(count, channels, 1) * padded.shape[2]
        rows = planes + top + torch.arange(height, device=images.device)
        starts = rows * padded.shape[3] + left
        return padded.flatten().unfold(0, width, 1).index_select(0, starts.flatten()).view(images.shape)


@dataclass(frozen=True)
class Flip(Step):
    """Exchange left and right in half of the images."""

    columns: ClassVar[int] = 1

    def apply(self, images: Tensor, uniform: Tensor) -> Tensor:
        count = len(images)
        chosen = torch.arange(count) + count * (uniform[:, 0] < 0.5)
        return torch.cat([images, images.flip(3)]).index_select(0, chosen.to(images.device))


@dataclass(frozen=True)
class Rotate(Step):
    """Turn images about their centre by up to ``degrees`` either way. Pixels from outside are black.

    The nearest pixel is taken. Coordinates are whole numbers of 2**-16 pixels, as in Pillow, so that the result is the
    same as Pillow's, on every device.
    """

    degrees: float
    columns: ClassVar[int] = 1

    def apply(self, images: Tensor, uniform: Tensor) -> Tensor:
        height, width = images.shape[2:]
        x = torch.arange(width, dtype=torch.int32, device=images.device)
        y = torch.arange(height, dtype=torch.int32, device=images.device)[:, None]
        lines = _rotation(self.degrees * (2 * uniform[:, 0] - 1), height, width).to(images.device)
        column, row = ((start + dx * x + dy * y) >> 16 for start, dx, dy in lines[..., None, None])
        # What lies outside is read from a frame of one black pixel.
        framed = F.pad(images, (1, 1, 1, 1))
        source = (row.clamp_(-1, height) + 1) * (width + 2) + column.clamp_(-1, width) + 1
        every_channel = source.flatten(1).long()[:, None].expand(-1, images.shape[1], -1)
        return framed.flatten(2).gather(2, every_channel).view(images.shape)


def _rotation(degrees: Tensor, height: int, width: int) -> Tensor:
    """Where pixels come from, column and row: that of the first pixel, and the change a step right and a step down."""
    cos, sin = torch.cos(torch.deg2rad(degrees)), torch.sin(torch.deg2rad(degrees))
    x, y = 0.5 - width / 2, 0.5 - height / 2
    columns = torch.stack([cos * x - sin * y + width / 2, cos, -sin])
    rows = torch.stack([sin * x + cos * y + height / 2, sin, cos])
    return (torch.stack([columns, rows]) * 65536 + 0.5).floor().int()


@dataclass(frozen=True)
class ResizedCrop(Step):
    """Cut out a window with 8 to 100 % of the area and sides of at most 4:3; resize it to ``size`` by ``size``."""

    size: int
    columns: ClassVar[int] = 22  # two for each of ten attempts at a shape, two for the position

    def apply(self, images: Tensor, uniform: Tensor) -> Tensor:
        return _one_by_one(images, uniform, self._resized)

    def _resized(self, image: Image.Image, uniform: list[float]) -> Image.Image:
        height, width = self._window(image.height, image.width, uniform[:20])
        top = int(uniform[20] * (image.height - height + 1))
        left = int(uniform[21] * (image.width - width + 1))
        window = image.crop((left, top, left + width, top + height))
        return window.resize((self.size, self.size), Image.Resampling.BILINEAR)

    @staticmethod
    def _window(height: int, width: int, uniform: list[float]) -> tuple[int, int]:
        """Height and width of the window: the first shape that fits, or else the largest that is allowed."""
        for area, ratio in zip(uniform[::2], uniform[1::2], strict=True):
            pixels = height * width * (0.08 + 0.92 * area)
            stretch = (4 / 3) ** (2 * ratio - 1)
            tall, wide = round(math.sqrt(pixels / stretch)), round(math.sqrt(pixels * stretch))
            if 0 < tall <= height and 0 < wide <= width:
                return tall, wide
        return min(height, round(width * 4 / 3)), min(width, round(height * 4 / 3))


@dataclass(frozen=True)
class Jitter(Step):
    """Scale brightness, contrast and saturation by 1 - x to 1 + x, and turn the hue by -h to h, in random order."""

    brightness: float
    contrast: float
    saturation: float
    hue: float
    columns: ClassVar[int] = 8  # four amounts, and the order

    def apply(self, images: Tensor, uniform: Tensor) -> Tensor:
        return _one_by_one(images, uniform, self._jittered)

    def _jittered(self, image: Image.Image, uniform: list[float]) -> Image.Image:
        limits = (self.brightness, self.contrast, self.saturation, self.hue)
        amounts = [limit * (2 * u - 1) for limit, u in zip(limits, uniform[:4], strict=True)]
        for kind in sorted(range(4), key=uniform[4:].__getitem__):
            if limits[kind] > 0:
                hue, amount = kind == len(_ENHANCED), amounts[kind]
                image = _turn_hue(image, amount) if hue else _ENHANCED[kind](image).enhance(1 + amount)
        return image


_ENHANCED = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def _turn_hue(image: Image.Image, turns: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    turned = hue.point([(level + int(turns * 255)) % 256 for level in range(256)])
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


def _one_by_one(images: Tensor, uniform: Tensor, change: Callable[[Image.Image, list[float]], Image.Image]) -> Tensor:
    """Change each image with Pillow. This is slow, and meant for images that are decoded one at a time."""
    if images.dtype != torch.uint8 or images.shape[1] != 3:
        raise ValueError(
            f"resized-crop and jitter need uint8 images with 3 channels; got {images.dtype} of shape "
            f"{tuple(images.shape)}"
        )
    pictures = (Image.fromarray(image.permute(1, 2, 0).cpu().numpy()) for image in images)
    changed = [pixels(change(picture, row)) for picture, row in zip(pictures, uniform.tolist(), strict=True)]
    return torch.stack(changed).to(images.device)


def pixels(image: Image.Image) -> Tensor:
    """Return a picture as uint8 (channels, height, width)."""
    return torch.from_numpy(np.atleast_3d(np.array(image))).permute(2, 0, 1)


def fit(image: Image.Image, size: int) -> Image.Image:
    """For evaluation: the short side to 8/7 of the size (256 for 224), then the square in the middle."""
    short = round(size * 8 / 7)
    width, height = (int(short * side / min(image.size)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.crop((left, top, left + size, top + size))


STEPS: dict[str, Any] = {"crop": Crop, "flip": Flip, "rotate": Rotate, "resized-crop": ResizedCrop, "jitter": Jitter}
ALLOWED = {"padding": "[1, inf)", "degrees": "(0, 180]", "size": "[1, inf)", "hue": "[0, 0.5]"}
"""The numbers that a step takes, by their names; the others of jitter are in [0, 1]."""


@dataclass(frozen=True)
class Augmentation:
    """Random changes that follow one another.

    >>> augmentation = Augmentation.parse(["crop:4", "flip"])
    >>> augmentation
    Augmentation(steps=(Crop(padding=4), Flip()))
    >>> drawn = augmentation.draw(128, torch.Generator().manual_seed(0))
    >>> images = torch.zeros(128, 3, 32, 32, dtype=torch.uint8)
    >>> half = augmentation.apply(images[:64], drawn[:64])
    """

    steps: tuple[Step, ...] = ()

    @classmethod
    def parse(cls, names: Iterable[str]) -> Augmentation:
        """Read steps such as "crop:4", "flip", "rotate:20", "resized-crop:224", "jitter:0.4,0.4,0.4,0.2"."""
        return cls(tuple(_step(name) for name in names))

    @property
    def columns(self) -> int:
        """How many uniform numbers all steps read for one image."""
        return sum(step.columns for step in self.steps)

    @property
    def size(self) -> int | None:
        """The pixels on each side that a step resizes images to; None if no step does."""
        return next((step.size for step in self.steps if isinstance(step, ResizedCrop)), None)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw uniform numbers (count, columns): a row for each example, in the order of the examples."""
        return torch.rand(count, self.columns, dtype=torch.float64, generator=generator)

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Change the images by the uniform numbers ``drawn``, a row for each image."""
        if not self.steps or len(images) == 0:
            return images
        if images.dim() != 4 or len(images) != len(drawn):
            raise ValueError(
                f"images must have shape (N, C, H, W) with a row drawn for each; got {tuple(images.shape)} "
                f"and {len(drawn)} rows"
            )
        columns = drawn.split_with_sizes([step.columns for step in self.steps], dim=1)
        for step, uniform in zip(self.steps, columns, strict=True):
            images = step.apply(images, uniform)
        return images


OF_THE_SIDE = 8  # Without a published protocol, the black frame is the shorter side divided by this: 4 pixels for 32


def usual(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the augmentation of a user's images: that of CIFAR-10, with a frame in proportion. Features have none.

    >>> usual((3, 32, 32)), usual((1, 5, 7)), usual((20,))
    (('crop:4', 'flip'), ('flip',), ())
    """
    if len(shape) != 3:
        return ()
    frame = min(shape[1:]) // OF_THE_SIDE
    return (f"crop:{frame}", "flip") if frame else ("flip",)


def crops_of(steps: tuple[str, ...], shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the crops among a data set's steps, or among the usual ones, for images that must not be flipped.

    >>> crops_of(("crop:4", "flip"), (3, 32, 32)), crops_of((), (3, 64, 64))
    (('crop:4',), ('crop:8',))
    """
    crops = tuple(step for step in steps or usual(shape) if step.startswith(("crop", "resized-crop")))
    if not crops:
        raise ValueError(
            f"augment must be all or none unless the data are images of at least {OF_THE_SIDE} x {OF_THE_SIDE} pixels; "
            f"got 'crop' for inputs of shape {shape}"
        )
    return crops


def _step(name: str) -> Step:
    head, _, rest = name.partition(":")
    if head not in STEPS:
        raise ValueError(f"augmentation {name!r} does not exist: {checks.nearest(head, STEPS)}")
    wanted, given = fields(STEPS[head]), rest.split(",") if rest else []
    if len(given) != len(wanted):
        form = f"{head}:{','.join(field.name for field in wanted)}" if wanted else head
        raise ValueError(f"augmentation {head} must be written {form}; got {name!r}")
    numbers = []
    for field, text in zip(wanted, given, strict=True):
        try:
            value = int(text) if text.isdecimal() else float(text)
        except ValueError:
            raise ValueError(f"augmentation {name!r} must hold numbers after the colon; got {text!r}") from None
        interval, whole = ALLOWED.get(field.name, "[0, 1]"), field.type == "int"
        numbers.append(checks.number(f"{field.name} of {head}", value, interval, whole))
    found: Step = STEPS[head](*numbers)
    return found
