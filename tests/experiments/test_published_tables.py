"""Recipes: what they hold is what was published, and every packaged file is whole."""

import hashlib
import itertools
import tomllib
from importlib import resources

from in_turn import in_turn

from symloss.checks import Interval
from symloss.experiments import Published, list_tables, load_table
from symloss.experiments.layers import load_protocol, profiles, resolve_layers
from symloss.experiments.spaces import INTERVALS, search_grids
from symloss.experiments.tables import FOLDER, LOSS_NAME, SPREADS
from symloss.losses.catalogue import RECORDS
from symloss.noise.spec import parse

# Of all cells in printed order (loss, then its row), read from the LaTeX of the paper; losses and kinds of noise.
PRINTED = {
    ("table1", "cifar10"): ("96dade727baaa416", 10, 7),
    ("table1", "cifar100"): ("5298cd402ff035ac", 10, 7),
    ("table2", "cifar10"): ("317a186da621a1ea", 6, 5),
    ("table2", "cifar100"): ("3ab6c5047a02130e", 6, 1),
    ("table3", "webvision-mini-imagenet"): ("fcb7d957110e3347", 8, 1),
    ("table3", "webvision-mini"): ("22f9b2e3645c47f4", 8, 1),
    ("table4", "cifar100"): ("47f536eb3e66ecce", 6, 7),
}

# Tables 5 to 8 of the paper, column by column.
CONFIGURATIONS = {
    "cifar10": {"batch": 128, "epochs": 120, "optimizer": "sgd", "lr": 0.01, "schedule": "cosine"},
    "cifar100": {"batch": 128, "epochs": 200, "optimizer": "sgd", "lr": 0.1, "schedule": "cosine"},
    "cifar100-step": {"batch": 128, "epochs": 200, "optimizer": "sgd", "lr": 0.1, "schedule": "step:190,0.1"},
    "webvision-mini": {"batch": 32, "epochs": 250, "optimizer": "nesterov", "lr": 0.1, "schedule": "step:240,0.1"},
}
PARAMETERS = {"sgce": "q", "alpha-mae": "alpha"}
OURS = {
    "sgce": {"cifar10": 0.8, "cifar100": 0.65, "cifar100-step": 0.35, "webvision-mini": 0.25},
    "alpha-mae": {"cifar10": 2.0, "cifar100": 2.0, "cifar100-step": 0.25},
    "unhinged": dict.fromkeys(("cifar10", "cifar100", "cifar100-step")),
}
DECAYS_OF_ONE_STEP = dict.fromkeys(("sgce", "alpha-mae", "unhinged", "ce"), 5e-4) | {"gce": 1e-4, "anl-ce": 1e-5}


def test_published_cells_are_those_of_the_paper():
    found = {}
    for table in dict.fromkeys(table for table, _ in PRINTED):
        for column in load_table(table).datasets:
            cells = ((row, *("*" * cell.bold + cell.text for cell in line)) for row, line in column.published.items())
            digest = hashlib.sha256(" ".join(itertools.chain.from_iterable(cells)).encode()).hexdigest()[:16]
            found[table, column.name] = digest, len(column.published), len(column.noise)
    assert found == PRINTED


def test_cells_spelled_out():
    """A few, by eye: the first, the last, the odd one (bold though it is not the best)."""
    assert load_table("table1").published("cifar10", "ce", "clean") == Published(93.45, 0.30, False, "93.45(0.30)")
    assert load_table("table1").published("cifar10", "alpha-mae", "asym:0.2").bold
    assert load_table("table1").published("cifar10", "sce", "asym:0.2").value == 90.10
    assert load_table("table3").published("webvision-mini", "sgce", "clean") == Published(74.04, None, True, "74.04")
    assert load_table("mnist-lenet5").published("mnist", "mae", "clean").spread == 3.5
    assert load_table("mnist-lenet5").published("mnist", "sgce", "clean") is None


@in_turn("loss, protocol", [(loss, name) for loss in OURS for name in OURS[loss]])
def test_the_papers_own_losses_have_the_papers_settings(loss, protocol):
    found = resolve_layers(protocol, protocol.removesuffix("-step"), loss).settings
    expected = CONFIGURATIONS[protocol] | {"momentum": 0.9, "clip": 5.0}
    assert {name: getattr(found, name) for name in expected} == expected
    value = OURS[loss][protocol]
    assert found.loss == (loss if value is None else f"{loss}:{PARAMETERS[loss]}={value}")


def test_weight_decay_after_one_step_is_the_papers():
    losses = load_protocol("cifar100-step").losses
    found = {loss: resolve_layers("cifar100-step", "cifar100", loss).settings.weight_decay for loss in losses}
    assert found == DECAYS_OF_ONE_STEP


OF_A_TABLE = {"title", "source", "rows", "seeds", "spread", "datasets"}
MAY_HAVE = {"noise", "settings", "variants", "grids"}
OF_A_DATASET = {"data", "protocol", "noise", "evaluate", "published"}


@in_turn("name", list_tables())
def test_every_table_is_whole(name):
    """Nothing is checked when a table is read: all of them are packaged."""
    raw = tomllib.loads(resources.files("symloss").joinpath(FOLDER, f"{name}.toml").read_text())
    assert OF_A_TABLE <= raw.keys() <= OF_A_TABLE | MAY_HAVE
    assert raw["spread"] in SPREADS
    assert type(raw["seeds"]) is int
    assert raw["seeds"] >= 1
    assert raw.get("variants", {}).keys() <= set(raw["rows"])
    assert all("loss" in variant for variant in raw.get("variants", {}).values())
    for grid in raw.get("grids", {}).values():
        assert grid["loss"] in RECORDS
        assert all(isinstance(values, list) and values for key, values in grid.items() if key != "loss")
    assert all(fields.keys() <= OF_A_DATASET for fields in raw["datasets"].values())
    table = load_table(name)
    rows = [row.name for row in table.rows]
    assert len(set(rows)) == len(rows) > 0
    for column in table.datasets:
        load_protocol(column.protocol)
        assert any(column.protocol in protocols for protocols in profiles().values()), "it has a reduced form"
        assert len(set(map(str, map(parse, column.noise)))) == len(column.noise) > 0
        assert column.published.keys() <= set(rows)
        assert all(len(cells) == len(column.noise) for cells in column.published.values())


def test_every_grid_is_whole():
    grids = search_grids()
    assert {"other", "own"} <= grids.weight_decay.keys()
    for data in grids.weight_decay.keys() - {"other", "own"}:
        load_protocol(data)
    ranges = [(grid, INTERVALS["weight_decay"]) for grid in grids.weight_decay.values()]
    for loss, by_name in grids.loss.items():
        parameters = {parameter.name: parameter.interval for parameter in RECORDS[loss].parameters}
        ranges += [(grid, parameters[name]) for name, grid in by_name.items()]
    for grid, interval in ranges:
        assert list(grid.values) == sorted(set(grid.values))
        assert all(value in Interval(interval) for value in grid.values)
        assert grid.source.startswith(("the paper", "ours: "))
        assert len(grid.values) > 1
        assert grid.between() == (grid.values[0], grid.values[-1])
    papers = [grid for grid, _ in ranges if grid.is_the_papers]
    named = [grids.weight_decay["cifar10"], grids.weight_decay["cifar100"], grids.loss["sgce"]["q"]]
    assert sorted(map(str, papers)) == sorted(map(str, [*named, grids.loss["alpha-mae"]["alpha"]]))


def test_a_grid_has_a_row_for_every_combination_and_shared_ones_once():
    raw = tomllib.loads(resources.files("symloss").joinpath(FOLDER, "sensitivity.toml").read_text())["grids"]
    names = set()
    for grid in raw.values():
        axes = {key: values for key, values in grid.items() if key != "loss"}
        for values in itertools.product(*axes.values()):
            point = zip(axes, values, strict=True)
            names.add(" ".join([grid["loss"], *(f"{key}={value:g}" for key, value in point)]))
    rows = {row.name: row for row in load_table("sensitivity").rows if LOSS_NAME.fullmatch(row.name) is None}
    assert names <= rows.keys()
    row = rows["sgce q=0.1 temperature=1 weight_decay=0.001"]
    assert (row.loss, row.changes) == ("sgce:q=0.1,temperature=1", {"weight_decay": 0.001})
