"""Arrays in .npz files: shapes, names, labels; never Python objects."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import torch
from data_helpers import random_bytes, skipping
from hostile_pickle import Bomb
from in_turn import in_turn
from refusals import refused

from symloss.data import open_data
from symloss.data.arrays import open_inputs_array

X = np.array([[1.5, 2], [3, 4], [5, 7]])
Y = np.array([0, 1, 0])


def save(tmp_path, **arrays) -> str:
    np.savez(tmp_path / "x.npz", **arrays)
    return str(tmp_path / "x.npz")


@in_turn("inputs, labels", [("x", "y"), ("inputs", "labels"), ("x_train", "y_train")])
def test_features(tmp_path, inputs, labels):
    path = save(tmp_path, **{inputs: X, labels: Y})
    data = open_data(path)
    assert torch.equal(data.train.inputs, torch.tensor(X, dtype=torch.float32))
    assert data.train.labels.tolist() == [0, 1, 0]
    assert (data.name, data.class_names, data.test) == ("x", ("0", "1"), None)
    np.testing.assert_allclose(data.scaling.mean, X.mean(0), rtol=1e-12)
    np.testing.assert_allclose(data.scaling.std, X.std(0), rtol=1e-12)
    test = open_data(save(tmp_path, **{inputs: X, labels: Y}, x_test=X[1:], y_test=Y[1:])).test
    assert (test.inputs.tolist(), test.labels.tolist()) == (X[1:].tolist(), [1, 0])
    np.savez(tmp_path / "t.npz", x=X[:1], y=Y[:1])
    assert open_data(path, test=tmp_path / "t.npz").test.labels.tolist() == [0]


IMAGES = random_bytes(3, 4, 5, 3)


@in_turn(
    "x, expected",
    [
        (IMAGES, IMAGES.transpose(0, 3, 1, 2)),
        (IMAGES.transpose(0, 3, 1, 2), IMAGES.transpose(0, 3, 1, 2)),
        (IMAGES[..., 0], IMAGES[:, None, :, :, 0]),
        (IMAGES[..., :1], IMAGES[:, None, :, :, 0]),
    ],
)
def test_images(tmp_path, x, expected):
    data = open_data(save(tmp_path, x=x, y=Y))
    assert data.train.inputs.dtype == torch.uint8
    np.testing.assert_array_equal(data.train.inputs.numpy(), expected)
    np.testing.assert_allclose(data.scaling.mean, (expected / 255).mean((0, 2, 3)), rtol=1e-12)


@in_turn(
    "y, classes, labels",
    [
        (np.array(["dog", "cat", "dog"]), ("cat", "dog"), [1, 0, 1]),
        (np.array([b"dog", b"cat", b"dog"]), ("cat", "dog"), [1, 0, 1]),
        (np.array([10, 9, 10], dtype=np.uint8), ("9", "10"), [1, 0, 1]),
        (np.array([-5, 100, 7]), ("-5", "7", "100"), [0, 2, 1]),
    ],
)
def test_labels(tmp_path, y, classes, labels):
    data = open_data(save(tmp_path, x=X, y=y))
    assert (data.class_names, data.train.labels.tolist()) == (classes, labels)


@in_turn(
    "y", [np.array([1.0, np.nan, 2.0, np.nan]), np.array(["a", "nan", "b", ""]), np.array([b"a", b"NaN", b"b", b""])]
)
def test_a_missing_label_is_no_class(tmp_path, y):
    x = np.arange(8.0).reshape(4, 2)
    np.savez(tmp_path / "x.npz", x=x, y=y)
    with refused(ValueError, "y of", tmp_path / "x.npz", "a label for each", "in row 1", "--skip-bad"):
        open_data(str(tmp_path / "x.npz"))
    data, told = skipping(tmp_path / "x.npz")
    assert data.train.inputs.tolist() == x[[0, 2]].tolist()
    assert data.train.labels.tolist() == [0, 1]
    assert told == [(tmp_path / "x.npz", "no label in row 1 and 1 more rows of y")]


@in_turn("name", ["x", "y"])
def test_objects_are_never_loaded(tmp_path, name):
    arrays = {"x": X, "y": Y} | {name: np.array([Bomb(tmp_path / "trace")] * 3, dtype=object)}
    path = save(tmp_path, **arrays)
    with refused(ValueError, f"{name} of {path}", "Python objects", "never loaded"):
        open_data(path)
    assert not (tmp_path / "trace").exists()


@in_turn(
    "arrays, ingredients",
    [
        ({"x": X, "y": np.array(["1", "1.0", "2"])}, ("y of", "'1' and '1.0'", "the same number")),
        ({"x": X, "y": np.array([1.0, np.inf, 2.0])}, ("y of", "a label for each", "got inf")),
        ({"x": X, "y": np.array([b"a", b"\xff", b"b"])}, ("y of", "names in UTF-8")),
        ({"a": X, "b": Y}, ("x and y or x_train and y_train or inputs and labels", "got a, b")),
        ({"x": X}, ("x and y", "got x")),
        ({}, ("x and y", "got none")),
        ({"x": X, "y": Y[:2]}, ("as many inputs as labels", "got 3 inputs and 2 labels")),
        ({"x": X[:0], "y": Y[:0]}, ("and some", "got 0 inputs and 0 labels")),
        ({"x": X, "y": Y[:, None]}, ("y of", "one row", "shape (3, 1)")),
        ({"x": X, "y": Y > 0}, ("y of", "numbers or names", "got bool")),
        ({"x": X[:, 0], "y": Y}, ("x of", "(N, d)", "shape (3,)")),
        ({"x": np.array(["a", "b", "c"]), "y": Y}, ("x of", "numbers", "got <U1")),
        ({"x": np.array(5), "y": Y}, ("x of", "array", "a single value")),
        ({"x": np.where(X == 4, np.nan, X), "y": Y}, ("x of", "finite", "got nan in row 1, column 1")),
        ({"x": np.where(X == 4, 1e300, X), "y": Y}, ("x of", "finite", "got 1e+300 in row 1, column 1")),
        ({"x": IMAGES / 255, "y": Y}, ("x of", "images as uint8", "got float64")),
        ({"x": random_bytes(3, 4, 4, 2), "y": Y}, ("x of", "1 or 3 channels", "(3, 4, 4, 2)")),
        ({"x": X, "y": Y, "x_test": X}, ("x_test and y_test", "got x, y, x_test")),
        ({"x": X, "y": Y, "x_test": X[:, :1], "y_test": Y}, ("test inputs", "shape (2,)", "got float32 of shape (1,)")),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y + 1}, ("classes of the training data", "got '2'")),
    ],
)
def test_bad_arrays(tmp_path, arrays, ingredients):
    with refused(ValueError, tmp_path / "x.npz", *ingredients):
        open_data(save(tmp_path, **arrays))


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, X)
    return file.getvalue()


def test_damaged_arrays(tmp_path):
    """In an archive whose checksums are right, and in one whose compression is not."""
    path = tmp_path / "x.npz"
    for old, new, wanted in (
        (b"\x93NUMPY", b"nothing", "of numbers or text"),
        (b"(3, 2)", b"(3, 2", "of numbers or text"),
        (b"(3, 2), }" + b" " * 15, b"(3000000000000000, 2), }", "that fits into memory"),
    ):
        save(tmp_path, y=Y)
        with zipfile.ZipFile(path, "a") as file:
            file.writestr("x.npy", npy().replace(old, new))
        with refused(ValueError, f"x of {path} must be an array {wanted}; got a damaged one"):
            open_data(str(path))
    np.savez_compressed(path, x=np.tile(X, (100, 1)), y=np.tile(Y, 100))
    content = bytearray(path.read_bytes())
    name, extra = struct.unpack("<HH", content[26:30])
    content[30 + name + extra] = 0xFF  # no kind of block that there is
    for damaged, message in (
        (content, f"x of {path} must be an array of numbers or text; got a damaged one"),
        *((other, f"{path} must be an .npz file") for other in (b"", b"hello", b"PK\x03\x04 cut", npy())),
    ):
        path.write_bytes(damaged)
        with refused(ValueError, message):
            open_data(str(path))


@in_turn("arrays, expected", [({"x": X}, X), ({"inputs": X, "y": Y}, X), ({"x_train": X, "x_test": X[1:]}, X[1:])])
def test_inputs_alone(tmp_path, arrays, expected):
    save(tmp_path, **arrays)
    assert open_inputs_array(tmp_path / "x.npz").tolist() == expected.tolist()
    save(tmp_path, y=Y)
    with refused(ValueError, tmp_path / "x.npz", "x_test or x or x_train or inputs", "got y"):
        open_inputs_array(tmp_path / "x.npz")
