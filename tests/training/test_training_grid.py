"""Searches and comparisons, with a trainer that trains nothing."""

import math
import tomllib

import pytest
from refusals import refused
from training_helpers import small

from symloss.losses.create import parse
from symloss.training import comparison, grid


def plans(*lrs):
    return [small(lr=lr) for lr in lrs]


def found(validation, test=0.5, seconds=1.0, **settings):
    last = {"validation_accuracy": validation, "test_accuracy": test, "memorised": 0.25, "seconds": seconds}
    best = last | {"test_accuracy": test and test + 0.1}
    tested = 0 if test is None else 360
    return {"settings": small(**settings).to_dict(), "last": last, "best": best, "test": tested, "seconds": seconds}


def test_a_search_ranks_by_validation_and_never_by_test(tmp_path):
    accuracies = {0.1: (0.2, 0.9), 0.2: (0.4, 0.1), 0.3: (0.3, 0.99)}

    def train(settings, folder, which):
        return found(*accuracies[settings.lr])

    result = grid.search("alpha-mae", plans(*accuracies), grid.Effort(1), tmp_path, train)
    assert [row["settings"]["lr"] for row in result["tried"]] == [0.2, 0.3, 0.1]


def test_a_search_needs_no_test_data_at_all(tmp_path):
    def train(settings, folder, which):
        return {"last": {"validation_accuracy": settings.lr}}

    result = grid.search("alpha-mae", plans(0.1, 0.2), grid.Effort(1), tmp_path, train)
    assert result["tried"][0]["settings"]["lr"] == 0.2


def test_a_search_takes_the_mean_over_seeds_in_folders_of_their_own(tmp_path):
    folders, accuracies = [], {(0.1, 0): 0.9, (0.1, 1): 0.1, (0.2, 0): 0.6, (0.2, 1): 0.6}

    def train(settings, folder, which):
        folders.append(folder)
        return found(accuracies[settings.lr, settings.seed])

    result = grid.search("alpha-mae", plans(0.1, 0.2), grid.Effort(2), tmp_path, train)
    assert [row["validation"]["mean"] for row in result["tried"]] == pytest.approx([0.6, 0.5])
    assert len(set(folders)) == 4
    assert all(folder.parent == tmp_path for folder in folders)


def test_finalists_are_run_with_more_seeds_and_ranked_by_all_of_them(tmp_path):
    accuracies = {0.1: (0.9, 0.1, 0.2), 0.2: (0.8, 0.6, 0.7), 0.3: (0.7, 1.0, 1.0)}
    trained = []

    def train(settings, folder, which):
        trained.append((settings.lr, settings.seed))
        return found(accuracies[settings.lr][settings.seed])

    result = grid.search("alpha-mae", plans(*accuracies), grid.Effort(1, finalists=2, final_seeds=3), tmp_path, train)
    assert [(row["settings"]["lr"], row["seeds"]) for row in result["tried"]] == [(0.2, 3), (0.1, 3), (0.3, 1)]
    assert {seed for lr, seed in trained if lr == 0.3} == {0}


def test_finalists_are_ranked_by_all_their_seeds(tmp_path):
    """0.3 leads on the first seed alone, 0.1 is no finalist and is not run again."""
    first, later = {0.1: 0.2, 0.2: 0.5, 0.3: 0.6}, {0.2: 0.9, 0.3: 0.1}
    trained = []

    def train(settings, folder, which):
        trained.append((settings.lr, settings.seed))
        return found((later if settings.seed else first)[settings.lr])

    effort = grid.Effort(seeds=1, finalists=2, final_seeds=3)
    result = grid.search("alpha-mae", plans(*first), effort, tmp_path, train)
    assert [(row["settings"]["lr"], row["seeds"]) for row in result["tried"]] == [(0.2, 3), (0.3, 3), (0.1, 1)]
    assert (0.1, 1) not in trained


def test_a_search_without_validation_is_refused(tmp_path):
    with refused(ValueError, "validation must be above 0"):
        grid.search("alpha-mae", plans(0.1), grid.Effort(1), tmp_path, lambda *_: found(None))


def test_the_points_of_a_grid_are_all_combinations():
    points = grid.points("sgce:temperature=2", [0.1, 0.2], [0.0, 0.5], ["sgce:q=0.2,0.5", "mae:scale=1,2"])
    assert len(set(points)) == 2 * 2 * 2
    assert {tuple(sorted(parse(point.loss)[1].items())) for point in points} == {
        (("q", 0.2), ("temperature", 2)),
        (("q", 0.5), ("temperature", 2)),
    }


@pytest.mark.parametrize("line", ["sgce", "sgce:", "sgce:q", "sgce:q="])
def test_a_grid_that_cannot_be_read_is_refused(line):
    with refused(ValueError, "--vary must read loss:parameter=value,value", f"got {line!r}"):
        grid.points("sgce", [0.1], [0.0], [line])


@pytest.mark.parametrize("data", ["digits", "fashion-mnist", "my data/table.csv"])
@pytest.mark.parametrize("loss", ["ce", "sgce:q=0.5", "nce+agce:alpha=1,beta=4", "alpha-mae:normalize=none"])
def test_what_was_found_can_be_read_as_toml(data, loss):
    tried = [
        {"settings": small(loss, lr=1e-5).to_dict(), "validation": {"mean": mean, "std": None}, "seeds": 3}
        for mean in (0.7, 0.6)
    ]
    text = "\n".join(grid.as_toml(data, [{"loss": loss, "tried": tried}]))
    name, parameters = parse(tried[0]["settings"]["loss"])
    row = tomllib.loads(text)[data]["losses"][name]
    assert (row["lr"], row["weight_decay"]) == (1e-5, 1e-3)
    assert parse(grid.spec(name, row.get("loss", {}))) == (name, parameters)
    assert "0.7000 of 3 seeds, next 0.6000, of 2" in text


def test_a_row_is_mean_and_standard_deviation_over_seeds():
    (row,) = comparison.rows([[found(0.1, test, seconds) for test, seconds in ((0.5, 1.0), (0.7, 3.0))]])
    assert row["measure"] == "test_accuracy"
    assert row["last"] == pytest.approx({"mean": 0.6, "std": math.sqrt(0.02)})
    assert row["best"]["mean"] == pytest.approx(0.7)
    assert (row["weight_decay"], row["seconds"], row["runs"]) == (1e-3, 2.0, 2)


def test_without_test_data_a_row_is_about_validation():
    (row,) = comparison.rows([[found(0.4, None)]])
    assert row["measure"] == "validation_accuracy"
    assert row["last"] == {"mean": 0.4, "std": None}


def test_no_two_settings_share_a_folder_and_names_are_plain():
    several = [small(seed=seed, noise=noise) for seed in (0, 1) for noise in ("sym:0.4", "sym:0.2")]
    several += [small(data="some where/my data.csv"), small("gce:q=0.5"), small("gce:q=0.6")]
    names = [comparison.folder_name(settings) for settings in several]
    assert len(set(names)) == len(several)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.+-_") for name in names)
    assert names[0].startswith("digits-sym_0.4-alpha-mae-seed0-")


def test_seeds_follow_one_another():
    assert [settings.seed for settings in comparison.with_seeds(small(seed=4), 3)] == [4, 5, 6]
