"""Manifests of corrupted labels and targets say what happened; saved files come back bit for bit or not at all.

Targets of regression are replaced by draws (definition F.1).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from in_turn import in_turn
from refusals import refused
from scipy import stats
from sklearn.metrics import confusion_matrix
from torch import distributions as D  # noqa: N812

import symloss
from symloss.noise import corrupt, corrupt_targets, load_corruption, load_target_corruption

CLASSES = 6
CLEAN = np.random.default_rng(0).choice(CLASSES, 500, p=np.arange(1, 7) / 21)  # unbalanced, in no order


def example(seed=4, **options):
    return corrupt(CLEAN, "sym:0.4", num_classes=CLASSES, seed=seed, **options)


def digest(labels) -> str:
    return hashlib.sha256(b"".join(struct.pack("<q", label) for label in labels)).hexdigest()


@in_turn("counts", ["floor", "exact", "sampled"])
def test_what_it_says(counts):
    corruption = example(counts=counts, split="before")
    manifest, clean = corruption.manifest, CLEAN
    table = confusion_matrix(clean, corruption.labels)
    np.testing.assert_array_equal(corruption.clean, clean)
    np.testing.assert_array_equal(corruption.flipped, corruption.labels != clean)
    np.testing.assert_array_equal(manifest.counts, table)
    assert manifest.counts.dtype == np.int64
    np.testing.assert_allclose(manifest.rates, table / table.sum(1, keepdims=True))
    assert manifest.class_counts.tolist() == [int((clean == label).sum()) for label in range(CLASSES)]
    assert manifest.flipped == (corruption.labels != clean).sum()
    assert manifest.rate == (corruption.labels != clean).mean()
    assert (manifest.spec, manifest.method, manifest.seed, manifest.split) == ("sym:0.4", counts, 4, "before")
    assert (manifest.num_classes, manifest.size, manifest.version) == (CLASSES, 500, symloss.__version__)
    assert (manifest.clean_sha256, manifest.noisy_sha256) == (digest(clean), digest(corruption.labels))


@in_turn("split", [None, "before", "after"])
def test_saved_and_loaded(tmp_path, split):
    corruption = example(split=split)
    folder, again = tmp_path / "new" / "folder", tmp_path / "again"
    for each in (folder, again):
        example(seed=1).save(each)  # is replaced
        corruption.save(each)
    loaded = load_corruption(folder)
    for actual, expected in ((loaded.labels, corruption.labels), (loaded.clean, corruption.clean)):
        assert (actual.dtype, actual.tobytes()) == (np.int64, expected.tobytes())
    assert loaded.manifest == corruption.manifest
    files, same = ({file.name: file.read_bytes() for file in each.iterdir()} for each in (folder, again))
    assert sorted(files) == ["noise.json", "noise.npz"]
    assert files == same
    # The document is for people, too.
    document, manifest = json.loads((folder / "noise.json").read_text()), corruption.manifest
    assert document["rate"] == manifest.rate
    assert all(document[name] == getattr(manifest, name).tolist() for name in ("rates", "class_counts"))
    with np.load(folder / "noise.npz", allow_pickle=False) as arrays:
        assert document["transitions"] == arrays["counts"].tolist() == manifest.counts.tolist()


def test_a_failure_while_writing_leaves_the_old_files(tmp_path, monkeypatch):
    example(seed=1).save(tmp_path)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        example(seed=2).save(tmp_path)
    assert load_corruption(tmp_path).manifest.seed == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_edited_documents_and_labels_and_those_of_another_corruption(tmp_path):
    corruption, other, path = example(), example(seed=2), tmp_path / "noise.json"
    for name in ("spec", "method", "seed", "num_classes", "split", "version", "transitions", "rate"):
        corruption.save(tmp_path)
        path.write_text(json.dumps(json.loads(path.read_text()) | {name: "before" if name == "split" else 3}))
        with refused(ValueError, str(path), "must be as it was written", "does not match its sha256"):
            load_corruption(tmp_path)
    corruption.save(tmp_path)
    labels, clean, one = corruption.labels, corruption.clean, np.eye(1, 500, 7, dtype=np.int64)[0]
    for found, true, differ in (
        ((labels + one) % CLASSES, clean, "noisy_sha256"),
        (labels, (clean + one) % CLASSES, "clean_sha256"),
        (labels[::-1], clean[::-1], "clean_sha256, noisy_sha256"),  # with the same counts
        (other.labels, clean, "noisy_sha256"),
    ):
        np.savez(tmp_path / "noise.npz", labels=found, clean=true)
        with refused(ValueError, "noise.json and noise.npz", "must belong together", "differ in", differ):
            load_corruption(tmp_path)


def test_truncated_files_and_a_flipped_bit_anywhere_in_the_labels(tmp_path):
    for name in ("noise.json", "noise.npz"):
        example().save(tmp_path)
        path = tmp_path / name
        whole = path.read_bytes()
        for share in (0, 0.01, 0.5, 0.9, 0.99):
            path.write_bytes(whole[: int(share * len(whole))])
            with refused(ValueError, str(path), "damaged"):
                load_corruption(tmp_path)
    example().save(tmp_path)
    for position in range(60, len(whole) // 3, 23):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        path.write_bytes(damaged)
        try:
            loaded = load_corruption(tmp_path)
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:  # a byte that the archive does not use
            np.testing.assert_array_equal(loaded.labels, example().labels)


def test_other_files(tmp_path):
    for missing in ("noise.npz", "noise.json"):
        example().save(tmp_path)
        (tmp_path / missing).unlink()
        with refused(FileNotFoundError, "folder must hold a saved corruption", f"without {missing}"):
            load_corruption(tmp_path)
    example().save(tmp_path)
    one = np.array([0])
    for labels, clean, *ingredients in (
        (one, np.arange(2), "must hold as many labels as clean", "got 1 and 2"),
        (np.array([{}]), one, "must hold the arrays labels and clean", "damaged"),
    ):
        np.savez(tmp_path / "noise.npz", labels=labels, clean=clean)
        with refused(ValueError, *ingredients):
            load_corruption(tmp_path)
    (tmp_path / "noise.json").write_text("[]")
    with refused(ValueError, "must hold spec, method, seed, num_classes, split, version", "another document"):
        load_corruption(tmp_path)


Y = np.random.default_rng(0).normal(size=4000)
X = torch.linspace(-1, 1, 4000, dtype=torch.float64)


def some_targets(seed=3, rate=0.4):
    return corrupt_targets(Y[:500], rate, D.Normal(5.0, 2.0), seed=seed)


def q_of_x(x):
    return D.Normal(5 - 4 * x, 0.5 + x.abs())


DISTRIBUTIONS = {
    "normal": (D.Normal(5.0, 2.0), stats.norm(5, 2).cdf),
    "uniform": (D.Uniform(-3.0, 1.0), stats.uniform(-3, 4).cdf),
    "no expand": (
        type("Own", (D.Distribution,), {"sample": lambda _, shape: 3 * torch.rand(shape), "arg_constraints": {}})(),
        stats.uniform(0, 3).cdf,
    ),
    "batch": (D.Normal(torch.full((4000,), 5.0), 2.0), stats.norm(5, 2).cdf),
    "batch of one": (D.Normal(torch.full((1,), 5.0), 2.0), stats.norm(5, 2).cdf),
}


@in_turn("name", DISTRIBUTIONS)
def test_definition_f_1_replaced_targets_are_independent_draws(name):
    q, cdf = DISTRIBUTIONS[name]
    noisy = corrupt_targets(Y, 0.7, q, seed=1)
    assert stats.binomtest(int(noisy.replaced.sum()), 4000, 0.7).pvalue > 0.01
    np.testing.assert_array_equal(noisy.targets[~noisy.replaced], Y[~noisy.replaced])
    drawn = noisy.targets[noisy.replaced]
    assert len(np.unique(drawn)) > 0.99 * len(drawn)
    assert stats.kstest(drawn, cdf).pvalue > 0.01
    # Which are replaced says nothing about the target.
    assert stats.ks_2samp(Y[noisy.replaced], Y[~noisy.replaced]).pvalue > 0.01


@in_turn("seed", [1, 2])
def test_definition_f_1_with_a_distribution_that_depends_on_x(seed):
    noisy = corrupt_targets(Y, 0.5, q_of_x, X, seed=seed)
    x, mask = X.numpy(), noisy.replaced
    standard = (noisy.targets - (5 - 4 * x)) / (0.5 + abs(x))
    assert stats.kstest(standard[mask], stats.norm().cdf).pvalue > 0.01
    mixture = 0.5 * stats.norm(5 - 4 * x, 0.5 + abs(x)).cdf(noisy.targets) + 0.5 * stats.norm().cdf(noisy.targets)
    assert stats.kstest(mixture, stats.uniform().cdf).pvalue > 0.01
    assert noisy.manifest.distribution.startswith("q_of_x of x: Normal(loc: torch.Size([4000])")


def test_a_sample_is_drawn_with_replacement():
    noisy = corrupt_targets(Y, 0.9, [7.0, 8.0, 8.5], seed=0)
    values, counts = np.unique(noisy.targets[noisy.replaced], return_counts=True)
    assert values.tolist() == [7.0, 8.0, 8.5]
    assert stats.chisquare(counts).pvalue > 0.01
    assert hashlib.sha256(struct.pack("<3d", 7, 8, 8.5)).hexdigest() in noisy.manifest.distribution
    by_x = corrupt_targets(Y, 0.9, lambda x: torch.tensor([7.0, 8.0, 8.5]) + 0 * x[0], X, seed=0)
    np.testing.assert_array_equal(by_x.targets, noisy.targets)


def test_the_same_arguments_give_the_same_targets_and_no_global_state_is_touched():
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = some_targets()
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])
    torch.rand(7)
    np.testing.assert_array_equal(some_targets().targets, first.targets)
    assert (some_targets(seed=4).targets != first.targets).any()
    assert (some_targets(seed=4).replaced != first.replaced).any()
    # A higher rate replaces the same targets and more.
    low, high, none = some_targets(rate=0.2), some_targets(rate=0.6), some_targets(rate=0)
    assert high.replaced[low.replaced].all()
    np.testing.assert_array_equal(high.targets[low.replaced], low.targets[low.replaced])
    np.testing.assert_array_equal(none.targets, Y[:500])


@in_turn("shape", [(40, 3), (5, 4, 6)])
def test_targets_of_any_kind_and_shape(shape):
    y = np.arange(120.0).reshape(shape)
    column = D.Normal(torch.full((shape[-1],), 1000.0), 1.0)
    expected = corrupt_targets(y, 0.5, column, seed=0)
    assert (expected.targets.shape, expected.targets.dtype) == (shape, np.float64)
    assert len(np.unique(expected.targets)) == 120
    for kind in (y.astype(np.float32), y.astype(int), y.tolist(), torch.from_numpy(y).bfloat16(), torch.from_numpy(y)):
        np.testing.assert_array_equal(corrupt_targets(kind, 0.5, column, seed=np.int64(0)).targets, expected.targets)


def test_what_the_manifest_says_saved_loaded_and_applied_again(tmp_path):
    noisy, folder = some_targets(), tmp_path / "new" / "folder"
    manifest = noisy.manifest
    assert (manifest.rate, manifest.seed, manifest.version) == (0.4, 3, symloss.__version__)
    assert (manifest.distribution, manifest.shape) == ("Normal(loc: 5.0, scale: 2.0)", (500,))
    assert manifest.replaced == (noisy.targets != Y[:500]).sum() == 500 * manifest.share
    for digest, array in ((manifest.clean_sha256, Y[:500]), (manifest.noisy_sha256, noisy.targets)):
        assert digest == hashlib.sha256(struct.pack("<500d", *array)).hexdigest()
    noisy.save(folder)
    assert sorted(file.name for file in folder.iterdir()) == ["targets.json", "targets.npz"]
    loaded = load_target_corruption(folder)
    for name in ("targets", "clean", "replaced"):
        assert getattr(loaded, name).tobytes() == getattr(noisy, name).tobytes()
    again = corrupt_targets(loaded.clean, loaded.manifest.rate, D.Normal(5.0, 2.0), seed=loaded.manifest.seed)
    assert loaded.manifest == again.manifest == manifest


def test_edited_and_other_files(tmp_path):
    noisy, path, document = some_targets(), tmp_path / "targets.npz", tmp_path / "targets.json"
    noisy.save(tmp_path)
    document.write_text(json.dumps(json.loads(document.read_text()) | {"rate": 1}))
    with refused(ValueError, str(document), "must be as it was written", "does not match its sha256"):
        load_target_corruption(tmp_path)
    noisy.save(tmp_path)
    good = {name: getattr(noisy, name) for name in ("targets", "clean", "replaced")}
    for change, *ingredients in (
        ({"targets": noisy.targets[:2]}, str(path), "one shape"),
        ({"replaced": np.zeros(500)}, str(path), "one shape"),
        ({"clean": np.full(500, {}, dtype=object)}, str(path), "targets, clean and replaced", "damaged"),
        ({"clean": np.full(500, np.nan)}, "clean", "finite"),
        ({"targets": noisy.targets[::-1]}, "targets.json and targets.npz", "must belong together", "noisy_sha256"),
        ({"clean": noisy.clean[::-1]}, "must belong together", "differ in", "clean_sha256"),
        ({"replaced": ~noisy.replaced}, "must belong together", "differ in", "replaced_sha256"),
    ):
        np.savez(path, **(good | change))
        with refused(ValueError, *ingredients):
            load_target_corruption(tmp_path)


@in_turn(
    "change, exception, ingredients",
    [
        *(({"rate": rate}, ValueError, ("rate", "[0, 1)", rate)) for rate in (-0.1, 1, 1.5, np.nan)),
        ({"seed": -1}, ValueError, ("seed", "[0, inf)", -1)),
        *(({"y": bad}, TypeError, ("y must",)) for bad in (["a"], [True], [1j], [[1.0], [1.0, 2.0]], None)),
        *(({"y": bad}, ValueError, ("y", "(N,)", "at least one target")) for bad in (1.0, [])),
        ({"y": [1.0, np.nan]}, ValueError, ("y", "finite")),
        ({"distribution": "normal"}, TypeError, ("distribution must be a torch distribution", "'normal'")),
        ({"distribution": q_of_x}, TypeError, ("x must be given",)),
        ({"distribution": lambda x: 3, "x": X}, TypeError, ("distribution(x) must be", "3")),
        ({"distribution": D.Normal(torch.zeros(7), 1.0)}, ValueError, ("distribution", "batch", "(4000,)", "(7,)")),
        ({"distribution": D.Dirichlet(torch.ones(2))}, ValueError, ("single numbers", "(2,)")),
        ({"distribution": D.LogNormal(200.0, 1.0)}, ValueError, ("must draw finite targets", "LogNormal")),
    ],
)
def test_bad_targets(change, exception, ingredients):
    with refused(exception, *ingredients):
        corrupt_targets(**{"y": Y, "rate": 0.5, "distribution": D.Normal(0.0, 1.0), "seed": 0} | change)
