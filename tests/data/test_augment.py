"""Augmentation of batches against slow loops over single images, in plain Python and Pillow."""

from __future__ import annotations

import colorsys
import itertools

import numpy as np
import torch
from conftest import generator
from in_turn import in_turn
from PIL import Image
from refusals import all_refused, refused
from torch import Tensor

from symloss.data.augment import Augmentation, Jitter, ResizedCrop

both_types = in_turn("dtype", [torch.uint8, torch.float32])


def random_images(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    # From 1, so that black is what an augmentation put there.
    return torch.randint(1, 256, shape, generator=generator(0), dtype=torch.uint8).to(dtype)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


@both_types
@in_turn("shape", [(6, 9), (7, 5)])
def test_crop_takes_each_window_of_the_padded_image(dtype: torch.dtype, shape: tuple[int, int]):
    height, width = shape
    places = list(itertools.product(range(5), range(5)))
    images = random_images(len(places), 3, height, width, dtype=dtype)
    uniform = (torch.tensor(places, dtype=torch.float64) + 0.5) / 5
    cropped = Augmentation.parse(["crop:2"]).apply(images, uniform)
    assert cropped.dtype == dtype
    for image, (top, left), result in zip(images, places, cropped, strict=True):
        for c, y, x in itertools.product(range(3), range(height), range(width)):
            row, col = y + top - 2, x + left - 2
            inside = 0 <= row < height and 0 <= col < width
            assert result[c, y, x] == (image[c, row, col] if inside else 0)


@both_types
def test_flip_mirrors_the_lower_half_of_the_numbers(dtype: torch.dtype):
    images = random_images(4, 3, 5, 6, dtype=dtype)
    flipped = Augmentation.parse(["flip"]).apply(images, column(0.0, 0.49, 0.5, 0.99))
    mirrored = torch.stack([images[..., x] for x in reversed(range(6))], dim=-1)
    assert torch.equal(flipped, torch.cat([mirrored[:2], images[2:]]))


@both_types
@in_turn("shape", [(32, 32), (9, 14)])
def test_rotation_gives_the_pixels_of_pillow(dtype: torch.dtype, shape: tuple[int, int]):
    images = random_images(200, 1, *shape)
    uniform = torch.rand(200, 1, dtype=torch.float64, generator=generator(1))
    uniform[:4, 0] = torch.tensor([0.0, 0.5, 0.75, 1 - 1e-9])
    turned = Augmentation.parse(["rotate:20"]).apply(images.to(dtype), uniform)
    for image, u, result in zip(images, uniform.flatten().tolist(), turned, strict=True):
        reference = Image.fromarray(image[0].numpy()).rotate(20 * (2 * u - 1))
        assert np.array_equal(result[0].numpy(), np.array(reference))
    rotation, coloured = Augmentation.parse(["rotate:45"]), images.view(-1, 2, *shape).to(dtype)
    both = rotation.apply(coloured, uniform[:100])
    for channel in range(2):
        assert torch.equal(both[:, channel], rotation.apply(coloured[:, channel, None], uniform[:100])[:, 0])


def test_the_steps_follow_one_another():
    images = random_images(16, 3, 8, 8)
    names = ["crop:4", "flip", "rotate:20"]
    drawn = Augmentation.parse(names).draw(16, generator(3))
    step_by_step = images
    for name, part in zip(names, (drawn[:, :2], drawn[:, 2:3], drawn[:, 3:]), strict=True):
        step_by_step = Augmentation.parse([name]).apply(step_by_step, part)
    every, nothing = Augmentation.parse(names), Augmentation.parse([])
    assert torch.equal(every.apply(images, drawn), step_by_step)
    assert not torch.equal(step_by_step, images)
    assert torch.equal(nothing.apply(images, nothing.draw(16, generator(0))), images)
    assert every.apply(images[:0], every.draw(0, generator(0))).shape == (0, 3, 8, 8)
    # Draws cover what they should and come from the generator alone.
    state, drawn = torch.get_rng_state(), every.draw(20_000, generator(3))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(drawn, every.draw(20_000, generator(3)))
    assert drawn.shape == (20_000, 4)
    images = torch.zeros(20_000, 1, 9, 9, dtype=torch.uint8)
    images[:, :, 4, 4] = 1  # one white pixel shows where the window lay
    seen = Augmentation.parse(["crop:4"]).apply(images, drawn[:, :2]).sum(0)[0]
    assert seen.sum() == 20_000
    assert 180 < seen.min() <= seen.max() < 320  # 247 each


@in_turn("name", ["crop:4", "flip", "rotate:20", "resized-crop:6", "jitter:0.4,0.4,0.4,0.2"])
def test_an_example_depends_on_its_own_row_only(name: str):
    images = random_images(7, 3, 8, 10)
    before = images.clone()
    augmentation = Augmentation.parse([name])
    drawn = augmentation.draw(7, generator(3))
    whole = augmentation.apply(images, drawn)
    some = torch.tensor([5, 0, 3])
    assert torch.equal(augmentation.apply(images[some], drawn[some]), whole[some])
    assert torch.equal(images, before)


def test_resized_crops_are_windows_of_allowed_areas_and_shapes_resized():
    crop = ResizedCrop(224)
    drawn = torch.rand(500, 20, dtype=torch.float64, generator=generator(4)).tolist()
    windows = [crop._window(300, 400, row) for row in drawn]
    areas = [height * width / 120_000 for height, width in windows]
    ratios = [width / height for height, width in windows]
    assert all(height <= 300 and width <= 400 for height, width in windows)
    assert 0.078 < min(areas) < 0.1
    assert 0.9 < max(areas) <= 1
    assert 0.74 < min(ratios) < 0.78
    assert 1.28 < max(ratios) < 1.35
    assert crop._window(10, 1000, [0.99] * 20) == (10, 13)
    assert crop._window(1000, 10, [0.99] * 20) == (13, 10)
    image = random_images(1, 3, 20, 30)
    # Area 0.08 + 0.92 / 4 = 0.31 of 600 pixels, square: 14 by 14 (13.6); the place is (1/2 of 7, 1/4 of 17).
    uniform = torch.tensor([[0.25, 0.5, *[0.0] * 18, 0.5, 0.25]], dtype=torch.float64)
    result = Augmentation.parse(["resized-crop:14"]).apply(image, uniform)
    assert torch.equal(result[0], image[0, :, 3:17, 4:18])
    smaller = Augmentation.parse(["resized-crop:7"]).apply(image, uniform)
    window = Image.fromarray(image[0, :, 3:17, 4:18].permute(1, 2, 0).numpy())
    assert np.array_equal(smaller[0].permute(1, 2, 0), np.array(window.resize((7, 7), Image.Resampling.BILINEAR)))


HIGH = [0.875] * 4 + [0.1, 0.2, 0.3, 0.4]
"""Every amount at three quarters of its range, in the order of the names."""


def jittered(image: Tensor, *amounts: float, uniform: list[float] = HIGH) -> Tensor:
    return Jitter(*amounts).apply(image, torch.tensor([uniform], dtype=torch.float64))[0].double()


def test_jitter_of_brightness_contrast_saturation_and_hue_in_the_order_that_was_drawn():
    image = random_images(1, 3, 6, 7)
    x = image[0].double()
    grey = (0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]).round()
    for amounts, expected in (
        ((0.4, 0, 0, 0), 1.3 * x),
        ((0, 0.4, 0, 0), 1.3 * x - 0.3 * grey.mean()),
        ((0, 0, 0.4, 0), 1.3 * x - 0.3 * grey),
    ):
        assert (jittered(image, *amounts) - expected.clamp(0, 255)).abs().max() <= 1.5
    bright_first = jittered(image, 1.0, 1.0, 0, 0)
    contrast_first = jittered(image, 1.0, 1.0, 0, 0, uniform=[*HIGH[:4], 0.2, 0.1, 0.3, 0.4])
    one_then_other = jittered(jittered(image, 0, 1.0, 0, 0)[None].to(torch.uint8), 1.0, 0, 0, 0)
    assert torch.equal(contrast_first, one_then_other)
    assert not torch.equal(bright_first, contrast_first)
    strong = [(200, 40, 30), (20, 180, 60), (10, 60, 220), (240, 220, 20)]
    turned = jittered(torch.tensor(strong, dtype=torch.uint8).T.reshape(1, 3, 1, 4), 0, 0, 0, 0.2)  # by 0.15
    for place, colour in enumerate(strong):
        hue, saturation, value = colorsys.rgb_to_hsv(*(level / 255 for level in colour))
        expected = torch.tensor(colorsys.hsv_to_rgb((hue + 0.15) % 1, saturation, value)).double() * 255
        assert (turned[:, 0, place] - expected).abs().max() <= 6  # of 255: hue has 8 bits


@in_turn(
    "name, message",
    [
        ("crops:4", "augmentation 'crops:4' does not exist: did you mean 'crop'?"),
        ("crop", "augmentation crop must be written crop:padding; got 'crop'"),
        ("flip:1", "augmentation flip must be written flip; got 'flip:1'"),
        ("jitter:0.4", "jitter must be written jitter:brightness,contrast,saturation,hue; got 'jitter:0.4'"),
        ("rotate:far", "augmentation 'rotate:far' must hold numbers after the colon; got 'far'"),
        ("crop:0", "padding of crop must be a whole number in [1, inf); got 0"),
        ("crop:1.5", "padding of crop must be a whole number in [1, inf); got 1.5"),
        ("rotate:400", "degrees of rotate must be a number in (0, 180]; got 400"),
        ("resized-crop:0", "size of resized-crop must be a whole number in [1, inf); got 0"),
        ("jitter:0.4,0.4,0.4,0.9", "hue of jitter must be a number in [0, 0.5]; got 0.9"),
    ],
)
def test_names_that_are_refused(name: str, message: str):
    with refused(ValueError, message):
        Augmentation.parse([name])


def test_images_that_are_refused():
    def apply(name: str, images: Tensor, rows: int) -> Tensor:
        step = Augmentation.parse([name])
        return step.apply(images, step.draw(rows, generator(0)))

    all_refused(
        (ValueError, "with a row drawn for each; got (3, 4)", lambda: apply("flip", torch.zeros(3, 4), 3)),
        (ValueError, "and 2 rows", lambda: apply("flip", torch.zeros(3, 3, 4, 4), 2)),
        (ValueError, "uint8 images with 3 channels", lambda: apply("resized-crop:4", torch.zeros(1, 3, 4, 4), 1)),
    )
