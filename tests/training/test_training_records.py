"""The settings of a run, its key, folder and learning rates; what it trains on; its results, several in one file."""

import dataclasses
import json
import math
import sys

import numpy as np
import pytest
import torch
from data_helpers import save_image
from in_turn import in_turn
from refusals import refused
from torch.optim import lr_scheduler
from training_helpers import command, ended, one_sentence, run, small, start

from symloss.data import open_data
from symloss.experiments import FORMATS, compose, plan, read_runs, resolve
from symloss.experiments.layers import resolve_layers
from symloss.experiments.run import outcome, survey
from symloss.noise import corrupt
from symloss.training import Settings
from symloss.training.prediction import predict
from symloss.training.reading import keep, read_kept
from symloss.training.results import EpochRow, Result, summarize
from symloss.training.run_folder import RunFolder, folder_name
from symloss.training.settings import Schedule, with_seeds
from symloss.training.task import prepare

OTHER = {
    "data": "mnist", "noise": "sym:0.2", "counts": "floor", "loss": "mae", "scores": "l2", "penalty": 0.1,
    "model": "cnn4", "epochs": 61, "batch": 64, "optimizer": "adam", "lr": 0.02, "momentum": 0.8,
    "weight_decay": 0.1, "schedule": "constant", "clip": None, "augment": False, "subset": 100, "validation": 0.2,
    "clean_validation": True, "seed": 1, "noise_seed": 0, "precision": "bf16-mixed", "channels_last": True,
    "compile": True, "label": "class", "image": "file", "test": "test.csv", "drop": "id",
    "categorical": "town", "keep": "row", "fingerprint": "0123", "profile": "mini", "size": 64,
}  # fmt: skip


def test_the_key_is_the_same_on_every_machine():
    """Written down: another key would make every run of before a stranger."""
    for settings in (Settings(), Settings(**OTHER)):
        assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    assert Settings().key == "409d90e4caff"
    assert [field.name for field in dataclasses.fields(Settings)] == list(OTHER)
    others = [dataclasses.replace(Settings(), **{name: value}).key for name, value in OTHER.items()]
    assert len({Settings().key, *others}) == 1 + len(OTHER), "each setting changes the key"
    for name, value in {"lr": 1, "clip": 5, "weight_decay": 0, "epochs": 2}.items():
        one, two = (Settings(**{name: kind(value)}) for kind in (int, float))
        assert (one, one.key) == (two, two.key)
    assert [Settings(noise=text).noise for text in ("CLEAN", " sym:.60")] == ["clean", "sym:0.6"]
    assert Settings(clip=0) == Settings(clip=None)


@in_turn(
    "name, value",
    [
        ("optimizer", "lion"), ("precision", "16"), ("counts", "ceil"), ("scores", "softmax"), ("epochs", 0),
        ("epochs", 1.5), ("batch", 0), ("seed", -1), ("lr", 0), ("lr", float("nan")), ("lr", float("inf")),
        ("momentum", 1), ("weight_decay", -1e-9), ("penalty", -1), ("validation", 1), ("validation", -0.1),
        ("clip", -1), ("subset", 1), ("noise_seed", -1), ("seed", 2**32), ("schedule", "linear"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_in_one_sentence(name, value):
    with refused(ValueError, f"{name} must be", f"got {value!r}"):
        Settings(**{name: value})


def test_a_value_of_another_type_and_an_unknown_name_are_refused_in_one_sentence():
    texts = ("data", "loss", "schedule", "profile", "image", "fingerprint", "augment", "compile")
    given = dict.fromkeys(("epochs", "lr", "clip", "subset"), "many") | dict.fromkeys(texts, 5)
    for name, value in given.items():
        with refused(TypeError, f"{name} must be", f"got {value!r}"):
            Settings(**{name: value})
    with refused(ValueError, "there is no setting 'optimiser'", "did you mean 'optimizer'?"):
        Settings.from_dict({"optimiser": "sgd"})


def result(test, seconds=1.0):
    last = EpochRow(3, validation_accuracy=0.4, test_accuracy=test, memorised=0.25)
    best = dataclasses.replace(last, test_accuracy=test and test + 0.1)
    return Result(small(), 360, 40, "noisy", 0 if test is None else 360, 0.4, last, best, seconds)


def test_a_row_is_mean_and_standard_deviation_over_seeds():
    row = summarize([result(0.5, 1.0), result(0.7, 3.0)])
    assert row.measure == "test_accuracy"
    assert row.last.to_json() == pytest.approx({"mean": 0.6, "std": math.sqrt(0.02)})
    assert row.best.mean == pytest.approx(0.7)
    assert (row.weight_decay, row.seconds, row.runs) == (1e-3, 2.0, 2)
    assert row.to_json()["last"] == row.last.to_json()
    row = summarize([result(None)])
    assert (row.measure, row.last.to_json()) == ("validation_accuracy", {"mean": 0.4, "std": None})
    assert [settings.seed for settings in with_seeds(small(seed=4), 3)] == [4, 5, 6]


def test_no_two_settings_share_a_folder_and_names_are_plain():
    several = [small(seed=seed, noise=noise) for seed in (0, 1) for noise in ("sym:0.4", "sym:0.2")]
    several += [small(data="some where/my data.csv"), small("gce:q=0.5"), small("gce:q=0.6")]
    names = [folder_name(settings) for settings in several]
    assert len(set(names)) == len(several)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.+-_") for name in names)
    assert names[0].startswith("digits-sym_0.4-alpha-mae-seed0-")


EPOCHS, STEPS, LR = 24, 7, 0.4


def torchs(make, every_step):
    """What a scheduler of torch's sets at each step of a run."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler, found = make(optimizer), []
    for step in range(1, EPOCHS * STEPS + 1):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if every_step or step % STEPS == 0:
            scheduler.step()
    return found


@in_turn(
    "text, make, every_step",
    [
        ("constant", lambda o: lr_scheduler.ConstantLR(o, factor=1.0), False),
        ("cosine", lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=EPOCHS), False),
        ("step:20", lambda o: lr_scheduler.StepLR(o, step_size=20, gamma=0.1), False),
        ("step:5,0.3", lambda o: lr_scheduler.StepLR(o, step_size=5, gamma=0.3), False),
        ("epochs:0.97", lambda o: lr_scheduler.ExponentialLR(o, gamma=0.97), False),
        ("exponential:0.1/50", lambda o: lr_scheduler.ExponentialLR(o, gamma=0.1 ** (1 / 50)), True),
    ],
)
def test_a_whole_run_is_as_with_torchs_scheduler(text, make, every_step):
    factor = Schedule.parse(text).factor
    ours = [LR * factor(epoch=step // STEPS, epochs=EPOCHS, step=step) for step in range(EPOCHS * STEPS)]
    assert ours == pytest.approx(torchs(make, every_step), rel=1e-9)


@in_turn(
    "text",
    ["", "linear", "cosine:3", "constant:1", "step", "step:", "step:0", "step:x", "step:9,-1", "step:9,nan",
     "exponential:0.1", "exponential:/5", "exponential:0.1/0", "epochs", "epochs:0", "epochs:inf"],
)  # fmt: skip
def test_a_bad_schedule_is_refused_in_one_sentence(text):
    with refused(ValueError, "schedule must be", "cosine", f"got {text!r}"):
        Schedule.parse(text)


DIGITS = open_data("digits")


def places(examples):
    """Which of the digits they are."""
    images = examples.inputs if examples.positions is None else examples.inputs[examples.positions]
    every = {image.tobytes(): place for place, image in enumerate(DIGITS.train.inputs.numpy())}
    assert len(every) == len(DIGITS.train)
    return torch.tensor([every[image.tobytes()] for image in images.numpy()])


@in_turn("subset", [None, 400])
def test_training_and_validation_are_all_the_data_once(subset):
    task = prepare(small(subset=subset, validation=0.25))
    train, held = places(task.train), places(task.validation)
    count = subset or len(DIGITS.train)
    assert len(held) == round(0.25 * count)
    assert len(torch.cat([train, held]).unique()) == len(train) + len(held) == count


def test_validation_is_split_off_the_noisy_data():
    settings = small(subset=None, noise="sym:0.6")
    kept = corrupt(DIGITS.train.labels.numpy(), "sym:0.6", num_classes=10, seed=settings.seed, counts=settings.counts)
    task, noisy = prepare(settings), torch.from_numpy(kept.labels)
    assert torch.equal(task.train.labels, noisy[places(task.train)])
    assert torch.equal(task.validation.labels, noisy[places(task.validation)])
    assert torch.equal(task.clean, DIGITS.train.labels[places(task.train)])
    assert (task.validation.labels != DIGITS.train.labels[places(task.validation)]).float().mean() > 0.4
    assert torch.equal(task.test.labels, DIGITS.test.labels)
    clean = prepare(small(subset=None, noise="sym:0.6", clean_validation=True))
    assert torch.equal(places(clean.validation), places(task.validation))
    assert torch.equal(clean.validation.labels, DIGITS.train.labels[places(task.validation)])
    assert torch.equal(clean.train.labels, task.train.labels)


@in_turn("rate", [0.0, 0.2, 0.6])
def test_without_validation_everything_is_trained_on_with_the_noise_that_was_asked_for(rate):
    task = prepare(small(noise=f"sym:{rate}" if rate else "clean", subset=None, validation=0.0))
    assert task.validation is None
    assert torch.equal(places(task.train), torch.arange(len(DIGITS.train)))
    assert int((task.train.labels != task.clean).sum()) == round(rate * len(task.train))
    assert task.corruption.manifest.flipped == round(rate * len(task.train))


def test_the_subset_is_the_same_for_every_seed():
    one, two = (prepare(small(seed=seed)) for seed in (0, 1))
    first, second = (torch.cat([places(each.train), places(each.validation)]).sort().values for each in (one, two))
    assert torch.equal(first, second)
    assert not torch.equal(places(one.validation), places(two.validation))
    assert not np.array_equal(one.corruption.labels, two.corruption.labels)


def test_noise_that_needs_inputs_and_parts_without_examples_are_refused(tmp_path):
    """Images of several sizes stay in files."""
    for side in (8, 9, 10, 11):
        save_image(tmp_path / ("cats", "dogs")[side % 2] / f"{side}.png", np.zeros((side, 8, 3), np.uint8))
    with refused(ValueError, "noise must be of a kind that needs no inputs", "'instance:0.3'"):
        prepare(Settings(data=str(tmp_path), noise="instance:0.3"))
    for share in (0.1, 0.9):
        with refused(ValueError, "validation must leave examples on both sides", f"got {share} of 2"):
            prepare(small(subset=2, validation=share))
    with refused(ValueError, "subset must be at most the 1437 training examples", "got 1438"):
        prepare(small(subset=1438))


def test_settings_of_a_composed_loss():
    found = resolve_layers("digits", "digits", "symmetrize( focal:gamma=2 )")
    assert found.settings.loss == "symmetrize(focal:gamma=2)"
    assert (found.settings.lr, found.settings.weight_decay, found.settings.scores) == (0.01, 0.01, "loss")
    spellings = ("blend(sgce:q=.5,alpha=.3)", "blend( sgce:q=0.5, alpha=0.3 )")
    assert len({resolve("digits", text).key for text in spellings}) == 1
    assert found.sources.items() >= {"loss": "composed", "scores": "the loss, which takes them as they are"}.items()
    name = folder_name(resolve("digits", "0.5*gce:q=0.7 + 0.5*symmetrize(mse)"))
    assert "-0.5_gce_q_0.7_+_0.5_symmetrize_mse_-seed0-" in name
    assert len(folder_name(resolve("digits", " + ".join(["0.25*symmetrize(gce:q=0.5)"] * 40)))) < 120


@pytest.fixture
def own_loss(tmp_path, monkeypatch):
    (tmp_path / "loss_of_mine.py").write_text(
        "def miss(input, target):\n    return 1 - input.softmax(1).gather(1, target[:, None]).squeeze(1)\n"
    )
    monkeypatch.chdir(tmp_path)
    yield "loss_of_mine:miss"
    sys.modules.pop("loss_of_mine", None)


def test_a_loss_of_ones_own_trains_as_the_same_loss_of_the_catalogue(own_loss, tmp_path):
    ours, theirs = (run(small(loss, model="mlp"), tmp_path / loss[:3]) for loss in ("mae", own_loss))
    assert theirs["last"]["loss"] == pytest.approx(ours["last"]["loss"], rel=1e-5)
    assert theirs["last"]["test_accuracy"] == ours["last"]["test_accuracy"]


def test_a_runs_folder_imports_no_loss(own_loss, tmp_path):
    """It may come from elsewhere: predictions need what is done to the scores, and the text says that."""
    settings = small(f"symmetrize({own_loss}):normalize=l2", model="mlp", validation=0.0)
    run(settings, tmp_path / "run")
    assert RunFolder(tmp_path / "run").settings() == settings
    sys.modules.pop("loss_of_mine")
    (tmp_path / "loss_of_mine.py").write_text("raise SystemError('imported')\n")
    np.savez(tmp_path / "new.npz", x=np.full((2, 1, 8, 8), 100, np.uint8))
    probabilities = [max(row) for _, row in predict(tmp_path / "run", str(tmp_path / "new.npz")).rows]
    assert 0.1 < max(probabilities) < 0.25, "of unit scores"
    assert "loss_of_mine" not in sys.modules
    for render in FORMATS.values():
        text = render(compose(read_runs(tmp_path / "run")))
        assert f"symmetrize({own_loss}):normalize=l2" in text.replace("\\_", "_")


CELLS = plan("digits", losses=["ce", "mae"], noise=["sym:0.6"], seeds=2)


def a_result(cell, accuracy):
    row = EpochRow(60, test_accuracy=accuracy, seconds=1.5)
    return Result(cell.settings, 1437, 0, "none", 360, 0.6, row, row, 1.5, {"processor": "A processor"})


RESULTS = [a_result(cell, accuracy) for cell, accuracy in zip(CELLS, (0.5, 0.9, 0.6, 0.8), strict=True)]


@pytest.fixture
def kept(tmp_path):
    """A file with three of four results: both seeds of CE, one of MAE."""
    keep(tmp_path / "kept" / "rows.jsonl", RESULTS[:3])
    return tmp_path / "kept" / "rows.jsonl"


def test_results_come_back_as_they_were_and_are_not_replaced(kept):
    assert read_kept(kept) == {result.settings.key: result for result in RESULTS[:3]}
    before = kept.read_text()
    keep(kept, [a_result(CELLS[0], 0.1)])
    assert kept.read_text() == before, "the first result of a run counts"
    keep(kept, RESULTS[3:])
    after = kept.read_text().splitlines()
    assert len(after) == 4
    assert set(before.splitlines()) < set(after), "a new result is one new line, and the others stay as they are"
    assert read_kept(kept.parent / "none.jsonl") == {}


def test_a_table_goes_on_from_what_was_kept_and_a_report_reads_it_in_every_format(kept, tmp_path):
    found = read_kept(kept)
    surveyed = survey(CELLS, tmp_path / "runs", None, kept=found)
    assert (surveyed.kept, len(surveyed.done)) == (3, 0)
    assert [work.name for work in surveyed.todo] == ["digits/digits/mae/sym:0.6 seed 1"]
    rows = {row["loss"]: row for row in outcome(CELLS, tmp_path / "runs", found)}
    assert (rows["CE"]["mean"], rows["CE"]["runs"], rows["MAE"]["runs"]) == (pytest.approx(0.55), 2, 1)
    report = compose(read_runs(kept))
    (section,) = report.sections
    assert (section.name, len(report.runs.finished)) == ("digits", 3)
    for name, render in FORMATS.items():
        assert "55.0" in render(report), name


@in_turn(
    "line, said",
    [
        ("{", "line 4, must hold JSON"),
        ("[1]", "line 4, must hold a JSON object; got [1]"),
        ({"last": 1}, "line 4, must hold last as an object; got 1"),
        ({"settings": [1]}, "line 4, must hold settings as an object; got [1]"),
        ({"seconds": 10**400}, "line 4, must hold seconds as a number"),
        ({"validation_labels": [1]}, "line 4, must hold validation_labels as a text; got [1]"),
        ({"settings": {"lr": 10**400}}, "line 4, holds no settings of a run; lr must be a number in (0, inf)"),
    ],
)
def test_a_damaged_line_is_named(kept, line, said):
    lines = kept.read_text().splitlines()[:3]
    text = line if isinstance(line, str) else json.dumps(json.loads(lines[0]) | line)
    kept.write_text("\n".join([*lines, text, ""]))
    with refused(ValueError, "rows.jsonl", said):
        read_kept(kept)


def test_other_files_are_refused(kept, tmp_path):
    first = json.loads(kept.read_text().splitlines()[0])
    kept.write_text(json.dumps(first | {"settings": {"loss": "(("}}) + "\n")
    with refused(ValueError, kept, "holds a result whose loss cannot be read"):
        read_runs(kept)
    for name, content, kind, said in (
        ("bytes.jsonl", b"\xff\xfe", ValueError, "must hold results as JSON, a line each"),
        ("rows.json", b"{}", FileNotFoundError, "must be a folder of runs, or a file of results that ends in .jsonl"),
        ("empty.jsonl", b"", FileNotFoundError, "without any run in it"),
    ):
        (tmp_path / name).write_bytes(content)
        with refused(kind, said):
            read_runs(tmp_path / name)


def test_two_processes_may_add_at_once(tmp_path):
    path = tmp_path / "rows.jsonl"
    workers = [start(keep, path, [result]) for result in RESULTS]
    assert [ended(worker) for worker in workers] == [0] * 4
    assert len(read_kept(path)) == 4


@pytest.mark.slow
def test_the_command_adds_what_it_trains_and_trains_nothing_twice(tmp_path):
    part = ["--profile", "mini", "--losses", "ce", "--noise", "clean", "--seeds", "1"]
    words = ["reproduce", "digits", *part, "--results", "rows.jsonl", "--runs"]
    assert "0 runs done, 1 to do" in command(tmp_path, *words, "one").stderr
    (row,) = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert json.loads(row)["settings"]["profile"] == "mini"
    done = command(tmp_path, *words, "another")
    assert (done.code, "1 runs done, 0 to do" in done.stderr) == (0, True), done
    assert not (tmp_path / "another").exists()
    done = command(tmp_path, *words, "one", "--results", "rows.txt")
    one_sentence(done, "`--results` must be a writable file that ends in .jsonl; got 'rows.txt'")
