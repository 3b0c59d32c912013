"""The classes of the losses: what their docstrings say, what follows from them, and what other libraries expect."""

import importlib.util
import inspect
import pathlib
import tomllib
from contextlib import nullcontext
from importlib import resources
from typing import get_args

import pytest
import torch
from conftest import CLASSES, assert_close, every_loss, random_labels, random_scores, value_and_grad
from doors import class_of, function_of
from in_turn import in_turn
from loss_batches import ROUND_TRIPS, WEIGHT, other_parameters
from refusals import refused
from representatives import REPRESENTATIVES, WITHOUT_SLOPE, every_path, leaf_types

import symloss
from symloss import functional
from symloss.experiments.layers import resolve_layers
from symloss.loss_names import LossName
from symloss.losses.catalogue import LOSSES, RECORDS, SOURCES
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.kernels.targets import Unit, kernel_for
from symloss.losses.published import FILE, PAPER
from symloss.losses.spec import parse, write

ROOT = pathlib.Path(__file__).parents[2]
SCORES, LABELS = random_scores(5, CLASSES), random_labels(5)


def test_a_class_agrees_with_its_record():
    """Formula, ranges, reference and example are written for people. The record reads formula and meanings there."""
    for name, loss in LOSSES.items():
        record, text = RECORDS[name], " ".join(inspect.cleandoc(loss.__doc__).split())
        source = "Lemire Paquin et al., " if record.source == PAPER else SOURCES[record.source]
        assert [record.formula, *(p.meaning for p in record.parameters)].count("") == 0, name
        assert f"Reference: {source}" in text, name
        assert f"{loss.__name__}(" in text, name
        assert ('``normalize="l2"`` is the default here' in text) == (record.normalize == "l2"), name
        *own, options = inspect.signature(loss).parameters.values()
        replaced = {p.instead_of for p in record.parameters}
        defaults = {key: None if key in replaced else value for key, value in record.defaults.items()}
        assert {p.name: p.default for p in own} == defaults
        assert options.kind is options.VAR_KEYWORD
        assert loss.__name__ in dir(symloss.losses)
        assert record.function_name in dir(functional)
        assert type(symloss.create_loss(name)) is getattr(symloss.losses, loss.__name__) is loss
    keywords = [p.name for p in inspect.signature(Criterion).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert list(LossOptions.__annotations__) == keywords
    assert [name for name in RECORDS if name not in LOSSES] == [name for name in RECORDS if "+" in name]


def test_generated_files_are_current():
    """``make generated`` writes them."""
    spec = importlib.util.spec_from_file_location("write_generated", ROOT / "tools" / "write_generated.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert [path.name for path, text in script.generated() if path.read_text() != text] == []
    assert list(get_args(LossName)) == symloss.list_losses()


def test_a_function_takes_parameters_by_position_too():
    assert functional.agce(SCORES, LABELS, 2.0, q=0.5) == functional.agce(input=SCORES, target=LABELS, a=2.0, q=0.5)
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        functional.gce(SCORES, LABELS, 0.5, 0.5)
    with pytest.raises(TypeError, match="multiple values for argument 'q'"):
        functional.gce(SCORES, LABELS, 0.5, q=0.7)


@in_turn("shape", [(4,), (5, 4), (3, 4, 2)])
def test_fastai_finds_probabilities_and_classes(shape):
    scores = torch.randn(shape)
    dim = 0 if len(shape) == 1 else 1
    torch.testing.assert_close(symloss.GCE().activation(scores), scores.softmax(dim))
    unit = scores / scores.norm(dim=dim, keepdim=True)
    torch.testing.assert_close(symloss.SGCE(temperature=0.5).activation(scores), (unit / 0.5).softmax(dim))
    assert torch.equal(symloss.SGCE().decodes(scores), scores.argmax(dim))


# --- Published settings -----------------------------------------------------------------------------------------------

PUBLISHED = {
    # The baselines' table, written out again: parameters, then values for mnist, cifar10, cifar100 and webvision.
    "gce": ("q", ".7", ".7", ".7", ".7"),
    "sce": ("alpha beta", ".01 1", ".1 1", "6 .1", "10 1"),
    "nce+rce": ("alpha beta", "1 10", "1 1", "10 .1", "50 .1"),
    "nce+mae": ("alpha beta", "1 10", "1 1", "10 .1", None),
    "nfl+rce": ("alpha beta gamma", "1 10 .5", "1 1 .5", "10 .1 .5", None),
    "nce+agce": ("alpha beta a q", "0 1 4 .2", "1 4 6 1.5", "10 .1 1.8 3", "50 .1 2.5 3"),
    "nce+aul": ("alpha beta a q", "0 1 3 .1", "1 4 6.3 1.5", "10 .015 6 3", None),
    "nce+ael": ("alpha beta a", "0 1 3.5", "1 4 5", "10 .1 1.5", None),
    "anl-ce": ("alpha beta delta", "1 1 1e-6", "5 5 5e-5", "10 1 5e-7", "20 1 5e-6"),
    "anl-fl": ("alpha beta delta gamma", "1 1 1e-6 .5", "5 5 5e-5 .5", "10 1 5e-7 .5", None),
}


@in_turn("name", [name for name in RECORDS if RECORDS[name].presets])
def test_a_preset_is_the_values_it_states(name):
    entries = tomllib.loads(resources.files("symloss").joinpath(FILE).read_text())[name]
    for where, preset in RECORDS[name].presets.items():
        assert entries[where].get("scores") in (None, "batch-norm")
        stated = symloss.create_loss(name, **preset.values)
        for loss in (symloss.create_loss(name, preset=where), symloss.create_loss(f"{name}:preset={where}")):
            assert repr(loss) == repr(stated)
            assert torch.equal(loss(SCORES, LABELS), stated(SCORES, LABELS))
        assert preset.source
        assert not (preset.batch_norm_scores and stated.normalize), "batch norm or division by the norm, not both"


@in_turn("name", PUBLISHED)
def test_presets_are_the_published_ones(name):
    names, *columns = PUBLISHED[name]
    published = dict(zip(("mnist", "cifar10", "cifar100", "webvision"), columns, strict=True))
    presets = RECORDS[name].presets
    assert set(presets) == {where for where, numbers in published.items() if numbers}
    for where, preset in presets.items():
        values = dict(zip(names.split(), map(float, published[where].split()), strict=True))
        assert preset.penalty == values.pop("delta", None)
        assert dict(preset.values) == values


# --- The losses on which options are tested stand for all of them -----------------------------------------------------


def operators(loss):
    return {type(loss)}.union(*map(operators, loss.children)) if loss.children else set()


def ways(name):
    """How a loss is evaluated: by which kernels, by which operators, and by which formula where no kernel serves it."""
    loss = RECORDS[name].loss()
    units = (None, Unit(1.0, 1e-5))
    return {
        *(("kernel", c, unit, type(kernel_for(loss, c, unit))) for c in (2, 10) for unit in units),
        *operators(loss),
        *(leaf_types(loss) if kernel_for(loss, 10) is None else ()),
        ("symmetric", type(kernel_for(loss, 10)), loss.symmetric),
    }


COVERED = {way for name in REPRESENTATIVES for way in ways(name)}


@every_loss
def test_a_loss_is_evaluated_as_a_representative_is(name):
    assert ways(name) <= COVERED, "add the loss to tests/representatives.py, with what it stands for"
    with pytest.raises(ValueError, match="slope") if name in WITHOUT_SLOPE else nullcontext():
        RECORDS[name].loss().slope(4)


# --- Each loss as a function, as a module and as a text ---------------------------------------------------------------


@every_loss
def test_function_module_and_spec_agree_bit_for_bit(name):
    """At the defaults, and at other parameters, which make another loss."""
    found = []
    for values in ({}, other_parameters(name)):
        spec = f"{name}:{','.join(f'{key}={value!r}' for key, value in values.items())}"
        expected = value_and_grad(function_of(name), SCORES, LABELS, **values)
        by_position = [class_of(name)(*values.values())] if name in LOSSES else []
        for module in (class_of(name)(**values), symloss.create_loss(spec), *by_position):
            assert_close(value_and_grad(module, SCORES, LABELS), expected, tolerance=0.0)
        found.append(expected[0])
    assert torch.equal(*found) == (not values)


@every_path
@in_turn("way", ROUND_TRIPS)
def test_modules_survive_copies(name, way):
    options = {"ignore_index": 1, "label_smoothing": 0.1, "normalize": "l2", "temperature": 0.5}
    loss = symloss.create_loss(name, weight=WEIGHT.clone(), **options, **other_parameters(name))
    twin = ROUND_TRIPS[way](loss)
    assert type(twin) is type(loss)
    assert repr(twin) == repr(loss)
    assert torch.equal(twin(SCORES, LABELS), loss(SCORES, LABELS))
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
    assert_close(loss(SCORES, LABELS), symloss.create_loss(name, weight=WEIGHT)(SCORES, LABELS))


# --- alpha-MAE by ``kappa``: against alpha, and at every door. The reference has its formula --------------------------


@in_turn("classes", [2, 10, 151_936])
def test_alpha_and_kappa_give_each_other(classes):
    """At alpha = kappa / (kappa + C) the loss is 1 - alpha times that of kappa."""
    scores, labels = random_scores(2, classes, spread=3.0), random_labels(2, classes=classes)
    for alpha, kappa in ((2 / (2 + classes), 2.0), (0.25, classes / 3)):
        expected = value_and_grad(symloss.AlphaMAE(kappa=kappa, normalize=None), scores, labels)
        found = value_and_grad(symloss.AlphaMAE(alpha, normalize=None), scores, labels)
        assert_close(found, tuple((1 - alpha) * each for each in expected), tolerance=1e-11)


def test_alpha_and_kappa_together():
    for alpha, door in (
        (2.0, lambda: symloss.AlphaMAE(2.0, 3.0)),
        (0.5, lambda: symloss.create_loss("alpha-mae:alpha=0.5,kappa=3.0")),
        (0.5, lambda: functional.alpha_mae(torch.zeros(2, 4), torch.tensor([0, 3]), 0.5, kappa=3.0)),
    ):
        with refused(ValueError, "alpha-mae takes alpha or kappa, not both", f"got alpha={alpha} and kappa=3.0"):
            door()
    with refused(ValueError, "kappa must", "[0, 1e6]", "got -1"):
        symloss.AlphaMAE(kappa=-1)
    for text in ("alpha-mae:kappa=2", "alpha-mae:kappa=0.5,scale=ce"):
        assert write(*parse(text)) == text
    assert parse("symmetrize(alpha-mae:kappa=2)")[0] == "symmetrize(alpha-mae:kappa=2)"
    assert symloss.create_loss("alpha-mae:kappa=2").loss == symloss.AlphaMAE(kappa=2).loss
    assert repr(symloss.AlphaMAE(kappa=2).loss) == "symmetrize(CE()) + 2 * MAE()"
    assert symloss.AlphaMAE().loss == symloss.AlphaMAE(2.0).loss == symloss.AlphaMAE(alpha=None, kappa=None).loss


def test_given_values_override_a_preset():
    loss = symloss.create_loss("nce+agce:preset=cifar10", q=2.0, reduction="sum")
    assert repr(loss) == repr(symloss.create_loss("nce+agce:alpha=1,beta=4,a=6,q=2", reduction="sum"))
    assert symloss.create_loss("alpha-mae:preset=cifar10,kappa=3").loss == symloss.AlphaMAE(kappa=3).loss
    resolved = resolve_layers("cifar10", "cifar10", "alpha-mae:kappa=3")
    assert resolved.settings.loss == "alpha-mae:kappa=3"
    assert resolved.parameters == {"loss.kappa": 3}
    assert resolve_layers("cifar10", "cifar10", "alpha-mae").parameters == {"loss.alpha": 2.0}
