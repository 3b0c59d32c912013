"""Transition matrices of label noise, and labels corrupted by one.

Rows are true classes, columns the classes that labels become.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from symloss import checks
from symloss.noise.spec import Spec

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

METHODS = ("floor", "exact", "sampled")
"""How the number of labels that change is found; see :func:`symloss.noise.corrupt`."""


def transition_matrix(
    spec: Spec, num_classes: int, *, dataset: str | None = None, prior: ArrayLike | None = None
) -> Matrix:
    """Return the transition matrix (C, C) of a noise. Instance noise and human labels have none.

    Args:
        spec: the noise, from :func:`symloss.noise.parse`.
        num_classes: the number of classes C.
        dataset: mnist, digits, cifar10 or cifar100, for ``asym`` noise.
        prior: the class probabilities (C,), for ``prior`` noise.

    Returns:
        One row for each true class and one column for each class that a label may become.

    >>> from symloss.noise import parse
    >>> transition_matrix(parse("pair:0.25"), 3)
    array([[0.75, 0.25, 0.  ],
           [0.  , 0.75, 0.25],
           [0.25, 0.  , 0.75]])
    """
    checks.number("num_classes", num_classes, "[2, inf)", whole=True)
    if spec.kind == "matrix":
        assert spec.path is not None
        return distributions("transition matrix", load_matrix(spec.path), (num_classes, num_classes))
    if spec.kind == "clean":
        return np.eye(num_classes)
    if spec.rate is None or spec.kind == "instance":
        raise ValueError(f"noise must be of a kind that has a transition matrix; got {str(spec)!r}")
    if spec.kind == "sym":
        return symmetric(num_classes, spec.rate)
    if spec.kind == "sym-any":
        return prior_weighted(np.full(num_classes, 1 / num_classes), spec.rate)
    if spec.kind == "prior":
        if prior is None:
            raise ValueError("prior must be given for prior noise; got None")
        return prior_weighted(distributions("prior", prior, (num_classes,)), spec.rate)
    matrix, rate = np.eye(num_classes), flip_rate(spec.rate, num_classes)
    for label, target in mistakes(spec.kind, num_classes, dataset).items():
        matrix[label, [label, target]] = 1 - rate, rate
    return matrix


def flip_rate(rate: float, num_classes: int) -> float:
    """Check that a flip rate is below (C - 1) / C. Above it, symmetric noise makes true labels the rarest."""
    rate, limit = checks.number("flip rate", rate, "[0, 1)"), (num_classes - 1) / num_classes
    if rate >= limit:
        raise ValueError(f"flip rate must be below (C-1)/C = {limit:.4g} with {num_classes} classes; got {rate!r}")
    return rate


def symmetric(num_classes: int, rate: float) -> Matrix:
    """Return the matrix of symmetric noise: 1 - rate for the true class, rate / (C - 1) for every other one."""
    rate = flip_rate(rate, num_classes)
    matrix = np.full((num_classes, num_classes), rate / (num_classes - 1))
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


def prior_weighted(prior: Matrix, weight: float) -> Matrix:
    """Return (1 - p) I + p 1 q^T: with probability p, the weight, a draw from the prior q, perhaps the true class.

    The weight is that of the mixture, not the flip rate: a label of class c is moved with probability p (1 - q_c).

    >>> prior_weighted(np.array([0.75, 0.25]), 0.4)
    array([[0.9, 0.1],
           [0.3, 0.7]])
    """
    weight = checks.number("mixture weight p", weight, "[0, 1)")
    return (1 - weight) * np.eye(len(prior)) + weight * prior


def distributions(argument: str, value: ArrayLike, shape: tuple[int, ...]) -> Matrix:
    """Check class probabilities along the last axis, and divide them by their sum to remove rounding."""
    try:
        values = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{argument} must be an array of numbers; got {checks.brief(value)}") from None
    if values.shape != shape:
        raise ValueError(f"{argument} must have shape {shape}; got {values.shape}")
    argument = argument if len(shape) == 1 else f"rows of the {argument}"
    if not (values >= 0).all():
        raise ValueError(f"{argument} must hold probabilities of at least 0; got {values.min():g}")
    totals = values.sum(-1, keepdims=True)
    off = np.abs(totals - 1)
    if not (off < 1e-5).all():
        raise ValueError(f"{argument} must sum to 1; got a sum of {totals.flat[off.argmax()]:g}")
    return np.where(off < 1e-12, values, values / totals)


def shares(counts: Labels) -> Matrix:
    """Return the share of each label in each true class, from counts (C, C). An empty class has a row of zeros."""
    return np.asarray(counts / np.maximum(counts.sum(1, keepdims=True), 1))


MATRIX_FILES = (".npy", ".npz", ".csv", ".json")


def load_matrix(path: str | Path) -> Matrix:
    """Read a matrix from a file of type npy, npz (with one array), csv or json. No code in it is run."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path of a transition matrix must be a file; got {str(path)!r}, which is not there")
    if path.suffix.lower() not in MATRIX_FILES:
        raise ValueError(f"file of a transition matrix must end in {', '.join(MATRIX_FILES)}; got {str(path)!r}")
    try:
        if path.suffix.lower() == ".csv":
            found: Any = np.loadtxt(path, delimiter=",", comments=None, ndmin=2)
        elif path.suffix.lower() == ".json":
            found = json.loads(path.read_text())
        else:
            found = np.load(path, allow_pickle=False)
            if not isinstance(found, np.ndarray):
                with found:
                    (found,) = found.values()
        return np.asarray(found, dtype=np.float64)
    except Exception as error:  # a damaged file raises anything from EOFError to zlib.error
        raise ValueError(
            f"file of a transition matrix must hold one array of numbers; "
            f"got {str(path)!r}, which cannot be read ({type(error).__name__})"
        ) from error


def relabel(clean: Labels, transition: Matrix, method: str, rng: np.random.Generator) -> Labels:
    """Add noise from a transition matrix to labels; see :func:`symloss.noise.corrupt` for the methods."""
    groups = by_class(clean, len(transition))
    noisy = clean.copy()
    if method == "sampled":
        uniform = rng.random(len(clean))
        for group, row in zip(groups, transition, strict=True):
            steps = np.cumsum(row)
            noisy[group] = np.searchsorted(steps / steps[-1], uniform[group], side="right")
        return noisy
    sizes = np.array([len(group) for group in groups])
    for group, row in zip(groups, flip_counts(transition, sizes, method, rng), strict=True):
        moved = rng.permutation(group)[: row.sum()]
        noisy[moved] = np.repeat(np.arange(len(row)), row)
    return noisy


def by_class(labels: Labels, num_classes: int) -> list[Labels]:
    """Return the positions of each class, in ascending order."""
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=num_classes))
    return np.split(order, ends[:-1])


def flip_counts(transition: Matrix, sizes: Labels, method: str, rng: np.random.Generator) -> Labels:
    """Return how many labels of class c become k: ``floor`` or ``exact``, see :func:`symloss.noise.corrupt`.

    In exact counts, largest remainders distribute the total number of flips over the classes, and the flips of a class
    over its targets. So the flips of a class, too, are less than one away from the expected number.

    >>> transition, sizes = np.array([[0.5, 0.5], [0.1, 0.9]]), np.array([5, 9])
    >>> [flip_counts(transition, sizes, method, np.random.default_rng(0)).tolist() for method in ("floor", "exact")]
    [[[0, 2], [0, 0]], [[0, 2], [1, 0]]]
    """
    quotas = transition * sizes[:, None]
    np.fill_diagonal(quotas, 0)
    if method == "floor":
        return quotas.astype(np.int64)
    quotas = np.round(quotas, 9)
    per_class = np.round(quotas.sum(1), 9)
    flips = apportion(per_class, int(np.floor(per_class.sum() + 0.5)), rng)
    return np.stack([apportion(row, number, rng) for row, number in zip(quotas, flips, strict=True)])


def apportion(quotas: Matrix, total: int, rng: np.random.Generator) -> Labels:
    """Round each quota down or up so that the sum is ``total``. The largest remainders go up, ties at random.

    If ties went to the first class, symmetric noise would prefer low class numbers.
    """
    whole = np.floor(quotas).astype(np.int64)
    remainders = np.round(quotas - whole, 9)
    order = np.lexsort((rng.random(len(quotas)), -remainders))
    whole[order[: total - whole.sum()]] += 1
    return whole


DIGITS = {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}
CIFAR10 = {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}
"""truck to automobile, bird to airplane, cat and dog to each other, deer to horse."""

MAPS = {"mnist": DIGITS, "digits": DIGITS, "cifar10": CIFAR10}

# Fine and coarse labels of CIFAR-100 are numbered in alphabetical order, each on its own.
SUPERCLASSES: dict[str, str] = tomllib.loads(Path(__file__).with_name("superclasses.toml").read_text())


def cifar100_coarse() -> list[int]:
    """Return the superclass of each of CIFAR-100's fine classes.

    >>> cifar100_coarse()[:5]  # apple, aquarium_fish, baby, bear, beaver
    [4, 1, 14, 8, 0]
    """
    coarse = {fine: number for number, group in enumerate(SUPERCLASSES.values()) for fine in group.split()}
    return [coarse[fine] for fine in sorted(coarse)]


def rotation(groups: list[int]) -> dict[int, int]:
    """Map each class to the next one of its group, the last to the first.

    >>> rotation([0, 1, 0, 1, 0])
    {0: 2, 2: 4, 4: 0, 1: 3, 3: 1}
    """
    target: dict[int, int] = {}
    for group in sorted(set(groups)):
        members = [label for label, its_group in enumerate(groups) if its_group == group]
        target.update(zip(members, members[1:] + members[:1], strict=True))
    return target


def plain_kind(kind: str, dataset: str | None) -> str:
    """Return what ``asym`` stands for: on CIFAR-100 ``asym-blocks``, as in published tables.

    >>> plain_kind("asym", "cifar100"), plain_kind("asym", "cifar10")
    ('asym-blocks', 'asym')
    """
    return "asym-blocks" if kind == "asym" and _plain_name(dataset) == "cifar100" else kind


def _plain_name(dataset: str | None) -> str:
    return (dataset or "").lower().replace("-", "").replace("_", "")


def mistakes(kind: str, num_classes: int, dataset: str | None) -> dict[int, int]:
    """Return which class each class is mistaken for. A class that is not in the result keeps its labels."""
    if kind == "pair":
        return rotation([0] * num_classes)
    name, kind = _plain_name(dataset), plain_kind(kind, dataset)
    if kind == "asym-blocks":
        if num_classes % 5:
            raise ValueError(f"num_classes must be a multiple of five for asym-blocks noise; got {num_classes}")
        return rotation([label // 5 for label in range(num_classes)])
    by_superclass = kind == "asym-superclass"
    if not by_superclass and name not in MAPS:
        raise ValueError(
            f"dataset must be one of {', '.join([*MAPS, 'cifar100'])} for asym noise; got {checks.brief(dataset)} "
            "(pair and matrix noise work for every data set)"
        )
    what, wanted = ("asym-superclass noise", 100) if by_superclass else (f"asym noise on {name}", 10)
    if num_classes != wanted:
        raise ValueError(f"num_classes must be {wanted} for {what}; got {num_classes}")
    return rotation(cifar100_coarse()) if by_superclass else MAPS[name]
