"""Mini WebVision and ILSVRC12 validation, from small list files in their publishers' layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_helpers import cut, random_bytes, save_image
from refusals import refused

from symloss.data import ImageFiles, open_data, open_webvision


def write_list(listing: Path, images: Path, entries: list[tuple[str, int]]) -> None:
    listing.parent.mkdir(parents=True, exist_ok=True)
    listing.write_text("".join(f"{name} {label}\n" for name, label in entries))
    for name, _ in entries:
        save_image(images / name, random_bytes(2, 2, 3))


TRAIN = [("google/q0002/b c.jpg", 49), ("google/q0001/a.jpg", 0), ("google/q0051/d.jpg", 50), ("google/q0001/e.jpg", 0)]
VAL = [("val000001.jpg", 7), ("val000002.jpg", 999), ("val000003.jpg", 0)]


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "webvision"
    write_list(folder / "info" / "train_filelist_google.txt", folder, TRAIN)
    write_list(folder / "info" / "val_filelist.txt", folder / "val_images_256", VAL)
    return tmp_path


def test_the_first_50_classes_in_the_order_of_the_list(root):
    data = open_data("webvision-mini", root=root)
    folder = root / "webvision"
    assert data.train.inputs == ImageFiles(tuple(folder / TRAIN[k][0] for k in (0, 1, 3)))
    assert data.train.labels.tolist() == [49, 0, 0]
    assert data.test.inputs == ImageFiles(tuple(folder / "val_images_256" / VAL[k][0] for k in (0, 2)))
    assert data.test.labels.tolist() == [7, 0]
    assert data.class_names == tuple(str(k) for k in range(50))
    assert (data.size, data.input_shape) == (224, (3, 224, 224))
    assert data.augmentation == ("resized-crop:224", "flip", "jitter:0.4,0.4,0.4,0.2")
    assert (data.scaling.mean, data.scaling.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert open_webvision(root).train.inputs == data.train.inputs


def test_names_of_the_classes(root):
    lines = [f"n{k:08d} name {k}, other name\n" for k in range(1000)]
    (root / "webvision" / "info" / "synsets.txt").write_text("".join(lines))
    classes = open_data("webvision-mini", root=root).class_names
    assert (len(classes), classes[0], classes[49]) == (50, "name 0", "name 49")


def test_ilsvrc12_by_list(root):
    entries = [("ILSVRC2012_val_00000001.JPEG", 65), ("ILSVRC2012_val_00000002.JPEG", 3)]
    write_list(root / "ilsvrc12" / "val.txt", root / "ilsvrc12" / "val", entries)
    data = open_data("webvision-mini-imagenet", root=root)
    assert data.test.inputs == ImageFiles((root / "ilsvrc12" / "val" / entries[1][0],))
    assert data.test.labels.tolist() == [3]
    assert data.train.inputs == open_data("webvision-mini", root=root).train.inputs
    assert data.name == "webvision-mini-imagenet"


@pytest.mark.parametrize("folders", [50, 1000])
def test_ilsvrc12_by_folder(root, folders):
    for k in range(folders):
        (root / "ilsvrc12" / "val" / f"n{k:08d}").mkdir(parents=True)
        if k < 60:
            save_image(root / "ilsvrc12" / "val" / f"n{k:08d}" / f"{k}.JPEG", random_bytes(2, 2, 3))
    test = open_data("webvision-mini-imagenet", root=root).test
    assert [path.name for path in test.inputs.paths] == [f"{k}.JPEG" for k in range(50)]
    assert test.labels.tolist() == list(range(50))


@pytest.mark.parametrize("missing", ["train_filelist_google.txt", "val_filelist.txt"])
def test_a_missing_list(root, missing):
    (root / "webvision" / "info" / missing).unlink()
    with refused(FileNotFoundError, missing, "data.vision.ee.ethz.ch", f"into {root}/webvision"):
        open_data("webvision-mini", root=root)


@pytest.mark.parametrize("folders", [1, 49, 51, 100, 999])
def test_other_numbers_of_folders_cannot_be_told_apart(root, folders):
    for k in range(folders):
        (root / "ilsvrc12" / "val" / f"n{k:08d}").mkdir(parents=True)
    with refused(FileNotFoundError, "folders of all 1000 classes or of the first 50", f"and {folders} folders"):
        open_data("webvision-mini-imagenet", root=root)


def test_ilsvrc12_missing(root):
    with refused(FileNotFoundError, root / "ilsvrc12" / "val.txt", "https://image-net.org", f"{root}/ilsvrc12/val"):
        open_data("webvision-mini-imagenet", root=root)


def test_lists_without_images(root):
    for name, _ in TRAIN:
        (root / "webvision" / name).unlink()
    with refused(FileNotFoundError, "train_filelist_google.txt", "got none of 3", "data.vision.ee.ethz.ch"):
        open_data("webvision-mini", root=root)


def test_one_missing_image(root):
    path = root / "webvision" / TRAIN[1][0]
    path.unlink()
    with refused(FileNotFoundError, path, "no such file"):
        open_data("webvision-mini", root=root)
    told = []
    data = open_data("webvision-mini", root=root, skip_bad=True, on_bad=lambda *bad: told.append(bad))
    assert data.train.labels.tolist() == [49, 0]
    assert told == [(path, "no such file")]


def test_skipping_decodes_every_image(root):
    bad = [cut(root / "webvision" / TRAIN[1][0]), cut(root / "webvision" / "val_images_256" / VAL[0][0])]
    assert len(open_data("webvision-mini", root=root).train) == 3
    told = []
    data = open_data("webvision-mini", root=root, skip_bad=True, on_bad=lambda *bad: told.append(bad))
    assert data.train.inputs == ImageFiles(tuple(root / "webvision" / TRAIN[k][0] for k in (0, 3)))
    assert data.train.labels.tolist() == [49, 0]
    assert data.test.labels.tolist() == [0]
    assert [path for path, _ in told] == bad


def test_only_bad_images(root):
    for name, _ in TRAIN:
        cut(root / "webvision" / name)
    with refused(ValueError, "train_filelist_google.txt", "at least one image that can be read", "got none"):
        open_data("webvision-mini", root=root, skip_bad=True)


@pytest.mark.parametrize("line", ["google/a.jpg", "google/a.jpg -1", "google/a.jpg cat", "7"])
def test_a_line_that_is_none(root, line):
    listing = root / "webvision" / "info" / "train_filelist_google.txt"
    listing.write_text(f"{TRAIN[0][0]} 49\n{line}\n")
    with refused(ValueError, f"line 2 of {listing}", "`path label`", f"got {line!r}"):
        open_data("webvision-mini", root=root)
