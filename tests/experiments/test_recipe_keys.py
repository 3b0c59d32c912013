"""The recipes resolve to the settings that they always had: digests of the keys of all runs, as golden values."""

import hashlib
import json
from pathlib import Path

import pytest

from symloss import list_losses
from symloss.experiments import plan, resolve

KEYS = json.loads((Path(__file__).parent / "recipe_keys.json").read_text())
LATER = {"jal-ce", "jal-fl", "ldr-kl"}
"""Losses that came after the digests."""


def digest(lines):
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()[:16]


@pytest.mark.parametrize("data", ["digits", "mnist", "cifar10", "cifar100"])
def test_runs_keep_their_names(data):
    names = [loss for loss in list_losses() if loss not in LATER]
    assert digest(f"{loss} {resolve(data, loss, noise='sym:0.6').key}" for loss in names) == KEYS["runs"][data]


@pytest.mark.parametrize("table", KEYS["tables"])
def test_the_runs_of_tables_keep_their_names(table):
    name, profile = table.split()
    cells = plan(name, profile=profile)
    assert digest(f"{cell.name} {cell.seed} {cell.settings.key}" for cell in cells) == KEYS["tables"][table]
