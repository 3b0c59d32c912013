"""The closed form for networks: refit the last layer, and align features with the data centroids of appendix C.

The centroids are mu^unh of the unhinged loss and mu^sq of the squared error (Ding et al. 2022), and mu^unh =
mu^sq - 1/C 1 m^T with the mean m of the features. If labels are replaced by uniform ones with probability p, the
expected mu^unh is (1 - p) times the clean one. The expected mu^sq is (1 - p) mu^sq + p/C 1 m^T, which has another
direction unless m is zero.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from symloss import checks
from symloss.closed_form.sums import ClassSums, Prior, centroid, class_sums
from symloss.closed_form.unhinged import two_classes
from symloss.losses import validation

Model = TypeVar("Model", bound=nn.Module)


def refit_head(
    model: Model,
    loader: Iterable[Any],
    *,
    layer: str | None = None,
    radius: float = 1.0,
    center: bool = True,
    prior: Prior = None,
) -> Model:
    """Replace the weights of a network's last linear layer by the closed form on the features that reach it.

    This takes one pass over the loader, in evaluation mode and without gradients. The layer is changed in place, with
    its device and precision. Nothing else changes, and the mode of every module is restored. A layer with a bias has
    the extended column of appendix C, which counts in the norm. A layer without a bias gets one if ``center`` is on.

    Args:
        model: any module. Inputs are moved to the device of its first parameter.
        loader: batches (inputs, labels, ...) with labels (N,) in 0 to C - 1, where C is the layer's output size.
        layer: the layer's name, as in ``model.named_modules()``; None for the ``nn.Linear`` that runs last.
        radius, center, prior: as in :class:`UnhingedClassifier`.

    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> bool((refit_head(model, [(x, torch.tensor([0, 1]))])(x).argmax(1) == torch.tensor([0, 1])).all())
    True
    """
    radius = checks.number("radius", radius, "(0, inf)")
    candidates = _candidates(model, layer)
    head, totals = _pass(model, candidates, loader)
    two_classes(np.flatnonzero(totals.weights), "the loader's labels")
    found = centroid(totals, prior, head.bias is not None, center).solution(radius, totals.dtype)
    weight, bias = (torch.from_numpy(part).to(head.weight) for part in found)
    if not bool(weight.isfinite().all() and bias.isfinite().all()):
        raise ValueError(
            f"the weights and biases must be finite in {head.weight.dtype}, the precision of the layer; "
            "got features or a radius too large for that"
        )
    with torch.no_grad():
        head.weight.copy_(weight)
        if head.bias is not None:
            head.bias.copy_(bias)
        elif center:
            head.bias = nn.Parameter(bias)
    return model


def _candidates(model: nn.Module, layer: str | None) -> dict[str, nn.Linear]:
    named = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if layer is None:
        if not named:
            raise ValueError(f"model must have a linear layer (torch.nn.Linear); got {type(model).__name__}")
        return named
    if layer not in named:
        known = ", ".join(map(repr, named)) or "none"
        raise ValueError(f"layer must name a linear layer of the model; got {layer!r}, and the model has {known}")
    return {layer: named[layer]}


def _pass(model: nn.Module, candidates: dict[str, nn.Linear], loader: Iterable[Any]) -> tuple[nn.Linear, ClassSums]:
    head: nn.Linear | None = None
    totals: ClassSums | None = None
    device = next(model.parameters()).device
    with _observed(model, candidates) as calls:
        for batch in loader:
            is_pair = isinstance(batch, (tuple, list)) and len(batch) >= 2
            if not is_pair or not all(isinstance(part, Tensor) for part in batch[:2]):
                raise TypeError(f"loader must give batches (inputs, labels) of tensors; got {type(batch).__name__}")
            inputs, labels = batch[:2]
            calls.clear()
            model(inputs.to(device))
            if not calls:
                raise ValueError(f"layer must run when the model does; got {next(iter(candidates))!r}, which did not")
            last, features = calls[-1]
            if head is not None and last is not head:
                raise ValueError("layer must be named for a model whose last linear layer differs between batches")
            head = last
            features, labels = _checked(features, labels)
            if bool((labels >= head.out_features).any()):
                wanted = f"0 to {head.out_features - 1}, for a layer of {head.out_features} outputs"
                raise ValueError(f"labels must be {wanted}; got {int(labels.max())}")
            part = class_sums(features, labels.cpu().numpy(), head.out_features)
            totals = part if totals is None else totals + part
    if head is None or totals is None:
        raise ValueError("loader must give at least one batch; got none")
    return head, totals


@contextlib.contextmanager
def _observed(model: nn.Module, candidates: dict[str, nn.Linear]) -> Iterator[list[tuple[nn.Linear, Tensor]]]:
    """Put the model into evaluation mode, and yield a list of the layer that ran last and its input."""
    calls: list[tuple[nn.Linear, Tensor]] = []

    def remember(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(module, nn.Linear)
        calls[:] = [(module, inputs[0])]  # only the last call is kept, to free memory

    modes = [(module, module.training) for module in model.modules()]
    hooks = [module.register_forward_pre_hook(remember) for module in candidates.values()]
    model.eval()
    try:
        with torch.no_grad():
            yield calls
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training


def squared_error_centroid(features: Tensor, labels: Tensor, num_classes: int | None = None) -> Tensor:
    """Return mu^sq = 1/N sum_i e_{y_i} f_i^T, (C, d): the part of the squared error that depends on the labels.

    It is differentiable, in time O(N d + C d). See Ding et al. 2022.

    Args:
        features, labels, num_classes: as in :func:`centroid_alignment`.

    >>> f = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 8.0]])
    >>> squared_error_centroid(f, torch.tensor([0, 0, 1, 1]))
    tensor([[2., 0.],
            [0., 3.]])
    """
    features, labels = _checked(features, labels)
    if num_classes is None:
        count = max(2, int(labels.max()) + 1)
    else:
        count = int(checks.number("num_classes", num_classes, "[2, inf)", whole=True))
        validation.kept(labels, count, -1)
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    return features.new_zeros(count, features.shape[1]).index_add(0, labels, features) / len(features)


def unhinged_centroid(features: Tensor, labels: Tensor, num_classes: int | None = None) -> Tensor:
    """Return mu^unh = 1/N sum_i (e_{y_i} - 1/C) f_i^T, (C, d): minus the gradient of the unhinged loss (appendix C).

    That gradient is the same at all weights. mu^unh is :func:`squared_error_centroid` minus the mean of its rows, which
    is 1/C times the mean of the features. The weights of norm r with the least unhinged loss are r mu^unh / |mu^unh|.

    Args:
        features, labels, num_classes: as in :func:`centroid_alignment`.

    >>> f = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 8.0]])
    >>> unhinged_centroid(f, torch.tensor([0, 0, 1, 1]))
    tensor([[ 1.0000, -1.5000],
            [-1.0000,  1.5000]])
    """
    rows = squared_error_centroid(features, labels, num_classes)
    return rows - rows.mean(0)


def centroid_alignment(features: Tensor, labels: Tensor, num_classes: int | None = None) -> Tensor:
    r"""Return |mu|^2 = 1/N^2 sum_ij a_ij <f_i, f_j>, a_ij = (C-1)/C for equal labels and -1/C for others (prop. C.1).

    ``-centroid_alignment(model(x), y)`` is a loss for a feature map. It pulls features of one class together and pushes
    those of different classes apart. The best last layer then has a closed form. The value grows with the scale of the
    features, so bound them, for example by normalisation. It is differentiable, and computed from the sums of each
    class in time O(N d + C d) instead of O(N^2 d).

    Args:
        features: (N, d). The precision of the result is theirs, and at least float32.
        labels: (N,) integers from 0 to num_classes - 1.
        num_classes: the number C of classes; None for the largest label plus 1.

    >>> f = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> centroid_alignment(f, torch.tensor([0, 0, 1, 1])), centroid_alignment(f, torch.tensor([0, 1, 0, 1]))
    (tensor(0.2500), tensor(0.))
    """
    return unhinged_centroid(features, labels, num_classes).square().sum()


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
