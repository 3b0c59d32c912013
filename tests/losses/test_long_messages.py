"""A message shows the beginning of what was passed, however long that is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_turn import in_turn
from refusals import refused

import symloss
from symloss import checks, functional
from symloss.atlas.data import known_losses
from symloss.losses.spec import NESTED, find

LONG = "x" * 1_000_000
DIGITS = "1" * 1_000_000
MOST = 720  # two or three values of 100 characters, and the names of all losses

SPECS = {
    "name": LONG,
    "name in a sum": f"ce + {LONG}",
    "operator": f"{LONG}(ce)",
    "parameter": f"gce:{LONG}=1",
    "value": f"gce:q={LONG}",
    "digits": f"gce:q={DIGITS}",
    "preset": f"gce:preset={LONG}",
    "factor": f"{DIGITS}*gce",
    "exponent": f"1e{DIGITS}*gce",
    "what is left": f"gce {LONG}",
    "item": f"gce:q=0.5,{LONG}",
    "argument": f"blend(ce, alpha={LONG})",
    "module": f"{LONG}:mine",
    "name of a module": f"os:{LONG}",
    "expression": f"complement({' + '.join(['mse'] * 2000)})",
    "option of an expression": f"({' + '.join(['ce'] * 2000)}):q=1",
}


CALLS: dict[str, Callable[[], Any]] = {
    "unknown keyword": lambda: symloss.create_loss("gce", **{LONG: 1}),
    "two values": lambda: symloss.create_loss("gce:q=0.5", q=LONG),
    "two positions": lambda: functional.gce(torch.zeros(1, 3), torch.tensor([0]), 0.5, q=LONG),  # type: ignore[misc]
    "either": lambda: symloss.AlphaMAE(alpha=LONG, kappa=LONG),  # type: ignore[arg-type]
    "ignore_index": lambda: symloss.create_loss("gce", ignore_index=LONG),
    "no text": lambda: symloss.create_loss([1] * 100_000),  # type: ignore[call-overload]
    "of_logp": lambda: symloss.of_logp(" + ".join(["nce"] * 2000)),
    "options of a head": lambda: symloss.LinearLoss(symloss.create_loss("ce"), 2, 3, **{LONG: 1}),
    "find": lambda: find(LONG),
    "atlas": lambda: known_losses([LONG]),
}


CALLS |= {f"spec: {what}": functools.partial(symloss.create_loss, spec) for what, spec in SPECS.items()}


@in_turn("what", CALLS)
def test_every_message_is_short(what: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        CALLS[what]()
    assert len(str(caught.value)) < MOST
    assert "\n" not in str(caught.value)


def test_an_integer_that_python_does_not_print() -> None:
    with refused(ValueError, "q must be a number", "int that is too long to print"):
        symloss.create_loss("gce", q=10**5000)


def test_a_long_name_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(checks.difflib, "get_close_matches", lambda name, known, **_: compared.extend(known) or [])
    assert checks.nearest(LONG, ["ce", "gce"]) == "known are ce, gce"
    assert not compared
    checks.nearest("gces", ["ce", "gce"])
    assert compared == ["ce", "gce"]


@in_turn("opening", ["symmetrize(", "("])
def test_deep_nesting(opening: str) -> None:
    with refused(ValueError, f"more than {NESTED} brackets"):
        symloss.create_loss(100_000 * opening + "ce" + 100_000 * ")")
