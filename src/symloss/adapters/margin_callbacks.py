"""What the callbacks of Lightning and Hugging Face that record margins share: data with an index, and the audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Dataset

from symloss import checks
from symloss.fit.audit.scores import Audit, audit_labels, count_wrong
from symloss.training.margins import MarginRecorder


class WithIndex(Dataset[Any]):
    """A data set whose examples say which one they are: (x, y) becomes (x, y, index).

    Args:
        dataset: any data set with a length. Its examples are tuples, lists or dictionaries.
        key: under which a dictionary gets the index.

    >>> WithIndex([("a", 0), ("b", 1)])[1]
    ('b', 1, 1)
    """

    def __init__(self, dataset: Any, key: str = "index"):
        self.dataset, self.key = dataset, key

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        example = self.dataset[index]
        if isinstance(example, Mapping):
            return {**example, self.key: index}
        if isinstance(example, tuple | list):
            return (*example, index)
        raise TypeError(f"examples must be tuples, lists or dictionaries; got {checks.brief(example)}")


class MarginAudit:
    """A callback with the margins of N training examples.

    Attributes:
        recorder: the margins, a :class:`symloss.MarginRecorder`.
    """

    recorder: MarginRecorder

    def audit(
        self, labels: ArrayLike, probabilities: ArrayLike, *, truth: ArrayLike | None = None, **options: Any
    ) -> Audit:
        """Find mislabelled examples, their number and the labels they should have. Examples never seen are left out.

        Args:
            labels: (N,), of all examples, as class numbers.
            probabilities: (N, C), of the classes, by the trained model.
            truth: (N,), the true labels, to measure by; None where they are not known.
            options: further ones of :func:`symloss.fit.audit_labels`.
        """
        rows = np.flatnonzero(self.recorder.seen)
        if not len(rows):
            raise ValueError("No margins to audit. Train with this callback first.")
        margin = self.recorder.margin[rows]
        if options.get("n_wrong") is None and options.get("flagged") is None:
            # Counted here, as audit_labels takes margins that are all in [0, 1] for probabilities.
            counted = count_wrong(margin)
            options |= {"n_wrong": counted.n_wrong, "interval": options.get("interval") or counted.interval}
        return audit_labels(
            self._seen("labels", labels, rows),
            margin,
            self._seen("probabilities", probabilities, rows),
            positions=rows,
            truth=None if truth is None else self._seen("truth", truth, rows),
            **options,
        )

    def _seen(self, name: str, values: ArrayLike, rows: NDArray[np.int64]) -> NDArray[Any]:
        array: NDArray[Any] = np.asarray(values)
        if len(array) == len(self.recorder):
            return array[rows]
        raise ValueError(f"{name} must be of all {len(self.recorder)} examples; got {len(array)}")
