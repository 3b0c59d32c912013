"""Which data set is meant: names, paths, what is refused; and inputs without labels, for a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_helpers import cut, random_bytes, save_image, write, write_idx
from in_turn import in_turn
from refusals import all_refused, refused

from symloss.data import KNOWN, data_root, open_data, opening
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
    with refused(exception, *ingredients):
        open_data(data, **options)


def test_fetching_does_not_import_torch():
    code = "import sys; from symloss.data import get; assert 'torch' not in sys.modules; import symloss.data.opening; "
    code += "assert 'torch' in sys.modules; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


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
    held, files = (
        open_inputs(str(folder), wanted, skip_bad=True, on_bad=lambda *bad: told.append(bad))
        for wanted in (HELD, STREAMED)
    )
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
    assert (found.labels.tolist(), found.inputs.tolist()) == ([UNKNOWN] * 2, [[1, 2], [3, 4]])
    assert names(found) == ["2", "3"]  # as a spreadsheet counts them
    x, arrays = np.arange(24, dtype=np.float32).reshape(4, 6), str(tmp_path / "x.npz")
    np.savez(arrays, x=x)
    assert np.array_equal(open_inputs(arrays, like((6,))).inputs.numpy(), x)
    assert len(open_inputs("digits", like((1, 8, 8)))) == 360
    other = write(tmp_path / "t.txt", "")
    columns, photo = "photo or image or path or file ... `image` names ... columns b", like((3, 4, 5), image="photo")
    all_refused(
        (ValueError, "of shape (7,); got (6,)", lambda: open_inputs(arrays, like((7,)))),
        (ValueError, f"{path} ... trained on images ... {columns}", lambda: open_inputs(path, photo)),
        (ValueError, f"an .npz of 2 features ... got a table, {path}", lambda: open_inputs(path, like((2,)))),
        (
            ValueError,
            "data must be a folder, a table or an .npz file ... t.txt",
            lambda: open_inputs(other, like((2,))),
        ),
    )
