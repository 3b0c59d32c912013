"""MNIST and Fashion-MNIST: what is written in idx files is what is read, and damage is named."""

from __future__ import annotations

import gzip
import tracemalloc

import numpy as np
import pytest
import torch
from data_helpers import idx_bytes, random_bytes, write_idx
from refusals import refused

from symloss.data import open_data

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("below", [True, False], ids=["in root/name", "in root"])
def test_read_as_written(tmp_path, name, packed, below):
    written = write_idx(tmp_path / name if below else tmp_path, packed=packed)
    data = open_data(name, root=tmp_path)
    read = [data.train.inputs[:, 0], data.train.labels, data.test.inputs[:, 0], data.test.labels]
    for ours, theirs in zip(read, written, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    assert data.train.inputs.dtype == torch.uint8
    assert data.train.labels.dtype == torch.int64
    assert data.input_shape == (1, 28, 28)
    assert (data.name, len(data.class_names), data.augmentation) == (name, 10, ())


def test_scaling_of_the_protocol(tmp_path):
    for name, mean, std in (("mnist", 0.1307, 0.3081), ("fashion-mnist", 0.2860, 0.3530)):
        write_idx(tmp_path / name)
        scaling = open_data(name, root=tmp_path).scaling
        assert (scaling.mean, scaling.std) == ((mean,), (std,))


def test_the_images_can_be_written_to(tmp_path):
    """torch warns of tensors over memory that is read-only."""
    write_idx(tmp_path)
    images = open_data("mnist", root=tmp_path).train.inputs
    images[0] = 7
    assert int(images[0].sum()) == 7 * 28 * 28


def test_missing(tmp_path):
    with refused(FileNotFoundError, "mnist must have", tmp_path / "mnist", "symloss data get mnist"):
        open_data("mnist", root=tmp_path)


def test_one_file_missing(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with refused(FileNotFoundError, "t10k-labels-idx1-ubyte", "got neither"):
        open_data("mnist", root=tmp_path)


@pytest.mark.parametrize(
    ("damage", "ingredients"),
    [
        (lambda content: content[:-1], ("must hold 9408 bytes", "got only 9407")),
        (lambda content: content[:16], ("must hold 9408 bytes", "got only 0")),
        (lambda content: content + b"\0", ("must hold 9408 bytes", "got more")),
        (lambda content: content[:10], ("header of 16 bytes", "got 10")),
        (lambda content: b"", ("00000803", "got an empty file")),
        (lambda content: b"PK\3\4" + content, ("00000803", "got 504b0304")),
        (lambda content: b"\0\0\x08\1" + content[4:], ("00000803", "got 00000801")),
        (
            lambda content: content[:4] + b"\xff" * 12 + content[16:],
            (f"must hold {(2**32 - 1) ** 3} bytes", "got only 9408"),
        ),
    ],
    ids=["cut", "header only", "too long", "cut in header", "empty", "a zip", "labels", "huge"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_damage(tmp_path, damage, ingredients, packed):
    write_idx(tmp_path, packed=packed)
    path = tmp_path / (f"{IMAGES}.gz" if packed else IMAGES)
    content = damage(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    path.write_bytes(gzip.compress(content) if packed else content)
    with refused(ValueError, path, *ingredients):
        open_data("mnist", root=tmp_path)


def test_a_gz_that_breaks_off(tmp_path):
    write_idx(tmp_path, packed=True)
    path = tmp_path / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:-3000])
    with refused(ValueError, path, "whole gzip file", "damaged"):
        open_data("mnist", root=tmp_path)


def test_a_gz_that_swells_is_not_read_to_its_end(tmp_path):
    write_idx(tmp_path, packed=True)
    path = tmp_path / f"{IMAGES}.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.zeros((12, 28, 28), dtype=np.uint8)) + bytes(30_000_000), 1))
    tracemalloc.start()
    try:
        with refused(ValueError, path, "must hold 9408 bytes", "got more"):
            open_data("mnist", root=tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_gz_that_is_none(tmp_path):
    write_idx(tmp_path, packed=True)
    path = tmp_path / f"{LABELS}.gz"
    path.write_bytes(b"<html>")
    with refused(ValueError, path, "whole gzip file", "damaged"):
        open_data("mnist", root=tmp_path)


def test_other_numbers_of_images_and_labels(tmp_path):
    write_idx(tmp_path)
    (tmp_path / LABELS).write_bytes(idx_bytes(random_bytes(11, high=10)))
    with refused(ValueError, IMAGES, LABELS, "got 12 and 11"):
        open_data("mnist", root=tmp_path)


def test_labels_out_of_range(tmp_path):
    write_idx(tmp_path)
    (tmp_path / LABELS).write_bytes(idx_bytes(np.array([0, 10] * 6, dtype=np.uint8)))
    with refused(ValueError, LABELS, "0 to 9", "got 10"):
        open_data("mnist", root=tmp_path)
