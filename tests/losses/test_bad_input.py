"""Bad input gets one sentence that names the argument, what was given and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from doors import class_of, function_of
from in_turn import in_turn
from refusals import refused
from representatives import every_path
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import symloss
from symloss import functional
from symloss.losses.catalogue import RECORDS
from symloss.losses.operators import Wrapped
from symloss.losses.potentials import CEPotential, MAEPotential
from symloss.losses.score_formulas import CosineFormula, MSEFormula

INF, NAN = math.inf, math.nan
SCORES = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.0, -0.5]])
LABELS = torch.tensor([0, 2])
MASKED = torch.tensor([[0.0, -INF, 1.0], [0.0, 1.0, 2.0]])


def rows(**cases: tuple[Any, ...]) -> pytest.MarkDecorator:
    """One case for each keyword: what is tried, the exception, and (argument, given, allowed)."""
    return pytest.mark.parametrize(
        ("case", "exception", "ingredients"),
        [(case, exception, ingredients) for case, exception, *ingredients in cases.values()],
        ids=[name.replace("_", " ") for name in cases],
    )


# --- Scores and targets ------------------------------------------------------------------------------------------

SHAPES = "(C,), (N, C) or (N, C, d1, ...)"


@rows(
    list=([[1.0, 2.0]], TypeError, "input", "list", "tensor of scores"),
    none=(None, TypeError, "input", "NoneType", "tensor of scores"),
    integers=(SCORES.long(), TypeError, "input", "torch.int64", "floating-point"),
    booleans=(SCORES > 0, TypeError, "input", "torch.bool", "floating-point"),
    complex=(SCORES.to(torch.complex64), TypeError, "input", "torch.complex64", "floating-point"),
    no_dimension=(torch.tensor(1.0), ValueError, "input", "got ()", SHAPES),
    no_classes=(torch.zeros(2, 0), ValueError, "input", "got (2, 0)", "at least one class"),
)
@in_turn("loss", [symloss.GCE(), functional.gce, CEPotential()])
def test_scores(case, exception, ingredients, loss):
    with refused(exception, *ingredients):
        loss(case, LABELS)


@rows(
    list=([0, 2], TypeError, "target", "list", "tensor of labels or of probabilities"),
    number=(0, TypeError, "target", "int", "tensor of labels or of probabilities"),
    booleans=(LABELS > 0, TypeError, "target", "torch.bool", "integer labels or floating-point probabilities"),
    complex=(LABELS.to(torch.complex64), TypeError, "target", "complex64", "integer labels or floating-point"),
    too_many_labels=(torch.tensor([0, 1, 2]), ValueError, "target", "got (3,)", "shape (2,)"),
    column_of_labels=(LABELS[:, None], ValueError, "target", "got (2, 1)", "shape (2,)"),
    integer_one_hot=(torch.eye(3).long()[:2], ValueError, "target", "got (2, 3)", "shape (2,)"),
    labels_as_floats=(LABELS.float(), ValueError, "target", "got (2,)", "class indices must be integers"),
    probabilities_of_4=(torch.full((2, 4), 0.25), ValueError, "target", "got (2, 4)", "input's shape (2, 3)"),
    label_3=(torch.tensor([0, 3]), IndexError, "target", "label 3", "0 to 2"),
    label_minus_1=(torch.tensor([-1, 0]), IndexError, "target", "label -1", "0 to 2 (or ignore_index, -100)"),
    label_255=(torch.tensor([0, 255]).byte(), IndexError, "target", "label 255", "0 to 2"),
    sum_of_1_5=(torch.full((2, 3), 0.5), ValueError, "target", "got a sum of 1.5", "sum to 1"),
    negative=(torch.tensor([[1.5, -0.5, 0.0], [0.0, 0.0, 1.0]]), ValueError, "target", "-0.5", "at least 0"),
    not_a_number=(torch.tensor([[NAN, 0.5, 0.5], [0.0, 0.0, 1.0]]), ValueError, "target", "nan", "probabilities"),
    infinite=(torch.tensor([[INF, 0.5, 0.5], [0.0, 0.0, 1.0]]), ValueError, "target", "inf", "probabilities"),
)
@in_turn("loss", [symloss.GCE(), functional.gce, CEPotential()])
def test_targets(case, exception, ingredients, loss):
    with refused(exception, *ingredients):
        loss(SCORES, case)


def test_labels_of_one_score_vector():
    with refused(ValueError, "target", "got (1,)", "shape ()"):
        symloss.CE()(SCORES[0], LABELS[:1])


def test_labels_of_images():
    images = torch.zeros(2, 3, 4, 5)
    with refused(ValueError, "target", "got (2,)", "(2, 4, 5)"):
        symloss.CE()(images, LABELS)


def test_a_label_out_of_range_is_torchs_exception():
    wrong = torch.tensor([0, 3])
    for loss in (cross_entropy, functional.ce):
        with pytest.raises(IndexError):
            loss(SCORES, wrong)


@pytest.mark.parametrize("name", ["ce", "sgce", "nce+rce"])
@rows(
    label=(torch.tensor([1, 0]), ValueError, "target", "label 1", "-inf", "a class that is present"),
    probability=(torch.tensor([[0.5, 0.5, 0], [0, 0, 1.0]]), ValueError, "target", "-inf", "must be 0 there"),
)
def test_masked_targets(name, case, exception, ingredients):
    with refused(exception, *ingredients):
        symloss.create_loss(name)(MASKED, case)


@every_path
def test_a_masked_label_through_every_path(name):
    """One sentence from kernels and plain formulas alike; a row that is ignored may say what it will."""
    for normalize, shape in ((None, (2, 3)), ("l2", (2, 3)), (None, (2, 3, 4))):
        scores, labels = torch.zeros(shape), torch.zeros(shape[:1] + shape[2:]).long()
        scores[1, 2], labels[1] = -INF, 2
        loss = symloss.create_loss(name, normalize=normalize)
        with refused(ValueError, "target", "label 2", "-inf", "a class that is present"):
            loss(scores, labels)
        labels[1], scores[1, 0] = -100, -INF
        assert loss(scores, labels).isfinite()


def test_an_index_to_ignore_among_probabilities():
    """torch refuses it too: it would be ignored in silence."""
    soft = torch.full((2, 3), 1 / 3)
    with refused(ValueError, "ignore_index", "0", "probabilities"):
        functional.ce(SCORES, soft, ignore_index=0)


# --- Parameters and options, through every door --------------------------------------------------------------------


def by_name(name: str, **options: Any) -> Tensor:
    return symloss.create_loss(name, **options)(SCORES, LABELS)


def by_class(name: str, **options: Any) -> Tensor:
    return class_of(name)(**options)(SCORES, LABELS)


def by_function(name: str, **options: Any) -> Tensor:
    return function_of(name)(SCORES, LABELS, **options)


doors = in_turn("door", [by_name, by_class, by_function])


def refused_number(value: object, exception: type[Exception] = ValueError) -> tuple[Any, ...]:
    return ({"q": value}, exception, "q", f"got {value!r}", "a number in (0, 1]")


@doors
@rows(
    zero=refused_number(0),
    negative=refused_number(-0.5),
    above_one=refused_number(1.5),
    not_a_number=refused_number(NAN),
    infinite=refused_number(INF),
    string=refused_number("x", TypeError),
    true=refused_number(True, TypeError),
    none=refused_number(None, TypeError),
    complex=refused_number(1j, TypeError),
    list=refused_number([0.5], TypeError),
    tensor=refused_number(torch.tensor(0.5), TypeError),
    # Every line of its repr would be a line of the message.
    matrix=({"q": torch.ones(2, 2)}, TypeError, "q", "tensor", "a number in (0, 1]"),
)
def test_parameters(door, case, exception, ingredients):
    with refused(exception, *ingredients):
        door("ngce", **case)


@doors
def test_parameters_are_checked_whatever_came_before(door):
    """1.0 == True, also as the key of a cache."""
    by_function("ngce", q=1.0)
    with refused(TypeError, "q", "got True", "a number in (0, 1]"):
        door("ngce", q=True)


@doors
@pytest.mark.parametrize("t", [1.5, 0, 101, -1], ids="t={}".format)
def test_whole_numbers(door, t):
    with refused(ValueError, "t must", f"got {t}", "a whole number in [1, 100]"):
        door("taylor-ce", t=t)


@doors
@pytest.mark.parametrize(
    ("name", "interval"),
    [("phuber-gce", "(0, 1)"), ("alpha-mae", "[0, 1e6]"), ("aul", "(1, 1000]"), ("bi-tempered", "[0, 1]")],
)
def test_each_parameter_has_its_interval(door, name, interval):
    parameter = RECORDS[name].parameters[0].name
    with refused(ValueError, f"{parameter} must", "got -1", interval):
        door(name, **{parameter: -1})


@doors
@rows(
    typing_error=({"p": 0.5}, TypeError, "gce", "'p'", "its parameters are: q"),
    legacy_option=({"size_average": True}, TypeError, "gce", "'size_average'", "reduction"),
)
def test_unknown_parameters(door, case, exception, ingredients):
    with refused(exception, *ingredients):
        door("gce", **case)


@doors
def test_a_loss_without_parameters(door):
    with refused(TypeError, "ce", "'q'", "its parameters are: none"):
        door("ce", q=0.5)


@pytest.mark.parametrize("door", [by_class, by_function], ids=["class", "function"])
@pytest.mark.parametrize("key", ["preset", "deviation"])
def test_only_create_loss_takes_presets_and_deviations(door, key):
    """So the message must not offer what it has just refused."""
    with pytest.raises(TypeError) as caught:
        door("gce", **{key: "cifar10"})
    message = str(caught.value)
    assert message.count(key) == 1
    assert "its parameters are: q" in message
    assert "\n" not in message


REDUCTIONS = "'mean', 'sum', 'none'"
NORMALIZE = "None, 'l2' or a function of the scores"
ABOVE_ZERO = "a number in (0, inf)"
WEIGHT = "a floating-point tensor with one entry for each class"


@doors
@rows(
    reduction=({"reduction": "avg"}, ValueError, "reduction", "got 'avg'", REDUCTIONS),
    reduction_none=({"reduction": None}, ValueError, "reduction", "got None", REDUCTIONS),
    reduction_list=({"reduction": ["mean"]}, ValueError, "reduction", "got ['mean']", REDUCTIONS),
    normalize=({"normalize": "l1"}, ValueError, "normalize", "got 'l1'", NORMALIZE),
    normalize_number=({"normalize": 3}, ValueError, "normalize", "got 3", NORMALIZE),
    normalize_list=({"normalize": [1]}, ValueError, "normalize", "got [1]", NORMALIZE),
    scale=({"scale": "mae"}, ValueError, "scale", "got 'mae'", "None, 'ce'"),
    scale_number=({"scale": 2.0}, ValueError, "scale", "got 2.0", "None, 'ce'"),
    scale_list=({"scale": ["ce"]}, ValueError, "scale", "got ['ce']", "None, 'ce'"),
    temperature_alone=({"temperature": 0.5}, ValueError, "temperature=0.5", "normalize=None", "normalize='l2'"),
    temperature_zero=({"normalize": "l2", "temperature": 0}, ValueError, "temperature", "got 0", ABOVE_ZERO),
    temperature_negative=({"normalize": "l2", "temperature": -1.0}, ValueError, "temperature", "-1.0", ABOVE_ZERO),
    temperature_nan=({"normalize": "l2", "temperature": NAN}, ValueError, "temperature", "got nan", ABOVE_ZERO),
    temperature_string=({"normalize": "l2", "temperature": "x"}, ValueError, "temperature", "got 'x'", ABOVE_ZERO),
    temperature_true=({"normalize": "l2", "temperature": True}, TypeError, "temperature", "got True", ABOVE_ZERO),
    label_smoothing=({"label_smoothing": 1.5}, ValueError, "label_smoothing", "got 1.5", "a number in [0, 1]"),
    label_smoothing_string=({"label_smoothing": "x"}, TypeError, "label_smoothing", "got 'x'", "a number in [0, 1]"),
    ignore_index=({"ignore_index": 1.5}, TypeError, "ignore_index", "got 1.5", "a whole number"),
    ignore_index_true=({"ignore_index": True}, TypeError, "ignore_index", "got True", "a whole number"),
    ignore_index_none=({"ignore_index": None}, TypeError, "ignore_index", "got None", "a whole number"),
    weight_words=({"weight": ["a", "b", "c"]}, TypeError, "weight", "'a'", "a list of numbers"),
    weight_number=({"weight": 2.0}, TypeError, "weight", "got 2.0", "a list of numbers"),
    weight_integers=({"weight": torch.ones(3).long()}, TypeError, "weight", "got torch.int64", WEIGHT),
    weight_of_4=({"weight": torch.ones(4)}, ValueError, "weight", "got (4,)", "(3,)", "one entry for each class"),
    weight_column=({"weight": torch.ones(3, 1)}, ValueError, "weight", "got (3, 1)", "one entry for each class"),
    weight_empty=({"weight": torch.ones(0)}, ValueError, "weight", "got (0,)", "one entry for each class"),
)
def test_options(door, case, exception, ingredients):
    with refused(exception, *ingredients):
        door("gce", **case)


@pytest.mark.parametrize("name", ["unhinged", "sgce", "alpha-mae"])
@doors
def test_temperature_of_a_loss_whose_l2_was_switched_off(door, name):
    with refused(ValueError, "temperature=0.5", "normalize=None", "normalize='l2'"):
        door(name, normalize=None, temperature=0.5)


@pytest.mark.parametrize("name", ["ce", "mae", "nce+rce"])
def test_number_of_classes_and_of_weights(name):
    """Symmetric or not, and found at the first batch: only then the number of classes is known."""
    loss = symloss.create_loss(name, weight=torch.ones(4))
    with refused(ValueError, "weight", "got (4,)", "(3,)"):
        loss(SCORES, LABELS)


@pytest.mark.parametrize("shape", [(3, 3), ()], ids=str)
def test_a_shape_of_weights_that_never_fits(shape):
    """Refused at once, and without making up a number of classes."""
    with pytest.raises(ValueError, match="weight") as caught:
        symloss.CE(weight=torch.ones(shape))
    message = str(caught.value)
    assert f"got {shape}" in message
    assert "one entry for each class" in message
    assert f"({math.prod(shape)},)" not in message


@rows(
    shorter=(lambda z: z[:, :2], ValueError, "normalize", "(2, 2)", "shape (2, 3)"),
    nothing=(lambda z: None, TypeError, "normalize", "NoneType", "tensor"),
)
def test_a_map_that_returns_no_scores(case, exception, ingredients):
    with refused(exception, *ingredients):
        symloss.CE(normalize=case)(SCORES, LABELS)


@doors
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("sce", {"alpha": 0.0, "beta": 0.0}), ("label-smoothing", {"r": 1.0}), ("nce+mae", {"alpha": 0.0, "beta": 0.0})],
)
def test_scale_of_a_flat_loss(door, name, parameters):
    with refused(ValueError, "scale='ce'", "slope at equal scores", "is 0", "must not be flat"):
        door(name, scale="ce", **parameters)


@doors
@pytest.mark.parametrize("name", ["cosine", "symmetrized-cosine"])
def test_scale_of_a_loss_without_a_slope(door, name):
    with refused(ValueError, "scale", "cosine", "no slope at equal scores"):
        door(name, scale="ce")


# --- Names, spec strings, presets, deviations ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("gec", "gce"),
        ("unhinge", "unhinged"),
        ("nce+rcee", "nce+rce"),
        ("alpha_mae", "alpha-mae"),
        ("GCE", "gce"),
    ],
)
def test_an_unknown_name_gets_the_nearest(given, nearest):
    with refused(ValueError, "loss", repr(given), f"did you mean {nearest!r}"):
        symloss.create_loss(given)


@pytest.mark.parametrize("given", ["zzzzzz", "", ":q=.5"])
def test_a_name_like_no_other_gets_all_of_them(given):
    with refused(ValueError, "loss", repr(given), *symloss.list_losses()):
        symloss.create_loss(given)


@rows(
    number=(5, TypeError, "spec", "got 5", "a string such as 'gce:q=0.7'"),
    none=(None, TypeError, "spec", "got None", "a string"),
    expression=(CEPotential(), TypeError, "spec", "got CE()", "a string"),
    no_value=("gce:q", ValueError, "spec 'gce:q'", "at 'q'", "key=value"),
    no_key=("gce:=5", ValueError, "spec 'gce:=5'", "at '=5'", "key=value"),
    second_item=("nce+mae:alpha=1,beta", ValueError, "spec", "at 'beta'", "key=value"),
    empty_value=("ngce:q=", TypeError, "q must", "got ''", "a number in (0, 1]"),
    not_a_number=("ngce:q=abc", TypeError, "q must", "got 'abc'", "a number in (0, 1]"),
    boolean=("ngce:q=True", TypeError, "q must", "got 'True'", "a number in (0, 1]"),
    nan=("ngce:q=nan", ValueError, "q must", "got nan", "a number in (0, 1]"),
    semicolon=("ngce:q=.5;scale=ce", TypeError, "q must", "got '.5;scale=ce'", "a number in (0, 1]"),
    unknown_key=("gce:p=.5", TypeError, "gce", "'p'", "its parameters are: q", "reduction"),
    twice=("gce:q=.5,q=.6", ValueError, "spec 'gce:q=.5,q=.6'", "q is given twice"),
    weight=("gce:weight=1", TypeError, "weight", "got 1", "a list of numbers"),
)
def test_spec_strings(case, exception, ingredients):
    with refused(exception, *ingredients):
        symloss.create_loss(case)


def test_a_parameter_in_the_spec_and_as_a_keyword():
    with refused(TypeError, "q is given twice", "in 'gce:q=.5'", "as a keyword"):
        symloss.create_loss("gce:q=.5", q=0.6)


@pytest.mark.parametrize("key", ["preset", "deviation", "reduction"])
def test_an_option_in_the_spec_and_as_a_keyword(key):
    with refused(TypeError, f"{key} is given twice", f"in 'gce:{key}=a'", "pass it once"):
        symloss.create_loss(f"gce:{key}=a", **{key: "b"})


GCE_PRESETS = "its presets are: mnist, cifar10, cifar100, webvision"


@rows(
    unknown=(("gce", "imagenet"), ValueError, "gce", "preset 'imagenet'", GCE_PRESETS),
    none_there=(("ce", "cifar10"), ValueError, "ce", "preset 'cifar10'", "its presets are: none"),
    number=(("gce", 3), ValueError, "gce", "preset 3", GCE_PRESETS),
    list=(("gce", ["cifar10"]), ValueError, "gce", "preset ['cifar10']", GCE_PRESETS),
)
def test_presets(case, exception, ingredients):
    name, preset = case
    with refused(exception, *ingredients):
        symloss.create_loss(name, preset=preset)


DEVIATIONS = "'held-focal-factor', 'clamped-probability', 'doubled-mae'"


@pytest.mark.parametrize("given", ["clamped", "", 3, ["doubled-mae"]], ids=repr)
def test_unknown_deviations(given):
    with refused(ValueError, "deviation must", f"got {given!r}", DEVIATIONS):
        symloss.create_loss("gce", deviation=given)


@pytest.mark.parametrize(
    ("name", "deviation"),
    [
        ("ce", "doubled-mae"),
        ("gce", "held-focal-factor"),
        ("mse", "clamped-probability"),
        ("rce", "doubled-mae"),
        ("alpha-mae", "doubled-mae"),  # divides by the slope, which is doubled too
        ("nnce", "clamped-probability"),  # has the same bound by definition
    ],
)
def test_deviations_that_change_nothing(name, deviation):
    with refused(ValueError, f"deviation {deviation!r}", "changes nothing in", "leave it out"):
        symloss.create_loss(name, deviation=deviation)


# --- The algebra -------------------------------------------------------------------------------------------------


def by_position(scores: Tensor, labels: Tensor) -> Tensor:
    """A loss that knows its classes by number: renaming them changes it."""
    return (labels + 1) * (scores.mean(1) - scores.gather(1, labels[:, None])[:, 0])


@rows(
    not_symmetric=(CEPotential, ValueError, "blend", "CE()", "symmetric loss"),
    sum_not_symmetric=(
        lambda: CEPotential() + MAEPotential(),
        ValueError,
        "blend",
        "CE() + MAE()",
        "symmetric loss",
    ),
    flat=(lambda: 0 * MAEPotential(), ValueError, "blend", "slope at equal scores", "is 0", "must not be flat"),
    without_slope=(
        lambda: symloss.symmetrize(CosineFormula()),
        ValueError,
        "blend",
        "cosine",
        "no slope at equal scores",
    ),
    positional=(
        lambda: symloss.symmetrize(Wrapped(by_position)),
        ValueError,
        "blend",
        "symmetrize(by_position)",
        "permutation-invariant loss",
    ),
    # The repr of a module has many lines.
    positional_module=(
        lambda: symloss.symmetrize(symloss.CE(weight=torch.tensor([1.0, 2.0, 3.0]))).loss,
        ValueError,
        "blend",
        "CE(weight=[1.0, 2.0, 3.0])",
        "permutation-invariant loss",
    ),
)
def test_blend(case, exception, ingredients):
    with refused(exception, *ingredients):
        symloss.losses.blend(case(), 2.0)(SCORES, LABELS)


@pytest.mark.parametrize(
    ("alpha", "exception"), [(-1, ValueError), (NAN, ValueError), ("x", TypeError), (True, TypeError)]
)
def test_alpha_of_blend(alpha, exception):
    with refused(exception, "alpha", f"got {alpha!r}", "a number in [0, inf)"):
        symloss.losses.blend(MAEPotential(), alpha)


@pytest.mark.parametrize(
    "loss", [MSEFormula(), CEPotential() + MAEPotential(), symloss.losses.relative(CEPotential())], ids=repr
)
def test_complement_without_a_bound(loss):
    with refused(ValueError, "complement", "bound", repr(loss), "probability alone"):
        symloss.losses.complement(loss)


@rows(
    p_min_zero=({"p_min": 0}, ValueError, "p_min", "got 0", "a number in (0, 1)"),
    p_min_string=({"p_min": "x"}, TypeError, "p_min", "got 'x'", "a number in (0, 1)"),
    bound_string=({"bound": "x"}, TypeError, "bound", "got 'x'", "a number in (-inf, inf)"),
    bound_nan=({"bound": NAN}, ValueError, "bound", "got nan", "a number in (-inf, inf)"),
)
def test_bounds_of_complement(case, exception, ingredients):
    with refused(exception, *ingredients):
        symloss.losses.complement(CEPotential(), **case)


@rows(
    zero=(0, ValueError, "alpha", "got 0", "a number in (0, inf)"),
    nan=(NAN, ValueError, "alpha", "got nan", "a number in (0, inf)"),
    string=("x", TypeError, "alpha", "got 'x'", "a number in (0, inf)"),
    true=(True, TypeError, "alpha", "got True", "a number in (0, inf)"),
    words=(["a"], TypeError, "alpha", "got ['a']", "a list of numbers"),
    negative_entry=(torch.tensor([1.0, -2.0, 1.0]), ValueError, "alpha", "got -2", "above 0"),
    nan_entry=(torch.tensor([1.0, NAN, 1.0]), ValueError, "alpha", "got nan", "above 0"),
    four_entries=(torch.ones(4), ValueError, "alpha", "got shape (4,)", "each of the 3 classes", "(2, 3)"),
    wrong_rows=(torch.ones(5, 3), ValueError, "alpha", "got shape (5, 3)", "each of the 3 classes", "(2, 3)"),
)
def test_alpha_of_dirichlet(case, exception, ingredients):
    with refused(exception, *ingredients):
        symloss.losses.dirichlet(CEPotential(), case)(SCORES, LABELS)


@rows(
    string=("x", TypeError, "transition", "got 'x'", "a list of numbers"),
    list=([1.0], ValueError, "transition", "got (1,)", "square tensor"),
    vector=(torch.ones(3), ValueError, "transition", "got (3,)", "square tensor"),
    rectangle=(torch.full((3, 2), 0.5), ValueError, "transition", "got (3, 2)", "square tensor"),
    integers=(torch.eye(3).long(), TypeError, "transition", "torch.int64", "floating-point"),
    columns_sum=(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), ValueError, "transition", "got a sum of", "sum to 1"),
    negative=(torch.tensor([[2.0, -1.0], [0.0, 1.0]]), ValueError, "transition", "-1", "at least 0"),
    four_classes=(torch.eye(4), ValueError, "transition", "got (4, 4)", "(3, 3)"),
)
def test_transition(case, exception, ingredients):
    with refused(exception, *ingredients):
        symloss.losses.noisy(CEPotential(), case)(SCORES, LABELS)


@rows(
    string=("x", TypeError, "prior", "'x'", "one entry for each class"),
    strings=(["a", "b", "c"], TypeError, "prior", "'a'", "one entry for each class"),
    number=(0.3, TypeError, "prior", "0.3", "one entry for each class"),
    integers=(torch.tensor([1, 0, 0]), TypeError, "prior", "torch.int64", "floating-point"),
    two_entries=([0.5, 0.5], ValueError, "prior", "got (2,)", "(3,)", "one entry for each class"),
    matrix=(torch.eye(3), ValueError, "prior", "got (3, 3)", "one entry for each class"),
    sum_of_1_2=([0.5, 0.6, 0.1], ValueError, "prior", "got a sum of 1.2", "sum to 1"),
    negative=([1.5, -0.5, 0.0], ValueError, "prior", "-0.5", "at least 0"),
    empty=([], ValueError, "prior", "got (0,)", "one entry for each class"),
)
@in_turn(
    "use",
    [
        lambda prior: symloss.symmetrize(CEPotential(), prior),
        lambda prior: symloss.symmetrize(nn.CrossEntropyLoss(), prior),
        lambda prior: symloss.decompose(cross_entropy, prior).insensitive,
    ],
)
def test_prior(case, exception, ingredients, use):
    with refused(exception, *ingredients):
        use(case)(SCORES, LABELS)


@pytest.mark.parametrize(
    "take", [symloss.symmetrize, lambda *given: symloss.decompose(*given)[1]], ids=["symmetrize", "decompose"]
)
def test_a_prior_whose_whole_mass_is_masked(take):
    """One sentence wherever labels are looked at; a row that is ignored may be masked as it likes."""
    loss = 2 * take(CEPotential(), [0.0, 0.5, 0.5]) + CEPotential()
    scores = torch.zeros(2, 3, dtype=torch.float64)
    scores[1] = torch.tensor([0.0, -torch.inf, -torch.inf])
    labels = torch.tensor([1, 0])
    for use in (
        lambda: loss(scores, labels),
        lambda: loss(scores, torch.eye(3, dtype=torch.float64)[labels]),
        lambda: loss.per_class(scores),
    ):
        with refused(ValueError, "prior gives probability 0", "-inf", "it must be above 0"):
            use()
    scores.requires_grad_()
    value = loss(scores, torch.tensor([1, -100]))
    value.backward()
    assert value.isfinite()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("loss", [3, None, [CEPotential()]], ids=repr)
@pytest.mark.parametrize("take", [symloss.symmetrize, symloss.decompose], ids=["symmetrize", "decompose"])
def test_what_cannot_be_symmetrized(take, loss):
    given = f"got {type(loss).__name__}"
    with refused(TypeError, "loss must be", given, "a function of (input, target)"):
        take(loss)


@pytest.mark.parametrize("take", [symloss.symmetrize, symloss.decompose], ids=["symmetrize", "decompose"])
def test_a_class_instead_of_a_module(take):
    """The slip is common, and torch's message at the first batch is about the truth of tensors."""
    with refused(TypeError, "loss must be", "CrossEntropyLoss", "module"):
        take(nn.CrossEntropyLoss)


def mean_only(scores: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(scores, labels)


@rows(
    scalar=(mean_only, ValueError, "mean_only", "got shape ()", "one value for each example", "(6,)"),
    scores=(lambda z, y: z, ValueError, "<lambda>", "got shape (6, 3)", "one value for each example"),
    nothing=(lambda z, y: None, ValueError, "<lambda>", "got NoneType", "one value for each example"),
    number=(lambda z, y: 1.0, ValueError, "<lambda>", "got float", "one value for each example"),
)
def test_losses_that_do_not_return_one_value_for_each_example(case, exception, ingredients):
    for robust in (symloss.symmetrize(case), *symloss.decompose(case)):
        with refused(exception, *ingredients):
            robust(SCORES, LABELS)


OPERATORS: dict[str, Callable[[Any], object]] = {
    "relative": symloss.losses.relative,
    "complement": symloss.losses.complement,
    "blend": lambda loss: symloss.losses.blend(loss, 2.0),
    "dirichlet": lambda loss: symloss.losses.dirichlet(loss, 0.5),
    "noisy": lambda loss: symloss.losses.noisy(loss, torch.eye(3)),
    "Criterion": symloss.Criterion,
}


@in_turn("operator", OPERATORS)
@in_turn("given", [3, None, nn.CrossEntropyLoss])
def test_operators_take_losses(operator, given):
    """It must not fail at the first batch, or deep inside."""
    with refused(TypeError, "loss must be", "got"):
        OPERATORS[operator](given)


# --- Maps of the scores, and the penalty -----------------------------------------------------------------------------


@rows(
    temperature=(lambda: symloss.losses.UnitScores(0), ValueError, "temperature", "got 0", ABOVE_ZERO),
    eps=(lambda: symloss.losses.UnitScores(1.0, eps=-1.0), ValueError, "eps", "got -1.0", ABOVE_ZERO),
    m=(lambda: symloss.losses.EpsSoftmax(-1), ValueError, "m must", "got -1", "a number in [0, inf)"),
    m_string=(lambda: symloss.losses.EpsSoftmax("x"), TypeError, "m must", "got 'x'", "a number in [0, inf)"),
    batch_norm=(lambda: symloss.losses.BatchNormScores(3)(torch.zeros(3)), ValueError, "scores", "got (3,)", "(N, C)"),
    classes=(lambda: symloss.losses.BatchNormScores(0), ValueError, "num_classes", "got 0", "a whole number"),
    classes_string=(lambda: symloss.losses.BatchNormScores("x"), TypeError, "classes", "got 'x'", "a whole number"),
    model=(lambda: symloss.losses.append_scores("x"), TypeError, "model", "got str", "torch.nn.Module"),
    layer=(lambda: symloss.losses.append_scores(nn.ReLU(), "l2"), TypeError, "layer", "got str", "torch.nn.Module"),
    delta=(
        lambda: symloss.losses.l1_penalty(nn.Linear(1, 1), -1),
        ValueError,
        "delta",
        "got -1",
        "a number in [0, inf)",
    ),
    delta_string=(lambda: symloss.losses.l1_penalty(nn.Linear(1, 1), "x"), TypeError, "delta", "got 'x'", "a number"),
    no_tensors=(
        lambda: symloss.losses.l1_penalty([], 1.0),
        ValueError,
        "parameters",
        "got none",
        "at least one tensor",
    ),
    no_parameters=(
        lambda: symloss.losses.l1_penalty(nn.ReLU(), 1.0),
        ValueError,
        "parameters",
        "got none",
        "one tensor",
    ),
    not_tensors=(lambda: symloss.losses.l1_penalty(["x"], 1.0), TypeError, "parameters", "str", "tensor"),
)
def test_maps_and_penalty(case, exception, ingredients):
    with refused(exception, *ingredients):
        case()
