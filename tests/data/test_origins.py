"""Where examples came from: files and rows as a person would find them, also where some were left out."""

import numpy as np
import pytest
import torch
from data_helpers import random_bytes, save_image

from symloss.data import open_data


def opened(spec, skip_bad=False, **columns):
    data = open_data(str(spec), skip_bad=skip_bad, **columns)
    return data, data.train.origin


def images(folder, names, size=8):
    for number, name in enumerate(names):
        save_image(folder / name, random_bytes(size + number % 2 * (size > 8), size, 3, seed=number))


@pytest.mark.parametrize("part", ["", "train/"])
@pytest.mark.parametrize("size", [8, 9], ids=["in memory", "on disk"])
def test_files_of_a_folder(tmp_path, part, size):
    images(tmp_path, [f"{part}{name}" for name in ("cat/2.png", "cat/1.png", "dog/deep/1.png", "dog/0.png")], size)
    data, found = opened(tmp_path)
    assert data.streamed == (size == 9)
    assert found.rows is None
    assert list(found.files) == [f"{part}{name}" for name in ("cat/1.png", "cat/2.png", "dog/0.png", "dog/deep/1.png")]


def test_a_file_that_was_left_out_is_not_among_them(tmp_path):
    images(tmp_path, ["cat/1.png", "cat/2.png", "dog/1.png"])
    (tmp_path / "cat" / "1.png").write_text("no image")
    _, found = opened(tmp_path, skip_bad=True)
    assert list(found.files) == ["cat/2.png", "dog/1.png"]


def test_rows_of_a_table_without_those_that_have_no_label(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,kind\n1,cat\n2,\n3,dog\n4,cat\n")
    data, found = opened(path, skip_bad=True, label="kind")
    assert data.train.inputs.flatten().tolist() == [1, 3, 4]
    assert list(found.rows) == [0, 2, 3]
    assert found.files is None


def test_rows_and_files_of_a_table_of_images(tmp_path):
    images(tmp_path, ["a.png", "b.png", "c.png", "d.png"])
    (tmp_path / "b.png").write_text("no image")
    path = tmp_path / "list.csv"
    path.write_text("photo,label\na.png,cat\nb.png,cat\nc.png,\nd.png,dog\na.png,dog\n")
    _, found = opened(path, skip_bad=True, image="photo")
    assert list(found.rows) == [0, 3, 4]
    assert list(found.files) == ["a.png", "d.png", "a.png"]


def test_arrays_and_published_sets_have_neither(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.eye(4), y=[0, 1, 0, 1])
    for spec in ("digits", tmp_path / "x.npz"):
        _, found = opened(spec)
        assert (found.rows, found.files) == (None, None)


def test_a_part_keeps_the_origin_of_the_whole(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,label\n1,cat\n2,dog\n3,cat\n")
    part = open_data(str(path)).train.take(torch.tensor([2]))
    assert [part.origin.rows[place] for place in part.positions] == [2]
