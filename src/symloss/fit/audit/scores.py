"""The audit of labels: which ones look wrong, how many there are, and which ones would be right."""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from symloss import checks, extras

BLOCK = 1_000_000
"""Probabilities in memory at a time."""
SHOWN = 5
"""How many of the flagged labels the text of an audit lists."""


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What is known of N labels.

    Print it for a summary. :meth:`to_frame` returns all labels as a pandas DataFrame.

    Attributes:
        given: (N,), the labels, as class numbers.
        suggested: (N,), the most probable other class of each label that is flagged; the label itself of the others.
        label_scores: (N,). Lower is more suspicious.
        flagged: (N,), whether a label looks wrong: the ``n_wrong`` lowest scores, or what another program flagged.
        n_wrong: how many labels are wrong, by estimate.
        n_wrong_interval: (low, high), an interval for that number.
        class_names: the names of the classes.
        positions: (N,), which examples of the data set the labels belong to.
        given_probs: (N,), the probability that each label is right, by the model.
        suggested_probs: (N,), the probability that each suggestion is right, by the model.
        pred_probs: (N, C), the probabilities of the classes, without a look at the label; None if they were not kept.
        truth: (N,), the true labels where somebody knows them. They are used to measure, never to flag.
        transition: (C, C), a row for each true class: the probability of each label; None if it was not estimated.
    """

    given: NDArray[np.int64]
    suggested: NDArray[np.int64]
    label_scores: NDArray[np.float64]
    flagged: NDArray[np.bool_]
    n_wrong: int
    n_wrong_interval: tuple[int, int]
    class_names: tuple[str, ...]
    positions: NDArray[np.int64]
    given_probs: NDArray[np.float64]
    suggested_probs: NDArray[np.float64]
    pred_probs: NDArray[np.floating[Any]] | None = None
    truth: NDArray[np.int64] | None = None
    transition: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.given)

    def __repr__(self) -> str:
        low, high = self.n_wrong_interval
        interval = f" (interval {low:,} to {high:,})" if low < high else ""
        first = f"Audit of {len(self):,} labels: {self.n_wrong:,} look wrong{interval}"
        worst = self.order[self.flagged[self.order]]
        names = [checks.brief(name) for name in self.class_names]
        lines = [
            f"  row {self.positions[place]}: {names[self.given[place]]} -> {names[self.suggested[place]]}, "
            f"score {checks.shown_score(self.label_scores[place])}"
            for place in worst[:SHOWN].tolist()
        ]
        more = [f"  and {len(worst) - SHOWN:,} more"] if len(worst) > SHOWN else []
        return "\n".join([first, *lines, *more])

    def to_frame(self) -> Any:
        """Return all labels as a pandas DataFrame, the most suspicious first.

        Returns:
            N rows: ``row`` (from ``positions``), ``given`` and ``suggested`` (names of classes), ``score`` (lower is
            more suspicious) and ``flagged``.

        >>> audit = audit_labels([0, 1], [2.0, -1.0], [[0.9, 0.1], [0.8, 0.2]], class_names=["ham", "spam"])
        >>> audit.to_frame().to_dict("records")[0]
        {'row': 1, 'given': 'spam', 'suggested': 'ham', 'score': -1.0, 'flagged': True}
        """
        with extras.needed_by("to_frame"):
            import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415
        names = np.array(self.class_names, dtype=object)
        columns = {
            "row": self.positions,
            "given": names[self.given],
            "suggested": names[self.suggested],
            "score": self.label_scores,
            "flagged": self.flagged,
        }
        return pd.DataFrame({name: values[self.order] for name, values in columns.items()})

    @functools.cached_property
    def order(self) -> NDArray[np.int64]:
        """(N,), the places of the labels, the most suspicious first."""
        return np.argsort(self.label_scores, kind="stable").astype(np.int64)

    @property
    def most_probable(self) -> NDArray[np.int64]:
        """(N,), the most probable class of each example; its label where probabilities were not kept."""
        if self.pred_probs is None:
            return self.given
        return np.concatenate([np.zeros(0, np.int64), *(block.argmax(1) for _, block in blocks(self.pred_probs))])

    @property
    def really_wrong(self) -> int | None:
        """How many labels are wrong; None where the truth is not known."""
        return None if self.truth is None else int((self.given != self.truth).sum())

    @property
    def average_precision(self) -> float | None:
        """The average precision of the ranking; None where the truth is not known, or no label is wrong."""
        if self.truth is None or not self.really_wrong:
            return None
        from sklearn.metrics import average_precision_score  # type: ignore[import-untyped]  # noqa: PLC0415

        return float(average_precision_score(self.given != self.truth, -self.label_scores))

    @property
    def precision(self) -> float | None:
        """The share of flagged labels that are wrong; None where the truth is not known, or nothing is flagged."""
        return None if self.truth is None or not self.n_wrong else self._found() / self.n_wrong

    @property
    def recall(self) -> float | None:
        """The share of wrong labels that are flagged; None where the truth is not known, or no label is wrong."""
        return self._found() / self.really_wrong if self.really_wrong else None

    @property
    def right_suggestions(self) -> float | None:
        """The share of suggestions that are the true class; None where it is not known, or nothing is flagged."""
        if self.truth is None or not self.n_wrong:
            return None
        return float((self.suggested == self.truth)[self.flagged].mean())

    def _found(self) -> int:
        assert self.truth is not None
        return int((self.flagged & (self.given != self.truth)).sum())


def blocks(probabilities: NDArray[np.floating[Any]]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield rows of probabilities (N, C) that fit in memory, in float64, with their places."""
    rows = max(1, BLOCK // probabilities.shape[1])
    for start in range(0, len(probabilities), rows):
        place = slice(start, start + rows)
        yield place, np.asarray(probabilities[place], np.float64)
        release(probabilities)


def release(array: NDArray[Any]) -> None:
    """Give the pages of a read-only memory-mapped file back, which would otherwise count as memory in use."""
    if isinstance(array, np.memmap) and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def audit_labels(
    given: ArrayLike,
    label_scores: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_wrong: int | None = None,
    flagged: ArrayLike | None = None,
    interval: tuple[int, int] | None = None,
    class_names: Sequence[str] | None = None,
    positions: ArrayLike | None = None,
    truth: ArrayLike | None = None,
) -> Audit:
    """Flag the labels with the lowest scores, and suggest the most probable other class for each.

    Args:
        given: (N,), the labels, as class numbers.
        label_scores: (N,). Lower is more suspicious; the mean margin of training, for example.
        probabilities: (N, C), of the classes.
        n_wrong: how many to flag; None for :func:`symloss.fit.count_wrong` of the scores. They must be margins then:
            scores that are all in [0, 1] look like probabilities, and are refused.
        flagged: (N,), whether each label looks wrong, if somebody else knows; None for the ``n_wrong`` lowest scores.
        interval: (low, high), an interval for the number of wrong labels; None for that number itself.
        class_names: the names of the C classes; None for their numbers.
        positions: (N,), which examples of a data set these are; None for all, in order.
        truth: (N,), the true labels, to measure by; None where they are not known.

    >>> found = audit_labels([0, 1, 1], [2.0, -1.0, 1.5], [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], n_wrong=1)
    >>> found.flagged.tolist(), found.suggested.tolist()
    ([False, True, False], [0, 0, 1])
    """
    chances = np.asarray(probabilities, dtype=np.float64)
    if chances.ndim != 2 or chances.shape[1] < 2 or not np.isfinite(chances).all():
        raise ValueError(f"probabilities must be finite, of shape (N, C) with C > 1; got shape {chances.shape}")
    size, count = chances.shape
    labels = _whole("given", given, size, count)
    scores = np.asarray(label_scores, dtype=np.float64)
    if scores.shape != (size,) or not np.isfinite(scores).all():
        raise ValueError(f"label_scores must be finite, of shape ({size},); got {checks.brief(label_scores)}")
    names = tuple(map(str, range(count) if class_names is None else class_names))
    if len(names) != count:
        raise ValueError(f"class_names must have {count} names, one for each column of probabilities; got {len(names)}")
    if flagged is not None:
        flags: NDArray[Any] = np.asarray(flagged)
        if n_wrong is not None:
            raise ValueError(f"n_wrong must be left out where flagged is given; got {checks.brief(n_wrong)}")
        if flags.shape != (size,) or flags.dtype != bool:
            raise ValueError(f"flagged must be true or false, of shape ({size},); got {flags.dtype} of {flags.shape}")
    else:
        if n_wrong is None:
            if size and scores.min() >= 0 and scores.max() <= 1:  # none is negative, so no label would look wrong
                raise ValueError(
                    "label_scores must be margins, which are negative for wrong labels, where n_wrong is left out; got "
                    f"scores from {scores.min():.3g} to {scores.max():.3g}, which look like probabilities: give "
                    "n_wrong, the number of labels to flag"
                )
            counted = count_wrong(scores)
            n_wrong, interval = counted.n_wrong, counted.interval if interval is None else interval
        flags = np.zeros(size, dtype=bool)
        count_flagged = int(checks.number("n_wrong", n_wrong, f"[0, {size}]", whole=True))
        flags[np.argsort(scores, kind="stable")[:count_flagged]] = True
    count_flagged, rows = int(flags.sum()), np.arange(size)
    others = chances.copy()
    others[rows, labels] = -np.inf
    suggested = np.where(flags, others.argmax(1), labels)
    return Audit(
        given=labels,
        suggested=suggested,
        label_scores=scores,
        flagged=flags,
        n_wrong=count_flagged,
        n_wrong_interval=(count_flagged, count_flagged) if interval is None else interval,
        class_names=names,
        positions=rows if positions is None else _whole("positions", positions, size),
        given_probs=chances[rows, labels],
        suggested_probs=chances[rows, suggested],
        pred_probs=chances,
        truth=None if truth is None else _whole("truth", truth, size, count),
    )


def _whole(argument: str, values: ArrayLike, size: int, below: int | None = None) -> NDArray[np.int64]:
    array: NDArray[Any] = np.asarray(values)
    if array.shape != (size,) or array.dtype.kind not in "iu":
        raise ValueError(f"{argument} must be whole numbers of shape ({size},); got {array.dtype} of {array.shape}")
    if size and (array.min() < 0 or (below is not None and array.max() >= below)):
        allowed = "at least 0" if below is None else f"from 0 to {below - 1}"
        raise ValueError(f"{argument} must be {allowed}; got {int(array.min())} to {int(array.max())}")
    return array.astype(np.int64)


@dataclass(frozen=True)
class WrongCount:
    """An estimate of the number of wrong labels.

    Attributes:
        n_wrong: the number.
        interval: (low, high), the ends of an interval for it.
        method: "negative margins" or "held-out labels", whichever the number comes from.
    """

    n_wrong: int
    interval: tuple[int, int]
    method: str


def count_wrong(
    margins: ArrayLike,
    held_out_labels: ArrayLike | None = None,
    held_out_probabilities: ArrayLike | None = None,
    *,
    level: float = 0.95,
) -> WrongCount:
    """Estimate how many of N labels are wrong.

    A label whose mean margin is below 0 lost against another label while the network was trained. The number of such
    labels is the estimate. A network that learns wrong labels by heart makes it too small. Held-out labels show this:
    the share of them that the network does not predict is the share of wrong labels, and of errors of the network. If
    the number of negative margins is outside of the interval of that share, the estimate is that share of N.

    Args:
        margins: (N,), the mean margin of each label over the epochs.
        held_out_labels: (M,), noisy labels that were not trained on; None if there are none.
        held_out_probabilities: (M, C), the network's probabilities for them.
        level: the probability that the interval covers the number. It is Wilson's interval of the held-out share; it
            does not know of the network's errors. Without held-out labels it is that of the negative margins.

    >>> count_wrong([-1.0, 2.0, 3.0, 2.0]).n_wrong
    1
    """
    values = np.asarray(margins, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"margins must be finite numbers of shape (N,); got {checks.brief(margins)}")
    checks.number("level", level, "(0, 1)")
    size, negative = len(values), int((values < 0).sum())
    if held_out_labels is None or held_out_probabilities is None:
        return WrongCount(negative, _scaled(_wilson(negative, size, level), size), "negative margins")
    labels, probabilities = np.asarray(held_out_labels), np.asarray(held_out_probabilities)
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1] or not len(labels):
        raise ValueError(
            "held_out_probabilities must have shape (M, C) and held_out_labels shape (M,); got "
            f"{probabilities.shape} and {labels.shape}"
        )
    other = int((probabilities.argmax(1) != labels).sum())
    low, high = _wilson(other, len(labels), level)
    if low <= negative / size <= high:
        return WrongCount(negative, _scaled((low, high), size), "negative margins")
    return WrongCount(round(size * other / len(labels)), _scaled((low, high), size), "held-out labels")


def _wilson(hits: int, size: int, level: float) -> tuple[float, float]:
    """Return Wilson's interval for a share."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, spread = hits / size, z * z / size
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / size + spread / (4 * size))
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def _scaled(shares: tuple[float, float], size: int) -> tuple[int, int]:
    return math.floor(shares[0] * size), math.ceil(shares[1] * size)
