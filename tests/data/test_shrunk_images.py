"""Images of a published data set, shrunk for a scale model."""

import dataclasses

import numpy as np
import torch
from refusals import refused

from symloss.data import open_data
from symloss.data.published import shrunk


def test_a_pixel_is_the_rounded_mean_of_its_square():
    whole = open_data("digits")
    small = open_data("digits", size=4)
    for part in ("train", "test"):
        images, labels = (getattr(getattr(whole, part), name).numpy() for name in ("inputs", "labels"))
        squares = images.reshape(-1, 1, 4, 2, 4, 2).astype(np.float64).mean((3, 5))
        assert np.array_equal(getattr(small, part).inputs.numpy(), np.rint(squares))
        assert np.array_equal(getattr(small, part).labels.numpy(), labels)
    assert small.train.inputs.dtype == torch.uint8
    assert (small.input_shape, small.class_names, small.scaling) == ((1, 4, 4), whole.class_names, whole.scaling)
    assert len(np.unique(squares % 1)) > 1, "some means lie between whole numbers"


def test_frames_of_crops_shrink_in_proportion_and_other_steps_stay():
    digits = dataclasses.replace(open_data("digits"), augmentation=("crop:4", "flip", "rotate:20"))
    assert shrunk(digits, 4).augmentation == ("crop:2", "flip", "rotate:20")
    assert shrunk(digits, 1).augmentation == ("flip", "rotate:20"), "a frame of half a pixel is none"
    assert shrunk(digits, 8) is digits


def test_other_sizes_and_other_data_are_refused():
    digits = open_data("digits")
    with refused(ValueError, "size must divide the 8 pixels of digits, as 1, 2, 4, 8 do", "got 3"):
        shrunk(digits, 3)
    with refused(TypeError, "size must be a whole number in [1, 4096]; got True"):
        open_data("digits", size=True)
    rows = dataclasses.replace(digits.train, inputs=digits.train.inputs.flatten(1))
    with refused(ValueError, "size must be left out for digits, which has no square images in memory", "got 2"):
        shrunk(dataclasses.replace(digits, train=rows), 2)
