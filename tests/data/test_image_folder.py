"""Folders of images by class: pixels as written, classes from the folders' names, bad files named."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from data_helpers import cut, random_bytes, save_image
from PIL import EpsImagePlugin, Image
from refusals import refused

from symloss.data import ImageFiles, images, open_data


def write_classes(folder: Path, *, shape=(6, 5, 3), each: int = 2, names=("cat", "dog"), suffix="png") -> np.ndarray:
    """A few images for each class; returned in the order of class and file."""
    written = []
    for number, name in enumerate(names):
        for k in range(each):
            written.append(random_bytes(*shape, seed=10 * number + k))
            save_image(folder / name / f"{k}.{suffix}", written[-1])
    return np.stack(written)


def channels_first(pixels: np.ndarray) -> np.ndarray:
    return pixels.transpose(0, 3, 1, 2)


def test_colour_images_live_in_one_tensor(tmp_path):
    written = write_classes(tmp_path / "pets")
    data = open_data(str(tmp_path / "pets"))
    assert data.train.inputs.dtype == torch.uint8
    np.testing.assert_array_equal(data.train.inputs.numpy(), channels_first(written))
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert (data.name, data.class_names, data.test, data.size) == ("pets", ("cat", "dog"), None, None)
    values = channels_first(written) / 255
    np.testing.assert_allclose(data.scaling.mean, values.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(data.scaling.std, values.std((0, 2, 3)), rtol=1e-12)


def test_jpeg(tmp_path):
    """JPEG changes pixels: they must be those that Pillow reads."""
    write_classes(tmp_path, suffix="jpg")
    read = [np.asarray(Image.open(tmp_path / name / f"{k}.jpg")) for name in ("cat", "dog") for k in (0, 1)]
    np.testing.assert_array_equal(open_data(str(tmp_path)).train.inputs.numpy(), channels_first(np.stack(read)))


def test_grey_images_have_one_channel(tmp_path):
    written = write_classes(tmp_path, shape=(6, 5))
    data = open_data(str(tmp_path))
    np.testing.assert_array_equal(data.train.inputs.numpy(), written[:, None])
    assert len(data.scaling.mean) == 1


def test_one_coloured_image_makes_three_channels(tmp_path):
    write_classes(tmp_path, shape=(6, 5))
    save_image(tmp_path / "cat" / "0.png", random_bytes(6, 5, 3))
    images = open_data(str(tmp_path)).train.inputs
    assert images.shape == (4, 3, 6, 5)
    assert torch.equal(images[1, 0], images[1, 2])


def test_a_constant_channel_is_not_divided_by_zero(tmp_path):
    for name in ("a", "b"):
        save_image(tmp_path / name / "0.png", np.full((2, 2), 51, dtype=np.uint8))
    scaling = open_data(str(tmp_path)).scaling
    assert scaling.mean == pytest.approx((0.2,))
    assert scaling.std == (1.0,)


def test_sixteen_bits_are_not_clipped(tmp_path):
    values = np.array([[0, 255, 256, 300, 65535]], dtype=np.uint16)
    for name in ("a", "b"):
        save_image(tmp_path / name / "0.png", values)
    assert open_data(str(tmp_path)).train.inputs[0].tolist() == [[[0, 0, 1, 1, 255]]]


def test_palettes_with_transparency(tmp_path):
    """Pillow warns of the direct conversion, and warnings are errors here."""
    for name in ("a", "b"):
        palette = Image.new("P", (3, 2), color=1)
        palette.putpalette([0, 0, 0, 200, 100, 50])
        (tmp_path / name).mkdir()
        palette.save(tmp_path / name / "0.png", transparency=b"\x20\x80")
    assert open_data(str(tmp_path)).train.inputs[0, :, 1, 2].tolist() == [200, 100, 50]


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, 3), (8, 1)])
def test_images_stand_upright(tmp_path, suffix, orientation, turns):
    """EXIF says how the camera was held."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    shown = np.zeros((8, 16, 3), dtype=np.uint8)
    shown[:, :8] = 255
    for name in ("a", "b"):
        save_image(tmp_path / name / f"0.{suffix}", shown, exif=exif)
    read = open_data(str(tmp_path)).train.inputs[0]
    assert read.shape[1:] == np.rot90(shown, turns).shape[:2]
    np.testing.assert_allclose(read.numpy(), np.rot90(shown, turns).transpose(2, 0, 1), atol=3)


def test_train_and_test_folders(tmp_path):
    train = write_classes(tmp_path / "train", each=3)
    test = write_classes(tmp_path / "test", each=1)
    data = open_data(str(tmp_path))
    np.testing.assert_array_equal(data.train.inputs.numpy(), channels_first(train))
    np.testing.assert_array_equal(data.test.inputs.numpy(), channels_first(test))
    assert data.test.labels.tolist() == [0, 1]


def test_val_serves_where_there_is_no_test(tmp_path):
    write_classes(tmp_path / "train", each=3)
    write_classes(tmp_path / "val", each=1)
    assert len(open_data(str(tmp_path)).test) == 2
    write_classes(tmp_path / "test", each=4)
    assert len(open_data(str(tmp_path)).test) == 8


def test_a_class_of_locomotives(tmp_path):
    write_classes(tmp_path, names=("bus", "train"))
    assert open_data(str(tmp_path)).class_names == ("bus", "train")


def test_another_folder_to_test_on(tmp_path):
    write_classes(tmp_path / "mine")
    test = write_classes(tmp_path / "clean", each=1, names=("dog",))
    data = open_data(str(tmp_path / "mine"), test=tmp_path / "clean")
    np.testing.assert_array_equal(data.test.inputs.numpy(), channels_first(test))
    assert data.test.labels.tolist() == [1]


def test_numbered_folders_are_in_order_of_number(tmp_path):
    write_classes(tmp_path, names=("0", "1", "2", "10"), each=1)
    data = open_data(str(tmp_path))
    assert data.class_names == ("0", "1", "2", "10")
    assert [data.class_names[label] for label in data.train.labels] == ["0", "1", "10", "2"]


def test_images_of_different_sizes_stay_on_disk(tmp_path):
    write_classes(tmp_path)
    save_image(tmp_path / "dog" / "9.png", random_bytes(9, 9, 3))
    data = open_data(str(tmp_path))
    assert isinstance(data.train.inputs, ImageFiles)
    assert data.streamed
    assert [path.name for path in data.train.inputs.paths] == ["0.png", "1.png", "0.png", "1.png", "9.png"]
    assert data.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert (data.size, data.input_shape, data.scaling.mean) == (5, (3, 5, 5), (0.485, 0.456, 0.406))


def test_a_test_image_of_another_size_keeps_all_on_disk(tmp_path):
    write_classes(tmp_path / "train")
    write_classes(tmp_path / "test", shape=(5, 6, 3))
    data = open_data(str(tmp_path))
    assert isinstance(data.train.inputs, ImageFiles)
    assert isinstance(data.test.inputs, ImageFiles)


@pytest.mark.parametrize(("room", "streamed"), [(4 * 6 * 5 * 3, False), (4 * 6 * 5 * 3 - 1, True)])
def test_images_that_do_not_fit_stay_on_disk(tmp_path, monkeypatch, room, streamed):
    write_classes(tmp_path)
    monkeypatch.setattr(images, "RESIDENT_BYTES", room)
    assert open_data(str(tmp_path)).streamed is streamed


def test_litter_is_left_out(tmp_path):
    write_classes(tmp_path)
    for litter in ("cat/.DS_Store", "cat/Thumbs.db", "README.txt"):
        (tmp_path / litter).write_text("litter")
    (tmp_path / ".git").mkdir()
    assert len(open_data(str(tmp_path)).train) == 4


def test_folders_in_a_class(tmp_path):
    write_classes(tmp_path)
    save_image(tmp_path / "cat" / "more" / "a.png", random_bytes(6, 5, 3))
    assert open_data(str(tmp_path)).train.labels.tolist() == [0, 0, 0, 1, 1]


# --- Bad files ---------------------------------------------------------------------------------------------------


def bomb() -> bytes:
    """A PNG whose head announces 10^10 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def cut_png() -> bytes:
    """A head, then half of the pixels."""
    pixels = random_bytes(6, 5, 3, seed=99)

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()[:-60]


def floats() -> bytes:

    file = io.BytesIO()
    Image.fromarray(np.zeros((6, 5), dtype=np.float32)).save(file, "TIFF")
    return file.getvalue()


BAD = {
    "text": (lambda: b"hello", "a file that is no image"),
    "empty": (lambda: b"", "a file that is no image"),
    "bomb": (bomb, "more than the allowed"),
    "cut": (cut_png, "a damaged image"),
    "floats": (floats, "mode F"),
}
each_bad_file = pytest.mark.parametrize(("content", "reason"), BAD.values(), ids=BAD)


@each_bad_file
def test_a_bad_file_is_named(tmp_path, content, reason):
    write_classes(tmp_path)
    path = tmp_path / "cat" / "0bad.png"
    path.write_bytes(content())
    with refused(ValueError, path, "must be an image", reason, "--skip-bad", "skip_bad=True"):
        open_data(str(tmp_path))


@each_bad_file
def test_bad_files_can_be_skipped(tmp_path, content, reason):
    written = write_classes(tmp_path)
    path = tmp_path / "cat" / "0bad.png"  # between two good ones
    path.write_bytes(content())
    told = []
    data = open_data(str(tmp_path), skip_bad=True, on_bad=lambda *bad: told.append(bad))
    np.testing.assert_array_equal(data.train.inputs.numpy(), channels_first(written))
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert [bad[0] for bad in told] == [path]
    assert reason in told[0][1]


def test_skipping_decodes_streamed_files_too(tmp_path):
    """One that is cut off has a good head; only its pixels tell."""
    write_classes(tmp_path / "train")
    write_classes(tmp_path / "test", shape=(50, 40, 3))
    bad = [cut(save_image(tmp_path / part / "cat" / "0bad.png", random_bytes(50, 50, 3))) for part in ("train", "test")]
    told = []
    data = open_data(str(tmp_path), skip_bad=True, on_bad=lambda *bad: told.append(bad))
    assert data.streamed
    for part in (data.train, data.test):
        assert [path.name for path in part.inputs.paths] == ["0.png", "1.png", "0.png", "1.png"]
        assert part.labels.tolist() == [0, 0, 1, 1]
    assert [path for path, _ in told] == bad
    assert all("a damaged image" in reason for _, reason in told)


def test_what_is_skipped_changes_nothing(tmp_path):
    """The bad file is of another size and in colour: the good ones are grey and fit into memory."""
    written = write_classes(tmp_path, shape=(6, 5))
    cut(save_image(tmp_path / "cat" / "0bad.png", random_bytes(50, 50, 3)))
    np.testing.assert_array_equal(open_data(str(tmp_path), skip_bad=True).train.inputs.numpy(), written[:, None])


def test_without_skipping_streamed_files_are_not_decoded(tmp_path):
    write_classes(tmp_path)
    cut(save_image(tmp_path / "cat" / "0bad.png", random_bytes(50, 50, 3)))
    assert len(open_data(str(tmp_path)).train) == 5


def test_a_bomb_that_pillow_only_warns_of(tmp_path, monkeypatch):
    write_classes(tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)  # of 30; refused by Pillow above 40
    with refused(ValueError, tmp_path / "cat" / "0.png", "more than the allowed 20 pixels"):
        open_data(str(tmp_path))


@pytest.mark.parametrize("name", ["0bad.png", "0bad.jpg", "0bad.eps"])
def test_no_program_is_started(tmp_path, monkeypatch, name):
    """Pillow hands PostScript to Ghostscript, by its content, whatever the file is called."""

    def start(*_: object, **__: object) -> None:
        pytest.fail("Ghostscript was called")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", start)
    write_classes(tmp_path)
    path = tmp_path / "cat" / name
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 6\n%%EndComments\nshowpage\n%%EOF\n")
    with refused(ValueError, path, "a file that is no image", "PNG, JPEG", "--skip-bad"):
        open_data(str(tmp_path))
    assert len(open_data(str(tmp_path), skip_bad=True).train) == 4


@pytest.mark.parametrize("format", ["PNG", "JPEG", "MPO", "WEBP", "TIFF", "GIF", "BMP", "PPM", "TGA", "JPEG2000"])
def test_formats_of_pixels(tmp_path, format):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (5, 6), (200, 100, 50)).save(tmp_path / name / "picture", format)
    assert open_data(str(tmp_path)).train.inputs.shape == (2, 3, 6, 5)


def test_a_listed_file_that_is_a_pipe_or_a_device(tmp_path):
    written = write_classes(tmp_path / "all")
    os.mkfifo(tmp_path / "pipe")
    lines = [f"all/{name}/{k}.png,{name}\n" for name in ("cat", "dog") for k in (0, 1)]
    for odd in ("pipe", "/dev/zero", "all"):
        table = tmp_path / "list.csv"
        table.write_text(f"image,label\n{odd},cat\n" + "".join(lines))
        with refused(ValueError, tmp_path / odd, "must be an image", "got a folder, a pipe or a device"):
            open_data(str(table))
        data = open_data(str(table), skip_bad=True)
        np.testing.assert_array_equal(data.train.inputs.numpy(), channels_first(written))


def test_data_that_is_a_pipe(tmp_path):
    write_classes(tmp_path / "all")
    os.mkfifo(tmp_path / "x.csv")
    with refused(ValueError, "data must be a folder or a file", "pipe", tmp_path / "x.csv"):
        open_data(str(tmp_path / "x.csv"))
    with refused(ValueError, "test must be a folder or a file", "pipe", tmp_path / "x.csv"):
        open_data(str(tmp_path / "all"), test=tmp_path / "x.csv")


def test_only_bad_files(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_text("no image")
    with refused(ValueError, tmp_path, "at least one image", "got none"):
        open_data(str(tmp_path), skip_bad=True)


# --- Bad folders -------------------------------------------------------------------------------------------------


def test_one_class_only(tmp_path):
    write_classes(tmp_path, names=("cat",))
    with refused(ValueError, tmp_path, "at least two classes", "got only 'cat'"):
        open_data(str(tmp_path))


def test_no_classes(tmp_path):
    save_image(tmp_path / "0.png", random_bytes(2, 2))
    with refused(ValueError, tmp_path, "a folder of images for each class", "got no folder"):
        open_data(str(tmp_path))


def test_an_empty_class(tmp_path):
    write_classes(tmp_path)
    (tmp_path / "emu").mkdir()
    with refused(ValueError, tmp_path, "images in each class's folder", "'emu'", "--skip-bad", "skip_bad=True"):
        open_data(str(tmp_path))


@pytest.mark.parametrize("part", ["train", "test"])
def test_an_empty_class_can_be_skipped(tmp_path, part):
    for folder in ("train", "test"):
        write_classes(tmp_path / folder)
    (tmp_path / part / "emu").mkdir()
    (tmp_path / part / "emu" / ".DS_Store").write_text("litter")
    told = []
    data = open_data(str(tmp_path), skip_bad=True, on_bad=lambda *bad: told.append(bad))
    assert told == [(tmp_path / part / "emu", "a folder without images")]
    assert data.class_names == ("cat", "dog")
    assert (len(data.train), len(data.test)) == (4, 4)


def test_nothing_but_empty_classes(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
    with refused(ValueError, tmp_path, "at least one image"):
        open_data(str(tmp_path), skip_bad=True)


def test_a_class_only_in_the_test_folder(tmp_path):
    write_classes(tmp_path / "train")
    write_classes(tmp_path / "test", names=("dog", "emu"))
    with refused(ValueError, tmp_path / "test", "classes of the training data", "got 'emu'"):
        open_data(str(tmp_path))
