"""The size that images are brought to, and how often they are decoded."""

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused

from symloss.data import batches, open_data
from symloss.data.batches import Batches
from symloss.data.images import chosen_size

SQUARE = [(32, 32)] * 3
MIXED = [(24, 40), (30, 26), (400, 300), (500, 28)]
LARGE = [(300, 400)] * 3


@pytest.mark.parametrize(
    ("size", "sides", "memory", "expected"),
    [
        (None, SQUARE, True, None),
        (None, SQUARE, False, 32),
        (None, [(100, 900)] * 2, True, None),
        (None, MIXED, True, 26),
        (None, LARGE, True, 224),
        (None, [(2000, 3000), (300, 400)], True, 224),
        (32, SQUARE, True, None),
        (32, SQUARE, False, 32),
        (64, SQUARE, True, 64),
        (64, MIXED, True, 64),
    ],
)
def test_the_size_of_images(size, sides, memory, expected):
    assert chosen_size(size, sides, memory) == expected


@pytest.fixture
def photos(tmp_path):
    random = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number, side in enumerate((20, 26, 31)):
            pixels = random.integers(0, 255, (side, side + 7, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_photos_of_several_sizes_are_resized(photos):
    found = {size: open_data(str(photos), size=size) for size in (None, 40, 26)}
    assert {size: data.size for size, data in found.items()} == {None: 26, 40: 40, 26: 26}
    assert found[None].input_shape == (3, 26, 26)
    assert found[None].augmentation == ("crop:3", "flip")
    assert found[26].fingerprint == found[None].fingerprint != found[40].fingerprint


def test_a_size_is_for_image_files_alone(tmp_path, photos):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1])
    (tmp_path / "t.csv").write_text("a,label\n1,x\n2,y\n")
    rows = "".join(f"{path},{path.parent.name}\n" for path in sorted(photos.rglob("*.png")))
    (tmp_path / "list.csv").write_text("image,label\n" + rows)
    for data in (str(tmp_path / "a.npz"), str(tmp_path / "t.csv")):
        open_data(data)
        with refused(ValueError, f"size must be left out for {data}", "got 64"):
            open_data(data, size=64)
    assert open_data(str(tmp_path / "list.csv"), size=64).size == 64


def epochs(data, **options):
    made = Batches(
        data.train, batch=4, scaling=data.scaling, augmentation=data.augmentation, shuffle=True, seed=0, device="cpu",
        size=data.size, **options,
    )  # fmt: skip
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
