"""Runs that an earlier version began: they keep their names, and end with the weights that it would have reached.

The folder ``interrupted`` was written at the end of the work on correctness (852dd91): a run of four epochs that was
stopped after its second checkpoint, what that version made of it when it went on, and names of runs and studies.
"""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from training_helpers import metrics, run, small, without_time

from symloss import list_losses
from symloss.experiments import resolve
from symloss.experiments.cells import plan
from symloss.experiments.questions import Question, study_name
from symloss.experiments.samplers import distribution
from symloss.experiments.spaces import space_of
from symloss.experiments.studies import plain_distributions

BEFORE = Path(__file__).parent / "interrupted"
KEYS = json.loads((BEFORE / "keys.json").read_text())
LATER = {"jal-ce", "jal-fl", "ldr-kl"}
"""Losses that came after it."""


def digest(lines):
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()[:16]


def test_an_interrupted_run_ends_as_before(tmp_path):
    folder = shutil.copytree(BEFORE / "run", tmp_path / "run")
    run(small("sgce:q=0.8", epochs=4), folder)
    expected = torch.load(BEFORE / "weights-at-the-end.pt", weights_only=True)
    found = torch.load(folder / "checkpoint.pt", weights_only=True)["model"]
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor)
    # Other processors round matrix products otherwise, also some with the same instructions.
    if all(torch.equal(found[name], tensor) for name, tensor in expected.items()):
        assert without_time(metrics(folder)) == json.loads((BEFORE / "metrics-at-the-end.json").read_text())


@pytest.mark.parametrize("data", ["digits", "mnist", "cifar10", "cifar100"])
def test_runs_keep_their_names(data):
    names = [loss for loss in list_losses() if loss not in LATER]
    assert digest(f"{loss} {resolve(data, loss, noise='sym:0.6').key}" for loss in names) == KEYS["runs"][data]


# The profile mini has no form of CIFAR-10 any more: its digests are of the other cells, as that version named them.
@pytest.mark.parametrize("table", KEYS["tables"])
def test_the_runs_of_tables_keep_their_names(table):
    name, profile = table.split()
    cells = plan(name, profile=profile)
    assert digest(f"{cell.name} {cell.seed} {cell.settings.key}" for cell in cells) == KEYS["tables"][table]


@pytest.mark.parametrize("study", KEYS["studies"])
def test_studies_keep_their_names(study):
    data, loss = study.split()
    question = Question(loss, resolve(data, loss, noise="sym:0.6"), space_of(data, loss), 2)
    grid = {each.name: distribution(each, every_combination=True) for each in question.space.dimensions}
    asked = question.to_dict() | {"space": plain_distributions(grid), "sampler": "grid"}
    assert study_name(question, asked) == KEYS["studies"][study]
