"""One way to open any data set: by its name, or by where the user's own is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from symloss import checks
from symloss.data.arrays import open_arrays
from symloss.data.bad_files import BadFiles
from symloss.data.cifar import CIFAR, open_cifar
from symloss.data.dataset import DataSet, Examples, labels_tensor, scaling_of_images
from symloss.data.features import ColumnChoice, open_features
from symloss.data.idx import SCALING as IDX
from symloss.data.idx import open_idx
from symloss.data.image_folder import open_folder
from symloss.data.image_size import Size
from symloss.data.image_table import image_column, open_manifest
from symloss.data.names import KNOWN, VOUCHED
from symloss.data.paths import FILES, TABLES, existing, existing_test, open_table, require_labels
from symloss.data.shrunk_images import shrunk
from symloss.data.webvision import open_webvision
from symloss.environment import data_root


def open_data(
    spec: str,
    *,
    root: Path | None = None,
    label: str = "label",
    image: str | None = None,
    test: str | Path | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    keep: Sequence[str] = (),
    size: Size = None,
    skip_bad: bool = False,
    on_bad: Callable[[Path, str], None] | None = None,
) -> DataSet:
    """Open a data set: a published one by its name, or the user's own by its path.

    The path may be

    - a folder of images by class, or with ``train/`` and ``test/`` (or ``val/``) of that kind;
    - a ``.csv``, ``.tsv`` or ``.parquet`` table of image files (in the column ``image``) and labels (in the column
      ``label``);
    - a ``.csv``, ``.tsv`` or ``.parquet`` table of numbers and categories with a column ``label``;
    - an ``.npz`` with ``x`` and ``y``.

    Args:
        spec: one of ``KNOWN``, or a path. A name goes before a path: ``./digits`` is the path.
        root: the folder of published data sets; None for :func:`symloss.data.data_root`.
        label: the column of the labels, in tables.
        image: the column of the image files, in tables.
        test: clean data of the same kind to test on, for the user's own data.
        drop: columns to leave out, in tables of features.
        categorical: columns whose values are categories, although they are numbers.
        keep: columns to use as features, although they look like ids.
        size: image files are brought to this many pixels on each side; see :func:`symloss.data.image_size.chosen_size`.
            Images of a published data set are shrunk to it; see :func:`symloss.data.shrunk_images.shrunk`.
        skip_bad: leave out files that are no images, class folders without images and rows without a label.
        on_bad: called with the path of each one that is left out, and what is wrong with it.

    >>> digits = open_data("digits")
    >>> len(digits.train), digits.input_shape, digits.classes[:3]
    (1437, (1, 8, 8), ('0', '1', '2'))
    """
    bad = BadFiles(skip_bad, on_bad)
    choice = ColumnChoice(tuple(drop), tuple(categorical), tuple(keep))
    if spec in KNOWN:
        choice.refuse(spec)
        if test is not None:
            raise ValueError(f"test must be left out for {spec}, which brings its own test data; got {str(test)!r}")
        found = _open_known(spec, data_root() if root is None else root, bad)
        if size is not None and size != "fit":
            found = shrunk(found, int(checks.number("size", size, "[1, 4096]", whole=True)))
    else:
        path = existing(spec)
        clean = None if test is None else existing_test(test, path)
        found = _open_own(path, clean, label, image, bad, choice, size)
    return replace(found, labels_are_true=spec in VOUCHED)


def _open_known(name: str, root: Path, bad: BadFiles) -> DataSet:
    if name == "digits":
        return open_digits()
    if name in IDX:
        return open_idx(name, root)
    if name in CIFAR:
        return open_cifar(name, root)
    return open_webvision(root, imagenet=name.endswith("-imagenet"), bad=bad)


def open_digits() -> DataSet:
    """The handwritten digits of scikit-learn, which need no download.

    1,437 training and 360 test images (1, 8, 8), always the same: a stratified split with scikit-learn's seed 0.

    Grey values of 0 to 16 are spread over 0 to 255.
    """
    # scikit-learn takes a second to import.
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]  # noqa: PLC0415

    digits = load_digits()
    images = torch.from_numpy(digits.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    labels = labels_tensor(digits.target)
    places = range(len(labels))
    train, test = train_test_split(places, test_size=360, random_state=0, stratify=digits.target)
    return DataSet(
        name="digits",
        train=Examples(images[train], labels[train]),
        test=Examples(images[test], labels[test]),
        classes=tuple(str(digit) for digit in range(10)),
        scaling=scaling_of_images(images[train]),
    )


def _refuse_size(data: object, size: Size) -> None:
    if isinstance(size, int):
        raise ValueError(f"size must be left out for {data}, which holds no image files of one's own; got {size}")


def _open_own(
    path: Path, test: Path | None, label: str, image: str | None, bad: BadFiles, choice: ColumnChoice, size: Size
) -> DataSet:
    suffix = path.suffix.lower()
    if suffix in TABLES and not path.is_dir():
        return _open_table(path, test, label, image, bad, choice, size)
    choice.refuse(str(path))
    if path.is_dir():
        return open_folder(path, test, bad, size)
    if suffix == ".npz":
        _refuse_size(path, size)
        return open_arrays(path, test, bad)
    raise ValueError(f"data must be a folder or a file ending in {', '.join(FILES)}; got {str(path)!r}")


def _open_table(
    path: Path, test: Path | None, label: str, image: str | None, bad: BadFiles, choice: ColumnChoice, size: Size
) -> DataSet:
    tables = [open_table(file) for file in (path, test) if file is not None]
    require_labels(tables, label)
    train, clean = tables[0], tables[1] if test is not None else None
    images = image_column(train, image)
    if images is None:
        _refuse_size(path, size)
        return open_features(train, clean, label, bad, choice)
    choice.refuse(str(path))
    return open_manifest(train, clean, label, images, bad, size)
