"""All settings of a run, for data of any kind: the user's own is opened, because its kind decides the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from symloss.data.dataset import DataSet
from symloss.data.names import KNOWN
from symloss.recipes import resolve as recipes
from symloss.recipes.published_settings import trained_as
from symloss.runs.settings import Settings
from symloss.training.task import COLUMNS, augmentation, fingerprint, open_for_training

LARGE = 96
"""Pixels of a side from which on a network for small images is the wrong one: its last layers grow with the image."""


def resolve(
    data: str | Path,
    loss: str,
    *,
    root: Path | None = None,
    skip_bad: bool = False,
    opened: DataSet | None = None,
    **given: Any,
) -> Settings:
    """Settings for a data set and a loss: what is given, else what the recipes say for the loss, or for all losses.

    Args:
        data: a known data set by its name, or the path of the user's own. That is opened: its kind decides the
            protocol, and its content is part of the settings.
        loss: a loss as text, such as "sgce" or "sgce:q=0.5".
        root: where known data sets are. Files that are not the publisher's are part of the settings too.
        skip_bad: leave out files that are no images instead of refusing them.
        opened: the data set, if it is open already.
        given: settings by name, see :class:`Settings`; None counts as not given.

    >>> found = resolve("cifar10", "sgce")
    >>> found.loss, found.model, found.weight_decay
    ('sgce:q=0.8', 'cnn8', 0.005)
    """
    return explain(data, loss, root=root, skip_bad=skip_bad, opened=opened, **given).settings


def explain(
    data: str | Path,
    loss: str,
    *,
    root: Path | None = None,
    skip_bad: bool = False,
    opened: DataSet | None = None,
    **given: Any,
) -> recipes.Resolved:
    """The settings that :func:`resolve` returns, with the source of each and the layers that they were made of.

    >>> explain("cifar10", "sgce").sources["loss"]
    'Lemire Paquin 2026, table 5'
    """
    data = str(data)
    columns = {name: given[name] for name in COLUMNS if name in given}
    users = None
    if data not in KNOWN:
        users = opened or open_for_training(data, root, skip_bad=skip_bad, **columns)
    protocol = trained_as(data) if users is None else _kind(users)
    marks = {"fingerprint": fingerprint(data, users, given.get("noise") or "clean", root)}
    found = recipes.resolve(protocol, data, loss, recipes.given(given | marks))
    if users is not None:
        augmentation(found.settings, users)  # refuses what cannot be done to it, before a run is begun
    return found


def _kind(data: DataSet) -> str:
    """Which protocol fits data that no protocol is published for."""
    if len(data.input_shape) == 1:
        return "table"
    large = max(data.input_shape[1:]) > LARGE
    return "streamed" if data.streamed or large else "images"
