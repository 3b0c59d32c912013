"""Around a run: kills, full disks, damaged files and refusals lose nothing unsaid, and several processes follow one."""

import functools
import itertools
import json
import multiprocessing
import operator
import os
import re
import shutil
import signal

import pytest
import torch
import training_helpers
from forked_processes import free_port
from in_turn import in_turn
from refusals import refused
from training_helpers import assert_same, command, exit_code, killed_at, metrics, one_sentence, run, small, weights

from symloss.experiments import resolve
from symloss.training import run as training_run, train
from symloss.training.checkpoint import TO_GO_ON, load_checkpoint, save_checkpoint
from symloss.training.loop import Diverged
from symloss.training.margins import read_margins
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
    assert re.match(rf'(?s)Traceback \(most recent call last\):\n.*mine\.py", line.*{re.escape(line)}', after), after
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


KILLED = -signal.SIGKILL
MOMENTS = {
    "with nothing written": ("settings.json", 1),
    "after the settings": ("noise.json", 1),
    "before the first epoch": ("metrics.jsonl", 1),
    "before the first best weights": ("best.pt", 1),
    "before the first checkpoint": ("checkpoint.pt", 1),
    "between the metrics and the checkpoint": ("checkpoint.pt.new", 2),
    "before the last checkpoint is put aside": ("checkpoint-previous.pt", 1),
    "between the two replacements": ("checkpoint.pt", 2),
    "between the two replacements of the last epoch": ("checkpoint.pt", 3),
    "before the margins": ("margins.npz", 1),
    "before the result": ("result.json", 1),
}


@in_turn("moment", MOMENTS)
def test_a_run_that_is_killed_ends_as_if_nothing_had_happened(tmp_path, whole, moment):
    assert exit_code(killed_at, *MOMENTS[moment], small(), tmp_path) == KILLED
    assert not (tmp_path / "result.json").exists()
    run(small(), tmp_path)
    assert_same(tmp_path, whole)


def killed_at_call(nth, settings, folder):
    """The nth time that anything is written to the disk for good."""
    training_helpers.cut_off(pytest.MonkeyPatch(), nth, "replace", "fsync")
    run(settings, folder)


@pytest.mark.slow
def test_a_run_may_be_killed_at_any_moment(tmp_path):
    """Two epochs: whatever is written later was written before, to files that were there."""
    settings = small(epochs=2)
    run(settings, tmp_path / "whole")
    for nth in itertools.count(1):
        folder = tmp_path / str(nth)
        if (code := exit_code(killed_at_call, nth, settings, folder)) == 0:
            break
        assert code == KILLED
        run(settings, folder)
        assert_same(folder, tmp_path / "whole")
    assert nth > 20


def test_a_run_that_is_killed_again_and_again_ends_all_the_same(tmp_path, whole):
    codes = []
    while len(codes) < 9 and 0 not in codes:
        codes.append(exit_code(killed_at_call, 18, small(), tmp_path))
    assert len(codes) > 2
    assert codes == [KILLED] * (len(codes) - 1) + [0]
    assert_same(tmp_path, whole)


def options(settings):
    """As arguments of ``symloss train``."""
    names = ("noise", "loss", "model", "epochs", "batch", "lr", "weight_decay")
    given = [text for name in names for text in (f"--{name.replace('_', '-')}", str(getattr(settings, name)))]
    return [*given, "--settings", f"subset={settings.subset}"]


@pytest.mark.slow
def test_a_command_that_is_killed_from_outside_is_simply_started_again(tmp_path):
    settings = small(model="training_helpers:holds", epochs=5)
    arguments, file = ["train", *options(settings), "--out", "run"], tmp_path / "run" / "metrics.jsonl"
    for lines in (1, 3):
        process = training_helpers.start_command(tmp_path, *arguments, HOLD=str(lines * training_helpers.STEPS + 3))
        try:
            training_helpers.wait_until(lambda n=lines: file.exists() and file.read_text().count("\n") >= n, process)
        finally:
            process.kill()
        assert training_helpers.ended(process) == KILLED
        assert not (tmp_path / "run" / "result.json").exists()
    assert command(tmp_path, *arguments).code == 0
    run(settings, tmp_path / "whole")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_full_disk_is_one_sentence_and_the_last_checkpoint_survives(begun, tmp_path, whole):
    before = (begun / "checkpoint.pt").read_bytes()
    arguments = ["train", *options(small()), "--out", "run"]
    done = command(tmp_path, *arguments, limit=len(before) // 2)
    one_sentence(done, "checkpoint.pt.new cannot be written (File too large); what was there", "is kept", started=True)
    assert (begun / "checkpoint.pt").read_bytes() == before
    assert command(tmp_path, *arguments).code == 0
    assert_same(begun, whole)


@in_turn("limit", [100, 1500])
def test_a_disk_that_is_full_from_the_start_is_one_sentence(tmp_path, limit):
    done = command(tmp_path, "train", *options(small()), "--out", "run", limit=limit)
    one_sentence(done, "symloss: run", "cannot be written (File too large)")


def test_a_loss_that_becomes_nan_stops_at_once_and_keeps_the_last_checkpoint(tmp_path):
    kept = []
    # A ratio of losses or a direction could hide them.
    for loss in ("alpha-mae", "nce", "nfl+mae", "cosine", "unhinged"):
        chosen, file = small(loss, model="training_helpers:breaks"), tmp_path / loss / "checkpoint.pt"
        with refused(Diverged, "the loss became nan at step 5 of epoch 3", "last checkpoint is kept", "below 0.05"):
            run(chosen, file.parent, on_epoch=lambda _, file=file: kept.append(file.read_bytes()))
        assert file.read_bytes() == kept[-1]
        assert not (file.parent / "result.json").exists()
        assert [row["epoch"] for row in metrics(file.parent)] == [1, 2]


def test_weights_that_become_nan_at_the_last_step_are_not_saved(tmp_path):
    with refused(Diverged, "the weights became infinite or nan at the end of epoch 3"):
        run(small(model="training_helpers:breaks_late"), tmp_path)
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["epoch"] == 2
    assert all(value.isfinite().all() for value in weights(tmp_path).values())


@in_turn("clip", [None, 5.0])
def test_a_learning_rate_that_is_far_too_large_names_the_step(tmp_path, clip):
    with refused(Diverged, " became ", "at step 2 of epoch 1", "a learning rate below 1e+30 may help"):
        run(small("ce", model="mlp:hidden=16,norm=none", lr=1e30, clip=clip), tmp_path)


def settings(**given):
    return small(model="mlp:hidden=32,norm=none", validation=0.0, **given)


def assert_follows(two, one):
    """To 1e-5, in weights and in what is measured."""
    first, second = weights(one), weights(two)
    assert first.keys() == second.keys()
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-5
    for ours, theirs in zip(metrics(two), metrics(one), strict=True):
        for name in ("loss", "train_accuracy", "clean_accuracy", "memorised", "test_accuracy"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4)
    ours, theirs = (read_margins(folder) for folder in (two, one))
    assert ours.epochs == theirs.epochs
    for name in ("positions", "margin", "unit_margin"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=1e-4)


def _spawn(chosen, folder):
    """As people have it: the two import everything, and what they are to do is pickled."""
    training_run.SEVERAL_PROCESSES = "ddp_spawn"
    run(chosen, folder, devices=2)


@pytest.mark.slow
def test_two_processes_follow_one(tmp_path):
    chosen = settings(batch=64, subset=448)
    run(chosen, tmp_path / "one")
    assert exit_code(_spawn, chosen, tmp_path / "two") == 0
    assert 3 * 448 / 64 > 20
    assert_follows(tmp_path / "two", tmp_path / "one")


def of_torchrun(rank, port):
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
    sizes = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "test"}
    return ranks | sizes | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _torchrun(rank, port, chosen, folder):
    os.environ |= of_torchrun(rank, port)
    run(chosen, folder, devices=2)


@pytest.mark.slow
def test_processes_of_torchrun_with_unequal_shares_and_an_empty_one(tmp_path):
    """Batches of 33 are shared as 17 and 16, and the last one has a lone example."""
    chosen = settings(batch=33, subset=7 * 33 + 1)
    run(chosen, tmp_path / "one")
    port = free_port()
    processes = [training_helpers.start(_torchrun, rank, port, chosen, tmp_path / "two") for rank in range(2)]
    assert [training_helpers.ended(process) for process in processes] == [0, 0]
    assert_follows(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
def test_two_processes_of_torchrun_print_one_document(tmp_path):
    words = ("train", "--epochs", "2", "--settings", "subset=400", "--accelerator", "cpu", "--devices", "2", "--json")
    port = free_port()
    both = [
        training_helpers.start_command(tmp_path, *words, name=str(rank), **of_torchrun(rank, port)) for rank in range(2)
    ]
    first, second = (training_helpers.finished(process, tmp_path, str(rank)) for rank, process in enumerate(both))
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert json.loads(first.stdout)["last"]["epoch"] == 2
    assert second.stdout == ""


@pytest.mark.slow
def test_what_goes_wrong_in_another_process_is_said_in_one_sentence(tmp_path):
    chosen = ["--model", "mlp:hidden=8,norm=none", "--settings", "subset=400", "--loss", "ce", "--lr", "1e30"]
    done = command(tmp_path, "train", *chosen, "--accelerator", "cpu", "--devices", "2")
    assert (done.code, "Traceback" in done.stderr) == (2, False), done.stderr
    assert re.match("symloss: the .*at step 2 of epoch 1", done.stderr.splitlines()[-1])
