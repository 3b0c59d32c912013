"""A table of image files and their labels."""

from __future__ import annotations

from symloss.data.bad_files import BadFiles
from symloss.data.dataset import DataSet
from symloss.data.image_size import Size
from symloss.data.images import Listed, open_images
from symloss.data.table_file import TableFile

IMAGE_COLUMNS = ("image", "path", "file")


def image_column(table: TableFile, image: str | None) -> str | None:
    """The column of image paths: the one that is named, or the first of ``IMAGE_COLUMNS``; None if there is none."""
    if image is not None:
        table.require(image, "image")
        return image
    return next((column for column in IMAGE_COLUMNS if column in table.places), None)


def open_manifest(
    train: TableFile, test: TableFile | None, label: str, image: str, bad: BadFiles, size: Size = None
) -> DataSet:
    """A data set of images. Column ``image`` holds their paths, and column ``label`` their labels."""
    return open_images(
        train.path.stem,
        _listed(train, label, image, bad),
        _listed(test, label, image, bad) if test is not None else None,
        bad,
        size,
    )


def _listed(table: TableFile, label: str, image: str, bad: BadFiles) -> Listed:
    table.require(image, "image")
    labels, without = table.labels(label, bad)
    paths = [table.path.parent / name for row, name in enumerate(table.text(image)) if row not in without]
    return Listed(paths, labels, table.path)
