"""Lipschitz and smoothness constants: exact ones against formulas and brute force, others called lower bounds."""

import functools
import math

import pytest
import reference
import torch
from conftest import certified, generator
from in_turn import in_turn

import symloss
from symloss.losses import potentials as phi
from symloss.losses.base import Loss
from symloss.losses.catalogue import RECORDS
from symloss.theory.certificates import Constant
from symloss.theory.search import Derivatives, Grouped, largest_derivatives

POTENTIALS = ["ce", "mae", "rce", "gce", "focal", "agce", "aul", "ael", "taylor-ce", "phuber-ce", "phuber-gce", "js"]
SUMS = ["sgce", "mse", "nce", "nfl", "ngce", "nce+rce", "nce+ael"]
CONSTANTS = ("lipschitz", "smoothness")


@functools.cache
def constants(name: str, classes: int) -> Derivatives:
    return largest_derivatives(RECORDS[name].loss(), classes)


def test_the_constants_that_were_too_small():
    assert certified("phuber-ce", 100).smoothness == pytest.approx(1.44, rel=1e-4)
    assert certified("phuber-ce", 100).smoothness.exact
    assert certified("nnce", 100).lipschitz > 6.1
    # PHuber's linear part may end where no ordinary score is.
    certificate = symloss.certify(phi.PHuberCEPotential(1e50), 10)
    assert certificate.smoothness == pytest.approx(2, rel=1e-4)
    assert certificate.lipschitz == pytest.approx(math.sqrt(2), rel=1e-4)


@pytest.mark.parametrize("name", POTENTIALS)
def test_potentials_against_the_formula_of_one_variable(name):
    """sup sqrt 2 (1 - p) |phi'| and, with one rival, sup 2 (1 - p) |(1 - p) phi'' - p phi'|, from the plain formula."""

    def loss(margin):
        return reference.REFERENCE[name]((margin, reference.mpf(0)), 0)

    step = reference.mpf("1e-20")
    slopes, bends = [], []
    for margin in torch.arange(-9, 9, 0.03).tolist():
        # The margin is the label's score less the rival's: the unit vector along it is (1, -1) / sqrt 2.
        low, middle, high = (loss(reference.mpf(margin) + k * step) for k in (-1, 0, 1))
        slopes.append(abs(float((high - low) / (2 * step))) * math.sqrt(2))
        bends.append(abs(float((high - 2 * middle + low) / step**2)) * 2)
    for constant, found in zip(CONSTANTS, (slopes, bends), strict=True):
        exact = getattr(constants(name, 10), constant)
        assert max(found) <= exact * (1 + 1e-4)
        assert max(found) >= exact * (1 - 0.05)


def steepest(loss: Loss, classes: int) -> dict[str, float]:
    """Brute force in all scores: gradient ascent from many starts, with a direction for the curvature."""
    starts = 48
    sizes = torch.tensor([0.3, 1.0, 3.0, 8.0], dtype=torch.float64).repeat(starts // 4)[:, None]
    z, v = (torch.randn(starts, classes, dtype=torch.float64, generator=generator(seed)) for seed in (0, 1))
    z, v = (sizes * z).requires_grad_(), v.requires_grad_()
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(starts // 2)
    best = dict.fromkeys(CONSTANTS, 0.0)
    for constant in CONSTANTS:
        optimizer = torch.optim.Adam([z, v], lr=0.2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 150)
        for _ in range(150):
            (slope,) = torch.autograd.grad(loss.per_class(z)[:, 0].sum(), z, create_graph=True)
            size = slope.norm(dim=1)
            if constant == "smoothness":
                (bend,) = torch.autograd.grad((slope * v).sum(), z, create_graph=True)
                size = sign * (bend * v).sum(1) / v.square().sum(1)
            best[constant] = max(best[constant], float(size.detach().max()))
            z.grad, v.grad = torch.autograd.grad(-size.sum(), (z, v), allow_unused=True)
            optimizer.step()
            schedule.step()
    return best


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "classes"), [*((name, 10) for name in POTENTIALS), *((name, n) for name in SUMS for n in (3, 4))]
)
def test_brute_force_never_exceeds_an_exact_constant_and_comes_close(name, classes):
    found = steepest(RECORDS[name].loss(), classes)
    assert constants(name, classes).exact
    for constant in CONSTANTS:
        exact = getattr(constants(name, classes), constant)
        assert 0.9 * exact <= found[constant] <= exact * (1 + 1e-4), constant


def test_what_else_is_a_lower_bound():
    """Functions of one's own, maps of the scores, and tails so heavy that the largest value may be out of reach."""
    assert not symloss.certify(torch.nn.functional.cross_entropy, 3).smoothness.exact
    assert not symloss.certify("ce", 3, normalize="l2").lipschitz.exact
    assert not certified("bi-tempered", 3).smoothness.exact
    for name in ("sgce", "nce"):  # sums over classes are exact for few
        assert constants(name, 4).exact
        assert not constants(name, 5).exact


def test_the_steepest_place_of_nce_is_far_out():
    """|gradient| = |(1 - r C) p + r - e_y| / S with S = sum_k -log p_k and r = -log p_y / S.

    For a given p_y and S it grows with the sum of squares of the other p: largest with one rival and the rest equal.
    """
    classes = 100
    label, rival = torch.meshgrid(
        torch.arange(-700, 20, 0.5, dtype=torch.float64), torch.arange(0, 20, 0.05, dtype=torch.float64), indexing="ij"
    )
    logs = torch.stack([label, rival, torch.zeros_like(label)], -1)
    sizes = torch.tensor([1.0, 1.0, classes - 2.0], dtype=torch.float64)
    logp = logs - (sizes * logs.exp()).sum(-1, keepdim=True).log()
    total = -(sizes * logp).sum(-1, keepdim=True)
    r = -logp[..., :1] / total
    gradient = ((1 - r * classes) * logp.exp() + r - torch.tensor([1.0, 0.0, 0.0])) / total
    expected = float((sizes * gradient.square()).sum(-1).sqrt().max())
    assert constants("nce", classes).lipschitz == pytest.approx(expected, rel=1e-4)


UNGROUPED = ("cosine", "symmetrized-cosine", "ldr-kl")
"""Losses of raw scores, for which ``largest_derivatives`` has no search."""


@in_turn("name", [name for name in symloss.list_losses() if name not in UNGROUPED])
def test_groups_stand_for_their_classes(name):
    """A column for n classes of equal scores: the label's loss is that of all scores written out."""
    sizes = torch.tensor([[1.0, 1.0, 3.0, 5.0]] * 40, dtype=torch.float64)
    z = 3 * torch.randn(40, 4, dtype=torch.float64, generator=generator(0))
    loss = RECORDS[name].loss()
    found = loss.values(Grouped(z, sizes), torch.zeros(40, 1, dtype=torch.long))[:, 0]
    written_out = z.repeat_interleave(sizes[0].long(), 1)
    torch.testing.assert_close(found, loss.per_class(written_out)[:, 0], rtol=1e-10, atol=1e-12)


def test_a_constant_is_a_number_that_knows_what_it_is():
    beta = Constant(0.5)
    assert beta == 0.5
    assert str(beta) == "0.5 (at least)"
    assert str(Constant(1.25, exact=True)) == "1.25 (exact to 1e-4)"
    assert str(Constant(math.inf)) == "inf"
    for multiple in (2 * beta, beta * 2, beta / 0.5):
        assert multiple == 1
        assert not multiple.exact
    assert (Constant(0.5, exact=True) / 2).exact
    assert torch.equal(beta * torch.ones(2), torch.full((2,), 0.5))
