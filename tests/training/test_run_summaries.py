"""Several runs as one row, and the names of their folders."""

import math

import pytest
from training_helpers import small

from symloss.training.results import EpochRow, Result, summarize
from symloss.training.run_folder import folder_name
from symloss.training.settings import with_seeds


def result(validation, test=0.5, seconds=1.0):
    last, best = (
        EpochRow(3, validation_accuracy=validation, test_accuracy=test and test + more, memorised=0.25)
        for more in (0, 0.1)
    )
    return Result(small(), 360, 40, "noisy", 0 if test is None else 360, 0.4, last, best, seconds)


def test_a_row_is_mean_and_standard_deviation_over_seeds():
    row = summarize([result(0.1, test, seconds) for test, seconds in ((0.5, 1.0), (0.7, 3.0))])
    assert row.measure == "test_accuracy"
    assert row.last.to_json() == pytest.approx({"mean": 0.6, "std": math.sqrt(0.02)})
    assert row.best.mean == pytest.approx(0.7)
    assert (row.weight_decay, row.seconds, row.runs) == (1e-3, 2.0, 2)
    assert row.to_json()["last"] == row.last.to_json()
    row = summarize([result(0.4, None)])
    assert (row.measure, row.last.to_json()) == ("validation_accuracy", {"mean": 0.4, "std": None})
    assert [settings.seed for settings in with_seeds(small(seed=4), 3)] == [4, 5, 6]


def test_no_two_settings_share_a_folder_and_names_are_plain():
    several = [small(seed=seed, noise=noise) for seed in (0, 1) for noise in ("sym:0.4", "sym:0.2")]
    several += [small(data="some where/my data.csv"), small("gce:q=0.5"), small("gce:q=0.6")]
    names = [folder_name(settings) for settings in several]
    assert len(set(names)) == len(several)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.+-_") for name in names)
    assert names[0].startswith("digits-sym_0.4-alpha-mae-seed0-")
