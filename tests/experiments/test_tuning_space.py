"""What is searched: the paper's grids, ours, and those of the user."""

import pytest
from refusals import refused

from symloss.experiments.spaces import Dimension, Space, papers_space, read_grids, search_grids, space_of, variations
from symloss.losses.catalogue import RECORDS

OTHER = '[weight-decay.other]\nvalues = [1e-4]\nscale = "log"\nsource = "ours"\n'


def values(space):
    return {dimension.name: dimension.values for dimension in space.dimensions}


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


def test_the_papers_search_has_the_papers_grids_alone():
    assert papers_space("cifar100", "sgce") == space_of("cifar100", "sgce")
    assert values(space_of("cifar10", "gce")).keys() == {"q", "weight_decay"}
    assert values(papers_space("cifar10", "gce")).keys() == {"weight_decay"}
    with refused(ValueError, "--paper must go with cifar10 or cifar100", "got 'digits'"):
        papers_space("digits", "gce")


def test_every_grid_says_whose_it_is():
    grids = search_grids()
    papers = [grids.weight_decay[data] for data in ("cifar10", "cifar100")]
    papers += [grids.loss["sgce"]["q"], grids.loss["alpha-mae"]["alpha"]]
    every = [*grids.weight_decay.values(), *(grid for by in grids.loss.values() for grid in by.values())]
    for grid in every:
        assert grid.source.startswith("the paper" if grid in papers else "ours: ")


@pytest.mark.parametrize("loss", RECORDS)
def test_there_is_a_space_for_every_loss_and_any_data(loss):
    for data in ("digits", "mnist", "webvision-mini-imagenet", "my data/table.csv"):
        space = space_of(data, loss)
        assert space.dimensions[-1].name == "weight_decay"
        assert "lr" not in values(space)
        assert all(dimension.between() for dimension in space.dimensions), data


def test_the_imagenet_half_of_webvision_is_trained_alike():
    assert space_of("webvision-mini-imagenet", "ce") == space_of("webvision-mini", "ce")
    assert space_of("webvision-mini", "ce") != space_of("table.csv", "ce")


@pytest.mark.parametrize("loss", ["sgce:q=0.5", "sgce:preset=cifar10"])
def test_what_the_user_fixed_is_not_searched(loss):
    assert "q" not in values(space_of("cifar10", loss))


def test_what_the_user_gives_wins():
    space = space_of("cifar10", "sgce:q=0.5", lrs=[0.1], weight_decays=[0.0, 0.3], varied={"q": [0.3], "scale": ["a"]})
    assert values(space) == {"q": (0.3,), "scale": ("a",), "lr": (0.1,), "weight_decay": (0.0, 0.3)}


def test_points_are_all_combinations_in_order():
    points = list(space_of("x.csv", "sgce", lrs=[0.1, 0.2], weight_decays=[0.0], varied={"q": [0.2, 0.5]}).points())
    assert [(point["q"], point["lr"], point["weight_decay"]) for point in points] == [
        (0.2, 0.1, 0.0),
        (0.2, 0.2, 0.0),
        (0.5, 0.1, 0.0),
        (0.5, 0.2, 0.0),
    ]


def test_nothing_to_choose_is_one_point():
    assert list(Space(()).points()) == [{}]


def test_between_the_ends_of_a_grid():
    assert Dimension("q", (0.5, 0.2, 0.4)).between() == (0.2, 0.5)
    assert Dimension("normalize", (None, "l2")).between() is None
    assert Dimension("lr", (0.1,), log=True).between() is None
    assert Dimension("weight_decay", (0.0,), log=True).between() is None
    with refused(ValueError, "weight_decay", "above 0", "log scale", "0.0, 0.1"):
        Dimension("weight_decay", (0.0, 0.1), log=True).between()


def test_a_varied_parameter_keeps_its_scale():
    by_name = {d.name: d for d in space_of("x.csv", "alpha-mae", varied={"alpha": [1, 8]}).dimensions}
    assert by_name["alpha"].log
    by_name = {d.name: d for d in space_of("x.csv", "taylor-ce", varied={"t": [1, 8]}).dimensions}
    assert by_name["t"].whole
    assert not by_name["t"].log


@pytest.mark.parametrize("line", ["sgce", "sgce:", "sgce:q", "sgce:q=", "sgce:q=0.2,", "sgce:=1"])
def test_a_variation_that_cannot_be_read_is_refused(line):
    with refused(ValueError, "--vary must read loss:parameter=value,value", f"got {line!r}"):
        variations([line], ["sgce"])


def test_variations_of_what_is_not_searched_are_refused():
    with refused(ValueError, "--vary must name a loss of --losses (ce, sgce)", "'mae:scale=1'"):
        variations(["mae:scale=1"], ["sgce:q=0.5", "ce"])
    with refused(ValueError, "no loss named 'sgec'", "'sgce'"):
        variations(["sgec:q=1"], ["sgce"])
    with refused(ValueError, "sgce:q twice"):
        variations(["sgce:q=1", "sgce:q=0.5"], ["sgce"])


@pytest.mark.parametrize(
    ("given", "ingredients"),
    [
        ({"lrs": [0.0]}, ["lr must be a number in (0, inf)", "got 0"]),
        ({"lrs": []}, ["lr", "at least one value"]),
        ({"weight_decays": [-1.0]}, ["weight_decay must be a number in [0, inf)", "got -1"]),
        ({"weight_decays": [0.1, 0.1]}, ["weight_decay", "each value once", "0.1, 0.1"]),
        ({"varied": {"q": [0.5, 0.5]}}, ["q", "each value once"]),
    ],
)
def test_bad_grids_are_refused(given, ingredients):
    with refused(ValueError, *ingredients):
        space_of("cifar10", "sgce", **given)


@pytest.mark.parametrize(
    ("text", "ingredients"),
    [
        ("", ["[weight-decay.other]"]),
        ("[lr]\n" + OTHER, ["'lr'", "weight-decay, loss"]),
        (OTHER.replace("other", "cifar11"), ["'cifar11'", "cifar10"]),
        (OTHER.replace("[1e-4]", "[]"), ["[weight-decay.other]", "list of values"]),
        (OTHER.replace("[1e-4]", "[-1]"), ["[weight-decay.other]", "[0, inf)", "-1"]),
        (OTHER.replace("[1e-4]", "[2, 1]"), ["[weight-decay.other]", "must rise", "2.0, 1.0"]),
        (OTHER.replace("[1e-4]", "[0, 1]"), ["weight_decay", "above 0"]),
        (OTHER.replace('"log"', '"cubic"'), ["scale of [weight-decay.other]", "'cubic'"]),
        (OTHER.replace('"ours"', '" "'), ["[weight-decay.other]", "source"]),
        (OTHER + "steps = 3", ["[weight-decay.other]", "'steps'"]),
        (OTHER + OTHER.replace("weight-decay.other", "loss.sgce.r"), ["[loss.sgce]", "'r'", "q"]),
        (OTHER + OTHER.replace("weight-decay.other", "loss.sgec.q"), ["no loss named 'sgec'"]),
        (OTHER + OTHER.replace("weight-decay.other", "loss.sgce.q").replace("1e-4", "2"), ["[loss.sgce.q]", "(0, 1]"]),
    ],
)  # fmt: skip
def test_a_file_of_grids_that_cannot_be_meant_is_refused(text, ingredients):
    with refused(ValueError, *ingredients):
        read_grids(text)


def test_a_value_that_is_no_number_is_refused():
    with refused(TypeError, "[weight-decay.other]", "'a'"):
        read_grids(OTHER.replace("1e-4", '"a"'))


def test_kappa_is_searched_instead_of_alpha():
    assert [d.name for d in space_of("cifar10", "alpha-mae:kappa=2").dimensions] == ["weight_decay"]
    varied = space_of("cifar10", "alpha-mae", varied={"kappa": [1.0, 3.0]})
    assert [d.name for d in varied.dimensions] == ["kappa", "weight_decay"]
