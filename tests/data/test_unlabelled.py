"""Inputs without labels: the same kinds of data as for training, and one sentence where they do not fit the run."""

import csv

import numpy as np
import pytest
import torch
from data_helpers import cut, random_bytes, save_image
from PIL import Image
from refusals import refused

from symloss.data import opening
from symloss.data.dataset import UNKNOWN, ImageFiles
from symloss.data.source import DataDescription, DataSource
from symloss.data.table_encoder import TableEncoder


def like(shape, size=None, image=None):
    """What a run keeps of data with inputs of this shape."""
    return DataDescription("d", ("a", "b"), shape, size, columns=(), mean=(), std=(), image=image)


def open_inputs(data, trained_on, encoder=None, root=None, on_bad=None, **options):
    return opening.open_inputs(DataSource(data, **options), trained_on, encoder, root=root, on_bad=on_bad)


def names(examples):
    return list(examples.origin.names(len(examples)))


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
    found = open_inputs(str(folder), like((3, 4, 5)))
    assert sorted(names(found)) == sorted(pixels)
    for name, image in zip(names(found), found.inputs, strict=True):
        assert np.array_equal(image.numpy().transpose(1, 2, 0), pixels[name])


def test_files_stay_files_where_the_run_streamed_them(pictures):
    folder, _ = pictures
    found = open_inputs(str(folder), like((3, 224, 224), size=224))
    assert isinstance(found.inputs, ImageFiles)
    assert len(found.inputs) == 3


def test_an_image_of_another_size_is_named(pictures):
    folder, _ = pictures
    with pytest.raises(ValueError, match=r"c\.png must be of the size that the run was trained on, \(3, 8, 8\); got"):
        open_inputs(str(folder), like((3, 8, 8)))


def test_a_file_that_is_no_image(pictures):
    folder, _ = pictures
    (folder / "zzz.png").write_text("no image")
    with pytest.raises(ValueError, match=r"zzz\.png must be an image"):
        open_inputs(str(folder), like((3, 4, 5)))
    assert len(open_inputs(str(folder), like((3, 4, 5)), skip_bad=True)) == 3


WANTED = pytest.mark.parametrize("wanted", [like((3, 4, 5)), like((3, 224, 224), size=224)], ids=["held", "streamed"])


@WANTED
def test_names_and_images_stay_in_step_where_one_is_cut_off(pictures, wanted):
    folder, pixels = pictures
    told = []
    bad = cut(folder / "a" / "d.png")
    found = open_inputs(str(folder), wanted, skip_bad=True, on_bad=lambda *bad: told.append(bad))
    assert names(found) == ["a/c.png", "b.png"]
    assert [path for path, _ in told] == [bad]
    if wanted.size is None:
        assert np.array_equal(found.inputs[1].numpy().transpose(1, 2, 0), pixels["b.png"])
    else:
        assert found.inputs == ImageFiles((folder / "a" / "c.png", folder / "b.png"))


def test_an_image_that_is_cut_off_is_named(pictures):
    bad = cut(pictures[0] / "a" / "d.png")
    with refused(ValueError, bad, "must be an image", "damaged", "--skip-bad"):
        open_inputs(str(pictures[0]), like((3, 4, 5)))


def write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def test_a_table_in_another_order_of_columns(tmp_path):
    path = write(tmp_path / "t.csv", [["b", "note", "a"], ["2", "x", "1"], ["4", "y", "3"]])
    found = open_inputs(path, like((2,)), TableEncoder().fit({"a": [0.5, 1.5], "b": [0.5, 2.5]}))
    assert found.labels.tolist() == [UNKNOWN] * 2
    assert torch.equal(found.inputs, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert names(found) == ["2", "3"]  # as a spreadsheet counts them


def test_a_table_without_a_column_of_the_run(tmp_path):
    path = write(tmp_path / "t.csv", [["b"], ["2"]])
    with pytest.raises(ValueError, match="'a'"):
        open_inputs(path, like((2,)), TableEncoder().fit({"a": [0.5, 1.5], "b": [0.5, 2.5]}))


def test_a_table_of_image_files(pictures):
    folder, pixels = pictures
    path = write(folder / "list.csv", [["image"], ["a/d.png"], ["b.png"]])
    found = open_inputs(path, like((3, 4, 5)))
    assert names(found) == ["a/d.png", "b.png"]
    assert np.array_equal(found.inputs[1].numpy().transpose(1, 2, 0), pixels["b.png"])


def test_the_run_s_own_column_of_image_files(pictures):
    folder, _ = pictures
    rows = [["photo", "path"], ["a/d.png", "b.png"]]
    path = write(folder / "list.csv", rows)
    wanted = like((3, 4, 5), image="photo")
    assert names(open_inputs(path, wanted)) == ["a/d.png"]
    assert names(open_inputs(path, wanted, image="path")) == ["b.png"]
    other = write(folder / "other.csv", [row[1:] for row in rows])
    assert names(open_inputs(other, wanted)) == ["b.png"]


def test_a_table_of_features_for_a_run_on_images(tmp_path):
    path = write(tmp_path / "t.csv", [["a", "b"], ["2", "3"]])
    with refused(
        ValueError, path, "trained on images", "photo or image or path or file", "`image` names", "columns a, b"
    ):
        open_inputs(path, like((3, 4, 5), image="photo"))


def test_a_table_for_a_run_on_an_array(tmp_path):
    path = write(tmp_path / "t.csv", [["a", "b"], ["2", "3"]])
    with refused(ValueError, "an .npz of 2 features", "without column names", f"got a table, {path}"):
        open_inputs(path, like((2,)))


def test_arrays(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.savez(tmp_path / "x.npz", x=x)
    assert np.array_equal(open_inputs(str(tmp_path / "x.npz"), like((6,))).inputs.numpy(), x)
    with pytest.raises(ValueError, match=r"of shape \(7,\); got \(6,\)"):
        open_inputs(str(tmp_path / "x.npz"), like((7,)))


def test_images_for_a_run_on_features(pictures):
    with pytest.raises(ValueError, match="6 features, as in the run; got images"):
        open_inputs(str(pictures[0]), like((6,)))


def test_the_test_part_of_a_known_set():
    assert len(open_inputs("digits", like((1, 8, 8)))) == 360


@pytest.fixture
def webvision(tmp_path):
    folder = tmp_path / "webvision"
    (folder / "info").mkdir(parents=True)
    (folder / "info" / "train_filelist_google.txt").write_text("google/a.png 0\n")
    (folder / "info" / "val_filelist.txt").write_text("a.png 0\nb.png 1\nc.png 1\n")
    for name in ("google/a.png", *(f"val_images_256/{letter}.png" for letter in "abc")):
        save_image(folder / name, random_bytes(40, 40, 3))
    return tmp_path


def test_known_files_go_by_their_names(webvision):
    wanted = like((3, 224, 224), size=224)
    assert names(open_inputs("webvision-mini", wanted, root=webvision)) == ["a.png", "b.png", "c.png"]
    cut(webvision / "webvision" / "val_images_256" / "b.png")
    found = open_inputs("webvision-mini", wanted, root=webvision, skip_bad=True)
    assert names(found) == ["a.png", "c.png"]
    assert [path.name for path in found.inputs.paths] == names(found)


def test_known_files_for_a_run_on_small_images(webvision):
    with refused(ValueError, "images of 8 x 9 pixels, as in the run", "got webvision-mini", "several sizes"):
        open_inputs("webvision-mini", like((1, 8, 9)), root=webvision)
    with refused(ValueError, "6 features, as in the run", "got images"):
        open_inputs("webvision-mini", like((6,)), root=webvision)
