"""All settings of a run, from what is given of them and from what the data is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from symloss.data import KNOWN
from symloss.data.dataset import DataSet
from symloss.runs.settings import Settings
from symloss.training.protocols import protocol_of, resolved
from symloss.training.task import augmentation, fingerprint, opened

WHERE = ("label", "image", "test")
"""Settings that say what of the user's own data is what."""
LARGE = 96
"""Pixels of a side from which on a network for small images is the wrong one: its last layers grow with the image."""


def resolve(data: str | Path, loss: str, *, root: Path | None = None, skip_bad: bool = False, **given: Any) -> Settings:
    """Settings for a data set and a loss: what is given, else what the protocol says for the loss, or for all losses.

    Data of one's own is opened, as its kind decides the protocol, and its content is part of the settings. So is that
    of a known data set whose files, below ``root``, are not the publisher's.

    >>> found = resolve("cifar10", "sgce")
    >>> found.loss, found.model, found.weight_decay
    ('sgce:q=0.8', 'cnn8', 0.005)
    """
    data = str(data)
    where = {name: given[name] for name in WHERE if name in given}
    own = None if data in KNOWN else opened(data, root, skip_bad=skip_bad, **where)
    kind = "" if own is None else _kind(own)
    given = given | {"fingerprint": fingerprint(data, own, given.get("noise") or "clean", root)}
    settings = resolved(protocol_of(data, kind), data, loss, given).settings
    if own is not None:
        augmentation(settings, own)  # refuses what cannot be done to it, before a run is begun
    return settings


def _kind(data: DataSet) -> str:
    """Which protocol fits data that no protocol is published for."""
    if len(data.input_shape) == 1:
        return "table"
    large = max(data.input_shape[1:]) > LARGE
    return "streamed" if data.streamed or large else "images"
