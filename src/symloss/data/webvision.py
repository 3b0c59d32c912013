"""Mini WebVision: the first 50 classes of its Google images, tested on the validation images of WebVision or ILSVRC12.

The publishers give the files on request only. They belong here, under the publishers' names::

    root/webvision/info/train_filelist_google.txt    lines "google/q0001/a.jpg 0"
    root/webvision/google/...                        the training images, resized to 256
    root/webvision/info/val_filelist.txt             lines "val000001.jpg 0"
    root/webvision/val_images_256/...
    root/webvision/info/synsets.txt                  optional, lines "n01440764 tench, Tinca tinca"
    root/ilsvrc12/val.txt                            lines "ILSVRC2012_val_00000001.JPEG 65"
    root/ilsvrc12/val/...                            those images; or, without val.txt, folders n01440764/...
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from symloss.checks import brief
from symloss.data.dataset import IMAGENET, DataSet, Examples, ImageFiles, Origin, labels_tensor
from symloss.data.download import by_hand
from symloss.data.images import readable
from symloss.data.source import BadFiles, refusal

CLASSES, ALL_CLASSES = 50, 1000


def open_webvision(root: Path, *, imagenet: bool = False, bad: BadFiles | None = None) -> DataSet:
    """Open mini WebVision. Images stay on disk.

    Args:
        root: the folder of data sets, see above.
        imagenet: test on the validation images of ILSVRC12 instead of WebVision's.
        bad: what to do with files that are no images; None raises an error at the first.

    >>> open_webvision(Path("no-such-folder"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: ...
    """
    bad = bad or BadFiles()
    folder = root / "webvision"
    help_ = by_hand("webvision-mini", root)
    train = _from_list(folder / "info" / "train_filelist_google.txt", folder, help_, bad)
    if imagenet:
        test = _imagenet(root / "ilsvrc12", by_hand("webvision-mini-imagenet", root), bad)
    else:
        test = _from_list(folder / "info" / "val_filelist.txt", folder / "val_images_256", help_, bad)
    return DataSet(
        name="webvision-mini-imagenet" if imagenet else "webvision-mini",
        train=train,
        test=test,
        class_names=_names(folder / "info" / "synsets.txt"),
        scaling=IMAGENET,
        augmentation=("resized-crop:224", "flip", "jitter:0.4,0.4,0.4,0.2"),
        size=224,
    )


def _from_list(listing: Path, folder: Path, help_: str, bad: BadFiles) -> Examples:
    """Return the images of the first classes, in the order of the list."""
    if not listing.is_file():
        raise FileNotFoundError(f"mini WebVision must have the list {listing}; got no such file: {help_}")
    paths, labels = [], []
    with listing.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            name, _, label = line.strip().rpartition(" ")
            if not name or not (label.isascii() and label.isdecimal()):
                raise ValueError(f"line {number} of {listing} must be `path label`; got {brief(line.strip())}")
            if int(label) < CLASSES:
                paths.append(folder / name.strip())
                labels.append(int(label))
    return _examples(paths, labels, listing, help_, bad)


def _imagenet(folder: Path, help_: str, bad: BadFiles) -> Examples:
    listing, images = folder / "val.txt", folder / "val"
    if listing.is_file():
        return _from_list(listing, images, help_, bad)
    # In the order of their names the folders are the classes 0, 1, 2, ... of ILSVRC12 and of WebVision.
    classes = sorted(path for path in images.iterdir() if path.is_dir()) if images.is_dir() else []
    if len(classes) not in (CLASSES, ALL_CLASSES):
        raise FileNotFoundError(
            f"ILSVRC12 validation must have the list {listing}, or in {images} folders of all {ALL_CLASSES} classes or "
            f"of the first {CLASSES}; got no list and {len(classes)} folders: {help_}"
        )
    found = [(path, label) for label, place in enumerate(classes[:CLASSES]) for path in sorted(place.iterdir())]
    return _examples([path for path, _ in found], [label for _, label in found], images, help_, bad)


def _examples(paths: Sequence[Path], labels: Sequence[int], where: Path, help_: str, bad: BadFiles) -> Examples:
    there = [path.is_file() for path in paths]
    if not any(there):
        raise FileNotFoundError(f"the images of {where} must be on disk; got none of {len(paths)}: {help_}")
    if not bad.skip and not all(there):
        raise refusal(paths[there.index(False)], "no such file")
    kept = readable(paths, where, bad) if bad.skip else range(len(paths))
    files = ImageFiles(tuple(paths[k] for k in kept))
    origin = Origin(files=[str(path) for path in files.paths])
    return Examples(files, labels_tensor([labels[k] for k in kept]), origin=origin)


def _names(synsets: Path) -> tuple[str, ...]:
    """Return the first name of each class where the publisher's list is there, else its number."""
    lines = synsets.read_text(encoding="utf-8").splitlines()[:CLASSES] if synsets.is_file() else []
    if len(lines) < CLASSES:
        return tuple(str(label) for label in range(CLASSES))
    return tuple(line.partition(" ")[2].split(",")[0].strip() or line for line in lines)
