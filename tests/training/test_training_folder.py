"""The folder of a run: nothing in it is ever half-written, and nothing read from it runs code."""

import contextlib
import multiprocessing
import os
import pickle

import pytest
import torch
from refusals import refused
from training_helpers import exit_code, start

from symloss.training import Settings
from symloss.training.folder import Busy, RunFolder
from symloss.writing import DiskFull, write_whole


@pytest.fixture
def folder(tmp_path):
    found = RunFolder(tmp_path / "run")
    found.start(Settings(lr=0.1))
    return found


def state(epoch):
    return {"epoch": epoch, "model": {"w": torch.full((50,), float(epoch))}}


def truncate(path, size=None):
    os.truncate(path, path.stat().st_size // 2 if size is None else size)


def test_write_whole_replaces_a_file_and_leaves_nothing_else(tmp_path):
    for content in (b"one", b"two"):
        write_whole(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=type)
def test_write_whole_that_fails_leaves_the_old_file(tmp_path, monkeypatch, name, error):
    def fails(*_):
        raise error

    write_whole(tmp_path / "file", b"old")
    monkeypatch.setattr(os, name, fails)
    with pytest.raises(type(error)):
        write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_said_in_one_sentence(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refused(DiskFull, tmp_path / "file", "cannot be written", "No space left on device", "is kept"):
        write_whole(tmp_path / "file", b"new")


def test_a_file_without_what_it_must_hold_is_damaged(folder):
    folder.write("result.json", {"last": {}})
    assert folder.read("result.json", needs=["last"]) == {"last": {}}
    with refused(ValueError, folder.path / "result.json", "is damaged: it must hold 'best'; got ['last']"):
        folder.read("result.json", needs=["last", "best"])


def test_a_checkpoint_without_a_model_is_none(folder):
    folder.save_checkpoint(state(1))
    folder.save_checkpoint({"epoch": 2})
    with pytest.warns(UserWarning, match="it holds no model"):
        assert folder.load_checkpoint()["epoch"] == 1


def test_the_last_checkpoint_is_loaded(folder):
    assert folder.load_checkpoint() is None
    for epoch in (1, 2, 3):
        folder.save_checkpoint(state(epoch))
        assert folder.load_checkpoint()["epoch"] == epoch


@pytest.mark.parametrize("size", [None, 0, 10, 100])
def test_a_truncated_checkpoint_falls_back_to_the_one_before_it_with_a_warning(folder, size):
    folder.save_checkpoint(state(1))
    folder.save_checkpoint(state(2))
    truncate(folder.path / "checkpoint.pt", size)
    with pytest.warns(UserWarning, match=r"checkpoint.pt is no whole checkpoint.*going back") as warned:
        found = folder.load_checkpoint()
    assert found["epoch"] == 1
    assert torch.equal(found["model"]["w"], state(1)["model"]["w"])
    assert "\n" not in str(warned[0].message)


def test_without_a_whole_checkpoint_there_is_none(folder):
    folder.save_checkpoint(state(1))
    folder.save_checkpoint(state(2))
    for name in ("checkpoint.pt", "checkpoint-previous.pt"):
        truncate(folder.path / name)
    with pytest.warns(UserWarning, match="no whole checkpoint"):
        assert folder.load_checkpoint() is None


def test_a_checkpoint_that_was_replaced_halfway_is_the_one_before_it(folder, monkeypatch):
    folder.save_checkpoint(state(1))
    replace, seen = os.replace, []

    def dies(source, target):
        seen.append(target)
        if len(seen) == 3:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        folder.save_checkpoint(state(2))
    assert not (folder.path / "checkpoint.pt").exists()
    assert folder.load_checkpoint()["epoch"] == 1


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("save", [torch.save, lambda data, path: path.write_bytes(pickle.dumps(data, 2))])
def test_a_checkpoint_that_would_run_code_is_refused(folder, tmp_path, save):
    path = folder.path / "checkpoint.pt"
    save(Malicious(str(tmp_path / "executed")), path)
    with contextlib.suppress(Exception):
        torch.load(path, weights_only=False)
    assert (tmp_path / "executed").exists()
    (tmp_path / "executed").rmdir()
    with pytest.warns(UserWarning, match="no whole checkpoint"):
        assert folder.load_checkpoint() is None
    assert not (tmp_path / "executed").exists()


def test_a_run_with_other_settings_is_refused_and_kept(folder):
    folder.start(Settings(lr=0.1))
    with refused(ValueError, folder.path, "other settings (lr)", "choose another folder"):
        folder.start(Settings(lr=0.2))
    assert folder.settings() == Settings(lr=0.1)


def test_a_run_of_before_is_gone_on_with(folder):
    """Settings that came later have their defaults there, and no format was written."""
    document = folder.read("settings.json")
    for name in ("format", "profile", "noise_seed"):
        del document[name]
    folder.write("settings.json", document)
    folder.start(Settings(lr=0.1))
    assert folder.settings() == Settings(lr=0.1)


def test_a_run_of_a_newer_version_is_refused_in_one_sentence(folder):
    folder.write("settings.json", folder.read("settings.json") | {"format": 2, "temperature": 3})
    for use in (folder.settings, lambda: folder.start(Settings(lr=0.1))):
        with refused(ValueError, folder.path, "newer version of symloss", "format 2", "knows 1"):
            use()


def test_a_damaged_settings_file_is_refused_in_one_sentence(folder):
    (folder.path / "settings.json").write_text("{")
    with refused(ValueError, folder.path / "settings.json", "must hold JSON"):
        folder.start(Settings(lr=0.1))


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


def test_two_processes_cannot_hold_a_folder(folder):
    with folder.alone():
        assert exit_code(_enter, folder.path) == 17
    assert exit_code(_enter, folder.path) == 0


def test_the_lock_goes_with_a_process_that_is_killed(folder):
    ours, theirs = multiprocessing.Pipe()
    process = start(_hold, folder.path, theirs)
    assert ours.recv() == "held"
    with refused(Busy, folder.path, "is being trained by another process"), folder.alone():
        pass
    process.kill()
    process.join()
    with folder.alone():
        pass


def test_metrics_are_cut_back_to_the_checkpoint(folder):
    for epoch in (1, 2, 3):
        folder.append_metrics({"epoch": epoch, "loss": 1 / epoch})
    folder.cut_metrics(2)
    assert folder.metrics() == [{"epoch": 1, "loss": 1.0}, {"epoch": 2, "loss": 0.5}]
    folder.cut_metrics(0)
    assert folder.metrics() == []


def test_a_line_that_was_cut_off_is_none(folder):
    folder.append_metrics({"epoch": 1})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "lo')
    assert folder.metrics() == [{"epoch": 1}]
    folder.cut_metrics(1)
    folder.append_metrics({"epoch": 2})
    assert folder.metrics() == [{"epoch": 1}, {"epoch": 2}]
