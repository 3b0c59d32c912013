"""Certificates: declared facts measured both ways, counter-examples that hold up, constants against brute force."""

import functools
import math

import pytest
import reference
import torch
from conftest import certified, every_loss, generator
from in_turn import in_turn
from loss_helpers import interesting_settings
from refusals import all_refused

import symloss
from symloss.losses import potentials as phi
from symloss.losses.catalogue import RECORDS
from symloss.theory.certificates import Constant
from symloss.theory.constants import Grouped, largest_derivatives

CONSTANTS = ("lipschitz", "smoothness")

# Functions of the label's probability, plus multiples of unhinged: exact constants for any number of classes.
LABEL_ALONE = {"unhinged", "alpha-mae", "symmetrized-mse", "ce", "mae", "rce", "gce", "focal", "agce", "aul", "ael"}
LABEL_ALONE |= {"taylor-ce", "phuber-ce", "phuber-gce", "js", "sce", "label-smoothing", "dirichlet-ce"}

SEARCHED_OTHERWISE = {"gce", "sgce", "anl-ce", "nce+agce", "mse", "bi-tempered", "ldr-kl", "symmetrized-cosine"}
"""With ten classes: of the label alone, in groups by one and by two sums, with heavy tails, and by ascent alone."""

# Close to a bound at which a fact changes, and for losses whose other tests are of the defaults alone.
BESIDE_A_BOUND = {
    "alpha-mae": [{"alpha": 1.1}, {"kappa": 0.0}, {"kappa": 3.0}],
    "gce": [{"q": 0.99}],
    "taylor-ce": [{"t": 6}],
    "phuber-ce": [{"tau": 1.5}, {"tau": 3.0}],
    "sce": [{"alpha": 9.3}, {"alpha": 9.0}],
    "dirichlet-ce": [{"alpha": 0.9}],
}


@pytest.mark.slow
@every_loss
def test_declared_facts(name):
    """A fact that is declared must hold, one that is denied must show a counter-example that holds up.

    Every loss has three classes, and other numbers where it declares something else for them. Ten classes are searched
    in another way.
    """
    record = RECORDS[name]
    declared = {c: [each.at(c, **record.defaults) for each in (record.facts, record.constants)] for c in (2, 3, 10)}
    for classes in (2, 3, 10):
        if declared[classes] != declared[3] or classes == 3 or (classes == 10 and name in SEARCHED_OTHERWISE):
            check_facts(name, classes)
    assert certified(name, 3).permutation_invariant


def special_settings():
    """One for each combination of facts that a loss declares at some parameters, but not at its defaults."""
    for name, record in RECORDS.items():
        seen = []
        for setting in interesting_settings(name):
            facts = record.facts.at(3, **(record.defaults | setting))
            if facts not in seen:
                seen.append(facts)
                if setting:
                    yield name, setting


@pytest.mark.slow
@in_turn(
    ("name", "values", "classes"),
    [(*special, 3) for special in special_settings()]
    + [(name, values, 10) for name, every in BESIDE_A_BOUND.items() for values in every],
)
def test_declared_facts_at_special_parameters_and_beside_a_bound(name, values, classes):
    check_facts(name, classes, **values)


def check_facts(name, classes, **values):
    record = RECORDS[name]
    loss = record.loss(**values)
    certificate = certified(name, classes) if not values else symloss.certify(loss, classes)
    measured = {fact: bool(finding) for fact, finding in certificate.findings.items()}
    assert measured == record.facts.at(classes, **(record.defaults | values)), certificate
    for fact, finding in certificate.findings.items():
        if not finding:
            assert violation(loss, fact, finding.counter_example) == pytest.approx(finding.measure, rel=1e-2), fact
    # The weighting of classes relies on what the construction says: it must never claim too much.
    assert loss.symmetric <= measured["symmetric"]
    if name in LABEL_ALONE:
        assert all(getattr(certificate, constant).exact for constant in CONSTANTS)
    for constant, known in record.constants.at(classes, **(record.defaults | values)).items():
        if known is not None:
            assert getattr(certificate, constant) == pytest.approx(known, rel=1e-4), constant
    # What blend and scale='ce' divide by is the slope that is measured.
    if "cosine" not in name:
        assert loss.slope(classes) == pytest.approx(certificate.slope, rel=1e-9)


def violation(loss, fact, example):
    """How much the property fails, recomputed from the counter-example's score vectors alone."""
    vectors = {name: torch.tensor(scores, dtype=torch.float64) for name, scores in example.scores.items()}
    a, y = vectors["a"], example.label

    def value(z):
        return float(loss.per_class(z)[y])

    if fact == "symmetric":
        return float(loss.per_class(a).sum() - loss.per_class(vectors["b"]).sum())
    if fact == "convex":
        return value((a + vectors["b"]) / 2) - (value(a) + value(vectors["b"])) / 2
    if fact == "non_increasing":
        step = torch.zeros_like(a)
        step[y] = 1e-6
        return (value(a + step) - value(a - step)) / 2e-6
    assert fact == "bounded"
    near, far, farther = (value(a / shrink) for shrink in (1e4, 1e2, 1))
    assert abs(farther - far) > 0.9 * abs(far - near) > 0.1
    return math.inf


@in_turn("classes", [2, 3, 10, 100])
def test_known_constants(classes):
    """1 - p bends most where only a rival is left, as the logistic function: sqrt 3 / 9 in the scores."""
    ce, mae = certified("ce", classes), certified("mae", classes)
    assert ce.lipschitz == pytest.approx(math.sqrt(2), rel=1e-6)
    assert ce.smoothness == pytest.approx(0.5, rel=1e-6)
    assert (ce.slope, ce.gradient_against_ce) == pytest.approx((1, 1), rel=1e-12)
    assert ce.locally_symmetric
    assert not ce.symmetric
    assert mae.lipschitz == pytest.approx(math.sqrt(2) / 4, rel=1e-6)
    assert mae.smoothness == pytest.approx(math.sqrt(3) / 9, rel=1e-4)
    assert (mae.low, mae.high) == (0, pytest.approx(1))
    assert mae.slope == pytest.approx(1 / classes, rel=1e-12)
    if classes == 10:
        blended = symloss.certify("alpha-mae:alpha=4", classes).smoothness
        assert blended == pytest.approx(4 * classes * mae.smoothness, rel=1e-4)
        unhinged = symloss.certify("unhinged", classes)
        assert unhinged.smoothness == 0
        assert unhinged.lipschitz == pytest.approx(math.sqrt(1 - 1 / classes), rel=1e-12)


def pick(z, y):
    return z.gather(1, y[:, None]).squeeze(1)


def next_score_less_own(z, y):
    """z_(y+1) - z_y: linear, symmetric, unchanged by the cyclic shift of the classes, and not unhinged."""
    return pick(z, (y + 1) % z.shape[1]) - pick(z, y)


def last_class_apart(z, y):
    """Unchanged when the first two classes are swapped, but not when the last one takes part."""
    return -torch.where(y == z.shape[1] - 1, 2.0, 1.0) * pick(z, y)


@in_turn("classes", [3, 4])
@in_turn("loss", [next_score_less_own, last_class_apart])
def test_one_renaming_is_not_enough(loss, classes):
    """Each of these is unchanged by one of the two renamings that make up all others, and changed by the other."""
    finding = symloss.certify(loss, classes).permutation_invariant
    assert not finding
    example = finding.counter_example
    a, b = (torch.tensor(example.scores[name], dtype=torch.float64) for name in "ab")
    new_label = int(example.seen.split("label ")[1].split(",")[0])
    assert torch.equal(a.sort().values, b.sort().values)
    assert a[example.label] == b[new_label]
    before, after = (loss(z[None], torch.tensor([y])) for z, y in ((a, example.label), (b, new_label)))
    assert float((before - after).abs()) == pytest.approx(finding.measure)
    assert symloss.certify(next_score_less_own, 2).permutation_invariant  # two classes have one renaming


def test_a_jump_upwards_is_no_decrease():
    """The derivative is -0.001 wherever there is one; the value jumps up by 1 at 0.1."""
    finding = symloss.certify(lambda z, y: (pick(z, y) > 0.1).double() - 0.001 * pick(z, y), 3).non_increasing
    assert not finding
    a, b, label = *finding.counter_example.scores.values(), finding.counter_example.label
    assert [k for k in range(3) if a[k] != b[k]] == [label]
    assert a[label] <= 0.1 < b[label]
    assert finding.measure == pytest.approx(1, abs=1e-3)
    assert symloss.certify(lambda z, y: (pick(z, y) < 0.1).double() - 0.001 * pick(z, y), 3).non_increasing


def test_linear_losses_kinks_ramps_and_growth():
    """A kink has no bounded curvature, only chords see a ramp, a logarithm grows, a tail that levels off is bounded."""
    linear = symloss.certify(lambda z, y: -pick(z, y), 4)  # which is no function of log p (sec. 3)
    assert all(linear.findings[fact] for fact in ("permutation_invariant", "non_increasing", "convex"))
    assert not linear.symmetric
    assert not linear.locally_symmetric
    assert linear.slope == pytest.approx(1)
    margin = symloss.certify(torch.nn.MultiMarginLoss(), 4)
    assert margin.smoothness == math.inf
    assert margin.convex
    assert margin.lipschitz < 2
    assert not symloss.certify(lambda z, y: (1 - pick(z, y)).clamp(0, 2), 3).convex
    square = symloss.certify(lambda z, y: (1 - pick(z, y)) ** 2, 3)
    assert square.lipschitz == math.inf
    assert not square.bounded
    assert not symloss.certify(lambda z, y: (1 + pick(z, y).square()).log(), 3).bounded
    assert symloss.certify(lambda z, y: -pick(z, y) / (1 + pick(z, y).abs()), 3).bounded


@in_turn(
    ("normalize", "said"),
    [("l2", "UnitScores(temperature=1, eps=1e-05)"), (symloss.losses.EpsSoftmax(3.0), "EpsSoftmax(m=3)")],
)
def test_a_map_of_the_scores_keeps_symmetry(normalize, said):
    """Label-free maps leave the sum over labels constant; convexity they need not keep."""
    certificate = symloss.certify("unhinged", 4, normalize=normalize)
    assert certificate.symmetric
    assert not certificate.convex
    assert not symloss.certify("ce", 4, normalize=normalize).symmetric
    assert str(certificate).startswith(f"unhinged, 4 classes, scores after {said} up to 1e+06 (gradients up to 40)\n")


def test_what_can_be_certified():
    """A name, an expression, a module of ours or torch's, a function: the same certificate; and class weights."""
    by_name = symloss.certify("ce", 4).to_dict()
    for loss in (symloss.CE(), torch.nn.CrossEntropyLoss(), torch.nn.functional.cross_entropy):
        other = symloss.certify(loss, 4).to_dict()
        for key in ("lipschitz", "smoothness", "slope"):
            assert other[key] == pytest.approx(by_name[key], rel=1e-4)
        for fact in ("symmetric", "convex", "bounded", "non_increasing"):
            assert other[fact]["holds"] == by_name[fact]["holds"]
    weight = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert symloss.certify(symloss.MAE(weight=weight), 3).symmetric
    assert not symloss.certify(symloss.CE(weight=weight), 3).symmetric
    assert not symloss.certify(lambda z, y: weight[y] * symloss.MAE(reduction="none")(z, y), 3).symmetric


def test_bad_input():
    def certify(loss, classes=3):
        return lambda: symloss.certify(loss, classes)

    all_refused(
        (ValueError, "classes must be a whole number in [2, inf); got 1", certify("ce", 1)),
        (ValueError, "classes must be a whole number in [2, inf); got 2.5", certify("ce", 2.5)),
        (ValueError, "there is no loss named 'nope'", certify("nope")),
        (TypeError, "loss must be a Loss, a torch module or a function", certify(3)),
        (ValueError, "one value for each example ... got shape ()", certify(lambda z, y: z.sum())),
    )


def test_text_and_data():
    certificate = symloss.certify("ce", 12)
    for part in ("no   symmetric", "12 in all", "1.41421 (exact to 1e-4)"):
        assert part in str(certificate)
    data = certificate.to_dict()
    assert data["constants"] == {"lipschitz": "exact to 1e-4", "smoothness": "exact to 1e-4"}
    assert type(data["smoothness"]) is float
    assert data["high"] == data["bounded"]["measure"] == "inf"
    assert len(data["symmetric"]["counter_example"]["scores"]["a"]) == 12


# Lipschitz and smoothness constants: exact ones against formulas and brute force, others called lower bounds.

POTENTIALS = ["ce", "mae", "rce", "gce", "focal", "agce", "aul", "ael", "taylor-ce", "phuber-ce", "phuber-gce", "js"]
SUMS = ["sgce", "mse", "nce", "nfl", "ngce", "nce+rce", "nce+ael"]


@functools.cache
def constants(name, classes):
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
    for margin in torch.arange(-9, 9, 0.03).tolist():  # along the unit vector (1, -1) / sqrt 2
        low, middle, high = (loss(reference.mpf(margin) + k * step) for k in (-1, 0, 1))
        slopes.append(abs(float((high - low) / (2 * step))) * math.sqrt(2))
        bends.append(abs(float((high - 2 * middle + low) / step**2)) * 2)
    for constant, found in zip(CONSTANTS, (slopes, bends), strict=True):
        exact = getattr(constants(name, 10), constant)
        assert max(found) <= exact * (1 + 1e-4)
        assert max(found) >= exact * (1 - 0.05)


def steepest(loss, classes):
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
    axes = torch.arange(-700, 20, 0.5, dtype=torch.float64), torch.arange(0, 20, 0.05, dtype=torch.float64)
    logs = torch.nn.functional.pad(torch.cartesian_prod(*axes), (0, 1))  # the label, a rival, the rest at 0
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
    shown = [str(each) for each in (beta, Constant(1.25, exact=True), Constant(math.inf))]
    assert shown == ["0.5 (at least)", "1.25 (exact to 1e-4)", "inf"]
    assert [(multiple, multiple.exact) for multiple in (2 * beta, beta * 2, beta / 0.5)] == [(1, False)] * 3
    assert (Constant(0.5, exact=True) / 2).exact
    assert torch.equal(beta * torch.ones(2), torch.full((2,), 0.5))
