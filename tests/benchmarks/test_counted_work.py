"""Counts of work: known ones of simple expressions, and of losses by hand."""

import json
import shutil
import sys

import counted as script
import pytest
import torch
from counted_work import CountedWork, Traffic, extent, forward_and_backward
from in_turn import in_turn
from torch.nn import functional as F  # noqa: N812

import symloss
from symloss.losses.spec import create_loss

N, C = 64, 50
SCORES = 4 * N * C


def meta(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


def work_of(expression, *shape):
    x = meta(*shape)
    with CountedWork() as counted:
        kept = expression(x)
    del kept
    return counted.work


@in_turn(
    ("expression", "read", "written", "launches"),
    [
        (lambda x: x.exp(), 40, 40, 1),
        (lambda x: x + x, 40, 40, 1),
        (lambda x: x * x.new_empty(10), 80, 40, 1),
        (lambda x: x.sum(), 40, 4, 1),
        (lambda x: x.exp_(), 40, 40, 1),
        (lambda x: x.zero_(), 0, 40, 1),
        (lambda x: torch.empty_like(x).copy_(x), 40, 40, 1),
        (lambda x: torch.exp(x, out=torch.empty_like(x)), 40, 40, 1),
        (lambda x: x.reshape(2, 5).t()[1:].unsqueeze(0).detach(), 0, 0, 0),
        (lambda x: x[:1].expand(10) + 1, 4, 40, 1),
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


def test_eager_ways_are_counted():
    rows = list(script.count_eager(N, C, torch.float32))
    by_way = {(row["loss"], row["way"]): row for row in rows}
    assert by_way["cross-entropy", "torch"]["launches"] == 5
    for name in script.EAGER_LOSSES:
        plain, fast = (by_way[name, way] for way in ("plain formulas", "torch operations"))
        assert fast["read"] + fast["written"] < plain["read"] + plain["written"]
        assert by_way[name, "torch operations, overwrite"]["kept"] < SCORES <= fast["kept"]
    json.dumps(rows)


def compiled(step):
    """Bytes, as a multiple of the scores', and launches."""
    scores = meta(64, 1000)
    with torch._inductor.config.patch(compile_threads=1):  # no pool of processes for a small function
        found = script.compiled_work(step, scores)
    torch._dynamo.reset()
    return found.moved / extent(scores), found.launches


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning")  # by inductor
@in_turn("name", ["gce", "nce", "sgce/l2", "alpha-mae/l2"])
def test_a_compiled_loss_needs_no_more_than_cross_entropy(name):
    """Of which forward reads the scores; backward reads them again and writes the gradient."""
    if name == "gce":
        assert compiled(F.cross_entropy) == (pytest.approx(3, abs=0.1), 4)
    base, _, normalize = name.partition("/")
    multiple, launches = compiled(create_loss(base, normalize=normalize or None))
    assert multiple <= 3.1
    assert launches <= 4


def test_the_script_prints_a_table(monkeypatch, capsys):
    """Losses that need more than cross-entropy are marked."""

    def played(step, scores):
        more = 2 if isinstance(step, symloss.SGCE) and step.normalize == "l2" else 0
        return Traffic(2 * extent(scores), (1 + more) * extent(scores), 4 + more)

    monkeypatch.setattr(script, "compiled_work", played)
    monkeypatch.setattr(sys, "argv", ["counted.py", "--losses", "gce", "sgce"])
    script.main()
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "| torch cross_entropy | 3.00 | 4 | - | - | |",
        "| gce | 3.00 | 4 | 3.00 | 4 | |",
        "| sgce | 3.00 | 4 | 5.00 | 6 | unexplained |",
    ]
