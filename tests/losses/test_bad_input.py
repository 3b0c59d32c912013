"""Bad input gets one sentence that names the argument, what was given and what is allowed."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from conftest import value_and_grad
from in_turn import in_turn
from loss_helpers import class_of, every_path, function_of
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import symloss
from symloss import checks, functional, losses
from symloss.atlas.data import drawn_losses
from symloss.losses.operators import Wrapped
from symloss.losses.potentials import CEPotential, MAEPotential
from symloss.losses.score_formulas import CosineFormula, MSEFormula

INF, NAN = math.inf, math.nan
SCORES = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.0, -0.5]])
LABELS = torch.tensor([0, 2])
MASKED = torch.tensor([[0.0, -INF, 1.0], [0.0, 1.0, 2.0]])
ABOVE_ZERO = "a number in (0, inf)"
Row = tuple[Any, ...]


def refusing(calls: Iterable[Callable[[Any], object]], *table: Row) -> Callable[[], None]:
    """A test that each call refuses each row: what it is given, the exception, and the ingredients of its message."""

    @in_turn(("case", "exception", "ingredients"), [(case, error, rest) for case, error, *rest in table])
    def test(case: Any, exception: type[Exception], ingredients: list[str]) -> None:
        for call in calls:
            with refused(exception, *ingredients):
                call(case)

    return test


# --- Scores and targets ------------------------------------------------------------------------------------------

KINDS = (symloss.GCE(), functional.gce, CEPotential())

test_scores = refusing(
    [lambda scores, loss=loss: loss(scores, LABELS) for loss in KINDS],
    ([[1.0, 2.0]], TypeError, "input", "list", "tensor of scores"),
    (SCORES.long(), TypeError, "input", "torch.int64", "floating-point"),
    (SCORES.to(torch.complex64), TypeError, "input", "torch.complex64", "floating-point"),
    (torch.tensor(1.0), ValueError, "input", "got ()", "(C,), (N, C) or (N, C, d1, ...)"),
    (torch.zeros(2, 0), ValueError, "input", "got (2, 0)", "at least one class"),
)
test_targets = refusing(
    [functools.partial(loss, SCORES) for loss in KINDS],
    ([0, 2], TypeError, "target", "list", "tensor of labels or of probabilities"),
    (LABELS > 0, TypeError, "target", "torch.bool", "integer labels or floating-point probabilities"),
    (LABELS.to(torch.complex64), TypeError, "target", "complex64", "integer labels or floating-point"),
    (LABELS[:, None], ValueError, "target", "got (2, 1)", "shape (2,)"),
    (torch.eye(3).long()[:2], ValueError, "target", "got (2, 3)", "shape (2,)"),
    (LABELS.float(), ValueError, "target", "got (2,)", "input's shape (2, 3)", "class indices must be integers"),
    (torch.tensor([0, 3]), IndexError, "target", "label 3", "0 to 2"),  # torch's exception
    (torch.tensor([-1, 0]), IndexError, "target", "label -1", "0 to 2 (or ignore_index, -100)"),
    (torch.tensor([0, 255]).byte(), IndexError, "target", "label 255", "0 to 2"),
    (torch.full((2, 3), 0.5), ValueError, "target", "got a sum of 1.5", "sum to 1"),
    (torch.tensor([[1.5, -0.5, 0.0], [0.0, 0.0, 1.0]]), ValueError, "target", "-0.5", "at least 0"),
    (torch.tensor([[NAN, 0.5, 0.5], [0.0, 0.0, 1.0]]), ValueError, "target", "nan", "probabilities"),
    (torch.tensor([[INF, 0.5, 0.5], [0.0, 0.0, 1.0]]), ValueError, "target", "inf", "probabilities"),
)


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
    with refused(ValueError, "target", "-inf", "must be 0 there"):
        symloss.create_loss(name)(MASKED, torch.tensor([[0.5, 0.5, 0], [0, 0, 1.0]]))


@in_turn("scores, target", [(SCORES[:, :1], LABELS), (SCORES[:, 0], LABELS), (SCORES[:, :1], SCORES[:, :1].abs())])
def test_a_single_logit_is_told_about_the_margin_criterion(scores, target):
    with pytest.raises((IndexError, ValueError), match=r"symloss\.theory\.binary\.MarginCriterion"):
        symloss.GCE()(scores, target)


# --- Parameters and options, through every door --------------------------------------------------------------------


def by_class(name: str, **options: Any) -> Tensor:
    return class_of(name)(**options)(SCORES, LABELS)


def by_function(name: str, **options: Any) -> Tensor:
    return function_of(name)(SCORES, LABELS, **options)


def by_name(name: str, **options: Any) -> Tensor:
    return symloss.create_loss(name, **options)(SCORES, LABELS)


def refused_q(value: object, exception: type[Exception] = ValueError) -> Row:
    return (("ngce", {"q": value}), exception, "q", f"got {value!r}", "a number in (0, 1]")


def option(exception: type[Exception], key: str, value: object, *ingredients: str, **others: object) -> Row:
    return (("gce", {key: value, **others}), exception, key, *ingredients)


REDUCTIONS = "'mean', 'sum', 'none'"
NORMALIZE = "None, 'l2' or a function of the scores"
WEIGHT = "a floating-point tensor with one entry for each class"
FLAT = (ValueError, "scale='ce'", "slope at equal scores", "must be positive", "got 0")

by_function("ngce", q=1.0)  # 1.0 == True, also as the key of a cache

test_parameters_and_options = refusing(
    [lambda case, door=door: door(case[0], **case[1]) for door in (by_name, by_class, by_function)],
    *(refused_q(value) for value in (0, -0.5, 1.5, NAN, INF)),
    *(refused_q(value, TypeError) for value in ("x", True, None, 1j, [0.5], torch.tensor(0.5))),
    (("ngce", {"q": torch.ones(2, 2)}), TypeError, "q", "tensor", "a number in (0, 1]"),  # a repr of two lines
    *((("taylor-ce", {"t": t}), ValueError, "t must", f"got {t}", "a whole number in [1, 100]") for t in (1.5, 0, 101)),
    (("phuber-gce", {"q": -1}), ValueError, "q must", "got -1", "(0, 1)"),
    (("alpha-mae", {"alpha": -1}), ValueError, "alpha must", "got -1", "[0, 1e6]"),
    (("gce", {"p": 0.5}), TypeError, "gce", "'p'", "its parameters are: q"),
    (("gce", {"size_average": True}), TypeError, "gce", "'size_average'", "reduction"),
    (("ce", {"q": 0.5}), TypeError, "ce", "'q'", "its parameters are: none"),
    *(option(ValueError, "reduction", value, f"got {value!r}", REDUCTIONS) for value in ("avg", None, ["mean"])),
    *(option(ValueError, "normalize", value, f"got {value!r}", NORMALIZE) for value in ("l1", 3, [1])),
    *(option(ValueError, "scale", value, f"got {value!r}", "None, 'ce'") for value in ("mae", 2.0, ["ce"])),
    option(ValueError, "temperature", 0.5, "temperature=0.5", "normalize=None", "normalize='l2'"),
    option(ValueError, "temperature", "auto", "temperature='auto' needs normalize='l2'", "got normalize=None"),
    option(ValueError, "temperature", "hot", "must be a number in (0, inf) or 'auto'", "got 'hot'", normalize="l2"),
    *(option(ValueError, "temperature", t, f"got {t!r}", ABOVE_ZERO, normalize="l2") for t in (0, -1.0, NAN, "x")),
    option(TypeError, "temperature", True, "got True", ABOVE_ZERO, normalize="l2"),
    (("sgce", {"normalize": None, "temperature": 0.5}), ValueError, "temperature=0.5", "normalize='l2'"),
    option(ValueError, "label_smoothing", 1.5, "got 1.5", "a number in [0, 1]"),
    option(TypeError, "label_smoothing", "x", "got 'x'", "a number in [0, 1]"),
    *(option(TypeError, "ignore_index", value, f"got {value!r}", "a whole number") for value in (1.5, True, None)),
    option(TypeError, "weight", ["a", "b", "c"], "'a'", "a list of numbers"),
    option(TypeError, "weight", 2.0, "got 2.0", "a list of numbers"),
    option(TypeError, "weight", torch.ones(3).long(), "got torch.int64", WEIGHT),
    *(option(ValueError, "weight", torch.ones(n), f"got ({n},)", "one entry for each class") for n in (4, 0)),
    (("mae", {"weight": torch.ones(4)}), ValueError, "weight", "got (4,)", "(3,)"),  # a symmetric loss
    *(option(ValueError, "weight", torch.ones(s), f"got {s}", "one dimension") for s in ((3, 1), (3, 3), ())),
    (("sce", {"alpha": 0.0, "beta": 0.0, "scale": "ce"}), *FLAT),
    (("label-smoothing", {"r": 1, "scale": "ce"}), *FLAT),
    (("cosine", {"scale": "ce"}), ValueError, "scale", "cosine", "no slope at equal scores"),
)


@in_turn("door", [by_class, by_function])
@in_turn("key", ["preset", "deviation"])
def test_only_create_loss_takes_presets_and_deviations(door, key):
    """So the message must not offer what it has just refused."""
    with refused(TypeError, "its parameters are: q") as caught:
        door("gce", **{key: "cifar10"})
    assert str(caught.value).count(key) == 1


# --- Names, spec strings, presets, deviations ------------------------------------------------------------------------

NUMBER = "a number in (0, 1]"
GCE_PRESETS = "its presets are: mnist, cifar10, cifar100, webvision"
DEVIATIONS = "'held-focal-factor', 'clamped-probability', 'doubled-mae'"
NEAREST = {"gec": "gce", "unhinge": "unhinged", "nce+rcee": "nce+rce", "alpha_mae": "alpha-mae", "GCE": "gce"}

test_spec_strings = refusing(
    [symloss.create_loss],
    *((given, ValueError, "loss", repr(given), f"did you mean {known!r}") for given, known in NEAREST.items()),
    *((given, ValueError, "loss", repr(given), *symloss.list_losses()) for given in ("zzzzzz", "", ":q=.5")),
    (5, TypeError, "spec", "got 5", "a string such as 'gce:q=0.7'"),
    (CEPotential(), TypeError, "spec", "got CE()", "a string"),
    ("gce:q", ValueError, "spec 'gce:q'", "at 'q'", "key=value"),
    ("gce:=5", ValueError, "spec 'gce:=5'", "at '=5'", "key=value"),
    ("nce+mae:alpha=1,beta", ValueError, "spec", "at 'beta'", "key=value"),
    *((f"ngce:q={text}", TypeError, "q must", f"got {text!r}", NUMBER) for text in ("", "abc", "True", ".5;scale=ce")),
    ("ngce:q=nan", ValueError, "q must", "got nan", NUMBER),
    ("gce:p=.5", TypeError, "gce", "'p'", "its parameters are: q", "reduction"),
    ("gce:q=.5,q=.6", ValueError, "spec 'gce:q=.5,q=.6'", "q is given twice"),
    ("gce:weight=1", TypeError, "weight", "got 1", "a list of numbers"),
    ("ce:preset=cifar10", ValueError, "ce", "preset 'cifar10'", "its presets are: none"),
)


def unchanged(deviation: str, *names: str) -> list[Row]:
    words = (f"deviation {deviation!r}", "changes nothing in", "leave it out")
    return [((name, {"deviation": deviation}), ValueError, *words) for name in names]


test_keywords_of_create_loss = refusing(
    [lambda case: symloss.create_loss(case[0], **case[1])],
    (("gce:q=.5", {"q": 0.6}), TypeError, "q is given twice", "in 'gce:q=.5'", "as a keyword"),
    (("gce", {"q": 10**5000}), ValueError, "q must be a number", "int that is too long to print"),
    (("gce:preset=a", {"preset": "b"}), TypeError, "preset is given twice", "in 'gce:preset=a'", "pass it once"),
    *((("gce", {"preset": p}), ValueError, "gce", f"preset {p!r}", GCE_PRESETS) for p in ("imagenet", 3, ["cifar10"])),
    *((("gce", {"deviation": d}), ValueError, "deviation must", f"got {d!r}", DEVIATIONS) for d in ("", 3, ["mae"])),
    *unchanged("doubled-mae", "ce", "rce", "alpha-mae"),  # the last divides by the slope, which is doubled too
    *unchanged("held-focal-factor", "gce"),
    *unchanged("clamped-probability", "mse", "nnce"),  # the last has the same bound by definition
)


# --- The algebra -------------------------------------------------------------------------------------------------


def by_position(scores: Tensor, labels: Tensor) -> Tensor:
    """A loss that knows its classes by number: renaming them changes it."""
    return (labels + 1) * (scores.mean(1) - scores.gather(1, labels[:, None])[:, 0])


def used(make: Callable[..., Any], *given: Any) -> Callable[[], Any]:
    return lambda: make(*given)(SCORES, LABELS)


def blended(loss: Any) -> Callable[[], Any]:
    return used(losses.blend, loss, 2.0)


with_alpha = functools.partial(used, losses.dirichlet, CEPotential())
under_noise = functools.partial(used, losses.noisy, CEPotential())
complemented = functools.partial(functools.partial, losses.complement, CEPotential())
WEIGHTED = symloss.symmetrize(symloss.CE(weight=torch.tensor([1.0, 2.0, 3.0]))).loss  # its repr has several lines
INVARIANT = "permutation-invariant loss"
SHAPES = ("each of the 3 classes", "(2, 3)")

test_calls = refusing(
    [lambda call: call()],
    (blended(CEPotential() + MAEPotential()), ValueError, "blend", "CE() + MAE()", "symmetric loss"),
    (blended(-1.0 * MAEPotential()), ValueError, "blend", "slope at equal scores", "must be positive", "got -0.3"),
    (blended(0 * MAEPotential()), ValueError, "blend", "slope at equal scores", "must be positive", "got 0"),
    (blended(symloss.symmetrize(CosineFormula())), ValueError, "blend", "cosine", "no slope at equal scores"),
    (blended(symloss.symmetrize(Wrapped(by_position))), ValueError, "blend", "symmetrize(by_position)", INVARIANT),
    (blended(WEIGHTED), ValueError, "blend", "CE(weight=[1.0, 2.0, 3.0])", INVARIANT),
    (lambda: losses.blend(MAEPotential(), -1), ValueError, "alpha", "got -1", "a number in [0, inf)"),
    (lambda: losses.blend(MAEPotential(), True), TypeError, "alpha", "got True", "a number in [0, inf)"),
    (lambda: losses.complement(MSEFormula()), ValueError, "complement", "bound", "MSE()", "probability alone"),
    (complemented(p_min=0), ValueError, "p_min", "got 0", "a number in (0, 1)"),
    (complemented(p_min="x"), TypeError, "p_min", "got 'x'", "a number in (0, 1)"),
    (complemented(bound="x"), TypeError, "bound", "got 'x'", "a number in (-inf, inf)"),
    (complemented(bound=NAN), ValueError, "bound", "got nan", "a number in (-inf, inf)"),
    *((with_alpha(alpha), ValueError, "alpha", f"got {alpha!r}", ABOVE_ZERO) for alpha in (0, NAN)),
    *((with_alpha(alpha), TypeError, "alpha", f"got {alpha!r}", ABOVE_ZERO) for alpha in ("x", True)),
    (with_alpha(["a"]), TypeError, "alpha", "got ['a']", "a list of numbers"),
    (with_alpha(torch.tensor([1.0, -2.0, 1.0])), ValueError, "alpha", "got -2", "above 0"),
    (with_alpha(torch.tensor([1.0, NAN, 1.0])), ValueError, "alpha", "got nan", "above 0"),
    (with_alpha(torch.ones(4)), ValueError, "alpha", "got shape (4,)", *SHAPES),
    (with_alpha(torch.ones(5, 3)), ValueError, "alpha", "got shape (5, 3)", *SHAPES),
    (under_noise("x"), TypeError, "transition", "got 'x'", "a list of numbers"),
    (under_noise([1.0]), ValueError, "transition", "got (1,)", "square tensor"),
    (under_noise(torch.full((3, 2), 0.5)), ValueError, "transition", "got (3, 2)", "square tensor"),
    (under_noise(torch.eye(3).long()), TypeError, "transition", "torch.int64", "floating-point"),
    (under_noise(torch.tensor([[0.0, 0.0], [1.0, 1.0]])), ValueError, "transition", "got a sum of", "sum to 1"),
    (under_noise(torch.tensor([[2.0, -1.0], [0.0, 1.0]])), ValueError, "transition", "-1", "at least 0"),
    (under_noise(torch.eye(4)), ValueError, "transition", "got (4, 4)", "(3, 3)"),
    (lambda: symloss.CE()(SCORES[0], LABELS[:1]), ValueError, "target", "got (1,)", "shape ()"),
    (lambda: symloss.CE()(torch.zeros(2, 3, 4, 5), LABELS), ValueError, "target", "got (2,)", "(2, 4, 5)"),
    (lambda: functional.ce(SCORES, SCORES.softmax(1), ignore_index=0), ValueError, "ignore_index=0", "probabilities"),
    (lambda: symloss.CE(normalize=lambda z: z[:, :2])(SCORES, LABELS), ValueError, "normalize", "(2, 2)", "(2, 3)"),
    (lambda: symloss.CE(normalize=lambda z: None)(SCORES, LABELS), TypeError, "normalize", "NoneType", "tensor"),
    (lambda: losses.UnitScores(0), ValueError, "temperature", "got 0", ABOVE_ZERO),
    (lambda: losses.UnitScores(1.0, eps=-1.0), ValueError, "eps", "got -1.0", ABOVE_ZERO),
    (lambda: losses.EpsSoftmax(-1), ValueError, "m must", "got -1", "a number in [0, inf)"),
    (lambda: losses.SoftCap(0), ValueError, "cap", "got 0", ABOVE_ZERO),
    (lambda: losses.BatchNormScores(3)(torch.zeros(3)), ValueError, "scores", "got (3,)", "(N, C)"),
    (lambda: losses.BatchNormScores(0), ValueError, "num_classes", "got 0", "a whole number"),
    (lambda: losses.append_scores("x"), TypeError, "model", "got str", "torch.nn.Module"),
    (lambda: losses.append_scores(nn.ReLU(), "l2"), TypeError, "layer", "got str", "torch.nn.Module"),
    (lambda: losses.l1_penalty(nn.Linear(1, 1), -1), ValueError, "delta", "got -1", "a number in [0, inf)"),
    (lambda: losses.l1_penalty(nn.ReLU(), 1.0), ValueError, "parameters", "got none", "at least one tensor"),
    (lambda: losses.l1_penalty(["x"], 1.0), TypeError, "parameters", "str", "tensor"),
)
test_prior = refusing(
    [
        lambda prior: symloss.symmetrize(nn.CrossEntropyLoss(), prior)(SCORES, LABELS),
        lambda prior: symloss.decompose(nn.CrossEntropyLoss(), prior).insensitive(SCORES, LABELS),
    ],
    ("x", TypeError, "prior", "'x'", "one entry for each class"),
    (0.3, TypeError, "prior", "0.3", "one entry for each class"),
    (torch.tensor([1, 0, 0]), TypeError, "prior", "torch.int64", "floating-point"),
    ([0.5, 0.5], ValueError, "prior", "got (2,)", "(3,)", "one entry for each class"),
    (torch.eye(3), ValueError, "prior", "got (3, 3)", "one entry for each class"),
    ([0.5, 0.6, 0.1], ValueError, "prior", "got a sum of 1.2", "sum to 1"),
    ([1.5, -0.5, 0.0], ValueError, "prior", "-0.5", "at least 0"),
    ([], ValueError, "prior", "got (0,)", "one entry for each class"),
)


@in_turn("take", [symloss.symmetrize, lambda *given: symloss.decompose(*given)[1]])
def test_a_prior_whose_whole_mass_is_masked(take):
    """One sentence wherever labels are looked at; a row that is ignored may be masked as it likes."""
    loss = 2 * take(CEPotential(), [0.0, 0.5, 0.5]) + CEPotential()
    scores = torch.tensor([[0.0, 0.0, 0.0], [0.0, -INF, -INF]])
    labels = torch.tensor([1, 0])
    for use in (lambda z: loss(z, labels), lambda z: loss(z, torch.eye(3)[labels]), loss.per_class):
        with refused(ValueError, "prior gives probability 0", "-inf", "it must be above 0"):
            use(scores)
    for found in value_and_grad(loss, scores, torch.tensor([1, -100])):
        assert found.isfinite().all()


# It must not fail at the first batch, or deep inside; a class in place of its instance is a common slip.
test_operators_take_losses = refusing(
    [
        *(symloss.symmetrize, symloss.decompose, losses.relative, losses.complement, symloss.Criterion),
        *(lambda loss: losses.blend(loss, 2.0), lambda loss: losses.dirichlet(loss, 0.5)),
        lambda loss: losses.noisy(loss, torch.eye(3)),
    ],
    (3, TypeError, "loss must be", "got int"),
    (None, TypeError, "loss must be", "got NoneType"),
    ([CEPotential()], TypeError, "loss must be", "got list"),
    (nn.CrossEntropyLoss, TypeError, "loss must be", "got the class"),
)


def mean_only(scores: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(scores, labels)


test_losses_that_do_not_return_one_value_for_each_example = refusing(
    [
        lambda loss, part=part: (symloss.symmetrize(loss), *symloss.decompose(loss))[part](SCORES, LABELS)
        for part in range(3)
    ],
    (mean_only, ValueError, "mean_only", "got shape ()", "one value for each example", "(6,)"),
    (lambda z, y: z, ValueError, "<lambda>", "got shape (6, 3)", "one value for each example"),
    (lambda z, y: 1.0, ValueError, "<lambda>", "got float", "one value for each example"),
)


# --- A message shows the beginning of what was passed, however long that is -------------------------------------------

LONG = "x" * 1_000_000
DIGITS = "1" * 1_000_000
MOST = 720  # two or three values of 100 characters, and the names of all losses

SPECS = (
    *(LONG, f"{LONG}(ce)", f"gce:{LONG}=1", f"gce:q={LONG}", f"gce:q={DIGITS}", f"gce:preset={LONG}", f"{DIGITS}*gce"),
    *(f"gce:q=0.5,{LONG}", f"blend(ce, alpha={LONG})", f"{LONG}:mine", f"os:{LONG}"),
    *(f"complement({' + '.join(['mse'] * 2000)})", f"({' + '.join(['ce'] * 2000)}):q=1"),
)
CALLS: dict[str, Callable[[], Any]] = {
    "unknown keyword": lambda: symloss.create_loss("gce", **{LONG: 1}),
    "two values": lambda: symloss.create_loss("gce:q=0.5", q=LONG),
    "two positions": lambda: functional.gce(torch.zeros(1, 3), torch.tensor([0]), 0.5, q=LONG),
    "either": lambda: symloss.AlphaMAE(alpha=LONG, kappa=LONG),
    "ignore_index": lambda: symloss.create_loss("gce", ignore_index=LONG),
    "of_logp": lambda: symloss.of_logp(" + ".join(["nce"] * 2000)),
    "options of a head": lambda: symloss.LinearLoss(symloss.create_loss("ce"), 2, 3, **{LONG: 1}),
    "atlas": lambda: drawn_losses([LONG]),
    **{f"{spec[:15]}...{spec[-10:]}": functools.partial(symloss.create_loss, spec) for spec in SPECS},
}


@in_turn("what", CALLS)
def test_every_message_is_short(what: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        CALLS[what]()
    assert len(str(caught.value)) < MOST
    assert "\n" not in str(caught.value)


def test_a_long_name_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(checks.difflib, "get_close_matches", lambda name, known, **_: compared.extend(known) or [])
    assert checks.nearest(LONG, ["ce", "gce"]) == "known are ce, gce"
    assert not compared
    checks.nearest("gces", ["ce", "gce"])
    assert compared == ["ce", "gce"]
