"""Estimate probabilities of the true class and the transition matrix, from scores and noisy labels.

A temperature that is fitted to noisy labels as they are reproduces the noise: the most certain prediction under 40 %
noise is 0.6. Here softmax(z / T) is the probability of the *true* class. Times a transition matrix it is the
probability of the label that was given, and that has to explain held-out labels. Temperature and matrix are chosen
together, by likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from symloss import checks

ROUNDS, SETTLED = 60, 1e-5
"""Rounds of EM for the transition matrix, and the change of an entry that ends them."""
EXAMPLES, ENTRIES = 10_000, 10**6
"""The most examples, and scores of them, that choose the temperature. More would move it by less than a hundredth."""
EXAMPLES_PER_ENTRY = 4
"""Examples for each entry of the transition matrix; with fewer it is symmetric, with a single rate."""
TEMPERATURES = 10  # how many temperatures are tried before the best is refined
ANCHORS, CERTAIN, ANCHORED = 0.3, 0.99, 20
"""The share of each predicted class that is certain, the probability that counts as certain, and the fewest rows."""
PRICE = 0.1
"""The most that certain anchors may cost, as a share of the log-likelihood that the scores gain over class priors."""
BISECTIONS = 12


@dataclass(frozen=True)
class Calibration:
    """How scores become probabilities of the true class, and how the true class became the label.

    Args:
        temperature: scores are divided by it.
        transition: (C, C). A row for each true class: the probabilities of the labels.
        prior: (C,), how frequent the true classes are.
        log_likelihood: the mean log-probability of the labels that were explained.

    >>> calibration = Calibration(0.5, torch.tensor([[0.8, 0.2], [0.2, 0.8]]), torch.tensor([0.5, 0.5]), -0.5)
    >>> round(calibration.noise_rate, 3)
    0.2
    """

    temperature: float
    transition: Tensor
    prior: Tensor
    log_likelihood: float

    @property
    def noise_rate(self) -> float:
        """The share of labels that are wrong."""
        return 1 - float(self.prior @ self.transition.diagonal())

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return the probabilities of the true classes (N, C), in float64, from the scores (N, C) of a model."""
        return (scores.double() / self.temperature).softmax(1)

    def posterior(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the probabilities of the true classes (N, C) where the noisy labels (N,) are known too."""
        return _posterior(self.probabilities(scores), self.transition[:, labels].T)


def calibrate(
    scores: Tensor, labels: Tensor, transition: Tensor | None = None, *, separation: float | None = 0.0
) -> Calibration:
    """Learn the temperature and the transition matrix from held-out examples with noisy labels.

    The examples must not be those that the model was trained on. Otherwise the scores know the wrong labels.

    Args:
        scores: (N, C), the scores of a model. Logarithms of probabilities are scores too.
        labels: (N,), the noisy labels.
        transition: (C, C), a row for each true class, if it is known. Then only the temperature is learnt.
        separation: how much the entropy of the true classes counts against a temperature. Likelihood alone cannot tell
            noise that depends on the features from classes that overlap, and decides for overlap. Of 40 % such noise
            on digits it found 5 %, and with a separation of 0.15 it found 39 %. None lets the data decide: the most
            likely temperature is lowered until 30 % of each predicted class are certain (anchor points, Patrini et al.
            2017), unless that costs more than a tenth of the log-likelihood that the scores gain over class priors. If
            Akaike's criterion then prefers symmetric noise, overlap is not in doubt: the most likely temperature stays,
            and the matrix is symmetric.

    >>> scores = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
    >>> labels = scores.argmax(1)
    >>> labels[:600] = (labels[:600] + 1) % 3
    >>> round(calibrate(scores, labels).noise_rate, 1)
    0.3
    """
    scores, labels = _checked(scores, labels)
    if separation is not None:
        checks.number("separation", separation, "[0, inf)")
    if transition is not None and transition.shape != (scores.shape[1],) * 2:
        raise ValueError(f"transition must have shape {(scores.shape[1],) * 2}; got {tuple(transition.shape)}")
    known = None if transition is None else transition.double()
    step = -(-len(scores) // _enough(scores))
    part, noisy = scores[::step], labels[::step]
    temperature = _best_temperature(part, noisy, known, separation or 0.0)
    if separation is not None:
        return _explain(scores, labels, temperature, known).calibration()
    found = _explain(scores, labels, _anchored_temperature(part, noisy, temperature, known), known)
    if known is None and _enough_for_entries(scores) and not _worth_its_entries(found, scores, labels):
        found = _explain_by_symmetric(scores, labels, temperature)
    return found.calibration()


def noise_rate_interval(
    calibration: Calibration, scores: Tensor, labels: Tensor, *, level: float = 0.95, draws: int = 100, seed: int = 0
) -> tuple[float, float]:
    """Return a bootstrap interval for the share of wrong labels.

    The model and its temperature stay as they are, so that the interval knows nothing of their errors.

    Args:
        calibration: the result of :func:`calibrate` for these examples.
        scores: (N, C).
        labels: (N,).
        level: the probability that the interval covers the rate.
        draws: the number of bootstrap samples.
        seed: the seed of the draws.
    """
    scores, labels = _checked(scores, labels)
    checks.number("level", level, "(0, 1)")
    checks.number("draws", draws, "[10, inf)", whole=True)
    generator = torch.Generator().manual_seed(seed)
    size = min(len(scores), _enough(scores))
    every = (torch.randint(len(scores), (size,), generator=generator) for _ in range(draws))
    explained = (_explain(scores[drawn], labels[drawn], calibration.temperature, None, rounds=15) for drawn in every)
    found = torch.tensor([each.noise_rate for each in explained], dtype=torch.float64)
    # A sample of fewer examples than there are is wider by the root of their ratio.
    spread = (found - found.mean()) * math.sqrt(size / len(scores)) + calibration.noise_rate
    low, high = spread.quantile(torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)).tolist()
    return max(0.0, low), min(1.0, high)


def _enough(scores: Tensor) -> int:
    return max(100, min(EXAMPLES, ENTRIES // scores.shape[1]))


def _checked(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    if scores.ndim != 2 or scores.shape[1] < 2 or labels.shape != scores.shape[:1] or not len(labels):
        raise ValueError(
            "scores must have shape (N, C) with two classes or more, and labels shape (N,); "
            f"got {tuple(scores.shape)} and {tuple(labels.shape)}"
        )
    if labels.dtype.is_floating_point or not 0 <= int(labels.min()) <= int(labels.max()) < scores.shape[1]:
        raise ValueError(
            f"labels must be whole numbers from 0 to {scores.shape[1] - 1}; got {sorted(set(labels.tolist()))[:9]}"
        )
    if not bool(scores.isfinite().all()):
        raise ValueError("scores must be finite; got infinite values or NaN")
    return scores.detach().double().cpu(), labels.detach().long().cpu()


def _best_temperature(scores: Tensor, labels: Tensor, transition: Tensor | None, separation: float) -> float:
    """Return the most likely temperature: a grid over a factor of 1000, then a golden-section search."""
    size = float((scores.amax(1) - scores.mean(1)).mean())
    if size == 0:
        return 1.0

    def badness(log_temperature: float) -> float:
        temperature = math.exp(log_temperature)
        found = _explain(scores, labels, temperature, transition, rounds=20)
        entropy = torch.special.entr((scores / temperature).softmax(1)).sum(1).mean()
        return separation * float(entropy) - found.log_likelihood

    low, high = math.log(size / 300), math.log(size * 3)
    grid = [low + (high - low) * k / (TEMPERATURES - 1) for k in range(TEMPERATURES)]
    best = min(range(TEMPERATURES), key=lambda k: badness(grid[k]))
    return math.exp(_golden_section(badness, grid[max(best - 1, 0)], grid[min(best + 1, TEMPERATURES - 1)]))


def anchors(scores: Tensor, temperature: float) -> float:
    """Return how certain the most certain rows of each predicted class are: a quantile, averaged over the classes.

    >>> scores = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    >>> round(anchors(scores, 1.0), 2), round(anchors(scores, 0.1), 2)
    (0.95, 1.0)
    """
    certainty = (scores / temperature).softmax(1).amax(1)
    predicted = scores.argmax(1)
    counts = predicted.bincount(minlength=scores.shape[1])
    group = torch.where(counts[predicted] >= ANCHORED, predicted, -1)  # classes with few rows count as one
    found = [certainty[group == each].quantile(1 - ANCHORS) for each in sorted(set(group.tolist()))]
    return float(torch.stack(found).mean())


def _anchored_temperature(scores: Tensor, labels: Tensor, start: float, transition: Tensor | None) -> float:
    """Lower a temperature until there are anchor points, as far as their price allows."""
    if anchors(scores, start) >= CERTAIN:
        return start
    prior = labels.bincount(minlength=scores.shape[1]).double() / len(labels)
    best = _explain(scores, labels, start, transition, rounds=20).log_likelihood
    least = best - PRICE * max(0.0, best + float(torch.special.entr(prior).sum()))

    def affordable(temperature: float) -> bool:
        return _explain(scores, labels, temperature, transition, rounds=20).log_likelihood >= least

    apart = _bisect(lambda temperature: anchors(scores, temperature) >= CERTAIN, start / 300, start)
    return apart if affordable(apart) else _bisect(lambda temperature: not affordable(temperature), apart, start)


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the greatest temperature at which something holds that holds for low ones and not for high ones."""
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _worth_its_entries(found: _Explanation, scores: Tensor, labels: Tensor) -> bool:
    """Return whether a transition matrix explains more than symmetric noise, by Akaike's criterion."""
    symmetric = _explain_by_symmetric(scores, labels, found.temperature)
    entries = scores.shape[1] * (scores.shape[1] - 1) - 1
    return (found.log_likelihood - symmetric.log_likelihood) * len(labels) > entries


def _golden_section(badness: Callable[[float], float], low: float, high: float, steps: int = 10) -> float:
    """Return the place of the least value between two ends."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = badness(left), badness(right)
    for _ in range(steps):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = badness(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = badness(right)
    return (low + high) / 2


class _Explanation(NamedTuple):
    """What explains labels at a temperature: a transition matrix, or a rate, which is all of a symmetric one."""

    temperature: float
    noise: Tensor | float
    prior: Tensor
    log_likelihood: float

    @property
    def noise_rate(self) -> float:
        return self.noise if isinstance(self.noise, float) else self.calibration().noise_rate

    def calibration(self) -> Calibration:
        matrix = _symmetric_matrix(self.noise, len(self.prior)) if isinstance(self.noise, float) else self.noise
        return Calibration(self.temperature, matrix, self.prior, self.log_likelihood)


def _explain(
    scores: Tensor, labels: Tensor, temperature: float, transition: Tensor | None, rounds: int = ROUNDS
) -> _Explanation:
    """Return the most likely transition matrix at this temperature, unless it is known."""
    if transition is None and not _enough_for_entries(scores):
        return _explain_by_symmetric(scores, labels, temperature)
    true = (scores / temperature).softmax(1)
    if transition is None:
        rate = _symmetric_rate(_at_labels(true, labels), true.shape[1])
        transition = _any_matrix(true, labels, _symmetric_matrix(rate, true.shape[1]), rounds)
    likelihood = (true * transition[:, labels].T).sum(1)
    return _Explanation(temperature, transition, true.mean(0), _mean_log(likelihood))


def _explain_by_symmetric(scores: Tensor, labels: Tensor, temperature: float) -> _Explanation:
    """Return the most likely rate of symmetric noise. Its matrix is not made: of 5,000 classes it has 0.2 GB."""
    true = (scores / temperature).softmax(1)
    right, others = _at_labels(true, labels), true.shape[1] - 1
    rate = _symmetric_rate(right, true.shape[1])
    return _Explanation(temperature, rate, true.mean(0), _mean_log((1 - rate) * right + rate / others * (1 - right)))


def _enough_for_entries(scores: Tensor) -> bool:
    return len(scores) >= EXAMPLES_PER_ENTRY * scores.shape[1] ** 2


def _mean_log(likelihood: Tensor) -> float:
    return float(likelihood.clamp_min(1e-300).log().mean())


def _at_labels(true: Tensor, labels: Tensor) -> Tensor:
    return true.gather(1, labels[:, None]).squeeze(1)


def _symmetric_rate(right: Tensor, num_classes: int) -> float:
    """Fit symmetric noise to the probabilities of the labels: one rate, and all wrong classes equally likely."""
    rate = 0.3
    for _ in range(ROUNDS):
        wrong = rate / (num_classes - 1) * (1 - right)
        before = rate
        rate = float((wrong / (wrong + (1 - rate) * right).clamp_min(1e-300)).mean().clamp(1e-6, 1 - 1e-6))
        if abs(rate - before) < SETTLED:
            break
    return rate


def _symmetric_matrix(rate: float, num_classes: int) -> Tensor:
    matrix = torch.full((num_classes, num_classes), rate / (num_classes - 1), dtype=torch.float64)
    return matrix.fill_diagonal_(1 - rate)


def _any_matrix(true: Tensor, labels: Tensor, start: Tensor, rounds: int) -> Tensor:
    """Run EM from the symmetric matrix, which also counts as C further examples of each class."""
    num_classes = true.shape[1]
    transition = start
    for _ in range(rounds):
        counts = torch.zeros_like(start).index_add_(0, labels, _posterior(true, transition[:, labels].T)).T
        counts = counts + num_classes * start
        before, transition = transition, counts / counts.sum(1, keepdim=True)
        if float((transition - before).abs().max()) < SETTLED:
            break
    return transition


def _posterior(true: Tensor, explained: Tensor) -> Tensor:
    joint = true * explained
    return joint / joint.sum(1, keepdim=True).clamp_min(1e-300)
