"""Recipes: what they hold is what was published, and a bad one is refused in one sentence."""

import hashlib
import itertools

import pytest
from refusals import refused

from symloss.experiments import Published, list_tables, load_table
from symloss.experiments.layers import resolve_layers
from symloss.experiments.protocols import load_protocol, profiles
from symloss.experiments.tables import read_table

# Of all cells in printed order (loss, then its row), read from the LaTeX of the paper by tex_tables.py.
DIGESTS = {
    ("table1", "cifar10"): "96dade727baaa416",
    ("table1", "cifar100"): "5298cd402ff035ac",
    ("table2", "cifar10"): "317a186da621a1ea",
    ("table2", "cifar100"): "3ab6c5047a02130e",
    ("table3", "webvision-mini-imagenet"): "fcb7d957110e3347",
    ("table3", "webvision-mini"): "22f9b2e3645c47f4",
    ("table4", "cifar100"): "47f536eb3e66ecce",
}
SHAPES = {"table1": [(10, 7), (10, 7)], "table2": [(6, 5), (6, 1)], "table3": [(8, 1), (8, 1)], "table4": [(6, 7)]}

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
WEIGHT_DECAY_AFTER_ONE_STEP = {
    "sgce": 5e-4, "alpha-mae": 5e-4, "unhinged": 5e-4, "ce": 5e-4, "gce": 1e-4, "anl-ce": 1e-5,
}  # fmt: skip


@pytest.mark.parametrize(("table", "dataset"), DIGESTS)
def test_published_cells_are_those_of_the_paper(table, dataset):
    column = next(column for column in load_table(table).datasets if column.name == dataset)
    words = itertools.chain.from_iterable(
        (row, *("*" * cell.bold + cell.text for cell in cells)) for row, cells in column.published.items()
    )
    assert hashlib.sha256(" ".join(words).encode()).hexdigest()[:16] == DIGESTS[table, dataset]


@pytest.mark.parametrize("table", SHAPES)
def test_the_tables_have_the_papers_shapes(table):
    found = load_table(table)
    assert [(len(column.published), len(column.noise)) for column in found.datasets] == SHAPES[table]
    assert all(len(cells) == len(c.noise) for c in found.datasets for cells in c.published.values())


def test_cells_spelled_out():
    """A few, by eye: the first, the last, the odd one (bold though it is not the best)."""
    assert load_table("table1").published("cifar10", "ce", "clean") == Published(93.45, 0.30, False, "93.45(0.30)")
    assert load_table("table1").published("cifar10", "alpha-mae", "asym:0.2").bold
    assert load_table("table1").published("cifar10", "sce", "asym:0.2").value == 90.10
    assert load_table("table3").published("webvision-mini", "sgce", "clean") == Published(74.04, None, True, "74.04")
    assert load_table("mnist-lenet5").published("mnist", "mae", "clean").spread == 3.5
    assert load_table("mnist-lenet5").published("mnist", "sgce", "clean") is None


@pytest.mark.parametrize(("loss", "protocol_"), [(loss, name) for loss in OURS for name in OURS[loss]])
def test_the_papers_own_losses_have_the_papers_settings(loss, protocol_):
    found = resolve_layers(protocol_, protocol_.removesuffix("-step"), loss).settings
    expected = CONFIGURATIONS[protocol_] | {"momentum": 0.9, "clip": 5.0}
    assert {name: getattr(found, name) for name in expected} == expected
    value = OURS[loss][protocol_]
    assert found.loss == (loss if value is None else f"{loss}:{PARAMETERS[loss]}={value}")


def test_weight_decay_after_one_step_is_the_papers():
    found = {
        loss: resolve_layers("cifar100-step", "cifar100", loss).settings.weight_decay
        for loss in WEIGHT_DECAY_AFTER_ONE_STEP
    }
    assert found == WEIGHT_DECAY_AFTER_ONE_STEP
    assert set(load_protocol("cifar100-step").losses) == set(found)


def test_every_table_is_complete():
    for name in list_tables():
        for column in load_table(name).datasets:
            load_protocol(column.protocol)
            reduced = [profile for profile, protocols in profiles().items() if column.protocol in protocols]
            assert reduced, f"no profile has a reduced form of {name}"


GOOD = """
title = "t"
source = "s"
rows = ["ce", "mae"]
noise = ["clean", "sym:0.4"]
seeds = 2
spread = "none"
[datasets.digits.published]
ce = "90.00 *80.00"
"""


def test_a_good_recipe():
    table = read_table("mine", GOOD)
    assert [row.title for row in table.rows] == ["CE", "MAE"]
    assert table.published("digits", "ce", "sym:0.4") == Published(80.0, None, True, "80.00")
    assert table.published("digits", "mae", "clean") is None


def test_a_row_may_be_composed():
    """Its title is the expression, as it is."""
    text = GOOD.replace('"mae"]', '"0.5*ce + symmetrize(focal:gamma=2)"]')
    composed = read_table("mine", text).rows[1]
    assert (composed.title, composed.loss) == ("0.5*ce + symmetrize(focal:gamma=2)",) * 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "t"', "", "must have title"),
        ("seeds = 2", "seeds = 0", "seeds must be a whole number"),
        ("seeds = 2", "sedes = 2", "must have seeds"),
        ("seeds = 2", "seeds = 2\nepochs = 3", "has no 'epochs'"),
        ('"none"', '"variance"', "spread must be one of"),
        ('"mae"]', '"ce"]', "rows must be different"),
        ('["clean", "sym:0.4"]', "[]", "the noise of digits"),
        ('"sym:0.4"', '"symm:0.4"', "symm"),
        ('"90.00 *80.00"', '"90.00"', "must have 2 published cells a row; ce has 1"),
        ('"90.00 *80.00"', '"90.00 **80"', "got '**80'"),
        ('ce = "90', 'gce = "90', "got 'gce'"),
        ("[datasets.digits.published]", "[datasets.digits]\nmodel = 3\n[datasets.digits.published]", "has no 'model'"),
        ("[datasets", '[variants]\nx = { loss = "ce" }\n[datasets', "must be one of the rows; got 'x'"),
        ("[datasets", "[variants]\nce = { clip = 1 }\n[datasets", "variant ce must have a loss"),
        ("[datasets", "datasets", "recipe mine"),
    ],
)
def test_a_bad_recipe_is_refused_in_one_sentence(old, new, said):
    assert old in GOOD
    with refused(ValueError, "recipe mine: ", said):
        read_table("mine", GOOD.replace(old, new, 1))


def test_a_table_that_does_not_exist_is_refused_with_a_hint():
    with refused(ValueError, "there is no table 'tabel1'", "did you mean 'table1'?"):
        load_table("tabel1")
    with refused(ValueError, "there is no table 'profiles'"):
        load_table("profiles")


def test_a_grid_has_a_row_for_every_combination_and_shared_ones_once():
    grids = """
[grids.one]
loss = "sgce"
q = [0.5, 1.0]
weight_decay = [0.01]
[grids.other]
loss = "sgce"
q = [0.5]
weight_decay = [0.01, 0.1]
"""
    rows = {row.name: row for row in read_table("mine", GOOD + grids).rows[2:]}
    assert {name: (row.loss, row.changes) for name, row in rows.items()} == {
        "sgce q=0.5 weight_decay=0.01": ("sgce:q=0.5", {"weight_decay": 0.01}),
        "sgce q=1 weight_decay=0.01": ("sgce:q=1", {"weight_decay": 0.01}),
        "sgce q=0.5 weight_decay=0.1": ("sgce:q=0.5", {"weight_decay": 0.1}),
    }
    with refused(ValueError, "recipe mine: grid one must have a loss, and a list of values for each axis"):
        read_table("mine", GOOD + "[grids.one]\nloss = 'sgce'\nq = 0.5\n")
