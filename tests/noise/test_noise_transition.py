"""Transition matrices against their definitions."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hostile_pickle import Bomb
from in_turn import in_turn
from refusals import refused

from symloss.noise import parse, transition_matrix
from symloss.noise.transition import SUPERCLASSES, cifar100_coarse, prior_weighted, symmetric

# The publisher's numbering, as found in the training labels: the superclass of fine class 0, 1, 2, ...
COARSE = """
4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 8 15 13 14 17
18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6 19 5 5 8 19 18 1 2 15 6
0 17 8 14 13
"""
MNIST = {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}
CIFAR10 = {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}
"""truck to automobile, bird to airplane, cat and dog to each other, deer to horse"""


def moves(matrix: np.ndarray) -> dict[int, int]:
    """Where each class goes, for a matrix in which it can go to one other class only."""
    off = matrix * (1 - np.eye(len(matrix)))
    assert ((off > 0).sum(1) <= 1).all()
    return {int(row): int(off[row].argmax()) for row in np.flatnonzero(off.sum(1))}


@in_turn("classes", [2, 3, 10, 100])
@in_turn("weight", [0.0, 0.3, 0.9])
def test_symmetric_and_the_other_convention(classes, weight):
    """Appendix A of the paper: eta = (C - 1) p / C."""
    rate = (classes - 1) * weight / classes
    matrix = symmetric(classes, rate)
    for row in range(classes):
        for column in range(classes):
            assert matrix[row, column] == (1 - rate if row == column else rate / (classes - 1))
    np.testing.assert_allclose(transition_matrix(parse(f"sym-any:{weight}"), classes), matrix, rtol=0, atol=1e-15)


def test_mixtures_with_a_prior_leave_it_as_it_is():
    prior = np.array([0.5, 0.3, 0.2])
    matrix = prior_weighted(prior, 0.4)
    for row in range(3):
        for column in range(3):
            assert matrix[row, column] == pytest.approx(0.6 * (row == column) + 0.4 * prior[column])
    np.testing.assert_allclose(prior @ matrix, prior)


@in_turn(
    "text, classes, dataset, expected",
    [
        ("pair:0.4", 5, None, {0: 1, 1: 2, 2: 3, 3: 4, 4: 0}),
        *(("asym:0.4", 10, dataset, MNIST) for dataset in ("mnist", "MNIST", "digits")),
        *(("asym:0.4", 10, dataset, CIFAR10) for dataset in ("cifar10", "CIFAR-10", "cifar_10")),
    ],
)
def test_which_class_is_mistaken_for_which(text, classes, dataset, expected):
    matrix = transition_matrix(parse(text), classes, dataset=dataset)
    assert moves(matrix) == expected
    for label in range(classes):
        assert matrix[label, label] == (0.6 if label in expected else 1)


def test_superclasses_and_blocks_of_cifar100():
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
    # The blocks of published tables are something else.
    blocks = moves(transition_matrix(parse("asym-blocks:0.4"), 100))
    assert blocks == {label: label // 5 * 5 + (label + 1) % 5 for label in range(100)}
    assert blocks == moves(transition_matrix(parse("asym:0.4"), 100, dataset="cifar100"))
    assert sum(coarse[label] == coarse[target] for label, target in blocks.items()) < 10


@in_turn("text", ["sym:0.3", "sym-any:0.3", "pair:0.3", "asym:0.3", "asym-blocks:0.3", "prior:0.3", "clean"])
def test_rows_are_distributions(text):
    matrix = transition_matrix(parse(text), 10, dataset="mnist", prior=np.full(10, 0.1))
    assert matrix.dtype == np.float64
    assert (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-14)


# --- Any matrix ----------------------------------------------------------------------------------------------------

MATRIX = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])


def test_a_matrix_from_a_file(tmp_path):
    np.save(tmp_path / "T.npy", MATRIX)
    np.savez(tmp_path / "T.npz", anything=MATRIX)
    (tmp_path / "T.csv").write_text("\n".join(", ".join(map(repr, row)) for row in MATRIX.tolist()) + "\n")
    (tmp_path / "T.json").write_text(json.dumps(MATRIX.tolist()))
    for path in tmp_path.iterdir():
        np.testing.assert_array_equal(transition_matrix(parse(f"matrix:{path}"), 3), MATRIX)
    path.write_text("[[0.333333, 0.333333, 0.333333], [0, 1, 0], [0, 0, 1]]")
    path = path.rename(tmp_path / "rounded.json")
    np.testing.assert_allclose(transition_matrix(parse(f"matrix:{path}"), 3).sum(1), 1, atol=1e-15)


@in_turn(
    "matrix, ingredients",
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


@in_turn("suffix", ["npy", "npz"])
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


@in_turn(
    "name, content",
    [
        *(("T.csv", text) for text in ("a,b\n1,2\n", "1,0\n1\n", "\0")),
        *(("T.json", text) for text in ("{", '{"a": 1}')),
        ("T.npy", ""),
        ("T.npz", "PK"),
        ("T.pkl", ""),
        ("T.npy", None),
    ],
)
def test_damaged_files_and_none(tmp_path, name, content):
    path, expected = tmp_path / name, (ValueError, "file of a transition matrix must hold one array of numbers")
    if content is None:
        expected = FileNotFoundError, "path of a transition matrix must be a file", "not there"
    else:
        path.write_text(content)
    if name == "T.pkl":
        expected = ValueError, "must end in .npy, .npz, .csv, .json"
    with refused(*expected, str(path)):
        transition_matrix(parse(f"matrix:{path}"), 2)


@in_turn(
    "text, classes, options, ingredients",
    [
        ("asym:0.4", 10, {}, ["dataset must be one of mnist, digits, cifar10, cifar100 for asym noise", "got None"]),
        ("asym:0.4", 10, {"dataset": "fashion-mnist"}, ["got 'fashion-mnist'", "pair and matrix"]),
        ("asym:0.4", 7, {"dataset": "cifar10"}, ["num_classes must be 10 for asym noise on cifar10", "got 7"]),
        ("asym-superclass:0.4", 10, {}, ["num_classes must be 100 for asym-superclass noise", "got 10"]),
        ("asym-blocks:0.4", 12, {}, ["num_classes must be a multiple of five for asym-blocks noise", "got 12"]),
        ("sym:0.4", 1, {}, ["num_classes must be a whole number in [2, inf)", "got 1"]),
        ("instance:0.4", 10, {}, ["kind that has a transition matrix", "got 'instance:0.4'"]),
        ("prior:0.4", 3, {}, ["prior must be given for prior noise", "got None"]),
        ("prior:0.4", 3, {"prior": [0.5, 0.5]}, ["prior must have shape (3,)", "got (2,)"]),
        ("prior:0.4", 3, {"prior": [0.5, 0.5, 0.5]}, ["prior must sum to 1", "got a sum of 1.5"]),
    ],
)
def test_bad_requests(text, classes, options, ingredients):
    with refused(ValueError, *ingredients):
        transition_matrix(parse(text), classes, **options)
