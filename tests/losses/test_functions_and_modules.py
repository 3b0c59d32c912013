"""Each loss as a function, as a module and as a text: the same values, options, and copies."""

from __future__ import annotations

import torch
from conftest import CLASSES, LOSSES, assert_close, every_loss, random_labels, random_scores, value_and_grad
from doors import class_of, function_of
from in_turn import in_turn
from loss_batches import ROUND_TRIPS, WEIGHT, other_parameters
from representatives import every_path

import symloss
from symloss import functional
from symloss.losses import catalogue
from symloss.losses.catalogue import RECORDS


@every_loss
def test_function_module_and_spec_agree_bit_for_bit(name):
    """At the defaults, and at other parameters, which make another loss."""
    defaults = assert_every_way_agrees(name, {})
    values = other_parameters(name)
    if values:
        assert not torch.equal(assert_every_way_agrees(name, values), defaults)


def assert_every_way_agrees(name, values):
    """Returns the loss."""
    spec = f"{name}:{','.join(f'{key}={value!r}' for key, value in values.items())}"
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    expected = value_and_grad(function_of(name), scores, labels, **values)
    by_position = [class_of(name)(*values.values())] if name in catalogue.LOSSES else []
    for module in (class_of(name)(**values), symloss.create_loss(spec), *by_position):
        value, gradient = value_and_grad(module, scores, labels)
        assert torch.equal(value, expected[0])
        assert torch.equal(gradient, expected[1])
    return expected[0]


@every_path
@in_turn(
    "options",
    [
        {"reduction": "sum", "ignore_index": 0},
        {"label_smoothing": 0.2, "weight": WEIGHT},
        {"normalize": "l2", "temperature": 0.5},
        {"normalize": None},
    ],
)
def test_function_and_module_take_the_same_options(name, options):
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    function = function_of(name)(scores, labels, **options)
    assert torch.equal(function, symloss.create_loss(name, **options)(scores, labels))


def test_public_names_exist_and_are_listed():
    for name, loss in catalogue.LOSSES.items():
        assert loss.__name__ in dir(symloss.losses)
        assert RECORDS[name].function_name in dir(functional)
        assert type(symloss.create_loss(name)) is getattr(symloss.losses, loss.__name__) is loss
    assert [name for name in LOSSES if name not in catalogue.LOSSES] == [name for name in LOSSES if "+" in name]


@every_path
@in_turn("way", ROUND_TRIPS)
def test_modules_survive_copies(name, way):
    options = {"ignore_index": 1, "label_smoothing": 0.1, "normalize": "l2", "temperature": 0.5}
    loss = symloss.create_loss(name, weight=WEIGHT.clone(), **options, **other_parameters(name))
    twin = ROUND_TRIPS[way](loss)
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    assert type(twin) is type(loss)
    assert repr(twin) == repr(loss)
    assert torch.equal(twin(scores, labels), loss(scores, labels))
    twin.weight.fill_(1)
    assert torch.equal(loss.weight, WEIGHT), "the copy has a weight of its own"


@every_path
def test_weight_moves_and_is_no_part_of_a_checkpoint(name):
    """Moved with ``.to``, as torch's; but what was saved with weights can be loaded without them, and the reverse."""
    loss = symloss.create_loss(name, weight=WEIGHT.float())
    assert list(loss.parameters()) == []
    assert loss.state_dict() == symloss.create_loss(name).state_dict() == {}
    symloss.create_loss(name).load_state_dict({"weight": WEIGHT})  # of a checkpoint of version 0.1
    loss.load_state_dict({"weight": torch.ones(CLASSES)})
    assert torch.equal(loss.weight, WEIGHT.float())
    loss.to(torch.float64)
    assert loss.weight.dtype == torch.float64
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    assert_close(loss(scores, labels), symloss.create_loss(name, weight=WEIGHT)(scores, labels))
