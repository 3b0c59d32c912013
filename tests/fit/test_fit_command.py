"""``symloss fit`` as it is used: a table with wrong labels, its files, predictions, and bad input."""

import csv
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from in_turn import in_turn
from resigned import resign
from typer.testing import CliRunner

from symloss.cli.application import app
from symloss.fit import training_data

CLASSES = ("ant", "bee", "cat")


def write_table(path, rows=180, wrong=True, seed=0):
    """Three classes that are far apart, a category and a gap; every fifth label is wrong."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["length", "width", "town", "label"])
        for k in range(rows):
            true = k % 3
            label = (true + 1) % 3 if wrong and k % 5 == 0 else true
            width = "" if k % 11 == 0 else f"{rng.normal():.3f}"
            writer.writerow([f"{4 * true + rng.normal():.3f}", width, "AB"[k % 2], CLASSES[label]])


FIT = ("fit", "--data", "bugs.csv", "--budget", "1", "--out", "model")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, warm_python):
    folder = tmp_path_factory.mktemp("fit")
    write_table(folder / "bugs.csv")
    write_table(folder / "new.csv", rows=60, wrong=False, seed=1)
    return folder, warm_python.run(["-m", "symloss", *FIT], cwd=folder)


@pytest.fixture
def copied(fitted, tmp_path):
    return shutil.copytree(fitted[0], tmp_path, dirs_exist_ok=True)


def flagged_rows(folder):
    with (folder / "model" / "audit.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["is_label_issue"] == "True"]


def test_it_says_what_it_found_and_audit_lists_the_same(fitted, ends):
    folder, done = fitted
    assert done.returncode == 0, done.stderr
    assert "leads with" in done.stderr
    for words in ("of the labels look wrong", "clean, estimated", "symloss predict model --data DATA"):
        assert words in done.stdout
    assert "noise" not in done.stderr  # none was added, and the labels are not clean
    kept = {path.name for path in (folder / "model").iterdir()}
    assert {"model.json", "learners.skops", "networks.pt", "columns.json", "audit.csv", "audit.html"} <= kept
    assert "unfinished" not in kept
    assert {path.name for path in folder.iterdir()} == {"bugs.csv", "new.csv", "model"}
    flagged = sorted(flagged_rows(folder), key=lambda row: float(row["label_score"]))
    found, wrong = {int(row["index"]) for row in flagged}, set(range(0, 180, 5))
    assert len(found & wrong) > 0.8 * len(wrong)
    assert len(found - wrong) < 10
    lines = done.stdout.splitlines()
    start = lines.index("The 10 most suspicious labels; all are in audit.csv:")
    assert lines[start + 1].split() == ["example", "given", "suggested", "score"]
    printed = [line.split()[1:4] for line in lines[start + 2 : start + 12]]
    assert printed == [[row["row"], row["given_label"], row["predicted_label"]] for row in flagged[:10]]
    page = (folder / "model" / "audit.html").read_bytes()
    headline, *ranking = ends(0, folder, "audit", "model", "--top", "10").splitlines()
    assert "of 180 labels look wrong" in headline
    assert [line.split() for line in ranking[:11]] == [line.split() for line in lines[start + 1 : start + 12]]
    assert (folder / "model" / "audit.html").read_bytes() == page  # the browser knows decisions by it


def test_apply_corrects_what_was_accepted(copied, ends):
    """Every suggestion, and those that a person accepted on the page; the table itself stays as it was."""

    def changed_labels(*options):
        done = ends(0, copied, "audit", "model", "--apply", *options)
        after = list(csv.DictReader((copied / "model" / "bugs-corrected.csv").read_text().splitlines()))
        changed = {k: new["label"] for k, (old, new) in enumerate(zip(before, after, strict=True), 2) if old != new}
        assert f"{len(changed)} labels are changed. By the model's own probabilities, that mends about" in done
        return changed

    table = (copied / "bugs.csv").read_text()
    before, flagged = list(csv.DictReader(table.splitlines())), flagged_rows(copied)
    assert "symloss audit model --apply --decisions FILE" in (copied / "model" / "audit.html").read_text()
    every = changed_labels("--all")
    assert every == {int(row["row"]): row["predicted_label"] for row in flagged}
    sure = changed_labels("--above", "0.95", "--overwrite")
    assert 0 < len(sure) < len(every)
    assert sure.items() <= every.items()
    accepted, rejected = flagged[0], flagged[1]
    (copied / "corrected.csv").write_text(
        "index,decision,corrected_label\n"
        f"{accepted['index']},accepted,{accepted['predicted_label']}\n"
        f"{rejected['index']},rejected,{rejected['given_label']}\n"
    )
    one = changed_labels("--overwrite", "--decisions", "corrected.csv")
    assert one == {int(accepted["row"]): accepted["predicted_label"]}
    assert (copied / "bugs.csv").read_text() == table


def test_an_audit_that_does_not_belong_to_the_data_is_refused(copied, ends):
    def refusal(*options):
        return ends(2, copied, "audit", "model", *options).splitlines()[-1]

    table = (copied / "bugs.csv").read_text()
    head, *rows = table.splitlines(keepends=True)
    one, two = [k for k, row in enumerate(rows) if row.endswith(",bee\n")][:2]
    rows[one], rows[two] = rows[two], rows[one]  # the labels stay as they were
    for changed in (table.replace(",bee\n", ",cat\n", 1), "".join([head, *rows])):
        (copied / "bugs.csv").write_text(changed)
        assert "bugs.csv has changed since the fit in model: other data, or other labels." in refusal()
    (copied / "bugs.csv").write_text(table)
    assert "`--model` does not apply to model, the folder of a `fit`." in refusal("--model", "mlp")
    assert "`--out` requires `--apply` for a `fit`" in refusal("--out", "elsewhere")
    model, kept = copied / "model", dict(np.load(copied / "model" / "audit.npz"))
    source = {"data": "bugs.csv", "noise": "clean"}
    for name, content, said in (
        ("audit.npz", {"label_scores": np.full(len(kept["given"]), np.nan)}, "got scores or an interval that cannot"),
        ("audit.npz", {"interval": [5, -3]}, "got scores or an interval that cannot be"),
        ("audit.npz", {"given": kept["given"].astype(float)}, "got numbers of other kinds"),
        ("audit.npz", b"PK damaged", "audit.npz must be the audit that symloss fit wrote"),
        ("source.json", source | {"data": 3}, "source.json must hold data as a text; got 3"),
        ("source.json", source | {"size": True, "later": 3}, "must hold size as a whole number or nothing; got True"),
    ):
        whole = (model / name).read_bytes()
        if isinstance(content, bytes):
            (model / name).write_bytes(content)
        elif name == "source.json":
            (model / name).write_text(json.dumps(content))
        else:
            np.savez(model / name, **(kept | content))
        assert f"model is damaged: {name} has changed since the fit; fit again" in refusal()
        resign(model)
        assert said in refusal()
        (model / name).write_bytes(whole)
        resign(model)
    (model / "source.json").unlink()
    assert "model is damaged: source.json is missing" in refusal()


def test_predict_works_on_it(fitted, ends):
    words = ("predict", "model", "--data", "new.csv")
    rows = list(csv.DictReader(ends(0, fitted[0], *words, "--probabilities").splitlines()))
    assert np.mean([row["prediction"] == CLASSES[k % 3] for k, row in enumerate(rows)]) > 0.9
    assert float(rows[0]["p(ant)"]) == pytest.approx(float(rows[0]["probability"]), abs=1e-6)
    assert "do not apply to model" in ends(2, fitted[0], *words, "--last")


def test_known_truth_is_measured(tmp_path, ends):
    """On digits with added noise; JSON for programs."""
    found = json.loads(ends(0, tmp_path, "fit", "--data", "digits", "--noise", "sym:0.3", "--budget", "0.5", "--json"))
    assert found["average_precision"] > 0.9
    assert found["noise_rate"] == pytest.approx(0.3, abs=0.1)
    assert found["test_accuracy"] > 0.85
    assert (tmp_path / "runs" / "fit-digits-sym-0.3" / "audit.html").is_file()


@in_turn(
    "arguments, message",
    [
        (["--out", "model"], "model holds a fit with other settings (budget); choose another --out, or replace it"),
        (["--out", "."], "--out must not be the current folder, or one above it; got '.'"),
        (["--out", "bugs.csv"], "--out must be a folder; got the file 'bugs.csv'"),
        (["--out", "bugs.csv/deeper"], "bugs.csv/deeper cannot be written: bugs.csv is a file"),
        (["--noise", "sym:0.2"], "noise must be left out for data of your own"),
        (["--label", "nope"], "nope"),
        (["--model", "mine.networks:net", "--out", "new"], "`--model` must be a network of symloss or timm"),
    ],
)
def test_bad_input(fitted, ends, arguments, message):
    assert message in ends(2, fitted[0], "fit", "--data", "bugs.csv", *arguments).splitlines()[-1]
    assert not (fitted[0] / "new").exists()


def test_the_truth_is_never_looked_at(tmp_path, monkeypatch):
    """With other true labels, which only the report may see, the choice is the same and the measured quality is not."""
    real, found = training_data.noisy_labels, []
    for scrambled in (False, True):

        def noisy_labels(data, *args, scrambled=scrambled):
            noisy, true = real(data, *args), data.train.labels
            if scrambled:
                true.copy_(true.roll(7))
            return noisy

        monkeypatch.setattr(training_data, "noisy_labels", noisy_labels)
        arguments = ["fit", "--data", "digits", "--noise", "sym:0.3", "--budget", "0.1", "--json", "--seed", "1"]
        done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / str(scrambled))])
        found.append(json.loads(done.stdout))
    unlike = {key for key in found[0] if found[0][key] != found[1][key]}
    measures = {"average_precision", "precision", "recall", "really_wrong", "right_suggestions", "measured"}
    assert unlike <= measures | {"seconds", "files"}
    assert "average_precision" in unlike


def test_the_network_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "bugs.csv")
    done = CliRunner().invoke(app, [*FIT, "--model", "mlp:hidden=4", "--json"])
    assert done.exit_code == 0, done.output
    names = json.loads(done.stdout)["candidates"]["candidate"]
    assert any(name.startswith("network mlp:hidden=4 ") for name in names)


def write_numbers(path, features, labels):
    lines = [",".join([*(f"{value:.3f}" for value in row), label]) for row, label in zip(features, labels, strict=True)]
    path.write_text("\n".join(["length,width,label", *lines, ""]))


def test_features_that_say_nothing(tmp_path, ends, run_command):
    """No count and no list, on the terminal, on the page, in JSON and by audit; the exit code says it too."""
    rng = np.random.default_rng(0)
    write_numbers(tmp_path / "blind.csv", rng.normal(size=(150, 2)), [CLASSES[k % 3] for k in range(150)])
    command = ["fit", "--data", "blind.csv", "--budget", "0.5", "--out", "my fit"]
    done = run_command(*command, cwd=tmp_path)
    assert (done.returncode, "Nothing was learnt" in done.stderr) == (3, False), done.stderr
    told = done.stdout
    assert "Nothing was learnt from these features" in told
    assert "symloss predict 'my fit' --data DATA" in told  # to be pasted
    assert not any(words in told for words in ("look wrong", "suspicious", "estimated", "Model:"))
    page = (tmp_path / "my fit" / "audit.html").read_text()
    assert "<h1>Nothing was learnt from these features</h1>" in page
    assert 'id="data"' not in page
    assert "True" not in (tmp_path / "my fit" / "audit.csv").read_text()
    found = json.loads(ends(3, tmp_path, *command, "--json"))
    assert [found[name] for name in ("learned", "n_wrong", "noise_rate", "top")] == [False, None, None, []]
    (line,) = ends(3, tmp_path, "audit", "my fit").splitlines()
    assert line.startswith("Nothing was learnt from these features")


def test_where_classes_overlap_the_advice_is_careful(tmp_path, ends):
    """A range, a warning on the terminal, the page and in JSON, and no corrections without --force."""
    rng, true = np.random.default_rng(0), np.arange(400) % 2
    labels = np.where(rng.random(400) < 0.3, 1 - true, true)
    write_numbers(tmp_path / "near.csv", true[:, None] + rng.normal(size=(400, 2)), [CLASSES[k] for k in labels])
    command = ["fit", "--data", "near.csv", "--budget", "0.5", "--out", "fit"]
    told = ends(0, tmp_path, *command)
    assert re.search(r"± \d\.\d +\d\d\.\d to \d\d\.\d +yes", told)
    assert "cross-entropy" not in told
    warning = "If you expect far fewer wrong labels, these features do not tell the classes apart"
    assert warning in told
    assert f'<p class="notice" role="note">{warning}' in (tmp_path / "fit" / "audit.html").read_text()
    assert warning in json.loads(ends(0, tmp_path, *command, "--json"))["warning"]
    refused = ends(2, tmp_path, "audit", "fit", "--apply", "--all")
    assert all(words in refused for words in (warning, "add --force"))
    assert not (tmp_path / "fit" / "near-corrected.csv").exists()
    assert re.search(r"labels look wrong \(.*; range \d", ends(0, tmp_path, "audit", "fit"))
    listed = json.loads(ends(0, tmp_path, "audit", "fit", "--apply", "--all", "--force", "--json"))
    assert warning in listed["warning"]
    assert all(isinstance(row["score"], float) for row in listed["top"])
    assert (tmp_path / "fit" / "near-corrected.csv").is_file()


def test_the_same_command_prints_its_result_again_and_one_folder_has_one_model(fitted, copied, ends, run_command):
    """Unless the data or a setting is another one. With --overwrite it fits again."""
    again = run_command(*FIT, cwd=copied)
    assert (again.returncode, again.stdout) == (0, fitted[1].stdout)
    assert "model holds this fit already; --overwrite fits again" in again.stderr
    other = "model holds a fit with other settings (seed, simple); choose another --out"
    assert other in ends(2, copied, *FIT, "--settings", "simple=true", "--seed", "3")
    (copied / "bugs.csv").write_text((copied / "bugs.csv").read_text().replace(",bee\n", ",cat\n", 1))
    assert "bugs.csv has changed since the fit in model; fit again with --overwrite" in ends(2, copied, *FIT)
    (copied / "model" / "notes.txt").write_text("mine")
    ends(0, copied, *FIT, "--overwrite", "--settings", "simple=true")
    assert len(json.loads((copied / "model" / "model.json").read_text())["model"]["members"]) == 1
    assert (copied / "model" / "notes.txt").read_text() == "mine"
    # A fit refuses the folder of a run, and a run that of a fit.
    train = ("train", "--data", "bugs.csv", "--epochs", "1", "--out")
    assert "model holds a model of `symloss fit`. Train into another folder" in ends(2, copied, *train, "model")
    ends(0, copied, *train, "run")
    run = ends(2, copied, "fit", "--data", "bugs.csv", "--out", "run")
    assert "--out must be a new or empty folder, or that of another fit; got 'run', which holds" in run


def test_refusals_do_not_wait_for_torch(tmp_path):
    """In a real process: a wrong path costs no second of imports."""
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "t.txt").write_text("a file")
    script = """
import sys
from symloss.cli import main
for arguments in (
    "fit --data nothere", "fit --data t.csv", "fit --data digits --out t.txt", "fit --data digits --noise sym",
    "predict nothere t.csv", "audit nothere", "audit t.csv --apply", "train --data nothere",
):
    sys.argv = ["symloss", *arguments.split()]
    try:
        main()
    except SystemExit as left:
        print(left.code, "torch" in sys.modules, "sklearn" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.split("\n") == ["2 False False"] * 8 + [""], done.stdout + done.stderr
