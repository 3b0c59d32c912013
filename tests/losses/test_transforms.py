"""Losses under torch's transforms: double backward, torch.func, torch.compile, autocast, checkpointing."""

import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from conftest import CLASSES, assert_close, every_loss, random_labels, random_scores, value_and_grad
from in_turn import in_turn
from loss_batches import WEIGHT
from representatives import REPRESENTATIVES, every_path
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.func import grad, hessian, jacfwd, jacrev, vmap
from torch.utils.checkpoint import checkpoint

import symloss
from symloss import functional
from symloss.losses.layers import EpsSoftmax
from symloss.losses.potentials import GCEPotential, MAEPotential

SCORES, LABELS = random_scores(3, CLASSES), random_labels(3)
MASKED = SCORES.masked_fill(torch.tensor([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]).bool(), -torch.inf)
PRESENT = torch.tensor([3, 3, 0])
SOFT = SCORES.flip(1).softmax(1)

VARIANTS: dict[str, tuple[Callable[[], Callable[..., Tensor]], Tensor, Tensor]] = {
    # What the catalogue's defaults do not reach: (loss, scores, target).
    "weighted": (lambda: symloss.SGCE(weight=WEIGHT, label_smoothing=0.1), SCORES, LABELS),
    "torchs weights": (lambda: symloss.GCE(weight=WEIGHT), SCORES, LABELS),
    "soft": (symloss.losses.ANLCE, SCORES, SOFT),
    "masked": (symloss.AlphaMAE, MASKED, PRESENT),
    "ignoring": (lambda: symloss.create_loss("nce+rce", ignore_index=int(LABELS[0])), SCORES, LABELS),
    "scaled": (lambda: symloss.create_loss("nce+agce", scale="ce", temperature=0.5, normalize="l2"), SCORES, LABELS),
    "eps-softmax": (lambda: symloss.GCE(normalize=EpsSoftmax(1.0)), SCORES, LABELS),
    "clamped": (lambda: symloss.create_loss("ce:deviation=clamped-probability"), SCORES, LABELS),
    "symmetrized module": (lambda: symloss.symmetrize(nn.CrossEntropyLoss()), SCORES, LABELS),
    "prior": (lambda: symloss.symmetrize(GCEPotential(0.7), [0.1, 0.2, 0.3, 0.4]), SCORES, LABELS),
    "noisy": (lambda: symloss.losses.noisy(MAEPotential(), 0.1 + 0.6 * torch.eye(4)), SCORES, LABELS),
    "function": (lambda: functional.anl_ce, SCORES, LABELS),
    "normalizing function": (lambda: functional.sgce, SCORES, LABELS),
    **{name: (functools.partial(symloss.create_loss, name), SCORES, LABELS) for name in REPRESENTATIVES},
}
every_variant = in_turn("variant", VARIANTS)
COMPILED = (
    *("weighted", "torchs weights", "soft", "masked", "scaled", "symmetrized module", "noisy"),
    *("normalizing function", "unhinged", "bi-tempered", "ldr-kl"),
)
"""One variant for each branch that is taken while compiling, and formulas that no kernel serves."""

# torch's own forward mode and compiler use torch's own deprecated jit.
uses_jit = pytest.mark.filterwarnings("ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning")


def plain_hessian(loss: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
    """By double backward, one row after the other."""
    leaf = scores.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    rows = [torch.autograd.grad(entry, leaf, retain_graph=True)[0] for entry in gradient.flatten()]
    return torch.stack(rows).reshape(*scores.shape, *scores.shape)


@uses_jit
@every_loss
def test_derivatives_are_those_of_the_values(name):
    """First and second order, reverse and forward mode, against finite differences."""
    loss = symloss.create_loss(name)
    leaf = SCORES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, LABELS), (leaf,), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda z: loss(z, LABELS), (leaf,))


@uses_jit
@every_variant
def test_torch_func_agrees_with_autograd(variant):
    make, scores, target = VARIANTS[variant]
    loss = make()

    def of_scores(z: Tensor) -> Tensor:
        return loss(z, target)

    _, gradient = value_and_grad(loss, scores, target)
    for derivative in (grad, jacrev, jacfwd):
        assert_close(derivative(of_scores)(scores), gradient)
    assert_close(hessian(of_scores)(scores), plain_hessian(of_scores, scores))


@in_turn("variant", [key for key in VARIANTS if key not in ("ignoring", "noisy", "prior", "symmetrized module")])
def test_gradients_of_single_examples(variant):
    """vmap(grad): the loss of one score vector and one label, which no batch dimension helps."""
    make, scores, target = VARIANTS[variant]
    loss = make()
    single = vmap(grad(loss))(scores, target)
    for row, label, gradient in zip(scores, target, single, strict=True):
        assert_close(gradient, value_and_grad(loss, row, label)[1])


# --- torch.compile -----------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """No compiled code is left over from, or to, another test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


compiled = pytest.mark.usefixtures("fresh_compiler")


def assert_compiles(
    loss: Callable[..., Tensor], scores: Tensor, target: Tensor, tolerance: float = 1e-12, **options: object
) -> None:
    """Forward and backward in one graph, with the values of eager mode."""
    expected = value_and_grad(loss, scores, target)
    torch.compiler.reset()  # each loss is a graph of the same code, and torch counts them
    traced = torch.compile(loss, fullgraph=True, **options)
    assert_close(value_and_grad(traced, scores, target), expected, tolerance)


@pytest.mark.slow
@compiled
@in_turn("variant", COMPILED)
def test_a_loss_compiles_to_one_graph(variant):
    make, scores, target = VARIANTS[variant]
    assert_compiles(make(), scores, target, backend="aot_eager")


@pytest.mark.slow
@compiled
@in_turn("dynamic, more", [(None, 1), (True, 0)])
def test_another_batch_size_needs_no_graph_of_its_own(dynamic, more):
    """The last batch of an epoch is smaller: torch notices once, or is told that sizes differ."""
    loss, backend = symloss.SGCE(label_smoothing=0.1), CompileCounterWithBackend("aot_eager")
    torch.compiler.reset()
    traced = torch.compile(loss, fullgraph=True, dynamic=dynamic, backend=backend)
    counts = []
    for rows in (8, 5, 3):
        scores, labels = random_scores(rows, CLASSES), random_labels(rows)
        assert_close(value_and_grad(traced, scores, labels), value_and_grad(loss, scores, labels))
        counts.append(backend.frame_count)
    assert counts[-1] - counts[0] == more


@pytest.mark.slow
@compiled
@uses_jit
def test_generated_code_agrees():
    """inductor writes C++ of its own: equal in float32 to a few roundings."""
    with torch._inductor.config.patch(compile_threads=1):  # no pool of processes for a small function
        assert_compiles(symloss.create_loss("anl-ce"), SCORES.float(), LABELS, tolerance=1e-5, backend="inductor")


@pytest.mark.slow
@compiled
@uses_jit
@pytest.mark.parametrize("name", ["gce", "sgce"])
def test_generated_code_keeps_the_digits_of_confident_examples(name):
    """In float32, up to a lead of 60: plain log_softmax is ten percent off at 15, and 0 at 30."""
    scores, labels = torch.zeros(4, 5), torch.full((4,), 2)
    scores[:, 2] = torch.tensor([1.0, 15.0, 30.0, 60.0])
    loss = symloss.create_loss(name, normalize=None, reduction="none")
    exact = value_and_grad(loss, scores.double(), labels)[1]
    with torch._inductor.config.patch(compile_threads=1):
        found = value_and_grad(torch.compile(loss, fullgraph=True), scores, labels)[1]
    torch.testing.assert_close(found.double(), exact, rtol=2e-5, atol=1e-44)


# --- Mixed precision, memory, and graphs that are kept ---------------------------------------------------------------


@every_variant
def test_autocast_gives_a_loss_in_single_precision(variant):
    """A matrix product inside a loss would be cast: its result must be that of single precision all the same."""
    make, scores, target = VARIANTS[variant]
    loss = make()
    for precision in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(scores.to(precision), target)
        assert value.dtype == torch.float32
        assert torch.equal(value, loss(scores.to(precision).float(), target))


@every_path
def test_checkpointing_and_a_kept_graph_change_nothing(name):
    """And nothing works in place on the scores, not even where they are masked."""
    loss, masked = symloss.create_loss(name), MASKED.clone()
    loss(masked, PRESENT)
    assert torch.equal(masked, MASKED)
    expected = value_and_grad(loss, SCORES, LABELS)
    found = value_and_grad(lambda z, y: checkpoint(loss, z, y, use_reentrant=False), SCORES, LABELS)
    assert_close(found, expected, tolerance=0.0)
    leaf = SCORES.clone().requires_grad_()
    value = loss(leaf, LABELS)
    value.backward(retain_graph=True)
    value.backward()
    assert torch.equal(leaf.grad, 2 * expected[1])
