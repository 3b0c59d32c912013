"""Folders and lists of images: pixels as written, classes, bad files, the size they get; moves and thumbnails."""

from __future__ import annotations

import io
import os
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from data_helpers import cut, holds, is_scaled, not_opened, random_bytes, save_image, skipping
from in_turn import in_turn
from PIL import EpsImagePlugin, Image

from symloss.data import ImageFiles, batches, images, open_data
from symloss.data.batches import Batches
from symloss.data.images import SIDE, chosen_size, image_moves, thumbnail


def write_classes(folder: Path, *, shape=(6, 5, 3), each: int = 2, names=("cat", "dog"), suffix="png") -> np.ndarray:
    """A few images for each class, in the order of class and file, as a data set has them: (N, C, H, W)."""
    written = []
    for number, name in enumerate(names):
        for k in range(each):
            written.append(random_bytes(*shape, seed=10 * number + k))
            save_image(folder / name / f"{k}.{suffix}", written[-1])
    pixels = np.stack(written)
    return pixels.transpose(0, 3, 1, 2) if len(shape) == 3 else pixels[:, None]


LABELS = [0, 0, 1, 1]


def pixels(data) -> np.ndarray:
    return data.train.inputs.numpy()


@in_turn("shape", [(6, 5, 3), (6, 5)])
def test_images_of_one_size_live_in_one_tensor_if_they_fit(tmp_path, monkeypatch, shape):
    folder = tmp_path / "pets"
    written = write_classes(folder, shape=shape)
    for litter in ("cat/.DS_Store", "cat/Thumbs.db", "README.txt"):
        (folder / litter).write_text("litter")
    (folder / ".git").mkdir()
    monkeypatch.setattr(images, "RESIDENT_BYTES", written.size)
    data = open_data(str(folder))
    holds(data.train, written, LABELS)
    is_scaled(data, written)
    assert (data.name, data.class_names, data.test, data.size) == ("pets", ("cat", "dog"), None, None)
    # A damaged file that is skipped changes nothing, though it is in colour and of another size.
    bad = cut(save_image(folder / "cat" / "0bad.png", random_bytes(50, 50, 3)))
    holds(skipping(folder)[0].train, written, LABELS)
    bad.unlink()
    monkeypatch.setattr(images, "RESIDENT_BYTES", written.size - 1)
    assert open_data(str(folder)).streamed
    save_image(folder / "cat" / "0.png", random_bytes(6, 5, 3))  # one of them coloured: three channels
    monkeypatch.undo()
    found = pixels(open_data(str(folder)))
    assert found.shape == (4, 3, 6, 5)
    assert np.array_equal(found[1, 0], found[1, 2]) == (len(shape) == 2)


def test_constant_channels_sixteen_bits_and_palettes_with_transparency(tmp_path):
    def opened(image: Image.Image, **options: object):
        for name in ("a", "b"):
            (tmp_path / name).mkdir(exist_ok=True)
            image.save(tmp_path / name / "0.png", **options)
        return open_data(str(tmp_path))

    scaling = opened(Image.new("L", (2, 2), 51)).scaling
    assert (scaling.mean, scaling.std) == (pytest.approx((0.2,)), (1.0,))  # not divided by zero
    sixteen_bits = Image.fromarray(np.array([[0, 255, 256, 300, 65535]], dtype=np.uint16))
    assert pixels(opened(sixteen_bits))[0].tolist() == [[[0, 0, 1, 1, 255]]]  # not clipped
    palette = Image.new("P", (3, 2), color=1)
    palette.putpalette([0, 0, 0, 200, 100, 50])
    # Pillow warns of the direct conversion, and warnings are errors here.
    assert pixels(opened(palette, transparency=b"\x20\x80"))[0, :, 1, 2].tolist() == [200, 100, 50]


@in_turn("suffix", ["png", "jpg"])
@in_turn("orientation, turns", [(1, 0), (3, 2), (6, 3), (8, 1)])
def test_images_stand_upright(tmp_path, suffix, orientation, turns):
    exif = Image.Exif()
    exif[0x0112] = orientation  # how the camera was held
    shown = np.zeros((8, 16, 3), dtype=np.uint8)
    shown[:, :8] = 255
    for name in ("a", "b"):
        save_image(tmp_path / name / f"0.{suffix}", shown, exif=exif)
    read = pixels(open_data(str(tmp_path)))[0]
    np.testing.assert_allclose(read, np.rot90(shown, turns).transpose(2, 0, 1), atol=3)


@in_turn("format", ["PNG", "JPEG", "MPO", "WEBP", "TIFF", "GIF", "BMP", "PPM", "TGA", "JPEG2000"])
def test_formats_of_pixels(tmp_path, format):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(random_bytes(6, 5, 3)).save(tmp_path / name / "picture", format)
    with Image.open(tmp_path / "a" / "picture") as image:  # JPEG changes pixels
        read = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    np.testing.assert_array_equal(pixels(open_data(str(tmp_path))), np.stack([read, read]))


def test_data_to_test_on_and_names_of_folders(tmp_path):
    """In test, else in val; or in a folder that is named."""
    train = write_classes(tmp_path / "train", each=3)
    assert open_data(str(tmp_path)).test is None
    for each, part in enumerate(("val", "test"), 1):
        written = write_classes(tmp_path / part, each=each)
        data = open_data(str(tmp_path))
        holds(data.train, train, [0] * 3 + [1] * 3)
        holds(data.test, written, [0] * each + [1] * each)
    clean = write_classes(tmp_path / "clean", each=1, names=("dog",))
    holds(open_data(str(tmp_path), test=tmp_path / "clean").test, clean, [1])
    # Names of classes: "train" of locomotives, and numbers in their order.
    write_classes(tmp_path / "vehicles", names=("bus", "train"))
    assert open_data(str(tmp_path / "vehicles")).class_names == ("bus", "train")
    write_classes(tmp_path / "numbers", names=("0", "1", "2", "10"), each=1)
    data = open_data(str(tmp_path / "numbers"))
    assert data.class_names == ("0", "1", "2", "10")
    assert [data.class_names[label] for label in data.train.labels] == ["0", "1", "10", "2"]


def bomb() -> bytes:
    """A PNG whose head announces 10^10 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def saved(pixels: np.ndarray, format: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format)
    return file.getvalue()


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 6\n%%EndComments\nshowpage\n%%EOF\n"


@in_turn(
    "name, content, reason",
    [
        ("0bad.png", b"hello", "a file that is no image"),
        ("0bad.png", b"", "a file that is no image"),
        ("0bad.png", bomb(), "more than the allowed"),
        ("0bad.png", saved(random_bytes(6, 5, 3, seed=99), "PNG")[:-60], "a damaged image"),  # half of the pixels
        ("0bad.png", saved(np.zeros((6, 5), dtype=np.float32), "TIFF"), "mode F"),
        # Pillow hands PostScript to Ghostscript, by its content, whatever the file is called.
        *((f"0bad.{end}", POSTSCRIPT, "a file that is no image (PNG, JPEG,") for end in ("png", "jpg", "eps")),
    ],
)
def test_a_bad_file_is_named_or_skipped(tmp_path, monkeypatch, name, content, reason):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was called"))
    written = write_classes(tmp_path)
    path = tmp_path / "cat" / name  # between two good ones
    path.write_bytes(content)
    not_opened(tmp_path, path, "must be an image", reason, "--skip-bad", "skip_bad=True")
    data, ((bad, said),) = skipping(tmp_path)
    holds(data.train, written, LABELS)
    assert list(data.train.origin.files) == ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"]
    assert bad == path
    assert reason in said
    path.unlink()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)  # of 30: Pillow only warns up to 40
    not_opened(tmp_path, tmp_path / "cat" / "0.png", "more than the allowed 20 pixels")


def test_images_of_several_sizes_stay_on_disk_and_skipping_decodes_them(tmp_path):
    """One that is cut off has a good head; only its pixels tell."""
    write_classes(tmp_path / "train", names=("cat", "dog/deep"))
    write_classes(tmp_path / "test", shape=(5, 6, 3))
    data = open_data(str(tmp_path))
    assert (data.size, data.input_shape, data.scaling.mean) == (5, (3, 5, 5), (0.485, 0.456, 0.406))
    bad = [cut(save_image(tmp_path / part / "cat" / "0bad.png", random_bytes(50, 50, 3))) for part in ("train", "test")]
    assert len(open_data(str(tmp_path)).train) == 5  # without skipping they are not decoded
    skipped, told = skipping(tmp_path)
    for found in (data, skipped):
        assert found.streamed
        names = ["cat/0.png", "cat/1.png", "dog/deep/0.png", "dog/deep/1.png"]
        assert (found.train.origin.rows, list(found.train.origin.files)) == (None, [f"train/{name}" for name in names])
        for part in (found.train, found.test):
            assert isinstance(part.inputs, ImageFiles)
            assert [path.name for path in part.inputs.paths] == ["0.png", "1.png", "0.png", "1.png"]
            assert part.labels.tolist() == [0, 0, 1, 1]
    assert [path for path, _ in told] == bad
    assert all("a damaged image" in reason for _, reason in told)


def test_pipes_and_devices(tmp_path):
    written = write_classes(tmp_path / "all")
    os.mkfifo(tmp_path / "pipe.csv")
    lines = [f"all/{name}/{k}.png,{name}\n" for name in ("cat", "dog") for k in (0, 1)]
    table = tmp_path / "list.csv"
    for odd in ("pipe.csv", "/dev/zero", "all"):
        table.write_text(f"image,label\n{odd},cat\n" + "".join(lines))
        not_opened(table, tmp_path / odd, "must be an image", "got a folder, a pipe or a device")
        holds(skipping(table)[0].train, written, LABELS)
    pipe = tmp_path / "pipe.csv"
    for argument, data, test in (("data", pipe, None), ("test", tmp_path / "all", pipe)):
        not_opened(data, f"{argument} must be a folder or a file", "pipe", pipe, test=test)


def test_empty_classes_and_folders_without_classes(tmp_path):
    mine = tmp_path / "mine"
    for part in ("train", "test"):
        write_classes(mine / part)
    for part in ("train", "test"):
        (mine / part / "emu").mkdir()
        (mine / part / "emu" / ".DS_Store").write_text("litter")
        not_opened(mine, mine / part, "images in each class's folder", "'emu'", "--skip-bad", "skip_bad=True")
        data, told = skipping(mine)
        assert told == [(mine / part / "emu", "a folder without images")]
        assert (data.class_names, len(data.train), len(data.test)) == (("cat", "dog"), 4, 4)
        shutil.rmtree(mine / part / "emu")
    write_classes(mine / "test", names=("dog", "emu"))
    not_opened(mine, mine / "test", "classes of the training data", "got 'emu'")
    folder = save_image(tmp_path / "all" / "0.png", random_bytes(2, 2)).parent
    not_opened(folder, folder, "a folder of images for each class", "got no folder")
    (folder / "cat").mkdir()
    not_opened(folder, folder, "at least one image", "got none", skip_bad=True)
    (folder / "cat" / "0.png").write_text("no image")
    not_opened(folder, folder, "at least one image", "got none", skip_bad=True)
    write_classes(folder, names=("cat",))
    not_opened(folder, folder, "at least two classes", "got only 'cat'")


def test_rows_and_files_of_a_table_without_what_was_left_out(tmp_path):
    for name in "abcd":
        save_image(tmp_path / f"{name}.png", random_bytes(8, 8, 3))
    (tmp_path / "b.png").write_text("no image")
    path = tmp_path / "list.csv"
    path.write_text("photo,label\na.png,cat\nb.png,cat\nc.png,\nd.png,dog\na.png,dog\n")
    found = open_data(str(path), skip_bad=True, image="photo").train.origin
    assert (list(found.rows), list(found.files)) == ([0, 3, 4], ["a.png", "d.png", "a.png"])
    path.write_text("a,kind\n1,cat\n2,\n3,dog\n4,cat\n")
    train = open_data(str(path), skip_bad=True, label="kind").train
    assert (list(train.origin.rows), train.origin.files) == ([0, 2, 3], None)
    part = train.take(torch.tensor([2]))
    assert [part.origin.rows[place] for place in part.positions] == [3]
    found = open_data("digits").train.origin
    assert (found.rows, found.files) == (None, None)


def test_the_size_of_images():
    square, mixed, photos = [(32, 32)] * 3, [(24, 40), (30, 26), (400, 300), (500, 28)], [(2000, 3000), (300, 400)]
    cases = (square, True), (square, False), ([(100, 900)] * 2, True), (mixed, True), ([(300, 400)] * 3, True)
    assert [chosen_size(None, *case) for case in (*cases, (photos, True))] == [None, 32, None, 26, 224, 224]
    assert [chosen_size(32, square, memory) for memory in (True, False)] == [None, 32]
    assert [chosen_size(64, sides, True) for sides in (square, mixed)] == [64, 64]


@pytest.fixture
def photos(tmp_path):
    for name in ("cats", "dogs"):
        for number, side in enumerate((20, 26, 31)):
            save_image(tmp_path / "photos" / name / f"{number}.png", random_bytes(side, side + 7, 3, seed=number))
    return tmp_path / "photos"


def test_photos_of_several_sizes_are_resized(tmp_path, photos):
    found = {size: open_data(str(photos), size=size) for size in (None, 40, 26)}
    assert {size: data.size for size, data in found.items()} == {None: 26, 40: 40, 26: 26}
    assert (found[None].input_shape, found[None].augmentation) == ((3, 26, 26), ("crop:3", "flip"))
    assert found[26].fingerprint == found[None].fingerprint != found[40].fingerprint
    rows = "".join(f"{path},{path.parent.name}\n" for path in sorted(photos.rglob("*.png")))
    (tmp_path / "list.csv").write_text("image,label\n" + rows)
    assert open_data(str(tmp_path / "list.csv"), size=64).size == 64


def epochs(data):
    options = {"scaling": data.scaling, "augmentation": data.augmentation, "size": data.size}
    made = Batches(data.train, batch=4, shuffle=True, seed=0, device="cpu", **options)
    return [torch.cat([batch.inputs for batch in made.epoch(number)]) for number in (0, 1, 0)]


@pytest.mark.parametrize(("room", "times"), [(6 * 3 * 26 * 26, 1), (6 * 3 * 26 * 26 - 1, 3)])
def test_photos_are_decoded_once_if_they_fit_into_memory(photos, monkeypatch, room, times):
    expected = epochs(open_data(str(photos)))
    decoded, decode = [], batches.picture
    monkeypatch.setattr(batches, "picture", lambda path: decoded.append(path) or decode(path))
    monkeypatch.setattr(batches, "RESIDENT_BYTES", room)
    found = epochs(open_data(str(photos)))
    assert sorted(decoded) == sorted(times * [*photos.rglob("*.png")])
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])


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
    moves = image_moves(tmp_path / "bird", files, {0: "dog", 1: "dog"})
    assert [new for _, new in moves] == ["dog/1.png", "dog/1-1.png"]


def decoded(png):
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
        return np.asarray(image)


@in_turn("channels", [1, 3])
def test_pictures(tmp_path, channels):
    """A small image stays as it is, a large one is made smaller, features are none."""
    images = torch.from_numpy(random_bytes(2, channels, 8, 5))
    expected = images[1].numpy().transpose(1, 2, 0)
    assert np.array_equal(decoded(thumbnail(images, 1)), expected[..., 0] if channels == 1 else expected)
    save_image(tmp_path / "a.png", random_bytes(300, 150, 3))
    reduced = Image.open(io.BytesIO(thumbnail(ImageFiles((tmp_path / "a.png",)), 0)))
    assert (reduced.format, reduced.size) == ("JPEG", (SIDE // 2, SIDE))
    assert thumbnail(torch.eye(3), 0) is None
