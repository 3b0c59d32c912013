"""All settings of a run, for data of any kind: the user's own is opened, because its kind decides the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from symloss.data.dataset import DataSet
from symloss.data.source import KNOWN
from symloss.recipes import resolve as recipes
from symloss.recipes.published_settings import trained_as
from symloss.runs.settings import Settings
from symloss.training.models import has_pretrained_weights
from symloss.training.task import COLUMNS, augmentation, fingerprint, open_for_training

TINY, SMALL = 8, 48
"""Pixels of a side: below the first, three pools leave nothing of an image; above the second, a network for small
images costs more than a ResNet-18, which shrinks an image at once."""
FEW, MANY = 10_000, 100_000
"""Numbers of training images: below the first a narrow network is enough; from the second on a deep one learns."""
SIZE_SOURCE = "ours: the shorter side of the median image, at most 224"


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
    size = None if data in KNOWN else given.pop("size", None)
    users = None
    if data not in KNOWN:
        users = opened or open_for_training(data, root, skip_bad=skip_bad, size=size or "fit", **columns)
    protocol = trained_as(data) if users is None else protocol_for(users, given.get("model"))
    marks = {"fingerprint": fingerprint(data, users, given.get("noise") or "clean", root)}
    sizes = [] if users is None or not users.size_is_chosen else [_size_layer(users.size, size is not None)]
    found = recipes.resolve(protocol, data, loss, *sizes, recipes.given(given | marks))
    if users is not None:
        augmentation(found.settings, users)  # refuses what cannot be done to it, before a run is begun
    return found


def _size_layer(size: int | None, by_user: bool) -> recipes.Layer:
    return recipes.Layer("size of images", {"size": size}, recipes.GIVEN if by_user else SIZE_SOURCE)


def protocol_for(data: DataSet, model: str | None = None) -> str:
    """The protocol of recipes/protocols.toml, and with it the network, that fits data of the user's own.

    - A table: ``table``, an MLP. So are images below 8 pixels.
    - Images of up to 48 pixels: ``images``, eight layers as for CIFAR-10; ``few-images``, half as wide, below 10,000.
    - Larger ones: ``photos``, a ResNet-18; ``many-photos``, a ResNet-50, from 100,000 on.
    - A model with pretrained weights is fine-tuned: ``pretrained``.

    Args:
        data: the opened data.
        model: the model that the user named, if any.
    """
    if len(data.input_shape) == 1 or min(data.input_shape[1:]) < TINY:
        return "table"
    if model is not None and has_pretrained_weights(model):
        return "pretrained"
    count = len(data.train)
    if max(data.input_shape[1:]) <= SMALL:
        return "few-images" if count < FEW else "images"
    return "photos" if count < MANY else "many-photos"
