"""Kernels against the plain formulas: values and gradients of every loss, however the work is cut."""

import gc
import weakref

import pytest
import torch
from conftest import every_loss, random_labels, random_probabilities, random_scores, value_and_grad
from in_turn import in_turn
from loss_helpers import every_path
from torch import Tensor

import symloss
from symloss.losses import criterion, potentials as phi
from symloss.losses.catalogue import RECORDS
from symloss.losses.kernels import batch as batches, targets
from symloss.losses.layers import UnitScores
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
    phi.MAEPotential()(z, y).backward()
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
