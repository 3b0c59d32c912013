"""Measurements on a GPU: the same code on the CPU with tiny sizes, and with a GPU that is played."""

import importlib.machinery
import json
import sys
import types

import pytest
import torch
from torch.nn import functional as F  # noqa: N812
from typer.testing import CliRunner

from symloss.bench import device_speed
from symloss.bench.device_speed import Gauge, GpuGauge, Way, Ways
from symloss.bench.measure import Timing
from symloss.cli import app
from symloss.losses.spec import create_loss

FEW = [(6, 5, torch.float32)]


def as_it_is(step):
    return step


def of_losses(**more):
    (row,) = device_speed.measure_losses_on("cpu", 1, Gauge(), FEW, as_it_is, **more)
    return row


def test_losses_are_compared_on_any_device():
    row = of_losses()
    assert next(iter(row["ratios"])) == "torch cross_entropy"
    assert row["ratios"]["torch cross_entropy"] == 1
    ways = ("torch operations", "plain formulas", "compiled")
    assert {f"{name}, {way}" for name in device_speed.LOSSES for way in ways} <= set(row["ratios"])
    assert set(row["extra_bytes"]) == set(row["seconds"]) == set(row["ratios"])
    assert (row["n"], row["c"], row["dtype"]) == (6, 5, "float32")
    json.dumps(row)


def test_heads_are_compared_on_any_device():
    (row,) = device_speed.measure_heads_on("cpu", 1, Gauge(), [(6, 4, 5, torch.float32)])
    assert next(iter(row["ratios"])) == "linear + cross_entropy"
    assert {f"{name} head" for name in device_speed.LOSSES} <= set(row["ratios"])
    assert row["d"] == 4


def test_every_way_computes_its_loss():
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(6, 5, generator=generator), torch.arange(6) % 5
    found = device_speed.loss_ways(as_it_is)
    for name, way in found.ways.items():
        base, _, normalize = name.partition(",")[0].partition("/")
        loss = F.cross_entropy if base.startswith("torch") else create_loss(base, normalize=normalize or None)
        expected, z = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        loss(expected, labels).backward()
        with way.context():
            way.step(z, labels).backward()
        torch.testing.assert_close(z.grad, expected.grad, rtol=1e-4, atol=1e-6)


def test_every_run_has_new_scores_and_the_time_of_the_gauge(monkeypatch):
    seen = []

    def overwriting(z, y):
        seen.append(z.detach().clone())
        z.detach().zero_()
        return (z * 1).sum()

    class Fixed(Gauge):
        def timed(self, prepare):
            prepare()()
            return Timing(2.0, 0)

    monkeypatch.setattr(device_speed, "loss_ways", lambda compiler: Ways({"base": Way(overwriting)}, []))
    (row,) = device_speed.measure_losses_on("cpu", 1, Fixed(), FEW, as_it_is)
    assert row["seconds"] == {"base": 2.0}
    assert len(seen) == 4
    assert all(scores.equal(seen[0]) and scores.any() for scores in seen)


@pytest.fixture
def played_libraries(monkeypatch):
    """Packages in the place of Liger and cut-cross-entropy, with their interfaces."""
    liger, transformers, apple = (
        types.ModuleType(name) for name in ("liger_kernel", "liger_kernel.transformers", "cut_cross_entropy")
    )
    transformers.LigerCrossEntropyLoss = torch.nn.CrossEntropyLoss
    transformers.LigerFusedLinearCrossEntropyLoss = lambda: lambda w, h, y: F.cross_entropy(h @ w.T, y)

    def linear_cross_entropy(e, c, targets):
        raise RuntimeError("only half precision")

    apple.linear_cross_entropy = linear_cross_entropy
    for module in (liger, transformers, apple):
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_other_libraries_are_compared_where_they_are(played_libraries):
    assert "Liger" in of_losses()["ratios"]
    (row,) = device_speed.measure_heads_on("cpu", 1, Gauge(), [(6, 4, 5, torch.float32)])
    assert "Liger" in row["ratios"]
    assert row["left_out"] == ["cut-cross-entropy is left out: RuntimeError('only half precision')"]


def test_what_does_not_fit_is_halved_or_left_out():
    def taking(rows):
        if rows > 2:
            raise torch.OutOfMemoryError("no more memory")
        return rows

    def at(rows):
        ways = {"base": Way(lambda: taking(rows)), "large": Way(lambda: taking(10))}
        return {"c": 5} | device_speed._compare(Ways(ways, ["a line"]), lambda step: step, Gauge(), repeats=1)

    row = device_speed._where_it_fits(at, 8)
    assert row["left_out"] == [
        "8 examples of 5 classes do not fit into memory: measured with 2",
        "a line",
        "large is left out: the memory of the device does not suffice",
    ]
    assert row["ratios"] == {"base": 1.0}


def test_not_even_one_example_fits():
    def at(rows):
        raise torch.OutOfMemoryError("no more memory")

    with pytest.raises(ValueError, match="does not suffice for a single example"):
        device_speed._where_it_fits(at, 4)


class Event:
    """An event of a GPU that needs 3 milliseconds for everything."""

    def __init__(self, order):
        self.order = order

    def record(self):
        self.order.append("record")

    def elapsed_time(self, end):
        return 3.0


def test_a_gpu_is_asked_in_the_right_order(monkeypatch):
    order, memory = [], {"now": 100, "peak": 900}
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: Event(order))
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


@pytest.mark.parametrize("command", ["losses", "heads"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cuda"], "device cuda is not there: torch sees no CUDA or ROCm device; leave --device out for the CPU"),
        (["tpu"], "device must be one of 'cpu', 'cuda'; got 'tpu'"),
        (["cuda", "--check"], "check compares with targets, which only the CPU has; got it with device cuda"),
    ],
)
def test_devices_that_cannot_be_measured(monkeypatch, command, words, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = CliRunner().invoke(app, ["bench", command, "--device", *words])
    assert isinstance(done.exception, ValueError)
    assert str(done.exception) == message


@pytest.mark.parametrize("command", ["losses", "heads"])
def test_the_commands_show_what_was_measured(monkeypatch, command):
    row = {"n": 6, "c": 5, "dtype": "float32", "seconds": {"base": 0.002}, "ratios": {"base": 1.0}}
    row |= {"extra_bytes": {"base": 3_000_000}, "left_out": ["Liger is left out: it is not installed"]}
    other = row | {"seconds": {"base": 0.002, "b": 0.003}, "ratios": {"base": 1.0, "b": 1.5}, "left_out": []}
    other["extra_bytes"] = {"base": 0, "b": 0}
    rows = [row, other] if command == "heads" else [row, other, other]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a played GPU")
    monkeypatch.setattr(device_speed, f"measure_{command}_on", lambda device, repeats, gauge: iter(rows))
    done = CliRunner().invoke(app, ["bench", command, "--device", "cuda"])
    assert done.exit_code == 0, done.exception
    assert "a played GPU" in done.stdout
    assert "1.00 2 ms 3 MB" in done.stdout
    assert "6 x 5 float32: Liger is left out: it is not installed" in done.stderr
    as_json = CliRunner().invoke(app, ["bench", command, "--device", "cuda", "--json"])
    assert json.loads(as_json.stdout)["results"] == rows
