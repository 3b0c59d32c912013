"""Corruption: how many labels are flipped, which ones, and by what seed; by the input; and by people.

Human labels come from small files in the publisher's layout.
"""

from __future__ import annotations

import functools
import pickle
import random
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hostile_pickle import Bomb
from in_turn import in_turn
from refusals import all_refused, refused
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix

from symloss.noise import corrupt, human_labels, parse, transition_matrix
from symloss.noise.labels import flip_rates
from symloss.noise.transition import cifar100_coarse, relabel

TEXTS = ["clean", "sym:0", "sym:0.4", "sym-any:0.7", "pair:0.3", "asym:0.45", "asym-blocks:0.25", "prior:0.5"]
METHODS = ["floor", "exact", "sampled"]


def some_labels(size: int, classes: int, seed: int = 0) -> np.ndarray:
    """Unbalanced, in no order."""
    weights = np.arange(1, classes + 1) / (classes * (classes + 1) / 2)
    return np.random.default_rng(seed).choice(classes, size, p=weights)


def requested(text: str, clean: np.ndarray, classes: int) -> np.ndarray:
    prior = np.bincount(clean, minlength=classes) / len(clean)
    return transition_matrix(parse(text), classes, dataset="mnist", prior=prior)


def balanced(size: int, classes: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(classes), size))


@in_turn("text", TEXTS)
def test_how_many_labels_become_which(text):
    for counts, size in (("floor", 777), ("exact", 31), ("exact", 777), ("sampled", 20000)):
        clean = some_labels(size, 10, 1)
        matrix = requested(text, clean, 10)
        noisy = corrupt(clean, text, num_classes=10, seed=2, counts=counts, dataset="mnist").labels
        table = confusion_matrix(clean, noisy, labels=range(10))
        wanted = matrix * np.bincount(clean, minlength=10)[:, None]
        others = 1 - np.eye(10, dtype=int)
        assert (table[matrix == 0] == 0).all()
        if counts == "floor":
            np.testing.assert_array_equal(table * others, wanted.astype(int) * others)
        elif counts == "exact":
            assert (np.abs(table - wanted) < 1).all()
            assert abs((noisy != clean).sum() - (wanted * others).sum()) <= 0.5 + 1e-9
        else:
            assert (np.abs(table - wanted) <= 4.5 * np.sqrt(wanted * (1 - matrix)) + 1e-9).all()


def test_what_has_no_probability_is_never_drawn_and_sampled_draws_are_independent():
    """The number of flips varies over seeds as a binomial does; with exact counts it does not vary."""
    matrix = np.array([[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    lowest = SimpleNamespace(random=np.zeros)  # a generator whose uniform numbers are all 0, the lowest that there are
    assert relabel(np.array([0, 1, 2]), matrix, "sampled", lowest).tolist() == [1, 1, 2]
    clean = balanced(100, 4)
    drawn, exact = (
        [corrupt(clean, "sym:0.5", num_classes=4, seed=seed, counts=counts).manifest.flipped for seed in range(200)]
        for counts in ("sampled", "exact")
    )
    assert np.var(drawn) == pytest.approx(100, rel=0.4)
    assert set(exact) == {200}


def test_exact_does_not_prefer_low_classes():
    """Every remainder is tied: 6 of the 9 others get one more. If the first did, class 0 would have 9 more than 9."""
    extra = np.zeros(10)
    for seed in range(40):
        counts = corrupt(balanced(143, 10), "sym:0.8", num_classes=10, seed=seed).manifest.counts
        extra += (counts * (1 - np.eye(10)) - 12).clip(0).sum(0)
    # Each column has a mean of 240 (and less than a binomial's variance of 360 / 3).
    assert (np.abs(extra - extra.mean()) < 5 * 11).all()


@in_turn("counts", METHODS)
def test_which_labels_are_flipped_is_uniform(counts):
    """Over many seeds, each example is flipped equally often: position must not matter."""
    clean = balanced(10, 4)
    flipped = [corrupt(clean, "sym:0.4", num_classes=4, seed=seed, counts=counts).flipped for seed in range(600)]
    share = np.mean(flipped, 0)
    assert (np.abs(share - share.mean()) < 4.5 * np.sqrt(0.25 / 600)).all()
    assert share.mean() == pytest.approx({"floor": 0.3, "exact": 0.4, "sampled": 0.4}[counts], abs=0.02)


def test_truncation_in_published_tables():
    """450 of each class of CIFAR-100: 0.8 / 99 * 450 = 3.6, so 3 go to each other class. Digits: 12 or 13 of 9."""
    for counts, rate in (("floor", 0.66), ("exact", 0.8)):
        found = corrupt(balanced(450, 100), "sym:0.8", num_classes=100, seed=0, counts=counts).manifest
        assert found.rate == pytest.approx(rate)
    digits = load_digits().target[:1437]
    assert corrupt(digits, "sym:0.8", num_classes=10, seed=0, counts="floor").manifest.flipped == 1080
    sizes = [148, 147, 142, 144, 142, 143, 143, 143, 142, 143]
    manifest = corrupt(np.repeat(np.arange(10), sizes), "sym:0.8", num_classes=10, seed=0, counts="floor").manifest
    assert (manifest.size, round(manifest.rate, 3)) == (1437, 0.764)


def test_a_prior_or_a_matrix_that_is_given():
    manifest = corrupt(balanced(1000, 3), "prior:0.5", num_classes=3, seed=0, prior=[0.0, 0.2, 0.8]).manifest
    assert manifest.counts.tolist() == [[500, 100, 400], [0, 600, 400], [0, 100, 900]]
    matrix = np.array([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 0, 1]])
    manifest = corrupt(balanced(100, 3), matrix, num_classes=3, seed=0).manifest
    np.testing.assert_array_equal(manifest.rates, matrix)
    assert manifest.spec == "matrix"
    # By largest remainders: quotas of class 0 are 1.75 to 1 and 2.25 to 2. Ties aside, the result is the only one.
    matrix = [[0.6, 0.175, 0.225], [0, 1, 0], [0, 0, 1]]
    manifest = corrupt(np.repeat([0, 1, 2], [10, 3, 3]), matrix, num_classes=3, seed=0).manifest
    assert manifest.counts.tolist() == [[6, 2, 2], [0, 3, 0], [0, 0, 3]]
    for counts in METHODS:  # a class without examples
        manifest = corrupt([0, 2, 2, 0] * 50, "sym:0.5", num_classes=4, seed=0, counts=counts).manifest
        assert (manifest.class_counts.tolist(), manifest.rates[1].tolist()) == ([100, 0, 100, 0], [0, 0, 0, 0])


def random_states() -> list[object]:
    name, keys, *rest = np.random.get_state()
    return [random.getstate(), name, keys.tolist(), rest, torch.get_rng_state().tolist()]


@in_turn("text", [*TEXTS, "instance:0.4"])
@in_turn("counts", METHODS)
def test_the_seed_alone_decides(text, counts):
    clean = some_labels(300, 10)
    inputs = np.random.default_rng(0).random((300, 4))
    options = {"num_classes": 10, "counts": counts, "dataset": "digits", "inputs": inputs}
    before = random_states()
    first = corrupt(clean, text, seed=7, **options).labels
    assert random_states() == before
    for seed in (np.random.seed, torch.manual_seed, random.seed):
        seed(99)
    np.testing.assert_array_equal(corrupt(clean, text, seed=7, **options).labels, first)
    if text not in ("clean", "sym:0"):
        assert (corrupt(clean, text, seed=8, **options).labels != first).any()


def test_known_labels():
    """A change here would change what every seed in a paper means."""
    for counts, expected in (
        ("floor", "2113303003230102012311230221"),
        ("exact", "0030012331230313310211232201"),
        ("sampled", "1303012210230212011121233221"),
    ):
        labels = corrupt(np.arange(28) % 4, "sym:0.5", num_classes=4, seed=1, counts=counts).labels
        assert "".join(map(str, labels)) == expected


def test_labels_of_any_kind():
    clean = some_labels(100, 5)
    expected = corrupt(clean, "sym:0.5", num_classes=5, seed=0)
    for given in (clean.astype(np.uint8), clean.astype(np.int32), torch.from_numpy(clean), clean.tolist()):
        actual = corrupt(given, "sym:0.5", num_classes=np.int64(5), seed=np.int32(0))
        assert actual.labels.dtype == np.int64
        np.testing.assert_array_equal(actual.labels, expected.labels)
        assert actual.manifest == expected.manifest
    assert corrupt(clean, parse("sym:0.5"), num_classes=5, seed=0).manifest == expected.manifest
    # What was given is left alone.
    given = torch.from_numpy(clean.copy())
    for counts in METHODS:
        corruption = corrupt(given, "sym:0.5", num_classes=5, seed=0, counts=counts)
        corruption.labels[:] = corruption.clean[:] = 0
        np.testing.assert_array_equal(given.numpy(), clean)


INSTANCE, SHAPES = {"noise": "instance:0.3"}, ((3,), (2, 1), (3, 0))


@in_turn(
    "change, exception, ingredients",
    [
        ({"labels": []}, ValueError, ["labels must have shape (N,) with at least one label", "got (0,)"]),
        ({"labels": [0.0, 1.0]}, TypeError, ["labels must hold integers", "got float64"]),
        ({"labels": torch.tensor([0.0]).bfloat16()}, TypeError, ["labels must hold integers", "got torch.bfloat16"]),
        ({"labels": [True, False]}, TypeError, ["labels must hold integers", "got bool"]),
        ({"labels": [[0], [1, 2]]}, TypeError, ["labels must be a vector of integers", "got [[0], [1, 2]]"]),
        ({"labels": [0, 3]}, ValueError, ["labels must be 0 to 2 with 3 classes", "got 3"]),
        ({"labels": [0, -1]}, ValueError, ["labels must be 0 to 2 with 3 classes", "got -1"]),
        ({"num_classes": 1}, ValueError, ["num_classes must be a whole number in [2, inf)", "got 1"]),
        ({"seed": -1}, ValueError, ["seed must be a whole number in [0, inf)", "got -1"]),
        ({"counts": "round"}, ValueError, ["counts must be one of 'floor', 'exact', 'sampled'", "got 'round'"]),
        ({"split": "during"}, ValueError, ["split must be one of None, 'before', 'after'", "got 'during'"]),
        ({"noise": np.eye(4)}, ValueError, ["transition matrix must have shape (3, 3)", "got (4, 4)"]),
        ({"noise": [["a"]]}, TypeError, ["transition matrix must be an array of numbers", "got [['a']]"]),
        ({"noise": "human:worst"}, ValueError, ["root must be the folder of CIFAR-10_human.pt", "got None"]),
        (INSTANCE, TypeError, ["inputs must be a numpy array or a tensor", "got NoneType"]),
        (INSTANCE | {"inputs": [[1.0], [2.0], [3.0]]}, TypeError, ["a numpy array or a tensor", "got list"]),
        *((INSTANCE | {"inputs": np.zeros(bad)}, ValueError, ["shape (3, ...)", f"got {bad}"]) for bad in SHAPES),
        (INSTANCE | {"inputs": np.full((3, 1), "a")}, TypeError, ["a tensor of real numbers", "got <U1"]),
        (INSTANCE | {"inputs": torch.zeros(3, 1) * 1j}, TypeError, ["a tensor of real numbers", "complex64"]),
        *((INSTANCE | {"inputs": np.full((3, 1), bad)}, ValueError, ["finite numbers"]) for bad in (np.nan, np.inf)),
    ],
)
def test_bad_input(change, exception, ingredients):
    arguments = {"labels": [0, 1, 2], "noise": "sym:0.3", "num_classes": 3, "seed": 0} | change
    with refused(exception, *ingredients):
        corrupt(arguments.pop("labels"), arguments.pop("noise"), **arguments)


EXAMPLES, CLASSES = 4000, 5


def random_inputs(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


def by_input(inputs, labels=None, rate=0.4, **options):
    labels = some_labels(EXAMPLES, CLASSES) if labels is None else labels
    return corrupt(labels, f"instance:{rate}", inputs=inputs, **({"num_classes": CLASSES, "seed": 0} | options))


@in_turn("rate", [0.0, 0.05, 0.2, 0.3334, 0.7])
def test_the_rate_of_instance_noise(rate):
    inputs = random_inputs(EXAMPLES, 6)
    assert by_input(inputs, rate=rate).manifest.flipped == round(rate * EXAMPLES)
    assert by_input(inputs, rate=rate, counts="floor").manifest.flipped == int(rate * EXAMPLES)
    bound = 4.5 * np.sqrt(rate * (1 - rate) / EXAMPLES)
    assert by_input(inputs, rate=rate, counts="sampled").manifest.rate == pytest.approx(rate, abs=bound)


@in_turn("rate", [0.0, 0.001, 0.1, 0.5, 0.85, 0.999])
def test_flip_rates_of_examples(rate):
    rates = flip_rates(20000, rate, np.random.default_rng(0))
    reach = min(rate, 1 - rate)
    assert (np.abs(rates - rate) <= reach + 1e-12).all()
    assert rates.mean() == pytest.approx(rate, abs=4.5 * 0.1 / np.sqrt(20000))
    if reach >= 0.5:
        assert rates.std() == pytest.approx(0.1, rel=0.02)
    if reach == 0.001:  # a narrow cut leaves next to a uniform distribution
        assert rates.std() == pytest.approx(reach / np.sqrt(3), rel=0.02)


def share_of_agreement(corruption, first, second) -> float:
    """How often two examples that are both flipped are flipped to the same class."""
    both = corruption.flipped[first] & corruption.flipped[second]
    assert both.sum() > 100
    return float((corruption.labels[first] == corruption.labels[second])[both].mean())


def test_what_an_example_is_mistaken_for_depends_on_input_and_class():
    """Neighbours of a class are mistaken for the same one; unrelated examples and equal ones of two classes are not."""
    half, same = random_inputs(EXAMPLES // 2, 20), np.tile(some_labels(EXAMPLES // 2, CLASSES), 2)
    first, second = np.arange(EXAMPLES // 2), np.arange(EXAMPLES // 2, EXAMPLES)
    assert share_of_agreement(by_input(np.concatenate([half, half + 1e-3]), same), first, second) > 0.75
    assert share_of_agreement(by_input(random_inputs(EXAMPLES, 20), same), first, second) < 0.45
    different = np.repeat([0, 1], EXAMPLES // 2)  # each true class has a projection of its own
    assert share_of_agreement(by_input(np.tile(half, (2, 1)), different), first, second) < 0.45
    # Other inputs, other labels; and no class keeps or takes all.
    one, two = by_input(random_inputs(EXAMPLES, 6)), by_input(random_inputs(EXAMPLES, 6)[::-1])
    np.testing.assert_array_equal(one.flipped, two.flipped)
    assert (one.labels != two.labels).mean() > 0.1
    assert (one.manifest.counts > 0).all()


def test_units_and_types_do_not_matter():
    inputs = random_inputs(EXAMPLES, 6)
    shifted = inputs * np.array([1, 2, 4, 8, 16, 1024]) + 3
    assert (by_input(shifted).labels != by_input(inputs).labels).mean() < 1e-3
    with_constant = np.concatenate([inputs, np.full((EXAMPLES, 1), 0.1)], 1)
    assert np.isfinite(by_input(with_constant).manifest.rate)
    images = np.random.default_rng(2).integers(0, 256, (EXAMPLES, 1, 4, 4), dtype=np.uint8)
    tensor = torch.from_numpy(images)  # bfloat16 has their eight bits
    for same in (tensor, tensor.bfloat16(), images.reshape(EXAMPLES, 16).astype(np.float32)):
        np.testing.assert_array_equal(by_input(same).labels, by_input(images).labels)


PEOPLE = 200
KEYS = {"aggregate": "aggre_label", "worst": "worse_label", **{f"random{k}": f"random_label{k}" for k in (1, 2, 3)}}


def cifar10n() -> dict[str, np.ndarray]:
    columns = ["clean_label", *KEYS.values()]
    return {key: some_labels(PEOPLE, 10, seed) for seed, key in enumerate(columns)}


def cifar100n() -> dict[str, object]:
    """As published: fine labels are arrays, coarse ones lists."""
    fine = {f"{kind}_label": some_labels(PEOPLE, 100, seed) for seed, kind in enumerate(("clean", "noisy"))}
    coarse = np.array(cifar100_coarse())
    return fine | {key.replace("_", "_coarse_"): coarse[labels].tolist() for key, labels in fine.items()}


@pytest.fixture
def root(tmp_path):
    torch.save(cifar10n(), tmp_path / "CIFAR-10_human.pt")
    torch.save(cifar100n(), tmp_path / "CIFAR-100_human.pt")
    return tmp_path


def test_every_set_of_labels(root):
    fine, coarse = cifar10n(), cifar100n()
    sets = [(name, 10, fine, "clean_label", key) for name, key in KEYS.items()]
    sets += [("fine", 100, coarse, "clean_label", "noisy_label")]
    sets += [("coarse", 20, coarse, "clean_coarse_label", "noisy_coarse_label")]
    for name, classes, content, clean, noisy in sets:
        corruption = corrupt(content[clean], f"human:{name}", num_classes=classes, seed=0, root=root)
        np.testing.assert_array_equal(corruption.labels, content[noisy])
        assert (corruption.labels.dtype, corruption.manifest.method) == (np.int64, "given")
        assert corruption.manifest.rate == (np.array(content[noisy]) != content[clean]).mean()
    text = f"human:worst@{root / 'CIFAR-10_human.pt'}"
    by_path = corrupt(torch.from_numpy(fine["clean_label"]), text, num_classes=10, seed=3)
    np.testing.assert_array_equal(by_path.labels, fine["worse_label"])
    assert by_path.manifest.spec == text


def numpy_1_pickle(content: dict[str, np.ndarray]) -> bytes:
    """The published files: protocol 2, with the module name that numpy had before version 2."""
    return pickle.dumps(content, protocol=2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def as_published(path, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")


def test_a_file_written_by_numpy_1_and_nothing_stays_allowed(tmp_path):
    content, before = cifar10n(), set(torch.serialization.get_safe_globals())
    data = numpy_1_pickle(content)
    assert b"numpy.core.multiarray" in data
    as_published(tmp_path / "a.pt", data)
    labels = human_labels(tmp_path / "a.pt", "worst", content["clean_label"])
    np.testing.assert_array_equal(labels, content["worse_label"])
    assert set(torch.serialization.get_safe_globals()) == before


def test_labels_and_names_that_do_not_belong_to_the_file(root):
    path, content = root / "CIFAR-10_human.pt", cifar10n()
    clean, noisy = content["clean_label"], content["worse_label"]
    wrong = np.append((clean[:3] + 1) % 10, clean[3:])
    differ, elsewhere = f"clean labels must be those of {str(path)!r}, 200 in the publisher's order; got", root / "else"

    def worst(clean, root):
        return corrupt(clean, "human:worst", num_classes=10, seed=0, root=root)

    all_refused(
        (ValueError, f"{differ} 3 that differ", lambda: human_labels(path, "worst", wrong)),
        (ValueError, f"{differ} 150", lambda: human_labels(path, "worst", clean[:150])),
        (ValueError, "must be one of aggregate, random1 ... 'worse_l", lambda: human_labels(path, "worse_l", clean)),
        (ValueError, "must hold 'noisy_label' ... 'worse_label'", lambda: human_labels(path, "fine", clean)),
        (FileNotFoundError, "must be a file ... else ... not there ... cifar-10-100n", lambda: worst(clean, elsewhere)),
    )
    for bad, ingredients in (
        (np.append(noisy[1:], 10), ("must be 0 to 9 with 10 classes", "CIFAR-10_human.pt", "got 10")),
        (noisy[:100], ("must hold as many 'worse_label' as 'clean_label'", "got 100 and 200")),
    ):
        torch.save(content | {"worse_label": bad}, path)
        with refused(ValueError, *ingredients):
            worst(clean, root)


LAYOUTS = (
    torch.save,
    functools.partial(torch.save, _use_new_zipfile_serialization=False),
    lambda content, path: as_published(path, numpy_1_pickle(content)),
    lambda content, path: path.write_bytes(pickle.dumps(content)),
)


@in_turn("write", LAYOUTS)
def test_a_malicious_file_runs_nothing(tmp_path, write):
    path, bomb = tmp_path / "CIFAR-10_human.pt", Bomb(tmp_path / "trace")
    hidden = cifar10n() | {"worse_label": np.array([bomb], dtype=object)}
    for content in (bomb, {"clean_label": bomb}, hidden):
        write(content, path)
        with refused(ValueError, "file of human labels must hold arrays of labels and nothing else", str(path)):
            human_labels(path, "worst", cifar10n()["clean_label"])
    assert not (tmp_path / "trace").exists()
    pickle.loads(pickle.dumps(bomb))  # or this would prove nothing
    assert (tmp_path / "trace").exists()


def test_damaged_files_of_human_labels(root):
    path, clean = root / "CIFAR-10_human.pt", cifar10n()["clean_label"]
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"no archive at all"):
        path.write_bytes(damaged)
        with refused(ValueError, "file of human labels must hold arrays", str(path), "was not read"):
            human_labels(path, "worst", clean)
    torch.save([1, 2], path)
    with refused(ValueError, "file of human labels must hold a dictionary", "got list"):
        human_labels(path, "worst", clean)
