"""Benchmarks of losses and heads run and judge; what they time is never judged here."""

import sys

import head_speed
import loss_speed
import measure
import pytest
from head_speed import BASE, Size
from in_turn import in_turn

SMALL = Size(16, 8, 50, "bfloat16", bias=False)


def at_once(work, *arguments, variables=None):
    """Stand in for a process of its own."""
    return work(*arguments)


def test_losses_are_timed_against_cross_entropy_and_with_options(monkeypatch, capsys):
    result = loss_speed.time_losses(200, 100, repeats=2)  # smaller batches are repeated thousands of times
    assert list(result["ratios"]) == ["torch cross_entropy", *loss_speed.LOSSES]
    assert result["ratios"]["torch cross_entropy"] == 1
    assert all(ratio > 0 for ratio in result["ratios"].values())
    monkeypatch.setattr(measure, "in_own_process", at_once)
    loss_speed.print_kinds(loss_speed.OPTIONS, [(200, 100)], repeats=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| size | target | ce | mae | gce | nce | alpha-mae | sgce |"
    assert [line.split(" | ")[1] for line in lines[2:]] == list(loss_speed.OPTIONS)


def test_losses_are_shown_with_the_targets_that_they_miss(monkeypatch, capsys):
    def played(work, n, c, repeats, variables):
        ratios = {loss_speed.BASE: 1.0} | dict.fromkeys(loss_speed.LOSSES, 3.0)
        faults = dict.fromkeys(ratios, 7)
        return {"ratios": ratios, "seconds": {loss_speed.BASE: 0.002}, "page_faults": faults}

    monkeypatch.setattr(measure, "in_own_process", played)
    monkeypatch.setattr(sys, "argv", ["loss_speed.py", "--smallest", "--check"])
    with pytest.raises(SystemExit, match="1"):
        loss_speed.main()
    shown = capsys.readouterr()
    assert "| loss | 128 x 10, default | 128 x 10, fresh |" in shown.out
    assert "| torch cross_entropy, ms | 2 | 2 |" in shown.out
    assert "| gce | 3.00 (2.5) | 3.00 |\n" in shown.out
    assert "| sgce | 3.00 | 3.00 |" in shown.out
    assert "2/2 128 x 10, fresh" in shown.err
    assert "missed: gce at 128 x 10: 3.00, target 2.50" in shown.err


def test_targets_are_met_or_named():
    size = loss_speed.SIZES[1]
    row = {"n": size[0], "c": size[1], "regime": "default", "ratios": {"torch cross_entropy": 1.0, "gce": 0.4}}
    assert loss_speed.loss_failures([row]) == []
    row["ratios"] |= {"gce": 0.6, "unhinged/l2": 0.69}
    assert loss_speed.loss_failures([row]) == ["gce at 4096 x 1000: 0.60, target 0.50"]
    ratios = {BASE: 1.0, "linear + unit unhinged": 2.0, "unhinged head": 0.1}
    ratios |= {"alpha-mae head": 0.9, "sgce head": 1.2}
    alone = [
        {"way": way, "c": c, "extra_bytes": 800 if way == BASE else 100, "peak_bytes": 3e9}
        for way in ratios
        for c in (50_000, 1_000_000)
    ]
    assert head_speed.head_failures({"ratios": ratios}, alone) == ["sgce head: at most 1.1 times the time"]
    alone[5] = {"way": "unhinged head", "c": 1_000_000, "extra_bytes": 100, "peak_bytes": 5e9}
    assert "a million classes in 4 GB" in head_speed.head_failures({"ratios": ratios}, alone)


@pytest.mark.filterwarnings("ignore:normalize='l2' at temperature")
def test_heads_are_shown_by_the_number_of_classes(monkeypatch, capsys):
    monkeypatch.setattr(measure, "in_own_process", at_once)
    monkeypatch.setattr(head_speed, "MANY", Size(6, 4, 50))
    assert head_speed.compare_heads(repeats=1, classes=(20, 50)) == []
    shown = capsys.readouterr()
    assert "| way | ratio at 50 | C 20 | C 50 |" in shown.out
    assert all(f"| {way} |" in shown.out for way in head_speed.HEADS)
    total = 2 * len(head_speed.HEADS)
    assert shown.err.startswith(f"1/{total} linear + cross_entropy, C 20 (")
    # Those of a language model are shown with their errors.
    head_speed.compare_token_heads(1, SMALL[:3], SMALL)
    shown = capsys.readouterr().out
    for dtype in ("float32", "bfloat16"):
        assert all(f"| {dtype} | {way} |" in shown for way in head_speed.token_ways(dtype))
    assert "| gce:q=0.5 | head, float32 sum |" in shown


def test_gradients_in_bfloat16_are_near_those_in_float64():
    found = head_speed.gradient_errors(SMALL)
    errors = [error for ways in found.values() for way in ways.values() for error in way]
    assert 0 < min(errors) <= max(errors) < 0.02


@in_turn(
    ("times", "memory", "errors", "missed"),
    [
        (1.09, 150e6, 1.9, 0),
        (1.2, 150e6, 1.9, 1),
        (1.09, 350e6, 1.9, 1),
        (1.09, 150e6, 2.1, 2),  # of features and of weights
    ],
)
def test_targets_of_token_heads(times, memory, errors, missed):
    rows = [{"dtype": "bfloat16", "ratios": {BASE: 1.0, "gce:q=0.5 head": times}}]
    extra = [
        {"dtype": "bfloat16", "way": BASE, "extra_bytes": 4e9},
        {"dtype": "bfloat16", "way": "gce:q=0.5 head", "extra_bytes": memory},
        {"dtype": "bfloat16", "way": "gce:q=0.5 head, float32 sum", "extra_bytes": 4 * 512 * 151_936},
    ]
    found = {"gce:q=0.5": {"scores, then loss": [1.0, 1.0], "head": [errors, errors], "head, float32 sum": [1.0, 1.0]}}
    assert len(head_speed.token_failures(rows, extra, found)) == missed
