"""The record of a run: to a file and back, its key, and what it refuses."""

import dataclasses
import json

from in_turn import in_turn
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


def test_to_json_and_back():
    for settings in (Settings(), Settings(**OTHER)):
        assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_the_key_is_the_same_on_every_machine():
    """Written down: another key would make every run of before a stranger."""
    assert Settings().key == "409d90e4caff"
    assert [field.name for field in dataclasses.fields(Settings)] == list(OTHER)
    others = [dataclasses.replace(Settings(), **{name: value}).key for name, value in OTHER.items()]
    assert len({Settings().key, *others}) == 1 + len(OTHER), "each setting changes the key"


@in_turn("name, value", [("lr", 1), ("clip", 5), ("weight_decay", 0), ("epochs", 2.0)])
def test_settings_that_are_equal_have_the_same_key(name, value):
    other = float(value) if isinstance(value, int) else int(value)
    one, two = Settings(**{name: value}), Settings(**{name: other})
    assert one == two
    assert one.key == two.key
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
