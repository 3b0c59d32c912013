"""Batches: every example once, the same epoch twice, shares that add up, and no second copy of the data.

Augmentation is compared with slow loops over single images, in plain Python and Pillow.
"""

from __future__ import annotations

import colorsys
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_close, generator
from data_helpers import cut, save_image
from in_turn import in_turn
from PIL import Image
from refusals import all_refused, refused
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from symloss.data.augment import Augmentation, Jitter, ResizedCrop
from symloss.data.batches import Batch, Batches
from symloss.data.dataset import Examples, ImageFiles, Scaling

both_types = in_turn("dtype", [torch.uint8, torch.float32])


def random_images(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    # From 1, so that black is what an augmentation put there.
    return torch.randint(1, 256, shape, generator=generator(0), dtype=torch.uint8).to(dtype)


@both_types
@in_turn("shape", [(6, 9), (7, 5)])
def test_crop_takes_each_window_of_the_padded_image(dtype: torch.dtype, shape: tuple[int, int]):
    height, width = shape
    places = list(itertools.product(range(5), range(5)))
    images = random_images(len(places), 3, height, width, dtype=dtype)
    uniform = (torch.tensor(places, dtype=torch.float64) + 0.5) / 5
    cropped = Augmentation.parse(["crop:2"]).apply(images, uniform)
    assert cropped.dtype == dtype
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)))
    for image, (top, left), result in zip(padded, places, cropped, strict=True):
        assert np.array_equal(result, image[:, top : top + height, left : left + width])


@both_types
def test_flip_mirrors_the_lower_half_of_the_numbers(dtype: torch.dtype):
    images = random_images(4, 3, 5, 6, dtype=dtype)
    uniform = torch.tensor([[0.0], [0.49], [0.5], [0.99]], dtype=torch.float64)
    flipped = Augmentation.parse(["flip"]).apply(images, uniform)
    assert torch.equal(flipped, torch.cat([images[:2, ..., [5, 4, 3, 2, 1, 0]], images[2:]]))


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
    images, augmentation, some = random_images(7, 3, 8, 10), Augmentation.parse([name]), torch.tensor([5, 0, 3])
    drawn = augmentation.draw(7, generator(3))
    whole = augmentation.apply(images, drawn)
    assert torch.equal(augmentation.apply(images[some], drawn[some]), whole[some])
    assert torch.equal(images, random_images(7, 3, 8, 10))


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
    window = Image.fromarray(image[0, :, 3:17, 4:18].permute(1, 2, 0).numpy())
    for size, expected in ((14, window), (7, window.resize((7, 7), Image.Resampling.BILINEAR))):
        result = ResizedCrop(size).apply(image, uniform)
        assert np.array_equal(result[0].permute(1, 2, 0), np.array(expected))


HIGH = [0.875] * 4 + [0.1, 0.2, 0.3, 0.4]  # every amount at three quarters of its range, in the order of the names


def jittered(image: Tensor, *amounts: float, uniform: list[float] = HIGH) -> Tensor:
    return Jitter(*amounts).apply(image, torch.tensor([uniform], dtype=torch.float64))[0].double()


def test_jitter_of_brightness_contrast_saturation_and_hue_in_the_order_that_was_drawn():
    image = random_images(1, 3, 6, 7)
    x = image[0].double()
    grey = (0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]).round()
    for place, taken in enumerate((0, 0.3 * grey.mean(), 0.3 * grey)):
        amounts = [0.4 * (place == k) for k in range(4)]
        assert (jittered(image, *amounts) - (1.3 * x - taken).clamp(0, 255)).abs().max() <= 1.5
    contrast_first = jittered(image, 1.0, 1.0, 0, 0, uniform=[*HIGH[:4], 0.2, 0.1, 0.3, 0.4])
    one_then_other = jittered(jittered(image, 0, 1.0, 0, 0)[None].to(torch.uint8), 1.0, 0, 0, 0)
    assert torch.equal(contrast_first, one_then_other)
    assert not torch.equal(contrast_first, jittered(image, 1.0, 1.0, 0, 0))
    strong = [(200, 40, 30), (20, 180, 60), (10, 60, 220), (240, 220, 20)]
    turned = jittered(torch.tensor(strong, dtype=torch.uint8).T.reshape(1, 3, 1, 4), 0, 0, 0, 0.2)  # by 0.15
    for place, colour in enumerate(strong):
        hue, saturation, value = colorsys.rgb_to_hsv(*(level / 255 for level in colour))
        expected = torch.tensor(colorsys.hsv_to_rgb((hue + 0.15) % 1, saturation, value)).double() * 255
        assert (turned[:, 0, place] - expected).abs().max() <= 6  # of 255: hue has 8 bits


def test_augmentation_that_is_refused():
    def apply(name: str, *shape: int, rows: int = 1) -> Tensor:
        step = Augmentation.parse([name])
        return step.apply(torch.zeros(shape), step.draw(rows, generator(0)))

    all_refused(
        (ValueError, "augmentation 'crops:4' does not exist: did you mean 'crop'?", lambda: apply("crops:4")),
        (ValueError, "augmentation crop must be written crop:padding; got 'crop'", lambda: apply("crop")),
        (ValueError, "augmentation flip must be written flip; got 'flip:1'", lambda: apply("flip:1")),
        (ValueError, "jitter:brightness,contrast,saturation,hue; got 'jitter:0.4'", lambda: apply("jitter:0.4")),
        (ValueError, "'rotate:far' must hold numbers after the colon; got 'far'", lambda: apply("rotate:far")),
        (ValueError, "padding of crop must be a whole number in [1, inf); got 0", lambda: apply("crop:0")),
        (ValueError, "padding of crop must be a whole number in [1, inf); got 1.5", lambda: apply("crop:1.5")),
        (ValueError, "degrees of rotate must be a number in (0, 180]; got 400", lambda: apply("rotate:400")),
        (ValueError, "size of resized-crop must be a whole number in [1, inf); got 0", lambda: apply("resized-crop:0")),
        (ValueError, "hue of jitter must be a number in [0, 0.5]; got 0.9", lambda: apply("jitter:0.4,0.4,0.4,0.9")),
        (ValueError, "with a row drawn for each; got (3, 4)", lambda: apply("flip", 3, 4, rows=3)),
        (ValueError, "and 2 rows", lambda: apply("flip", 3, 3, 4, 4, rows=2)),
        (ValueError, "uint8 images with 3 channels", lambda: apply("resized-crop:4", 1, 3, 4, 4)),
    )


COUNT = 23
COLOURS = Scaling((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
AUGMENTATION = ("crop:2", "flip", "rotate:20")


def images(count: int = COUNT) -> Examples:
    inputs = torch.randint(256, (count, 3, 8, 8), generator=generator(0), dtype=torch.uint8)
    return Examples(inputs, torch.zeros(count, dtype=torch.int64))


def resident(examples: Examples | None = None, **options: Any) -> Batches:
    defaults = {"batch": 5, "scaling": COLOURS, "shuffle": True, "seed": 3, "device": "cpu"}
    return Batches(examples or images(), **(defaults | options))


def normalised(raw: Tensor, scaling: Scaling = COLOURS) -> Tensor:
    """As the protocol says it: to [0, 1], minus the mean, by the standard deviation."""
    mean, std = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (scaling.mean, scaling.std))
    return ((raw.double() / 255 - mean) / std).float()


def assert_same(one: list[Batch], other: list[Batch]):
    assert len(one) == len(other) > 0
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.inputs, b.inputs)
        assert torch.equal(a.index, b.index)
        assert a.total == b.total


def test_an_epoch_holds_every_example_once_and_the_smaller_last_batch():
    batches, examples = resident(), images()
    seen, in_order = list(batches.epoch(2)), list(resident(shuffle=False).epoch(0))
    assert [len(batch.index) for batch in seen] == [5, 5, 5, 5, 3]
    assert (len(batches), len(resident(batch=COUNT)), len(resident(images(20)))) == (5, 1, 4)
    assert sorted(torch.cat([batch.index for batch in seen]).tolist()) == list(range(COUNT))
    assert torch.cat([batch.index for batch in in_order]).tolist() == list(range(COUNT))
    for batch in seen + in_order:
        assert batch.index.dtype == torch.int64
        assert_close(batch.inputs, normalised(examples.inputs[batch.index]), 1e-5)


def test_epochs_and_seeds_have_orders_and_augmentations_of_their_own():
    def order(epoch: int = 0, **options: Any) -> tuple[int, ...]:
        return tuple(torch.cat([batch.index for batch in resident(**options).epoch(epoch)]).tolist())

    orders = [order(epoch, seed=seed) for epoch in range(3) for seed in (0, 1, 2, 2**40)]
    assert len({*orders, tuple(range(COUNT))}) == len(orders) + 1
    assert order(batch=7) == order()
    first, *others = (
        next(resident(shuffle=False, augmentation=AUGMENTATION, seed=seed, batch=COUNT).epoch(epoch)).inputs
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    )
    assert not any(torch.equal(first, other) for other in others)
    # Augmentation comes before normalisation.
    white = Examples(torch.full((40, 3, 8, 8), 255, dtype=torch.uint8), torch.zeros(40, dtype=torch.int64))
    (batch,) = resident(white, batch=40, augmentation=("crop:4",)).epoch(0)
    mean, std = torch.tensor(COLOURS.mean), torch.tensor(COLOURS.std)
    assert_close(batch.inputs.amin((0, 2, 3)), (0 - mean) / std, 1e-5)
    assert_close(batch.inputs.amax((0, 2, 3)), (1 - mean) / std, 1e-5)
    # An epoch can be replayed, also beside another one.
    batches = resident(augmentation=AUGMENTATION)
    third = list(batches.epoch(3))
    assert_same(list(resident(augmentation=AUGMENTATION).epoch(3)), third)
    pairs = list(zip(batches.epoch(4), batches.epoch(3), strict=True))
    assert_same([pair[0] for pair in pairs], list(batches.epoch(4)))
    assert_same([pair[1] for pair in pairs], third)


def assert_shared(alone: list[Batch], ranks: list[list[Batch]]):
    """The shares of all ranks make up the batches of one process."""
    together = []
    for shares in zip(*ranks, strict=True):
        sizes = [len(share.index) for share in shares]
        assert max(sizes) - min(sizes) <= 1
        assert sizes[0] == max(sizes)
        assert {share.total for share in shares} == {sum(sizes)}
        inputs, index = torch.cat([s.inputs for s in shares]), torch.cat([s.index for s in shares])
        together.append(Batch(inputs, index, sum(sizes)))
    assert_same(together, alone)


def test_the_shares_of_all_ranks_make_up_the_batches_of_one_process(files: ImageFiles):
    for world, batch in itertools.product((2, 3, 5), (5, 11, 22)):
        options: dict[str, Any] = {"augmentation": AUGMENTATION, "batch": batch}
        ranks = [list(resident(rank=rank, world=world, **options).epoch(1)) for rank in range(world)]
        assert_shared(list(resident(**options).epoch(1)), ranks)
    # A share of the last batch may be empty.
    last = [list(resident(images(9), batch=4, rank=rank, world=2).epoch(0))[-1] for rank in range(2)]
    assert [tuple(share.inputs.shape) for share in last] == [(1, 3, 8, 8), (0, 3, 8, 8)]
    assert [share.total for share in last] == [1, 1]
    ranks = [list(streamed(files, augmentation=STREAMED, rank=rank, world=2).epoch(1)) for rank in range(2)]
    assert_shared(list(streamed(files, augmentation=STREAMED).epoch(1)), ranks)
    assert tuple(ranks[1][-1].inputs.shape) == (0, 3, 16, 16)


class Largest(TorchDispatchMode):
    """The most elements that any tensor had that an operation made anew."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {part.untyped_storage().data_ptr() for part in args if isinstance(part, Tensor)}
        if isinstance(result, Tensor) and result.untyped_storage().data_ptr() not in given:
            self.elements = max(self.elements, result.numel())
        return result


def test_the_data_are_neither_copied_nor_changed():
    examples = images(200)
    with Largest() as largest:
        batches = resident(examples, augmentation=AUGMENTATION, batch=10)
        list(batches.epoch(0))
    assert 10 * 3 * 8 * 8 <= largest.elements < 200 * 3 * 8 * 8 / 4
    assert batches._source.inputs.data_ptr() == examples.inputs.data_ptr()
    assert torch.equal(examples.inputs, images(200).inputs)


def test_tables_are_scaled_feature_by_feature_and_images_channel_by_channel():
    table = torch.randn(COUNT, 3, generator=generator(1))
    before = table.clone()
    examples = Examples(table, torch.zeros(COUNT, dtype=torch.int64))
    mean, std = torch.tensor(COLOURS.mean), torch.tensor(COLOURS.std)
    for options in ({"shuffle": True}, {"shuffle": False}, {"batch": COUNT}, {"channels_last": True}):
        for batch in resident(examples, **options).epoch(0):
            assert_close(batch.inputs, (table[batch.index] - mean) / std, 1e-5)
    assert torch.equal(table, before)
    # Channels last change the memory only, and images of floats are taken as they are.
    examples = images()
    unit = Examples(examples.inputs.double() / 255, examples.labels)
    epochs = (resident(**options).epoch(0) for options in ({}, {"channels_last": True}, {"examples": unit}))
    for plain, last, floating in zip(*epochs, strict=True):
        assert last.inputs.is_contiguous(memory_format=torch.channels_last)
        assert plain.inputs.is_contiguous()
        assert torch.equal(plain.inputs, last.inputs)
        assert_close(floating.inputs, plain.inputs, 1e-5)


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    """Pictures of several shapes, one of them grey and one with a palette."""
    paths = []
    for number in range(7):
        shape = (20 + 3 * number, 40 - 2 * number, 3)
        noise = torch.randint(256, shape, generator=generator(number), dtype=torch.uint8).numpy()
        image = Image.fromarray(noise).convert({2: "L", 3: "P"}.get(number, "RGB"))
        paths.append(tmp_path / f"{number}.png")
        image.save(paths[-1])
    return ImageFiles(tuple(paths))


def streamed(files: ImageFiles, **options: Any) -> Batches:
    return resident(Examples(files, torch.zeros(len(files), dtype=torch.int64)), **({"size": 16, "batch": 3} | options))


STREAMED = ("resized-crop:16", "flip", "jitter:0.4,0.4,0.4,0.2")


def test_files_are_fitted_for_evaluation(files: ImageFiles):
    (batch,) = streamed(files, shuffle=False, batch=7).epoch(0)
    expected = []
    for path in files.paths:
        image = Image.open(path).convert("RGB")
        # Short side to 18, the middle 16.
        width, height = (int(18 * side / min(image.size)) for side in image.size)
        array = np.array(image.resize((width, height), Image.Resampling.BILINEAR))
        left, top = round((width - 16) / 2), round((height - 16) / 2)
        expected.append(torch.from_numpy(array[top : top + 16, left : left + 16].copy()).permute(2, 0, 1))
    assert_close(batch.inputs, normalised(torch.stack(expected)), 1e-5)


def test_files_are_augmented_example_by_example(files: ImageFiles):
    one, other = ({} for _ in range(2))
    for found, options in ((one, {"batch": 3}), (other, {"batch": 2, "shuffle": False})):
        for batch in streamed(files, augmentation=STREAMED, **options).epoch(4):
            found.update(zip(batch.index.tolist(), batch.inputs, strict=True))
    assert sorted(one) == list(range(7))
    assert all(torch.equal(one[index], other[index]) for index in one)
    (later,) = streamed(files, augmentation=STREAMED, batch=7, shuffle=False).epoch(5)
    assert not any(torch.equal(one[index], later.inputs[index]) for index in one)
    # The augmentation of small images is taken too.
    (plain,) = streamed(files, batch=7, shuffle=False).epoch(0)
    (flipped,) = streamed(files, batch=7, shuffle=False, augmentation=("flip",)).epoch(0)
    pairs = list(zip(flipped.inputs, plain.inputs, strict=True))
    mirrored, same = [torch.equal(a, b.flip(2)) for a, b in pairs], [torch.equal(a, b) for a, b in pairs]
    assert mirrored == [not each for each in same]
    assert 0 < sum(mirrored) < 7
    # A resized crop is taken from the whole picture, not from the square in its middle.
    picture = np.zeros((20, 60, 3), dtype=np.uint8)
    picture[:, :15] = 255
    path = save_image(files.paths[0].with_name("wide.png"), picture)
    (batch,) = streamed(ImageFiles((path,) * 20), augmentation=("resized-crop:16",), batch=20).epoch(0)
    assert 0 < (batch.inputs.amax((1, 2, 3)) > 0).sum() < 20


def test_workers_change_nothing_nor_is_the_global_random_state_touched(files: ImageFiles):
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()
    list(resident(augmentation=AUGMENTATION).epoch(0))
    alone = list(streamed(files, augmentation=STREAMED).epoch(2))
    helped = streamed(files, augmentation=STREAMED, workers=2)
    assert_same(list(helped.epoch(2)), alone)
    assert_same(list(helped.epoch(2)), alone)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], legacy)


def test_a_file_that_is_no_image_is_named(files: ImageFiles):
    bad = files.paths[4]
    half = cut(bad).read_bytes()
    for workers, broken in ((0, b"this is no image"), (0, b""), (0, half), (2, b"no image"), (0, None)):
        bad.unlink() if broken is None else bad.write_bytes(broken)
        with refused(ValueError, f"{bad} cannot be decoded as an image: ", "(--skip-bad, or skip_"):
            list(streamed(files, workers=workers).epoch(0))


def test_what_is_refused(files: ImageFiles):
    numbers, labels = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    examples, whole, half = Examples(numbers, labels), Examples(numbers.long(), labels), (0.5,) * 3
    all_refused(
        (ValueError, "batch must be a whole number in [1, inf); got 0", lambda: resident(batch=0)),
        (ValueError, "batch must be a whole number in [3, inf); got 2", lambda: resident(batch=2, world=3)),
        (ValueError, "rank must be a whole number in [0, 2); got 2", lambda: resident(rank=2, world=2)),
        (ValueError, "seed must be a whole number in [0, inf); got -1", lambda: resident(seed=-1)),
        (ValueError, "a std for each of 3 ... got 1 and 1", lambda: resident(scaling=Scaling((0.5,), (0.5,)))),
        (ValueError, "above 0; got (0.5, 0.0, 0.5)", lambda: resident(scaling=Scaling(half, (0.5, 0.0, 0.5)))),
        (ValueError, "'crops:4' does not exist", lambda: resident(augmentation=("crops:4",))),
        (TypeError, "uint8 images or floating-point features; got torch.int64", lambda: resident(whole)),
        (ValueError, "(N, C, H, W), to be augmented; got (4, 3)", lambda: resident(examples, augmentation=("flip",))),
        (ValueError, "epoch must be a whole number in [0, inf); got -1", lambda: list(resident().epoch(-1))),
        (TypeError, "size must be a whole number in [1, inf); got None", lambda: streamed(files, size=None)),
        (ValueError, "that of the resized-crop, 16; got 32", lambda: streamed(files, size=32, augmentation=STREAMED)),
    )
