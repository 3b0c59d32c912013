"""The planner: its cells are the tables', each with every setting and its source."""

import dataclasses
import hashlib
import itertools
import json
import math
import pathlib
import re

from in_turn import in_turn
from refusals import refused
from typer.testing import CliRunner

from symloss import list_losses
from symloss.cli import app
from symloss.experiments import find_cell, list_tables, load_table, plan, resolve
from symloss.experiments.cells import cells_matching
from symloss.experiments.layers import changes, profiles


def test_the_docs_and_the_command_agree_on_the_number_of_runs():
    page = pathlib.Path(__file__).parents[2] / "docs" / "laboratory.md"
    rows = re.findall(r"^\| `(\S+)` \|.*\| ([\dx ]+) \| (\d+) \|$", page.read_text(), re.MULTILINE)
    said = {name: (math.prod(map(int, cells.split("x"))), int(runs)) for name, cells, runs in rows}
    listed = json.loads(CliRunner().invoke(app, ["recipe", "--json"]).stdout)
    assert said == {row["table"]: (row["cells"], row["runs"]) for row in listed}
    assert (said["table1"], said["table3"]) == ((2 * 10 * 7, 3 * 2 * 10 * 7), (16, 8))


def test_cells_that_are_the_same_run_share_it():
    """The ablation repeats cells of tables 1 and 4; nobody wants to train them twice."""
    for one, other in (
        ("table1/cifar100/sgce/sym:0.8", "ablation/cifar100-cosine/sgce-l2/sym:0.8"),
        ("table4/cifar100/sgce/sym:0.8", "ablation/cifar100-step/sgce-bn/sym:0.8"),
        ("table4/cifar100/unhinged/clean", "ablation/cifar100-step/unhinged-l2/clean"),
        ("table3/webvision-mini/ce/clean", "table3/webvision-mini-imagenet/ce/clean"),
    ):
        assert find_cell(one).settings == find_cell(other).settings
        names = {cell.name for cell in cells_matching(find_cell(one).settings)}
        assert {one, other} <= names
    assert find_cell("table3/webvision-mini/ce/clean").evaluate is None
    assert find_cell("table3/webvision-mini-imagenet/ce/clean").evaluate == "webvision-mini-imagenet"


def test_a_cell_has_its_settings_their_sources_and_the_papers_title():
    cell = find_cell("table1/cifar10/sgce/sym:0.8", seed=2)
    expected = {"loss": "sgce:q=0.8", "weight_decay": 0.005, "counts": "floor", "validation": 0.0, "seed": 2}
    assert expected.items() <= cell.settings.to_dict().items()
    assert set(cell.sources) == set(cell.settings.to_dict())
    assert cell.sources["counts"] == "recipe table1"
    assert cell.published.text == "61.06(1.60)"


def test_the_cells_of_a_run_are_those_with_its_key():
    """Of every table and profile. A run belongs to one cell of a table, unless others are tested on something else."""
    by_key = {}
    for table, profile in itertools.product(list_tables(), profiles()):
        if any(changes(profile, column.protocol) is not None for column in load_table(table).datasets):
            for cell in plan(table, profile=profile):
                by_key.setdefault(cell.settings.key, []).append(cell)
    for cells in by_key.values():
        tables = [cell.table for cell in cells if cell.table != "table3"]
        assert len(set(tables)) == len(tables)
    for cells in list(by_key.values())[::23]:
        first_seed = by_key[dataclasses.replace(cells[0].settings, seed=0).key]
        assert cells_matching(cells[0].settings) == tuple(first_seed)


def test_a_run_that_differs_from_the_recipe_belongs_to_no_cell():
    settings = find_cell("table1/cifar10/sgce/sym:0.8").settings
    assert cells_matching(dataclasses.replace(settings, seed=7))
    changes = {"lr": 0.3, "fingerprint": "changed", "profile": "tiny", "data": "photos/", "noise": "sym:0.5"}
    for name, value in changes.items():
        assert cells_matching(dataclasses.replace(settings, **{name: value})) == (), name

    for cell, in_blocks in (
        ("table1/cifar100/sgce/asym:0.4", True),
        ("ablation/cifar100-step/sgce-bn/asym:0.3", True),
        ("table1/cifar10/sgce/asym:0.4", False),
        ("table1/cifar100/sgce/sym:0.4", False),
    ):
        source = find_cell(cell).sources["noise"]
        assert source.startswith(f"recipe {cell.split('/')[0]}")
        assert ("flips inside blocks of five label numbers, which are not the superclasses" in source) == in_blocks
    titles = {cell.row: cell.title for cell in plan("table4", seeds=1, noise=["clean"])}
    assert (titles["sgce"], titles["alpha-mae"], titles["anl-ce"]) == ("SGCE (BN)", "alpha-MAE", "ANL-CE")
    assert find_cell("mnist-lenet5/mnist/ce-clipped/clean").title == "CE (clip 0.1)"
    assert find_cell("mnist-lenet5/mnist/phuber-ce/clean").title == "PHuber-CE"


def test_a_mini_cell_is_marked_and_never_the_published_one():
    full, mini = (find_cell("table1/cifar100/sgce/sym:0.8", profile=profile) for profile in ("full", "mini"))
    assert (mini.settings.profile, full.settings.profile) == ("mini", "full")
    assert (mini.settings.subset, mini.sources["subset"]) == (10000, "profile mini")
    assert mini.settings.key != full.settings.key
    assert mini.settings.weight_decay == full.settings.weight_decay
    for profile, data in (("mini", "cifar100"), ("scale16", "cifar10")):
        assert {cell.dataset for cell in plan("table1", profile=profile)} == {data}, "it has no form of the others"
    # The scale model keeps the learning rate times the steps.
    full, model = (find_cell("table1/cifar10/sgce/sym:0.6", profile=name).settings for name in ("full", "scale16"))
    assert model.lr * model.subset == full.lr * 50_000
    reduced = {name for name, value in full.to_dict().items() if model.to_dict()[name] != value}
    assert reduced == {"model", "subset", "size", "lr", "channels_last", "profile"}


def test_a_part_of_a_table():
    found = plan("table1", datasets=["cifar100"], losses=["sgce", "ce"], noise=["clean"], seeds=2)
    names = ("table1/cifar100/ce/clean", "table1/cifar100/sgce/clean")
    assert [(cell.name, cell.seed) for cell in found] == [(name, seed) for seed in (0, 1) for name in names]


@in_turn(
    "given, said",
    [
        ({"datasets": ["cifar1O"]}, "table1 has no data set 'cifar1O'"),
        ({"losses": ["gse"]}, "table1 has no loss 'gse'; did you mean"),
        ({"datasets": []}, "datasets must name at least one data set of table1; got none"),
        ({"noise": ["sym:0.5"]}, "table1 has no noise 'sym:0.5'"),
        ({"seeds": 0}, "seeds must be a whole number"),
        ({"profile": "tiny"}, "profile must be one of 'full', 'mini', 'scale16'"),
        ({"profile": "mini", "datasets": ["cifar100", "cifar10"]}, "must be full or scale16; got 'mini'"),
        ({"profile": "scale16", "datasets": ["cifar100"]}, "profile of cifar100 in table1 must be full or mini"),
    ],
)
def test_what_is_not_in_the_table_is_refused(given, said):
    with refused(ValueError, said):
        plan("table1", **given)
    with refused(ValueError, "must read table/data set/loss/noise", "got 'table1/cifar10'"):
        find_cell("table1/cifar10")


KEYS = json.loads((pathlib.Path(__file__).parent / "recipe_keys.json").read_text())
"""Digests of the keys of all runs: recipes resolve to the settings that they always had."""
LATER = {"jal-ce", "jal-fl", "ldr-kl"}
"""Losses that came after the digests."""


def digest(lines):
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()[:16]


def test_runs_keep_their_names():
    names = [loss for loss in list_losses() if loss not in LATER]
    for data in ("digits", "mnist", "cifar10", "cifar100"):
        found = digest(f"{loss} {resolve(data, loss, noise='sym:0.6').key}" for loss in names)
        assert found == KEYS["runs"][data], data
    for table, expected in KEYS["tables"].items():
        cells = plan(table.split()[0], profile=table.split()[1])
        assert digest(f"{cell.name} {cell.seed} {cell.settings.key}" for cell in cells) == expected, table
