"""``symloss bench closed-form``: it runs and judges; what it times is never judged here."""

import json

import numpy as np
import pytest
from closed_form_helpers import relative
from typer.testing import CliRunner

from symloss.bench import closed_form_speed
from symloss.cli import app
from symloss.closed_form import UnhingedClassifier


def result(times=150.0, ours=0.7, theirs=0.6, ratio=2.0):
    return {"times_faster": times, "accuracy": {"centroid": ours, "logistic regression": theirs}}, {
        "ratios": {"fit": ratio}
    }


def test_targets_are_met_or_named():
    assert closed_form_speed.closed_form_failures(*result()) == []
    assert closed_form_speed.closed_form_failures(*result(times=99)) == [
        "99 times faster than logistic regression, target 100"
    ]
    assert closed_form_speed.closed_form_failures(*result(ours=0.5)) == [
        "accuracy 0.5000, target that of logistic regression, 0.6000"
    ]
    assert closed_form_speed.closed_form_failures(*result(ratio=3.1)) == ["3.10 times one matrix product, target 3"]


def test_digits_stand_in_for_mnist(tmp_path):
    source, (x, y), (test_x, test_y) = closed_form_speed._noisy_digits(tmp_path, 3000)
    assert "digits" in source
    assert x.shape == (3000, 784)
    assert x.dtype == np.float32
    assert x.min() == 0
    assert x.max() == 1
    assert set(y) == set(range(10))
    assert test_x.shape == (360, 784)
    for each in (x, y):
        np.testing.assert_array_equal(each[:1437], each[1437:2874])
    clean = UnhingedClassifier().fit(test_x, test_y).predict(x)
    assert 0.15 < (clean == y).mean() < 0.3
    assert relative(x[0].reshape(28, 28)[2:26:3, 2:26:3].sum() * 9, x[0].sum()) < 1e-6
    assert UnhingedClassifier().fit(x, y).score(test_x, test_y) > 0.6


SMALL = ("bench", "closed-form", "--examples", "400", "--rows", "2000", "--repeats", "1")


@pytest.mark.slow
def test_the_command_prints_a_table(tmp_path):
    done = CliRunner().invoke(app, [*SMALL, "--data-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for text in ("digits, enlarged", "logistic regression", "400 x 784", "2,000 x 256", "times one product"):
        assert text in " ".join(done.stdout.split())


@pytest.mark.slow
def test_the_command_prints_json_and_judges(tmp_path, run_command):
    done = run_command(*SMALL, "--data-dir", tmp_path, "--json", "--check")
    found = json.loads(done.stdout)
    assert found["digits"]["accuracy"]["centroid"] > found["digits"]["accuracy"]["logistic regression"]
    assert found["digits"]["shape"] == [400, 784]
    assert found["matrix"]["shape"] == [2000, 256]
    assert found["environment"]["scikit-learn"]
    missed = done.stderr.count("missed: ")
    assert done.returncode == (1 if missed else 0)
    assert ("all targets met" in done.stderr) == (missed == 0)
