"""The record of a run: to a file and back, its key, and what it refuses."""

import dataclasses
import json

import pytest
from refusals import refused

from symloss.training import Settings

OTHER = {
    "data": "mnist", "noise": "sym:0.2", "counts": "floor", "loss": "mae", "scores": "l2", "penalty": 0.1,
    "model": "cnn4", "epochs": 61, "batch": 64, "optimizer": "adam", "lr": 0.02, "momentum": 0.8,
    "weight_decay": 0.1, "schedule": "constant", "clip": None, "augment": False, "subset": 100, "validation": 0.2,
    "clean_validation": True, "seed": 1, "noise_seed": 0, "precision": "bf16-mixed", "channels_last": True,
    "compile": True, "label": "class", "image": "file", "test": "test.csv", "drop": "id",
    "categorical": "town", "keep": "row", "fingerprint": "0123", "profile": "mini", "size": 64,
}  # fmt: skip


def test_another_value_is_given_for_every_field():
    assert [field.name for field in dataclasses.fields(Settings)] == list(OTHER)


def test_to_json_and_back():
    for settings in (Settings(), Settings(**OTHER)):
        assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_the_key_is_the_same_on_every_machine():
    """Written down: another key would make every run of before a stranger."""
    assert Settings().key == "409d90e4caff"


@pytest.mark.parametrize("name", OTHER)
def test_the_key_changes_with_every_field(name):
    assert dataclasses.replace(Settings(), **{name: OTHER[name]}).key != Settings().key


@pytest.mark.parametrize(("name", "value"), [("lr", 1), ("clip", 5), ("weight_decay", 0), ("epochs", 2.0)])
def test_settings_that_are_equal_have_the_same_key(name, value):
    other = float(value) if isinstance(value, int) else int(value)
    one, two = Settings(**{name: value}), Settings(**{name: other})
    assert one == two
    assert one.key == two.key


@pytest.mark.parametrize(
    ("name", "value"),
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


def test_a_noise_is_the_same_however_it_is_written():
    assert [Settings(noise=text).noise for text in ("CLEAN", " sym:.60")] == ["clean", "sym:0.6"]


def test_a_clip_of_zero_is_none():
    assert Settings(clip=0) == Settings(clip=None)


@pytest.mark.parametrize("name", ["epochs", "lr", "clip", "subset"])
def test_what_is_no_number_is_refused_in_one_sentence(name):
    with refused(TypeError, f"{name} must be", "got 'many'"):
        Settings(**{name: "many"})


@pytest.mark.parametrize("name", ["data", "loss", "schedule", "profile", "image", "fingerprint", "augment", "compile"])
def test_what_is_no_text_or_no_switch_is_refused_in_one_sentence(name):
    with refused(TypeError, f"{name} must be", "got 5"):
        Settings(**{name: 5})


def test_a_setting_that_does_not_exist_is_refused_with_a_hint():
    with refused(ValueError, "there is no setting 'optimiser'", "did you mean 'optimizer'?"):
        Settings.from_dict({"optimiser": "sgd"})
