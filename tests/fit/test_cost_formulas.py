"""The formulas for what a fit costs agree with the seconds that were measured."""

import statistics

import fit_cost
import pytest

FOUND = fit_cost.costs(fit_cost.KEPT)


def test_formulas_are_right_within_a_factor_of_two_for_nine_shapes_in_ten():
    assert statistics.fmean(map(fit_cost.is_right, FOUND)) >= 0.9


@pytest.mark.parametrize("learner", fit_cost.SETTINGS)
def test_no_learner_is_far_off(learner):
    found = [cost for cost in FOUND if cost.candidate.learner == learner]
    assert statistics.fmean(map(fit_cost.is_right, found)) >= 0.8
    assert 0.5 < statistics.median(cost.ratio for cost in found if not cost.more) < 2
