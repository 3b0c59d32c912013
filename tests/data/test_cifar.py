"""CIFAR-10 and CIFAR-100 from small files in the publisher's four layouts."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from data_helpers import python2_pickle, python3_pickle, random_bytes
from refusals import refused

from symloss.data import open_data
from symloss.data.published import CIFAR100_CLASSES

SIZE = 4
FILES = {"cifar10": [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"], "cifar100": ["train", "test"]}
FOLDERS = {
    ("cifar10", "python"): "cifar-10-batches-py",
    ("cifar10", "binary"): "cifar-10-batches-bin",
    ("cifar100", "python"): "cifar-100-python",
    ("cifar100", "binary"): "cifar-100-binary",
}
CLASSES = {"cifar10": 10, "cifar100": 100}


def batches(name: str) -> dict[str, tuple[np.ndarray, list[int]]]:
    return {
        file: (random_bytes(SIZE, 3072, seed=k), random_bytes(SIZE, seed=k, high=CLASSES[name]).tolist())
        for k, file in enumerate(FILES[name])
    }


def write_python(root: Path, name: str, form=python2_pickle) -> Path:
    folder = root / FOLDERS[name, "python"]
    folder.mkdir(parents=True)
    for file, (pixels, labels) in batches(name).items():
        key = "labels" if name == "cifar10" else "fine_labels"
        (folder / file).write_bytes(form(key, labels, pixels))
    return folder


def write_binary(root: Path, name: str) -> Path:
    folder = root / FOLDERS[name, "binary"]
    folder.mkdir(parents=True)
    for file, (pixels, labels) in batches(name).items():
        records = b""
        for row, label in zip(pixels, labels, strict=True):
            coarse = b"" if name == "cifar10" else b"\x13"
            records += coarse + bytes([label]) + row.tobytes()
        (folder / f"{file}.bin").write_bytes(records)
    return folder


def bytes_keys(key: str, labels: list[int], pixels: np.ndarray) -> bytes:
    return pickle.dumps({key.encode(): labels, b"data": pixels}, protocol=2)


def newest(key: str, labels: list[int], pixels: np.ndarray) -> bytes:
    return pickle.dumps({key: labels, "data": pixels}, protocol=4)


WRITERS = {
    "python 2": write_python,
    "python 3": lambda root, name: write_python(root, name, python3_pickle),
    "keys of bytes": lambda root, name: write_python(root, name, bytes_keys),
    "protocol 4": lambda root, name: write_python(root, name, newest),
    "binary": write_binary,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("name", FILES)
def test_every_layout_is_read_as_written(tmp_path, name, write):
    write(tmp_path, name)
    data = open_data(name, root=tmp_path)
    *train, test = batches(name).values()
    for examples, written in ((data.train, train), (data.test, [test])):
        assert examples.inputs.dtype == torch.uint8
        # Red, green, blue; each row by row.
        pixels = np.concatenate([batch for batch, _ in written]).reshape(-1, 3, 32, 32)
        np.testing.assert_array_equal(examples.inputs.numpy(), pixels)
        assert examples.labels.tolist() == [label for _, labels in written for label in labels]
    assert data.input_shape == (3, 32, 32)


@pytest.mark.parametrize("write", [write_python, write_binary], ids=["python", "binary"])
def test_root_may_be_the_folder_or_its_parents_parent(tmp_path, write):
    folder = write(tmp_path / "cifar10", "cifar10")
    expected = open_data("cifar10", root=folder).train
    for root in (tmp_path / "cifar10", tmp_path):
        assert torch.equal(open_data("cifar10", root=root).train.inputs, expected.inputs)


def test_the_protocol(tmp_path):
    write_python(tmp_path, "cifar10")
    write_python(tmp_path, "cifar100")
    ten, hundred = (open_data(name, root=tmp_path) for name in FILES)
    assert ten.scaling.mean == (0.49139968, 0.48215827, 0.44653124)
    assert ten.scaling.std == (0.24703233, 0.24348505, 0.26158768)
    assert hundred.scaling.mean == (0.5071, 0.4865, 0.4409)
    assert hundred.scaling.std == (0.2673, 0.2564, 0.2762)
    assert ten.augmentation == ("crop:4", "flip")
    assert hundred.augmentation == ("crop:4", "flip", "rotate:20")
    assert (ten.class_names[0], ten.class_names[3], ten.class_names[9]) == ("airplane", "cat", "truck")


def test_the_hundred_classes():
    assert len(set(CIFAR100_CLASSES)) == 100
    assert list(CIFAR100_CLASSES) == sorted(CIFAR100_CLASSES)
    assert (CIFAR100_CLASSES[11], CIFAR100_CLASSES[99]) == ("boy", "worm")


@pytest.mark.parametrize("name", FILES)
def test_missing(tmp_path, name):
    python = tmp_path / FOLDERS[name, "python"]
    with refused(FileNotFoundError, name, python, "got neither", f"symloss data get {name}"):
        open_data(name, root=tmp_path)


def test_one_batch_missing(tmp_path):
    folder = write_python(tmp_path, "cifar10")
    (folder / "data_batch_3").unlink()
    with refused(FileNotFoundError, folder / "data_batch_3", "without it"):
        open_data("cifar10", root=tmp_path)


GOOD = random_bytes(SIZE, 3072), [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("content", "ingredients"),
    [
        ([1, 2], ("dictionary", "got list")),
        ({"labels": GOOD[1]}, ("'data'", "uint8 of shape (N, 3072)", "got NoneType")),
        ({"data": GOOD[0].astype(np.float32), "labels": GOOD[1]}, ("'data'", "uint8", "got float32")),
        ({"data": GOOD[0][:, :100], "labels": GOOD[1]}, ("(N, 3072)", "got uint8 (4, 100)")),
        ({"data": GOOD[0]}, ("'labels'", "4 labels", "got NoneType")),
        ({"data": GOOD[0], "labels": [1, 2, 3]}, ("'labels'", "4 labels", "got 3 of them")),
        ({"data": GOOD[0], "labels": [1, 2, 3, 10]}, ("labels 0 to 9", "got 10")),
        ({"data": GOOD[0], "labels": [1, 2, 3, -1]}, ("labels 0 to 9", "got -1")),
        ({"data": GOOD[0], "labels": [1, 2, 3, None]}, ("labels 0 to 9", "got None")),
    ],
    ids=["list", "no data", "float", "shape", "no labels", "few labels", "label 10", "label -1", "label None"],
)
def test_wrong_pickles(tmp_path, content, ingredients):
    path = write_python(tmp_path, "cifar10") / "data_batch_2"
    path.write_bytes(pickle.dumps(content))
    with refused(ValueError, path, *ingredients):
        open_data("cifar10", root=tmp_path)


def test_batches_of_other_sizes(tmp_path):
    folder = write_python(tmp_path, "cifar10")
    (folder / "data_batch_4").write_bytes(python2_pickle("labels", [1, 2], random_bytes(2, 3072)))
    with refused(ValueError, folder / "data_batch_4", "as many images as", "got 2"):
        open_data("cifar10", root=tmp_path)


@pytest.mark.parametrize(("name", "record"), [("cifar10", 3073), ("cifar100", 3074)])
@pytest.mark.parametrize("size", [0, 100, 2 * 3072], ids="{} bytes".format)
def test_a_binary_file_that_breaks_off(tmp_path, name, record, size):
    path = write_binary(tmp_path, name) / f"{FILES[name][-1]}.bin"
    path.write_bytes(bytes(size))
    with refused(ValueError, path, f"records of {record} bytes", f"got {size} bytes"):
        open_data(name, root=tmp_path)


def test_a_binary_label_out_of_range(tmp_path):
    path = write_binary(tmp_path, "cifar100") / "test.bin"
    path.write_bytes(b"\x00\x64" + bytes(3072))
    with refused(ValueError, path, "labels 0 to 99", "got 100"):
        open_data("cifar100", root=tmp_path)
