"""Benchmarks run and judge; what they time is never judged here."""

import json
import sys

import pytest
from typer.testing import CliRunner

from symloss.bench import head_speed, loss_speed, measure
from symloss.bench.__main__ import do
from symloss.cli import app
from symloss.cli.output import progress
from symloss.environment import hardware_and_versions


def test_losses_are_timed_against_cross_entropy():
    # Smaller batches are repeated thousands of times.
    result = do({"what": "losses", "n": 200, "c": 100, "repeats": 2})
    assert list(result["ratios"]) == ["torch cross_entropy", *loss_speed.loss_names()]
    assert result["ratios"]["torch cross_entropy"] == 1
    assert all(ratio > 0 for ratio in result["ratios"].values())


def test_a_process_of_its_own(warm_python, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(warm_python.programs / "python"))
    result = measure.in_own_process({"what": "head", "way": "unhinged head", "c": 40}, {})
    assert result["c"] == 40
    assert result["seconds"] > 0
    with pytest.raises(ValueError, match="failed"):
        measure.in_own_process({"what": "head", "way": "no such head", "c": 40}, {})


def test_heads_are_timed_side_by_side():
    result = do({"what": "heads", "c": 50, "repeats": 1})
    assert set(result["ratios"]) == set(head_speed.HEADS)
    json.dumps(hardware_and_versions())


def test_targets_are_met_or_named():
    size = loss_speed.SIZES[1]
    row = {"n": size[0], "c": size[1], "regime": "default", "ratios": {"torch cross_entropy": 1.0, "gce": 0.4}}
    assert loss_speed.loss_failures([row]) == []
    row["ratios"] |= {"gce": 0.6, "unhinged/l2": 0.69}
    assert loss_speed.loss_failures([row]) == ["gce at 4096 x 1000: 0.60, target 0.50"]


def test_targets_of_heads():
    ratios = {"linear + cross_entropy": 1.0, "linear + unit unhinged": 2.0, "unhinged head": 0.1}
    ratios |= {"alpha-mae head": 0.9, "sgce head": 1.2}
    alone = [
        {"way": way, "c": c, "extra_bytes": 800 if way == "linear + cross_entropy" else 100, "peak_bytes": 3e9}
        for way in ratios
        for c in (50_000, 1_000_000)
    ]
    assert head_speed.head_failures({"ratios": ratios}, alone) == ["sgce head: at most 1.1 times the time"]
    alone[5] = {"way": "unhinged head", "c": 1_000_000, "extra_bytes": 100, "peak_bytes": 5e9}
    assert "a million classes in 4 GB" in head_speed.head_failures({"ratios": ratios}, alone)


def test_heads_say_how_far_they_are(monkeypatch):
    def at_once(job, settings):
        if job["what"] == "heads":
            return {"ratios": dict.fromkeys(head_speed.HEADS, 1.0)}
        return {"way": job["way"], "c": job["c"], "seconds": 1.0, "extra_bytes": 8, "peak_bytes": 8}

    monkeypatch.setattr(measure, "in_own_process", at_once)
    done = CliRunner().invoke(app, ["bench", "heads"])
    assert done.exit_code == 0, done.exception
    lines = done.stderr.splitlines()
    total = len(head_speed.head_jobs()) + 1
    assert len(lines) == total
    assert lines[0].startswith(f"timing heads: 1/{total} linear + cross_entropy, C 1,000 (")
    assert lines[-1].startswith(f"timing heads: {total}/{total} all in turns, C 50,000 (")


def test_a_terminal_shows_the_piece_at_hand(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    assert progress("timing", iter("ab"), ["the first", "the second"]) == ["a", "b"]
    shown = capsys.readouterr().err
    assert "the first" in shown
    assert "(0 s)" not in shown
