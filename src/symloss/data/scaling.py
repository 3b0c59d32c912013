"""The mean and standard deviation of training inputs, without a second copy of them."""

from __future__ import annotations

import torch
from torch import Tensor

from symloss.data.dataset import Scaling

IMAGENET = Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

# How many pixels, or cells of a table, are summed at once.
_BLOCK = 2**22


def scaling_of_images(images: Tensor) -> Scaling:
    """Mean and standard deviation of each channel of uint8 images (N, C, H, W), as values in [0, 1]."""
    channels = images.shape[1]
    counts = torch.zeros(channels, 256, dtype=torch.int64)
    for block in images.split(max(1, _BLOCK // images[0].numel())):  # type: ignore[no-untyped-call]
        for channel in range(channels):
            counts[channel] += torch.bincount(block[:, channel].flatten(), minlength=256)
    share = counts.double() / counts.sum(1, keepdim=True)
    level = torch.arange(256, dtype=torch.float64) / 255
    mean = share @ level
    variance = (share * (level - mean[:, None]) ** 2).sum(1)
    return _scaling(mean, variance.sqrt())


def scaling_of_features(features: Tensor) -> Scaling:
    """Mean and standard deviation of each column of features (N, d)."""
    means, stds = [], []
    for block in features.split(max(1, _BLOCK // len(features)), dim=1):  # type: ignore[no-untyped-call]
        columns = block.T.double().contiguous()
        means.append(columns.mean(1))
        stds.append(columns.std(1, correction=0))
    return _scaling(torch.cat(means), torch.cat(stds))


def _scaling(mean: Tensor, std: Tensor) -> Scaling:
    # What never varies needs no scaling, and must not be divided by 0.
    return Scaling(tuple(mean.tolist()), tuple(torch.where(std > 0, std, 1.0).tolist()))
