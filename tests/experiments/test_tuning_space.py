"""What is searched: the paper's grids, ours, and those of the user. Which point is best, and how sure that is."""

import math
import tomllib

import pytest
from in_turn import in_turn
from refusals import refused

from symloss.experiments.spaces import Dimension, Question, papers_space, space_of, variations
from symloss.experiments.studies import as_toml, leaders, remark, standard_error
from symloss.losses.catalogue import RECORDS
from symloss.losses.spec import parse, write
from symloss.training.settings import Settings


def values(space):
    return {dimension.name: dimension.values for dimension in space}


def test_the_grids_of_the_paper():
    """Section Experiments, Method."""
    assert values(space_of("cifar10", "sgce")) == {
        "q": (0.2, 0.35, 0.5, 0.65, 0.8),
        "weight_decay": (1e-4, 5e-4, 1e-3, 5e-3, 1e-2),
    }
    assert values(space_of("cifar100", "alpha-mae")) == {
        "alpha": (0.25, 0.5, 1.0, 2.0, 4.0),
        "weight_decay": (1e-5, 5e-5, 1e-4, 5e-4, 1e-3),
    }
    assert values(space_of("cifar10", "unhinged")).keys() == {"weight_decay"}
    # The paper's search has the paper's grids alone.
    assert papers_space("cifar100", "sgce") == space_of("cifar100", "sgce")
    assert values(space_of("cifar10", "gce")).keys() == {"q", "weight_decay"}
    assert values(papers_space("cifar10", "gce")).keys() == {"weight_decay"}
    with refused(ValueError, "--paper must go with cifar10 or cifar100", "got 'digits'"):
        papers_space("digits", "gce")


@in_turn("loss", RECORDS)
def test_there_is_a_space_for_every_loss_and_any_data(loss):
    for data in ("digits", "mnist", "webvision-mini-imagenet", "my data/table.csv"):
        space = space_of(data, loss)
        assert space[-1].name == "weight_decay"
        assert "lr" not in values(space)
        assert all(dimension.between() for dimension in space), data


def test_what_the_user_fixes_or_gives_wins():
    for loss in ("sgce:q=0.5", "sgce:preset=cifar10"):
        assert "q" not in values(space_of("cifar10", loss)), loss
    given = {"weight_decay": [0.0, 0.3], "q": [0.3], "lr": [0.1], "scale": ["a"]}
    space = values(space_of("cifar10", "sgce:q=0.5", given))
    assert list(space.items()) == [("q", (0.3,)), ("scale", ("a",)), ("lr", (0.1,)), ("weight_decay", (0.0, 0.3))]
    # Kappa stands for alpha.
    assert values(space_of("cifar10", "alpha-mae:kappa=2")).keys() == {"weight_decay"}
    assert values(space_of("cifar10", "alpha-mae", {"kappa": [1.0, 3.0]})).keys() == {"kappa", "weight_decay"}


def test_points_are_all_combinations_in_order():
    space = space_of("digits", "sgce", {"q": [0.2, 0.5], "lr": [0.1, 0.2], "weight_decay": [0.0]})
    found = [tuple(point.values()) for point in Question("sgce", Settings(loss="sgce"), space).points()]
    assert found == [(0.2, 0.1, 0.0), (0.2, 0.2, 0.0), (0.5, 0.1, 0.0), (0.5, 0.2, 0.0)]
    assert Question("ce", Settings(), ()).points() == [{}]


def test_between_the_ends_of_a_grid():
    assert Dimension("q", (0.5, 0.2, 0.4)).between() == (0.2, 0.5)
    assert Dimension("normalize", (None, "l2")).between() is None
    assert Dimension("weight_decay", (0.0,), log=True).between() is None
    with refused(ValueError, "weight_decay", "above 0", "log scale", "0.0, 0.1"):
        Dimension("weight_decay", (0.0, 0.1), log=True).between()
    # A varied parameter keeps its scale.
    alpha, _ = space_of("x.csv", "alpha-mae", {"alpha": [1, 8]})
    t, _ = space_of("x.csv", "taylor-ce", {"t": [1, 8]})
    assert [(each.log, each.whole) for each in (alpha, t)] == [(True, False), (False, True)]


def test_variations_that_cannot_be_meant_are_refused():
    for line in ("sgce", "sgce:", "sgce:q", "sgce:q=", "sgce:q=0.2,", "sgce:=1", "q=0.2", "lr=", "lr"):
        with refused(ValueError, "--vary must read lr=value,", "loss:parameter=value,", f"got {line!r}"):
            variations([line], ["sgce"])
    for lines, *said in (
        (["mae:scale=1"], "--vary must name a loss of --losses (ce, sgce)", "'mae:scale=1'"),
        (["sgec:q=1"], "no loss named 'sgec'", "'sgce'"),
        (["sgce:q=1", "sgce:q=0.5"], "sgce:q twice"),
        (["lr=1", "lr=0.5"], "lr twice"),
        (["lr=0.1,fast"], "`--vary lr=` must be numbers", "'0.1,fast'"),
    ):
        with refused(ValueError, *said):
            variations(lines, ["sgce:q=0.5", "ce"])


@in_turn(
    "name, given, said",
    [
        ("lr", [0.0], "lr must be a number in (0, inf); got 0"),
        ("lr", [], "lr must hold at least one value, each once; got none"),
        ("weight_decay", [-1.0], "weight_decay must be a number in [0, inf); got -1"),
        ("q", [0.5, 0.5], "q must hold at least one value, each once; got 0.5, 0.5"),
    ],
)
def test_bad_grids_are_refused(name, given, said):
    with refused(ValueError, said):
        space_of("cifar10", "sgce", {name: given})


def row(mean, std=None, seeds=1, held_out=100, final=False, **settings):
    found = {"settings": Settings(**settings).to_dict(), "validation": {"mean": mean, "std": std}}
    return found | {"seeds": seeds, "held_out": held_out, "final": final}


def test_the_standard_error_is_that_of_the_seeds_or_of_counting():
    for std, seeds, expected in ((0.4, 16, 0.1), (0.0, 16, math.sqrt(0.5 * 0.5 / (16 * 100))), (None, 1, 0.05)):
        assert standard_error(row(0.5, std=std, seeds=seeds)) == pytest.approx(expected)


def test_leaders_are_those_within_one_standard_error_of_the_difference():
    """Both have the standard error 0.01, the difference sqrt(2) of it."""
    for lead, expected in ((0.99, 2), (1.01, 1)):
        means = 0.5, 0.5 - lead * math.sqrt(2) * 0.01
        assert leaders([row(mean, std=0.02, seeds=4, held_out=10**6) for mean in means]) == expected
    assert leaders([row(0.5, final=True), row(0.5, final=True), row(0.5)]) == 2, "only finalists contend"
    assert "cannot tell them apart" in remark([row(0.5), row(0.49), row(0.1)])
    assert "first 2" in remark([row(0.5), row(0.49), row(0.1)])
    assert "leads by more than one standard error (its own is 5.00)" in remark([row(0.5), row(0.1)])
    assert "nothing to choose" in remark([row(0.5)])


@in_turn(
    "data, loss",
    [
        ("digits", "ce"),
        ("fashion-mnist", "sgce:q=0.5"),
        ("my data/table.csv", "nce+agce:alpha=1,beta=4"),
        ("digits", "alpha-mae:normalize=none"),
    ],
)
def test_what_was_found_can_be_read_as_toml(data, loss):
    rows = [row(mean, loss=loss, lr=1e-5, weight_decay=1e-3, seeds=3) for mean in (0.6, 0.7)]
    text = "\n".join(as_toml(data, rows))
    name, parameters = parse(loss)
    found = tomllib.loads(text)[data]["losses"][name]
    assert (found["lr"], found["weight_decay"]) == (1e-5, 1e-3)
    assert parse(write(name, found.get("loss", {}))) == (name, parameters)
    assert "0.7000 of 3 seeds, next 0.6000, of 2" in text
    # One loss searched twice, as with --losses sgce:q=0.5,sgce:q=0.8, has one line.
    rows = [row(0.1, loss="sgce:q=0.5"), row(0.2, loss="sgce:q=0.8"), row(0.15, loss="ce")]
    found = tomllib.loads("\n".join(as_toml("digits", rows)))["digits"]["losses"]
    assert found["sgce"]["loss"] == {"q": 0.8}
    assert list(found) == ["sgce", "ce"]
