"""The manifest says what happened; saved files come back bit for bit or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import struct

import numpy as np
import pytest
from in_turn import in_turn
from noise_helpers import some_labels, transitions
from refusals import refused

import symloss
from symloss.noise import corrupt, load_corruption

CLASSES = 6


def example(seed=4, **options):
    return corrupt(some_labels(500, CLASSES), "sym:0.4", num_classes=CLASSES, seed=seed, **options)


def digest(labels) -> str:
    return hashlib.sha256(b"".join(struct.pack("<q", label) for label in labels)).hexdigest()


@in_turn("counts", ["floor", "exact", "sampled"])
def test_what_it_says(counts):
    corruption = example(counts=counts, split="before")
    manifest, clean = corruption.manifest, some_labels(500, CLASSES)
    table = transitions(clean, corruption.labels, CLASSES)
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
        assert actual.dtype == np.int64
        assert actual.tobytes() == expected.tobytes()
    assert loaded.manifest == corruption.manifest
    names = ["noise.json", "noise.npz"]
    assert sorted(file.name for file in folder.iterdir()) == names
    assert [(folder / name).read_bytes() for name in names] == [(again / name).read_bytes() for name in names]
    # The document is for people, too.
    document, manifest = json.loads((folder / "noise.json").read_text()), corruption.manifest
    assert document["rate"] == manifest.rate
    assert all(document[name] == getattr(manifest, name).tolist() for name in ("rates", "class_counts"))
    with np.load(folder / "noise.npz", allow_pickle=False) as arrays:
        assert document["transitions"] == arrays["counts"].tolist() == manifest.counts.tolist()


def test_a_failure_while_writing_leaves_the_old_files(tmp_path, monkeypatch):
    example(seed=1).save(tmp_path)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
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
    labels, clean = corruption.labels, corruption.clean
    one_more = np.eye(1, len(labels), 7, dtype=np.int64)[0]
    for found, true, differ in (
        ((labels + one_more) % CLASSES, clean, "noisy_sha256"),
        (labels, (clean + one_more) % CLASSES, "clean_sha256"),
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
    one, none, saved = np.array([0]), np.array([{}], dtype=object), "folder must hold a saved corruption ... without"
    with refused(FileNotFoundError, *f"{saved} noise.json".split(" ... ")):
        load_corruption(tmp_path)
    example().save(tmp_path)
    (tmp_path / "noise.npz").unlink()
    with refused(FileNotFoundError, *f"{saved} noise.npz".split(" ... ")):
        load_corruption(tmp_path)
    for labels, clean, *ingredients in (
        (one, np.arange(2), "must hold as many labels as clean", "got 1 and 2"),
        (none, one, "must hold the arrays labels and clean", "damaged"),
    ):
        np.savez(tmp_path / "noise.npz", labels=labels, clean=clean)
        with refused(ValueError, *ingredients):
            load_corruption(tmp_path)
    (tmp_path / "noise.json").write_text("[]")
    with refused(ValueError, "must hold spec, method, seed, num_classes, split, version", "another document"):
        load_corruption(tmp_path)
