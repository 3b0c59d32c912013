"""Smaller copies of a published data set's images, for a scale model of its protocol."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor
from torch.nn.functional import avg_pool2d

from symloss.data.augment import Augmentation, Crop
from symloss.data.dataset import DataSet, Examples

_BLOCK = 4096
"""Images that are shrunk at once: in float32 they take four times their room."""


def shrunk(data: DataSet, size: int) -> DataSet:
    """The data set with every image brought to ``size`` x ``size`` pixels, and the frame of its crops in proportion.

    A pixel is the mean of a square of pixels, rounded. So the size must divide the side of the images.

    Args:
        data: a data set of square uint8 images in memory.
        size: pixels on each side.

    >>> from symloss.data import open_data
    >>> shrunk(open_data("digits"), 4).input_shape
    (1, 4, 4)
    """
    images = data.train.inputs
    if not isinstance(images, Tensor) or images.dim() != 4 or images.shape[2] != images.shape[3]:
        raise ValueError(f"size must be left out for {data.name}, which has no square images in memory; got {size}")
    side = images.shape[2]
    if size < 1 or side % size:
        allowed = ", ".join(str(part) for part in range(1, side + 1) if side % part == 0)
        raise ValueError(f"size must divide the {side} pixels of {data.name}, as {allowed} do; got {size}")
    if size == side:
        return data
    return replace(
        data,
        train=_shrunk(data.train, side // size),
        test=None if data.test is None else _shrunk(data.test, side // size),
        augmentation=tuple(filter(None, (_in_proportion(step, side // size) for step in data.augmentation))),
    )


def _shrunk(examples: Examples, factor: int) -> Examples:
    assert isinstance(examples.inputs, Tensor)
    count, channels, height, width = examples.inputs.shape
    small = examples.inputs.new_empty((count, channels, height // factor, width // factor))
    for start in range(0, count, _BLOCK):
        block = examples.inputs[start : start + _BLOCK].float()
        small[start : start + _BLOCK] = avg_pool2d(block, factor).round_().to(small.dtype)
    return replace(examples, inputs=small)


def _in_proportion(step: str, factor: int) -> str | None:
    """The step for images that are smaller by a factor; None for a crop whose frame would vanish."""
    (parsed,) = Augmentation.parse([step]).steps
    if not isinstance(parsed, Crop):
        return step
    frame = parsed.padding // factor
    return f"crop:{frame}" if frame else None
