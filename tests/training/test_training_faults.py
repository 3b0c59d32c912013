"""What goes wrong around a run: damaged files, a removed lock, other threads, refusals. Nothing is lost unsaid."""

import functools
import json
import multiprocessing
import operator
import os
import shutil

import pytest
import torch
from in_turn import in_turn
from refusals import refused
from training_helpers import assert_same, command, exit_code, killed_at, metrics, one_sentence, run, small

from symloss.experiments import resolve
from symloss.training import train
from symloss.training.checkpoint import TO_GO_ON, load_checkpoint, save_checkpoint
from symloss.training.prediction import predict
from symloss.training.run_folder import Busy, RunFolder


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """A run that was killed in its third epoch of three."""
    folder = tmp_path_factory.mktemp("cut") / "run"
    assert exit_code(killed_at, "checkpoint.pt.new", 3, small(), folder) == -9
    return folder


@pytest.fixture
def begun(cut, tmp_path):
    return shutil.copytree(cut, tmp_path / "run")


def flip(path):
    """A bit of a weight."""
    weight = torch.load(path, weights_only=True)["model"]["1.weight"]
    data = bytearray(path.read_bytes())
    data[data.index(weight.numpy().tobytes()) + 10] ^= 4
    path.write_bytes(data)


def test_a_flipped_bit_costs_an_epoch_and_changes_nothing(begun, whole):
    flip(begun / "checkpoint.pt")
    epochs = []
    with pytest.warns(UserWarning, match="going back to the previous one, of epoch 1"):
        run(small(), begun, on_epoch=lambda row: epochs.append(row.epoch))
    assert epochs == [2, 3]
    assert_same(begun, whole)


def test_predictions_are_those_of_weights_as_they_were_written(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    shutil.copy(folder / "checkpoint-previous.pt", folder / "checkpoint.pt")
    of_the_one_before = predictions(folder, best=False)
    shutil.copy(whole / "checkpoint.pt", folder / "checkpoint.pt")
    assert predictions(folder, best=False) != of_the_one_before
    flip(folder / "checkpoint.pt")
    with pytest.warns(UserWarning, match="going back to the previous one, of epoch 2"):
        assert predictions(folder, best=False) == of_the_one_before
    flip(folder / "best.pt")
    with refused(ValueError, folder / "best.pt", "is not a complete checkpoint"):
        predictions(folder, best=True)


def test_another_number_of_threads_is_a_warning(begun):
    torch.set_num_threads(2)
    try:
        with pytest.warns(UserWarning, match="begun with 1 threads and is resumed with 2. Its weights will differ"):
            run(small(), begun)
    finally:
        torch.set_num_threads(1)


def test_a_run_whose_lock_is_removed_stops_and_is_gone_on_with(tmp_path, whole):
    folder = tmp_path / "run"

    def removed(row):
        (folder / "lock").unlink()
        with RunFolder(folder).alone():  # somebody else
            pass

    with refused(Busy, folder / "lock", "was removed during training", "Nothing more is written"):
        run(small(), folder, on_epoch=removed)
    assert [row["epoch"] for row in metrics(folder)] == [1]
    run(small(), folder)
    assert_same(folder, whole)


def predictions(folder, **options):
    return list(predict(folder, "digits", model=small().model, **options).rows)


def changed(cut, tmp_path, *keys, value=None):
    """A run whose checkpoint has another value, or none, as another version of symloss or of a model could leave it."""
    begun = shutil.copytree(cut, tmp_path / "run")
    state = torch.load(begun / "checkpoint.pt", weights_only=True)
    functools.reduce(operator.getitem, keys[:-1], state)[keys[-1]] = value
    save_checkpoint(RunFolder(begun), {name: part for name, part in state.items() if part is not None})
    return begun


@in_turn(
    "keys, value, said",
    [
        (("model", "1.weight"), torch.zeros(3, 3), "1.weight ... [3, 3]"),
        (("optimizer", "state", 0, "momentum_buffer"), torch.zeros(3, 3), "of shape (3, 3) for one of (16, 64)"),
        (("optimizer",), {"state": {}}, "param_groups"),
        (("margins", "sums"), torch.zeros(3, 361), "examples must be 361 as in the checkpoint"),
    ],
)
def test_a_state_that_does_not_fit_is_one_sentence(cut, tmp_path, keys, value, said):
    begun = changed(cut, tmp_path, *keys, value=value)
    for use in (run, lambda *_: predictions(begun, best=False))[: 1 + ("model" in keys)]:
        with refused(ValueError, begun, "must fit the model 'training_helpers:drops'", *said.split(" ... ")):
            use(small(), begun)


@in_turn("key", ["optimizer", "seconds", "best", "epoch", "last"])
def test_a_checkpoint_without_a_key_is_no_whole_one(cut, tmp_path, key):
    begun = changed(cut, tmp_path, key)
    with pytest.warns(UserWarning, match=rf"it must hold {key} as .*\); going back to the previous one, of epoch 2"):
        assert load_checkpoint(RunFolder(begun), needs=TO_GO_ON)["epoch"] == 2


@in_turn(
    "changes, sentence",
    [
        ({"class_names": ["0", "1"]}, "must fit the model 'training_helpers:drops'"),
        ({"input_shape": ["a"]}, "data.json must hold input_shape as a list of whole numbers; got ['a']"),
    ],
)
def test_a_description_of_the_data_that_is_wrong_is_one_sentence(whole, tmp_path, changes, sentence):
    folder = shutil.copytree(whole, tmp_path / "run")
    description = json.loads((folder / "data.json").read_text())
    (folder / "data.json").write_text(json.dumps(description | changes))
    with refused(ValueError, folder, sentence):
        predictions(folder)


def test_another_number_of_scores_than_classes_is_one_sentence(whole, monkeypatch):
    monkeypatch.setattr("torch.nn.Sequential.forward", lambda self, inputs: torch.zeros(len(inputs), 2))
    with refused(ValueError, "must return 10 scores for each example; got a tensor of shape"):
        predictions(whole)


@in_turn(
    "arguments, sentence",
    [
        (["--noise", "human:worst"], "human labels"),
        (["--model", "lenet5"], "input_shape of lenet5 must be"),
        (["--model", "training_helpers:eleven"], "must return 10 scores for each example"),
        (["--accelerator", "cuda"], "This machine cannot train on 1 device(s) of accelerator"),
    ],
)
def test_what_is_refused_late_leaves_nothing_behind(tmp_path, arguments, sentence):
    done = command(tmp_path, "train", "--epochs", "1", *arguments)
    one_sentence(done, sentence, started="scores" in sentence)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []


def test_what_was_there_before_stays_when_a_run_is_refused(begun, tmp_path):
    before = sorted(begun.iterdir())
    with refused(ValueError, "This machine cannot train on 1 device(s) of accelerator"):
        train(small(), begun, accelerator="cuda")
    assert sorted(begun.iterdir()) == before
    (tmp_path / "mine" / "notes").mkdir(parents=True)
    with refused(ValueError, "subset must be at most"):
        run(small(subset=9999), tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["notes"]
    half = RunFolder(tmp_path / "runs" / "mine")  # and what a killed process had half written goes along
    half.start(resolve("digits", "ce"))
    (half.path / "noise.npz.part").write_bytes(b"half")
    half.forget()
    assert not (tmp_path / "runs").exists()


BROKEN = "def net(input_shape, num_classes): raise ValueError('no such layer')\n"
BREAKS = """
from torch import nn
class Net(nn.Linear):
    def forward(self, inputs): return inputs.no_such_thing
def net(input_shape, num_classes): return Net(2, 2)
"""


def assert_theirs(folder, source, line, *options):
    """One line, and the traceback of the user's code."""
    (folder / "mine.py").write_text(source)
    done = command(folder, "train", "--model", "mine:net", "--epochs", "1", *options)
    assert done.code == 1, done
    before, _, after = done.stderr.partition("symloss: this was raised in code of your own, mine:net:\n")
    assert "Traceback" not in before
    assert after.startswith("Traceback (most recent call last):\n")
    assert 'mine.py", line' in after
    assert line in after
    assert not (folder / "runs").exists()


@in_turn(
    "source, line",
    [
        (BROKEN, "ValueError: no such layer"),
        (BREAKS, "AttributeError: "),
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("1 / 0", "ZeroDivisionError: "),
    ],
)
def test_code_of_the_users_own_has_its_traceback_after_one_line(tmp_path, source, line):
    assert_theirs(tmp_path, source, line)


@pytest.mark.slow
def test_the_same_from_another_process(tmp_path):
    assert_theirs(tmp_path, BROKEN, "ValueError: no such layer", "--devices", "2", "--accelerator", "cpu")


def _with_two_devices(folder, answer):
    try:
        run(small(), folder, devices=2, on_epoch=lambda row: (folder / "lock").unlink())
    except Busy as error:
        answer.send(str(error))


@pytest.mark.slow
def test_a_lock_that_is_removed_stops_several_processes_too(tmp_path):
    ours, theirs = multiprocessing.Pipe()
    assert exit_code(_with_two_devices, tmp_path / "run", theirs) == 0
    assert "was removed during training" in ours.recv()
    assert [row["epoch"] for row in metrics(tmp_path / "run")] == [1]
