"""Labels by people (CIFAR-10N, CIFAR-100N). No code in a file is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from symloss import checks
from symloss.noise.manifest import label_array
from symloss.noise.noise_spec import HUMAN, HUMAN_LABELS, Spec, known_human
from symloss.noise.transition import Labels

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
    recorded = _column(content, source.clean, path)
    if len(recorded) != len(clean):
        raise ValueError(
            f"clean labels must be those of {str(path)!r}, {len(recorded)} in the publisher's order; got {len(clean)}"
        )
    different = int((recorded != clean).sum())
    if different:
        raise ValueError(
            f"clean labels must be those of {str(path)!r} in the publisher's order; "
            f"got {different} of {len(clean)} that differ"
        )
    noisy = _column(content, source.noisy, path)
    if len(noisy) != len(clean):
        raise ValueError(
            f"{str(path)!r} must hold as many {source.noisy!r} as {source.clean!r}; got {len(noisy)} and {len(clean)}"
        )
    return noisy


def human_file(spec: Spec, root: str | Path | None) -> Path:
    """The path of the file: the one in the spec, or the publisher's in the folder ``root``."""
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


def _column(content: dict[str, Any], key: str, path: str | Path) -> Labels:
    if key not in content:
        raise ValueError(f"{str(path)!r} must hold {key!r}; got {checks.brief(sorted(map(str, content)))}")
    return label_array(f"{key} of {str(path)!r}", content[key])
