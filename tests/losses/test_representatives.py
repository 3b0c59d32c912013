"""The losses on which options are tested stand for all of them."""

from conftest import every_loss
from representatives import REPRESENTATIVES, WITHOUT_SLOPE

import symloss
from symloss.losses.catalogue import RECORDS
from symloss.losses.kernels.dispatch import Unit, kernel_for


def nodes(loss):
    return [loss] + [node for child in loss.children for node in nodes(child)]


def ways(name):
    """How a loss is evaluated: by which kernels, by which operators, and by which formula where no kernel serves it."""
    loss = RECORDS[name].loss()
    by_kernel = [
        ("kernel", classes, unit, type(kernel_for(loss, classes, unit)))
        for classes in (2, 10)
        for unit in (None, Unit(1.0, 1e-5))
    ]
    plain = kernel_for(loss, 10) is None
    by_operator = [("operator", type(node)) for node in nodes(loss) if node.children]
    by_formula = [("formula", type(node)) for node in nodes(loss) if plain and not node.children]
    return {
        *by_kernel,
        *by_operator,
        *by_formula,
        ("symmetric", type(kernel_for(loss, 10)), loss.symmetric),
    }


COVERED = {way for name in REPRESENTATIVES for way in ways(name)}


@every_loss
def test_a_loss_is_evaluated_as_a_representative_is(name):
    assert ways(name) <= COVERED, "add the loss to tests/representatives.py, with what it stands for"


def test_losses_without_a_slope_are_named():
    assert {name for name in symloss.list_losses() if not has_slope(RECORDS[name].loss())} == set(WITHOUT_SLOPE)


def has_slope(loss):
    try:
        loss.slope(4)
    except ValueError:
        return False
    return True
