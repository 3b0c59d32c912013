"""Corrected copies of tables, moves of images, and small pictures."""

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from data_helpers import random_bytes, save_image
from in_turn import in_turn
from PIL import Image
from refusals import refused

from symloss.data.dataset import ImageFiles
from symloss.data.images import SIDE, image_moves, thumbnail
from symloss.data.tables import open_table

TEXT = 'id,label ,note\r\n1,cat,"a, b"\r\n2, dog ,"two\nlines"\r\n\r\n3,cat,"say ""no"""\r\n'


@in_turn("mark", [b"", b"\xef\xbb\xbf"])
def test_only_the_label_of_a_row_changes(tmp_path, mark):
    path = tmp_path / "table.csv"
    path.write_bytes(mark + TEXT.encode())
    changed = open_table(path).relabelled("label", {1: "cat", 2: 'a "dog", maybe'})
    assert changed.startswith(mark + b"id,label ,note\r\n")
    before, after = (
        list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
        for content in (mark + TEXT.encode(), changed)
    )
    rows = [row for row in before if row]
    rows[2][1], rows[3][1] = "cat", 'a "dog", maybe'
    assert after == rows
    assert path.read_bytes() == mark + TEXT.encode()
    assert open_table(path).rows(["note", "id"], [1, 2]) == {1: ("two\nlines", "2"), 2: ('say "no"', "3")}
    for delimiter in ";\t":  # delimiters and line ends stay, too
        text = "a|label\n1,5|x\n2,5|y\n".replace("|", delimiter)
        path.write_text(text)
        assert open_table(path).relabelled("label", {1: "x"}).decode() == text.replace("y", "x")
        assert open_table(path).rows(["a"], [1]) == {1: ("2,5",)}


def test_a_parquet_table_keeps_its_types(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": [0.5, 1.5, None], "label": pa.array([7, 8, 7], pa.int16())}), path)
    changed = pq.read_table(io.BytesIO(open_table(path).relabelled("label", {0: "8"})))
    assert changed.schema == pq.read_table(path).schema
    assert changed.to_pydict() == {"a": [0.5, 1.5, None], "label": [8, 8, 7]}
    assert open_table(path).rows(["label", "a"], [2, 0]) == {2: ("7", ""), 0: ("7", "0.5")}
    with refused(ValueError, "labels must be such as", path, "got '9'"):
        open_table(path).relabelled("label", {0: "9"})


@in_turn("part", ["", "train/"])
def test_files_move_to_their_class_and_never_onto_another(tmp_path, part):
    files = [f"{part}{name}" for name in ("cat/1.png", "cat/a/2.png", "dog/1.png", "dog/1-1.png", "dog/3.png")]
    for file in files:
        save_image(tmp_path / file, random_bytes(4, 4, 3))
    found = image_moves(tmp_path, files, {0: "dog", 1: "dog", 4: "cat"})
    assert found == [
        (f"{part}cat/1.png", f"{part}dog/1-2.png"),
        (f"{part}cat/a/2.png", f"{part}dog/a/2.png"),
        (f"{part}dog/3.png", f"{part}cat/3.png"),
    ]
    assert all((tmp_path / old).exists() for old, _ in found)
    (tmp_path / "bird").mkdir()
    files = ["bird/1.png", "cat/1.png", "dog/2.png"]
    assert [new for _, new in image_moves(tmp_path / "bird", files, {0: "dog", 1: "dog"})] == [
        "dog/1.png",
        "dog/1-1.png",
    ]


def pixels(png):
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
        return np.asarray(image)


@in_turn("channels", [1, 3])
def test_pictures(tmp_path, channels):
    """A small image stays as it is, a large one is made smaller, features are none."""
    images = torch.from_numpy(random_bytes(2, channels, 8, 5))
    expected = images[1].numpy().transpose(1, 2, 0)
    assert np.array_equal(pixels(thumbnail(images, 1)), expected[..., 0] if channels == 1 else expected)
    save_image(tmp_path / "a.png", random_bytes(300, 150, 3))
    assert pixels(thumbnail(ImageFiles((tmp_path / "a.png",)), 0)).shape == (SIDE, SIDE // 2, 3)
    assert thumbnail(torch.eye(3), 0) is None
