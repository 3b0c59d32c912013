"""Certificates: every declared fact measured both ways, known constants, and counter-examples that hold up."""

import math

import pytest
import torch
from conftest import certified, every_loss
from in_turn import in_turn
from interesting_parameters import interesting_settings
from refusals import all_refused
from representatives import REPRESENTATIVES

import symloss
from symloss.losses.catalogue import RECORDS

SIZES = (2, 3, 10, 100)

# Functions of the label's probability, plus multiples of unhinged: exact constants for any number of classes.
LABEL_ALONE = {"unhinged", "alpha-mae", "symmetrized-mse", "ce", "mae", "rce", "gce", "focal", "agce", "aul", "ael"}
LABEL_ALONE |= {"taylor-ce", "phuber-ce", "phuber-gce", "js", "sce", "label-smoothing", "dirichlet-ce"}

# Close to a bound at which a fact changes, and for losses whose other tests are of the defaults alone.
BESIDE_A_BOUND = [
    ("alpha-mae", {"alpha": 1.1}),
    ("gce", {"q": 0.99}),
    ("taylor-ce", {"t": 6}),
    ("phuber-ce", {"tau": 1.5}),
    ("phuber-ce", {"tau": 3.0}),
    ("sce", {"alpha": 9.3}),
    ("sce", {"alpha": 9.0}),
    ("dirichlet-ce", {"alpha": 0.9}),
]


@pytest.mark.slow
@every_loss
def test_declared_facts(name):
    """A fact that is declared must hold, one that is denied must show a counter-example that holds up.

    Every loss has three classes, and other numbers where it declares something else for them. Ten classes are searched
    in another way: for one loss of each way of evaluation.
    """
    record = RECORDS[name]
    declared = {c: [each.at(c, **record.defaults) for each in (record.facts, record.constants)] for c in (2, 3, 10)}
    for classes in (2, 3, 10):
        if declared[classes] != declared[3] or classes == 3 or (classes == 10 and name in REPRESENTATIVES):
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
    [(*special, 3) for special in special_settings()] + [(*beside, 10) for beside in BESIDE_A_BOUND],
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
        assert certificate.lipschitz.exact
        assert certificate.smoothness.exact
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
        b = vectors["b"]
        return value((a + b) / 2) - (value(a) + value(b)) / 2
    if fact == "non_increasing":
        step = torch.zeros_like(a)
        step[y] = 1e-6
        return (value(a + step) - value(a - step)) / 2e-6
    assert fact == "bounded"
    near, far, farther = (value(a / shrink) for shrink in (1e4, 1e2, 1))
    assert abs(farther - far) > 0.9 * abs(far - near) > 0.1
    return math.inf


@in_turn("classes", SIZES)
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


def test_losses_of_raw_scores():
    """A loss that is no function of log p: -z_y (sec. 3)."""
    linear = symloss.certify(lambda z, y: -pick(z, y), 4)
    assert linear.permutation_invariant
    assert linear.non_increasing
    assert linear.convex
    assert not linear.symmetric
    assert not linear.locally_symmetric
    assert linear.slope == pytest.approx(1)


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
    a, b = (torch.tensor(finding.counter_example.scores[name], dtype=torch.float64) for name in "ab")
    label = finding.counter_example.label
    assert torch.equal(a.sort().values, b.sort().values)
    new_label = int(finding.counter_example.seen.split("label ")[1].split(",")[0])
    every = [loss(point[None], torch.tensor([y])) for point, y in ((a, label), (b, new_label))]
    assert a[label] == b[new_label]
    assert float((every[0] - every[1]).abs()) == pytest.approx(finding.measure)
    assert symloss.certify(next_score_less_own, 2).permutation_invariant  # two classes have one renaming


def test_a_jump_upwards_is_no_decrease():
    """The derivative is -0.001 wherever there is one; the value jumps up by 1 at 0.1."""
    finding = symloss.certify(lambda z, y: (pick(z, y) > 0.1).double() - 0.001 * pick(z, y), 3).non_increasing
    assert not finding
    example = finding.counter_example
    a, b = example.scores["a"], example.scores["b"]
    assert [k for k in range(3) if a[k] != b[k]] == [example.label]
    assert a[example.label] <= 0.1 < b[example.label]
    assert finding.measure == pytest.approx(1, abs=1e-3)
    assert symloss.certify(lambda z, y: (pick(z, y) < 0.1).double() - 0.001 * pick(z, y), 3).non_increasing


def test_kinks_ramps_and_growth():
    """A kink has no bounded curvature, only chords see a ramp, a logarithm grows, a tail that levels off is bounded."""
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
    assert str(certificate).startswith(f"unhinged, 4 classes, scores after {said}\n")


def test_what_can_be_certified():
    """A name, an expression, a module of ours or torch's, a function: the same certificate."""
    by_name = symloss.certify("ce", 4).to_dict()
    for loss in (symloss.CE(), torch.nn.CrossEntropyLoss(), torch.nn.functional.cross_entropy):
        other = symloss.certify(loss, 4).to_dict()
        for key in ("lipschitz", "smoothness", "slope"):
            assert other[key] == pytest.approx(by_name[key], rel=1e-4)
        for fact in ("symmetric", "convex", "bounded", "non_increasing"):
            assert other[fact]["holds"] == by_name[fact]["holds"]


def test_class_weights_break_symmetry_unless_the_loss_keeps_it():
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
        (ValueError, "differentiable", certify(lambda z, y: (z.argmax(1) != y).double())),
        (ValueError, "one value for each example ... got shape ()", certify(lambda z, y: z.sum())),
    )


def test_text_and_data():
    certificate = symloss.certify("ce", 12)
    text = str(certificate)
    assert "no   symmetric" in text
    assert "12 in all" in text
    assert "1.41421 (exact to 1e-4)" in text
    data = certificate.to_dict()
    assert data["constants"] == {"lipschitz": "exact to 1e-4", "smoothness": "exact to 1e-4"}
    assert type(data["smoothness"]) is float
    assert data["high"] == "inf"
    assert len(data["symmetric"]["counter_example"]["scores"]["a"]) == 12
