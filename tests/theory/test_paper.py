"""The statements of the paper, sections 2 to 6 and appendices A, C, D and E: a test for each, named after it."""

import itertools
import math
import sys

import numpy as np
import pytest
import torch
from conftest import assert_close, certified, generator, random_labels, random_scores
from in_turn import in_turn
from refusals import all_refused, refused
from scipy import integrate, stats
from torch.nn import functional as F  # noqa: N812

import symloss
from symloss.closed_form import UnhingedClassifier, centroid_alignment, unhinged_centroid
from symloss.extras import MissingExtraError
from symloss.losses import potentials as phi, score_formulas
from symloss.losses.catalogue import RECORDS
from symloss.losses.operators import Insensitive
from symloss.theory import binary
from symloss.theory.priors import DirichletPenalty, plot_prior, symmetrizing_prior

UNHINGED = RECORDS["unhinged"].loss()
SYMMETRIC = [name for name, r in RECORDS.items() if r.facts.at(5, **r.defaults)["symmetric"]]


@pytest.fixture
def points():
    return 3 * torch.randn(64, 5, dtype=torch.float64, generator=generator(0))


def gradients(loss, z):
    """Row y: the gradient of the loss at label y, at one score vector."""
    return torch.func.jacrev(loss.per_class)(z)


def is_constant(values):
    return float(values.max() - values.min()) < 1e-10


def linear(rows):
    """The loss sum_k rows[y, k] z_k."""
    return lambda z, y: (torch.as_tensor(rows, dtype=torch.float64)[y] * z).sum(1)


# Section 2: what it says of other losses.


def test_section_2_the_convex_margin_losses_are_not_symmetric_except_unhinged():
    """phi(z) + phi(-z) is constant for four of them. If phi is convex too, its second differences vanish."""
    z = torch.linspace(-6, 6, 241, dtype=torch.float64)
    symmetric, convex = set(), set()
    for name in binary.MARGIN_FUNCTIONS:
        phi_of_z = binary.margin_function(name)(z)
        if is_constant(phi_of_z + phi_of_z.flip(0)):
            symmetric.add(name)
        if bool((phi_of_z.diff(n=2) > -1e-12).all()):
            convex.add(name)
        assert binary.margin_function(name).symmetric == (name in symmetric)
    assert symmetric == {"sigmoid", "ramp", "probit", "unhinged"}
    assert convex == {"logistic", "hinge", "exponential", "unhinged"}


def test_section_2_reverse_cross_entropy_is_a_multiple_of_mae_and_part_of_sce(points):
    rce, mae = RECORDS["rce"].loss().per_class(points), 1 - points.softmax(1)
    assert torch.allclose(rce, -math.log(1e-4) * mae, rtol=1e-12)
    found = RECORDS["sce"].loss(alpha=0.3, beta=2.0).per_class(points)
    assert torch.allclose(found, -0.3 * points.log_softmax(1) + 2 * rce, rtol=1e-12)


def test_section_2_taylor_cross_entropy(points):
    """The first order is MAE. The second is MAE plus half of (1 - p)^2, which is at most MSE, and not symmetric."""
    p = points.softmax(1)
    first, second = (phi.TaylorCEPotential(t).per_class(points) for t in (1, 2))
    assert torch.allclose(first, 1 - p, atol=1e-12)
    half = second - first
    assert torch.allclose(half, (1 - p).square() / 2, atol=1e-12)
    assert bool((2 * half <= RECORDS["mse"].loss().per_class(points) + 1e-12).all())
    for order in (1, 2, 3, 10):
        assert is_constant(phi.TaylorCEPotential(order).per_class(points).sum(1)) == (order == 1)


@in_turn(("name", "normalised"), [("ce", "nce"), ("focal", "nfl"), ("gce", "ngce"), ("mse", None)])
def test_section_2_normalised_losses_are_symmetric_and_so_are_their_combinations(name, normalised, points):
    loss, passive = RECORDS[name].loss(), RECORDS["nnce"].loss()  # normalised negative cross-entropy
    active = symloss.losses.relative(loss)
    every = loss.per_class(points)
    assert torch.allclose(active.per_class(points), every / every.sum(1, keepdim=True), rtol=1e-10)
    for combination in (active, 5 * active + 2 * phi.MAEPotential(), 5 * active + 2 * passive):
        assert is_constant(combination.per_class(points).sum(1))
    assert not is_constant(every.sum(1))
    if normalised:
        assert torch.allclose(RECORDS[normalised].loss().per_class(points), active.per_class(points))
    if name == "ce":
        found = RECORDS["anl-ce"].loss(alpha=5.0, beta=2.0).per_class(points)
        assert torch.allclose(found, (5 * active + 2 * passive).per_class(points))
        assert torch.allclose(symloss.losses.complement(loss).per_class(points), passive.per_class(points))


def test_section_2_other_unhinged_losses(points):
    """-z_y alone is not symmetric. The multi-class hinge without its maximum is C times unhinged, plus C - 1."""
    assert not is_constant((-points).sum(1))
    others = [[k for k in range(5) if k != y] for y in range(5)]
    hinge = torch.stack([(1 + points[:, others[y]] - points[:, [y]]).sum(1) for y in range(5)], 1)
    assert torch.allclose(hinge, 5 * UNHINGED.per_class(points) + 4, atol=1e-12)


# Section 3: assumptions.


def test_section_3_examples_of_the_assumptions():
    """Cross-entropy and -z_y fulfil both; -y z_y is non-increasing, and changes with the names of the classes."""

    def by_number(z, y):
        return -(y + 1) * z.gather(1, y[:, None])[:, 0]

    for loss, invariant in (("ce", True), (linear(-torch.eye(4)), True), (by_number, False)):
        certificate = symloss.certify(loss, 4)
        assert certificate.non_increasing
        assert bool(certificate.permutation_invariant) == invariant


# Section 4: symmetrization.


@in_turn("name", symloss.list_losses())
def test_proposition_4_1_decomposition_exists(name, points):
    """The symmetric part stays permutation-invariant, and is its own symmetric part."""
    loss = RECORDS[name].loss()
    symmetric, insensitive = symloss.decompose(loss)
    values, parts = symmetric.per_class(points), insensitive.per_class(points)
    assert is_constant(values.sum(1))
    assert torch.allclose(parts, parts[:, :1].expand_as(parts))
    assert torch.allclose(values + parts, loss.per_class(points), rtol=1e-12, atol=1e-12)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.allclose(symmetric.per_class(points[:, order]), values[:, order], atol=1e-12)
    assert torch.allclose(symloss.symmetrize(symmetric).per_class(points), values, atol=1e-12)


@in_turn("robust", SYMMETRIC)
def test_proposition_4_1_decomposition_is_unique(robust, points):
    """Whatever symmetric and insensitive losses were added, decomposing the sum returns them, up to constants.

    A loss that is both is constant.
    """
    first, second = RECORDS[robust].loss(), Insensitive(phi.FocalPotential(2.0))
    symmetric, insensitive = symloss.decompose(first + second)
    assert is_constant(symmetric.per_class(points) - first.per_class(points))
    assert is_constant(insensitive.per_class(points) - second.per_class(points))
    assert is_constant(Insensitive(first).per_class(points))
    assert is_constant(symloss.symmetrize(first).per_class(points) - first.per_class(points))


def test_section_4_1_symmetrized_cross_entropy_is_unhinged_and_needs_no_softmax(monkeypatch, points):
    """The log-sum-exp cancels, and the algebra knows: no exponential is computed."""
    unhinged, labels = points.mean(1, keepdim=True) - points, torch.zeros(64, dtype=torch.long)
    by_torch = symloss.symmetrize(torch.nn.CrossEntropyLoss()).loss
    for loss in (symloss.symmetrize(phi.CEPotential()), symloss.symmetrize(linear(-torch.eye(5))), by_torch):
        assert torch.allclose(loss.per_class(points), unhinged, atol=1e-12)

    def forbidden(*_args, **_options):
        raise AssertionError("an exponential")

    for where, name in ((torch.Tensor, "exp"), (torch, "exp"), (torch, "softmax"), (torch, "log_softmax")):
        monkeypatch.setattr(where, name, forbidden)
    assert torch.isfinite(UNHINGED(points, labels))
    with pytest.raises(AssertionError, match="an exponential"):
        phi.CEPotential()(points, labels)


def test_sections_4_2_and_4_4_symmetrized_mse_is_mae_and_cosine_unhinged_of_unit_scores(points):
    mse, cosine = (symloss.symmetrize(f()) for f in (score_formulas.MSEFormula, score_formulas.CosineFormula))
    assert is_constant(mse.per_class(points) - 2 * phi.MAEPotential().per_class(points))
    p, each = points.softmax(1), torch.eye(5, dtype=torch.float64)
    error = torch.stack([(each[y] - p).square().sum(1) for y in range(5)], 1)
    assert torch.allclose(error, p.square().sum(1, keepdim=True) + 1 - 2 * p, atol=1e-12)
    assert torch.allclose(score_formulas.MSEFormula().per_class(points), error, atol=1e-12)
    similarity = torch.stack([torch.cosine_similarity(points, e.expand(64, 5)) for e in each], 1)
    assert torch.allclose(score_formulas.CosineFormula().per_class(points), 1 - similarity, atol=1e-12)
    direction, labels = points / points.norm(dim=1, keepdim=True), torch.arange(64) % 5
    assert torch.allclose(cosine.per_class(points), UNHINGED.per_class(direction), atol=1e-12)
    for same in (symloss.Unhinged(), symloss.SymmetrizedCosine()):
        assert torch.allclose(same(points, labels), cosine(points, labels))
    assert torch.allclose(symloss.SymmetrizedMSE(normalize=None)(points, labels), mse(points, labels))


def test_section_4_3_gce_and_sgce_run_from_cross_entropy_and_unhinged_to_mae(points):
    for q, limit in ((1e-7, phi.CEPotential()), (1.0, phi.MAEPotential())):
        gce = phi.GCEPotential(q)
        for found, expected in ((gce, limit), (symloss.symmetrize(gce), symloss.symmetrize(limit))):
            assert torch.allclose(found.per_class(points), expected.per_class(points), rtol=1e-5, atol=1e-5)


def test_section_4_3_sgce_trades_the_gradients_of_unhinged_for_those_of_mae():
    """The one loss keeps learning from what it got right, the other hardly learns from what it got wrong."""
    for lead in (6.0, -6.0):
        z = F.pad(torch.tensor([lead], dtype=torch.float64), (0, 4)).requires_grad_()
        sizes = []
        for q in (1e-6, 0.2, 0.5, 0.8, 1.0):
            loss = symloss.SGCE(q, normalize=None)
            sizes.append(float(torch.autograd.grad(loss(z[None], torch.tensor([0])), z)[0].norm()))
        assert sizes[0] == pytest.approx(math.sqrt(1 - 1 / 5), rel=1e-4), "that of unhinged, right or wrong"
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[-1] < 0.02


# Section 5: the unhinged loss among symmetric losses.


@in_turn("name", SYMMETRIC)
def test_theorem_5_1_convex_and_symmetric_implies_affine(name, points):
    """The second derivatives of all labels sum to zero: if none is negative, none is positive.

    So do the first ones, everywhere: linear approximations are symmetric (proof of proposition 5.2).
    """
    loss = RECORDS[name].loss()
    assert max(gradients(loss, z).sum(0).abs().max() for z in points[:8]) < 1e-9
    bends = torch.stack([torch.func.jacrev(torch.func.jacrev(loss.per_class))(z) for z in points[:16]])
    scale = bends.abs().max()
    assert bends.sum(1).abs().max() <= 1e-10 * (1 + scale)
    lowest = torch.linalg.eigvalsh((bends + bends.mT) / 2)[..., 0].min()
    assert (lowest < -1e-6) == (scale > 1e-6)
    assert (scale <= 1e-6) == (name == "unhinged")


ASSUMED = ("convex", "non_increasing", "symmetric")


def test_theorem_5_1_only_unhinged_is_all_of_it():
    """Nothing else in the catalogue fulfils the assumptions. ``test_certificates.py`` measures these facts."""
    facts = {name: record.facts.at(3, **record.defaults) for name, record in RECORDS.items()}
    assert [name for name, found in facts.items() if all(found[fact] for fact in ASSUMED)] == ["unhinged"]
    certificate = symloss.certify(lambda z, y: 3 * UNHINGED(z, y, reduction="none") + 2, 3)
    for found in (certified("unhinged", 3), certificate):  # up to constants
        assert all(found.findings[fact] for fact in (*ASSUMED, "permutation_invariant"))
    assert certificate.slope == pytest.approx(3)
    assert certificate.distance_from_unhinged < 1e-12
    assert not certificate.bounded


@in_turn("rows", [[[-1, 1, 0], [0, -1, 1], [1, 0, -1]], [[-1, 1, 1], [1, -1, 0], [0, 0, -1]]])
def test_theorem_5_1_and_remark_d_3_without_invariance_to_permutations_others_exist(rows):
    """The first is unchanged by cyclic shifts of the classes alone, the second is that of the remark."""
    certificate = symloss.certify(linear(rows), 3)
    assert all(certificate.findings[fact] for fact in ASSUMED)
    assert not certificate.permutation_invariant
    assert certificate.distance_from_unhinged > 0.1
    with pytest.raises(ValueError, match="blend takes a permutation-invariant loss"):
        symloss.losses.blend(symloss.symmetrize(linear(rows)), 0.5).per_class(torch.zeros(1, 3))


@in_turn("level", [0.0, 8.0])
@in_turn("name", ["ce", *(name for name in SYMMETRIC if name != "symmetrized-cosine")])
def test_proposition_5_2_linear_approximation_at_equal_scores(name, level, points):
    """Cross-entropy has it too, and is symmetric to first order there alone (section 5.2)."""
    loss = RECORDS[name].loss()
    found = gradients(loss, torch.full((5,), level, dtype=torch.float64))
    slope = loss.slope(5)
    assert slope > 0
    assert torch.allclose(found, slope * (1 / 5 - torch.eye(5, dtype=torch.float64)), rtol=1e-9, atol=1e-12)
    assert (gradients(loss, points[0]).sum(0).abs().max() > 0.1) == (name == "ce")


def test_proposition_5_2_needs_a_slope():
    """(p_y - 1/C)^2, symmetrized, is flat where all scores are equal: no linear approximation, and nothing to blend."""

    def flat(z, y):
        return (z.softmax(1).gather(1, y[:, None])[:, 0] - 1 / 3) ** 2

    loss = symloss.symmetrize(flat)
    certificate = symloss.certify(loss, 3)
    assert certificate.symmetric
    assert certificate.permutation_invariant
    assert certificate.slope == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="blend divides by the slope at equal scores, which must be positive; got 0"):
        symloss.blend(loss, 0.5).per_class(torch.zeros(1, 3, dtype=torch.float64))


# Section 6: blends.


@in_turn("alpha", [0.0, 0.5, 1.0, 3.0])
def test_section_6_blends(alpha, points):
    """The slopes at equal scores; the formula of alpha-MAE; and alpha multiplies what is not linear."""
    for classes in (2, 5, 100):
        assert phi.MAEPotential().slope(classes) == pytest.approx(1 / classes, rel=1e-12)
        assert symloss.symmetrize(phi.GCEPotential(0.3)).slope(classes) == pytest.approx(classes**-0.3, rel=1e-12)
    expected = (1 - alpha) * UNHINGED.per_class(points) + alpha * 5 * (1 - points.softmax(1))
    assert torch.allclose(symloss.losses.blend(phi.MAEPotential(), alpha).per_class(points), expected, atol=1e-10)

    def residual(factor):
        blend = symloss.losses.blend(symloss.symmetrize(phi.GCEPotential(0.5)), factor)
        return blend.per_class(points) - blend.per_class(torch.zeros_like(points)) - UNHINGED.per_class(points)

    assert torch.allclose(residual(alpha), alpha * residual(1.0), atol=1e-10)


@pytest.mark.parametrize("loss", [phi.MAEPotential(), symloss.symmetrize(phi.GCEPotential(0.5))], ids=["mae", "sgce"])
def test_section_6_smoothness_of_a_blend_is_alpha_beta(loss):
    beta = symloss.certify(symloss.losses.blend(loss, 1.0), 4).smoothness
    assert beta == pytest.approx(symloss.certify(loss, 4).smoothness / loss.slope(4), rel=1e-4)
    for alpha in (0.25, 4.0):
        assert symloss.certify(symloss.losses.blend(loss, alpha), 4).smoothness == pytest.approx(alpha * beta, rel=1e-4)


# Appendix A: uniform noise.


@in_turn("name", symloss.list_losses())
def test_appendix_a_noisy_risk(name, points):
    """p/C E[sum of the loss over labels] + (1 - p) clean risk; affine in the clean risk iff the loss is symmetric."""
    loss, classes, eta = RECORDS[name].loss(), 5, 0.4
    p = eta * classes / (classes - 1)
    transition = torch.full((classes, classes), eta / (classes - 1), dtype=torch.float64).fill_diagonal_(1 - eta)
    labels = torch.arange(64) % classes
    clean = loss(points, labels, reduction="none")
    noisy = symloss.losses.noisy(loss, transition)(points, labels, reduction="none")
    total = loss.per_class(points).sum(1)
    assert torch.allclose(noisy, p / classes * total + (1 - p) * clean, atol=1e-9)
    assert is_constant(noisy - (1 - p) * clean) == (name in SYMMETRIC)


# Appendix C: the centroid. The other statements are in ``closed_form/test_unhinged_classifiers.py``.


def test_appendix_c_the_radius_scales_the_scores_and_changes_no_prediction(points):
    labels = (torch.arange(64) % 3).numpy()
    models = [UnhingedClassifier(radius=radius).fit(points.numpy(), labels) for radius in (0.1, 7.0)]
    small, large = (model.decision_function(points.numpy()) for model in models)
    np.testing.assert_allclose(70 * small, large, rtol=1e-9)
    assert np.array_equal(*(model.predict(points.numpy()) for model in models))


def test_appendix_c_data_with_the_same_centroid_have_the_same_loss(points):
    """For all weights: another data set, with as many examples that are moved within the null space of the labels."""
    labels = torch.arange(64) % 4
    centred = torch.eye(4, dtype=torch.float64)[labels] - 1 / 4
    move = torch.randn(64, 5, dtype=torch.float64, generator=generator(1))
    other = points + move - centred @ torch.linalg.lstsq(centred, move, driver="gelsd").solution
    assert (other - points).abs().max() > 0.5
    centroids = [unhinged_centroid(x, labels, 4) for x in (points, other)]
    assert torch.allclose(*centroids, atol=1e-12)
    for seed in range(3):
        w = torch.randn(5, 4, dtype=torch.float64, generator=generator(seed))
        assert torch.allclose(*(UNHINGED(x @ w, labels) for x in (points, other)), atol=1e-12)


def test_appendix_c_alignment_pulls_equal_labels_together_and_pushes_others_apart():
    """Two examples meet in one product, which counts by (C - 1)/C if their labels are equal and by -1/C if not."""
    features, labels = torch.randn(6, 3, dtype=torch.float64, generator=generator(0)), torch.tensor([0, 0, 1, 2, 1, 0])
    mixed = torch.func.jacrev(torch.func.jacrev(lambda x: centroid_alignment(x, labels, 3)))(features)
    for i, j in itertools.product(range(6), repeat=2):
        a = 2 / 3 if labels[i] == labels[j] else -1 / 3
        assert torch.allclose(mixed[i, :, j], 2 * a / 36 * torch.eye(3, dtype=torch.float64), atol=1e-15)


# Appendix D: proofs.


def null_space(matrix):
    _, values, vectors = torch.linalg.svd(matrix, full_matrices=True)
    return vectors[int((values > 1e-10).sum()) :]


def invariant_linear_losses(classes):
    """A basis of the linear losses sum_k a_k(y) z_k with L(tau z, tau y) = L(z, y): tensors a[y, k]."""
    each = torch.eye(classes**2, dtype=torch.float64).reshape(-1, classes, classes)  # one coefficient each
    orders = itertools.permutations(range(classes))
    constraints = [each - each[:, order][:, :, order] for order in map(list, orders)]
    return null_space(torch.cat([constraint.flatten(1).T for constraint in constraints])).reshape(-1, classes, classes)


@in_turn("classes", [3, 4])
def test_lemma_d_1_and_proposition_d_2_unhinged_is_the_only_linear_one(classes):
    """The coefficients of an invariant linear loss are one number on the diagonal and one beside it (lemma D.1).

    Among these losses the symmetric ones are a line; with -1 at the label, C/(C-1) unhinged.
    """
    basis = invariant_linear_losses(classes)
    assert len(basis) == 2
    for a in basis:
        assert is_constant(a.diagonal())
        assert is_constant(a[~torch.eye(classes, dtype=torch.bool)])
    combinations = null_space(basis.sum(1).T)  # coefficients summed over labels: zero for a symmetric loss
    assert combinations.shape == (1, 2)
    found = torch.einsum("b,byk->yk", combinations[0], basis)
    unhinged = 1 / classes - torch.eye(classes, dtype=torch.float64)
    assert torch.allclose(-found / found[0, 0], classes / (classes - 1) * unhinged)
    for rows, symmetric in ((-found / found[0, 0], True), (-torch.eye(classes), False)):
        certificate = symloss.certify(linear(rows), classes)
        assert certificate.permutation_invariant
        assert bool(certificate.symmetric) == symmetric == (certificate.distance_from_unhinged < 1e-12)


def test_example_d_4_linear_approximation_of_mae_away_from_equal_scores():
    e = math.e
    found = gradients(2 * phi.MAEPotential(), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    rows = torch.tensor([[-2 * e, e, e], [e, -e - 1, 1], [e, 1, -e - 1]], dtype=torch.float64)
    assert torch.allclose(found, 2 / (e + 2) ** 2 * rows, atol=1e-14)
    certificate = symloss.certify(linear(found), 3)
    assert certificate.symmetric
    assert not certificate.permutation_invariant
    assert certificate.distance_from_unhinged > 0.1


# Appendix E: Dirichlet priors.

Z, Y = random_scores(16, 4), random_labels(16)
X, TURN = random_scores(16, 2, seed=5), random_scores(2, 4, seed=6)
"""Examples of two features, for a prior that depends on them."""


def alpha_of(x):
    return 0.2 + (x @ TURN).sigmoid()


@in_turn("classes", [2, 3, 10])
@in_turn("name", ["ce", "gce", "mae", "nce"])
def test_lemma_e_1_symmetric_iff_alpha(name, classes):
    """The prior has alpha = (C - 1) / C. Measured by the sum over labels at random scores."""
    loss, exact = RECORDS[name].loss(), 1 - 1 / classes
    z = 3 * torch.randn(64, classes, dtype=torch.float64, generator=generator(0))
    assert_close(symmetrizing_prior(classes).concentration, torch.full((classes,), exact, dtype=torch.float64))
    for alpha in (exact, exact - 0.05, exact + 0.05, 1.0):
        sums = symloss.losses.dirichlet(loss, alpha).per_class(z).sum(1)
        assert (float(sums.max() - sums.min()) < 1e-12) == (alpha == exact or name in SYMMETRIC)


@in_turn("name", ["ce", "gce", "mae", "nce", "mse"])
def test_appendix_e_symmetrizing_prior_gives_the_symmetrized_loss(name, points):
    loss, prior = RECORDS[name].loss(), symmetrizing_prior(5)
    found = symloss.losses.dirichlet(loss, prior.concentration).per_class(points)
    assert torch.allclose(found, symloss.symmetrize(loss).per_class(points), atol=1e-12)


def test_appendix_e_alpha_of_class_and_example(points):
    """L_y + sum_k (alpha_k(x) - 1) L_k, term by term."""
    every, labels = -points.log_softmax(1), torch.arange(64) % 5
    for shape in ((5,), (64, 5)):
        alpha = 0.1 + torch.rand(shape, dtype=torch.float64, generator=generator(3))
        expected = every + ((alpha - 1) * every).sum(1, keepdim=True)
        found = symloss.losses.dirichlet(phi.CEPotential(), alpha)
        assert torch.allclose(found.per_class(points), expected)
        assert torch.allclose(found(points, labels), expected.gather(1, labels[:, None]).mean())


def test_appendix_e_penalty_is_the_log_density_of_the_prior():
    """Up to a constant, for any alpha; with the likelihood it is the negative log-posterior of one example.

    Along a line from doubt to certainty the penalty of the symmetrizing prior falls; with alpha above 1 it rises.
    """
    alpha = torch.tensor([0.3, 0.9, 1.7, 0.5], dtype=torch.float64)
    for penalty, concentration in (
        (DirichletPenalty(alpha, "none"), alpha),
        (DirichletPenalty(0.4, "none"), torch.full((4,), 0.4, dtype=torch.float64)),
        (DirichletPenalty(reduction="none"), symmetrizing_prior(4).concentration),
    ):
        found = penalty(Z) + torch.distributions.Dirichlet(concentration).log_prob(Z.softmax(1))
        assert_close(found, found[:1].expand(16), 1e-9)
        both = F.cross_entropy(Z, Y, reduction="none") + penalty(Z)
        assert_close(both, symloss.losses.dirichlet(phi.CEPotential(), concentration)(Z, Y, reduction="none"), 1e-10)
    line = F.pad(torch.linspace(0, 10, 21, dtype=torch.float64)[:, None], (0, 3))
    assert bool((DirichletPenalty(reduction="none")(line).diff() < 0).all())
    assert bool((DirichletPenalty(3.0, "none")(line).diff() > 0).all())
    p = torch.linspace(0.01, 0.99, 33, dtype=torch.float64)
    density = symmetrizing_prior(2).log_prob(torch.stack([p, 1 - p], 1)).exp()
    assert_close(density, torch.from_numpy(stats.beta(0.5, 0.5).pdf(p.numpy())), 1e-9)


def test_appendix_e_a_prior_of_the_labels():
    """symmetrize(CE, prior=q) is the posterior under Dirichlet(1 - q). So it is at each x, if q depends on x."""
    q = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    prior = symmetrizing_prior(4, q)
    assert_close(prior.concentration, 1 - q)
    assert_close(symmetrizing_prior(4, q.tolist()).concentration, 1 - q)
    robust = symloss.symmetrize(phi.CEPotential(), prior=q)(Z, Y, reduction="none")
    both = F.cross_entropy(Z, Y, reduction="none") + DirichletPenalty(prior.concentration, "none")(Z)
    assert_close(both, robust, 1e-10)
    for shift in (0.0, 0.1):
        penalty = DirichletPenalty(lambda x, shift=shift: 1 + shift - (x @ TURN).softmax(1), "none")
        mean = ((X @ TURN).softmax(1) * (penalty(Z, X)[:, None] - Z.log_softmax(1))).sum(1)
        assert bool((mean.abs() < 1e-10).all()) == (shift == 0)


def test_appendix_e_alpha_that_depends_on_x():
    """Each example has the prior Dirichlet(alpha(x)): the log-posterior of all of them, but for a constant of x."""
    penalty = DirichletPenalty(alpha_of, "none")
    found = penalty(Z, X)
    for z, x, value in zip(Z, X, found, strict=True):
        assert_close(DirichletPenalty(alpha_of(x), "none")(z), value, 1e-10)
    prior, doubt = torch.distributions.Dirichlet(alpha_of(X)), torch.zeros_like(Z)
    density = prior.log_prob(Z.softmax(1)) - prior.log_prob(doubt.softmax(1))
    assert_close(found - penalty(doubt, X), -density, 1e-9)
    assert_close(DirichletPenalty(alpha_of)(Z, X), found.mean())
    module = DirichletPenalty(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Softplus()).double())
    module(Z, X).backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    assert len(list(module.parameters())) == 2
    assert "alpha=alpha_of(x)" in repr(penalty)
    assert "alpha=Sequential(x)" in repr(module)


def test_shapes_masks_precision_and_reductions_of_the_penalty():
    none, half = DirichletPenalty(reduction="none"), DirichletPenalty(0.5, "none")(Z)
    image, masked = Z.T.reshape(1, 4, 4, 4), F.pad(Z, (0, 2), value=-math.inf)
    for scores, shapes in ((Z, ((), (4,), (16, 1), (16, 4))), (image, ((), (4,), (1, 1, 4, 4), (1, 4, 4, 4)))):
        for shape in shapes:
            found = DirichletPenalty(lambda x, shape=shape: torch.full(shape, 0.5), "none")(scores, X)
            assert_close(found.flatten(), half)
    assert_close((DirichletPenalty()(Z), DirichletPenalty(reduction="sum")(Z)), (none(Z).mean(), none(Z).sum()))
    assert_close((none(Z[0]), none(image).flatten(), none(masked)), (none(Z)[0], none(Z), none(Z)))
    assert none(Z.bfloat16()).dtype == torch.float32
    assert "alpha" in DirichletPenalty(torch.tensor([0.5, 0.6, 0.7, 0.8])).state_dict()
    assert "(C - 1) / C" in repr(none)


def test_bad_priors(tmp_path, monkeypatch):
    def penalty(alpha, x=X):
        return lambda: DirichletPenalty(alpha)(Z, x)

    for alpha in (0, -1.0, math.inf):
        with refused(ValueError, "alpha", "(0, inf)"):
            DirichletPenalty(alpha)
    all_refused(
        (ValueError, "classes ... [2, inf) ... 1", lambda: symmetrizing_prior(1)),
        (ValueError, "prior ... sum to 1 ... 0.9", lambda: symmetrizing_prior(2, [0.5, 0.4])),
        (ValueError, "prior ... (3,) ... (2,)", lambda: symmetrizing_prior(3, [0.5, 0.5])),
        (ValueError, "prior ... one class", lambda: symmetrizing_prior(2, [1.0, 0.0])),
        (TypeError, "prior ... list of numbers ... 0.5", lambda: symmetrizing_prior(2, 0.5)),
        (ValueError, "alpha ... above 0 ... -1", penalty(torch.tensor([1.0, -1.0]))),
        (ValueError, "alpha ... above 0 ... inf", penalty(torch.tensor([1.0, math.inf]))),
        (ValueError, "alpha ... (4,) ... (2,)", penalty(torch.ones(2))),
        (ValueError, "reduction ... 'avg'", lambda: DirichletPenalty(reduction="avg")),
        (TypeError, "input ... torch.int64", lambda: DirichletPenalty()(torch.zeros(2, 3, dtype=torch.long))),
        (TypeError, "x must be given ... None", penalty(alpha_of, x=None)),
        (ValueError, "alpha(x) ... (4,), (16, 1) ... (16, 4) ... (16, 2)", penalty(lambda x: x.abs() + 1)),
        (ValueError, "alpha(x) ... above 0 ... -3", penalty(lambda x: torch.tensor(-3.0))),
        (TypeError, "alpha(x) ... floating-point tensor ... int", penalty(lambda x: 3)),
        (TypeError, "alpha(x) ... floating-point tensor ... torch.int64", penalty(lambda x: torch.tensor(3))),
    )
    pytest.importorskip("matplotlib")
    all_refused(
        (ValueError, "classes ... [2, inf) ... 1", lambda: plot_prior(1)),
        (ValueError, "'txt' ... png", lambda: plot_prior(2, tmp_path / "prior.txt")),
        (FileNotFoundError, "No such file or directory ... none", lambda: plot_prior(2, tmp_path / "none" / "a.png")),
    )
    assert not list(tmp_path.iterdir())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with refused(MissingExtraError, "matplotlib", "symloss[plot]"):
        plot_prior(2)


@in_turn("classes", [2, 3])
def test_picture(classes, tmp_path):
    """The density of the probability of one class: integrated over the others, by scipy."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "prior.png"
    axes, penalties = plot_prior(classes, path).axes
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["prior.png"]
    alpha = 1 - 1 / classes
    p, density = axes.get_lines()[0].get_data()
    some = [k for k in range(0, 801, 80) if 0.01 < p[k] < 0.99]
    prior = stats.dirichlet([alpha] * classes)
    if classes == 2:
        expected = [prior.pdf([p[k], 1 - p[k]]) for k in some]
    else:
        expected = [integrate.quad(lambda q, r=p[k]: prior.pdf([r, q, 1 - r - q]), 0, 1 - p[k])[0] for k in some]
    assert density[some] == pytest.approx(expected, rel=1e-5)
    assert axes.get_lines()[0].get_label() == f"Beta({alpha:.3g}, {(classes - 1) * alpha:.3g}), symmetrized"
    _, penalty = penalties.get_lines()[0].get_data()
    rest = (1 - p) / (classes - 1)
    assert penalty == pytest.approx((1 - alpha) * (np.log(p) + (classes - 1) * np.log(rest)), rel=1e-6)


# What else must hold.


@in_turn(
    ("name", "values", "limit", "factor", "error"),
    [
        ("gce", {"q": 1.0}, "mae", 1, 1e-12),
        ("taylor-ce", {"t": 1}, "mae", 1, 1e-12),
        ("agce", {"a": 3.0, "q": 1.0}, "mae", 1, 1e-12),
        ("aul", {"a": 3.0, "q": 1.0}, "mae", 1, 1e-12),
        ("focal", {"gamma": 0.0}, "ce", 1, 1e-12),
        ("alpha-mae", {"alpha": 0.0}, "unhinged", 1, 1e-12),
        ("alpha-mae", {"alpha": 1.0}, "mae", 5, 1e-12),
        ("label-smoothing", {"r": 0.0}, "ce", 1, 1e-12),
        ("dirichlet-ce", {"alpha": 1.0}, "ce", 1, 1e-12),
        ("bi-tempered", {"t1": 1.0, "t2": 1.0}, "ce", 1, 1e-12),
        ("bi-tempered", {"t1": 0.0, "t2": 1.0}, "mse", 0.5, 1e-12),
        ("nfl", {"gamma": 0.0}, "nce", 1, 1e-12),
        ("ngce", {"q": 1.0}, "mae", 1 / 4, 1e-12),
        ("gce", {"q": 1e-8}, "ce", 1, 1e-4),
        ("sgce", {"q": 1e-8}, "unhinged", 1, 1e-4),
        ("taylor-ce", {"t": 100}, "ce", 1, 1e-4),
        ("phuber-ce", {"tau": 1e9}, "ce", 1, 1e-4),
        ("phuber-gce", {"q": 1e-8, "tau": 1e9}, "ce", 1, 1e-4),
        ("js", {"pi": 1e-7}, "ce", 1, 1e-4),
        ("bi-tempered", {"t1": 1.0, "t2": 1.0 + 1e-7}, "ce", 1, 1e-4),
        ("label-smoothing", {"r": -1e7}, "unhinged", 1 + 1e7, 1e3),  # 1e-4 of the factor
    ],
)
def test_special_cases_and_limits(name, values, limit, factor, error, points):
    found, expected = RECORDS[name].loss(**values), factor * RECORDS[limit].loss()
    points = points if error < 1e-6 else points / 24
    assert torch.allclose(found.per_class(points), expected.per_class(points), rtol=1e-5, atol=error)


def test_js_tends_to_mae(points):
    """As slowly as 1 / log(1 - pi): twice the zeros, half the distance."""
    mae = phi.MAEPotential().per_class(points)
    near, nearer = (float((phi.JSPotential(1 - r).per_class(points) - mae).abs().max()) for r in (1e-5, 1e-10))
    assert 0.1 > near == pytest.approx(2 * nearer, rel=1e-3)


def test_prior_weighted_symmetrization_is_robust_to_noise_from_the_prior(points):
    """Under labels replaced by draws from q with probability p, the risk is (1 - p) the clean one."""
    q = torch.tensor([0.5, 0.2, 0.1, 0.1, 0.1], dtype=torch.float64)
    robust = symloss.symmetrize(phi.GCEPotential(0.7), prior=q)
    transition = 0.6 * torch.eye(5, dtype=torch.float64) + 0.4 * q
    labels = torch.arange(64) % 5
    noisy = symloss.losses.noisy(robust, transition)(points, labels)
    assert torch.allclose(noisy, 0.6 * robust(points, labels), atol=1e-12)
