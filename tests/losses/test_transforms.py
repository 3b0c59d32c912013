"""Losses under torch's transforms, and losses of the label's log-probabilities alone (``of_logp``)."""

import functools
import math
import pickle
from collections.abc import Callable, Iterator

import pytest
import torch
from conftest import CLASSES, assert_close, every_loss, random_labels, random_scores, value_and_grad
from in_turn import in_turn
from loss_batches import WEIGHT
from loss_helpers import REPRESENTATIVES, every_path
from refusals import all_refused, refused
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.func import grad, hessian, jacfwd, jacrev, vmap
from torch.nn.functional import cross_entropy, log_softmax
from torch.utils.checkpoint import checkpoint

import symloss
from symloss import functional, of_logp
from symloss.losses.catalogue import RECORDS
from symloss.losses.layers import EpsSoftmax
from symloss.losses.of_logp import IMPOSSIBLE
from symloss.losses.potentials import CEPotential, GCEPotential, MAEPotential

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


def assert_compiles(loss: Callable, scores: Tensor, target: Tensor, tolerance=1e-12, **options: object) -> None:
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


# --- ``of_logp``: against the same losses of scores and plain formulas -----------------------------------------------

OF_THE_LABEL = (
    *("ce", "mae", "rce", "gce", "gce:q=0.3", "gce:q=0", "focal", "focal:gamma=2", "agce", "aul", "ael", "taylor-ce"),
    *("phuber-ce", "phuber-gce", "js", "sce", "0.5*gce + 0.5*mae", "gce - 0.1*ce", "nce+agce:alpha=0", "0*nce"),
    *("label-smoothing:r=0", "focal:deviation=held-focal-factor", "gce:deviation=clamped-probability"),
)


@in_turn("spec", OF_THE_LABEL)
def test_it_is_the_loss_of_the_scores(spec):
    """Value and gradient, through a log-softmax, are those of the loss itself."""
    scores, labels = random_scores(6, 5, spread=3.0), random_labels(6, classes=5)

    def by_log_probs(z, y):
        return of_logp(spec)(log_softmax(z, 1).gather(1, y[:, None])).squeeze(1)

    loss = symloss.create_loss(spec, reduction="none")
    assert_close(value_and_grad(by_log_probs, scores, labels), value_and_grad(loss, scores, labels))


@every_loss
def test_every_loss_is_taken_or_refused(name):
    """It is taken if it is the same for all scores of the other classes, and for any number of them."""
    loss = RECORDS[name].loss()
    scores = torch.tensor([[0.3, 1.0, -1.0], [0.3, 0.5, 0.5]], dtype=torch.float64)
    scores[1, 1:] += scores[0, 1:].logsumexp(0) - scores[1, 1:].logsumexp(0)
    one, other = loss.per_class(scores)[:, 0].tolist()
    if math.isclose(one, other, rel_tol=1e-9) and name not in ("symmetrized-mse", "ldr-kl"):  # which read their number
        of_logp(name)
    else:
        with refused(ValueError, f"{name} {NEED_MORE}"):
            of_logp(name)


NEED_MORE = "needs more than the label's log-probability"


def test_refusals():
    gce, more = of_logp("gce"), f"{NEED_MORE}, because of"
    all_refused(
        (ValueError, f"sgce {more} symmetrize(GCE(q=0.7)) ... such as gce", lambda: of_logp("sgce")),
        (ValueError, f"{more} relative(CE())", lambda: of_logp("nce+agce")),
        (ValueError, f"{more} symmetrize(GCE(q=0.7))", lambda: of_logp("sgce:scale=ce")),
        (ValueError, f"{more} symmetrize(cross_entropy)", lambda: of_logp(symloss.symmetrize(cross_entropy))),
        (ValueError, f"{more} normalize='l2' ... without normalize", lambda: of_logp("gce", normalize="l2")),
        (ValueError, f"{more} normalize=EpsSoftmax(m=1)", lambda: of_logp("gce", normalize=EpsSoftmax(1.0))),
        (ValueError, f"gce {more} weight=", lambda: of_logp("gce", weight=torch.ones(3))),
        (ValueError, f"{more} label_smoothing=0.1", lambda: of_logp("gce", label_smoothing=0.1)),
        (ValueError, "gce has scale='ce' ... number of classes ... num_classes", lambda: of_logp("gce", scale="ce")),
        (TypeError, "loss must be a Loss ... got int", lambda: of_logp(3)),
        (TypeError, "options ['q'] need the name of a loss; got GCE(q=0.5)", lambda: of_logp(GCEPotential(0.5), q=1)),
        (ValueError, "num_classes must ... got 1", lambda: of_logp("gce", num_classes=1)),
        (TypeError, "log_probs must be a floating-point tensor ... got float", lambda: gce(-0.5)),
        (TypeError, "log_probs must be a floating-point tensor ... torch.int64", lambda: gce(torch.tensor([-1]))),
        (ValueError, "log-probabilities ... at most 0; got 2.5", lambda: gce(torch.tensor([2.5, -1.0]))),
    )


def test_ways_to_name_a_loss():
    logp = torch.tensor([-0.1, -3.0])
    expected = (1 - logp.exp().sqrt()) / 0.5
    module = symloss.GCE(q=0.5, reduction="sum", ignore_index=3)
    for made in (of_logp("gce:q=0.5"), of_logp("gce", q=0.5), of_logp(GCEPotential(0.5)), of_logp(module)):
        torch.testing.assert_close(made(logp), expected)
    loss = of_logp("0.1*ce + mae")
    torch.testing.assert_close(loss(logp), 1 - logp.exp() - 0.1 * logp)
    assert pickle.loads(pickle.dumps(loss)) == loss == of_logp(0.1 * CEPotential() + MAEPotential())
    assert repr(loss) == "of_logp(0.1 * CE() + MAE())"


def test_scale_ce_takes_the_number_of_classes():
    """The slope of GCE at equal scores is C^-q, that of MAE 1/C."""
    logp = torch.tensor([-0.1, -3.0], dtype=torch.float64)
    scaled = of_logp("gce:q=0.5,scale=ce", num_classes=100)
    assert_close(scaled(logp), 10 * of_logp("gce:q=0.5")(logp))
    total = of_logp("(mae + gce:q=0.5):scale=ce", num_classes=100)
    assert_close(total(logp), of_logp("mae + gce:q=0.5")(logp) / 0.11)


@in_turn("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_shapes_and_types(dtype):
    for shape in ((), (0,), (3,), (2, 3, 4)):
        logp = -torch.rand(shape).to(dtype)
        value = of_logp("gce:q=0.5")(logp)
        assert value.shape == shape
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(value, (1 - logp.to(value.dtype).exp().sqrt()) / 0.5)


@in_turn("spec", OF_THE_LABEL)
@in_turn("dtype", [torch.float32, torch.float64])
def test_at_the_ends(spec, dtype):
    """At p = 1, just above it by rounding, and at p = 0 the values and slopes are those of the limits."""
    logp = torch.tensor([-1e-9, 0.0, 1e-7, -math.inf, IMPOSSIBLE], dtype=dtype, requires_grad=True)
    values = of_logp(spec)(logp)
    (gradient,) = torch.autograd.grad(values.sum(), logp)
    beside, certain, above, impossible, hopeless = values.tolist()
    assert certain == above == pytest.approx(beside, abs=1e-7)
    assert impossible == hopeless
    assert math.isfinite(impossible)
    assert gradient[1:3].tolist() == pytest.approx([float(gradient[0])] * 2, abs=1e-4)
    assert gradient[3] == 0
    assert gradient.isfinite().all()


def test_not_a_number_stays_one_and_other_devices_are_not_looked_at():
    value, gradient = value_and_grad(of_logp("gce"), torch.tensor([math.nan, -1.0]))
    assert value.isnan().tolist() == gradient.isnan().tolist() == [True, False]
    assert of_logp("gce")(torch.zeros(3, 2, device="meta")).shape == (3, 2)


@pytest.mark.filterwarnings("ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning")
@in_turn("spec", ["gce:q=0.5", "0.1*ce + mae", "focal"])
def test_transforms(spec):
    loss = of_logp(spec)
    logp = torch.tensor([-0.02, -0.7, -2.0], dtype=torch.float64)
    _, gradient = value_and_grad(lambda x: loss(x).sum(), logp)
    assert_close(torch.func.vmap(torch.func.grad(loss))(logp), gradient)
    assert_close(torch.func.jvp(loss, (logp,), (torch.ones_like(logp),))[1], gradient)


@pytest.mark.slow
def test_torch_compile():
    loss = of_logp("gce:q=0.5 + 0.1*focal")
    compiled = torch.compile(loss.__call__, backend="eager", fullgraph=True)
    logp = torch.tensor([1e-7, -0.02, -0.7, -math.inf])
    torch.testing.assert_close(value_and_grad(compiled, logp), value_and_grad(loss, logp))
