"""What is searched: the paper's grids, ours, and those of the user."""

from in_turn import in_turn
from refusals import refused

from symloss.experiments.spaces import Dimension, Space, papers_space, space_of, variations
from symloss.losses.catalogue import RECORDS


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


@in_turn("loss", RECORDS)
def test_there_is_a_space_for_every_loss_and_any_data(loss):
    for data in ("digits", "mnist", "webvision-mini-imagenet", "my data/table.csv"):
        space = space_of(data, loss)
        assert space.dimensions[-1].name == "weight_decay"
        assert "lr" not in values(space)
        assert all(dimension.between() for dimension in space.dimensions), data


def test_what_the_user_fixes_or_gives_wins():
    for loss in ("sgce:q=0.5", "sgce:preset=cifar10"):
        assert "q" not in values(space_of("cifar10", loss)), loss
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


def test_variations_that_cannot_be_meant_are_refused():
    for line in ("sgce", "sgce:", "sgce:q", "sgce:q=", "sgce:q=0.2,", "sgce:=1"):
        with refused(ValueError, "--vary must read loss:parameter=value,value", f"got {line!r}"):
            variations([line], ["sgce"])
    with refused(ValueError, "--vary must name a loss of --losses (ce, sgce)", "'mae:scale=1'"):
        variations(["mae:scale=1"], ["sgce:q=0.5", "ce"])
    with refused(ValueError, "no loss named 'sgec'", "'sgce'"):
        variations(["sgec:q=1"], ["sgce"])
    with refused(ValueError, "sgce:q twice"):
        variations(["sgce:q=1", "sgce:q=0.5"], ["sgce"])


@in_turn(
    "given, ingredients",
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


def test_kappa_is_searched_instead_of_alpha():
    assert [d.name for d in space_of("cifar10", "alpha-mae:kappa=2").dimensions] == ["weight_decay"]
    varied = space_of("cifar10", "alpha-mae", varied={"kappa": [1.0, 3.0]})
    assert [d.name for d in varied.dimensions] == ["kappa", "weight_decay"]
