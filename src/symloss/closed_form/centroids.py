"""The data centroids of appendix C: mu^unh of the unhinged loss, and mu^sq of the squared error (Ding et al. 2022).

mu^unh = mu^sq - 1/C 1 m^T with the mean m of the features. If labels are replaced by uniform ones with probability p,
the expected mu^unh is (1 - p) times the clean one. The expected mu^sq is (1 - p) mu^sq + p/C 1 m^T, which points
elsewhere unless m is zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation


def squared_error_centroid(features: Tensor, labels: Tensor, classes: int | None = None) -> Tensor:
    """mu^sq = 1/N sum_i e_{y_i} f_i^T, of shape (C, d): what the squared error knows of the labels (Ding et al. 2022).

    Differentiable, in O(N d + C d). The arguments are those of :func:`centroid_alignment`.

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

    That gradient is the same at all weights. mu^unh is :func:`squared_error_centroid` less the mean of its rows, which
    is 1/C of the mean of the features. The weights of norm r with the least unhinged loss are r mu^unh / |mu^unh|. The
    arguments are those of :func:`centroid_alignment`.

    >>> f = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 8.0]])
    >>> unhinged_centroid(f, torch.tensor([0, 0, 1, 1]))
    tensor([[ 1.0000, -1.5000],
            [-1.0000,  1.5000]])
    """
    rows = squared_error_centroid(features, labels, classes)
    return rows - rows.mean(0)


def centroid_alignment(features: Tensor, labels: Tensor, classes: int | None = None) -> Tensor:
    r"""|mu|^2 = 1/N^2 sum_ij a_ij <f_i, f_j>, with a_ij = (C-1)/C for equal labels and -1/C for others (prop. C.1).

    Features of one class are drawn together, those of different classes apart. Computed from the sums of each class,
    in O(N d + C d) instead of O(N^2 d), and differentiable: ``-centroid_alignment(model(x), y)`` is a loss for the
    feature map alone, whose best last layer then follows in closed form. It grows with the features' scale: bound
    them, for example by normalising.

    Args:
        features: (N, d); computed in their precision, that of float32 at least.
        labels: (N,) integers in 0 to classes - 1.
        classes: the number C of classes; without it one more than the largest label.

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
