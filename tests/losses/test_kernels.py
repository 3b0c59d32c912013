"""Kernels against the plain formulas, however the work is cut; the switches of kernels and of checks."""

import gc
import runpy
import threading
import weakref
from dataclasses import dataclass

import pytest
import torch
from conftest import every_loss, random_labels, random_probabilities, random_scores, value_and_grad
from in_turn import in_turn
from loss_helpers import WITHOUT_SLOPE, every_path
from torch import Tensor, nn

import symloss
from symloss.losses import criterion, potentials as phi, validation
from symloss.losses.catalogue import RECORDS
from symloss.losses.heads import linear_loss
from symloss.losses.kernels import batch as batches, targets
from symloss.losses.layers import EpsSoftmax, UnitScores
from symloss.losses.operators import Insensitive, Symmetrize
from symloss.losses.potentials import CEPotential, GCEPotential, MAEPotential, PowerPotential
from symloss.losses.validation import plain

OWN = {
    "blend of sgce": symloss.losses.blend(symloss.symmetrize(GCEPotential(0.3)), 3.0),
    "unhinged and nce": symloss.symmetrize(CEPotential()) + 2 * symloss.losses.relative(CEPotential()),
    "gce near 0": symloss.symmetrize(GCEPotential(1e-4)),
    "symmetrized focal": symloss.symmetrize(phi.FocalPotential(0.5)),
    "insensitive": symloss.decompose(phi.AELPotential(2.0)).insensitive,
    "dirichlet of gce": symloss.losses.dirichlet(GCEPotential(0.4), 0.3),
    "unit slope": symloss.create_loss("anl-ce", scale="ce").loss,
    "complement of gce": symloss.losses.complement(GCEPotential(0.5)),
    "complement of mae": symloss.losses.complement(MAEPotential()),
    "two of mae": symloss.losses.complement(MAEPotential()) + MAEPotential(),
    "unhinged twice": 2 * symloss.symmetrize(CEPotential()) + symloss.symmetrize(CEPotential()),
}


def batch(shape, dtype=torch.float64):
    z = random_scores(*shape, seed=sum(shape), spread=4.0).to(dtype)
    return z.requires_grad_(), random_labels(shape[0], *shape[2:], classes=shape[1])


def plainly(loss, z, y, **options):
    with symloss.losses.plain():
        return value_and_grad(loss, z, y, **options)


def agree(fast, slow):
    tolerance = 1e-11 if slow[1].dtype == torch.float64 else 3e-5
    for ours, theirs in zip(fast, slow, strict=True):
        scale = 1 + theirs.abs().max() if ours.dim() < 2 else theirs.abs().max()
        assert float((ours - theirs).abs().max() / scale) <= tolerance


def agrees_with_plain(loss, z, y, **options):
    agree(value_and_grad(loss, z, y, **options), plainly(loss, z, y, **options))


def leaves(loss):
    """The leaves whose values are needed: what all labels have in common does not change a symmetric part."""
    children = [child.less_constant for child in loss.children] if isinstance(loss, Symmetrize) else loss.children
    return [leaf for child in children for leaf in leaves(child)] if children else [loss]


@every_loss
def test_every_loss_of_potentials_has_a_kernel(name):
    """Losses of all probabilities or of raw scores, and those with a softmax of their own, have none."""
    loss = RECORDS[name].loss()
    of_potentials = all(isinstance(leaf, phi.Potential) for leaf in leaves(loss))
    for target in (targets.LABELS, targets.PROBABILITIES, targets.WEIGHTS):
        assert (targets.kernel_for(loss, 10, None, target) is not None) == of_potentials


@in_turn("name", OWN)
def test_losses_of_ones_own(name):
    """Those of the catalogue agree with the reference, by kernels and by plain formulas."""
    assert targets.kernel_for(OWN[name], 6) is not None
    agrees_with_plain(OWN[name], *batch((40, 6)))


@every_path
def test_images_of_unit_scores(name):
    for shape, scores, dtype in (((3, 5, 2, 4), None, torch.float64), ((6, 25, 7), UnitScores(0.3), torch.float32)):
        for reduction in ("mean", "none"):
            agrees_with_plain(RECORDS[name].loss(), *batch(shape, dtype), reduction=reduction, score_map=scores)


@every_path
def test_block_by_block(name, monkeypatch):
    """The same, however many rows are worked on at a time; the last block is shorter."""
    z, y = batch((50, 11))
    y[::4] = -100
    loss = RECORDS[name].loss()
    whole = value_and_grad(loss, z, y)
    monkeypatch.setattr(batches, "BLOCK", 7 * 11)
    agree(value_and_grad(loss, z, y), whole)
    agree(whole, plainly(loss, z, y))


@in_turn("name", ["mae", "sgce", "unhinged"])
@in_turn("layout", ["transposed", "expanded", "channels-last", "strided"])
def test_layouts(name, layout):
    base = random_scores(8, 6, 4, 4)
    z = {
        "transposed": base.transpose(2, 3),
        "expanded": base[:, :, :1, :1].expand(8, 6, 4, 4),
        "channels-last": base.contiguous(memory_format=torch.channels_last),
        "strided": base[::2],
    }[layout]
    y = random_labels(len(z), 4, 4, classes=6).transpose(1, 2)
    agrees_with_plain(RECORDS[name].loss(), z, y)


LOSSES = {name: record.loss() for name, record in RECORDS.items()} | OWN


@in_turn("name", LOSSES)
def test_masked_classes(name, monkeypatch):
    """Row by row and block by block, down to a single class, as by the plain formula."""
    monkeypatch.setattr(batches, "BLOCK", 2 * 7)
    last, y = torch.tensor([[0], [1], [2], [4], [5], [6]]), torch.tensor([0, 1, 0, 4, 2, 6])
    z = batch((6, 7))[0].masked_fill(torch.arange(7) > last, -torch.inf)
    for scores in (None, UnitScores(0.3)):
        agrees_with_plain(LOSSES[name], z, y, reduction="none", score_map=scores)


@in_turn("by_kernel", [True, False])
@in_turn("name", LOSSES)
def test_nan_in_nan_out(name, by_kernel):
    """The value and all of its row's gradient; other rows are not touched, and an ignored one touches nothing."""
    run, unit = value_and_grad if by_kernel else plainly, UnitScores()
    for classes, scores in ((1, None), (2, unit), (5, None), (5, unit)):
        z, y = batch((3, classes), torch.float32)
        z.data[1, classes - 1] = torch.nan
        for reduction in ("mean", "sum"):
            assert run(LOSSES[name], z, y, reduction=reduction, score_map=scores)[0].isnan()
        values, gradient = run(LOSSES[name], z, y, reduction="none", score_map=scores)
        assert values.isnan().tolist() == [False, True, False]
        if classes > 1:  # the scores of a single class count for nothing
            assert gradient.isnan().any(1).tolist() == [False, True, False]
            assert gradient[1].isnan().all()
        y[1] = -100
        value, gradient = run(LOSSES[name], z, y, score_map=scores)
        assert value.isfinite()
        if by_kernel and targets.kernel_for(LOSSES[name], classes) is not None:
            assert gradient.isfinite().all()
            assert (gradient[1] == 0).all()


def test_backward_hands_its_gradient_over(monkeypatch):
    """The scores' gradient is the memory the kernel wrote, not a copy of it."""
    written, by_blocks = [], batches.by_blocks

    def seen(kernel, z, y, share, out, ignores):
        written.append(out.data_ptr())
        return by_blocks(kernel, z, y, share, out, ignores)

    monkeypatch.setattr(batches, "by_blocks", seen)
    z, y = batch((64, 10), torch.float32)
    MAEPotential()(z, y).backward()
    assert written == [z.grad.data_ptr()]


@in_turn("shape", [(8, 5), (5,)])
def test_a_loss_that_holds_tensors(shape):
    """dirichlet with alpha_k(x) is made anew for every batch; no cache may hold on to the last hundreds of them.

    Its mean over labels, for smoothed ones, is that of the batch: once it was asked for at a vector of zeros.
    """
    z, y = batch((8, 5))
    alpha = torch.linspace(0.5, 2, 5).double().expand(shape).clone()
    gone = weakref.ref(alpha)
    loss = symloss.losses.dirichlet("ce", alpha)
    loss(z, y).backward()
    every = symloss.losses.relative(loss).per_class(z)
    smoothed = symloss.losses.relative(loss, label_smoothing=0.1)(z, y)
    torch.testing.assert_close(smoothed, (0.9 * every[range(8), y] + 0.1 * every.mean(1)).mean())
    del alpha, loss, every, smoothed
    gc.collect()
    assert gone() is None


def test_overwrite_gives_the_gradient_the_memory_of_the_scores():
    """So a second use of the scores is an error."""
    leaf, labels = batch((5, 7), torch.float32)
    labels[2], loss = -100, symloss.GCE(overwrite=True)
    expected = symloss.GCE()(leaf, labels)
    scores = leaf * 1.0
    memory = scores.data_ptr()
    value = loss(scores, labels)
    torch.testing.assert_close(value, expected)
    half = torch.tensor(0.5)
    (gradient,) = torch.autograd.grad(value, scores, half, retain_graph=True)
    assert gradient.data_ptr() == memory
    torch.testing.assert_close(gradient, *torch.autograd.grad(expected, leaf, half))
    with pytest.raises(RuntimeError, match="overwrite=True keeps no scores"):
        torch.autograd.grad(value, scores)
    with pytest.raises(RuntimeError, match="overwrite=True keeps no scores"):
        torch.autograd.grad(loss(leaf * 1.0, labels), leaf, create_graph=True)
    value = loss(leaf.tanh(), labels)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):  # tanh has lost its result
        value.backward()
    loss(scores := leaf.detach().clone(), labels)
    assert torch.equal(scores, leaf), "without a gradient nothing is overwritten"


# --- Targets with a weight for each class: probabilities, smoothing, class weights ------------------------------------

N, C = 7, 6
SCORES = random_scores(N, C, seed=5, spread=4.0)
SCORES[2, 3] += 12  # a class that leads
MASKED = SCORES.masked_fill(torch.eye(N, C).bool().roll(2, 1), -torch.inf)
LABELS = torch.tensor([0, 1, 3, 2, -100, 5, 4])
SOFT = random_probabilities(N, C)
WEIGHT = torch.linspace(0.2, 2, C, dtype=torch.float64)
PICTURES = SCORES.reshape(1, N, C).movedim(2, 1)

CASES: dict[str, tuple[Tensor, Tensor, dict[str, object]]] = {
    "probabilities": (SCORES, SOFT, {}),
    "smoothed": (SCORES, LABELS, {"label_smoothing": 0.2}),
    "weights": (SCORES, LABELS, {"weight": WEIGHT}),
    "weights, smoothed": (SCORES, LABELS, {"weight": WEIGHT, "label_smoothing": 0.2, "reduction": "none"}),
    "probabilities, weights, smoothed": (SCORES, SOFT, {"weight": WEIGHT, "label_smoothing": 0.2}),
    "unit scores": (SCORES, SOFT, {"normalize": "l2", "temperature": 0.3, "reduction": "sum"}),
    "masked": (MASKED, LABELS, {"weight": WEIGHT, "label_smoothing": 0.2}),
    "masked probabilities": (MASKED, torch.where(-torch.inf < MASKED, 1.0, 0.0).double() / 5, {"reduction": "none"}),
    "pictures": (PICTURES, LABELS[None], {"weight": WEIGHT, "reduction": "none"}),
}
CASES["masked probabilities"][1][-1] = torch.tensor([0.5, 0, 0, 0, 0.5, 0])


@every_loss
def test_kernels_agree_with_the_plain_formulas(name):
    for scores, target, options in CASES.values():
        loss = symloss.create_loss(name, **{"normalize": None} | options)
        given = (loss, scores, target)
        torch.testing.assert_close(value_and_grad(*given), plainly(*given), rtol=1e-9, atol=1e-11)


@in_turn("case", CASES)
def test_a_kernel_is_used(case, monkeypatch):
    scores, target, options = CASES[case]
    loss = symloss.create_loss("sgce", **{"normalize": None} | options)
    monkeypatch.setattr(criterion, "_plain", None)
    value_and_grad(loss, scores, target)


@in_turn("name", ["ce", "gce", "sgce", "alpha-mae", "nce", "focal", "anl-ce"])
def test_one_hot_probabilities_are_labels(name):
    """Also in float32 where the label or another class leads by 60: the gradient of either keeps its digits."""
    scores = torch.zeros(12, 5)
    scores[:6, 2] = scores[6:, 4] = torch.tensor([0.0, 1.0, 8.0, 15.0, 30.0, 60.0])
    scores[:, 1] = -3.0
    labels = torch.full((12,), 2)
    hot = torch.nn.functional.one_hot(labels, 5).float()
    loss = symloss.create_loss(name, normalize=None, reduction="none")
    by_label, by_weight = (value_and_grad(loss, scores, target)[1] for target in (labels, hot))
    entries = by_label.gather(1, labels[:, None])[:6]
    torch.testing.assert_close(by_weight.gather(1, labels[:, None])[:6], entries, rtol=2e-5, atol=1e-44)
    assert (entries[5] != 0).all()
    largest = by_label.abs().amax(1, keepdim=True)
    torch.testing.assert_close(by_weight / largest, by_label / largest, rtol=0, atol=2e-5)


# --- Scores whose sums overflow --------------------------------------------------------------------------------------

FIVE = torch.tensor([5])


def spread(size: float) -> Tensor:
    return (size * torch.eye(1, 100)).requires_grad_()


@in_turn("size", [1e30, 1e36, 1e37, 3e38])
def test_sums_over_classes_do_not_overflow(size):
    """The label is one of 99 classes that trail by as much: L_y / sum_k L_k = 1 / 99."""
    anl, unhinged = symloss.create_loss("anl-ce"), symloss.Unhinged(normalize=None)
    for loss, expected in (
        (symloss.NCE(), 1 / 99),
        (symloss.losses.relative("gce:q=0.5"), 1 / 99),
        (anl, anl(spread(1e20), FIVE).item()),
        (unhinged, unhinged(spread(1.0), FIVE).item() * size),
    ):
        assert loss(spread(size), FIVE).item() == pytest.approx(expected, rel=1e-5)


@in_turn(
    "name",
    ["ce", "sce", "agce", "alpha-mae", "focal:gamma=0.5", "nfl:gamma=0.5", "anl-fl:gamma=0.5", "jal-fl:gamma=0.5"],
)
@in_turn("size", [1e4, 1e20, 1e30, 1e36])
def test_finite_gradients_far_out(name, size):
    """Also beside a class that is masked out."""
    masked = torch.tensor([[size, 0.0, -torch.inf, 5.0]])
    for found in value_and_grad(symloss.create_loss(name, normalize=None), masked, torch.tensor([0])):
        assert found.isfinite().all()
    soft, weighed = torch.full((1, 100), 0.01), {"weight": torch.linspace(0.5, 2, 100)}
    for options, target in (({"label_smoothing": 0.1}, FIVE), (weighed, FIVE), ({}, soft), ({}, FIVE)):
        loss = symloss.create_loss(name, normalize=None, **options)
        for way in (plainly, value_and_grad):
            assert way(loss, spread(size), target)[1].isfinite().all(), (options, way)


def test_scores_that_are_too_large_are_noticed_before_a_block_is_overwritten(monkeypatch):
    monkeypatch.setattr(batches, "BLOCK", 100)
    scores, labels = torch.cat([spread(3.0), spread(0.0), spread(1e37)]), FIVE.expand(3)
    assert symloss.NCE(overwrite=True)(scores * 1.0, labels).item() == symloss.NCE()(scores, labels).item()


# --- Switches: the plain formulas alone, and no look at values -------------------------------------------------------

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
class Unhashable(phi.Potential):
    """A loss of somebody else's, which is no frozen dataclass."""

    factor: float

    def phi(self, logp):
        return -self.factor * logp

    def derivative(self, logp):
        return torch.full_like(logp, -self.factor)


def test_a_loss_without_a_hash_is_computed_by_its_formula():
    assert torch.allclose(Unhashable(3.0)(Z, Y), 3 * CEPotential()(Z, Y), rtol=1e-12)
    assert targets.kernel_for(Unhashable(3.0), 3) is None
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
    one, other = (symloss.symmetrize(GCEPotential(0.5)) for _ in range(2))
    assert targets.kernel_for(one, 4) is targets.kernel_for(other, 4)


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

COUNTING = LABELS.clamp_min(0)  # none of which is ignored


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
        assert_never_waits(symloss.create_loss(name), scores, LABELS)


OPTIONS = [
    *({"reduction": "sum"}, {"reduction": "none"}, {"weight": WEIGHT}, {"label_smoothing": 0.1}, {"ignore_index": 2}),
    *({"normalize": "l2", "temperature": 0.5}, {"normalize": EpsSoftmax(1.0)}),
]


@every_path
def test_no_option_or_target_waits(name):
    """Options, probabilities, further dimensions, a single example."""
    for options in OPTIONS:
        assert_never_waits(symloss.create_loss(name, **options), SCORES, COUNTING)
    if name not in WITHOUT_SLOPE:
        assert_never_waits(symloss.create_loss(name, scale="ce"), MASKED, LABELS)
    loss = symloss.create_loss(name)
    assert_never_waits(loss, SCORES, SOFT)
    assert_never_waits(loss, PICTURES, LABELS[None])
    assert_never_waits(loss, SCORES[0], LABELS[0])


@in_turn(
    "loss",
    [
        symloss.symmetrize("gce:q=0.7", WEIGHT / WEIGHT.sum()),
        symloss.losses.noisy("mae", 0.1 + 0.4 * torch.eye(C, dtype=torch.float64)),
        symloss.losses.dirichlet("ce", WEIGHT),
        symloss.losses.blend(symloss.symmetrize(nn.functional.cross_entropy), 0.5),
        symloss.symmetrize(nn.CrossEntropyLoss()),
    ],
)
def test_no_operator_waits(loss):
    assert_never_waits(loss, SCORES, COUNTING)


@in_turn("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_precision_waits(dtype):
    loss = symloss.create_loss("gce")
    with symloss.losses.checked(False):
        value, gradient = step(loss, SCORES.to(dtype), COUNTING)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    expected = step(loss, SCORES.to(dtype).double(), COUNTING)[1]
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
    target = torch.where(LABELS == 3, 0, LABELS)
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
    with pytest.raises(IndexError, match="the label 6; with 6 classes"):
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
    nan = SCORES.index_fill(0, torch.tensor([4]), torch.nan)
    for scores, target in ((nan, LABELS), (SCORES, torch.full((N,), -100))):
        assert_never_waits(symloss.create_loss("gce"), scores, target)
