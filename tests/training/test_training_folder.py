"""The folder of a run: nothing is half-written, nothing read from it runs code, and the best epoch is kept."""

import contextlib
import dataclasses
import functools
import multiprocessing
import os
import pickle
from types import SimpleNamespace

import pytest
import torch
from hostile_pickle import Bomb
from in_turn import in_turn
from lightning_fabric import Fabric
from refusals import refused
from training_helpers import CURVES, cut_off, exit_code, metrics, own_table, reference, run, small, start

from symloss.experiments import resolve
from symloss.training import Settings
from symloss.training.checkpoint import TO_GO_ON, load_checkpoint, load_state, save_checkpoint, save_state
from symloss.training.loop import fit
from symloss.training.results import EpochRow, Result
from symloss.training.run_folder import Busy, RunFolder
from symloss.writing import DiskFull, write_whole


@pytest.fixture
def folder(tmp_path):
    found = RunFolder(tmp_path / "run")
    found.start(Settings(lr=0.1))
    return found


def state(epoch):
    return {"epoch": epoch, "model": {"w": torch.full((50,), float(epoch))}}


@in_turn("name", ["fsync", "replace"])
def test_write_whole_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, name):
    full = OSError(28, "No space left on device")
    for content in (b"older", b"old"):
        write_whole(tmp_path / "file", content)
    for error, said in ((full, DiskFull if name == "fsync" else OSError), (KeyboardInterrupt(), KeyboardInterrupt)):
        cut_off(monkeypatch, 1, name, error=error)
        parts = (tmp_path / "file", "cannot be written", "No space left on device", "is kept")
        with refused(said, *parts) if said is DiskFull else pytest.raises(said):
            write_whole(tmp_path / "file", b"new")
        assert (tmp_path / "file").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["file"]


def test_the_last_whole_checkpoint_is_loaded_with_a_warning_if_it_is_the_one_before(folder):
    assert load_checkpoint(folder) is None
    for epoch in (1, 2):
        save_checkpoint(folder, state(epoch))
        assert load_checkpoint(folder)["epoch"] == epoch
    for size in (500, 100, 10, 0):
        os.truncate(folder.path / "checkpoint.pt", size)
        with pytest.warns(UserWarning, match=r"checkpoint.pt is not a complete checkpoint.*going back") as warned:
            found = load_checkpoint(folder)
        assert torch.equal(found["model"]["w"], state(1)["model"]["w"])
        assert "\n" not in str(warned[0].message)
    save_checkpoint(folder, state(2))
    save_checkpoint(folder, {"epoch": 3})
    with pytest.warns(UserWarning, match="it must hold model as an object; got None"):
        assert load_checkpoint(folder)["epoch"] == 2
    whole = {"epoch": 3, "model": {}, "optimizer": {}, "seconds": 1.0, "best": {"validation_accuracy": 0.5}, "last": {}}
    for damaged, said in (
        ({name: value for name, value in whole.items() if name != "best"}, "it must hold best as an object or nothing"),
        (whole | {"best": {}}, "its best epoch must hold validation_accuracy as a number or nothing"),
    ):
        save_checkpoint(folder, damaged)
        with refused(ValueError, said):
            load_state(folder.path / "checkpoint.pt", TO_GO_ON)
    save_checkpoint(folder, whole)
    assert load_state(folder.path / "checkpoint.pt", TO_GO_ON)["best"] == whole["best"]
    for name in ("checkpoint.pt", "checkpoint-previous.pt"):
        os.truncate(folder.path / name, 500)
    left = ("No good checkpoint is left", f"remove {folder.path} to train from the")
    with refused(ValueError, "checkpoint.pt is not", "checkpoint-previous.pt is not", *left):
        load_checkpoint(folder)


def test_a_flipped_bit_is_noticed_wherever_it_is(folder):
    for epoch in (1, 2):
        save_checkpoint(folder, state(epoch))
    path = folder.path / "checkpoint.pt"
    data = path.read_bytes()
    mark = data.index(b"sha256:")
    assert mark == len(data) - 7 - 64
    for place in sorted({*range(0, len(data), 31), *range(mark - 30, len(data))} - set(range(mark, mark + 7))):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        with pytest.warns(UserWarning, match=r"not those that were written\); going back to the previous one, of"):
            found = load_checkpoint(folder)
        assert torch.equal(found["model"]["w"], state(1)["model"]["w"])


def test_a_checkpoint_that_was_replaced_halfway_is_the_one_before_it(folder, monkeypatch):
    save_checkpoint(folder, state(1))
    cut_off(monkeypatch, 3, "replace", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(folder, state(2))
    assert not (folder.path / "checkpoint.pt").exists()
    assert load_checkpoint(folder)["epoch"] == 1


@pytest.mark.parametrize("save", [torch.save, lambda data, path: path.write_bytes(pickle.dumps(data, 2))])
def test_a_checkpoint_that_would_run_code_is_refused(folder, tmp_path, save):
    path = folder.path / "checkpoint.pt"
    save(Bomb(tmp_path / "executed"), path)
    with contextlib.suppress(Exception):
        torch.load(path, weights_only=False)
    assert (tmp_path / "executed").exists()
    (tmp_path / "executed").rmdir()
    with refused(ValueError, "not a complete checkpoint"):
        load_checkpoint(folder)
    assert not (tmp_path / "executed").exists()


def test_a_run_with_other_settings_is_refused_and_kept(folder):
    """Settings that came later have their defaults in older files, and no format was written there."""
    document = folder.read("settings.json")
    folder.write("settings.json", {name: document[name] for name in document if name not in ("format", "noise_seed")})
    folder.start(Settings(lr=0.1))
    with refused(ValueError, folder.path, "other settings (lr)", "Choose another folder"):
        folder.start(Settings(lr=0.2))
    assert folder.settings() == Settings(lr=0.1)
    folder.write("settings.json", document | {"format": 2, "temperature": 3})
    for use in (folder.settings, lambda: folder.start(Settings(lr=0.1))):
        with refused(ValueError, folder.path, "newer version of symloss", "format 2", "knows 1"):
            use()


@in_turn("text", ["{", '{"data": ' + "[" * 100_000])
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path, text):
    folder = RunFolder(tmp_path)
    for name, use in (("settings.json", folder.settings), ("result.json", folder.result)):
        (tmp_path / name).write_text(text)
        with refused(ValueError, tmp_path / name, "must hold JSON"):
            use()
    nested = functools.reduce(lambda inner, _: [inner], range(10_000), [])
    with refused(TypeError, "data must be a text; got a list that is nested too deeply"):
        Settings(data=nested)


def _enter(path):
    try:
        with RunFolder(path).alone():
            pass
    except Busy:
        raise SystemExit(17) from None


def _hold(path, ready):
    with RunFolder(path).alone():
        ready.send("held")
        ready.recv()


def test_two_processes_cannot_hold_a_folder_and_the_lock_goes_with_one_that_is_killed(folder):
    with folder.alone():
        assert exit_code(_enter, folder.path) == 17
    assert exit_code(_enter, folder.path) == 0
    ours, theirs = multiprocessing.Pipe()
    process = start(_hold, folder.path, theirs)
    assert ours.recv() == "held"
    with refused(Busy, folder.path, "is being trained by another process"), folder.alone():
        pass
    process.kill()
    process.join()
    with folder.alone():
        pass


def test_the_one_whose_lock_was_removed_writes_nothing_more(folder):
    with folder.alone():
        folder.append_metrics(EpochRow(1))
        (folder.path / "lock").unlink()
        assert exit_code(_enter, folder.path) == 0, "another one comes in"
        before = sorted((path.name, path.read_bytes()) for path in folder.path.iterdir())
        for write in (
            lambda: folder.append_metrics(EpochRow(2)),
            lambda: folder.cut_metrics(0),
            lambda: save_checkpoint(folder, state(1)),
            lambda: save_state(folder, "best.pt", state(1)),
            lambda: folder.write("result.json", {}),
        ):
            with refused(Busy, folder.path / "lock", "was removed", "Nothing more is written"):
                write()
        assert sorted((path.name, path.read_bytes()) for path in folder.path.iterdir()) == before


def test_metrics_are_on_the_disk_before_their_checkpoint(folder, monkeypatch):
    seen, replace = [], os.replace

    def synced(number):
        names = {path.stat().st_ino: path.name for path in [folder.path, *folder.path.iterdir()]}
        seen.append(names[os.fstat(number).st_ino])

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda old, new: seen.append(f"to {new.name}") or replace(old, new))
    folder.append_metrics(EpochRow(1))
    save_checkpoint(folder, state(1))
    assert seen == ["metrics.jsonl", "checkpoint.pt.new.part", "to checkpoint.pt.new", "to checkpoint.pt", "run"]


@in_turn("damage", [b"", b"garbage", b'{"epoch": 1, "loss": 1.0}\n{"epo', None])
def test_metrics_that_were_lost_before_the_checkpoint_are_a_warning(tmp_path, damage):
    folder = RunFolder(tmp_path)
    if damage is not None:
        (tmp_path / "metrics.jsonl").write_bytes(damage)
    kept = [1, 3] if damage and b"\n" in damage else [3]
    with pytest.warns(UserWarning, match=rf"metrics.jsonl has lost {3 - len(kept)} of the 3 epochs before the check"):
        folder.cut_metrics(3, EpochRow(3, loss=1.0))
    assert [row.epoch for row in folder.metrics()] == kept


@in_turn(
    "line",
    [b"garbage", b"\xff\x00", b"[1]", b'{"loss": 1}', b'{"epoch": "1"}', b'{"epoch": 1, "loss": "x"}', b"[" * 100_000],
)
def test_garbage_among_the_metrics_is_one_sentence(folder, line):
    (folder.path / "metrics.jsonl").write_bytes(b'{"epoch": 1}\n' + line + b'\n{"epoch": 3}\n')
    for use in (folder.metrics, lambda: folder.cut_metrics(3)):
        with refused(ValueError, folder.path / "metrics.jsonl", "is damaged: line 2 must hold the metrics of an epoch"):
            use()


def test_metrics_are_cut_back_to_the_checkpoint(folder):
    rows = [EpochRow(epoch, loss=1 / epoch) for epoch in (1, 2, 3)]
    for row in rows:
        folder.append_metrics(row)
    folder.cut_metrics(2)
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 3, "lo')
    assert folder.metrics() == rows[:2], "a line that was cut off is none"
    folder.cut_metrics(2)
    folder.append_metrics(rows[2])
    assert folder.metrics() == rows
    folder.cut_metrics(0)
    assert folder.metrics() == []


class Scripted:
    """A trainer, on one's own data by default, whose validation goes as it is told."""

    def __init__(self, accuracies, data="mine.csv", validation="validation"):
        self.settings = dataclasses.replace(small(), data=data, epochs=len(accuracies))
        self.task = SimpleNamespace(validation=validation, test=None)
        self.fabric = Fabric(accelerator="cpu", devices=1)
        self.accuracies, self.epoch = accuracies, 0

    def train_epoch(self, epoch):
        self.epoch = epoch
        return EpochRow(epoch + 1, loss=1.0)

    def evaluate(self, part):
        assert part == "validation"
        return self.accuracies[self.epoch]

    def state(self):
        return {"model": {"epoch": torch.tensor(self.epoch + 1)}, "optimizer": {}}

    def load(self, state):
        pass


@in_turn("accuracies, best", [((0.1, 0.5, 0.5, 0.4), 2), ((0.3, 0.2), 1), ((0.1, 0.2, 0.3), 3)])
def test_on_published_data_it_is_the_first_with_the_largest_validation_accuracy(tmp_path, accuracies, best):
    found = fit(Scripted(accuracies, "digits"), RunFolder(tmp_path))
    assert (found.row.epoch, found.accuracy, kept(tmp_path)) == (best, accuracies[best - 1], best)
    (tmp_path / "none").mkdir()
    assert fit(Scripted(accuracies, validation=None), RunFolder(tmp_path / "none")).row.epoch == len(accuracies)
    assert not (tmp_path / "none" / "best.pt").exists()


def kept(folder):
    state = load_state(folder / "best.pt")
    assert state["epoch"] == int(state["model"]["epoch"])
    return state["epoch"]


@in_turn("curve", CURVES)
def test_the_best_epoch_has_the_best_smoothed_accuracy(tmp_path, curve):
    found = fit(Scripted(CURVES[curve]), RunFolder(tmp_path))
    epoch, accuracy = reference(CURVES[curve])
    assert (found.row.epoch, kept(tmp_path)) == (epoch, epoch)
    assert found.row.validation_accuracy == CURVES[curve][epoch - 1]
    assert found.accuracy == pytest.approx(accuracy)
    assert not list(tmp_path.glob("waiting*"))


@in_turn("curve", ["a hill", "falling"])
def test_a_run_that_is_interrupted_anywhere_keeps_the_same_epoch(tmp_path, monkeypatch, curve):
    (tmp_path / "whole").mkdir()
    whole = fit(Scripted(CURVES[curve]), RunFolder(tmp_path / "whole"))
    for nth in range(1, 100):
        folder = tmp_path / str(nth)
        folder.mkdir()
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):  # the power is cut
            cut_off(patch, nth, "replace", error=KeyboardInterrupt())
            fit(Scripted(CURVES[curve]), RunFolder(folder))
            break
        found = fit(Scripted(CURVES[curve]), RunFolder(folder))
        assert (found.row.epoch, found.accuracy) == (whole.row.epoch, whole.accuracy)
        assert kept(folder) == whole.row.epoch
        assert sorted(os.listdir(folder)) == sorted(os.listdir(tmp_path / "whole"))
    assert nth > 3 * len(CURVES[curve])


@in_turn(
    "accuracies, epochs, then",
    [
        *((CURVES["a lucky epoch"], epochs, CURVES["a lucky epoch"]) for epochs in range(2, 9)),
        # With another number of threads the epoch after the checkpoint is another one, and epoch 3 wins this time.
        ((0.5, 0.4, 0.4, 0.4, 0.1, 0.0, 0.0), 5, (0.5, 0.4, 0.4, 0.4, 1.0, 0.0, 0.0)),
    ],
)
def test_a_damaged_checkpoint_does_not_lose_the_best_epoch(tmp_path, accuracies, epochs, then):
    with pytest.raises(ZeroDivisionError):
        fit(Scripted(accuracies), RunFolder(tmp_path), lambda row: 1 / (row.epoch - epochs))
    (tmp_path / "checkpoint.pt").write_bytes(b"torn")
    assert then == accuracies or kept(tmp_path) == 1
    with pytest.warns(UserWarning, match="the previous one"):
        found = fit(Scripted(then), RunFolder(tmp_path))
    assert found.row.epoch == kept(tmp_path) == reference(then)[0]


def test_weights_that_somebody_removed_are_missed(tmp_path):
    trainer, file = Scripted(CURVES["a lucky epoch"]), tmp_path / "waiting-4.pt"
    with refused(ValueError, file, "must hold the weights of epoch 4"):
        fit(trainer, RunFolder(tmp_path), lambda row: row.epoch == 4 and file.unlink())


def test_a_result_on_ones_own_data_states_the_smoothed_accuracy(tmp_path):
    folder = tmp_path / "run"
    document = run(resolve(own_table(tmp_path), "ce", model="mlp:hidden=4", epochs=7, validation=0.2), folder)
    epoch, accuracy = reference([row["validation_accuracy"] for row in metrics(folder)])
    assert (document["best"]["epoch"], load_state(folder / "best.pt")["epoch"]) == (epoch, epoch)
    assert document["smoothed"] == pytest.approx(accuracy)
    own = RunFolder(folder).result()
    unsmoothed, unknown = dataclasses.replace(own, smoothed=None), dataclasses.replace(own, validation=0)
    published = dataclasses.replace(own, settings=small())  # there the last epoch counts
    assert [each.best_first for each in (own, unsmoothed, unknown, published)] == [True, True, False, False]
    judged = [each.judged for each in (own, unsmoothed, published)]
    assert judged == [document["smoothed"], own.best.validation_accuracy, own.last.validation_accuracy]
    for other, said in (({"smoothed": "high"}, "smoothed as a number or nothing; got 'high'"), ({}, "noise_rate as a")):
        incomplete = {name: value for name, value in document.items() if other or name != "noise_rate"}
        with refused(ValueError, f"must hold {said}"):
            Result.from_json(incomplete | other, tmp_path)
