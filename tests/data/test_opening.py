"""Which data set is meant: names, paths, what is refused; inputs without labels, for a run; arrays in .npz files."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from data_helpers import cut, holds, is_scaled, not_opened, random_bytes, save_image, skipping, write, write_idx
from hostile_pickle import Bomb
from in_turn import in_turn
from refusals import all_refused, refused

from symloss.data import KNOWN, data_root, open_data, opening
from symloss.data.arrays import open_inputs_array
from symloss.data.dataset import UNKNOWN, ImageFiles
from symloss.data.source import DataDescription, DataSource
from symloss.data.table_encoder import TableEncoder


def test_the_root(monkeypatch, tmp_path):
    monkeypatch.delenv("SYMLOSS_DATA", raising=False)
    assert data_root() == Path.home() / ".cache" / "symloss" / "data"
    monkeypatch.setenv("SYMLOSS_DATA", "~/mine")
    assert data_root() == Path.home() / "mine"
    monkeypatch.setenv("SYMLOSS_DATA", str(tmp_path))
    write_idx(tmp_path / "mnist", sizes=(3, 2))
    assert len(open_data("mnist").train) == 3


@in_turn(
    "data, options, exception, ingredients",
    [
        ("cifar-10", {}, ValueError, ("a known name", "got 'cifar-10'", "did you mean 'cifar10'?")),
        ("qqq", {}, ValueError, ("a known name", "got 'qqq'", "known are cifar10")),
        ("./no/where", {}, FileNotFoundError, ("an existing folder or file", *KNOWN, "got './no/where'")),
        ("nowhere.npz", {}, FileNotFoundError, ("an existing folder or file", "got 'nowhere.npz'")),
        ("", {}, ValueError, ("a known name or an existing folder or file", "got an empty text")),
        ("x.xlsx", {}, ValueError, ("a folder or a file ending in .csv, .tsv, .parquet, .npz", "got 'x.xlsx'")),
        ("x.csv", {"test": ""}, ValueError, ("test must be an existing folder or file; got an empty text",)),
        ("x.csv", {"test": "nowhere.csv"}, FileNotFoundError, ("test must be an existing", "got 'nowhere.csv'")),
        ("x.csv", {"test": "."}, ValueError, ("test must be of the same kind", "a table", "got a folder")),
        ("./digits", {}, ValueError, ("digits", "a folder of images for each class")),  # a name goes before a path
        ("digits", {"test": "x.csv"}, ValueError, ("test must be left out for digits", "got x.csv")),
        ("x.csv", {"drop": ["d"]}, ValueError, ("drop must name columns", "got 'd'", "a")),
        ("x.csv", {"drop": ["label"]}, ValueError, ("drop must name columns", "got 'label'")),
        ("digits", {"drop": ["a"]}, ValueError, ("drop must be left out for digits", "no table of features", "got a")),
        ("x.npz", {"categorical": ["a"]}, ValueError, ("categorical must be left out for x.npz",)),
        ("images.csv", {"keep": ["a"]}, ValueError, ("keep must be left out for images.csv",)),
        ("x.npz", {"size": 64}, ValueError, ("size must be left out for x.npz", "got 64")),
        ("x.csv", {"size": 64}, ValueError, ("size must be left out for x.csv", "got 64")),
    ],
)
def test_data_and_choices_that_are_refused(tmp_path, monkeypatch, data, options, exception, ingredients):
    monkeypatch.chdir(tmp_path)
    for name in ("x.csv", "x.xlsx"):
        write(tmp_path / name, "a,label\n1,x\n2,y\n")
    write(tmp_path / "images.csv", "image,label\na.png,x\nb.png,y\n")
    np.savez(tmp_path / "x.npz", x=np.eye(2), y=np.arange(2))
    (tmp_path / "digits").mkdir()
    not_opened(data, *ingredients, exception=exception, **options)


def test_fetching_does_not_import_torch_and_opening_does_not_import_scikit_learn():
    code = "import sys; from symloss.data import get; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    house = Path(opening.__file__).parents[1]
    sources = [path.read_text() for floor in (".", "noise", "data") for path in (house / floor).glob("*.py")]
    assert not any(re.search("^(from|import) sklearn", source, re.MULTILINE) for source in sources)
    assert any("from sklearn" in source for source in sources)


def like(shape, size=None, image=None):
    """What a run keeps of data with inputs of this shape."""
    return DataDescription("d", ("a", "b"), shape, size, columns=(), mean=(), std=(), image=image)


def open_inputs(data, trained_on, encoder=None, root=None, on_bad=None, **options):
    return opening.open_inputs(DataSource(data, **options), trained_on, encoder, root=root, on_bad=on_bad)


def names(examples):
    return list(examples.origin.names(len(examples)))


@pytest.fixture
def pictures(tmp_path):
    written = {name: random_bytes(4, 5, 3, seed=k) for k, name in enumerate(("b.png", "a/c.png", "a/d.png"))}
    for name, pixels in written.items():
        save_image(tmp_path / name, pixels)
    return tmp_path, written


HELD, STREAMED = like((3, 4, 5)), like((3, 224, 224), size=224)


def test_a_folder_of_images_without_classes_also_where_one_is_cut_off(pictures):
    folder, pixels = pictures
    held, files = (open_inputs(str(folder), wanted) for wanted in (HELD, STREAMED))
    assert sorted(names(held)) == sorted(names(files)) == sorted(pixels)
    for name, image in zip(names(held), held.inputs, strict=True):
        assert np.array_equal(image.numpy().transpose(1, 2, 0), pixels[name])
    sizes = "c.png must be of the size that the run was trained on, (3, 8, 8); got"
    bad, told = cut(folder / "a" / "d.png"), []
    all_refused(
        (ValueError, sizes, lambda: open_inputs(str(folder), like((3, 8, 8)))),
        (ValueError, "6 features, as in the run; got images", lambda: open_inputs(str(folder), like((6,)))),
        (ValueError, f"{bad} ... must be an image ... damaged ... --skip-bad", lambda: open_inputs(str(folder), HELD)),
    )
    skip = {"skip_bad": True, "on_bad": lambda *bad: told.append(bad)}
    held, files = (open_inputs(str(folder), wanted, **skip) for wanted in (HELD, STREAMED))
    assert names(held) == names(files) == ["a/c.png", "b.png"]
    assert [path for path, _ in told] == [bad, bad]
    assert files.inputs == ImageFiles((folder / "a" / "c.png", folder / "b.png"))
    assert np.array_equal(held.inputs[1].numpy().transpose(1, 2, 0), pixels["b.png"])


def test_a_table_of_image_files(pictures):
    """In the usual column, or in the one that the run had."""
    folder, pixels = pictures
    path = write(folder / "list.csv", "photo,path\na/d.png,b.png\n")
    found = open_inputs(path, HELD)
    assert names(found) == ["b.png"]
    assert np.array_equal(found.inputs[0].numpy().transpose(1, 2, 0), pixels["b.png"])
    wanted = like((3, 4, 5), image="photo")
    assert names(open_inputs(path, wanted)) == ["a/d.png"]
    assert names(open_inputs(path, wanted, image="path")) == ["b.png"]
    assert names(open_inputs(write(folder / "list.csv", "path\nb.png\n"), wanted)) == ["b.png"]


def test_tables_and_arrays_of_features_and_known_sets(tmp_path):
    encoder = TableEncoder().fit({"a": [0.5, 1.5], "b": [0.5, 2.5]})
    path = write(tmp_path / "t.csv", "b,note,a\n2,x,1\n4,y,3\n")
    found = open_inputs(path, like((2,)), encoder)
    holds(found, [[1, 2], [3, 4]], [UNKNOWN] * 2)
    assert names(found) == ["2", "3"]  # as a spreadsheet counts them
    x = np.arange(24.0).reshape(4, 6)
    arrays = save(tmp_path, x=x)
    holds(open_inputs(arrays, like((6,))), x, [UNKNOWN] * 4)
    assert len(open_inputs("digits", like((1, 8, 8)))) == 360
    other = write(tmp_path / "t.txt", "")
    columns, photo = "photo or image or path or file ... `image` names ... columns b", like((3, 4, 5), image="photo")
    all_refused(
        (ValueError, "of shape (7,); got (6,)", lambda: open_inputs(arrays, like((7,)))),
        (ValueError, f"{path} ... trained on images ... {columns}", lambda: open_inputs(path, photo)),
        (ValueError, f"an .npz of 2 features ... got a table, {path}", lambda: open_inputs(path, like((2,)))),
        (ValueError, "a folder, a table or an .npz file ... t.txt", lambda: open_inputs(other, like((2,)))),
    )


X = np.array([[1.5, 2], [3, 4], [5, 7]])
Y = np.array([0, 1, 0])


def save(tmp_path, **arrays) -> str:
    np.savez(tmp_path / "x.npz", **arrays)
    return str(tmp_path / "x.npz")


@in_turn("inputs, labels", [("x", "y"), ("inputs", "labels"), ("x_train", "y_train")])
def test_arrays_of_features(tmp_path, inputs, labels):
    path = save(tmp_path, **{inputs: X, labels: Y})
    data = open_data(path)
    holds(data.train, X, [0, 1, 0])
    is_scaled(data, X)
    assert (data.name, data.class_names, data.test) == ("x", ("0", "1"), None)
    holds(open_data(save(tmp_path, **{inputs: X, labels: Y}, x_test=X[1:], y_test=Y[1:])).test, X[1:], [1, 0])
    np.savez(tmp_path / "t.npz", x=X[:1], y=Y[:1])
    holds(open_data(path, test=tmp_path / "t.npz").test, X[:1], [0])


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
def test_arrays_of_images(tmp_path, x, expected):
    data = open_data(save(tmp_path, x=x, y=Y))
    holds(data.train, expected, [0, 1, 0])
    is_scaled(data, expected)


@in_turn(
    "y, classes, labels",
    [
        (np.array(["dog", "cat", "dog"]), ("cat", "dog"), [1, 0, 1]),
        (np.array([b"dog", b"cat", b"dog"]), ("cat", "dog"), [1, 0, 1]),
        (np.array([10, 9, 10], dtype=np.uint8), ("9", "10"), [1, 0, 1]),
        (np.array([-5, 100, 7]), ("-5", "7", "100"), [0, 2, 1]),
    ],
)
def test_arrays_of_labels(tmp_path, y, classes, labels):
    data = open_data(save(tmp_path, x=X, y=y))
    assert (data.class_names, data.train.labels.tolist()) == (classes, labels)


@in_turn(
    "y", [np.array([1.0, np.nan, 2.0, np.nan]), np.array(["a", "nan", "b", ""]), np.array([b"a", b"NaN", b"b", b""])]
)
def test_a_missing_label_of_an_array(tmp_path, y):
    x = np.arange(8.0).reshape(4, 2)
    path = save(tmp_path, x=x, y=y)
    not_opened(path, "y of", path, "a label for each", "in row 1", "--skip-bad")
    data, told = skipping(path)
    holds(data.train, x[[0, 2]], [0, 1])
    assert told == [(Path(path), "no label in row 1 and 1 more rows of y")]


@in_turn("name", ["x", "y"])
def test_objects_are_never_loaded(tmp_path, name):
    arrays = {"x": X, "y": Y} | {name: np.array([Bomb(tmp_path / "trace")] * 3, dtype=object)}
    path = save(tmp_path, **arrays)
    not_opened(path, f"{name} of {path}", "Python objects", "never loaded")
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
    not_opened(save(tmp_path, **arrays), tmp_path / "x.npz", *ingredients)


def test_damaged_arrays(tmp_path):
    """In an archive whose checksums are right, and in one whose compression is not."""
    path = tmp_path / "x.npz"
    np.save(tmp_path / "x.npy", X)
    npy = (tmp_path / "x.npy").read_bytes()
    for old, new, wanted in (
        (b"\x93NUMPY", b"nothing", "of numbers or text"),
        (b"(3, 2)", b"(3, 2", "of numbers or text"),
        (b"(3, 2), }" + b" " * 15, b"(3000000000000000, 2), }", "that fits into memory"),
    ):
        save(tmp_path, y=Y)
        with zipfile.ZipFile(path, "a") as file:
            file.writestr("x.npy", npy.replace(old, new))
        not_opened(path, f"x of {path} must be an array {wanted}; got a damaged one")
    np.savez_compressed(path, x=np.tile(X, (100, 1)), y=np.tile(Y, 100))
    content = bytearray(path.read_bytes())
    name, extra = struct.unpack("<HH", content[26:30])
    content[30 + name + extra] = 0xFF  # no kind of block that there is
    for damaged, message in (
        (content, f"x of {path} must be an array of numbers or text; got a damaged one"),
        *((other, f"{path} must be an .npz file") for other in (b"", b"hello", b"PK\x03\x04 cut", npy)),
    ):
        path.write_bytes(damaged)
        not_opened(path, message)


@in_turn("arrays, expected", [({"x": X}, X), ({"inputs": X, "y": Y}, X), ({"x_train": X, "x_test": X[1:]}, X[1:])])
def test_arrays_of_inputs_alone(tmp_path, arrays, expected):
    save(tmp_path, **arrays)
    assert open_inputs_array(tmp_path / "x.npz").tolist() == expected.tolist()
    save(tmp_path, y=Y)
    with refused(ValueError, tmp_path / "x.npz", "x_test or x or x_train or inputs", "got y"):
        open_inputs_array(tmp_path / "x.npz")


def test_a_source_of_an_earlier_version_has_the_default_encoder():
    source = DataSource("x.csv", drop=("id",), encoder="none")
    document = source.to_document()
    assert DataSource.from_document(document, "source.json") == source
    del document["encoder"]
    assert DataSource.from_document(document, "source.json").encoder == "auto"
    with refused(ValueError, "source.json must hold encoder as a text; got 5"):
        DataSource.from_document(document | {"encoder": 5}, "source.json")
