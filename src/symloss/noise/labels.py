"""Corrupt labels: by a transition matrix, by the input, or by what people said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from symloss import __version__, checks
from symloss.noise.manifest import Corruption, describe, label_array
from symloss.noise.spec import HUMAN, HUMAN_LABELS, Spec, known_human, parse
from symloss.noise.transition import METHODS, Labels, by_class, distributions, flip_rate, relabel, transition_matrix


def corrupt(
    labels: object,
    noise: str | Spec | ArrayLike,
    *,
    num_classes: int,
    seed: int,
    counts: str = "exact",
    dataset: str | None = None,
    inputs: object = None,
    prior: ArrayLike | None = None,
    root: str | Path | None = None,
    split: str | None = None,
) -> Corruption:
    """Add noise to labels, and record how in a manifest.

    The same arguments give the same labels on every call. No global random state is read or changed. One generator
    serves the classes in ascending order, so that a change of some labels may change the noise of all others.

    Args:
        labels: the clean ones, 0 to num_classes - 1; a numpy array, a tensor or a list.
        noise: a text (see :func:`symloss.noise.parse`), a Spec, or a transition matrix with a row for each true class.
        num_classes: the number of classes.
        seed: the seed of the noise.
        counts: how many of the n_c labels of class c become class k, with the transition matrix T.
            ``exact``: less than one away from T[c, k] n_c, and the total number of flips is the expected one, rounded
            (largest remainders, ties at random).
            ``floor``: int(T[c, k] n_c), as in the published tables. Small classes get fewer flips than the rate.
            ``sampled``: each label is drawn independently. ``counts`` has no effect on human labels.
        dataset: mnist, digits, cifar10 or cifar100, for ``asym`` noise.
        inputs: the examples, (N, ...), for ``instance`` noise.
        prior: class probabilities for ``prior`` noise; without them the frequencies of the labels.
        root: the folder of the publisher's files, for ``human`` noise without a path.
        split: a note for the manifest, ``before`` or ``after``: when a validation set is split off.

    >>> noisy = corrupt([0, 0, 0, 0, 1, 1, 1, 1], "sym:0.25", num_classes=2, seed=0)
    >>> noisy.manifest.rate
    0.25
    >>> noisy.manifest.counts
    array([[3, 1],
           [1, 3]])
    """
    num_classes = int(checks.number("num_classes", num_classes, "[2, inf)", whole=True))
    seed = int(checks.number("seed", seed, "[0, inf)", whole=True))
    checks.choice("counts", counts, METHODS)
    checks.choice("split", split, (None, "before", "after"))
    clean = label_array("labels", labels, num_classes)
    rng = np.random.Generator(np.random.PCG64(seed))
    spec = parse(noise) if isinstance(noise, str) else noise
    if not isinstance(spec, Spec):
        noisy = relabel(clean, distributions("transition matrix", spec, (num_classes, num_classes)), counts, rng)
    elif spec.kind == "human":
        assert spec.name is not None
        path, counts = human_file(spec, root), "given"
        noisy = label_array(f"labels of {str(path)!r}", human_labels(path, spec.name, clean), num_classes)
    elif spec.kind == "instance":
        assert spec.rate is not None
        noisy = relabel_by_input(clean, inputs, spec.rate, num_classes, counts, rng)
    else:
        prior = np.bincount(clean, minlength=num_classes) / len(clean) if prior is None else prior
        transition = transition_matrix(spec, num_classes, dataset=dataset, prior=prior)
        noisy = relabel(clean, transition, counts, rng)
    asked = str(spec) if isinstance(spec, Spec) else "matrix"
    settings = {"spec": asked, "method": counts, "seed": seed, "num_classes": num_classes, "split": split}
    return Corruption(noisy, clean, describe(clean, noisy, version=__version__, **settings))


# What a pickled numpy array of integers names; the module of _reconstruct moved with numpy 2.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED: list[Any] = [
    (_RECONSTRUCT, "numpy.core.multiarray._reconstruct"),
    (_RECONSTRUCT, "numpy._core.multiarray._reconstruct"),
    np.ndarray,
    np.dtype,
    type(np.dtype(np.int64)),
]


def human_labels(path: str | Path, name: str, clean_labels: object) -> Labels:
    """Read the labels of CIFAR-10N or CIFAR-100N, in the order of the publisher's training set (Wei et al. 2022).

    No code in the file is run.

    Args:
        path: the file ``CIFAR-10_human.pt`` or ``CIFAR-100_human.pt``.
        name: aggregate, random1, random2, random3 or worst of CIFAR-10N; fine or coarse of CIFAR-100N.
        clean_labels: (N,), the true labels. The file must hold the same ones in the same order.

    >>> human_labels("CIFAR-10_human.pt", "best", [0, 1])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: name of human labels must be one of aggregate, random1, ..., fine, coarse; got 'best'
    """
    known_human(name)
    source = HUMAN[name]
    content = _load(Path(path))
    clean = label_array("clean_labels", clean_labels)
    for key in (source.clean, source.noisy):
        if key not in content:
            raise ValueError(f"{str(path)!r} must hold {key!r}; got {checks.brief(sorted(map(str, content)))}")
    recorded, noisy = (label_array(f"{key} of {str(path)!r}", content[key]) for key in (source.clean, source.noisy))
    if len(recorded) != len(clean) or (recorded != clean).any():
        differ = f"{int((recorded != clean).sum())} that differ" if len(recorded) == len(clean) else f"{len(clean)}"
        raise ValueError(
            f"clean labels must be those of {str(path)!r}, {len(recorded)} in the publisher's order; got {differ}"
        )
    if len(noisy) != len(clean):
        raise ValueError(
            f"{str(path)!r} must hold as many {source.noisy!r} as {source.clean!r}; got {len(noisy)} and {len(clean)}"
        )
    return noisy


def human_file(spec: Spec, root: str | Path | None) -> Path:
    """Return the path of the file: the one in the spec, or the publisher's in the folder ``root``."""
    if spec.path is not None:
        return Path(spec.path)
    assert spec.name is not None
    file = HUMAN[spec.name].file
    if root is None:
        raise ValueError(
            f"root must be the folder of {file} for {spec}, or the noise 'human:{spec.name}@PATH'; got None"
        )
    return Path(root) / file


def require_human_file(path: Path) -> None:
    """Raise FileNotFoundError, with the way to get the file, unless it is there."""
    if not path.is_file():
        where = HUMAN_LABELS.format(root=path.parent)
        raise FileNotFoundError(f"path of human labels must be a file; got {str(path)!r}, which is not there: {where}")


def _load(path: Path) -> dict[str, Any]:
    require_human_file(path)
    try:
        with torch.serialization.safe_globals(_ALLOWED):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file raises anything
        raise ValueError(
            f"file of human labels must hold arrays of labels and nothing else; "
            f"got {str(path)!r}, which was not read ({type(error).__name__})"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"file of human labels must hold a dictionary; got {type(content).__name__} in {str(path)!r}")
    return content


SPREAD = 0.1  # standard deviation of the examples' flip rates

CHUNK = 1024

Inputs = NDArray[np.generic]


def relabel_by_input(
    clean: Labels, inputs: object, rate: float, num_classes: int, method: str, rng: np.random.Generator
) -> Labels:
    """Add instance-dependent noise after Xia et al. 2020 (part-dependent label noise).

    Each example gets its own flip rate: normal around the rate with standard deviation 0.1, truncated so that its mean
    stays the rate. The new label is drawn from the softmax of a random projection of the example, one for each true
    class, without that class. Features are standardised first, so that units do not matter.

    ``sampled`` flips each example with its own rate. ``exact`` and ``floor`` flip round(rate n) and int(rate n)
    examples: those whose rate exceeds a uniform random number by most.
    """
    rate = flip_rate(rate, num_classes)
    features = _checked(inputs, len(clean))
    margin = flip_rates(len(clean), rate, rng) - rng.random(len(clean))
    if method == "sampled":
        flipped = margin > 0
    else:
        number = int(rate * len(clean) + (0.5 if method == "exact" else 0))
        flipped = np.zeros(len(clean), dtype=bool)
        flipped[np.argsort(-margin, kind="stable")[:number]] = True
    return np.where(flipped, _mistakes(clean, features, num_classes, rng), clean)


def flip_rates(size: int, rate: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a flip rate for each example: normal around the rate, truncated symmetrically inside [0, 1]."""
    reach = torch.tensor(min(rate, 1 - rate) / SPREAD, dtype=torch.float64)
    low, high = (float(torch.special.ndtr(end)) for end in (-reach, reach))
    levels = torch.from_numpy(low + (high - low) * rng.random(size))
    normal = torch.special.ndtri(levels).clamp(-reach, reach)
    return np.asarray(rate + SPREAD * normal.numpy())


def _mistakes(clean: Labels, features: Inputs, num_classes: int, rng: np.random.Generator) -> Labels:
    """Return the wrong class of each example, if it is flipped."""
    mean, scale = _moments(features)
    wrong = np.empty_like(clean)
    for label, group in enumerate(by_class(clean, num_classes)):
        projection = rng.standard_normal((len(mean), num_classes))
        for rows, chunk in _chunks(features, group):
            scores = ((chunk - mean) * scale) @ projection
            scores[:, label] = -np.inf
            # The largest of scores plus Gumbel noise is a draw from their softmax.
            wrong[rows] = (scores + rng.gumbel(size=scores.shape)).argmax(1)
    return wrong


def _moments(features: Inputs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and 1 / standard deviation of each feature; a constant feature counts for nothing."""
    everything = np.arange(len(features))
    mean = sum(chunk.sum(0) for _, chunk in _chunks(features, everything)) / len(features)
    variance = sum(((chunk - mean) ** 2).sum(0) for _, chunk in _chunks(features, everything)) / len(features)
    # Rounding of the mean leaves a constant feature with a variance of about eps^2.
    varies = variance > 1e-24 * mean**2
    return mean, np.where(varies, 1 / np.sqrt(np.where(varies, variance, 1)), 0)


def _chunks(features: Inputs, rows: Labels) -> Iterator[tuple[Labels, NDArray[np.float64]]]:
    for start in range(0, len(rows), CHUNK):
        some = rows[start : start + CHUNK]
        chunk = features[some].astype(np.float64)
        if not np.isfinite(chunk).all():
            raise ValueError("inputs must be finite numbers for instance noise; got nan or inf")
        yield some, chunk.reshape(len(some), -1)


def _checked(inputs: object, size: int) -> Inputs:
    given = getattr(inputs, "dtype", type(inputs).__name__)
    if isinstance(inputs, Tensor):  # NumPy has no bfloat16
        inputs = (inputs.float() if inputs.dtype == torch.bfloat16 else inputs).detach().cpu().numpy()
    if not isinstance(inputs, np.ndarray) or inputs.dtype.kind not in "biuf":
        raise TypeError(f"inputs must be a numpy array or a tensor of real numbers for instance noise; got {given}")
    if inputs.ndim < 2 or len(inputs) != size or 0 in inputs.shape:
        raise ValueError(
            f"inputs must have shape ({size}, ...) with a feature at least, as the labels; got {inputs.shape}"
        )
    return inputs
