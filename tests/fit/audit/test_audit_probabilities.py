"""Audits with probabilities of any model: against exact posteriors, in any type and block size, and what is refused."""

import csv
import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from data_helpers import save_image
from hostile_pickle import Bomb
from in_turn import in_turn
from refusals import all_refused, refused
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

import symloss
from symloss.fit.audit import scores
from symloss.noise import calibrate

SIZE, CLASSES = 3000, 4
NOISE = np.array([[0.8, 0.2, 0, 0], [0, 0.7, 0.3, 0], [0, 0, 0.9, 0.1], [0.2, 0.1, 0, 0.7]])
SYMMETRIC = np.full((CLASSES, CLASSES), 0.1) + 0.6 * np.eye(CLASSES)
NAMES = ["ant", "bee", "cat", "dog"]


def drawn(transition, seed=0):
    """True probabilities, mostly certain, with true classes and noisy labels drawn from them."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(SIZE, CLASSES)) * 1.5
    logits[np.arange(SIZE), random.integers(CLASSES, size=SIZE)] += 7
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    truth = (random.random((SIZE, 1)) > chances.cumsum(1)).sum(1).clip(max=CLASSES - 1)
    noisy = (random.random((SIZE, 1)) > transition[truth].cumsum(1)).sum(1).clip(max=CLASSES - 1)
    return chances, truth, noisy


def normalised(chances):
    return chances / chances.sum(1, keepdims=True)


@in_turn("power", [1, 3, 0.4])
@in_turn("transition", [NOISE, SYMMETRIC])
def test_scores_are_the_exact_posterior(transition, power):
    chances, truth, noisy = drawn(transition)
    joint = chances * transition[:, noisy].T
    exact = normalised(joint)[np.arange(SIZE), noisy]
    found = symloss.audit(noisy, normalised(chances**power), truth=truth)
    assert np.abs(found.label_scores - exact).mean() < 0.02
    assert found.transition == pytest.approx(transition, abs=0.05)
    wrong = truth != noisy
    assert abs(found.n_wrong - wrong.sum()) < 0.02 * SIZE
    assert found.n_wrong_interval[0] <= wrong.sum() <= found.n_wrong_interval[1]
    assert found.average_precision > average_precision_score(wrong, -exact) - 0.01
    assert (found.suggested == truth)[found.flagged & wrong].mean() > 0.95


def test_a_flagged_label_is_never_suggested_again():
    """Where classes overlap, many labels are a little doubtful, and the flagged ones may still be the most probable."""
    random = np.random.default_rng(0)
    chances = random.dirichlet([3.0] * CLASSES, SIZE)
    noisy = (random.random((SIZE, 1)) > chances.cumsum(1)).sum(1).clip(max=CLASSES - 1)
    found = symloss.audit(noisy, chances)
    assert found.flagged.any()
    assert (found.suggested != noisy)[found.flagged].all()


def test_without_noise_hardly_anything_is_flagged():
    chances, truth, _ = drawn(np.eye(CLASSES))
    found = symloss.audit(truth, chances)
    assert found.n_wrong < 0.01 * SIZE
    assert found.n_wrong_interval[0] == 0


def test_the_data_decide_between_noise_and_overlap():
    chances, truth, noisy = drawn(NOISE)
    learnt = np.log(normalised(np.exp(np.log(chances @ NOISE + 1e-3) / 2)))  # a model that has learnt the noise too
    scores, labels = torch.from_numpy(learnt), torch.from_numpy(noisy)
    wrong = (truth != noisy).mean()
    overlap, chosen = calibrate(scores, labels).noise_rate, calibrate(scores, labels, separation=None).noise_rate
    assert overlap < wrong - 0.1
    random = np.random.default_rng(0)
    doubt = random.uniform(0.05, 0.95, SIZE)
    hopeless = torch.from_numpy(np.log(np.stack([doubt, 1 - doubt], 1)))
    found = calibrate(hopeless, torch.from_numpy((random.random(SIZE) > doubt).astype(int)), separation=None)
    assert found.noise_rate < 0.1  # certain classes would make a fifth of the labels wrong
    assert abs(chosen - wrong) < 0.05
    uniform, truth, noisy = drawn(SYMMETRIC)
    scores, labels = torch.from_numpy(np.log(uniform)), torch.from_numpy(noisy)
    found = calibrate(scores, labels, separation=None)
    assert found.temperature == calibrate(scores, labels).temperature
    assert len(found.transition[~torch.eye(CLASSES, dtype=torch.bool)].unique()) == 1


def test_labels_and_probabilities_of_any_type(tmp_path):
    chances, _, noisy = (part[:600] for part in drawn(NOISE))
    expected = symloss.audit(noisy, chances)
    chances32 = chances.astype(np.float32)
    np.save(tmp_path / "p.npy", chances32)
    names = [NAMES[number] for number in noisy]
    calls = {
        "lists": lambda: symloss.audit(noisy.tolist(), chances.tolist()),
        "tensors": lambda: symloss.audit(torch.from_numpy(noisy), torch.from_numpy(chances32)),
        "memory-mapped": lambda: symloss.audit(noisy, np.load(tmp_path / "p.npy", mmap_mode="r")),
        "names": lambda: symloss.audit(names, chances),
        "Series": lambda: symloss.audit(pd.Series(names, dtype="category"), chances, class_names=NAMES),
        "DataFrame": lambda: symloss.audit(names, pd.DataFrame(chances[:, ::-1], columns=NAMES[::-1])),
        "from 1": lambda: symloss.audit(noisy + 1, chances),
    }
    for kind, call in calls.items():
        found = call()
        assert (found.flagged == expected.flagged).mean() > 0.995, kind
        assert found.n_wrong == pytest.approx(expected.n_wrong, abs=2), kind
    assert calls["names"]().class_names == tuple(NAMES)
    assert calls["DataFrame"]().class_names == tuple(NAMES[::-1])
    frame = calls["names"]().to_frame()
    assert frame["given"].tolist() == [names[row] for row in frame["row"]]
    assert len(repr(expected).splitlines()) <= scores.SHOWN + 2


def test_blocks_change_nothing(monkeypatch):
    chances, _, noisy = drawn(NOISE)
    whole = symloss.audit(noisy, chances)
    monkeypatch.setattr(scores, "BLOCK", 7 * CLASSES)
    parts = symloss.audit(noisy, chances)
    for name in ("label_scores", "suggested", "flagged", "most_probable"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name)), name


def test_what_is_no_probability_is_refused():
    chances, _, noisy = (part[:100] for part in drawn(NOISE))
    one, five = np.arange(100) == 7, normalised(chances[:, [0, 0, 1, 2, 3]])
    half, names = chances * (1 - 0.5 * one[:, None]), np.take(NAMES, noisy)
    all_refused(
        (ValueError, "sum to 1 ... row 7 (from 0) sums to 0.5", lambda: symloss.audit(noisy, half)),
        (ValueError, "row 7 (from 0) holds nan", lambda: symloss.audit(noisy, np.where(one[:, None], np.nan, chances))),
        (ValueError, "holds logits ... softmax", lambda: symloss.audit(noisy, 3 * np.log(chances) + 2)),
        (ValueError, "log-probabilities: pass np.exp", lambda: symloss.audit(noisy, np.log(chances))),
        (ValueError, "(4, 100) ... transposed: pass pred_probs.T", lambda: symloss.audit(noisy, chances.T)),
        (ValueError, "one row for each label", lambda: symloss.audit(noisy[:50], chances)),
        (ValueError, "at least two classes ... np.stack", lambda: symloss.audit(noisy % 2, chances[:, 0])),
        (ValueError, "at least two classes ... int64", lambda: symloss.audit(noisy, np.eye(4, dtype=int)[noisy])),
        (ValueError, "name 3 ... got 4 ... lacks columns", lambda: symloss.audit(noisy, normalised(chances[:, :3]))),
        (ValueError, "name 5 classes ... got 4 ... pass class_names", lambda: symloss.audit(names, five)),
        (ValueError, "4 different names", lambda: symloss.audit(noisy, chances, class_names=NAMES[:3])),
        (ValueError, "among the 4 classes ... 'emu'", lambda: symloss.audit(["emu"] * 100, chances, class_names=NAMES)),
    )  # fmt: skip


def test_probabilities_of_training_rows_and_useless_ones_are_warned_of():
    X, truth = load_digits(return_X_y=True)  # noqa: N806
    X, truth = X[:600], truth[:600]  # noqa: N806
    random = np.random.default_rng(0)
    noisy = np.where(random.random(600) < 0.3, random.integers(10, size=600), truth)
    forest = RandomForestClassifier(40, random_state=0)
    for labels in (truth, noisy):
        held_out = cross_val_predict(forest, X, labels, cv=3, method="predict_proba")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            symloss.audit(labels, held_out)
        with pytest.warns(UserWarning, match="pass out-of-fold probabilities"):
            symloss.audit(labels, forest.fit(X, labels).predict_proba(X))
    for useless in (np.full((600, 10), 0.1), np.roll(held_out, 1, axis=1), random.permutation(held_out)):
        with pytest.warns(UserWarning, match="no better than chance"):
            symloss.audit(noisy, useless)
    with pytest.warns(UserWarning, match="1 of the 11 classes have no label, such as '10'"):
        symloss.audit(noisy, np.pad(held_out, ((0, 0), (0, 1))))


def test_many_wrong_labels_of_overlapping_classes_are_warned_of():
    chances, truth, _ = drawn(np.eye(CLASSES))
    flat = normalised(chances**0.05)
    labels = np.where(
        np.random.default_rng(0).random(SIZE) < 0.6, np.random.default_rng(1).integers(4, size=SIZE), truth
    )
    random = np.random.default_rng(2).dirichlet(np.full(CLASSES, 5.0), SIZE)
    with pytest.warns(UserWarning, match="do not tell the classes apart"):
        symloss.audit(labels, normalised(flat * 0.2 + random))


@pytest.fixture
def workplace(tmp_path):
    """A table and a folder of images, with probabilities and labels of which some are wrong."""
    chances, truth, _ = (part[:120] for part in drawn(np.eye(CLASSES)))
    labels = np.where(np.arange(120) % 10 == 3, (truth + 1) % CLASSES, truth)
    chances = chances[order := np.argsort(labels, kind="stable")]
    labels = labels[order]
    np.save(tmp_path / "p.npy", chances)
    np.savez(tmp_path / "p.npz", pred_probs=chances.astype(np.float16))
    pd.DataFrame(chances, columns=NAMES).to_csv(tmp_path / "p.csv", index=False)
    pd.DataFrame(chances, columns=NAMES).to_parquet(tmp_path / "p.parquet")
    np.save(tmp_path / "labels.npy", labels)
    names = [NAMES[label] for label in labels]
    (tmp_path / "labels.txt").write_text("\n".join(names))
    pd.DataFrame({"text": [f"<b>{k}" for k in range(120)], "kind": names}).to_csv(tmp_path / "table.csv", index=False)
    files = []
    for number, name in enumerate(names):
        files.append(f"photos/{name}/{number:03}.png")
        save_image(tmp_path / files[-1], np.full((8, 8, 3), number, np.uint8))
    (tmp_path / "files.txt").write_text("\n".join(files))
    return tmp_path, truth[order], names


def lines(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_is_audited_listed_and_corrected(ends, workplace):
    folder, truth, names = workplace
    own = ["--labels", "table.csv", "--label", "kind", "--out", "out"]
    told = json.loads(ends(0, folder, "audit", *own, "--pred-probs", "p.npy", "--top", "2", "--json"))
    assert told["files"] == ["out/audit.csv", "out/audit.html"]
    assert told["n_wrong"] == pytest.approx(12, abs=3)
    kept = lines(folder / "out" / "audit.csv")
    assert [row["given_label"] for row in kept] == names
    assert "&lt;b&gt;" in (page := (folder / "out" / "audit.html").read_text()) or "<b>" not in page
    again = json.loads(ends(0, folder, "audit", "out", "--top", "2", "--json"))
    assert {**again, "files": told["files"]} == told
    assert "already; add `--overwrite`" in ends(2, folder, "audit", *own, "--pred-probs", "p.npy")
    before = (folder / "table.csv").read_bytes()
    ends(0, folder, "audit", "out", "--apply", "--all")
    assert (folder / "table.csv").read_bytes() == before
    changed = [row["kind"] for row in lines(folder / "out" / "table-corrected.csv")]
    true = [NAMES[label] for label in truth]
    assert sum(a != b for a, b in zip(changed, true, strict=True)) < sum(
        a != b for a, b in zip(names, true, strict=True)
    )
    (folder / "table.csv").write_bytes(before.replace(b"<b>0", b"<b>x"))
    assert "has changed since the audit" in ends(2, folder, "audit", "out", "--apply", "--all", "--overwrite")


def test_images_and_other_formats(ends, workplace):
    folder, _, names = workplace
    own = ["--pred-probs", "p.parquet", "--labels", "labels.txt", "--items", "photos", "--out", "out"]
    ends(0, folder, "audit", *own)
    assert [row["file"].split("/")[0] for row in lines(folder / "out" / "audit.csv")] == names
    ends(0, folder, "audit", "out", "--apply", "--all")
    moves = lines(folder / "out" / "moves.csv")
    assert moves
    assert all((folder / "photos" / move["file"]).exists() for move in moves)
    for extra in (
        ["--labels", "labels.npy", "--pred-probs", "p.npz", "--class-names", ",".join(NAMES), "--items", "files.txt"],
        ["--labels", "labels.txt", "--pred-probs", "p.csv"],
    ):
        ends(0, folder, "audit", *extra, "--out", "out", "--overwrite")
        assert [row["given_label"] for row in lines(folder / "out" / "audit.csv")] == names
    assert "`--apply` needs the labelled items" in ends(2, folder, "audit", "out", "--apply", "--all")


def test_wrong_files_and_mixtures_are_refused(ends, workplace):
    folder, _, names = workplace
    np.savez(folder / "objects.npz", labels=np.array([Bomb(folder / "harm"), []], dtype=object))
    (folder / "short.txt").write_text("files/none.png\n")
    pd.DataFrame({"label": names[::-1]}).to_csv(folder / "turned.csv", index=False)
    own = ["--labels", "labels.txt", "--pred-probs", "p.npy", "--out", "out"]
    for message, words in {
        "Pass the folder of a `train` or `fit`, or `--labels`, `--pred-probs` and `--out`.": own[:2],
        "`--labels` does not apply to the folder of a run": ["out", *own],
        "`--apply` needs an audit that exists": [*own, "--apply", "--all"],
        "must hold a NumPy array of numbers or text": ["--labels", "objects.npz", *own[2:]],
        "must be an existing file; got 'none.txt'": ["--labels", "none.txt", *own[2:]],
        "must end in .npy, .npz, .csv, .tsv, .parquet": [*own[:2], "--pred-probs", "labels.txt", *own[4:]],
        "must have one item for each label; got 1 items and 120 labels": [*own, "--items", "short.txt"],
        "must hold the labels in the same order; item 1 has": [*own, "--items", "turned.csv"],
    }.items():
        assert message in ends(2, folder, "audit", *words), message
    assert not (folder / "out").exists()
    assert not (folder / "harm").exists()
    with refused(ValueError, "positions must be whole numbers"):
        symloss.audit([0, 1], [[0.9, 0.1], [0.2, 0.8]], positions=[0.5, 1])
