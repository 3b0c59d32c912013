"""``symloss audit`` as it is used: on digits, on a table, on a folder of images."""

import csv
import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from browsing import data_of
from data_helpers import save_image
from in_turn import in_turn
from refusals import refused
from sklearn.metrics import average_precision_score

from symloss.experiments import resolve
from symloss.fit import audit_run, corrections, count_wrong
from symloss.fit.audit import models
from symloss.training import train
from symloss.training.margins import read_margins
from symloss.training.task import prepare

OWN = {"epochs": 12, "model": "mlp:hidden=16", "lr": 0.1, "batch": 16}


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run on digits with wrong labels that are known."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    settings = resolve("digits", "alpha-mae", noise="pair:0.3", epochs=15, subset=600)
    train(settings, folder, accelerator="cpu")
    return folder, settings


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A table and a folder of images with two classes that are easy to tell apart and some wrong labels; a run each."""
    folder, random = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    classes, wrong = np.arange(80) % 2, np.arange(80) % 9 == 4
    features = classes[:, None] * 4 + random.normal(size=(80, 3))
    names = np.array(["=cat", "dog"])[np.where(wrong, 1 - classes, classes)]
    lines = [f"{a:.3f},{b:.3f},{c:.3f},{name}" for (a, b, c), name in zip(features, names, strict=True)]
    (folder / "table.csv").write_text("\n".join(["a,b,c,kind", *lines, "1,1,1,", ""]))
    for number, (name, bright) in enumerate(zip(names, classes, strict=True)):
        image = np.full((8, 8, 3), 60 + 120 * bright, np.uint8) + random.integers(0, 40, (8, 8, 3), dtype=np.uint8)
        save_image(folder / "photos" / name / f"{number if number % 4 else number // 4}.png", image)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.warns(UserWarning, match="left out"):
            train(resolve("table.csv", "gce", label="kind", skip_bad=True, **OWN), "of-table", skip_bad=True)
        train(resolve("photos", "gce", augment="none", **OWN), "of-photos")
    return folder, wrong


@pytest.fixture
def workplace(own, tmp_path):
    """A copy, so that tests do not see each other's files."""
    shutil.copytree(own[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_ranking_count_and_measures_of_a_run(digits, ends, tmp_path):
    folder, settings = digits
    told = ends(0, tmp_path, "audit", str(folder), "--out", "new/out", "--top", "4", "--json")
    found, task, kept = json.loads(told), prepare(settings), read_margins(folder)
    wrong = (task.train.labels != task.clean).numpy()
    assert found["labels"] == len(wrong) == 540
    assert found["really_wrong"] == wrong.sum()
    assert found["average_precision"] == pytest.approx(average_precision_score(wrong, -kept.margin))
    assert found["average_precision"] > 0.9
    low, high = found["n_wrong_interval"]
    assert low <= wrong.sum() <= high
    flagged = np.zeros(len(wrong), bool)
    flagged[np.argsort(kept.margin)[: found["n_wrong"]]] = True
    assert found["precision"] == pytest.approx((flagged & wrong).sum() / found["n_wrong"])
    assert found["recall"] == pytest.approx((flagged & wrong).sum() / wrong.sum())
    assert [row["index"] for row in found["top"]] == kept.positions[np.argsort(kept.margin)[:4]].tolist()
    table = rows(tmp_path / "new" / "out" / "audit.csv")
    assert list(table[0]) == ["index", "is_label_issue", "label_score", "given_label", "predicted_label"]
    assert [int(row["index"]) for row in table] == kept.positions.tolist()
    assert [row["is_label_issue"] == "True" for row in table] == flagged.tolist()
    assert [int(row["given_label"]) for row in table] == task.train.labels.tolist()
    probabilities = np.load(tmp_path / "new" / "out" / "pred_probs.npy")
    assert probabilities.shape == (540, 10)
    assert np.allclose(probabilities.sum(1), 1)
    for row, chances, flag in zip(table, probabilities, flagged, strict=True):
        chances[int(row["given_label"])] *= not flag
        assert int(row["predicted_label"]) == chances.argmax()
    assert found["files"] == [f"new/out/{name}" for name in ("audit.csv", "pred_probs.npy", "audit.html")]
    page = data_of((tmp_path / "new" / "out" / "audit.html").read_text())
    assert len(list(filter(None, page["picture"]))) == len(page["index"]) == found["n_wrong"]
    assert all(len(examples["picture"]) == 3 for examples in page["typical"].values())
    verdict, truth, *lines = ends(0, tmp_path, "audit", str(folder), "--out", ".", "--top", "3").splitlines()
    assert re.search(r"labels look wrong \(.*95 % interval", verdict)
    assert "average precision 0.9" in truth
    assert lines[0].split() == ["example", "given", "suggested", "score"]
    assert len(lines) == 4
    assert ends(0, tmp_path, "audit", str(folder), "--out", ".", "--top", "0").splitlines() == [verdict, truth]


def test_the_truth_is_never_looked_at(digits, monkeypatch):
    honest = audit_run(digits[0]).audit

    def corrupted(*arguments):
        task = prepare(*arguments)
        return dataclasses.replace(task, clean=(task.clean + 3) % 10)

    monkeypatch.setattr(models, "prepare", corrupted)
    misled = audit_run(digits[0]).audit
    for name in ("given", "suggested", "label_scores", "flagged", "n_wrong", "n_wrong_interval", "pred_probs"):
        assert np.array_equal(getattr(honest, name), getattr(misled, name))
    assert misled.recall < honest.recall


def test_runs_that_cannot_be_audited_are_refused(digits, tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("a,label\n1,x\n")
    for path, cause in ((tmp_path, "."), (tmp_path / "x", ", which does not exist."), (file, ", which is a file.")):
        with refused(ValueError, f"No run found in {str(path)!r}{cause} Expected the folder of a", "`symloss fit`"):
            audit_run(path)
    folder = shutil.copytree(digits[0], tmp_path / "run")
    np.savez(folder / "margins.npz", positions=np.arange(2), margin=np.ones(2), unit_margin=np.ones(2), epochs=3)
    with refused(ValueError, "margins.npz must hold the examples of the run; got 2 others"):
        audit_run(folder)
    (folder / "margins.npz").unlink()
    with refused(ValueError, f"{folder} is damaged: margins.npz is missing; train again"):
        audit_run(folder)
    document = json.loads((folder / "noise.json").read_text())
    (folder / "noise.json").write_text(json.dumps(document | {"noisy_sha256": "0"}))
    with refused(ValueError, "digits must have the labels that", "was trained on; got others"):
        audit_run(folder)
    (folder / "result.json").unlink()
    with refused(ValueError, f"The run in {str(folder)!r} is not finished. Rerun the command"):
        audit_run(folder)


@in_turn("clean, used", [(True, 1), (False, 3)])
def test_held_out_labels_that_are_true_do_not_count(tmp_path, monkeypatch, clean, used):
    settings = resolve("digits", "ce", noise="sym:0.6", epochs=1, subset=300, clean_validation=clean)
    train(settings, tmp_path / "run", accelerator="cpu")
    asked = []
    monkeypatch.setattr(models, "count_wrong", lambda *about: asked.append(len(about)) or count_wrong(*about))
    audit_run(tmp_path / "run")
    assert asked == [used]


def test_a_table_gets_a_corrected_copy_and_stays_as_it_was(workplace, own, ends):
    command = ("audit", "of-table", "--skip-bad")
    for chosen, got in ((), "neither"), (("--all", "--above", "0.5"), "--above and --all"):
        told = ends(2, workplace, *command, "--apply", *chosen)
        assert re.search(f"--apply needs one of --decisions FILE.*got {got}", told)
        assert not (workplace / "of-table" / "table-corrected.csv").exists()
    before = (workplace / "table.csv").read_bytes()
    ends(0, workplace, *command, "--apply", "--all", "--json")
    assert (workplace / "table.csv").read_bytes() == before
    names = ("of-table/audit.csv", "table.csv", "of-table/table-corrected.csv")
    audit, old, new = (rows(workplace / name) for name in names)
    suspects = [row for row in audit if row["is_label_issue"] == "True"]
    flagged = {int(row["row"]) - 2: row["predicted_label"].lstrip("'") for row in suspects}
    assert flagged
    for number, (one, other) in enumerate(zip(old, new, strict=True)):
        assert other == one | ({"kind": flagged[number]} if number in flagged else {})
    wrong = set(np.flatnonzero(own[1]).tolist())
    assert len(wrong & set(flagged)) >= 0.8 * len(flagged)
    page = data_of((workplace / "of-table" / "audit.html").read_text())
    assert (sorted(row - 2 for row in page["row"]), page["columns"]) == (sorted(flagged), ["a", "b", "c"])
    again = ends(2, workplace, *command, "--apply", "--all")
    assert "of-table/table-corrected.csv exists already; add `--overwrite` to replace it." in again
    # Only what was accepted is changed. A class that looks like a formula is quoted on the page.
    accepted, rejected = read_margins(workplace / "of-table").positions[:2].tolist()
    other, ignored = ("dog" if old[row]["kind"] == "=cat" else "=cat" for row in (accepted, rejected))
    quoted, ignored = (name.replace("=", "'=") for name in (other, ignored))
    (workplace / "decided.csv").write_text(
        "index,row,given_label,corrected_label,decision\n"
        f"{accepted},{accepted},?,{quoted},accepted\n{rejected},{rejected},?,{ignored},rejected\n"
    )
    decided = (*command, "--decisions", "decided.csv")
    assert ends(2, workplace, *decided) == "symloss: `--decisions` requires `--apply`.\n"
    ends(0, workplace, *decided, "--apply", "--overwrite")
    new = rows(workplace / "of-table" / "table-corrected.csv")
    assert [number for number, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]] == [accepted]
    assert new[accepted]["kind"] == other


@in_turn(
    "line, message",
    [
        ("7,dog,maybe", "decision in line 2 of {} must be one of 'accepted', 'rejected', 'relabelled'"),
        ("x,dog,accepted", "index in line 2 of {} must be an example of the audit; got 'x'"),
        ("4000,dog,accepted", "index in line 2 of {} must be an example of the audit; got '4000'"),
        ("{first},bird,accepted", "corrected_label in line 2 of {} must be a class; got 'bird'"),
    ],
)
def test_decisions_that_are_none_are_refused(digits, tmp_path, line, message):
    audit = audit_run(digits[0]).audit
    path = tmp_path / "decisions.csv"
    path.write_text(f"index,corrected_label,decision\n{line.format(first=audit.positions[0])}\n")
    with refused(ValueError, message.format(path)):
        corrections(audit, path)
    path.write_bytes(b"index\n\xff")
    with refused(ValueError, "decisions must be a CSV that the page wrote", "decisions.csv"):
        corrections(audit, path)
    with refused(FileNotFoundError, "decisions must be a CSV that the page wrote; got no file"):
        corrections(audit, tmp_path / "none.csv")


def test_a_folder_of_images_gets_a_list_of_moves_and_stays_as_it_was(workplace, own, ends):
    def files():
        return {path: path.read_bytes() for path in (workplace / "photos").rglob("*.png")}

    before = files()
    ends(0, workplace, "audit", "of-photos", "--apply", "--all")
    assert files() == before
    audit, moves = rows(workplace / "of-photos" / "audit.csv"), rows(workplace / "of-photos" / "moves.csv")
    flagged = {row["file"]: row["predicted_label"] for row in audit if row["is_label_issue"] == "True"}
    assert [move["file"] for move in moves] == list(flagged)
    for move in moves:
        assert (workplace / "photos" / move["file"].lstrip("'")).is_file()
        assert not (workplace / "photos" / move["new_file"].lstrip("'")).exists()
        assert Path(move["new_file"]).parts[0] == flagged[move["file"]]
    assert {"index", "file", "given_label"} <= set(audit[0])


@in_turn("run", ["of-table", "of-photos"])
def test_decisions_of_several_people_are_merged(workplace, ends, run):
    """What all agree on is applied, unusable examples are left out, and a conflict is listed and changes nothing."""
    ends(0, workplace, "audit", run, "--skip-bad")
    labels = rows(workplace / run / "audit.csv")[:5]
    right = ["dog" if row["given_label"] == "'=cat" else "'=cat" for row in labels]
    given = [row["given_label"] for row in labels]
    votes = {
        "ann": [(0, right[0], "accepted", ""), (1, right[1], "relabelled", ""), (2, right[2], "accepted", "")],
        "ben": [
            (0, "", "unsure", "Ben"), (1, right[1], "accepted", "Ben"), (2, "", "unusable", "Ben"),
            (2, given[2], "rejected", "Ben"), (3, "", "unusable", "Ben"), (4, "", "unsure", "Ben"),
        ],
    }  # fmt: skip
    for name, lines in votes.items():
        text = "".join(f"{labels[place]['index']},{','.join(more)}\n" for place, *more in lines)
        (workplace / f"{name}.csv").write_text("index,corrected_label,decision,annotator\n" + text)
    command = ("audit", run, "--skip-bad", "--apply", "--decisions", "ann.csv", "--decisions", "ben.csv")
    told = ends(0, workplace, *command)
    assert "2 labels are changed." in told
    assert "Unusable examples that are left out: 1." in told
    name = labels[2].get("file", "").lstrip("'") or f"row {labels[2]['row']}"
    old, new = given[2].lstrip("'"), right[2].lstrip("'")
    assert f"because people contradict each other: 1.\n  {name}, {old}: ann: {new}, Ben: {old}\n" in told
    found = json.loads(ends(0, workplace, *command, "--overwrite", "--json"))
    assert found["unusable"] == [int(labels[3]["index"])]
    decided = [{"annotator": "ann", "decision": "accepted", "label": new}]
    decided += [{"annotator": "Ben", "decision": "rejected", "label": old}]
    assert found["conflicts"] == [
        {"index": int(labels[2]["index"]), "example": name, "given": old, "decisions": decided}
    ]
    if run == "of-photos":
        moves = {row["file"]: row["new_file"] for row in rows(workplace / run / "moves.csv")}
        assert {file: bool(new) for file, new in moves.items()} == {
            labels[place]["file"]: place < 3 for place in (0, 1, 3)
        }
        return
    before, after = (rows(workplace / file) for file in ("table.csv", "of-table/table-corrected.csv"))
    for place in (0, 1):
        before[int(labels[place]["index"])]["kind"] = right[place].lstrip("'")
    del before[int(labels[3]["index"])]
    assert after == before


def test_apply_is_for_labels_of_ones_own_without_added_noise(digits, workplace, ends):
    told = ends(2, workplace, "audit", str(digits[0]), "--apply", "--all", "--out", "out")
    assert "`--apply` corrects tables and image folders of your own; got digits" in told
    assert not (workplace / "out").exists()
    command = ("train", "--data", "table.csv", "--label", "kind", "--skip-bad", "--noise", "sym:0.2", "--epochs", "1")
    ends(0, workplace, *command, "--out", "noisy")
    told = ends(2, workplace, "audit", "noisy", "--skip-bad", "--apply", "--all")
    assert "`--apply` corrects labels as they are in the data; this run added noise to them, sym:0.2" in told
