"""What a run trains on: noise, subset, and what is held out."""

import numpy as np
import torch
from data_helpers import save_image
from in_turn import in_turn
from refusals import refused
from training_helpers import small

from symloss.data import open_data
from symloss.noise import corrupt
from symloss.training import Settings
from symloss.training.task import prepare

DIGITS = open_data("digits")


def places(examples):
    """Which of the digits they are."""
    images = examples.inputs if examples.positions is None else examples.inputs[examples.positions]
    every = {image.tobytes(): place for place, image in enumerate(DIGITS.train.inputs.numpy())}
    assert len(every) == len(DIGITS.train)
    return torch.tensor([every[image.tobytes()] for image in images.numpy()])


@in_turn("subset", [None, 400])
def test_training_and_validation_are_all_the_data_once(subset):
    task = prepare(small(subset=subset, validation=0.25))
    train, held = places(task.train), places(task.validation)
    count = subset or len(DIGITS.train)
    assert len(held) == round(0.25 * count)
    assert len(torch.cat([train, held]).unique()) == len(train) + len(held) == count


def test_validation_is_split_off_the_noisy_data():
    settings = small(subset=None, noise="sym:0.6")
    kept = corrupt(DIGITS.train.labels.numpy(), "sym:0.6", num_classes=10, seed=settings.seed, counts=settings.counts)
    task, noisy = prepare(settings), torch.from_numpy(kept.labels)
    assert torch.equal(task.train.labels, noisy[places(task.train)])
    assert torch.equal(task.validation.labels, noisy[places(task.validation)])
    assert torch.equal(task.clean, DIGITS.train.labels[places(task.train)])
    assert (task.validation.labels != DIGITS.train.labels[places(task.validation)]).float().mean() > 0.4
    assert torch.equal(task.test.labels, DIGITS.test.labels)
    clean = prepare(small(subset=None, noise="sym:0.6", clean_validation=True))
    assert torch.equal(places(clean.validation), places(task.validation))
    assert torch.equal(clean.validation.labels, DIGITS.train.labels[places(task.validation)])
    assert torch.equal(clean.train.labels, task.train.labels)


@in_turn("rate", [0.0, 0.2, 0.6])
def test_without_validation_everything_is_trained_on_with_the_noise_that_was_asked_for(rate):
    task = prepare(small(noise=f"sym:{rate}" if rate else "clean", subset=None, validation=0.0))
    assert task.validation is None
    assert torch.equal(places(task.train), torch.arange(len(DIGITS.train)))
    assert int((task.train.labels != task.clean).sum()) == round(rate * len(task.train))
    assert task.corruption.manifest.flipped == round(rate * len(task.train))


def test_the_subset_is_the_same_for_every_seed():
    one, two = (prepare(small(seed=seed)) for seed in (0, 1))
    first, second = (torch.cat([places(each.train), places(each.validation)]).sort().values for each in (one, two))
    assert torch.equal(first, second)
    assert not torch.equal(places(one.validation), places(two.validation))
    assert not np.array_equal(one.corruption.labels, two.corruption.labels)


def test_noise_that_needs_inputs_is_refused_for_images_that_stay_in_files(tmp_path):
    for side in (8, 9, 10, 11):
        save_image(tmp_path / ("cats", "dogs")[side % 2] / f"{side}.png", np.zeros((side, 8, 3), np.uint8))
    with refused(ValueError, "noise must be of a kind that needs no inputs", "'instance:0.3'"):
        prepare(Settings(data=str(tmp_path), noise="instance:0.3"))


def test_a_validation_that_leaves_nothing_on_one_side_is_refused():
    for share in (0.1, 0.9):
        with refused(ValueError, "validation must leave examples on both sides", f"got {share} of 2"):
            prepare(small(subset=2, validation=share))
    with refused(ValueError, "subset must be at most the 1437 training examples", "got 1438"):
        prepare(small(subset=1438))
