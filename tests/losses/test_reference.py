"""Values and gradients of every loss in float64, against plain formulas in 100 digits and against golden figures."""

import functools
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import reference
import torch
from conftest import every_loss
from in_turn import in_turn
from interesting_parameters import interesting_specs
from loss_batches import NORMALIZED

import symloss
from symloss.losses.catalogue import RECORDS
from symloss.losses.spec import parse

CLASSES = (2, 3, 10)


def numbers_of_classes(spec: str) -> tuple[int, ...]:
    """Two classes are evaluated by other formulas than more of them; ten only at the defaults."""
    return CLASSES if ":" not in spec else CLASSES[:2]


@functools.cache
def rows(classes: int) -> tuple[list[list[float]], list[int]]:
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
    scores, labels = rows(classes)
    masked = [
        [-math.inf if (k - y) % classes in (1, 3)[: 1 + i % 2] else score for k, score in enumerate(row)]
        for i, (row, y) in enumerate(zip(scores, labels, strict=True))
    ]
    return masked, labels


def ours(spec: str, scores: list[list[float]], labels: list[int], **options: Any) -> tuple[list[float], list[list]]:
    z = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    values = symloss.create_loss(spec, reduction="none", **options)(z, torch.tensor(labels))
    values.sum().backward()
    assert z.grad is not None
    return values.tolist(), z.grad.tolist()


def check(spec: str, scores: list[list[float]], labels: list[int], normalize: str | None = None) -> None:
    """Value and gradient to 1e-9. Where terms cancel, float64 keeps 1e-16 of the terms, which are of size 1 or less."""
    name, parameters = parse(spec)
    values, gradients = ours(spec, scores, labels, normalize=normalize)
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
            check(spec, *rows(classes))
            if spec in NORMALIZED:
                check(spec, *rows(classes), normalize="l2")


@every_loss
def test_masked_class_is_as_good_as_dropped(name: str) -> None:
    for classes in (3, 10):
        check(name, *masked_rows(classes))
        if name in NORMALIZED:
            check(name, *masked_rows(classes), normalize="l2")


@every_loss
def test_sum_over_labels_is_constant_where_claimed(name: str) -> None:
    """The constant is the reference's at equal scores; a loss that is not said to be symmetric must not look it."""
    for spec in interesting_specs(name):
        _, parameters = parse(spec)
        for classes in numbers_of_classes(spec):
            claimed = RECORDS[name].facts.at(classes, **(RECORDS[name].defaults | parameters))["symmetric"]
            every = symloss.create_loss(spec).loss.per_class(torch.tensor(rows(classes)[0], dtype=torch.float64))
            constant = sum(reference.value(name, [0.0] * classes, y, **parameters) for y in range(classes))
            off = (every.sum(1) - constant).abs() / (1 + every.abs().sum(1))
            assert (float(off.max()) < 1e-9) == claimed, (spec, classes, off)
            for value, z, y in zip(every[range(6), rows(classes)[1]].tolist(), *rows(classes), strict=True):
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
