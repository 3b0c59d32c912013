"""Digits, shrunk images, mini WebVision; and whether files of a known data set are the publisher's."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from data_helpers import cut, random_bytes, save_image, skipping, write_idx
from refusals import all_refused, refused
from sklearn.datasets import load_digits

from symloss.data import ImageFiles, open_data, open_webvision, published
from symloss.data.opening import open_inputs
from symloss.data.published import deviation, shrunk
from symloss.data.source import DataDescription, DataSource
from symloss.experiments import resolve
from symloss.training import Settings, train
from symloss.training.task import prepare


def test_every_digit_is_there_once_always_in_the_same_part():
    digits, source = open_data("digits"), load_digits()
    ours = torch.cat([digits.train.inputs, digits.test.inputs])[:, 0].double() * 16 / 255
    labels = torch.cat([digits.train.labels, digits.test.labels])

    def rows(images: np.ndarray, labels: np.ndarray) -> list[tuple[float, ...]]:
        return sorted(tuple(row) for row in np.column_stack([labels, images.reshape(len(images), -1)]))

    assert rows(ours.round().numpy(), labels.numpy()) == rows(source.images, source.target)
    # Results on digits can be compared only while these labels stay.
    assert digits.train.labels[:12].tolist() == [3, 9, 1, 3, 1, 9, 4, 4, 2, 8, 3, 5]
    assert digits.test.labels[:12].tolist() == [7, 6, 3, 7, 7, 3, 2, 8, 9, 3, 2, 6]
    assert (len(digits.train), len(digits.test), digits.streamed) == (1437, 360, False)
    assert digits.train.inputs.dtype == torch.uint8
    assert digits.train.inputs.shape[1:] == digits.input_shape == (1, 8, 8)
    assert int(digits.train.inputs.max()) == 255
    share = digits.train.labels.bincount() / (digits.train.labels.bincount() + digits.test.labels.bincount())
    assert bool(((share - 0.8).abs() < 0.005).all())
    values = digits.train.inputs.numpy() / 255
    np.testing.assert_allclose(digits.scaling.mean, [values.mean()], rtol=1e-12)
    np.testing.assert_allclose(digits.scaling.std, [values.std()], rtol=1e-12)


def test_a_pixel_of_a_shrunk_image_is_the_rounded_mean_of_its_square():
    whole, small = open_data("digits"), open_data("digits", size=4)
    for part in ("train", "test"):
        images, labels = (getattr(getattr(whole, part), name).numpy() for name in ("inputs", "labels"))
        squares = images.reshape(-1, 1, 4, 2, 4, 2).astype(np.float64).mean((3, 5))
        assert np.array_equal(getattr(small, part).inputs.numpy(), np.rint(squares))
        assert np.array_equal(getattr(small, part).labels.numpy(), labels)
    assert small.train.inputs.dtype == torch.uint8
    assert (small.input_shape, small.class_names, small.scaling) == ((1, 4, 4), whole.class_names, whole.scaling)
    assert len(np.unique(squares % 1)) > 1, "some means lie between whole numbers"
    digits = dataclasses.replace(whole, augmentation=("crop:4", "flip", "rotate:20"))
    assert shrunk(digits, 4).augmentation == ("crop:2", "flip", "rotate:20")
    assert shrunk(digits, 1).augmentation == ("flip", "rotate:20"), "a frame of half a pixel is none"
    assert shrunk(digits, 8) is digits
    rows = dataclasses.replace(digits.train, inputs=digits.train.inputs.flatten(1))
    flat = dataclasses.replace(digits, train=rows)
    all_refused(
        (ValueError, "must divide the 8 pixels of digits, as 1, 2, 4, 8 do ... got 3", lambda: shrunk(digits, 3)),
        (ValueError, "size must be left out for digits, which has no square ... got 2", lambda: shrunk(flat, 2)),
        (TypeError, "a whole number in [1, 4096]; got True", lambda: open_data("digits", size=True)),
    )


def write_mnist(root, **options):
    write_idx(root / "mnist", **options)
    return root


@pytest.fixture
def as_if_published(tmp_path, monkeypatch):
    """As if these were what the publisher's checksums are of."""
    root = write_mnist(tmp_path / "published")
    source = published.SOURCES["mnist"]
    sums = {name: hashlib.md5((root / "mnist" / name).read_bytes()).hexdigest() for name in source.unpacked}
    monkeypatch.setitem(published.SOURCES, "mnist", source._replace(unpacked=sums))
    return root


def test_files_that_are_not_the_publishers_have_a_fingerprint(tmp_path, as_if_published):
    assert deviation("mnist", as_if_published) is None
    assert deviation("mnist", write_mnist(tmp_path / "packed", packed=True)) is None
    found = [deviation("mnist", write_mnist(tmp_path / "one", first=5))]
    assert found == [deviation("mnist", write_mnist(tmp_path / "again", first=5, packed=True))]
    for name in ("t10k-labels-idx1-ubyte", "train-images-idx3-ubyte"):  # a file that changes is looked at again
        (as_if_published / "mnist" / name).write_bytes((tmp_path / "one" / "mnist" / name).read_bytes())
        found.append(deviation("mnist", as_if_published))
    assert None not in found
    assert len(set(found)) == 3
    # Missing and damaged files are left to whoever opens them.
    assert [deviation(name, tmp_path) for name in ("digits", "cifar10", "webvision-mini", "mnist")] == [None] * 4
    damaged = tmp_path / "packed" / "mnist" / "train-images-idx3-ubyte.gz"
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert deviation("mnist", tmp_path / "packed") is None


def test_two_data_folders_are_two_runs(tmp_path, as_if_published):
    keys = {
        "digits": "fdd3388181c8",
        "mnist": "174d22ff910b",
        "fashion-mnist": "7ed132807483",
        "cifar10": "263adfba0e9b",
        "cifar100": "8ec6271767a7",
        "webvision-mini": "3c9e61af4413",
    }
    # Written down before fingerprints of known data came: another key would make every run of before a stranger.
    assert {data: resolve(data, "sgce", noise="sym:0.4", root=tmp_path).key for data in keys} == keys
    assert resolve("mnist", "sgce", noise="sym:0.4", root=as_if_published).key == keys["mnist"]
    other, run = write_mnist(tmp_path / "other", first=5), tmp_path / "run"
    small = {"model": "mlp:hidden=4", "epochs": 2, "validation": 0.0, "optimizer": "sgd"}
    ours, theirs = (resolve("mnist", "ce", root=root, **small) for root in (as_if_published, other))
    assert ours.key != theirs.key
    with refused(ValueError, "mnist with noise clean has changed since these settings were made"):
        prepare(theirs, as_if_published)
    assert prepare(ours, as_if_published).data.name == "mnist"

    def stops(row):
        raise KeyboardInterrupt

    # Settings made by hand, or by version 0.1, have no fingerprint: the labels alone tell.
    settings = Settings("mnist", model="mlp:hidden=4", epochs=2, validation=0.0)
    with pytest.raises(KeyboardInterrupt):
        train(settings, run, root=other, accelerator="cpu", on_epoch=stops)
    with refused(ValueError, run, "The labels of mnist have changed since"):
        train(settings, run, root=as_if_published, accelerator="cpu")
    assert train(settings, run, root=other, accelerator="cpu").last.epoch == 2
    train(theirs, tmp_path / "theirs", root=other, accelerator="cpu")
    with refused(ValueError, "holds a run with other settings (fingerprint)"):
        train(ours, tmp_path / "theirs", root=as_if_published, accelerator="cpu")


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
    lines = [f"n{k:08d} name {k}, other name\n" for k in range(1000)]
    (folder / "info" / "synsets.txt").write_text("".join(lines))
    assert open_webvision(root).class_names == tuple(f"name {k}" for k in range(50))


def test_ilsvrc12_by_folder_and_by_list(root):
    """50 or 1000 folders; other numbers cannot be told apart."""
    with refused(FileNotFoundError, root / "ilsvrc12" / "val.txt", "https://image-net.org", f"{root}/ilsvrc12/val"):
        open_data("webvision-mini-imagenet", root=root)
    made = 0
    for folders in (1, 49, 50, 51, 1000):
        for k in range(made, folders):
            folder = root / "ilsvrc12" / "val" / f"n{k:08d}"
            folder.mkdir(parents=True)
            if k < 60:
                save_image(folder / f"{k}.JPEG", random_bytes(2, 2, 3))
        made = folders
        if folders in (50, 1000):
            test = open_data("webvision-mini-imagenet", root=root).test
            assert [path.name for path in test.inputs.paths] == [f"{k}.JPEG" for k in range(50)]
            assert test.labels.tolist() == list(range(50))
            continue
        with refused(FileNotFoundError, "folders of all 1000 classes or of the first 50", f"and {folders} folders"):
            open_data("webvision-mini-imagenet", root=root)
    entries = [("ILSVRC2012_val_00000001.JPEG", 65), ("ILSVRC2012_val_00000002.JPEG", 3)]
    write_list(root / "ilsvrc12" / "val.txt", root / "ilsvrc12" / "val", entries)
    data = open_data("webvision-mini-imagenet", root=root)
    assert data.test.inputs == ImageFiles((root / "ilsvrc12" / "val" / entries[1][0],))
    assert (data.name, data.test.labels.tolist()) == ("webvision-mini-imagenet", [3])
    assert data.train.inputs == open_data("webvision-mini", root=root).train.inputs


def test_missing_and_damaged_images(root):
    paths = [root / "webvision" / name for name, _ in TRAIN]
    bad = [cut(paths[1]), cut(root / "webvision" / "val_images_256" / VAL[0][0])]
    assert len(open_data("webvision-mini", root=root).train) == 3  # skipping decodes every image
    data, told = skipping("webvision-mini", root=root)
    assert data.train.inputs == ImageFiles((paths[0], paths[3]))
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([49, 0], [0])
    assert [path for path, _ in told] == bad
    paths[1].unlink()
    with refused(FileNotFoundError, paths[1], "no such file"):
        open_data("webvision-mini", root=root)
    data, told = skipping("webvision-mini", root=root)
    assert (data.train.labels.tolist(), told[0]) == ([49, 0], (paths[1], "no such file"))
    for path in (paths[0], paths[3]):
        cut(path)
    with refused(ValueError, "train_filelist_google.txt", "at least one image that can be read", "got none"):
        open_data("webvision-mini", root=root, skip_bad=True)
    for path in paths:
        path.unlink(missing_ok=True)
    with refused(FileNotFoundError, "train_filelist_google.txt", "got none of 3", "data.vision.ee.ethz.ch"):
        open_data("webvision-mini", root=root)


def test_inputs_to_predict_on_go_by_their_names(root):
    def inputs(shape, size=None, **options):
        like = DataDescription("d", ("a", "b"), shape, size, columns=(), mean=(), std=())
        found = open_inputs(DataSource("webvision-mini", **options), like, None, root=root)
        assert [path.name for path in found.inputs.paths] == list(found.origin.names(len(found)))
        return list(found.origin.names(len(found)))

    assert inputs((3, 224, 224), 224) == [VAL[0][0], VAL[2][0]]
    cut(root / "webvision" / "val_images_256" / VAL[0][0])
    assert inputs((3, 224, 224), 224, skip_bad=True) == [VAL[2][0]]
    with refused(ValueError, "images of 8 x 9 pixels, as in the run", "got webvision-mini", "several sizes"):
        inputs((1, 8, 9))
    with refused(ValueError, "6 features, as in the run", "got images"):
        inputs((6,))


def test_bad_and_missing_lists(root):
    info = root / "webvision" / "info"
    listing = info / "train_filelist_google.txt"
    good = listing.read_text()
    for line in ("google/a.jpg", "google/a.jpg -1", "google/a.jpg cat", "7"):
        listing.write_text(f"{TRAIN[0][0]} 49\n{line}\n")
        with refused(ValueError, f"line 2 of {listing}", "`path label`", f"got {line!r}"):
            open_data("webvision-mini", root=root)
    listing.write_text(good)
    for missing in (info / "val_filelist.txt", listing):
        missing.unlink()
        with refused(FileNotFoundError, missing, "data.vision.ee.ethz.ch", f"into {root}/webvision"):
            open_data("webvision-mini", root=root)
