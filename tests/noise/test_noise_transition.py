"""Transition matrices against their definitions."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from refusals import refused

from symloss.noise import parse, transition_matrix
from symloss.noise.transition import SUPERCLASSES, cifar100_coarse, prior_weighted, rotation, symmetric, symmetric_any

# The publisher's numbering, as found in the training labels: the superclass of fine class 0, 1, 2, ...
COARSE = """
4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 8 15 13 14 17
18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6 19 5 5 8 19 18 1 2 15 6
0 17 8 14 13
"""
CIFAR10_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def moves(matrix: np.ndarray) -> dict[int, int]:
    """Where each class goes, for a matrix in which it can go to one other class only."""
    off = matrix * (1 - np.eye(len(matrix)))
    assert ((off > 0).sum(1) <= 1).all()
    return {int(row): int(off[row].argmax()) for row in np.flatnonzero(off.sum(1))}


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.45])
def test_symmetric(classes, rate):
    matrix = symmetric(classes, rate)
    for row in range(classes):
        for column in range(classes):
            assert matrix[row, column] == (1 - rate if row == column else rate / (classes - 1))


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("weight", [0.0, 0.3, 0.99])
def test_the_two_conventions_of_symmetric_noise(classes, weight):
    """Appendix A of the paper: eta = (C - 1) p / C."""
    expected = symmetric(classes, (classes - 1) * weight / classes)
    np.testing.assert_allclose(symmetric_any(classes, weight), expected, rtol=0, atol=1e-15)


def test_prior_weighted():
    prior = np.array([0.5, 0.3, 0.2])
    matrix = prior_weighted(prior, 0.4)
    for row in range(3):
        for column in range(3):
            assert matrix[row, column] == pytest.approx(0.6 * (row == column) + 0.4 * prior[column])


def test_mixtures_leave_their_prior_as_it_is():
    prior = np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(prior @ prior_weighted(prior, 0.7), prior)


def test_pair():
    assert moves(transition_matrix(parse("pair:0.3"), 5)) == {0: 1, 1: 2, 2: 3, 3: 4, 4: 0}


@pytest.mark.parametrize("dataset", ["mnist", "MNIST", "digits"])
def test_asymmetric_digits(dataset):
    matrix = transition_matrix(parse("asym:0.4"), 10, dataset=dataset)
    assert moves(matrix) == {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}
    assert matrix[7].tolist() == [0, 0.4, 0, 0, 0, 0, 0, 0.6, 0, 0]
    assert matrix[0, 0] == 1


@pytest.mark.parametrize("dataset", ["cifar10", "CIFAR-10", "cifar_10"])
def test_asymmetric_cifar10(dataset):
    named = {
        CIFAR10_NAMES[a]: CIFAR10_NAMES[b]
        for a, b in moves(transition_matrix(parse("asym:0.4"), 10, dataset=dataset)).items()
    }
    expected = "truck>automobile bird>airplane cat>dog dog>cat deer>horse"
    assert named == dict(pair.split(">") for pair in expected.split())


def test_blocks_of_cifar100():
    blocks = moves(transition_matrix(parse("asym-blocks:0.4"), 100))
    for label in range(100):
        assert blocks[label] == label // 5 * 5 + (label + 1) % 5
    assert blocks == moves(transition_matrix(parse("asym:0.4"), 100, dataset="cifar100"))


def test_superclasses_of_cifar100():
    coarse = cifar100_coarse()
    assert coarse == [int(number) for number in COARSE.split()]
    assert [coarse.count(number) for number in range(20)] == [5] * 20
    assert list(SUPERCLASSES) == sorted(SUPERCLASSES)
    following = moves(transition_matrix(parse("asym-superclass:0.4"), 100))
    assert sorted(following) == sorted(following.values()) == list(range(100))
    for label, target in following.items():
        assert coarse[label] == coarse[target]
        between = range(label + 1, target) if target > label else [*range(label + 1, 100), *range(target)]
        assert all(coarse[skipped] != coarse[label] for skipped in between)


def test_blocks_are_not_superclasses():
    coarse = cifar100_coarse()
    blocks = rotation([label // 5 for label in range(100)])
    assert sum(coarse[label] == coarse[target] for label, target in blocks.items()) < 10


@pytest.mark.parametrize(
    "text", ["sym:0.3", "sym-any:0.3", "pair:0.3", "asym:0.3", "asym-blocks:0.3", "prior:0.3", "clean"]
)
def test_rows_are_distributions(text):
    matrix = transition_matrix(parse(text), 10, dataset="mnist", prior=np.full(10, 0.1))
    assert matrix.dtype == np.float64
    assert (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-14)


# --- Any matrix ----------------------------------------------------------------------------------------------------

MATRIX = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])


def write(path, matrix):
    if path.suffix == ".npy":
        np.save(path, matrix)
    elif path.suffix == ".npz":
        np.savez(path, anything=matrix)
    elif path.suffix == ".csv":
        path.write_text("\n".join(", ".join(map(repr, row)) for row in matrix.tolist()) + "\n")
    else:
        path.write_text(json.dumps(matrix.tolist()))


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv", "json"])
def test_a_matrix_from_a_file(tmp_path, suffix):
    path = tmp_path / f"T.{suffix}"
    write(path, MATRIX)
    np.testing.assert_array_equal(transition_matrix(parse(f"matrix:{path}"), 3), MATRIX)


def test_rounded_rows_are_made_to_sum_to_one(tmp_path):
    path = tmp_path / "T.csv"
    path.write_text("0.333333,0.333333,0.333333\n0,1,0\n0,0,1\n")
    matrix = transition_matrix(parse(f"matrix:{path}"), 3)
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-15)


@pytest.mark.parametrize(
    ("matrix", "ingredients"),
    [
        (np.eye(4), ["transition matrix must have shape (3, 3)", "got (4, 4)"]),
        (np.ones(3) / 3, ["transition matrix must have shape (3, 3)", "got (3,)"]),
        (np.eye(3) * 0.9, ["rows of the transition matrix must sum to 1", "got a sum of 0.9"]),
        (np.eye(3) + np.diag([-0.1, 0.0], 1) + np.diag([0.1], 2), ["at least 0", "got -0.1"]),
        (np.full((3, 3), np.nan), ["at least 0", "got nan"]),
        (np.full((3, 3), np.inf), ["must sum to 1", "got a sum of inf"]),
    ],
)
def test_bad_matrices(tmp_path, matrix, ingredients):
    path = tmp_path / "T.npy"
    np.save(path, matrix)
    with refused(ValueError, *ingredients):
        transition_matrix(parse(f"matrix:{path}"), 3)


class Bomb:
    """Unpickling it would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_a_pickle_in_a_matrix_is_not_run(tmp_path, suffix):
    path, trace = tmp_path / f"T.{suffix}", tmp_path / "trace"
    array = np.array([Bomb(trace)], dtype=object)
    np.save(path, array, allow_pickle=True) if suffix == "npy" else np.savez(path, array)
    with refused(ValueError, "file of a transition matrix must hold one array of numbers", str(path)):
        transition_matrix(parse(f"matrix:{path}"), 3)
    path.write_bytes(pickle.dumps(Bomb(trace)))
    with refused(ValueError, "file of a transition matrix must hold one array of numbers", str(path)):
        transition_matrix(parse(f"matrix:{path}"), 3)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("T.csv", "a,b\n1,2\n"),
        ("T.csv", "1,0\n1\n"),
        ("T.csv", "\0"),
        ("T.json", "{"),
        ("T.json", '{"a": 1}'),
        ("T.npy", ""),
        ("T.npz", "PK"),
    ],
)
def test_damaged_files(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    with refused(ValueError, "file of a transition matrix must hold one array of numbers", str(path)):
        transition_matrix(parse(f"matrix:{path}"), 2)


def test_files_that_are_none(tmp_path):
    with refused(FileNotFoundError, "path of a transition matrix must be a file", "T.npy", "not there"):
        transition_matrix(parse(f"matrix:{tmp_path / 'T.npy'}"), 2)
    (tmp_path / "T.pkl").write_text("")
    with refused(ValueError, "must end in .npy, .npz, .csv, .json", "T.pkl"):
        transition_matrix(parse(f"matrix:{tmp_path / 'T.pkl'}"), 2)


def test_bad_requests():
    with refused(ValueError, "dataset must be one of mnist, digits, cifar10, cifar100 for asym noise", "got None"):
        transition_matrix(parse("asym:0.4"), 10)
    with refused(ValueError, "dataset must be one of mnist", "got 'fashion-mnist'", "pair and matrix"):
        transition_matrix(parse("asym:0.4"), 10, dataset="fashion-mnist")
    with refused(ValueError, "num_classes must be 10 for asym noise on cifar10", "got 7"):
        transition_matrix(parse("asym:0.4"), 7, dataset="cifar10")
    with refused(ValueError, "num_classes must be 100 for asym-superclass noise", "got 10"):
        transition_matrix(parse("asym-superclass:0.4"), 10)
    with refused(ValueError, "num_classes must be a multiple of five for asym-blocks noise", "got 12"):
        transition_matrix(parse("asym-blocks:0.4"), 12)
    with refused(ValueError, "num_classes must be a whole number in [2, inf)", "got 1"):
        transition_matrix(parse("sym:0.4"), 1)
    with refused(ValueError, "kind that has a transition matrix", "got 'instance:0.4'"):
        transition_matrix(parse("instance:0.4"), 10)
    with refused(ValueError, "prior must have shape (3,)", "got (2,)"):
        transition_matrix(parse("prior:0.4"), 3, prior=[0.5, 0.5])
    with refused(ValueError, "prior must sum to 1", "got a sum of 1.5"):
        transition_matrix(parse("prior:0.4"), 3, prior=[0.5, 0.5, 0.5])
    with refused(TypeError, "prior must be an array of numbers", "got 'half'"):
        transition_matrix(parse("prior:0.4"), 3, prior="half")
