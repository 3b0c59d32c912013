"""Several runs as one row, and the names of their folders."""

import math

import pytest
from training_helpers import small

from symloss.training import comparison


def found(validation, test=0.5, seconds=1.0, **settings):
    last = {"validation_accuracy": validation, "test_accuracy": test, "memorised": 0.25, "seconds": seconds}
    best = last | {"test_accuracy": test and test + 0.1}
    tested = 0 if test is None else 360
    return {"settings": small(**settings).to_dict(), "last": last, "best": best, "test": tested, "seconds": seconds}


def test_a_row_is_mean_and_standard_deviation_over_seeds():
    (row,) = comparison.rows([[found(0.1, test, seconds) for test, seconds in ((0.5, 1.0), (0.7, 3.0))]])
    assert row["measure"] == "test_accuracy"
    assert row["last"] == pytest.approx({"mean": 0.6, "std": math.sqrt(0.02)})
    assert row["best"]["mean"] == pytest.approx(0.7)
    assert (row["weight_decay"], row["seconds"], row["runs"]) == (1e-3, 2.0, 2)


def test_without_test_data_a_row_is_about_validation():
    (row,) = comparison.rows([[found(0.4, None)]])
    assert row["measure"] == "validation_accuracy"
    assert row["last"] == {"mean": 0.4, "std": None}


def test_no_two_settings_share_a_folder_and_names_are_plain():
    several = [small(seed=seed, noise=noise) for seed in (0, 1) for noise in ("sym:0.4", "sym:0.2")]
    several += [small(data="some where/my data.csv"), small("gce:q=0.5"), small("gce:q=0.6")]
    names = [comparison.folder_name(settings) for settings in several]
    assert len(set(names)) == len(several)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.+-_") for name in names)
    assert names[0].startswith("digits-sym_0.4-alpha-mae-seed0-")


@pytest.mark.parametrize(
    ("data", "noise", "said"),
    [
        ("digits", "clean", "clean"),
        ("webvision-mini", "clean", "as-given"),
        ("photos", "clean", "as-given"),
        ("photos", "sym:0.4", "sym_0.4"),
    ],
)
def test_only_labels_that_somebody_vouches_for_are_called_clean(tmp_path, data, noise, said):
    settings = small("ce", data=data, noise=noise)
    name = f"{data}-{said}-ce-seed0-{settings.key}"
    assert comparison.folder_name(settings) == name
    assert comparison.run_folder(tmp_path, settings) == tmp_path / name
    before = tmp_path / f"{data}-{noise.replace(':', '_')}-ce-seed0-{settings.key}"
    before.mkdir()
    assert comparison.run_folder(tmp_path, settings) == before
    (tmp_path / name).mkdir(exist_ok=True)
    assert comparison.run_folder(tmp_path, settings) == tmp_path / name


def test_seeds_follow_one_another():
    assert [settings.seed for settings in comparison.with_seeds(small(seed=4), 3)] == [4, 5, 6]
