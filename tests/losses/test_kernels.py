"""Kernels against the plain formulas: values and gradients of every loss, however the work is cut."""

import gc
import weakref

import pytest
import torch
from conftest import every_loss

import symloss
from symloss.losses import evaluate, kernels
from symloss.losses import potentials as phi
from symloss.losses.catalogue import RECORDS

SERVED = {
    "_Linear": {"unhinged"},
    "_Narrow": {
        *("alpha-mae", "ce", "mae", "rce", "gce", "focal", "agce", "aul", "ael", "taylor-ce"),
        *("phuber-ce", "phuber-gce", "js", "sce", "label-smoothing", "dirichlet-ce"),
    },
    "_Summed": {
        *("sgce", "nce", "nfl", "ngce", "nnce", "nnfl", "nce+mae", "nce+rce", "nfl+mae", "nfl+rce"),
        *("nce+agce", "nce+aul", "nce+ael", "anl-ce", "anl-fl"),
    },
    "NoneType": {"mse", "symmetrized-mse", "cosine", "symmetrized-cosine", "bi-tempered"},
}
OWN = {
    "blend of sgce": symloss.blend(symloss.symmetrize(phi.GCE(0.3)), 3.0),
    "unhinged and nce": symloss.symmetrize(phi.CE()) + 2 * symloss.relative(phi.CE()),
    "gce near 0": symloss.symmetrize(phi.GCE(1e-4)),
    "symmetrized focal": symloss.symmetrize(phi.Focal(0.5)),
    "insensitive": symloss.decompose(phi.AEL(2.0)).insensitive,
    "dirichlet of gce": symloss.dirichlet(phi.GCE(0.4), 0.3),
    "unit slope": symloss.create_loss("anl-ce", scale="ce").loss,
    "complement of gce": symloss.complement(phi.GCE(0.5)),
    "complement of mae": symloss.complement(phi.MAE()),
    "two of mae": symloss.complement(phi.MAE()) + phi.MAE(),
    "unhinged twice": 2 * symloss.symmetrize(phi.CE()) + symloss.symmetrize(phi.CE()),
}


@pytest.fixture
def plain(monkeypatch):
    """Runs a function with the kernels switched off."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(evaluate, "_quick", lambda *_: None)
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


def test_which_kernel_serves_which_loss():
    found = {}
    for name, record in RECORDS.items():
        found.setdefault(type(kernels.kernel(record.loss(), 10)).__name__, set()).add(name)
    assert found == SERVED


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("shape", [(40, 2), (40, 3), (40, 10), (6, 25, 7), (3, 5, 2, 4)], ids=str)
@pytest.mark.parametrize("normalize", [None, "l2"])
@every_loss
def test_every_loss(name, shape, normalize, dtype, plain):
    z, y = batch(shape, dtype)
    scores = symloss.UnitScores(0.3) if normalize else None
    loss = RECORDS[name].loss()
    for reduction in ("mean", "none"):
        fast = value_and_gradient(loss, z, y, reduction=reduction, score_map=scores)
        slow = plain(lambda r=reduction: value_and_gradient(loss, z, y, reduction=r, score_map=scores))
        agree(fast, slow, dtype)


@pytest.mark.parametrize("name", OWN)
def test_losses_of_ones_own(name, plain):
    z, y = batch((40, 6), torch.float64)
    assert kernels.kernel(OWN[name], 6) is not None
    agree(value_and_gradient(OWN[name], z, y), plain(lambda: value_and_gradient(OWN[name], z, y)), torch.float64)


@every_loss
def test_block_by_block(name, monkeypatch, plain):
    """The same, however many rows are worked on at a time; the last block is shorter."""
    z, y = batch((50, 11), torch.float64)
    y[::4] = -100
    loss = RECORDS[name].loss()
    whole = value_and_gradient(loss, z, y)
    monkeypatch.setattr(kernels, "BLOCK", 7 * 11)
    agree(value_and_gradient(loss, z, y), whole, torch.float64)
    agree(whole, plain(lambda: value_and_gradient(loss, z, y)), torch.float64)


@pytest.mark.parametrize("name", ["mae", "sgce", "alpha-mae", "anl-ce", "unhinged"])
@pytest.mark.parametrize("layout", ["transposed", "expanded", "channels-last", "strided"])
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


@pytest.mark.parametrize("name", ["ce", "gce", "alpha-mae", "sgce", "nce", "anl-ce", "unhinged"])
def test_masked_classes_are_left_to_the_plain_formulas(name, plain):
    z, y = batch((20, 6), torch.float64)
    masked = z.detach().masked_fill(torch.arange(6) == 5, -torch.inf).requires_grad_()
    y = y.clamp_max(4)
    loss = RECORDS[name].loss()
    agree(value_and_gradient(loss, masked, y), plain(lambda: value_and_gradient(loss, masked, y)), torch.float64)


@pytest.mark.parametrize("name", ["gce", "focal", "sgce", "nce", "anl-fl"])
def test_classes_beyond_the_bound_and_hopeless_labels(name, plain):
    """Leads of up to 300: probabilities that underflow, and the complement's bound."""
    z = torch.diag(torch.linspace(0, 300, 12, dtype=torch.float64)).requires_grad_()
    y = torch.arange(1, 13) % 12
    loss = RECORDS[name].loss()
    agree(value_and_gradient(loss, z, y), plain(lambda: value_and_gradient(loss, z, y)), torch.float64)


@pytest.mark.parametrize("name", sorted(SERVED["_Narrow"] | SERVED["_Summed"]))
def test_derivatives_in_closed_form(name):
    """Every phi' is the derivative of its phi."""
    logp = torch.linspace(-12, -1e-3, 40, dtype=torch.float64, requires_grad=True)
    for potential in leaves(RECORDS[name].loss()):
        (slope,) = torch.autograd.grad(potential.phi(logp).sum(), logp)
        assert torch.allclose(slope, potential.derivative(logp), rtol=1e-9, atol=1e-12)


def leaves(loss):
    return [loss] if not loss.children else [leaf for child in loss.children for leaf in leaves(child)]


def test_no_gradient_is_left_behind():
    """Backward hands its gradient over: the scores' own is the kernel's, not a copy, and a second one is made anew."""
    z, y = batch((64, 10), torch.float32)
    value = phi.MAE()(z, y)
    value.backward(retain_graph=True)
    first = z.grad.clone()
    value.backward()
    assert torch.equal(z.grad, 2 * first)


def test_a_loss_of_one_batch_is_not_kept_alive():
    """dirichlet with alpha_k(x) is made anew for every batch; no cache may hold on to the last hundreds of them."""
    z, y = batch((8, 5), torch.float64)
    alpha = torch.full((8, 5), 0.5, dtype=torch.float64)
    gone = weakref.ref(alpha)
    symloss.dirichlet(phi.CE(), alpha)(z, y).backward()
    del alpha
    gc.collect()
    assert gone() is None
