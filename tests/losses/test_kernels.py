"""Kernels against the plain formulas: values and gradients of every loss, however the work is cut."""

import gc
import weakref

import pytest
import torch
from conftest import every_loss
from in_turn import in_turn
from representatives import every_path

import symloss
from symloss.losses import criterion, potentials as phi
from symloss.losses.catalogue import RECORDS
from symloss.losses.kernels import batch as batches, dispatch
from symloss.losses.operators import Symmetrize

OWN = {
    "blend of sgce": symloss.losses.blend(symloss.symmetrize(phi.GCEPotential(0.3)), 3.0),
    "unhinged and nce": symloss.symmetrize(phi.CEPotential()) + 2 * symloss.losses.relative(phi.CEPotential()),
    "gce near 0": symloss.symmetrize(phi.GCEPotential(1e-4)),
    "symmetrized focal": symloss.symmetrize(phi.FocalPotential(0.5)),
    "insensitive": symloss.decompose(phi.AELPotential(2.0)).insensitive,
    "dirichlet of gce": symloss.losses.dirichlet(phi.GCEPotential(0.4), 0.3),
    "unit slope": symloss.create_loss("anl-ce", scale="ce").loss,
    "complement of gce": symloss.losses.complement(phi.GCEPotential(0.5)),
    "complement of mae": symloss.losses.complement(phi.MAEPotential()),
    "two of mae": symloss.losses.complement(phi.MAEPotential()) + phi.MAEPotential(),
    "unhinged twice": 2 * symloss.symmetrize(phi.CEPotential()) + symloss.symmetrize(phi.CEPotential()),
}


@pytest.fixture
def plain(monkeypatch):
    """Runs a function with the kernels switched off."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(criterion, "kernel_for", lambda *_: None)
            return function()

    return run


def batch(shape, dtype, spread=4.0):
    generator = torch.Generator().manual_seed(shape[0] + shape[1])
    z = (spread * torch.randn(shape, dtype=dtype, generator=generator)).requires_grad_()
    return z, torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator)


def value_and_gradient(loss, z, y, **options):
    value = loss(z, y, **options)
    upstream = torch.linspace(0.5, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return value.detach(), torch.autograd.grad(value, z, upstream)[0]


def agree(fast, slow, dtype):
    tolerance = 1e-11 if dtype == torch.float64 else 3e-5
    for ours, theirs in zip(fast, slow, strict=True):
        scale = 1 + theirs.abs().max() if ours.dim() < 2 else theirs.abs().max()
        assert float((ours - theirs).abs().max() / scale) <= tolerance


def leaves(loss):
    """The leaves whose values are needed: what all labels have in common does not change a symmetric part."""
    children = [child.less_constant for child in loss.children] if isinstance(loss, Symmetrize) else loss.children
    return [leaf for child in children for leaf in leaves(child)] if children else [loss]


@every_loss
def test_every_loss_of_potentials_has_a_kernel(name):
    """Losses of all probabilities or of raw scores, and those with a softmax of their own, have none."""
    loss = RECORDS[name].loss()
    of_potentials = all(isinstance(leaf, phi.Potential) for leaf in leaves(loss))
    assert (dispatch.kernel_for(loss, 10) is not None) == of_potentials


@every_loss
def test_every_loss(name, plain):
    """Two classes, ten and images; raw and unit scores; both types: each at least once with each other."""
    loss, unit = RECORDS[name].loss(), symloss.losses.UnitScores(0.3)
    for shape, scores, dtype in (
        ((40, 2), None, torch.float64),
        ((40, 2), unit, torch.float32),
        ((40, 10), None, torch.float32),
        ((40, 10), unit, torch.float64),
        ((3, 5, 2, 4), None, torch.float64),
        ((6, 25, 7), unit, torch.float32),
    ):
        z, y = batch(shape, dtype)
        for reduction in ("mean", "none"):
            options = {"reduction": reduction, "score_map": scores}
            fast = value_and_gradient(loss, z, y, **options)
            slow = plain(lambda z=z, y=y, o=options: value_and_gradient(loss, z, y, **o))
            agree(fast, slow, dtype)


@in_turn("name", OWN)
def test_losses_of_ones_own(name, plain):
    z, y = batch((40, 6), torch.float64)
    assert dispatch.kernel_for(OWN[name], 6) is not None
    agree(value_and_gradient(OWN[name], z, y), plain(lambda: value_and_gradient(OWN[name], z, y)), torch.float64)


@every_path
def test_block_by_block(name, monkeypatch, plain):
    """The same, however many rows are worked on at a time; the last block is shorter."""
    z, y = batch((50, 11), torch.float64)
    y[::4] = -100
    loss = RECORDS[name].loss()
    whole = value_and_gradient(loss, z, y)
    monkeypatch.setattr(batches, "BLOCK", 7 * 11)
    agree(value_and_gradient(loss, z, y), whole, torch.float64)
    agree(whole, plain(lambda: value_and_gradient(loss, z, y)), torch.float64)


@in_turn("name", ["mae", "sgce", "unhinged"])
@in_turn("layout", ["transposed", "expanded", "channels-last", "strided"])
def test_layouts(name, layout, plain):
    base = torch.randn(8, 6, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = {
        "transposed": base.transpose(2, 3),
        "expanded": base[:, :, :1, :1].expand(8, 6, 4, 4),
        "channels-last": base.contiguous(memory_format=torch.channels_last),
        "strided": base[::2],
    }[layout].requires_grad_()
    y = torch.randint(6, (len(z), 4, 4), generator=torch.Generator().manual_seed(1))
    loss = RECORDS[name].loss()
    agree(value_and_gradient(loss, z, y), plain(lambda: value_and_gradient(loss, z, y)), torch.float64)


MASKS = (torch.arange(7) > torch.tensor([[0], [1], [2], [4], [5], [6]])).double()
"""One class of seven is present, two, three, five, six, all."""
LOSSES = {name: record.loss() for name, record in RECORDS.items()} | OWN


@in_turn("scores, dtype", [(None, torch.float64), (symloss.losses.UnitScores(0.3), torch.float32)])
@in_turn("name", LOSSES)
def test_masked_classes_are_absent(name, scores, dtype, plain, monkeypatch):
    """In every kernel and block: as by the plain formula of the scores without them, down to a single class."""
    monkeypatch.setattr(batches, "BLOCK", 2 * 7)
    loss = LOSSES[name]
    z, _ = batch((6, 7), dtype)
    y = torch.tensor([0, 1, 0, 4, 2, 6])
    rows = [(z[i : i + 1, : int((MASKS[i] == 0).sum())].detach().requires_grad_(), y[i : i + 1]) for i in range(6)]
    apart = [plain(lambda row=row, y=y: value_and_gradient(loss, row, y, score_map=scores)) for row, y in rows]
    masked = z.detach().masked_fill(MASKS.bool(), -torch.inf).requires_grad_()
    if dispatch.kernel_for(loss, 7) is not None:
        monkeypatch.setattr(criterion, "_plain", None)  # the plain formulas must not be asked
    found = loss(masked, y, reduction="none", score_map=scores)
    (gradient,), values = torch.autograd.grad(found.sum(), masked), found.detach()
    assert (gradient[MASKS.bool()] == 0).all()
    tolerance = 1e-11 if dtype == torch.float64 else 5e-5
    for i, (value, slopes) in enumerate(apart):
        assert float((values[i] - value).abs()) <= tolerance * (1 + float(value.abs()))
        off = gradient[i : i + 1, : slopes.shape[1]] - slopes / 0.5
        assert float(off.abs().max()) <= tolerance * float(slopes.abs().max())


@in_turn("by_kernel", [True, False])
@in_turn("name", LOSSES)
def test_nan_in_nan_out(name, by_kernel, plain):
    """The value and all of its row's gradient; other rows are not touched, and an ignored one touches nothing."""
    loss, run = LOSSES[name], (lambda function: function()) if by_kernel else plain
    for classes, scores in ((1, None), (2, symloss.losses.UnitScores()), (5, None), (5, symloss.losses.UnitScores())):
        z, y = batch((3, classes), torch.float32)
        z.data[1, classes - 1] = torch.nan
        options = {"score_map": scores}
        for reduction in ("mean", "sum"):
            assert run(lambda z=z, y=y, o=options, r=reduction: loss(z, y, reduction=r, **o)).isnan()
        values, gradient = run(lambda z=z, y=y, o=options: value_and_gradient(loss, z, y, reduction="none", **o))
        assert values.isnan().tolist() == [False, True, False]
        if classes > 1:  # the scores of a single class count for nothing
            assert gradient.isnan().any(1).tolist() == [False, True, False]
            assert gradient[1].isnan().all()
        y[1] = -100
        value, gradient = run(lambda z=z, y=y, o=options: value_and_gradient(loss, z, y, **o))
        assert value.isfinite()
        if by_kernel and dispatch.kernel_for(loss, classes) is not None:
            assert gradient.isfinite().all()
            assert (gradient[1] == 0).all()


@every_loss
def test_derivatives_in_closed_form(name):
    """Every phi' is the derivative of its phi."""
    logp = torch.linspace(-12, -1e-3, 40, dtype=torch.float64, requires_grad=True)
    for potential in (leaf for leaf in leaves(RECORDS[name].loss()) if isinstance(leaf, phi.Potential)):
        (slope,) = torch.autograd.grad(potential.phi(logp).sum(), logp)
        assert torch.allclose(slope, potential.derivative(logp), rtol=1e-9, atol=1e-12)


def test_backward_hands_its_gradient_over(monkeypatch):
    """The scores' gradient is the memory the kernel wrote, not a copy of it."""
    written, by_blocks = [], batches.by_blocks

    def seen(kernel, z, y, share, out, ignores):
        written.append(out.data_ptr())
        return by_blocks(kernel, z, y, share, out, ignores)

    monkeypatch.setattr(batches, "by_blocks", seen)
    z, y = batch((64, 10), torch.float32)
    phi.MAEPotential()(z, y).backward()
    assert written == [z.grad.data_ptr()]


def test_a_loss_of_one_batch_is_not_kept_alive():
    """dirichlet with alpha_k(x) is made anew for every batch; no cache may hold on to the last hundreds of them."""
    z, y = batch((8, 5), torch.float64)
    alpha = torch.full((8, 5), 0.5, dtype=torch.float64)
    gone = weakref.ref(alpha)
    symloss.losses.dirichlet(phi.CEPotential(), alpha)(z, y).backward()
    del alpha
    gc.collect()
    assert gone() is None


SCORES = 3 * torch.randn(5, 7, generator=torch.Generator().manual_seed(3))
LABELS = torch.tensor([0, 6, -100, 3, 3])


def test_overwrite_gives_the_gradient_the_memory_of_the_scores():
    leaf = SCORES.clone().requires_grad_()
    expected = symloss.GCE()(leaf, LABELS)
    (expected_gradient,) = torch.autograd.grad(expected, leaf, torch.tensor(0.5))
    scores = leaf * 1.0
    memory = scores.data_ptr()
    value = symloss.GCE(overwrite=True)(scores, LABELS)
    torch.testing.assert_close(value, expected)
    (gradient,) = torch.autograd.grad(value, scores, torch.tensor(0.5))
    assert gradient.data_ptr() == memory
    torch.testing.assert_close(gradient, expected_gradient)


def test_a_second_use_of_overwritten_scores_is_an_error():
    leaf = SCORES.clone().requires_grad_()
    loss = symloss.GCE(overwrite=True)
    scores = leaf * 1.0
    value = loss(scores, LABELS)
    torch.autograd.grad(value, scores, retain_graph=True)
    with pytest.raises(RuntimeError, match="overwrite=True keeps no scores"):
        torch.autograd.grad(value, scores)
    with pytest.raises(RuntimeError, match="overwrite=True keeps no scores"):
        torch.autograd.grad(loss(leaf * 1.0, LABELS), leaf, create_graph=True)
    value = loss(leaf.tanh(), LABELS)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):  # tanh has lost its result
        value.backward()
    loss(scores := SCORES.clone(), LABELS)
    assert torch.equal(scores, SCORES), "without a gradient nothing is overwritten"
