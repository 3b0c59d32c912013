"""Denormal numbers: gone while a network trains, and only then."""

import multiprocessing

import pytest
import torch
from in_turn import in_turn
from training_helpers import exit_code, small

from symloss.training import train
from symloss.training.run import flushed_denormals


def product():
    return float(torch.tensor(1e-39) * 1.0)


@in_turn("before", [False, True])
def test_they_are_zero_inside_and_as_before_outside(before):
    if not torch.set_flush_denormal(before):
        pytest.skip("this processor cannot flush denormal numbers")
    try:
        with flushed_denormals():
            assert product() == 0
        assert (product() == 0) is before
        with pytest.raises(KeyError), flushed_denormals():
            raise KeyError
        assert (product() == 0) is before
    finally:
        torch.set_flush_denormal(False)


def _in_two_threads(folder, answer):
    """How many products are denormal numbers, after each epoch."""
    torch.set_num_threads(2)
    left = []

    def look(_):
        left.append(int((torch.full((400_000,), 1e-39) * 1.0).view(torch.int32).count_nonzero()))

    train(small(epochs=2), folder, on_epoch=look)
    answer.send(left)


def test_training_has_none_of_them_in_any_thread_of_a_new_process(tmp_path):
    ours, theirs = multiprocessing.Pipe()
    assert exit_code(_in_two_threads, tmp_path / "run", theirs) == 0
    assert ours.recv() == [0, 0]
