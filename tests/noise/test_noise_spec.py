"""Texts that ask for noise."""

from __future__ import annotations

import numpy as np
import pytest
from in_turn import in_turn
from refusals import all_refused, refused

from symloss.noise import Spec, corrupt, parse

TEXTS = """
clean sym:0.6 sym-any:0.6 asym:0.4 asym-blocks:0.4 asym-superclass:0.4 pair:0.3 prior:0.1 instance:0.45
matrix:folder/T.npy matrix:C:/T.csv human:aggregate human:worst@folder/a@b:c.pt human:fine human:coarse
"""


def test_texts_and_rates_come_back():
    for text in TEXTS.split():
        assert str(parse(text)) == text
        assert parse(str(parse(text))) == parse(text)
    assert parse("matrix:a.npy") == Spec("matrix", path="a.npy")
    assert parse("human:random2@f.pt") == Spec("human", name="random2", path="f.pt")
    assert parse(" SYM:.60 ") == parse("sym:6e-1") == Spec("sym", rate=0.6)
    for rate in (0.1, 1 / 3, 0.123456789012345678, 1e-12, 0):
        assert parse(str(Spec("pair", rate=rate))).rate == rate  # to the last bit


@in_turn(
    "text, ingredients",
    [
        ("", ["noise must be one of clean, sym, ", "got ''"]),
        ("symmetric:0.4", ["noise must be one of clean, sym, ", "got 'symmetric'"]),
        ("0.4", ["noise must be one of", "got '0.4'"]),
        ("sym", ["sym noise must come with a rate, as in 'sym:0.4'", "got 'sym'"]),
        ("sym:", ["must come with a rate", "got 'sym:'"]),
        ("pair:60%", ["must come with a rate", "got 'pair:60%'"]),
        ("sym:0.4:0.2", ["must come with a rate", "got 'sym:0.4:0.2'"]),
        ("sym:1.5", ["rate of sym noise must be a number in [0, 1)", "got 1.5"]),
        ("sym:-0.1", ["rate of sym noise", "[0, 1)", "got -0.1"]),
        ("sym:nan", ["rate of sym noise", "[0, 1)", "got nan"]),
        ("sym-any:1", ["rate of sym-any noise must be a number in [0, 1)", "got 1.0"]),
        ("prior:1", ["rate of prior noise must be a number in [0, 1)", "got 1.0"]),
        ("clean:0.1", ["clean noise must come without a rate", "got 'clean:0.1'"]),
        ("matrix", ["matrix noise must come with the path of a file", "got ''"]),
        ("human", ["name of human labels must be one of aggregate, random1", "got ''"]),
        ("human:wrst", ["must be one of aggregate, random1, random2, random3, worst, fine, coarse", "got 'wrst'"]),
        ("human:worst@", ["human noise must come with the path of a file", "got ''"]),
    ],
)
def test_bad_texts(text, ingredients):
    with refused(ValueError, *ingredients):
        parse(text)


def test_bad_specs():
    all_refused(
        (TypeError, "noise must be a spec such as 'sym:0.6' ... got 0.4", lambda: parse(0.4)),
        (TypeError, "rate of sym noise ... got None", lambda: Spec("sym")),
        (ValueError, "clean noise must come without a rate ... got 0.1", lambda: Spec("clean", rate=0.1)),
        (ValueError, "sym noise must come without a name ... got 'worst'", lambda: Spec("sym", 0.1, name="worst")),
        (ValueError, "sym noise must come without a path ... got 'a.npy'", lambda: Spec("sym", 0.1, path="a.npy")),
    )


@in_turn("kind", ["sym", "pair", "asym", "asym-blocks", "instance"])
def test_a_flip_rate_stays_below_its_limit(kind):
    labels = list(range(10)) * 100
    options = {"num_classes": 10, "seed": 0, "dataset": "mnist", "inputs": np.eye(10)[labels]}
    for rate in (0.9, 0.95):
        with refused(ValueError, "flip rate must be below (C-1)/C = 0.9 with 10 classes", f"got {rate}"):
            corrupt(labels, f"{kind}:{rate}", **options)
    corrupt(labels, f"{kind}:0.89", **options)
    # The weight of a mixture may be above that limit.
    assert corrupt(labels, "sym-any:0.95", num_classes=10, seed=0).manifest.rate == pytest.approx(0.855)
