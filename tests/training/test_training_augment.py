"""Images of one's own are changed at random from epoch to epoch, and only as the settings say."""

import json

import numpy as np
import pytest
import torch
from data_helpers import save_image
from in_turn import in_turn
from lightning_fabric import Fabric
from refusals import refused
from training_helpers import assert_same, own_table, run

from symloss.experiments import resolve
from symloss.training import Settings
from symloss.training.loop import Trainer
from symloss.training.task import prepare

COUNT, SIDE = 24, 16


def rising(count=COUNT, height=SIDE, width=SIDE):
    """Every image grows brighter from left to right, and is black nowhere: a flip and a frame are seen at once."""
    bright = np.linspace(40, 200, width).astype(np.uint8)
    return np.stack([np.broadcast_to(bright + number, (height, width)) for number in range(count)])


def saved(folder, kind):
    """An array of images, or a folder: decoded at once ("memory"), or epoch by epoch as they are of two sizes."""
    if kind == "arrays":
        np.savez(folder / "photos.npz", x=rising(), y=np.arange(COUNT) % 2)
        return str(folder / "photos.npz")
    for number, image in enumerate(rising() if kind == "memory" else [*rising(5), *rising(3, 20, 24)]):
        save_image(folder / "photos" / ("even", "odd")[number % 2] / f"{number:02}.png", image)
    return str(folder / "photos")


def settings(data, **given):
    common = {"model": "training_helpers:drops", "epochs": 2, "batch": 8, "lr": 0.01, "validation": 0.0}
    return resolve(data, "ce", **common | given)


def seen(data, epoch, **given):
    """Each training image as the model sees it in an epoch, by its number: up to scale, 0 where it is black."""
    own = settings(data, **given)
    task = prepare(own)
    batches = list(Trainer(Fabric(accelerator="cpu", devices=1), own, task).train_batches.epoch(epoch))
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (task.data.scaling.mean, task.data.scaling.std))
    order = torch.cat([batch.index for batch in batches]).argsort()
    return torch.cat([batch.inputs * std + mean for batch in batches])[order]


def flipped(images):
    """Of each image, whether it grows darker from left to right, its frame apart."""
    rows = (image[0, image.shape[1] // 2] for image in images)
    return [bool(seen[0] > seen[-1]) for seen in (row[row > 0.1] for row in rows)]


@in_turn("kind", ["memory", "files", "arrays"])
def test_two_epochs_see_different_pixels(tmp_path, kind):
    data = saved(tmp_path, kind)
    first, second = seen(data, 0), seen(data, 1)
    same = sum(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert same < len(first) / 4  # small images have few windows
    assert torch.equal(seen(data, 0), first)
    assert 0 < sum(flipped([*first, *second])) < 2 * len(first)
    frame = first.shape[-1] // 8
    assert frame in (2, 28)
    black = (torch.cat([first, second])[:, 0] < 0.01).all(dim=1).sum(dim=1)
    assert 0 < black.max() <= frame
    assert torch.equal(seen(data, 0, augment=False), seen(data, 1, augment=False))
    assert not any(flipped(seen(data, 0, augment="none")))
    first, second = seen(data, 0, augment="crop"), seen(data, 1, augment="crop")
    assert not torch.equal(first, second)
    assert not any(flipped([*first, *second]))


def test_published_sets_are_cropped_if_asked_for_and_tables_never(tmp_path):
    """The crop is the set's own, or one in proportion."""
    assert not torch.equal(seen("digits", 0, augment="crop", subset=40), seen("digits", 1, augment="crop", subset=40))
    assert torch.equal(seen("digits", 0, subset=40), seen("digits", 1, subset=40))  # its protocol has none
    with refused(ValueError, "augment must be all or none", "'crop'", "(2,)"):
        settings(own_table(tmp_path), augment="crop")


def test_true_and_false_have_the_keys_they_always_had():
    digits = {"data": "digits", "noise": "clean"}
    assert Settings(**digits).key == "409d90e4caff"
    assert Settings(**digits, augment=False).key == "2ef8a76b3f24"
    assert Settings(augment="all") == Settings(augment=True)
    assert Settings(augment="none") == Settings(augment=False)
    assert len({Settings(augment=value).key for value in (True, False, "crop")}) == 3
    with refused(ValueError, "augment must be one of 'all', 'crop', 'none'", "got 'flip'"):
        Settings(augment="flip")


@in_turn("kind", ["memory", "files"])
def test_a_run_on_changed_images_goes_on_bit_for_bit(tmp_path, kind):
    own = settings(saved(tmp_path, kind))
    run(own, tmp_path / "whole")
    with pytest.raises(ZeroDivisionError):
        run(own, tmp_path / "cut", on_epoch=lambda row: 1 / (row.epoch - 1))
    run(own, tmp_path / "cut")
    assert_same(tmp_path / "cut", tmp_path / "whole")


def test_a_run_says_what_was_done_to_its_images(tmp_path):
    data = saved(tmp_path, "memory")
    for augment, steps in ((True, ["crop:2", "flip"]), ("crop", ["crop:2"]), (False, [])):
        run(settings(data, augment=augment, epochs=1), tmp_path / str(augment))
        assert json.loads((tmp_path / str(augment) / "data.json").read_text())["augmentation"] == steps
