"""Proofs by construction and by interval arithmetic: they claim nothing that is denied, and bounds hold everything."""

import math

import pytest
import torch
from in_turn import in_turn
from loss_helpers import interesting_settings

import symloss
from symloss.losses import potentials as phi
from symloss.losses.base import Loss
from symloss.losses.catalogue import RECORDS
from symloss.theory.intervals import Interval, proves
from symloss.theory.proofs import PROOFS, proof

POTENTIALS = [
    *(phi.MAEPotential(), phi.GCEPotential(0.7), phi.FocalPotential(0.5), phi.FocalPotential(2.0)),
    *(phi.AGCEPotential(0.001, 2.0), phi.AGCEPotential(4.0, 0.2), phi.AULPotential(6.0, 1.5), phi.AELPotential(2.5)),
    *(phi.AULPotential(1.001, 0.5), phi.TaylorCEPotential(6), phi.PHuberCEPotential(10.0), phi.JSPotential(0.3)),
    phi.PHuberGCEPotential(0.7, 10.0),
]


@in_turn("potential", POTENTIALS)
def test_bounds_hold_what_the_formula_gives(potential):
    """At points of cells of all sizes, with the exact ends among them; narrow cells have narrow bounds."""
    ends = torch.tensor([-math.inf, -1e9, -800, -700, -40, -3, -1, -0.51, -0.5, -1e-3, -1e-12, 0], dtype=torch.float64)
    narrow = torch.linspace(-5, -0.1, 200, dtype=torch.float64)
    for formula in (potential.phi, potential.derivative):
        for edges in (ends, narrow):
            low, high = edges[:-1], edges[1:]
            bounds = formula(Interval(low, high, exact=True))
            for share in (0.0, 0.3, 0.9, 1.0):
                inside = high if share == 1 else torch.where(low == -math.inf, 3 * high, low + share * (high - low))
                values = formula(inside)
                assert ((bounds.low <= values) & (values <= bounds.high)).all(), (formula, share)
        assert (bounds.high - bounds.low).max() < 1


def test_arithmetic_of_intervals():
    def at(low, high):
        return Interval(*(torch.tensor([end], dtype=torch.float64) for end in (low, high)), exact=True)

    def ends(found):
        return found.low.item(), found.high.item()

    assert ends(at(-2, 3) * at(-1, 5)) == pytest.approx((-10, 15))
    assert ends(at(0, 0) * at(-math.inf, math.inf)) == (0, 0)
    assert ends(1 / at(-1, 2)) == (-math.inf, math.inf)
    assert ends(1 / at(0, 2)) == pytest.approx((0.5, math.inf))
    assert ends(at(1, 2) - at(1, 2)) == pytest.approx((-1, 1))
    assert ends(3 - at(1, 2) / 2) == pytest.approx((2, 2.5))
    assert ends(at(0.25, 4).pow(-0.5)) == pytest.approx((0.5, 2))
    assert ends(at(-1000, -900).exp()) == (0, 5e-324)  # which is above 0 all the same
    third = Interval.of(1.0, at(0, 1)) / 3
    assert third.low.item() < 1 / 3 < third.high.item()
    assert ends(torch.where(at(-1, 1) > 0, at(1, 2), at(5, 6))) == (1, 6)
    assert ends(torch.where(at(-1, -0.5) > 0, at(1, 2), at(5, 6))) == (5, 6)


def test_what_is_not_so_has_no_proof():
    """A potential that rises on a thousandth of the line, one that is not bounded, and a formula of other functions."""
    falls = phi.GCEPotential(0.7).derivative

    def with_a_rise(logp):
        return falls(logp) + 1.0 * (1 - ((logp + 0.7) * 1000) * ((logp + 0.7) * 1000)).clamp_min(0)

    assert proves(falls, lambda slope: slope.high <= 0)
    assert not proves(with_a_rise, lambda slope: slope.high <= 0)
    assert not proves(phi.CEPotential().phi, lambda value: value.high < math.inf)
    assert not proves(lambda logp: logp.tanh(), lambda value: value.high <= 0)


def settings():
    return [(name, values) for name in RECORDS for values in ({}, *interesting_settings(name))]


def test_proofs_agree_with_declared_facts():
    """At defaults and at special parameters, with two classes and with ten. Most of what is true is proved."""
    true, proved = 0, 0
    for name, values in settings():
        record = RECORDS[name]
        loss = record.loss(**values)
        for classes in (2, 10):
            for fact, holds in record.facts.at(classes, **(record.defaults | values)).items():
                found = proof(loss, fact, classes)
                assert holds or not found, (name, values, fact, found)
                true, proved = true + holds, proved + bool(found)
    assert proved > 0.85 * true


class Declared(phi.MAEPotential):
    """A potential of somebody else, who declares what they like."""


def test_only_the_catalogue_is_proved():
    assert PROOFS["bounded"](Declared(), 3)
    assert not proof(Declared(), "bounded", 3)
    card = symloss.certify("mae", 3)
    assert {found.proof for found in card.findings.values()} == {"", "by construction", "by interval arithmetic"}
    mapped = symloss.certify("mae", 3, normalize="l2")
    assert not any(found.proof for found in mapped.findings.values())
    assert isinstance(Declared(), Loss)
    rising = symloss.create_loss("alpha-mae:alpha=2").loss
    assert not proof(rising, "non_increasing", 3)
    assert not proof(-1.0 * phi.CEPotential(), "convex", 3)
    assert proof(symloss.symmetrize(-1.0 * phi.CEPotential()), "convex", 3)
