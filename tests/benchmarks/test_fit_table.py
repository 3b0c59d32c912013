"""The tables of fit_accuracy.py, from rows made up here."""

import math

import pytest
from fit_table import Results, markdown
from in_turn import in_turn


def row(method, seed, accuracy, noise="sym:0.6", **more):
    found = {"data": "digits", "noise": noise, "seed": seed, "method": method, "accuracy": accuracy}
    found |= {"average_precision": 0.9, "noise_rate": 0.6, "processor_seconds": 2.0, "environment": {"torch": "2.13"}}
    return found | more


def rows_of(method, *accuracies, **more):
    return [row(method, seed, accuracy, **more) for seed, accuracy in enumerate(accuracies)]


CELL = ("digits", "sym:0.6")


def test_means_with_their_spread_and_number_and_the_best_on_the_same_seeds_in_bold():
    lines = markdown([*rows_of("symloss", 0.94, 0.96), *rows_of("svc", 0.92, 0.93), *rows_of("ce", 0.99)]).splitlines()
    assert "| digits sym:0.6 | 95.0 ± 1.4 (2) | 92.5 ± 0.7 (2) | **99.0 (1)** |" in lines
    more = [*rows_of("symloss", 0.90, 0.99), *rows_of("svc", 0.92), *rows_of("ce", 0.92)]
    assert Results(more).best_on_shared_seeds(CELL, "accuracy") == ["svc", "ce"]
    apart = [row("symloss", 0, 0.9), row("svc", 1, 0.8)]
    assert Results(apart).best_on_shared_seeds(CELL, "accuracy") == []
    assert Results(apart).mean_ranks() == ({}, 0)
    assert "Mean rank" not in markdown(apart)
    text = markdown([*rows_of("svc", 0.9, 0.8), row("svc", 0, 0.9, noise="clean", average_precision=None)])
    assert "Paired" not in text  # one method alone is not compared
    assert "| digits sym:0.6 | 85.0 ± 7.1 (2) |" in text
    assert Results(rows_of("svc", 0.9)).against_best_rival(CELL) is None
    assert "digits clean" not in text.split("### The audit")[1].split("###")[0]  # which has no wrong labels to find


def test_equal_methods_share_their_rank_and_cells_count_the_same():
    first = [*rows_of("symloss", 0.9, 0.9), *rows_of("svc", 0.9, 0.8), *rows_of("ce", 0.7, 0.7)]
    second = [row(method, 0, value, "clean") for method, value in (("symloss", 0.8), ("svc", 0.9), ("ce", 0.7))]
    alone = [row("symloss", 0, 0.1, "asym:0.4")]
    ranks, cells = Results(first + second + alone).mean_ranks()
    assert cells == 2
    assert ranks == {"symloss": (1.25 + 2) / 2, "svc": (1.75 + 1) / 2, "ce": 3.0}
    text = markdown(first + second + alone)
    assert (
        "over the 2 rows in which every method has finished with the same seed: svc 1.38, symloss 1.62, ce 3.00" in text
    )


def test_differences_are_paired_by_seed():
    results = Results([*rows_of("symloss", 0.90, 0.94, 0.2), *rows_of("svc", 0.92, 0.95), *rows_of("ce", 0.1)])
    found = results.against_best_rival(CELL)
    assert (found.rival, found.seeds) == ("svc", 2)
    assert found.mean == pytest.approx(-1.5)
    assert found.error == pytest.approx(math.sqrt(0.5) / math.sqrt(2))
    assert found.behind
    assert results.methods == ["symloss", "svc", "ce"]
    rows = [*rows_of("symloss", 0.90, 0.90), *rows_of("svc", 0.92, 0.92)]
    assert "A rival has the higher mean, by so many points: digits sym:0.6 (svc, 2.00)." in markdown(rows)
    assert "No rival has the higher mean" in markdown([*rows_of("symloss", 0.9), *rows_of("svc", 0.9)])


@in_turn(
    ("ours", "theirs", "behind"),
    [
        ((0.900, 0.901), (0.904, 0.905), False),  # two errors, but less than half a point
        ((0.90, 0.80), (0.91, 0.91), False),  # more than half a point, but not two errors
        ((0.90, 0.90), (0.92, 0.92), True),
        ((0.90,), (0.92,), None),
        ((0.92, 0.92), (0.90, 0.90), False),
    ],
)
def test_behind_is_half_a_point_and_two_errors(ours, theirs, behind):
    rows = [*rows_of("symloss", *ours), *rows_of("svc", *theirs)]
    assert Results(rows).against_best_rival(CELL).behind is behind
    verdict = {True: "behind", False: "not behind", None: "one seed"}[behind]
    assert f"| {len(ours)} | {verdict} |" in markdown(rows)


def test_what_else_was_measured_is_shown():
    """Noise rates stand beside the true one. What differs between environments is listed."""
    others = [{"calibration_error": 0.02}, {"environment": {"torch": "2.13", "commit": "abc"}}]
    rows = [row("symloss", k, 0.9, noise_rate_estimate=0.61 + 0.02 * k, **more) for k, more in enumerate(others)]
    text = markdown([*rows, row("svc", 0, 0.9, average_precision_of_margins=0.7)])
    assert "| digits sym:0.6 | 0.020 (1) | - |" in text
    assert "| digits sym:0.6 | - | 0.700 (1) |" in text
    assert "Calibration error" not in markdown(rows_of("svc", 0.9))
    assert "\n- torch 2.13\n" in text
    assert "commit: - (2 rows), abc (1 row)" in text
    assert "| data and noise | true | symloss |\n|---|---:|---:|" in text
    assert "| digits sym:0.6 | 0.600 | 0.620 ± 0.014 (2) |" in text
