"""Switches: the plain formulas alone, and no look at values, so that nothing waits for an accelerator."""

import runpy
import threading
from dataclasses import dataclass

import pytest
import torch
from conftest import every_loss, random_scores
from in_turn import in_turn
from loss_helpers import WITHOUT_SLOPE, every_path
from torch import nn

import symloss
from symloss.losses import potentials, validation
from symloss.losses.catalogue import RECORDS
from symloss.losses.heads import linear_loss
from symloss.losses.kernels.targets import kernel_for
from symloss.losses.layers import EpsSoftmax
from symloss.losses.operators import Insensitive, Symmetrize
from symloss.losses.potentials import CEPotential, GCEPotential, MAEPotential, PowerPotential
from symloss.losses.validation import plain

Z = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([2, 1])
PRIOR = torch.tensor([0.2, 0.3, 0.5])


SGCE = symloss.symmetrize(GCEPotential(0.8))


def by_head(scores, labels):
    return linear_loss(SGCE, torch.eye(2, dtype=torch.float64), scores.T.contiguous(), None, labels)


@in_turn("loss", [SGCE, by_head])
def test_a_breakpoint_in_the_formula_fires(loss, monkeypatch):
    """Inside the switch, which nests, belongs to a thread, and ends with an error too."""
    reached, formula, switch = [], PowerPotential.phi, plain()
    monkeypatch.setattr(PowerPotential, "phi", lambda *parts: (reached.append(1), formula(*parts))[1])
    with switch, switch:
        other = threading.Thread(target=loss, args=(Z, Y))
        other.start()
        other.join()
    with pytest.raises(ZeroDivisionError), plain():
        1 / 0  # noqa: B018
    by_kernel = loss(Z, Y)
    assert not reached
    with plain():
        assert torch.allclose(loss(Z, Y), by_kernel, rtol=1e-12)
    assert reached


@in_turn("value, off", [("1", True), ("0", False), ("", False)])
def test_the_environment_switches_kernels_off(value, off, monkeypatch):
    """It is read once, when the module is imported."""
    monkeypatch.setenv("SYMLOSS_PLAIN", value)
    assert runpy.run_path(validation.__file__)["PLAIN"].get() is off


@pytest.mark.filterwarnings("ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning")
def test_the_switch_inside_a_compiled_function():
    loss = symloss.SGCE()

    def step(z):
        with plain():
            return loss(z, Y)

    assert torch.allclose(torch.compile(step, backend="eager", fullgraph=True)(Z), step(Z), rtol=1e-12)


@in_turn("operator", [Symmetrize, Insensitive, lambda loss: symloss.losses.dirichlet(loss, 0.5)])
def test_a_multiple_of_cross_entropy_counts_as_often(operator):
    """A kernel once took every affine loss for cross-entropy itself."""
    assert torch.allclose(operator(2 * CEPotential())(Z, Y), 2 * operator(CEPotential())(Z, Y), rtol=1e-12)


@dataclass
class Unhashable(potentials.Potential):
    """A loss of somebody else's, which is no frozen dataclass."""

    factor: float

    def phi(self, logp):
        return -self.factor * logp

    def derivative(self, logp):
        return torch.full_like(logp, -self.factor)


def test_a_loss_without_a_hash_is_computed_by_its_formula():
    assert torch.allclose(Unhashable(3.0)(Z, Y), 3 * CEPotential()(Z, Y), rtol=1e-12)
    assert kernel_for(Unhashable(3.0), 3) is None
    relative, smooth = symloss.losses.relative(Unhashable(3.0)), {"label_smoothing": 0.1}
    assert torch.allclose(relative(Z, Y, **smooth), symloss.losses.relative(CEPotential())(Z, Y, **smooth), rtol=1e-12)
    for wrong in (Unhashable("1"), GCEPotential("1")):  # an error in a formula is not hidden
        with pytest.raises(TypeError, match="str"):
            wrong(Z, Y)


def different_losses():
    return [
        *(symloss.symmetrize(GCEPotential(0.5), PRIOR.clone()), symloss.symmetrize(GCEPotential(0.5))),
        *(symloss.symmetrize(GCEPotential(0.6)), symloss.symmetrize(CEPotential())),
        *(symloss.symmetrize(CEPotential(), PRIOR.clone()), symloss.symmetrize(CEPotential(), PRIOR.flip(0))),
        *(symloss.decompose(CEPotential()).insensitive, symloss.decompose(MAEPotential()).insensitive),
        *(symloss.losses.dirichlet(CEPotential(), alpha) for alpha in (PRIOR.clone(), 0.5, 0.6)),
        *(symloss.losses.blend(MAEPotential(), 2.0), symloss.losses.noisy(CEPotential(), torch.eye(3))),
        *(symloss.SGCE(scale="ce").loss, symloss.symmetrize(CEPotential(), PRIOR.clone()) + 2 * MAEPotential()),
    ]


def test_losses_are_equal_by_value():
    for i, one in enumerate(different_losses()):
        assert [one == other for other in different_losses()] == [i == j for j in range(len(different_losses()))]
        assert hash(one) == hash(different_losses()[i])
    assert kernel_for(symloss.symmetrize(GCEPotential(0.5)), 4) is kernel_for(symloss.symmetrize(GCEPotential(0.5)), 4)


def test_a_loss_that_may_not_be_blended_is_refused_with_every_number_of_classes():
    """Whether a loss of somebody else's may be blended is known when the number of classes is."""

    def depends_on_names(z, y):
        return nn.functional.cross_entropy(z, y, reduction="none") * (1 + y)

    fair = symloss.losses.blend(symloss.symmetrize(nn.functional.cross_entropy), 2.0)
    assert torch.allclose(fair(Z, Y), symloss.symmetrize(CEPotential())(Z, Y))
    unfair = symloss.losses.blend(symloss.symmetrize(depends_on_names), 2.0)
    for _ in range(2):
        with pytest.raises(ValueError, match="permutation-invariant"):
            unfair(Z, Y)


# --- On an accelerator nothing waits: no loss, option or head copies a value to the host ------------------------------


N, C = 6, 5
SCORES = random_scores(N, C)
MASKED = SCORES.masked_fill(torch.eye(N, C).roll(2, 1).bool(), -torch.inf)
LABELS = torch.arange(N) % C
IGNORING = LABELS.clone().index_fill_(0, torch.tensor([1, 4]), -100)
SOFT = SCORES.softmax(1)
WEIGHT = torch.linspace(0.5, 2.0, C, dtype=torch.float64)


def step(loss, scores, target):
    """The value of a loss and its gradient, by a sum that needs no look."""
    leaf = scores.detach().clone().requires_grad_()
    value = loss(leaf, target)
    value.sum().backward()
    return value.detach(), leaf.grad


def on_meta(tensor):
    return tensor.to("meta")


def assert_never_waits(loss, scores, target):
    expected = step(loss, scores, target)
    with symloss.losses.checked(False):
        found = step(loss, scores, target)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12, equal_nan=True)
    value, gradient = step(loss.to("meta"), on_meta(scores), on_meta(target))
    assert (value.shape, gradient.shape) == (expected[0].shape, scores.shape)


@every_loss
def test_no_loss_waits(name):
    for scores in (SCORES, MASKED):
        assert_never_waits(symloss.create_loss(name), scores, IGNORING)


OPTIONS = [
    *({"reduction": "sum"}, {"reduction": "none"}, {"weight": WEIGHT}, {"label_smoothing": 0.1}, {"ignore_index": 2}),
    *({"normalize": "l2", "temperature": 0.5}, {"normalize": EpsSoftmax(1.0)}),
]


@every_path
def test_no_option_or_target_waits(name):
    """Options, probabilities, further dimensions, a single example."""
    for options in OPTIONS:
        assert_never_waits(symloss.create_loss(name, **options), SCORES, LABELS)
    if name not in WITHOUT_SLOPE:
        assert_never_waits(symloss.create_loss(name, scale="ce"), MASKED, IGNORING)
    loss = symloss.create_loss(name)
    assert_never_waits(loss, SCORES, SOFT)
    assert_never_waits(loss, SCORES.reshape(2, 3, C).movedim(2, 1), LABELS.reshape(2, 3))
    assert_never_waits(loss, SCORES[0], LABELS[0])


@in_turn(
    "loss",
    [
        symloss.symmetrize("gce:q=0.7", WEIGHT / WEIGHT.sum()),
        symloss.losses.noisy("mae", 0.1 + 0.5 * torch.eye(C, dtype=torch.float64)),
        symloss.losses.dirichlet("ce", WEIGHT),
        symloss.losses.blend(symloss.symmetrize(nn.functional.cross_entropy), 0.5),
        symloss.symmetrize(nn.CrossEntropyLoss()),
    ],
)
def test_no_operator_waits(loss):
    assert_never_waits(loss, SCORES, LABELS)


@in_turn("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_precision_waits(dtype):
    loss = symloss.create_loss("gce")
    with symloss.losses.checked(False):
        value, gradient = step(loss, SCORES.to(dtype), LABELS)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    expected = step(loss, SCORES.to(dtype).double(), LABELS)[1]
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-2, atol=1e-4)


HEAD_OPTIONS = [
    *({}, {"normalize": "l2", "temperature": 0.5}, {"reduction": "sum"}, {"reduction": "none"}),
    *({"class_weight": WEIGHT}, {"softcap": 2.0}, {"num_items": torch.tensor(11)}, {"block_bytes": 1}),
]


def head_step(loss, parts, target, **options):
    leaves = [part.detach().clone().requires_grad_() for part in parts]
    value = linear_loss(loss, *leaves, *([None] if len(parts) == 2 else []), target, **options)
    value.sum().backward()
    return [value.detach(), *(leaf.grad for leaf in leaves)]


@every_path
@in_turn("options", HEAD_OPTIONS)
def test_no_head_waits(name, options):
    loss, features, weight, bias = RECORDS[name].loss(), random_scores(N, 3), random_scores(C, 3), random_scores(C)
    bias[3] = -torch.inf if options else bias[3]
    target = torch.where(IGNORING == 3, 0, IGNORING)
    for parts in ((features, weight), (features, weight, bias)):
        expected = head_step(loss, parts, target, **options)
        with symloss.losses.checked(False):
            found = head_step(loss, parts, target, **options)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        on_device = {key: on_meta(each) if torch.is_tensor(each) else each for key, each in options.items()}
        shapes = head_step(loss, [on_meta(part) for part in parts], on_meta(target), **on_device)
        assert [part.shape for part in shapes] == [part.shape for part in expected]


def test_checks_on_request():
    """What a CPU checks by itself is checked elsewhere inside ``checked()``, and nowhere inside ``checked(False)``."""
    loss, wrong = symloss.create_loss("gce"), torch.full((N,), C)
    with pytest.raises(IndexError, match="the label 5; with 5 classes"):
        loss(SCORES, wrong)
    with symloss.losses.checked(False), pytest.raises(RuntimeError):  # torch notices, later and less clearly
        loss(SCORES, wrong)
    with symloss.losses.checked(), pytest.raises((RuntimeError, NotImplementedError)):  # the meta device refuses a look
        loss(on_meta(SCORES), on_meta(LABELS))
    assert loss(on_meta(SCORES), on_meta(LABELS)).shape == ()
    with symloss.losses.checked(False):  # switches nest
        with symloss.losses.checked(), pytest.raises(ValueError, match="sum to 1"):
            loss(SCORES, 2 * SOFT)
        assert loss(SCORES, 2 * SOFT).isfinite()


def test_kinds_of_ignored_examples():
    """Somebody is ignored whose scores are no numbers, or nobody counts: as with all checks."""
    nan = SCORES.index_fill(0, torch.tensor([1]), torch.nan)
    for scores, target in ((nan, IGNORING), (SCORES, torch.full((N,), -100))):
        assert_never_waits(symloss.create_loss("gce"), scores, target)
