"""The predictions of a scikit-learn classifier from its scores (N, C), for arrays and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin  # type: ignore[import-untyped]
from sklearn.utils.extmath import softmax  # type: ignore[import-untyped]
from torch import Tensor


class ByScores(ClassifierMixin):  # type: ignore[misc]
    """A classifier with one score for each class. Subclasses compute the scores (N, C) in ``_scores``."""

    classes_: Any

    def _scores(self, X: Any) -> Any:  # noqa: N803
        raise NotImplementedError

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """The scores (N, C). For two classes their difference z_1 - z_0 (N,), as in scikit-learn."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """The softmax of the scores (N, C). It is not calibrated."""
        scores = self._scores(X)
        return scores.softmax(1) if isinstance(scores, Tensor) else softmax(scores, copy=True)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The class of the largest score (N,): a tensor if X is one and classes are numbers, or else an array."""
        best = self._scores(X).argmax(1)
        if not isinstance(best, Tensor):
            return self.classes_[best]
        if self.classes_.dtype.kind in "iuf":
            return torch.as_tensor(np.ascontiguousarray(self.classes_)).to(best.device)[best]
        return self.classes_[best.cpu().numpy()]
