"""Which point is best, and how sure that is."""

import math
import tomllib

import pytest
from in_turn import in_turn

from symloss.experiments.studies import as_toml, leaders, remark, standard_error
from symloss.losses.spec import parse, write
from symloss.training.settings import Settings


def row(mean, std=None, seeds=1, held_out=100, final=False, **settings):
    validation = {"mean": mean, "std": std}
    chosen = Settings(**settings).to_dict()
    return {"settings": chosen, "validation": validation, "seeds": seeds, "held_out": held_out, "final": final}


def test_the_standard_error_is_that_of_the_seeds_or_of_counting():
    assert standard_error(row(0.5, std=0.4, seeds=16)) == pytest.approx(0.1)
    counting = math.sqrt(0.5 * 0.5 / (16 * 100))
    assert standard_error(row(0.5, std=0.0, seeds=16)) == pytest.approx(counting)
    assert standard_error(row(0.5, seeds=1)) == pytest.approx(math.sqrt(0.25 / 100))


def test_leaders_are_those_within_one_standard_error_of_the_difference():
    """Both have the standard error 0.01, the difference sqrt(2) of it."""
    first = row(0.5, std=0.02, seeds=4, held_out=10**6)
    near, far = 0.5 - 0.99 * math.sqrt(2) * 0.01, 0.5 - 1.01 * math.sqrt(2) * 0.01
    assert leaders([first, row(near, std=0.02, seeds=4, held_out=10**6)]) == 2
    assert leaders([first, row(far, std=0.02, seeds=4, held_out=10**6)]) == 1
    assert leaders([row(0.5, final=True), row(0.5, final=True), row(0.5)]) == 2, "only finalists contend"


def test_the_remark_says_whether_the_search_can_tell():
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


def test_one_loss_searched_twice_has_one_line():
    """As with --losses sgce:q=0.5,sgce:q=0.8."""
    rows = [row(0.1, loss="sgce:q=0.5"), row(0.2, loss="sgce:q=0.8"), row(0.15, loss="ce")]
    found = tomllib.loads("\n".join(as_toml("digits", rows)))["digits"]["losses"]
    assert found["sgce"]["loss"] == {"q": 0.8}
    assert list(found) == ["sgce", "ce"]
