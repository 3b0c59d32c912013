"""A folder of images with a subfolder for each class."""

from __future__ import annotations

from pathlib import Path

from symloss.data.bad_files import HINT, BadFiles
from symloss.data.dataset import DataSet
from symloss.data.image_size import Size
from symloss.data.images import Listed, open_images

# What file managers leave behind.
_LITTER = {"thumbs.db", "desktop.ini"}


def open_folder(folder: Path, test: Path | None, bad: BadFiles, size: Size = None) -> DataSet:
    """A data set in a folder.

    The folder holds a subfolder for each class; or ``train/`` and ``test/`` (or ``val/``), which hold these.
    """
    train, own_test = _parts(folder)
    test = test or own_test
    clean = list_folder(test, bad) if test else None
    return open_images(folder.resolve().name, list_folder(train, bad), clean, bad, size)


def training_part(folder: Path) -> Path:
    """The folder itself, or the ``train`` in it."""
    return _parts(folder)[0]


def _parts(folder: Path) -> tuple[Path, Path | None]:
    train = folder / "train"
    # A folder of locomotives may be called "train" too: it holds images, no folders.
    if not train.is_dir() or not _subfolders(train):
        return folder, None
    return train, next((part for part in (folder / "test", folder / "val") if part.is_dir()), None)


def list_folder(folder: Path, bad: BadFiles) -> Listed:
    """All files below each class's folder, sorted by name. A class without files counts as a bad file."""
    if not folder.is_dir():
        raise ValueError(f"test data for a folder of images must be a folder of images too; got {folder}")
    classes = _subfolders(folder)
    if not classes:
        raise ValueError(f"{folder} must hold a folder of images for each class; got no folder in it")
    paths, labels = [], []
    for place in classes:
        files = list_files(place)
        if not files and not bad.skip:
            raise ValueError(
                f"{folder} must have images in each class's folder; got an empty one, {place.name!r} "
                f"{HINT.replace('files', 'folders')}"
            )
        if not files:
            bad.report(place, "a folder without images")
        paths += files
        labels += [place.name] * len(files)
    return Listed(paths, labels, folder)


def list_files(folder: Path) -> list[Path]:
    """All files below a folder, sorted by name. Hidden files and those of file managers are left out."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not _litter(path, folder))


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _litter(path: Path, below: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(below).parts)
    return hidden or path.name.lower() in _LITTER
