"""The classes of the losses: what their docstrings say, what follows from it, what others expect; losses as text."""

import importlib.util
import inspect
import math
import pathlib
import sys
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from importlib import resources
from typing import get_args

import pytest
import torch
from conftest import CLASSES, assert_close, every_loss, random_labels, random_scores, value_and_grad
from in_turn import in_turn
from loss_batches import ROUND_TRIPS, WEIGHT, other_parameters, picked
from loss_helpers import REPRESENTATIVES, WITHOUT_SLOPE, class_of, every_path, function_of, leaf_types
from refusals import refused
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, normalize

import symloss
from symloss import functional
from symloss.experiments.layers import resolve_layers
from symloss.loss_names import LossName
from symloss.losses.catalogue import LOSSES, RECORDS, SOURCES
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.kernels.targets import Unit, kernel_for
from symloss.losses.operators import as_loss
from symloss.losses.published import FILE, PAPER
from symloss.losses.spec import describe, parse, split, write

ROOT = pathlib.Path(__file__).parents[2]
SCORES, LABELS = random_scores(6, CLASSES), random_labels(6)


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
    assert ways(name) <= COVERED, "add the loss to tests/loss_helpers.py, with what it stands for"
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


# --- Losses as text: composed ones and one's own, what they are, and where a bad one is wrong ------------------------

P = SCORES.softmax(1)
P_Y = picked(P, LABELS)
UNHINGED = (SCORES.mean(1) - picked(SCORES, LABELS)).mean()
CE, MAE = cross_entropy(SCORES, LABELS), (1 - P_Y).mean()

SPEC_STRINGS = {
    "gce": ("gce", {}),
    "gce:": ("gce", {}),
    "gce:q=.5,": ("gce", {"q": 0.5}),
    " gce : q = 0.7 , scale = ce ": ("gce", {"q": 0.7, "scale": "ce"}),
    "sgce:normalize=None": ("sgce", {"normalize": None}),
    "taylor-ce:t=3": ("taylor-ce", {"t": 3}),
    "label-smoothing:r=-2e-1": ("label-smoothing", {"r": -0.2}),
    "nce+agce:alpha=1,beta=4,a=6,q=1.5": ("nce+agce", {"alpha": 1, "beta": 4, "a": 6, "q": 1.5}),
    "ce:ignore_index=-1,reduction=sum": ("ce", {"ignore_index": -1, "reduction": "sum"}),
    "gce:reduction=none,normalize=none": ("gce", {"reduction": "none", "normalize": None}),
    "sgce:preset=cifar100-step": ("sgce", {"preset": "cifar100-step"}),
    "mae:deviation=doubled-mae": ("mae", {"deviation": "doubled-mae"}),
}


@in_turn("spec", SPEC_STRINGS)
def test_spec_strings_are_read(spec):
    name, values = SPEC_STRINGS[spec]
    assert repr(parse(spec)) == repr((name, values)), "types too"
    assert repr(symloss.create_loss(spec)) == repr(symloss.create_loss(name, **values))


FOCAL, FOCAL_Y = (-((1 - p) ** 2) * p.log() for p in (P, P_Y))
REFERENCE = {
    "symmetrize(focal:gamma=2)": (FOCAL_Y - FOCAL.mean(1)).mean(),
    "blend(sgce:q=0.5, alpha=0.3)": 0.7 * UNHINGED + 0.3 * 4**0.5 * ((P**0.5).mean(1) - P_Y**0.5).mean() / 0.5,
    "0.5*gce:q=0.7 + 0.5*symmetrize(mse)": (0.5 * (1 - P_Y**0.7) / 0.7 + 0.25 - P_Y).mean(),
    "2*(ce - 0.5*mae)": 2 * CE - MAE,
    "symmetrize(2*ce)": 2 * UNHINGED,
    "-1*mae + ce": CE - MAE,
    "relative(ce)": (P_Y.log() / log_softmax(SCORES, 1).sum(1)).mean(),
    "dirichlet((sce:beta=0), alpha=0.5)": CE + 0.5 * log_softmax(SCORES, 1).sum(1).mean(),
    "complement(mae, bound=1)": MAE,
    "symmetrize(ce):normalize=l2": functional.unhinged(normalize(SCORES), LABELS, normalize=None),
    "symmetrize(ce, normalize=l2,temperature=0.5)": functional.unhinged(SCORES, LABELS, temperature=0.5),
    "(ce + mae):reduction=sum": 6 * (CE + MAE),
    "torch.nn.functional:cross_entropy": CE,
    "symmetrize(torch.nn.functional:cross_entropy)": UNHINGED,
    "0.5*torch.nn.functional:cross_entropy + mae": 0.5 * CE + MAE,
}


@in_turn("spec", REFERENCE)
def test_a_composed_loss_is_what_it_says(spec):
    assert_close(symloss.create_loss(spec)(SCORES, LABELS), REFERENCE[spec])


@in_turn("spec", [*REFERENCE, "sgce:q=0.5,normalize=none", "dirichlet(ce + (sce:beta=1), alpha=2)"])
def test_what_is_written_is_read_as_the_same(spec):
    assert parse(write(*parse(spec))) == parse(spec)


def test_one_loss_has_one_text():
    """Two ways to write it are one run."""
    texts = ["blend(sgce:q=0.5,alpha=0.3)", " blend( sgce:q=.5 , alpha = 0.30 ) ", "blend((sgce:q=0.5), alpha=0.3)"]
    assert {write(*parse(text)) for text in texts} == {"blend(sgce:q=0.5, alpha=0.3)"}
    assert write(*parse("symmetrize(ce, normalize=l2)")) == write(*parse("symmetrize(ce):normalize=l2"))
    assert parse("(gce:q=0.5)") == parse("gce:q=0.5")


def test_keywords_join_the_spec():
    """A composed loss acts on raw scores, also where a loss inside it would take them divided by their norm."""
    weight = torch.ones(4)
    loss = symloss.create_loss("sgce:q=0.5", normalize=None, weight=weight)
    assert repr(loss) == repr(symloss.SGCE(0.5, normalize=None, weight=[1, 1, 1, 1]))
    assert loss.weight is weight
    assert_close(symloss.create_loss("2*unhinged")(SCORES, LABELS), 2 * UNHINGED)
    assert symloss.create_loss("2*unhinged", normalize="l2").normalize == "l2"
    loss = symloss.create_loss("symmetrize(ce)", reduction="none", label_smoothing=0.2)
    assert (loss.reduction, loss.label_smoothing) == ("none", 0.2)
    with refused(TypeError, "symmetrize(ce) has no parameter 'q'", "options are"):
        symloss.create_loss("symmetrize(ce)", q=0.5)


def test_commas_inside_brackets_never_separate_losses():
    text = "ce, blend(sgce:q=0.5, alpha=0.3),0.5*sce:alpha=1,beta=2 + mae,mine:loss,symmetrize(ce),normalize=l2"
    first = ["ce", "blend(sgce:q=0.5, alpha=0.3)", "0.5*sce:alpha=1,beta=2 + mae"]
    assert split(text) == [*first, "mine:loss", "symmetrize(ce),normalize=l2"]


BAD = {
    "": (1, "at the end", "expected a loss", "gce"),
    "symmetrize(focl:gamma=2)": (12, "'focl'", "did you mean 'focal'?"),
    "symmetrize(focal:gama=2)": (18, "'gama=2'", "did you mean 'gamma'?"),
    "gce:gamma=2 + ce": (5, "'gamma=2'", "nothing takes this key", "q"),
    "symetrize(ce)": (1, "'symetrize'", "did you mean 'symmetrize'?"),
    "symmetrize(ce": (14, "at the end", "expected key=value or ')'"),
    "symmetrize(ce))": (15, "')'", "or the end"),
    "symmetrize(ce, mae)": (16, "'mae'", "key=value"),
    "symmetrize(ce, alpha=3)": (16, "'alpha=3'", "known are", "normalize"),
    "blend(sgce, alpa=3)": (13, "'alpa=3'", "did you mean 'alpha'?"),
    "symmetrize(symmetrize(ce, normalize=l2))": (27, "'normalize=l2'", "options of the whole come last"),
    "symmetrize(ce, normalize=l2):normalize=none": (30, "normalize is given twice"),
    "symmetrize(ce, normalize=l2) + mae": (30, "'+'", "options of the whole come last"),
    "2*symmetrize(ce, normalize=l2)": (18, "'normalize=l2'", "options of the whole come last"),
    "ce + ": (6, "expected a loss"),
    "ce +mae": (4, "'+mae'", "' + '"),
    "ce + mae:q=3": (10, "'q=3'", "nothing takes this key"),
    "gce q=.5": (5, "'q'"),
    "1e999*ce": (1, "'1e999'", "finite"),
    "blend(sgce)": (1, "alpha=... after the loss"),
    "dirichlet(sce:beta=1, alpha=0.5)": (1, "alpha", "brackets"),
    "(" * 100_000: (41, "more than 40 brackets"),
    100_000 * "symmetrize(" + "ce" + 100_000 * ")": (441, "more than 40 brackets"),
}


@in_turn("spec", BAD)
def test_a_bad_spec_is_refused_at_its_place(spec):
    place, *ingredients = BAD[spec]
    with refused(ValueError, f"character {place},", *ingredients):
        symloss.create_loss(spec)


@in_turn(
    "spec, exception, ingredients",
    [
        ("blend(sgce:q=7, alpha=0.3)", ValueError, ["q must be a number in (0, 1]", "got 7", "(in sgce:q=7)"]),
        ("blend(ce, alpha=0.3)", ValueError, ["symmetric", "(in blend(ce, alpha=0.3))"]),
        ("no_such_package.losses:mine", ValueError, ["no module 'no_such_package'"]),
        ("torch.nn:mine", ValueError, ["'torch.nn:mine'", "has no 'mine'"]),
        ("torch.nn:CrossEntropyLoss", TypeError, ["the class CrossEntropyLoss", "an instance"]),
        ("ce+mae", ValueError, ["no loss named 'ce+mae'", "did you mean 'nce+mae'?"]),
    ],
)
def test_a_loss_that_cannot_be_built(spec, exception, ingredients):
    with refused(exception, *ingredients):
        symloss.create_loss(spec)


@pytest.fixture
def own_losses(tmp_path, monkeypatch):
    (tmp_path / "losses_of_mine.py").write_text(
        "import torch, symloss\n"
        "def linear(input, target):\n    return -input.gather(1, target[:, None]).squeeze(1)\n"
        "module = torch.nn.CrossEntropyLoss()\n"
        "expression = symloss.symmetrize(linear)\n"
    )
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("losses_of_mine", None)


def test_a_loss_of_ones_own(own_losses):
    assert describe(parse("symmetrize(losses_of_mine:linear)")[0]).name == "symmetrize(losses_of_mine:linear)"
    assert "losses_of_mine" not in sys.modules, "reading a spec imports nothing"
    for spec, expected in {
        "losses_of_mine:linear": -picked(SCORES, LABELS).mean(),
        "symmetrize(losses_of_mine:linear)": UNHINGED,
        "losses_of_mine:expression": UNHINGED,
        "2*losses_of_mine:module": 2 * CE,
    }.items():
        assert_close(symloss.create_loss(spec)(SCORES, LABELS), expected)
    assert symloss.certify("symmetrize(losses_of_mine:linear)", 3).symmetric.holds
    assert not symloss.certify("losses_of_mine:linear", 3).symmetric.holds


def test_a_loss_at_its_labels_is_called_once_for_each_row():
    """Only what needs every label calls a function of one's own with every label."""
    rows = []

    def counted(input, target):
        rows.append(len(input))
        return cross_entropy(input, target, reduction="none")

    symloss.Criterion(as_loss(counted))(SCORES, LABELS)
    symloss.symmetrize(counted)(SCORES, LABELS)
    assert rows == [6, 24]


# --- What public code computes differently from its paper, when it is asked for ---------------------------------------

LOG_ZERO, BOUND = -math.log(1e-4), -math.log(1e-7)
# Scores with probabilities below 1e-7, where a clamp shows.
FAR = torch.tensor([[25.0, 0.0, 1.0, 2.0], [-1.0, 0.5, 20.0, 1.0]], dtype=torch.float64)


def held(p: Tensor, gamma: float = 0.5) -> Tensor:
    return -((1 - p) ** gamma).detach() * p.log()


def share(every: Tensor) -> Tensor:
    return every / every.sum(1, keepdim=True)


def clamped(p: Tensor) -> Tensor:
    return p.clamp_min(1e-7)


HELD_BOUND = BOUND * (1 - 1e-7) ** 0.5
DEVIATIONS: dict[tuple[str, str], Callable[[Tensor], Tensor]] = {
    # (spec, deviation): the plain formula, of probabilities, at every label
    ("focal", "held-focal-factor"): held,
    ("focal:gamma=2", "held-focal-factor"): lambda p: held(p, 2.0),
    ("nfl", "held-focal-factor"): lambda p: share(held(p)),
    ("nnfl", "held-focal-factor"): lambda p: 1 - share((HELD_BOUND - held(p)).clamp_min(0)),
    ("nfl+mae:alpha=2", "held-focal-factor"): lambda p: 2 * share(held(p)) + 1 - p,
    ("nfl+rce:beta=3", "held-focal-factor"): lambda p: share(held(p)) + 3 * LOG_ZERO * (1 - p),
    ("anl-fl:alpha=5,beta=2", "held-focal-factor"): lambda p: (
        5 * share(held(p)) + 2 * (1 - share((HELD_BOUND - held(p)).clamp_min(0)))
    ),
    ("ce", "clamped-probability"): lambda p: -clamped(p).log(),
    ("mae", "clamped-probability"): lambda p: 1 - clamped(p),
    ("gce:q=0.5", "clamped-probability"): lambda p: (1 - clamped(p) ** 0.5) / 0.5,
    ("nce", "clamped-probability"): lambda p: share(-clamped(p).log()),
    ("sce:alpha=0.1", "clamped-probability"): lambda p: -0.1 * clamped(p).log() + LOG_ZERO * (1 - clamped(p)),
    ("anl-ce", "clamped-probability"): lambda p: share(-clamped(p).log()) + 1 - share(BOUND + clamped(p).log()),
    ("unhinged:normalize=none", "clamped-probability"): lambda p: (
        clamped(p).log().mean(1, keepdim=True) - clamped(p).log()
    ),
    ("mae", "doubled-mae"): lambda p: 2 * (1 - p),
    ("nce+mae:beta=3", "doubled-mae"): lambda p: share(-p.log()) + 6 * (1 - p),
    ("nfl+mae:gamma=2", "doubled-mae"): lambda p: share(-((1 - p) ** 2) * p.log()) + 2 * (1 - p),
}


@in_turn("spec, deviation", DEVIATIONS)
def test_a_deviation_is_what_public_code_computes(spec, deviation):
    """Value and gradient, at every label, far below the clamp too; and it is never the default."""
    formula = DEVIATIONS[spec, deviation]
    loss, default = (symloss.create_loss(spec, reduction="none", **o) for o in ({"deviation": deviation}, {}))
    scores = torch.cat([random_scores(4, CLASSES), FAR])
    for label in range(CLASSES):
        labels = torch.full((6,), label)
        found = value_and_grad(loss, scores, labels)
        expected = value_and_grad(lambda z, y: picked(formula(z.softmax(1)), y), scores, labels)
        assert_close(found, expected, tolerance=1e-8)
    assert not torch.equal(found[1], value_and_grad(default, scores, labels)[1])
