"""Denormal numbers: gone while a network trains, and only then."""

import pytest
import torch
from training_helpers import small

from symloss.training import train
from symloss.training.denormals import flushed_denormals


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


def test_training_has_none_of_them(tmp_path):
    seen = []
    train(small(), tmp_path / "run", on_epoch=lambda _: seen.append(product()))
    assert set(seen) == {0.0}
    assert product() != 0
