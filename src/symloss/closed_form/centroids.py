"""The data centroids of appendix C: mu^unh of the unhinged loss, and mu^sq of the squared error (Ding et al. 2022).

mu^unh = mu^sq - 1/C 1 m^T with the mean m of the features. If labels are replaced by uniform ones with probability p,
the expected mu^unh is (1 - p) times the clean one. The expected mu^sq is (1 - p) mu^sq + p/C 1 m^T, which has another
direction unless m is zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation


def squared_error_centroid(features: Tensor, labels: Tensor, classes: int | None = None) -> Tensor:
    """mu^sq = 1/N sum_i e_{y_i} f_i^T, of shape (C, d): the part of the squared error that depends on the labels.

    It is differentiable, in time O(N d + C d). See Ding et al. 2022.

    Args:
        features, labels, classes: as in :func:`centroid_alignment`.

    >>> f = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 8.0]])
    >>> squared_error_centroid(f, torch.tensor([0, 0, 1, 1]))
    tensor([[2., 0.],
            [0., 3.]])
    """
    features, labels = _checked(features, labels)
    if classes is None:
        count = max(2, int(labels.max()) + 1)
    else:
        count = int(checks.number("classes", classes, "[2, inf)", whole=True))
        validation.labels(labels, count, -1)
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    return features.new_zeros(count, features.shape[1]).index_add(0, labels, features) / len(features)


def unhinged_centroid(features: Tensor, labels: Tensor, classes: int | None = None) -> Tensor:
    """mu^unh = 1/N sum_i (e_{y_i} - 1/C) f_i^T, of shape (C, d): minus the gradient of the unhinged loss (appendix C).

    That gradient is the same at all weights. mu^unh is :func:`squared_error_centroid` minus the mean of its rows, which
    is 1/C times the mean of the features. The weights of norm r with the least unhinged loss are r mu^unh / |mu^unh|.

    Args:
        features, labels, classes: as in :func:`centroid_alignment`.

    >>> f = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 8.0]])
    >>> unhinged_centroid(f, torch.tensor([0, 0, 1, 1]))
    tensor([[ 1.0000, -1.5000],
            [-1.0000,  1.5000]])
    """
    rows = squared_error_centroid(features, labels, classes)
    return rows - rows.mean(0)


def centroid_alignment(features: Tensor, labels: Tensor, classes: int | None = None) -> Tensor:
    r"""|mu|^2 = 1/N^2 sum_ij a_ij <f_i, f_j>, with a_ij = (C-1)/C for equal labels and -1/C for others (prop. C.1).

    ``-centroid_alignment(model(x), y)`` is a loss for a feature map. It pulls features of one class together and pushes
    those of different classes apart. The best last layer then has a closed form. The value grows with the scale of the
    features, so bound them, for example by normalisation. It is differentiable, and computed from the sums of each
    class in time O(N d + C d) instead of O(N^2 d).

    Args:
        features: (N, d). The precision of the result is theirs, and at least float32.
        labels: (N,) integers from 0 to classes - 1.
        classes: the number C of classes; None for the largest label plus 1.

    >>> f = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> centroid_alignment(f, torch.tensor([0, 0, 1, 1])), centroid_alignment(f, torch.tensor([0, 1, 0, 1]))
    (tensor(0.2500), tensor(0.))
    """
    return unhinged_centroid(features, labels, classes).square().sum()


def _checked(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    features, labels = torch.as_tensor(features), torch.as_tensor(labels)
    if not features.is_floating_point():
        raise TypeError(f"features must be floating-point numbers; got {features.dtype}")
    if features.dim() != 2 or not len(features):
        raise ValueError(f"features must have shape (N, d) with N at least 1; got {tuple(features.shape)}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers; got {labels.dtype}")
    if labels.shape != features.shape[:1]:
        raise ValueError(f"labels must have shape ({len(features)},), one for each example; got {tuple(labels.shape)}")
    labels = labels.to(features.device, torch.int64)
    if validation.can_look(labels) and bool((labels < 0).any()):
        raise ValueError(f"labels must be at least 0; got {int(labels.min())}")
    return features, labels
