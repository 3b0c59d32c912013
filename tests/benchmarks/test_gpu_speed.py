"""Measurements on a GPU: the same code on the CPU with tiny sizes, and with a GPU that is played."""

import sys
from types import SimpleNamespace

import gpu_speed
import pytest
import torch
from gpu_speed import TINY, Gauge, GpuGauge, Way, Ways
from torch.nn import functional as F  # noqa: N812

from symloss import create_loss


def as_it_is(step):
    return step


def measured(what, gauge=None):
    return gpu_speed.measure_on("cpu", TINY[what][0], 1, gauge or Gauge(), as_it_is)


def test_losses_are_compared_on_any_device():
    row = measured("losses")
    assert next(iter(row["ratios"])) == "torch cross_entropy"
    assert row["ratios"]["torch cross_entropy"] == 1
    ways = ("torch operations", "plain formulas", "compiled")
    assert {f"{name}, {way}" for name in gpu_speed.LOSSES for way in ways} <= set(row["ratios"])
    assert set(row["extra_bytes"]) == set(row["seconds"]) == set(row["ratios"])
    assert (row["n"], row["c"], row["dtype"]) == (6, 5, "float32")
    row = measured("heads")
    assert next(iter(row["ratios"])) == "linear + cross_entropy"
    assert {f"{name} head" for name in gpu_speed.LOSSES} <= set(row["ratios"])


def test_every_way_computes_its_loss():
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(6, 5, generator=generator), torch.arange(6) % 5
    found = gpu_speed.loss_ways(as_it_is)
    for name, way in found.ways.items():
        base, _, normalize = name.partition(",")[0].partition("/")
        loss = F.cross_entropy if base.startswith("torch") else create_loss(base, normalize=normalize or None)
        expected, z = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        loss(expected, labels).backward()
        with way.context():
            way.step(z, labels).backward()
        torch.testing.assert_close(z.grad, expected.grad, rtol=1e-4, atol=1e-6)


def test_what_does_not_fit_is_halved_or_left_out(monkeypatch):
    def taking(most):
        def step(z, y):
            if len(z) > most:
                raise torch.OutOfMemoryError("no more memory")
            return z.sum()

        return Way(step)

    monkeypatch.setattr(gpu_speed, "loss_ways", lambda _: Ways({"base": taking(2), "large": taking(0)}, ["a line"]))
    row = measured("losses")
    assert row["left_out"] == [
        "6 examples of 5 classes do not fit into memory: measured with 1",
        "a line",
        "large is left out: the memory of the device does not suffice",
    ]
    assert (row["n"], row["ratios"]) == (1, {"base": 1.0})
    monkeypatch.setattr(gpu_speed, "loss_ways", lambda _: Ways({"base": taking(0)}, []))
    with pytest.raises(ValueError, match="does not suffice for a single example"):
        measured("losses")


def test_a_gpu_is_asked_in_the_right_order(monkeypatch):
    order, memory = [], {"now": 100, "peak": 900}
    event = SimpleNamespace(record=lambda: order.append("record"), elapsed_time=lambda end: 3.0)  # milliseconds
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: order.append("wait"))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: memory["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: memory["peak"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: memory.update(peak=memory["now"]))

    def prepare():
        order.append("prepare")
        memory["now"] += 50
        return lambda: (order.append("run"), memory.update(peak=memory["now"] + 7))

    assert GpuGauge().timed(prepare).seconds == 0.003
    assert order == ["prepare", "wait", "record", "run", "record", "wait"]
    assert GpuGauge().extra_bytes(prepare) == 7


def test_the_script_shows_what_was_measured(monkeypatch, capsys):
    def row(extra_bytes, left_out, **ratios):
        seconds = {name: 0.002 * ratio for name, ratio in ratios.items()}
        found = {"n": 6, "c": 5, "dtype": "float32", "seconds": seconds, "ratios": ratios, "left_out": left_out}
        return found | {"extra_bytes": dict.fromkeys(ratios, extra_bytes)}

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a played GPU")
    rows = iter([row(3_000_000, ["Liger is left out: it is not installed"], base=1.0), row(0, [], base=1.0, b=1.5)])
    monkeypatch.setattr(gpu_speed, "measure_on", lambda device, size, repeats, gauge, compiler: next(rows))
    monkeypatch.setattr(sys, "argv", ["gpu_speed.py", "--heads"])
    gpu_speed.main()
    shown = capsys.readouterr()
    assert "a played GPU" in shown.out
    assert "| base | 1.00, 2 ms, 3 MB | 1.00, 2 ms, 0 MB |\n| b | - | 1.50, 3 ms, 0 MB |" in shown.out
    assert "6 x 5 float32: Liger is left out: it is not installed" in shown.err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu_speed.main()
    assert "torch sees no CUDA or ROCm device on this machine" in capsys.readouterr().err
