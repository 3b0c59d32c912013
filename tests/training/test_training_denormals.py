"""Denormal numbers: gone while a network trains, and only then."""

import subprocess
import sys

import pytest
import torch
from training_helpers import small

from symloss.training import train
from symloss.training.run import flushed_denormals


def product():
    return float(torch.tensor(1e-39) * 1.0)


@pytest.mark.parametrize("before", [False, True])
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


def test_training_has_none_of_them_in_any_thread_of_a_new_process(tmp_path):
    script = """
import sys, torch
from symloss.training import resolve, train
torch.set_num_threads(2)
left = []
def look(row):
    left.append(int((torch.full((400_000,), 1e-39) * 1.0).view(torch.int32).count_nonzero()))
train(resolve("digits", "mae", epochs=2), sys.argv[1], on_epoch=look)
print(left)
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "run"], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 0]\n"


def test_training_has_none_of_them(tmp_path):
    seen = []
    train(small(), tmp_path / "run", on_epoch=lambda _: seen.append(product()))
    assert set(seen) == {0.0}
    assert product() != 0
