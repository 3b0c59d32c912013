"""Audit labels with held-out probabilities of any model, in blocks of rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from symloss import checks
from symloss.data.dataset import find_class_names
from symloss.fit.audit.models import MANY, MANY_LOOK_WRONG
from symloss.fit.audit.scores import Audit, blocks, release
from symloss.fit.noise_rate import rate_range
from symloss.noise.calibration import CERTAIN, Calibration, anchors, calibrate

Floats = NDArray[np.floating[Any]]
Rows = NDArray[np.int64]

EXPLAINED, FEWEST_EXPLAINED = 4_000_000, 2_000
"""The most probabilities, and the fewest rows of them, that the transition matrix is fitted to: of an even sample."""
AT_A_TIME = 100
"""Rows of a sample that are read before the pages of a memory-mapped file are given back."""
SUMS = 0.01
"""The largest deviation of a row's sum from 1. Half precision with many classes needs that much."""
TINY = 1e-6
"""Added to probabilities before taking their logarithm."""
LEAST_CERTAIN, FEWEST = 0.1, 30
"""The share of rows with the least certain predictions, and the fewest of them."""
MEMORISED, UNSURE = 0.97, 0.9
"""Labels were seen in training if predictions of less than the second certainty match more of them than the first."""
ALL, MANY_ROWS = 0.999, 1_000
"""So were they if more than this share of at least so many labels are predicted."""
MOST_CERTAIN = (0.2, 0.05, 0.02)
"""Shares of the rows. At least as many labels are wrong as in the one with the fewest, apart from chance."""
EVEN = 0.5
"""Labels that are more probable than this may be wrong too: the upper end of the interval counts them."""
ERRORS = 2.0
"""Standard errors above chance at which probabilities say something about labels."""
SEEN = (
    "These probabilities match {:.1f} % of the labels, even where they are uncertain. A model that was trained on "
    "these rows has learnt their wrong labels too: pass out-of-fold probabilities."
)
CHANCE = (
    "These probabilities match the labels no better than chance: check that rows are in the order of the labels and "
    "columns in the order of the classes."
)
UNUSED = "{} of the {} classes have no label, such as {}: check that the columns of pred_probs are the classes."


def audit(
    labels: ArrayLike,
    pred_probs: Any,
    *,
    class_names: Sequence[str] | None = None,
    positions: ArrayLike | None = None,
    truth: ArrayLike | None = None,
) -> Audit:
    """Find mislabelled examples with the out-of-fold probabilities of any classifier.

    The model must not have been trained on the rows it predicts; out-of-fold probabilities, as from
    ``sklearn.model_selection.cross_val_predict(..., method="predict_proba")``, satisfy this. A temperature and a
    transition matrix are fitted to labels and probabilities (see :func:`symloss.noise.calibrate` with
    ``separation=None``). They give the probability that each label is right, which ranks the labels, and the expected
    number of wrong ones.

    Args:
        labels: (N,), class numbers from 0 to C - 1, or class names.
        pred_probs: (N, C), an array, tensor or pandas DataFrame, whose columns are then the class names. A
            memory-mapped array is read in blocks.
        class_names: the names of the C columns. The default is numbers or, if labels are names, their sorted order.
        positions: (N,), which examples of a data set these are; None for all, in order.
        truth: (N,), the true labels, only for measuring; None if unknown.

    Returns:
        The audit. Its ``pred_probs`` are the ones passed.

    >>> rng = np.random.default_rng(0)
    >>> true = np.arange(300) % 3
    >>> pred_probs = 0.1 * rng.random((300, 3)) + np.eye(3)[true]
    >>> pred_probs /= pred_probs.sum(1, keepdims=True)
    >>> labels = np.where(rng.random(300) < 0.2, (true + 1) % 3, true)
    >>> found = audit(labels, pred_probs)
    >>> bool(found.n_wrong == (labels != true).sum()), bool((found.suggested == true).all())
    (True, True)
    """
    if class_names is None and hasattr(pred_probs, "columns"):
        class_names = [str(name) for name in pred_probs.columns]
    chances, texts = _probabilities(pred_probs), np.asarray(labels)
    size, count = _shape(chances, texts)
    names = _class_names(class_names, texts, count)
    given = _numbers("labels", texts, size, names)
    _check_rows(chances, given, names)
    sample = _sample(size, count)
    scores, noisy = _log(_rows(chances, sample)), given[sample]
    low, high = rate_range(scores, noisy, MOST_CERTAIN)  # before a transition matrix takes memory
    calibration = calibrate(torch.from_numpy(scores), torch.from_numpy(noisy), separation=None)
    apart = anchors(torch.from_numpy(scores), calibration.temperature) >= CERTAIN
    del scores
    label_scores, suggested, suggested_probs = _judged(chances, given, calibration)
    rate = float(1 - label_scores.mean())
    if rate > MANY and not apart:
        warnings.warn(MANY_LOOK_WRONG, stacklevel=2)
    low, high = min(low, rate), max(high + float((1 - label_scores)[label_scores > EVEN].sum()) / size, rate)
    n_wrong = round(rate * size)
    flagged = np.zeros(size, bool)
    flagged[np.argsort(label_scores, kind="stable")[:n_wrong]] = True
    return Audit(
        given=given,
        suggested=np.where(flagged, suggested, given),
        label_scores=label_scores,
        flagged=flagged,
        n_wrong=n_wrong,
        n_wrong_interval=(math.floor(low * size), math.ceil(min(1.0, high) * size)),
        class_names=names,
        positions=np.arange(size) if positions is None else _positions(positions, size),
        given_probs=label_scores,
        suggested_probs=np.where(flagged, suggested_probs, label_scores),
        pred_probs=chances,
        truth=None if truth is None else _numbers("truth", np.asarray(truth), size, names),
        transition=calibration.transition.numpy(),
    )


def _probabilities(pred_probs: Any) -> Floats:
    """Return the probabilities (N, C) as an array, which may be memory-mapped."""
    if isinstance(pred_probs, torch.Tensor):
        pred_probs = pred_probs.detach().cpu()
        pred_probs = (pred_probs.float() if pred_probs.dtype == torch.bfloat16 else pred_probs).numpy()
    found: Floats = pred_probs if isinstance(pred_probs, np.ndarray) else np.asarray(pred_probs)
    if found.ndim != 2 or found.shape[1] < 2 or found.dtype.kind != "f":
        hint = (
            ". For two classes, pass np.stack([1 - p, p], axis=1)" if found.ndim == 1 or found.shape[1:] == (1,) else ""
        )
        raise ValueError(
            f"pred_probs must be floats of shape (N, C) with at least two classes; got {found.dtype} of shape "
            f"{found.shape}{hint}"
        )
    return found


def _shape(chances: Floats, labels: NDArray[Any]) -> tuple[int, int]:
    size, count = chances.shape
    if labels.ndim != 1 or not len(labels) or len(labels) != size:
        hint = ". It is transposed: pass pred_probs.T" if labels.shape == (count,) else ""
        raise ValueError(
            f"pred_probs must have one row for each label; got shape {chances.shape} and labels of shape "
            f"{labels.shape}{hint}"
        )
    return size, count


def _class_names(given: Sequence[str] | None, labels: NDArray[Any], count: int) -> tuple[str, ...]:
    """Return the names of the columns: as given, numbers from 0, or the sorted labels as scikit-learn orders them."""
    numbers = tuple(map(str, range(count)))
    if given is not None:
        names = tuple(map(str, given))
        if len(set(names)) != count or len(names) != count:
            raise ValueError(f"class_names must be {count} different names, one for each column; got {len(names)}")
        return names
    used = {str(label) for label in np.unique(_texts(labels) if labels.dtype.kind in "OUST" else labels)}
    if used <= set(numbers) or labels.dtype.kind not in "OUSTiu":
        return numbers
    names = find_class_names(used, "labels") if len(used) > 1 else tuple(used)
    if len(names) != count:
        hint = "pass class_names in the order of the columns" if len(names) < count else "pred_probs lacks columns"
        raise ValueError(
            f"labels must name {count} classes, one for each column of pred_probs; got {len(names)}, from "
            f"{checks.brief(names[0])} to {checks.brief(names[-1])}: {hint}"
        )
    return names


def _texts(labels: NDArray[Any]) -> NDArray[np.str_]:
    return np.array([label.decode() if isinstance(label, bytes) else str(label) for label in labels.tolist()])


def _numbers(argument: str, labels: NDArray[Any], size: int, names: Sequence[str]) -> Rows:
    """Return labels (N,) as class numbers. Numbers that are names are looked up; others count from 0."""
    if labels.shape != (size,) or labels.dtype.kind not in "OUSTiu":
        raise ValueError(
            f"{argument} must be class numbers or class names of shape ({size},); got {labels.dtype} of shape "
            f"{labels.shape}"
        )
    used, places = np.unique(_texts(labels) if labels.dtype.kind in "OUST" else labels, return_inverse=True)
    known = {name: number for number, name in enumerate(names)}
    numbers = range(len(names))
    if all(str(label) in known for label in used):
        found = [known[str(label)] for label in used]
    elif used.dtype.kind in "iu" and int(used[0]) in numbers and int(used[-1]) in numbers:
        found = used.tolist()
    else:
        unknown = next(label for label in used.tolist() if str(label) not in known)
        raise ValueError(
            f"{argument} must be among the {len(names)} classes of pred_probs, {checks.brief(list(names))}; got "
            f"{checks.brief(unknown)}"
        )
    return np.array(found, np.int64)[places]


def _positions(positions: ArrayLike, size: int) -> Rows:
    found: NDArray[Any] = np.asarray(positions)
    if found.shape != (size,) or found.dtype.kind not in "iu" or (size and found.min() < 0):
        raise ValueError(f"positions must be whole numbers of shape ({size},); got {found.dtype} of {found.shape}")
    return found.astype(np.int64)


def _check_rows(chances: Floats, given: Rows, names: Sequence[str]) -> None:
    """Raise ValueError unless rows are probabilities; warn of those that cannot be held-out ones, or are of no use."""
    certainty, right, above = (np.empty(len(given)) for _ in range(3))
    frequency = np.bincount(given, minlength=chances.shape[1]) / len(given)
    for rows, block in blocks(chances):
        sums = block.sum(1)
        bad = ~((block.min(1) >= 0) & (np.abs(sums - 1) <= SUMS))  # NaN is neither
        if bad.any():
            raise _no_probabilities(block[bad.argmax()], rows.start + int(bad.argmax()))
        labels, places = given[rows], np.arange(len(block))
        certainty[rows], right[rows] = block.max(1), block.argmax(1) == labels
        above[rows] = block[places, labels] - block @ frequency
    if above.mean() <= ERRORS * above.std() / math.sqrt(len(above)) + TINY:
        warnings.warn(CHANCE, stacklevel=3)
    least = np.argsort(certainty, kind="stable")[: max(FEWEST, int(LEAST_CERTAIN * len(given)))]
    unsure = right[least].mean() > MEMORISED and certainty[least].mean() < UNSURE
    if (unsure and len(least) >= FEWEST) or (right.mean() > ALL and len(given) >= MANY_ROWS):
        warnings.warn(SEEN.format(100 * right.mean()), stacklevel=3)
    unused = np.flatnonzero(frequency == 0)
    if len(unused):
        warnings.warn(UNUSED.format(len(unused), len(names), checks.brief(names[unused[0]])), stacklevel=3)


def _no_probabilities(row: NDArray[np.float64], place: int) -> ValueError:
    if not np.isfinite(row).all():
        hint = f"holds {row[~np.isfinite(row)][0]}"
    elif (row <= 0).all() and abs(np.exp(row).sum() - 1) <= SUMS:
        hint = "holds log-probabilities: pass np.exp(pred_probs)"
    elif (row < 0).any() or (row > 1).any():
        hint = "holds logits or other scores: pass scipy.special.softmax(pred_probs, axis=1)"
    else:
        hint = f"sums to {row.sum():.4g}"
    return ValueError(f"pred_probs must be probabilities that sum to 1 in each row; row {place} (from 0) {hint}")


def _sample(size: int, count: int) -> Rows:
    """Return the rows that the transition matrix is fitted to: all, or an even sample."""
    return np.linspace(0, size - 1, min(size, max(FEWEST_EXPLAINED, EXPLAINED // count))).astype(np.int64)


def _rows(chances: Floats, rows: Rows) -> Floats:
    """Return some rows. A system may map megabytes around each row that is read, so a few are read at a time."""
    found = np.empty((len(rows), chances.shape[1]), chances.dtype)
    for start in range(0, len(rows), AT_A_TIME):
        found[start : start + AT_A_TIME] = chances[rows[start : start + AT_A_TIME]]
        release(chances)
    return found


def _log(chances: Floats) -> NDArray[np.float64]:
    return np.log(np.asarray(chances, np.float64) + TINY)


def _judged(
    chances: Floats, given: Rows, calibration: Calibration
) -> tuple[NDArray[np.float64], Rows, NDArray[np.float64]]:
    """Return the probability of each label, the most probable other class, and its probability."""
    label_scores, suggested, suggested_probs = (
        np.empty(len(given)),
        np.empty(len(given), np.int64),
        np.empty(len(given)),
    )
    for rows, block in blocks(chances):
        labels, places = given[rows], np.arange(len(block))
        posterior = calibration.posterior(torch.from_numpy(_log(block)), torch.from_numpy(labels)).numpy()
        label_scores[rows] = posterior[places, labels]
        posterior[places, labels] = -1.0
        suggested[rows] = posterior.argmax(1)
        suggested_probs[rows] = posterior[places, suggested[rows]]
    return label_scores, suggested, suggested_probs
