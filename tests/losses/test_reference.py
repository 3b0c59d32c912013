"""Values and gradients of every loss, against plain formulas in 100 digits and against golden figures.

At the end parameters are drawn from all that the record of a loss admits, towards the ends of their ranges, and the
ends themselves where they belong to the range; scores are moderate, confident or hopeless. Kernels and plain formulas
must both hold, in float32 and in float64.
"""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import reference
import torch
from conftest import every_loss
from hypothesis import given, note, settings, strategies as st
from in_turn import in_turn
from loss_batches import NORMALIZED
from loss_helpers import interesting_specs
from refusals import refused

import symloss
from symloss.checks import Interval
from symloss.losses.catalogue import RECORDS
from symloss.losses.record import Parameter
from symloss.losses.spec import parse

CLASSES = (2, 3, 10)


def numbers_of_classes(spec: str) -> tuple[int, ...]:
    """Two classes are evaluated by other formulas than more of them; ten only at the defaults."""
    return CLASSES if ":" not in spec else CLASSES[:2]


@functools.cache
def batch_of(classes: int) -> tuple[list[list[float]], list[int]]:
    """Scores and labels: at random, all 0 (where training starts), and a label that leads or trails by 12."""
    draw = random.Random(classes)
    scores = [[draw.gauss(0, 2) for _ in range(classes)] for _ in range(5)] + [[0.0] * classes]
    labels = [(3 * i + 1) % classes for i in range(len(scores))]
    for row, lead in ((3, 12), (4, -12)):
        others = max(score for k, score in enumerate(scores[row]) if k != labels[row])
        scores[row][labels[row]] = others + lead
    return scores, labels


def masked_rows(classes: int) -> tuple[list[list[float]], list[int]]:
    """The same with classes masked out: one that is not the label in every row, two in every second row."""
    scores, labels = batch_of(classes)
    masked = [
        [-math.inf if (k - y) % classes in (1, 3)[: 1 + i % 2] else score for k, score in enumerate(row)]
        for i, (row, y) in enumerate(zip(scores, labels, strict=True))
    ]
    return masked, labels


def our_batch(spec: str, scores: list[list[float]], labels: list[int], **options: Any) -> tuple[list, list]:
    z = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    values = symloss.create_loss(spec, reduction="none", **options)(z, torch.tensor(labels))
    values.sum().backward()
    assert z.grad is not None
    return values.tolist(), z.grad.tolist()


def check_batch(spec: str, scores: list[list[float]], labels: list[int], normalize: str | None = None) -> None:
    """Value and gradient to 1e-9. Where terms cancel, float64 keeps 1e-16 of the terms, which are of size 1 or less."""
    name, parameters = parse(spec)
    values, gradients = our_batch(spec, scores, labels, normalize=normalize)
    for z, y, value, gradient in zip(scores, labels, values, gradients, strict=True):
        expected = reference.value(name, z, y, normalize=normalize, **parameters)
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-13), (spec, z, y)
        slopes = reference.gradient(name, z, y, normalize=normalize, **parameters)
        terms = max(1.0, *map(abs, slopes))
        assert gradient == pytest.approx(slopes, rel=1e-9, abs=1e-15 * terms), (spec, z, y)


@every_loss
def test_value_and_gradient(name: str) -> None:
    for spec in interesting_specs(name):
        for classes in numbers_of_classes(spec):
            check_batch(spec, *batch_of(classes))
            if spec in NORMALIZED:
                check_batch(spec, *batch_of(classes), normalize="l2")


@every_loss
def test_masked_class_is_as_good_as_dropped(name: str) -> None:
    for classes in (3, 10):
        check_batch(name, *masked_rows(classes))
        if name in NORMALIZED:
            check_batch(name, *masked_rows(classes), normalize="l2")


@every_loss
def test_sum_over_labels_is_constant_where_claimed(name: str) -> None:
    """The constant is the reference's at equal scores; a loss that is not said to be symmetric must not look it."""
    for spec in interesting_specs(name):
        _, parameters = parse(spec)
        for classes in numbers_of_classes(spec):
            claimed = RECORDS[name].facts.at(classes, **(RECORDS[name].defaults | parameters))["symmetric"]
            every = symloss.create_loss(spec).loss.per_class(torch.tensor(batch_of(classes)[0], dtype=torch.float64))
            constant = sum(reference.value(name, [0.0] * classes, y, **parameters) for y in range(classes))
            off = (every.sum(1) - constant).abs() / (1 + every.abs().sum(1))
            assert (float(off.max()) < 1e-9) == claimed, (spec, classes, off)
            for value, z, y in zip(every[range(6), batch_of(classes)[1]].tolist(), *batch_of(classes), strict=True):
                expected = reference.value(name, z, y, **parameters)
                assert value == pytest.approx(expected, rel=1e-9, abs=1e-13), "per_class is the loss at each label"


GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())


def test_nothing_is_left_out() -> None:
    assert list(reference.REFERENCE) == symloss.list_losses()
    assert len(GOLDEN["cases"]) == 116


@in_turn("case", GOLDEN["cases"])
def test_golden(case: dict[str, Any]) -> None:
    """Figures of public implementations and of the paper's formulas, printed with ten digits."""
    given = GOLDEN["inputs"][case["inputs"]]
    z = torch.tensor(given["logits"], dtype=torch.float64, requires_grad=True)
    value = symloss.create_loss(case["loss"], **case["params"])(z, torch.tensor(given["target"]))
    value.backward()
    assert value.item() == pytest.approx(case["value"], rel=1e-5)
    assert z.grad is not None
    if case["grad"] is not None:
        for row, expected in zip(z.grad.tolist(), case["grad"], strict=True):
            assert row == pytest.approx(expected, rel=1e-5)


# --- Every parameter that a record admits -----------------------------------------------------------------------------

DIGITS = 200
"""Of the reference: (1 - p^q) / q loses 60 of them at the smallest q that is drawn."""
SMALLEST, LARGEST = 5e-324, 1.7976931348623157e308
ABOVE_1, BELOW_1 = math.nextafter(1, 2), math.nextafter(1, 0)


def exponents(low: float, high: float) -> st.SearchStrategy[float]:
    """Uniform, in quarters."""
    return st.integers(math.ceil(4 * low), math.floor(4 * high)).map(lambda k: k / 4)


def parameter_values(parameter: Parameter) -> st.SearchStrategy[float]:
    """The whole range: its ends where they are closed, and distances from them that are uniform in the logarithm."""
    low, high = (float(end) for end in parameter.interval[1:-1].split(","))
    interval = Interval(parameter.interval)
    if parameter.whole:
        return st.integers(int(low), int(high))
    furthest = 300 if high == math.inf else math.log10(high - low)
    # Numbers that are no end of their range may be as small as they like; weights below 1e-30 are 0 in float32.
    from_low = exponents(-30 if low in interval else -60, furthest).map(lambda x: low + 10.0**x)
    from_high = exponents(-16, furthest).map(lambda x: high - 10.0**x)
    ends = st.sampled_from([end for end in (low, high) if end in interval] or [parameter.default])
    # Beside a low end of 1 only distances from 2e-16 on make another number.
    return (from_low | ends if high == math.inf else from_low | from_high | ends).filter(lambda x: x in interval)


class Row(NamedTuple):
    scores: tuple[float, ...]
    label: int


@st.composite
def rows(draw: Callable[..., Any]) -> Row:
    """Scores in sixteenths, which float32 has; the label stands anywhere, or leads or trails by up to 1000."""
    classes = draw(st.sampled_from([2, 3, 6]))
    scores = [k / 16 for k in draw(st.lists(st.integers(-64, 64), min_size=classes, max_size=classes))]
    label = draw(st.integers(0, classes - 1))
    side = draw(st.sampled_from(["moderate", "confident", "hopeless"]))
    if side != "moderate":
        lead = round(16 * 10 ** draw(exponents(0, 3))) / 16
        leader = max(score for k, score in enumerate(scores) if k != label)
        scores[label] = leader + (lead if side == "confident" else -lead)
    return Row(tuple(scores), label)


def spread(z: tuple[float, ...]) -> float:
    return max(z) - min(z)


def largest_ce(z: tuple[float, ...]) -> float:
    return spread(z) + math.log(len(z))


def length(z: tuple[float, ...]) -> float:
    return max(math.hypot(*z), 1e-5)


# A difference is as good as its terms. Any other value is measured by itself, and by the one at equal scores.
VALUE_TERMS: dict[str, Callable[..., float]] = {
    "unhinged": lambda z: max(map(abs, z)),
    "sgce": lambda z, q: max(reference.value("gce", z, k, q=q) for k in range(len(z))),
    "alpha-mae": lambda z, alpha=0.0, kappa=0.0: (
        (1 if kappa else abs(1 - alpha)) * max(map(abs, z)) + alpha * len(z) + kappa
    ),
    "symmetrized-mse": lambda z: 1.0,
    "symmetrized-cosine": lambda z: 1.0,
    "cosine": lambda z: 1.0,
    "label-smoothing": lambda z, r: (abs(1 - r) + abs(r)) * largest_ce(z),
    "dirichlet-ce": lambda z, alpha: (1 + abs(1 - alpha) * len(z)) * largest_ce(z),
    # Where all scores are within lam it is mean_k z_k - z_y and little more; else a constant is what may cancel.
    "ldr-kl": lambda z, lam, margin: margin + min(spread(z), lam * math.log(len(z))),
}
GRADIENT_TERMS: dict[str, Callable[..., float]] = {
    "sgce": lambda z, q: largest_slope("sgce", z, q=q),
    "ngce": lambda z, q: largest_slope("ngce", z, q=q),
    "alpha-mae": lambda z, alpha=0.0, kappa=0.0: (
        (1 if kappa else abs(1 - alpha)) + (alpha * len(z) + kappa) * largest_slope("mae", z)
    ),
    "symmetrized-mse": lambda z: largest_slope("mae", z),
    "symmetrized-cosine": lambda z: 1 / length(z),
    "cosine": lambda z: 1 / length(z),
    "label-smoothing": lambda z, r: abs(1 - r) + abs(r),
    "dirichlet-ce": lambda z, alpha: 1 + abs(1 - alpha) * len(z),
}


def largest_slope(name: str, z: tuple[float, ...], **parameters: float) -> float:
    """Of the gradient at any label."""
    return max(abs(slope) for y in range(len(z)) for slope in reference.gradient(name, z, y, **parameters))


class Truth(NamedTuple):
    """A value or a gradient, the size of its terms, and its size at equal scores."""

    entries: list[float]
    terms: float
    even: float

    def allowed(self, dtype: torch.dtype) -> float:
        kind = torch.finfo(dtype)
        # Below its smallest normal number the type has few digits, and so have factors of the entries.
        smallest = (kind.smallest_normal + reference.NOISE) * (1 + self.even)
        # A factor such as (1-p)^100 is below that number while its share of the loss is not.
        vanishing = kind.eps**2 * self.even
        return 500 * kind.eps * max(map(abs, self.entries)) + 50 * kind.eps * self.terms + vanishing + smallest


def truths(name: str, row: Row, parameters: dict[str, float], digits: int) -> dict[str, Truth]:
    z, y = row
    zero = (0.0,) * len(z)
    with reference.mp.workdps(digits):
        value, even_value = (reference.value(name, scores, y, **parameters) for scores in (z, zero))
        slopes, even_slopes = (reference.gradient(name, scores, y, **parameters) for scores in (z, zero))
        value_terms = VALUE_TERMS[name](z, **parameters) if name in VALUE_TERMS else abs(even_value)
        slope_terms = GRADIENT_TERMS[name](z, **parameters) if name in GRADIENT_TERMS else 0.0
    even_slope = max(map(abs, even_slopes))
    return {"value": Truth([value], value_terms, abs(even_value)), "gradient": Truth(slopes, slope_terms, even_slope)}


def ours(name: str, row: Row, parameters: dict[str, float], dtype: torch.dtype) -> dict[str, list[float]]:
    z = torch.tensor([row.scores], dtype=dtype, requires_grad=True)
    loss = symloss.create_loss(name, normalize=None, reduction="none", **parameters)
    values = loss(z, torch.tensor([row.label]))
    (gradient,) = torch.autograd.grad(values.sum(), z)
    return {"value": values.tolist(), "gradient": gradient[0].tolist()}


def check(name: str, row: Row, parameters: dict[str, float], digits: int = DIGITS) -> None:
    expected = truths(name, row, parameters, digits)
    for way in (nullcontext, symloss.losses.plain):
        with way():
            for dtype in (torch.float32, torch.float64):
                for what, entries in ours(name, row, parameters, dtype).items():
                    truth = expected[what]
                    close = pytest.approx(truth.entries, rel=0, abs=truth.allowed(dtype))
                    assert entries == close, (way, dtype, what)


def together(name: str, data: st.DataObject) -> list[Parameter]:
    """The parameters of a loss, without one that another may replace, or without the other."""
    parameters = list(RECORDS[name].parameters)
    for replaced, other in ((p.instead_of, p.name) for p in RECORDS[name].parameters if p.instead_of):
        left_out = data.draw(st.sampled_from([replaced, other]), label="left out")
        parameters = [p for p in parameters if p.name != left_out]
    return parameters


@every_loss
@settings(derandomize=True, database=None, deadline=None, max_examples=20)
@given(data=st.data())
def test_every_parameter(name: str, data: st.DataObject) -> None:
    parameters = {p.name: data.draw(parameter_values(p), label=p.name) for p in together(name, data)}
    row = data.draw(rows(), label="row")
    note(f"{name} {parameters} {row}")
    check(name, row, parameters)


@in_turn("margin", [0.0, 1e-20, 5.0])
def test_scores_that_nearly_agree_at_a_high_temperature(margin: float) -> None:
    """log C cancels in LDR-KL: a value of 0.03 was a difference of two numbers of size 69."""
    for scores in ((0.0, 0.0625), (0.0, 0.0), (0.0625, 0.0, 0.0, 0.0, -0.0625, 0.0), (8000.0, 8000.0625, 7990.0)):
        check("ldr-kl", Row(scores, 0), {"lam": 99.0, "margin": margin})


@pytest.mark.parametrize(
    "spec",
    [
        *("gce:q={}", "sgce:q={}", "ngce:q={}", "agce:q={}", "aul:q={}", "phuber-gce:q={}", "agce:a={},q={}"),
        *("focal:gamma={}", "bi-tempered:t1={}", "dirichlet-ce:alpha={}", "nfl:gamma={}"),
    ],
)
@in_turn("number", [SMALLEST, 1e-310, 1e-40, 1e-6])
def test_smallest_numbers(spec: str, number: float) -> None:
    """Those that float32 does not have, and those of which not even float64 has a reciprocal.

    At 1e-6 (1 - p^q) / q is a difference of nearly equal numbers: plain float32 gives 2.03 in place of 2.
    """
    name, parameters = parse(spec.format(number, number))
    for scores in ((1.0, 2.0, -1.0), (9.0, 0.5, 0.0), (-120.0, 0.0, 0.5)):
        check(name, Row(scores, 0), parameters, digits=500)


@pytest.mark.parametrize(
    "spec",
    [
        *(
            "phuber-gce:q=0.997,tau=10",
            f"phuber-gce:q={BELOW_1},tau={LARGEST}",
            f"phuber-gce:q={BELOW_1},tau={ABOVE_1}",
        ),
        *(f"phuber-ce:tau={LARGEST}", f"phuber-ce:tau={ABOVE_1}", f"aul:a={ABOVE_1},q=1e-3", f"aul:a={ABOVE_1},q=10"),
        *("js:pi=1e-6", "js:pi=1e-9", "js:pi=1e-20", f"js:pi={BELOW_1}", "agce:a=10,q=10", "aul:a=1000,q=10"),
        *(f"bi-tempered:t1={BELOW_1},t2={ABOVE_1}", "bi-tempered:t1=0,t2=4", f"sgce:q={BELOW_1}"),
    ],
)
def test_numbers_beside_an_end(spec: str) -> None:
    name, parameters = parse(spec)
    for scores in ((1.0, 2.0, -1.0), (9.0, 0.5, 0.0), (-120.0, 0.0, 0.5)):
        check(name, Row(scores, 0), parameters)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    {
        "agce:a=10,q=308": "(0, 10]",
        "agce:a=10,q=40": "(0, 10]",
        "nce+agce:a=1e4": "(0, 1000]",
        "aul:a=1e4": "(1, 1000]",
        "ael:a=1e-4": "[0.001, 1000]",
        "focal:gamma=1e4": "[0, 100]",
        "js:pi=1e-31": "[1e-30, 1)",
        "sce:alpha=1e39": "[0, 1e6]",
        "alpha-mae:alpha=1e39": "[0, 1e6]",
        "label-smoothing:r=-1e39": "[-1e9, 1]",
        "dirichlet-ce:alpha=1e39": "(0, 1e6]",
    }.items(),
)
def test_numbers_whose_loss_float32_does_not_have(spec: str, allowed: str) -> None:
    with refused(ValueError, "must be a number in", allowed, "got"):
        symloss.create_loss(spec)
