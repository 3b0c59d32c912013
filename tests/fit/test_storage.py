"""The folder of a fit is one thing: kills, full disks, damaged files, values that cannot be, what it does not hold."""

import contextlib
import errno
import itertools
import json
import os
import pickle
import random
import sys
import time
import warnings
import zipfile

import numpy as np
import pytest
import torch
from hostile_pickle import Bomb
from in_turn import in_turn
from refusals import refused
from resigned import resign
from sklearn.tree import DecisionTreeClassifier
from skops.io import dumps
from test_fit_command import write_table

from symloss import RobustClassifier, writing
from symloss.cli.audit_output import write_corrected
from symloss.cli.fit import write
from symloss.data import open_data
from symloss.fit.folder import OF_AUDITS, is_saved_fit, load_audit, load_source, open_fit
from symloss.fit.learners import KINDS
from symloss.fit.search import Memory
from symloss.fit.storage import load_predictor, open_predictor, save_predictor
from symloss.fit.training_data import features_of, noisy_labels
from symloss.writing import repair_folder

OLD, NEW = ("ant", "bee", "cat"), ("ass", "mule", "zebra")
FLIPS = 250
WRITES = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.link", "shutil.rmtree")
DEFAULTS = dict.fromkeys(("image", "test", "drop", "categorical", "keep", "size"))
SETTINGS = DEFAULTS | {
    "noise": "clean", "seed": 0, "budget": 1.0, "model": "auto", "simple": False, "label": "label", "skip_bad": False
}  # fmt: skip


class Fit:
    """A table that was fitted, to be written anywhere."""

    def __init__(self, folder, classes):
        self.table = folder / f"{classes[0]}.csv"
        write_table(self.table)
        text = self.table.read_text()
        for old, new in zip(OLD, classes, strict=True):
            text = text.replace(old, new)
        self.table.write_text(text)
        self.data = open_data(str(self.table))
        self.corruption = noisy_labels(self.data, "clean", 0)
        learners = ["network", "closed-form", "logistic"]
        self.model = RobustClassifier(learners=learners, losses=["ce"], budget=0.3, rounds=1)
        self.model.fit(features_of(self.data.train, self.data.size), self.corruption.labels)
        assert any(member.networks for member in self.model.predictor_.members)
        assert any(member.estimator for member in self.model.predictor_.members)

    def write(self, folder):
        settings = SETTINGS | {"data": str(self.table)}
        write(folder, self.model, self.corruption, self.data, settings, time.perf_counter())


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fits")
    return Fit(folder, OLD), Fit(folder, NEW)


@pytest.fixture
def saved(fits, tmp_path):
    """A fit on disk, that every test may damage."""
    fits[0].write(tmp_path / "model")
    return tmp_path / "model"


def classes_of(folder):
    """The classes by every file that knows them. They agree, or the folder mixes two models."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_fit(folder, OF_AUDITS)
    data, predictor, _ = open_predictor(folder)
    assert predictor.probabilities(np.zeros((1, *data.input_shape), np.float32)).shape == (1, 3)
    page = (folder / "audit.html").read_text()
    on_page = next(classes for classes in (OLD, NEW) if f">{classes[0]}<" in page)
    source = OLD if "ant.csv" in load_source(folder).source.data else NEW
    (told,) = {tuple(load_audit(folder).class_names), data.class_names, on_page, source}
    return told


def killed_at(step, work):
    """Whether ``work`` was killed before its n-th change of the disk. It runs in a process of its own."""
    process = os.fork()
    if process == 0:
        steps = itertools.count()

        def count(event, arguments):
            writes = event in WRITES or (event == "open" and arguments[1] is not None and "r" not in arguments[1])
            if writes and next(steps) == step:
                os._exit(9)

        sys.addaudithook(count)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9


def every_kill(folder, prepare, work):
    """``work(path)`` is killed at its first step, its second one, and so on: each time in a folder of its own."""
    for step in itertools.count():
        path = folder / str(step) / "model"
        prepare(path)
        if not killed_at(step, lambda path=path: work(path)):
            assert step
            return
        yield path


def test_a_kill_leaves_the_old_model_or_the_new_one(fits, tmp_path):
    """Notes beside the model stay; the next fit needs no help."""
    old, new = fits

    def prepare(path):
        old.write(path)
        (path / "notes.txt").write_text("mine")

    found = []
    for folder in every_kill(tmp_path, prepare, new.write):
        assert is_saved_fit(folder)
        found.append(classes_of(folder))
        assert (folder / "notes.txt").read_text() == "mine"
        if len(found) % 8 == 0:
            new.write(folder)
            assert classes_of(folder) == NEW
            assert [path.name for path in folder.parent.iterdir()] == ["model"]
    assert len(found) > 40
    assert found == sorted(found, key=(OLD, NEW).index)  # the old model up to some step, from there on the new one
    assert set(found) == {OLD, NEW}


def test_a_first_fit_that_is_killed_leaves_no_model_or_a_whole_one(fits, tmp_path):
    """Also where what was found so far is in the folder."""
    seen = []
    for folder in every_kill(tmp_path, lambda path: (path / "unfinished").mkdir(parents=True), fits[0].write):
        seen.append(is_saved_fit(folder) and classes_of(folder))
    assert set(seen) == {False, OLD}
    assert seen == sorted(seen, key=bool)


def test_a_kill_of_apply_leaves_no_copy_or_a_whole_one(fits, saved, tmp_path):
    fit, source = fits[0], load_source(saved)
    places = fit.data.train.origin

    def apply(path):
        write_corrected(source, places, {0: "cat", 1: "ant"}, path / "ant-corrected.csv")

    for folder in every_kill(tmp_path, lambda path: path.mkdir(parents=True), apply):
        assert not (folder / "ant-corrected.csv").exists()
    apply(saved)
    before, after = (path.read_text().splitlines() for path in (fit.table, saved / "ant-corrected.csv"))
    assert [line.rpartition(",")[2] for line in after[1:3]] == ["cat", "ant"]
    assert [k for k, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]] == [1, 2]
    assert classes_of(saved) == OLD  # the copy lies beside the model, and is no part of it


def test_a_full_disk_leaves_the_old_model(fits, saved, monkeypatch):
    real = os.fsync
    for number in (0, 3, 9):
        calls = itertools.count()

        def full(file, calls=calls, number=number):
            if next(calls) >= number:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(file)

        monkeypatch.setattr(writing.os, "fsync", full)
        with refused(writing.DiskFull, "cannot be written (No space left on device); what was there before is kept"):
            fits[1].write(saved)
        monkeypatch.setattr(writing.os, "fsync", real)
        assert classes_of(saved) == OLD
        assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_no_flipped_bit_goes_unnoticed(saved):
    """An error where the file is read, a warning where it is for people."""
    rng = random.Random(0)
    files = sorted(saved.iterdir())
    assert len(files) > 10
    for _ in range(FLIPS):
        file = rng.choice(files)
        content = bytearray(file.read_bytes())
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        content[place] ^= 1 << bit
        file.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            with pytest.raises((ValueError, UserWarning)):
                open_fit(saved, OF_AUDITS)
        content[place] ^= 1 << bit
        file.write_bytes(content)
    assert classes_of(saved) == OLD
    (saved / "audit.csv").write_text("edited in a spreadsheet")
    with pytest.warns(UserWarning, match=r"audit.csv has changed since the fit"):
        open_predictor(saved)
    (saved / "networks.pt").unlink()
    with (
        pytest.warns(UserWarning, match=r"audit.csv"),
        refused(ValueError, "is damaged: networks.pt is missing since the fit; fit again"),
    ):
        open_predictor(saved)


def member(name, value, place=0):
    return lambda document: document["model"]["members"][place].update({name: value})


def model(name, value):
    return lambda document: document["model"].update({name: value})


@in_turn(
    "change, message",
    [
        *((model("temperature", value), "temperature must be a number in") for value in (0, float("nan"), -1, 1e-320)),
        (member("temperature", 0.0), "temperature must be a number in"),
        *((member("weight", value), "weight must be a number in (0, 1]") for value in (0.0, 2.0)),
        (member("scaling", "standArd"), "scaling must be one of 'raw', 'standard', 'channels'; got 'standArd'"),
        (member("networks", -1), "networks must be a whole number in [0, 1000]; got -1"),
        (member("networks", 3), "networks must be"),
        (member("learner", "pickle"), "learner must be one of"),
        (model("num_classes", 4), "4"),
        (model("input_shape", [7]), "the scaling must be of 7 features"),
        (model("members", []), "members must be one or more; got none"),
        (lambda document: document["model"]["members"].pop(), "is damaged"),
        (lambda document: document["files"].pop("networks.pt"), "model.json must list networks.pt"),
        (lambda document: document.update(format=1), "must hold a model of format 2; got format 1"),
        (lambda document: document["files"].update({"../notes": "0"}), "must list the files of the folder"),
    ],
)
def test_values_that_cannot_be_are_refused(fits, tmp_path, change, message):
    """Although the digests are right: the folder may be somebody else's."""
    fits[0].write(tmp_path / "model")
    resign(tmp_path / "model", change)
    with refused(ValueError, message):
        open_predictor(tmp_path / "model")


@pytest.fixture(scope="module")
def rows():
    """Numbers of which each is met once, and classes that are apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    features = (rng.normal(size=(120, 3)) + 4 * labels[:, None]).astype(np.float32)
    return features, np.where(np.arange(120) % 6 == 0, (labels + 1) % 3, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_predicts_the_same(rows, tmp_path, kind):
    """To the last bit: nothing is fitted again. And of the rows it keeps those that it predicts with, or none."""
    fitted = RobustClassifier(learners=[kind], losses=["ce"], rounds=1, budget=5, folds=2).fit(*rows)
    description = json.loads(json.dumps(save_predictor(fitted.predictor_, tmp_path)))
    loaded = load_predictor(description, tmp_path)
    np.testing.assert_array_equal(loaded.probabilities(rows[0]), fitted.predictor_.probabilities(rows[0]))
    for each in description["members"]:
        del each["weight"]
    earlier = load_predictor(description, tmp_path).members
    assert {one.weight for one in earlier} == {1.0}, "models of earlier versions have none"
    scaled = [fitted.predictor_.scaler(rows[0], name) for name in ("raw", "standard")]
    with zipfile.ZipFile(tmp_path / "learners.skops") as file:
        content = b"".join([*map(file.read, file.namelist()), (tmp_path / "networks.pt").read_bytes()])
    every = [row.astype(kind_of).tobytes() for part in [rows[0], *scaled] for row in part for kind_of in "fd"]
    keeps = any(row in content for row in every)
    learners = {one.candidate.learner for one in fitted.predictor_.members}
    assert keeps == bool(learners & {"k-nn", "svc", "kernel-unhinged"})


def test_a_file_cannot_name_other_types_or_run_code(rows, tmp_path, monkeypatch):
    fitted = RobustClassifier(learners=["logistic"], rounds=1, folds=2).fit(*rows)
    with monkeypatch.context() as patch:
        patch.setattr("sklearn.base.__version__", "0.99")
        description = save_predictor(fitted.predictor_, tmp_path)
    with pytest.warns(UserWarning, match=r"was fitted with scikit-learn 0.99, which is not the version installed here"):
        load_predictor(description, tmp_path)
    description = save_predictor(fitted.predictor_, tmp_path)
    for estimators, named in (
        ([os.path.join], r"posixpath.join"),
        ([DecisionTreeClassifier().fit(*rows)] * len(description["members"]), r"sklearn.tree._tree.Tree"),
    ):
        parts = {"scaler": fitted.predictor_.scaler, "estimators": estimators}
        (tmp_path / "learners.skops").write_bytes(dumps(parts))
        with pytest.raises(Exception, match=named):
            load_predictor(description, tmp_path)
    save_predictor(fitted.predictor_, tmp_path)
    torch.save([Bomb(tmp_path / "made")], tmp_path / "networks.pt")
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        load_predictor(description, tmp_path)
    assert not (tmp_path / "made").exists()


def test_other_folders_and_models_of_other_programs_are_refused(saved, tmp_path):
    (tmp_path / "other").mkdir()  # a folder that is no fit is not repaired
    repair_folder(tmp_path / "other")
    assert not is_saved_fit(tmp_path / "other")
    assert not is_saved_fit(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        open_fit(tmp_path / "nothing", [])
    description = json.loads((saved / "data.json").read_text())
    (saved / "data.json").write_text(json.dumps(description | {"class_names": ["ant", "bee"]}))
    resign(saved)
    with refused(ValueError, "is damaged: the model has 3 classes, and data.json 2; fit again"):
        open_predictor(saved)
    (saved / "learners.skops").write_bytes(b"of the future")
    resign(saved, lambda document: document["versions"].update({"scikit-learn": "9.9"}))
    with refused(ValueError, "was fitted with scikit-learn '9.9', and", "cannot load it: install that version"):
        open_predictor(saved)
    (saved / "model.json").write_text("{")
    with refused(ValueError, "model.json must hold JSON; "):
        open_predictor(saved)


def test_what_was_found_so_far_is_forgotten_if_it_is_damaged(tmp_path):
    memory = Memory(tmp_path, [1])
    memory.keep("svc", {"predictions": np.arange(50.0)})
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for damage in (b"", b"PK\x03\x04", content[: len(content) // 2]):
        file.write_bytes(damage)
        assert memory.recall("svc") is None
    for place in range(0, len(content), 7):
        file.write_bytes(content[:place] + bytes([content[place] ^ 8]) + content[place + 1 :])
        found = memory.recall("svc")
        assert found is None or np.array_equal(found.get("predictions", np.arange(50.0)), np.arange(50.0))
    memory.keep("svc", {"predictions": np.arange(3.0)})
    assert memory.recall("svc")["predictions"].tolist() == [0, 1, 2]


def test_two_processes_that_write_one_folder_do_not_mix_their_models(fits, tmp_path):
    """They take turns, although both began at the same moment."""
    processes = []
    for fit in fits:
        process = os.fork()
        if process == 0:
            with contextlib.suppress(BaseException):
                for _ in range(8):
                    fit.write(tmp_path / "model")
                os._exit(0)
            os._exit(1)
        processes.append(process)
    while processes:
        done, status = os.waitpid(processes[0], os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            processes.pop(0)
        repair_folder(tmp_path / "model")  # as a reader would do at any moment
    assert classes_of(tmp_path / "model") in (OLD, NEW)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
