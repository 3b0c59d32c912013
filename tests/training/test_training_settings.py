"""The record of a run: to a file and back, its key, its folder, its learning rates, and several runs as one row."""

import dataclasses
import json
import math

import pytest
import torch
from in_turn import in_turn
from refusals import refused
from torch.optim import lr_scheduler
from training_helpers import small

from symloss.training import Settings
from symloss.training.results import EpochRow, Result, summarize
from symloss.training.run_folder import folder_name
from symloss.training.settings import Schedule, with_seeds

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
