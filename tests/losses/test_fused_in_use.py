"""Fused kernels as losses, heads and compiled graphs use them; Triton's interpreter stands in for a GPU."""

import pytest
import torch

import symloss
from symloss.losses import device_choice, evaluate
from symloss.losses.catalogue import RECORDS
from symloss.losses.heads import linear_loss

pytest.importorskip("triton")
on_gpu = pytest.importorskip("symloss.losses.fused.on_gpu")

N, C = 5, 7
GENERATOR = torch.Generator().manual_seed(3)
SCORES = 3 * torch.randn(N, C, generator=GENERATOR)
LABELS = torch.tensor([0, 6, -100, 3, 3])
MASKED = SCORES.masked_fill(torch.eye(N, C).roll(1, 1).bool(), -torch.inf)
WEIGHT = torch.linspace(0.5, 2.0, C)


@pytest.fixture
def gpu(monkeypatch):
    """CPU tensors are treated as those of a GPU; the launches are counted."""
    launches = []
    launch = on_gpu._launched

    def counted(*arguments):
        launches.append(arguments[0])
        return launch(*arguments)

    monkeypatch.setattr(on_gpu, "_launched", counted)
    for module in (device_choice, evaluate):
        monkeypatch.setattr(module, "has_fused_kernels", lambda scores: True)
    with symloss.checked(False):
        yield launches


def step(loss, scores, labels=LABELS):
    leaf = scores.detach().clone().requires_grad_()
    value = loss(leaf, labels)
    upstream = torch.linspace(0.5, 1.5, value.numel()).reshape(value.shape)
    value.backward(upstream)
    return value.detach(), leaf.grad


OPTIONS = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "class weights": {"weight": WEIGHT},
    "l2": {"normalize": "l2", "temperature": 0.5},
    "scale": {"scale": "ce"},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_a_loss_by_its_fused_kernel(option, gpu):
    loss = symloss.create_loss("gce", **OPTIONS[option])
    for scores in (SCORES, MASKED):
        found = step(loss, scores)
        with symloss.plain():
            expected = step(loss, scores)
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-6)
    assert len(gpu) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype, gpu):
    loss = symloss.create_loss("sgce")
    value, gradient = step(loss, SCORES.to(dtype))
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    with symloss.plain():
        expected = step(loss, SCORES.to(dtype).double())
    torch.testing.assert_close(gradient.double(), expected[1], rtol=1e-2, atol=1e-4)
    assert gpu


def test_what_has_no_fused_kernel_is_computed_by_torch(gpu):
    """float64, further dimensions, a soft cap, a loss of all probabilities, without Triton's help."""
    loss = symloss.create_loss("gce")
    step(loss, SCORES.double())
    step(loss, SCORES.reshape(1, N, C).movedim(2, 1), LABELS[None])
    step(symloss.create_loss("mse"), SCORES)
    linear_loss(loss.loss, SCORES, torch.eye(C), None, LABELS, softcap=3.0)
    assert not gpu


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_head_by_its_fused_kernel(reduction, gpu):
    """The gradient of a block of scores takes their place."""
    features, weight = torch.randn(N, 4, generator=GENERATOR), torch.randn(C, 4, generator=GENERATOR)
    found = []
    for way in (symloss.checked, symloss.plain):
        leaves = [part.clone().requires_grad_() for part in (features, weight)]
        with way(False) if way is symloss.checked else way():
            value = linear_loss(RECORDS["sgce"].loss(), *leaves, None, LABELS, memory=2 * C * 4, reduction=reduction)
        value.backward(torch.linspace(0.5, 1.5, value.numel()).reshape(value.shape))
        found.append([value.detach(), *(leaf.grad for leaf in leaves)])
    torch.testing.assert_close(*found, rtol=2e-5, atol=1e-6)
    assert len(gpu) == (3 if reduction == "mean" else 6)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "torch"])
def test_overwritten_scores(fused, request):
    """The gradient is in the memory of the scores; a second use says so."""
    if fused:
        request.getfixturevalue("gpu")
    loss, plain = symloss.GCE(overwrite=True), symloss.GCE()
    leaf = SCORES.clone().requires_grad_()
    scores = leaf * 1.0
    memory = scores.data_ptr()
    expected = step(plain, SCORES)
    value = loss(scores, LABELS)
    torch.testing.assert_close(value, expected[0])
    (gradient,) = torch.autograd.grad(value, scores, torch.tensor(0.5), retain_graph=True)
    assert gradient.data_ptr() == memory
    torch.testing.assert_close(gradient, expected[1], rtol=2e-5, atol=1e-7)
    with pytest.raises(RuntimeError, match="overwrite=True keeps no scores"):
        torch.autograd.grad(value, scores)
    with pytest.raises(RuntimeError, match="overwrite=True keeps no scores"):
        torch.autograd.grad(loss(leaf * 1.0, LABELS), leaf, create_graph=True)


def test_scores_that_others_need_are_not_overwritten_in_silence():
    """Autograd notices that tanh has lost its result."""
    leaf = SCORES.clone().requires_grad_()
    value = symloss.GCE(overwrite=True)(leaf.tanh(), LABELS)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_no_gradient_no_overwriting():
    scores = SCORES.clone()
    symloss.GCE(overwrite=True)(scores, LABELS)
    assert torch.equal(scores, SCORES)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["mean", "none", "class weights", "l2"])
def test_a_compiled_loss_keeps_its_fused_kernel(option, gpu):
    loss = symloss.create_loss("gce", **OPTIONS[option])
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    found = step(torch.compile(loss, fullgraph=True, backend=backend), SCORES)
    torch._dynamo.reset()
    assert "symloss.fused_loss" in str(graphs[0].graph)
    again = step(torch.compile(loss, fullgraph=True, backend="aot_eager"), SCORES)
    torch._dynamo.reset()
    with symloss.plain():
        expected = step(loss, SCORES)
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-6)
    torch.testing.assert_close(again, expected, rtol=2e-5, atol=1e-6)


def test_a_machine_where_triton_cannot_build(gpu, monkeypatch):
    """No compiler for the launcher, say: one warning, and the loss as before."""
    monkeypatch.setattr(on_gpu, "_broken", [])

    def fails(*_):
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(on_gpu.FusedKernel, "__call__", fails)
    loss = symloss.create_loss("gce")
    with pytest.warns(UserWarning, match="Triton cannot build kernels on this machine.*C compiler"):
        found = step(loss, SCORES)
    step(loss, SCORES)  # without a second warning, which would be an error
    with symloss.plain():
        torch.testing.assert_close(found, step(loss, SCORES), rtol=2e-5, atol=1e-6)
