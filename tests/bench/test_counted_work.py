"""Counts of work: known ones of simple expressions, and of losses by hand."""

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from symloss.bench import counted_ways
from symloss.bench.counted_work import CountedWork, Counts, extent, forward_and_backward
from symloss.losses.create import create_loss

N, C = 64, 50
SCORES = 4 * N * C
A_NUMBER_EACH = 4 * N


def meta(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


def work_of(expression, *shape):
    x = meta(*shape)
    with CountedWork() as counted:
        kept = expression(x)
    del kept
    return counted.work


@pytest.mark.parametrize(
    ("expression", "read", "written", "launches"),
    [
        (lambda x: x.exp(), 40, 40, 1),
        (lambda x: x + x, 40, 40, 1),
        (lambda x: x * x.new_empty(10), 80, 40, 1),
        (lambda x: x.sum(), 40, 4, 1),
        (lambda x: x.exp_(), 40, 40, 1),
        (lambda x: x.zero_(), 0, 40, 1),
        (lambda x: torch.empty_like(x).copy_(x), 40, 40, 1),
        (lambda x: torch.exp(x, out=x), 40, 40, 1),
        (lambda x: torch.exp(x, out=torch.empty_like(x)), 40, 40, 1),
        (lambda x: x.reshape(2, 5).t()[1:].unsqueeze(0).detach(), 0, 0, 0),
        (lambda x: x[:1].expand(10) + 1, 4, 40, 1),
        (lambda x: x[:5].exp(), 20, 20, 1),
        (lambda x: x.gather(0, torch.empty(3, dtype=torch.int64, device="meta")), 3 * (4 + 8), 3 * 4, 1),
        (lambda x: x.scatter_(0, torch.empty(3, dtype=torch.int64, device="meta"), 1.0), 3 * 8, 3 * 4, 1),
        (lambda x: torch.zeros(10).exp(), 0, 0, 0),
    ],
)
def test_known_counts(expression, read, written, launches):
    found = work_of(expression, 10)
    assert (found.read, found.written, found.launches) == (read, written, launches)


def test_the_peak_of_a_chain_is_two_of_its_tensors():
    assert work_of(lambda x: x.exp().exp().exp().exp(), 10).peak == 80
    assert work_of(lambda x: [x.exp() for _ in range(4)], 10).peak == 160
    assert work_of(lambda x: x.exp_().exp_(), 10).peak == 0


def test_what_is_in_use_is_known():
    with CountedWork() as counted:
        first = meta(10).exp()
        view = first[:1]
        assert counted.live() == 40
        del first
        assert counted.live() == 40
        del view
        assert counted.live() == 0


def test_cross_entropy_by_hand():
    """Log-probabilities are written and kept; backward fills a tensor, reads both, and writes the gradient."""
    labels = meta(N, dtype=torch.int64)
    counted = CountedWork()
    found = forward_and_backward(lambda z: F.cross_entropy(z, labels), meta(N, C), counted)
    large = {name.split(".")[1]: (read // SCORES, written // SCORES) for name, read, written in counted.seen}
    assert large == {
        "_log_softmax": (1, 1),
        "nll_loss_forward": (0, 0),
        "ones_like": (0, 0),
        "nll_loss_backward": (0, 1),
        "_log_softmax_backward_data": (2, 1),
    }
    assert (found.read // SCORES, found.written // SCORES, found.launches) == (3, 3, 5)
    assert SCORES <= found.kept < SCORES + 16
    assert 3 * SCORES <= found.peak < 3 * SCORES + 16


@pytest.mark.parametrize(("classes", "dtype", "reads"), [(C, torch.float32, 1), (10_000, torch.bfloat16, 2)])
def test_a_fused_kernel_by_hand(classes, dtype, reads):
    """It reads scores and writes the gradient, which backward multiplies by what comes from above."""
    z, labels = meta(N, classes, dtype=dtype), meta(N, dtype=torch.int64)
    size = extent(z)
    found = counted_ways.fused_work(create_loss("gce"), z, labels)
    few = 60 * A_NUMBER_EACH
    assert (reads + 1) * size < found.read < (reads + 1) * size + few
    assert 2 * size < found.written < 2 * size + few
    assert size <= found.kept < size + few
    assert size < found.peak < size + few
    overwriting = counted_ways.fused_work(create_loss("gce", overwrite=True), z, labels)
    assert overwriting.peak < few
    assert (overwriting.read, overwriting.launches) == (found.read, found.launches)


def test_every_way_is_counted_without_a_compiler():
    rows = list(counted_ways.count_ways(N, C, torch.float32, compiled=False))
    assert {(row["loss"], row["way"]) for row in rows} >= {
        ("cross-entropy", "torch, eager"),
        ("gce", "plain formulas, eager"),
        ("sgce/l2", "operations of torch"),
        ("sgce", "fused kernel, overwrite"),
    }
    by_way = {row["way"]: row["read"] for row in rows if row["loss"] == "gce"}
    assert by_way["fused kernel"] < by_way["operations of torch"] < by_way["plain formulas, eager"]
    json.dumps(rows)


def test_kernels_of_inductor_count_what_they_access():
    """Whole buffers, but only the numbers that indices pick; a buffer that is scattered into is not read."""
    dependencies = pytest.importorskip("torch._inductor.dependencies")

    def access(name, indirect, *size):
        return SimpleNamespace(name=name, is_indirect=lambda: indirect, size=size)

    def node_of(extern):
        reads = [access("scores", False, N, C), access("picked", True, N), dependencies.StarDep("filled")]
        return SimpleNamespace(
            get_read_write_buffer_accesses=lambda **_: dict.fromkeys(("scores", "picked", "filled"), SCORES),
            read_writes=SimpleNamespace(reads=reads),
            is_extern=lambda: extern,
        )

    graph = SimpleNamespace(get_dtype=lambda name: torch.float32)
    assert counted_ways._bytes(graph, node_of(extern=False), reads=True) == SCORES + A_NUMBER_EACH
    assert counted_ways._bytes(graph, node_of(extern=True), reads=True) == 2 * SCORES + A_NUMBER_EACH


def test_rows_scale():
    assert Counts(1, 2, 3, 4, 5).times(0.5) == Counts(0.5, 1, 3, 2, 2.5)


def test_the_script_prints_a_table(monkeypatch, capsys):
    monkeypatch.setattr(counted_ways, "SIZES", ((N, C, torch.float32),))
    script = str(Path(__file__).parents[2] / "benchmarks" / "counted.py")
    monkeypatch.setattr(sys, "argv", [script, "--no-compiled"])
    runpy.run_path(script, run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert "| cross-entropy | torch, eager | 3.10 | 3.00 | 6.10 | 5 | 3.00 | 1.00 |" in lines
    monkeypatch.setattr(sys, "argv", [script, "--no-compiled", "--json"])
    runpy.run_path(script, run_name="__main__")
    assert json.loads(capsys.readouterr().out)["rows"][0]["launches"] == 5
