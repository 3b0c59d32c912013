"""Benchmarks run at tiny sizes and judge. What they time is never judged here."""

import doctest
import importlib
import sys
from pathlib import Path

import closed_form_speed
import gpu_speed
import head_speed
import loss_speed
import measure
import pytest
import torch
from gpu_speed import TINY, Gauge, Way, Ways
from head_speed import BASE, Size
from torch.nn import functional as F  # noqa: N812
from training_speed import measure_training, speed

from symloss import create_loss

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
WITH_EXAMPLES = [path.stem for path in SCRIPTS if "    >>> " in path.read_text()]
SMALL = Size(16, 8, 50, "bfloat16", bias=False)


@pytest.fixture
def _in_this_process(monkeypatch):
    monkeypatch.setattr(measure, "in_own_process", lambda work, *arguments, variables=None: work(*arguments))


@pytest.mark.slow
def test_every_script_has_help(warm_python):
    for script in SCRIPTS:
        if '__name__ == "__main__"' in script.read_text():
            shown = warm_python.run([script, "--help"])
            assert shown.returncode == 0, f"{script.name}: {shown.stderr}"
            assert shown.stdout.startswith("usage: "), script.name
            assert "Traceback" not in shown.stderr, script.name


def test_examples_in_docstrings():
    for name in WITH_EXAMPLES:
        ran = doctest.testmod(importlib.import_module(name))
        assert ran.attempted, name
        assert not ran.failed, name


def test_missed_targets_are_named(capsys):
    measure.judge([])
    assert capsys.readouterr().err == "all targets met\n"
    with pytest.raises(SystemExit, match="1"):
        measure.judge(["too slow"])
    assert capsys.readouterr().err == "missed: too slow\n1 targets missed\n"
    # An error in a process of its own is raised here.
    with pytest.raises(ValueError, match="invalid literal"):
        measure.in_own_process(int, "one")
    size = loss_speed.SIZES[1]
    row = {"n": size[0], "c": size[1], "regime": "default", "ratios": {loss_speed.BASE: 1.0, "gce": 0.4}}
    assert loss_speed.loss_failures([row]) == []
    row["ratios"]["gce"] = 0.6
    assert loss_speed.loss_failures([row]) == ["gce at 4096 x 1000: 0.60, target 0.50"]
    ratios = {BASE: 1.0, "linear + unit unhinged": 2.0, "unhinged head": 0.1, "alpha-mae head": 0.9, "sgce head": 1.2}
    alone = [
        {"way": way, "c": c, "extra_bytes": 800 if way == BASE else 100, "peak_bytes": 3e9}
        for way in ratios
        for c in (50_000, 1_000_000)
    ]
    assert head_speed.head_failures({"ratios": ratios}, alone) == ["sgce head: at most 1.1 times the time"]
    sure = {"times_faster": 99, "accuracy": {"centroid": 0.7, "logistic regression": 0.6}}
    found = closed_form_speed.closed_form_failures(sure, {"ratios": {"fit": 2.0}})
    assert found == ["99 times faster than logistic regression, target 100"]


@pytest.mark.usefixtures("_in_this_process")
def test_losses_are_timed_against_cross_entropy_and_with_options(capsys):
    result = loss_speed.time_losses(200, 100, repeats=2)  # smaller batches are repeated thousands of times
    assert list(result["ratios"]) == ["torch cross_entropy", *loss_speed.LOSSES]
    assert result["ratios"]["torch cross_entropy"] == 1
    loss_speed.print_kinds(loss_speed.OPTIONS, [(200, 100)], repeats=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| size | target | ce | mae | gce | nce | alpha-mae | sgce |"
    assert [line.split(" | ")[1] for line in lines[2:]] == list(loss_speed.OPTIONS)


@pytest.mark.usefixtures("_in_this_process")
@pytest.mark.filterwarnings("ignore:normalize='l2' at temperature")
def test_heads_are_shown_by_the_number_of_classes_and_with_their_errors(monkeypatch, capsys):
    monkeypatch.setattr(head_speed, "MANY", Size(6, 4, 50))
    assert head_speed.compare_heads(repeats=1, classes=(20, 50)) == []
    shown = capsys.readouterr().out
    assert "| way | ratio at 50 | C 20 | C 50 |" in shown
    assert all(f"| {way} |" in shown for way in head_speed.HEADS)
    head_speed.compare_token_heads(1, SMALL[:3], SMALL)
    shown = capsys.readouterr().out
    for dtype in ("float32", "bfloat16"):
        assert all(f"| {dtype} | {way} |" in shown for way in head_speed.token_ways(dtype))
    errors = [e for ways in head_speed.gradient_errors(SMALL).values() for way in ways.values() for e in way]
    assert 0 < min(errors) <= max(errors) < 0.02


def as_it_is(step):
    return step


def on_the_cpu(what):
    return gpu_speed.measure_on("cpu", TINY[what][0], 1, Gauge(), as_it_is)


def test_every_way_on_a_gpu_computes_its_loss_and_is_compared():
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(6, 5, generator=generator), torch.arange(6) % 5
    for name, way in gpu_speed.loss_ways(as_it_is).ways.items():
        base, _, normalize = name.partition(",")[0].partition("/")
        loss = F.cross_entropy if base.startswith("torch") else create_loss(base, normalize=normalize or None)
        expected, z = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        loss(expected, labels).backward()
        with way.context():
            way.step(z, labels).backward()
        torch.testing.assert_close(z.grad, expected.grad, rtol=1e-4, atol=1e-6)
    row, heads = on_the_cpu("losses")["ratios"], on_the_cpu("heads")["ratios"]
    ways = ("torch operations", "plain formulas", "compiled")
    assert {f"{name}, {way}" for name in gpu_speed.LOSSES for way in ways} <= set(row)
    assert {f"{name} head" for name in gpu_speed.LOSSES} <= set(heads)
    assert row["torch cross_entropy"] == heads["linear + cross_entropy"] == 1


def test_what_does_not_fit_a_gpu_is_halved_or_left_out(monkeypatch):
    def taking(most):
        def step(z, y):
            if len(z) > most:
                raise torch.OutOfMemoryError("no more memory")
            return z.sum()

        return Way(step)

    monkeypatch.setattr(gpu_speed, "loss_ways", lambda _: Ways({"base": taking(2), "large": taking(0)}, ["a line"]))
    row = on_the_cpu("losses")
    assert row["left_out"] == [
        "6 examples of 5 classes do not fit into memory: measured with 1",
        "a line",
        "large is left out: the memory of the device does not suffice",
    ]
    assert (row["n"], row["ratios"]) == (1, {"base": 1.0})


def test_the_loop_is_timed_against_its_bare_step(tmp_path):
    """On random images where CIFAR-10 is missing."""
    rows = list(measure_training("mae", 2, 2, "cnn8:width=0.05", tmp_path))
    assert [row["data"] for row in rows] == ["random images like CIFAR-10"] * 2
    assert speed([{"bare": 9.0, "loop": 10.0}]) == 0.9


def test_the_closed_form_is_timed_on_digits_where_mnist_is_missing(tmp_path, monkeypatch, capsys):
    small = ["--examples", "400", "--rows", "2000", "--repeats", "1", "--data-dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["closed_form_speed.py", *small])
    closed_form_speed.main()
    shown = capsys.readouterr().out
    for text in ("digits, enlarged", "| logistic regression |", "400 x 784", "2,000 x 256", "times one product"):
        assert text in shown
    monkeypatch.setattr(closed_form_speed, "TURNS", 1)
    rows = list(closed_form_speed.class_sum_rows(many=200, few=100))
    assert [row[:2] for row in rows[:3]] == [("10", "any"), ("10", "sorted"), ("1,000", "any")]
