"""Texts that ask for noise, transition matrices, and the calibration that finds them again in examples."""

from __future__ import annotations

import base64
import io
import json
import pickle

import numpy as np
import pytest
import torch
from conftest import generator, random_scores
from hostile_pickle import Bomb
from in_turn import in_turn
from PIL import Image
from refusals import all_refused, refused
from torch.overrides import TorchFunctionMode

from symloss.noise import Spec, corrupt, parse, transition_matrix
from symloss.noise.calibration import calibrate, noise_rate_interval
from symloss.noise.heatmap import CELLS, INK, Transitions, heat_map
from symloss.noise.transition import SUPERCLASSES, cifar100_coarse, symmetric

TEXTS = """
clean sym:0.6 sym-any:0.6 asym:0.4 asym-blocks:0.4 asym-superclass:0.4 pair:0.3 prior:0.1 instance:0.45
matrix:folder/T.npy matrix:C:/T.csv human:aggregate human:worst@folder/a@b:c.pt human:fine human:coarse
"""


def test_texts_and_rates_come_back():
    for text in TEXTS.split():
        assert str(parse(text)) == text
        assert parse(str(parse(text))) == parse(text)
    assert parse("matrix:a.npy") == Spec("matrix", path="a.npy")
    assert parse("human:random2@f.pt") == Spec("human", name="random2", path="f.pt")
    assert parse(" SYM:.60 ") == parse("sym:6e-1") == Spec("sym", rate=0.6)
    for rate in (0.1, 1 / 3, 0.123456789012345678, 1e-12, 0):
        assert parse(str(Spec("pair", rate=rate))).rate == rate  # to the last bit


def test_bad_texts_and_specs():
    all_refused(
        (ValueError, "noise must be one of clean, sym,  ... got ''", lambda: parse("")),
        (ValueError, "noise must be one of clean, sym,  ... got 'symmetric'", lambda: parse("symmetric:0.4")),
        (ValueError, "sym noise must come with a rate, as in 'sym:0.4' ... got 'sym'", lambda: parse("sym")),
        (ValueError, "must come with a rate ... got 'sym:0.4:0.2'", lambda: parse("sym:0.4:0.2")),
        (ValueError, "rate of sym noise must be a number in [0, 1) ... got 1.5", lambda: parse("sym:1.5")),
        (ValueError, "rate of sym noise ... [0, 1) ... got nan", lambda: parse("sym:nan")),
        (ValueError, "rate of sym-any noise must be a number in [0, 1) ... got 1.0", lambda: parse("sym-any:1")),
        (ValueError, "clean noise must come without a rate ... got 'clean:0.1'", lambda: parse("clean:0.1")),
        (ValueError, "matrix noise must come with the path of a file ... got ''", lambda: parse("matrix")),
        (ValueError, "one of aggregate, random1, ... worst, fine, coarse; got 'wrst'", lambda: parse("human:wrst")),
        (ValueError, "human noise must come with the path of a file ... got ''", lambda: parse("human:worst@")),
        (TypeError, "noise must be a spec such as 'sym:0.6' ... got 0.4", lambda: parse(0.4)),
        (TypeError, "rate of sym noise ... got None", lambda: Spec("sym")),
        (ValueError, "clean noise must come without a rate ... got 0.1", lambda: Spec("clean", rate=0.1)),
        (ValueError, "sym noise must come without a name ... got 'worst'", lambda: Spec("sym", 0.1, name="worst")),
        (ValueError, "sym noise must come without a path ... got 'a.npy'", lambda: Spec("sym", 0.1, path="a.npy")),
    )


@in_turn("kind", ["sym", "pair", "asym", "asym-blocks", "instance"])
def test_a_flip_rate_stays_below_its_limit(kind):
    labels = list(range(10)) * 100
    options = {"num_classes": 10, "seed": 0, "dataset": "mnist", "inputs": np.eye(10)[labels]}
    for rate in (0.9, 0.95):
        with refused(ValueError, "flip rate must be below (C-1)/C = 0.9 with 10 classes", f"got {rate}"):
            corrupt(labels, f"{kind}:{rate}", **options)
    corrupt(labels, f"{kind}:0.89", **options)
    # The weight of a mixture may be above that limit.
    assert corrupt(labels, "sym-any:0.95", num_classes=10, seed=0).manifest.rate == pytest.approx(0.855)


# The publisher's numbering, as found in the training labels: the superclass of fine class 0, 1, 2, ...
COARSE = """
4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 8 15 13 14 17
18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6 19 5 5 8 19 18 1 2 15 6
0 17 8 14 13
"""
MNIST = {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}
CIFAR10 = {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}  # truck to automobile, bird to airplane, cat to dog and back, deer to horse


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
    assert (matrix == np.where(np.eye(classes) == 1, 1 - rate, rate / (classes - 1))).all()
    np.testing.assert_allclose(transition_matrix(parse(f"sym-any:{weight}"), classes), matrix, rtol=0, atol=1e-15)
    prior = np.array([0.5, 0.3, 0.2])  # a mixture with it leaves it as it is
    mixture = transition_matrix(parse("prior:0.4"), 3, prior=prior)
    np.testing.assert_allclose(mixture, [[0.8, 0.12, 0.08], [0.2, 0.72, 0.08], [0.2, 0.12, 0.68]], atol=1e-15)
    np.testing.assert_allclose(prior @ mixture, prior)


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
    assert matrix.diagonal().tolist() == [0.6 if label in expected else 1 for label in range(classes)]
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-14)


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


@in_turn("suffix", ["npy", "npz"])
def test_a_pickle_in_a_matrix_is_not_run(tmp_path, suffix):
    path, trace = tmp_path / f"T.{suffix}", tmp_path / "trace"
    (np.save if suffix == "npy" else np.savez)(path, np.array([Bomb(trace)], dtype=object))
    for content in (path.read_bytes(), pickle.dumps(Bomb(trace))):
        path.write_bytes(content)
        with refused(ValueError, "file of a transition matrix must hold one array of numbers", str(path)):
            transition_matrix(parse(f"matrix:{path}"), 3)
    assert not trace.exists()


@in_turn(
    "name, content",
    [
        *(("T.csv", text) for text in ("a,b\n1,2\n", "1,0\n1\n", "\0")),
        *(("T.json", text) for text in ("{", '{"a": 1}')),
        *(("T.npy", ""), ("T.npz", "PK")),
    ],
)
def test_damaged_files(tmp_path, name, content):
    path = tmp_path / name
    with refused(FileNotFoundError, "path of a transition matrix must be a file", path, "not there"):
        transition_matrix(parse(f"matrix:{path}"), 2)
    path.write_text(content)
    with refused(ValueError, "file of a transition matrix must hold one array of numbers", path):
        transition_matrix(parse(f"matrix:{path}"), 2)


@in_turn(
    "text, classes, given, ingredients",
    [
        ("asym:0.4", 10, {}, "dataset must be one of mnist, digits, cifar10, cifar100 for asym noise; got None"),
        ("asym:0.4", 10, {"dataset": "fashion-mnist"}, "got 'fashion-mnist' ... pair and matrix"),
        ("asym:0.4", 7, {"dataset": "cifar10"}, "num_classes must be 10 for asym noise on cifar10; got 7"),
        ("asym-superclass:0.4", 10, {}, "num_classes must be 100 for asym-superclass noise; got 10"),
        ("asym-blocks:0.4", 12, {}, "num_classes must be a multiple of five for asym-blocks noise; got 12"),
        ("sym:0.4", 1, {}, "num_classes must be a whole number in [2, inf); got 1"),
        ("instance:0.4", 10, {}, "kind that has a transition matrix; got 'instance:0.4'"),
        ("prior:0.4", 3, {}, "prior must be given for prior noise; got None"),
        ("prior:0.4", 3, {"prior": [0.5, 0.5]}, "prior must have shape (3,); got (2,)"),
        ("prior:0.4", 3, {"prior": [0.5, 0.5, 0.5]}, "prior must sum to 1; got a sum of 1.5"),
        ("matrix:T.pkl", 2, {"T.pkl": []}, "must end in .npy, .npz, .csv, .json; got 'T.pkl'"),
        ("matrix:T.npy", 3, {"T.npy": np.eye(4)}, "transition matrix must have shape (3, 3); got (4, 4)"),
        ("matrix:T.npy", 3, {"T.npy": np.ones(3) / 3}, "transition matrix must have shape (3, 3); got (3,)"),
        ("matrix:T.npy", 3, {"T.npy": np.eye(3) * 0.9}, "rows of the transition matrix must sum to 1 ... sum of 0.9"),
        ("matrix:T.npy", 2, {"T.npy": [[1.1, -0.1], [0, 1]]}, "at least 0; got -0.1"),
        ("matrix:T.npy", 3, {"T.npy": np.full((3, 3), np.nan)}, "at least 0; got nan"),
        ("matrix:T.npy", 3, {"T.npy": np.full((3, 3), np.inf)}, "must sum to 1; got a sum of inf"),
    ],
)
def test_bad_requests(tmp_path, monkeypatch, text, classes, given, ingredients):
    monkeypatch.chdir(tmp_path)
    for name in given.keys() & {"T.npy", "T.pkl"}:
        with open(name, "wb") as file:
            np.save(file, given.pop(name))
    with refused(ValueError, *ingredients.split(" ... ")):
        transition_matrix(parse(text), classes, **given)


def test_many_classes_are_a_picture_whose_pixels_are_the_rates():
    count = CELLS + 1
    counts = np.eye(count, dtype=np.int64) * 3
    counts[0, 5] = 1
    page = heat_map(Transitions(tuple(map(str, range(count))), counts, draws=1))
    picture = Image.open(io.BytesIO(base64.b64decode(page.partition("base64,")[2].partition('"')[0])))
    pixels = np.asarray(picture)
    assert (picture.format, pixels.shape) == ("PNG", (count, count, 4))
    assert (pixels[..., :3] == INK).all()
    rates = np.eye(count)
    rates[0, 0], rates[0, 5] = 0.75, 0.25
    np.testing.assert_array_equal(pixels[..., 3], np.rint(255 * np.sqrt(rates)))


# --- Calibration: temperature, transition matrix and noise rate of examples from a known model -----------------------

PAIR = torch.tensor([[0.7, 0.3, 0, 0], [0, 0.7, 0.3, 0], [0, 0, 0.7, 0.3], [0.3, 0, 0, 0.7]], dtype=torch.float64)
UNEQUAL = torch.tensor([[0.6, 0.4, 0, 0], [0, 1, 0, 0], [0.1, 0.1, 0.7, 0.1], [0, 0, 0.2, 0.8]], dtype=torch.float64)
NOTHING = torch.eye(4, dtype=torch.float64)


def draw(transition, count=4000, temperature=0.5, seed=0):
    """Scores, the true classes by softmax(scores / temperature), and labels by the transition matrix."""
    scores = random_scores(count, len(transition), seed=seed)
    true = torch.multinomial((scores / temperature).softmax(1), 1, generator=generator(seed + 1)).squeeze(1)
    labels = torch.multinomial(transition[true], 1, generator=generator(seed + 2)).squeeze(1)
    return scores, true, labels


def share_wrong(true, labels, within):
    return pytest.approx(float((labels != true).double().mean()), abs=within)


@in_turn("transition", [PAIR, UNEQUAL, NOTHING])
def test_it_finds_what_the_examples_were_drawn_from(transition):
    scores, true, labels = draw(transition)
    found = calibrate(scores, labels)
    assert found.temperature == pytest.approx(0.5, rel=0.15)
    assert torch.allclose(found.transition, transition, atol=0.05)
    assert found.noise_rate == share_wrong(true, labels, 0.03)


def test_probabilities_are_those_of_the_true_class():
    """Among predictions of probability p a share p is right; a temperature for the noisy labels promises far less."""
    scores, true, labels = draw(PAIR, count=20_000)
    plain = calibrate(scores, labels, transition=NOTHING)
    for calibration, honest in ((calibrate(scores, labels), True), (plain, False)):
        confidence, guess = calibration.probabilities(scores).max(1)
        assert (abs(float(confidence.mean() - (guess == true).double().mean())) < 0.02) == honest


def test_the_label_tells_more_about_the_true_class():
    scores, true, labels = draw(UNEQUAL, temperature=1.5)
    found = calibrate(scores, labels)
    posterior = found.posterior(scores, labels)
    assert torch.allclose(posterior.sum(1), torch.ones(len(labels), dtype=torch.float64))
    by_scores = (found.probabilities(scores).argmax(1) == true).double().mean()
    assert (posterior.argmax(1) == true).double().mean() > by_scores + 0.02
    # A constant added to the scores changes nothing, and a matrix that is known stays.
    scores, _, labels = draw(PAIR, count=500)
    assert calibrate(scores + 100, labels).temperature == pytest.approx(calibrate(scores, labels).temperature, rel=1e-6)
    assert torch.equal(calibrate(scores, labels, transition=PAIR).transition, PAIR)


def test_noise_that_depends_on_the_features_needs_classes_that_are_apart():
    """Labels of one half of the space are wrong: that may as well be a region in which classes overlap."""
    scores = 4 * draw(NOTHING)[0]
    true = scores.argmax(1)
    doubt = torch.rand(len(true), generator=generator(9)) < 0.6 * (scores.sort(1).values.diff()[:, -1] < 4)
    labels = torch.where(doubt, scores.argsort(1)[:, -2], true)
    rate = float((labels != true).double().mean())
    assert calibrate(scores, labels).noise_rate < 0.6 * rate
    assert calibrate(scores, labels, separation=2.0).noise_rate == pytest.approx(rate, abs=0.05)


def test_few_examples_of_many_classes_have_one_rate_and_equal_scores_say_nothing():
    transition = torch.tensor(transition_matrix(parse("sym:0.3"), 60))
    scores, true, labels = draw(transition, count=3000, temperature=0.2)
    found = calibrate(scores, labels)
    assert found.transition.unique().numel() == 2
    assert found.noise_rate == share_wrong(true, labels, 0.03)
    found = calibrate(torch.zeros(50, 2), torch.arange(50) % 2)
    assert found.temperature == 1
    assert torch.allclose(found.probabilities(torch.zeros(3, 2)), torch.full((3, 2), 0.5, dtype=torch.float64))


class Squares(TorchFunctionMode):
    """Keeps every matrix of C x C entries that is made."""

    def __init__(self, classes):
        super().__init__()
        self.shape, self.kept = (classes, classes), []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.shape == self.shape:
            self.kept.append(result)
        return result


@in_turn("separation", [0.0, None])
def test_symmetric_noise_of_many_classes_needs_one_matrix(separation):
    """Of 5,000 classes each one has 0.2 GB, and some hundred rates are tried."""
    scores, _, labels = draw(torch.tensor(transition_matrix(parse("sym:0.3"), 60)), count=500, temperature=0.2)
    with Squares(60) as made:
        found = calibrate(scores, labels, separation=separation)
        noise_rate_interval(found, scores, labels, draws=10)
    assert {matrix.data_ptr() for matrix in made.kept} == {found.transition.data_ptr()}


def test_the_interval_covers_the_rate():
    """Nineteen of twenty would: with twelve samples, ten or more."""
    covered = 0
    for seed in range(0, 36, 3):
        scores, true, labels = draw(PAIR, count=800, seed=seed)
        found = calibrate(scores, labels)
        low, high = noise_rate_interval(found, scores, labels, draws=40)
        covered += low <= float((labels != true).double().mean()) <= high
        assert 0.02 < high - low < 0.15
    assert covered >= 10
    # More examples than choose the temperature.
    scores, true, labels = draw(PAIR, count=25_000)
    found = calibrate(scores, labels)
    assert found.noise_rate == share_wrong(true, labels, 0.01)
    low, high = noise_rate_interval(found, scores, labels, draws=20)
    assert found.noise_rate - 0.02 < low < found.noise_rate < high < found.noise_rate + 0.02


def test_bad_input():
    zeros, classes = torch.zeros(2, 2), torch.tensor([0, 1])
    all_refused(
        (ValueError, "scores must have shape (N, C) ... got (2,)", lambda: calibrate(zeros[0], classes)),
        (ValueError, "labels shape (N,); got (2, 2) and (1,)", lambda: calibrate(zeros, classes[:1])),
        (ValueError, "whole numbers from 0 to 1; got [0, 2]", lambda: calibrate(zeros, 2 * classes)),
        (ValueError, "whole numbers from 0 to 1", lambda: calibrate(zeros, classes.float())),
        (ValueError, "scores must be finite", lambda: calibrate(zeros / 0, classes)),
        (ValueError, "must have shape (2, 2); got (3, 3)", lambda: calibrate(zeros, classes, torch.eye(3))),
    )
