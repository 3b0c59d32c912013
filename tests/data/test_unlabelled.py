"""Inputs without labels: the same kinds of data as for training, and one sentence where they do not fit the run."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image

from symloss.data.bad import BadFiles
from symloss.data.dataset import ImageFiles
from symloss.data.unlabelled import Wanted, open_inputs


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    pixels = {}
    for name in ("b.png", "a/c.png", "a/d.png"):
        pixels[name] = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels[name]).save(tmp_path / name)
    return tmp_path, pixels


def test_a_folder_of_images_without_classes(pictures):
    folder, pixels = pictures
    found = open_inputs(str(folder), Wanted((3, 4, 5)))
    assert sorted(found.names) == sorted(pixels)
    for name, image in zip(found.names, found.inputs, strict=True):
        assert np.array_equal(image.numpy().transpose(1, 2, 0), pixels[name])


def test_files_stay_files_where_the_run_streamed_them(pictures):
    folder, _ = pictures
    found = open_inputs(str(folder), Wanted((3, 224, 224), size=224))
    assert isinstance(found.inputs, ImageFiles)
    assert len(found.inputs) == 3


def test_an_image_of_another_size_is_named(pictures):
    folder, _ = pictures
    with pytest.raises(ValueError, match=r"c\.png must be of the size that the run was trained on, \(3, 8, 8\); got"):
        open_inputs(str(folder), Wanted((3, 8, 8)))


def test_a_file_that_is_no_image(pictures):
    folder, _ = pictures
    (folder / "zzz.png").write_text("no image")
    with pytest.raises(ValueError, match=r"zzz\.png must be an image"):
        open_inputs(str(folder), Wanted((3, 4, 5)))
    assert len(open_inputs(str(folder), Wanted((3, 4, 5)), bad=BadFiles(skip=True)).names) == 3


def write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def test_a_table_in_another_order_of_columns(tmp_path):
    path = write(tmp_path / "t.csv", [["b", "note", "a"], ["2", "x", "1"], ["4", "y", "3"]])
    found = open_inputs(path, Wanted((2,), columns=("a", "b")))
    assert torch.equal(found.inputs, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert list(found.names) == ["0", "1"]


def test_a_table_without_a_column_of_the_run(tmp_path):
    path = write(tmp_path / "t.csv", [["b"], ["2"]])
    with pytest.raises(ValueError, match="'a'"):
        open_inputs(path, Wanted((2,), columns=("a", "b")))


def test_a_table_of_image_files(pictures):
    folder, pixels = pictures
    path = write(folder / "list.csv", [["image"], ["a/d.png"], ["b.png"]])
    found = open_inputs(path, Wanted((3, 4, 5)))
    assert list(found.names) == ["a/d.png", "b.png"]
    assert np.array_equal(found.inputs[1].numpy().transpose(1, 2, 0), pixels["b.png"])


def test_arrays(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.savez(tmp_path / "x.npz", x=x)
    assert np.array_equal(open_inputs(str(tmp_path / "x.npz"), Wanted((6,))).inputs.numpy(), x)
    with pytest.raises(ValueError, match=r"of shape \(7,\); got \(6,\)"):
        open_inputs(str(tmp_path / "x.npz"), Wanted((7,)))


def test_images_for_a_run_on_features(pictures):
    with pytest.raises(ValueError, match="6 features, as in the run; got images"):
        open_inputs(str(pictures[0]), Wanted((6,)))


def test_the_test_part_of_a_known_set():
    assert len(open_inputs("digits", Wanted((1, 8, 8))).names) == 360
