"""Fit one classifier to data that is distributed over processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from symloss.closed_form.inputs import checked_features, checked_labels, checked_weights, encode, two_classes
from symloss.closed_form.sums import ClassSums, class_sums
from symloss.closed_form.unhinged import UnhingedClassifier
from symloss.fitting import all_or_nothing


def fit_distributed(
    estimator: UnhingedClassifier,
    X: Any,  # noqa: N803
    y: Any,
    sample_weight: Any = None,
    *,
    group: Any = None,
) -> UnhingedClassifier:
    """Fit to the examples of all processes of a ``torch.distributed`` group. Every process gets the same classifier.

    Each process calls this with its part of the data. A part may have any size, lack classes, or be empty. The
    processes exchange the classes and their sums, O(C d) numbers. The result is that of one ``fit`` to all the data, up
    to rounding. If one process refuses its data, all raise an error, so that none waits forever.

    Args:
        estimator: the classifier to fit.
        X: the features (N, d) of this process.
        y: their labels (N,).
        sample_weight: the weights of the examples (N,), or None.
        group: the process group; None for the default one.

    >>> fit_distributed(UnhingedClassifier(), [[0.0], [1.0]], [0, 1])
    Traceback (most recent call last):
    RuntimeError: fit_distributed must be called after torch.distributed.init_process_group; got no process group
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "fit_distributed must be called after torch.distributed.init_process_group; got no process group"
        )
    return _fit_together(estimator, X, y, sample_weight, group)


@all_or_nothing
def _fit_together(
    estimator: UnhingedClassifier, features: Any, labels: Any, weights: Any, group: Any
) -> UnhingedClassifier:
    part = _Part(estimator, features, labels, weights)
    classes = _agreed(part.summary(), group)
    totals = part.totals(classes)
    numbers = np.concatenate([totals.sums.ravel(), totals.weights])
    numbers = _reduced(numbers, dist.ReduceOp.SUM, group)
    # The largest rounding and, as 1 for float64, the widest precision.
    rounding, double = _reduced(np.array([totals.rounding, totals.dtype == np.float64]), dist.ReduceOp.MAX, group)
    sums = numbers[: totals.sums.size].reshape(totals.sums.shape)
    counts = numbers[totals.sums.size :]
    dtype = np.dtype(np.float64 if double else np.float32)
    two_classes(classes[counts > 0], "the part of y with positive sample_weight")
    estimator.n_features_in_ = totals.sums.shape[1]
    return estimator.solve(ClassSums(sums, counts, float(rounding), dtype), classes)


class _Part:
    """The data of this process, or the error that they raise."""

    def __init__(self, estimator: UnhingedClassifier, features: Any, labels: Any, weights: Any) -> None:
        self.error: str | None = None
        self.classes: list[Any] = []
        self.width = 0
        self.local: ClassSums | None = None
        try:
            self._take(estimator, features, labels, weights)
        except (TypeError, ValueError) as error:
            self.error = " ".join(str(error).split())

    def _take(self, estimator: UnhingedClassifier, features: Any, labels: Any, weights: Any) -> None:
        shape = tuple(getattr(features, "shape", ()))
        if len(shape) == 2 and shape[0] == 0:
            self.width = shape[1]
            return
        features = checked_features(estimator, features, reset=True, finite=False)
        vector = checked_labels(labels, features)
        found = np.unique(vector)
        self.width = features.shape[1]
        self.local = class_sums(features, encode(vector, found), len(found), checked_weights(weights, features))
        self.classes = found.tolist()

    def summary(self) -> tuple[str | None, list[Any], int]:
        return self.error, self.classes, self.width

    def totals(self, classes: Any) -> ClassSums:
        """The sums of this process, with a row for each class of all processes."""
        whole = ClassSums.nothing(len(classes), self.width)
        if self.local is None:
            return whole
        rows = encode(np.asarray(self.classes), classes)
        whole.sums[rows], whole.weights[rows] = self.local.sums, self.local.weights
        return ClassSums(whole.sums, whole.weights, self.local.rounding, self.local.dtype)


def _agreed(summary: tuple[str | None, list[Any], int], group: Any) -> Any:
    """The classes of all processes. If the data of one process are refused, or do not fit, all raise the same error."""
    told: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, summary, group=group)
    for rank, (error, _, _) in enumerate(told):
        if error is not None:
            raise ValueError(f"the data of process {rank} were refused: {error}")
    widths = [width for _, _, width in told]
    if len(set(widths)) > 1:
        raise ValueError(f"X must have the same number of features in every process; got {widths}")
    classes = np.unique([name for _, names, _ in told for name in names])
    two_classes(classes)
    return classes


def _reduced(numbers: Any, operation: Any, group: Any) -> Any:
    """Reduce an array over all processes, on a GPU if the group works on GPUs only."""
    tensor = torch.from_numpy(numbers.astype(np.float64))
    if dist.get_backend(group) == "nccl":
        tensor = tensor.cuda()
    dist.all_reduce(tensor, operation, group=group)
    return tensor.cpu().numpy()
