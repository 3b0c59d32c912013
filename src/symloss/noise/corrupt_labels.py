"""Add noise to labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from symloss import __version__, checks
from symloss.noise.human import human_file, human_labels
from symloss.noise.instance import relabel_by_input
from symloss.noise.manifest import Corruption, describe, label_array
from symloss.noise.noise_spec import Spec, parse
from symloss.noise.transition import METHODS, Labels, checked_matrix, relabel, transition_matrix


def corrupt(
    labels: object,
    noise: str | Spec | ArrayLike,
    *,
    classes: int,
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
        labels: the clean ones, 0 to classes - 1; a numpy array, a tensor or a list.
        noise: a text (see :func:`symloss.noise.parse`), a Spec, or a transition matrix with a row for each true class.
        classes: the number of classes.
        seed: of the noise alone.
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

    >>> noisy = corrupt([0, 0, 0, 0, 1, 1, 1, 1], "sym:0.25", classes=2, seed=0)
    >>> noisy.manifest.rate
    0.25
    >>> noisy.manifest.counts
    array([[3, 1],
           [1, 3]])
    """
    classes, seed = _whole("classes", classes, "[2, inf)"), _whole("seed", seed, "[0, inf)")
    checks.choice("counts", counts, METHODS)
    checks.choice("split", split, (None, "before", "after"))
    clean = label_array("labels", labels, classes)
    rng = np.random.Generator(np.random.PCG64(seed))
    spec = parse(noise) if isinstance(noise, str) else noise
    if not isinstance(spec, Spec):
        noisy = relabel(clean, checked_matrix(spec, classes), counts, rng)
    elif spec.kind == "human":
        noisy, counts = _human(clean, spec, classes, root), "given"
    elif spec.kind == "instance":
        assert spec.rate is not None
        noisy = relabel_by_input(clean, inputs, spec.rate, classes, counts, rng)
    else:
        frequencies = np.bincount(clean, minlength=classes) / len(clean)
        transition = transition_matrix(spec, classes, dataset=dataset, prior=frequencies if prior is None else prior)
        noisy = relabel(clean, transition, counts, rng)
    asked = str(spec) if isinstance(spec, Spec) else "matrix"
    settings = {"spec": asked, "method": counts, "seed": seed, "classes": classes, "split": split}
    return Corruption(noisy, clean, describe(clean, noisy, version=__version__, **settings))


def _whole(argument: str, value: object, interval: str) -> int:
    value = int(value) if isinstance(value, np.integer) else value
    return int(checks.number(argument, value, interval, whole=True))


def _human(clean: Labels, spec: Spec, classes: int, root: str | Path | None) -> Labels:
    assert spec.name is not None
    path = human_file(spec, root)
    return label_array(f"labels of {str(path)!r}", human_labels(path, spec.name, clean), classes)
