"""A loss for Keras 3 on torch. Keras saves and loads it with the model."""

from __future__ import annotations

from typing import Any

import keras  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from symloss import checks
from symloss.losses.spec import create_loss


@keras.saving.register_keras_serializable(package="symloss")  # type: ignore[untyped-decorator, unused-ignore]
class KerasLoss(keras.losses.Loss):  # type: ignore[misc]  # Keras is not read by mypy
    """A symloss loss for ``model.compile(loss=...)``, from the scores of the last layer, without a softmax.

    Args:
        loss: a spec such as ``"gce:q=0.7"``. Its ``reduction`` is left to Keras.
        options: those of ``keras.losses.Loss``: name, reduction and dtype.

    Shapes: ``y_pred`` is (N, ..., C), the scores. ``y_true`` is (N, ...) or (N, ..., 1) for labels, or (N, ..., C) for
    probabilities.

    >>> import torch
    >>> KerasLoss("mae")(torch.tensor([0, 1]), torch.zeros(2, 4))
    tensor(0.7500)
    """

    def __init__(self, loss: str, **options: Any):
        if keras.backend.backend() != "torch":
            raise ValueError(f"Keras must run on torch (KERAS_BACKEND=torch); got {keras.backend.backend()!r}")
        if not isinstance(loss, str):
            raise TypeError(f"loss must be a spec such as 'gce:q=0.7', which Keras can save; got {checks.brief(loss)}")
        super().__init__(**{"name": "symloss", **options})
        self.loss = loss
        self.criterion = create_loss(loss, reduction="none")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return one value for each example. Keras calls this with labels as floating-point numbers."""
        *rows, classes = y_pred.shape
        if y_true.shape == y_pred.shape:
            target = y_true.reshape(-1, classes)
        elif tuple(y_true.shape) in ((*rows,), (*rows, 1)):
            target = y_true.reshape(-1).long()
        else:
            raise ValueError(
                f"y_true must have shape {(*rows,)} or {(*rows, 1)} for labels, or {tuple(y_pred.shape)} for "
                f"probabilities; got {tuple(y_true.shape)}"
            )
        values: Tensor = self.criterion(y_pred.reshape(-1, classes), target)
        return values.reshape(rows)

    def get_config(self) -> dict[str, Any]:
        """Return what Keras saves."""
        return {**super().get_config(), "loss": self.loss}
