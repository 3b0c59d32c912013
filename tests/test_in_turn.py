"""``in_turn``: every value is tried, and those that failed are named."""

import os

import pytest
import torch
from in_turn import in_turn


def test_every_value_is_tried_and_those_that_failed_are_named():
    tried = []

    @in_turn(("one", "other"), [(1, 1), (1, 2), (3, 3), (4, 5)])
    def run(one, other):
        tried.append((one, other))
        assert one == other

    with pytest.raises(AssertionError) as caught:
        run()
    assert tried == [(1, 1), (1, 2), (3, 3), (4, 5)]
    first, *named = caught.value.__notes__
    assert first == "in turn, 2 of 4 failed; this is the first of:"
    assert named == ["  one=1, other=2", "  one=4, other=5"]
    with pytest.raises(AssertionError, match="value has no values"):
        in_turn("value", [])


def test_values_share_nothing(tmp_path, monkeypatch):
    numbers = []

    @in_turn("value", ["a", "b"])
    def run(value, tmp_path, monkeypatch):
        assert "SYMLOSS_IN_TURN" not in os.environ
        monkeypatch.setenv("SYMLOSS_IN_TURN", value)
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "file").touch()
        numbers.append(float(torch.rand(())))

    run(tmp_path=tmp_path, monkeypatch=monkeypatch)
    assert numbers[0] == numbers[1]
    assert "SYMLOSS_IN_TURN" not in os.environ
