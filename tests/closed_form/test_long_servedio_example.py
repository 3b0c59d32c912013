"""The example of the docs, with fewer repeats."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def example():
    path = Path(__file__).parents[2] / "examples" / "long_servedio.py"
    spec = importlib.util.spec_from_file_location("long_servedio_example", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_mixture_is_that_of_long_and_servedio(example):
    x, y = example.long_servedio(200_000, np.random.default_rng(0))
    g = 1 / 24
    for centre, share in [((1, 0), 1 / 8), ((g, 5 * g), 1 / 8), ((g, -g), 1 / 4)]:
        for sign in (1, -1):
            near = np.linalg.norm(x - sign * np.array(centre), axis=1) < 0.05
            assert near.mean() == pytest.approx(share, abs=0.004)
            assert x[near].std(0) == pytest.approx([0.01, 0.01], abs=5e-4)
    assert (y == np.sign(x[:, 0])).all()
    _, noisy = example.training_data(example.PROBLEMS[0], np.random.default_rng(0))
    clean = example.long_servedio(example.EXAMPLES, np.random.default_rng(0))[1]
    assert (noisy != clean).mean() == pytest.approx(0.2, abs=0.03)


def test_who_is_right_about_which_problem(example):
    mixture, clusters, classes = (
        {name: some.mean() for name, some in example.accuracies(problem, 6).items()} for problem in example.PROBLEMS
    )
    assert mixture["centroid"] > 0.9995
    assert mixture["logistic regression"] < 0.6
    for problem in (clusters, classes):  # separable
        assert problem["logistic regression"] == 1
        assert problem["centroid"] == pytest.approx(0.5, abs=0.02)
    assert clusters["centroid, centred"] == pytest.approx(0.5, abs=0.02)
    assert classes["centroid, centred"] > 0.95
