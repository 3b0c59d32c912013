"""Fused kernels, run by Triton's interpreter, against the plain formulas in float64; and compiled, without a GPU."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from conftest import LOSSES
from in_turn import in_turn
from torch import Tensor

pytest.importorskip("triton")

import symloss
from symloss import Criterion
from symloss.losses import leaves as phi
from symloss.losses.algebra import Loss
from symloss.losses.catalogue import RECORDS
from symloss.losses.fast.kernel_choice import Unit
from symloss.losses.fused import elementary
from symloss.losses.fused import fused_kernel as fused
from symloss.losses.fused.compiling import TARGETS
from symloss.losses.fused.fused_kernel import FusedKernel
from symloss.losses.fused.operator import fused_key

pytestmark = pytest.mark.filterwarnings("ignore:normalize=.l2. at temperature 1 makes:UserWarning")

NO_FORM = "no function of the label's probability"
OTHERS = ("bi-tempered", "cosine", "jal-ce", "jal-fl", "ldr-kl", "mse", "symmetrized-cosine")
NOT_SERVED = dict.fromkeys(OTHERS, NO_FORM)
"""The losses without a fused kernel: they read all probabilities or raw scores, or have a softmax of their own."""

SERVED = [name for name in LOSSES if name not in NOT_SERVED]
FEW = ["gce", "sgce", "nce", "alpha-mae", "unhinged", "focal", "nfl"]


@functools.cache
def interpreted(loss: Loss, classes: int, unit: Unit | None, *sizes: int) -> FusedKernel:
    return FusedKernel(fused._form(loss, classes), classes, unit, True, *sizes)


@dataclass
class Case:
    """A loss with its division by the norm, and a batch."""

    criterion: Criterion
    z: Tensor
    y: Tensor
    share: Tensor

    @property
    def unit(self) -> Unit | None:
        scores = self.criterion.score_map
        return Unit(scores.temperature, scores.eps) if isinstance(scores, symloss.UnitScores) else None

    def kernel(self, max_on_chip: int = fused.MAX_ON_CHIP, chunk: int = 64) -> FusedKernel:
        # The interpreter needs as long for many rows as for one.
        rows = 2 ** (len(self.z) - 1).bit_length()
        return interpreted(self.criterion.loss, self.z.shape[1], self.unit, max_on_chip, chunk, rows)

    def truth(self) -> tuple[Tensor, Tensor]:
        """Values and gradient by the plain formulas in float64."""
        z = self.z.double().requires_grad_()
        with symloss.plain():
            values = self.criterion.loss(z, self.y, reduction="none", score_map=self.criterion.score_map)
        kept = self.share.expand(len(z)) != 0
        (gradient,) = torch.autograd.grad((values * self.share.double())[kept].sum(), z)
        return torch.where(kept, values.detach(), 0.0), gradient


def case(name: str, classes: int, dtype: torch.dtype = torch.float32, rows: int = 4, **options: object) -> Case:
    """A confident row, a hopeless one, one with a masked class, an ignored one."""
    generator = torch.Generator().manual_seed(classes)
    z = (4 * torch.randn(rows, classes, generator=generator)).to(dtype)
    y = torch.randint(classes, (rows,), generator=generator)
    z[0, y[0]] += 20
    z[1, y[1]] -= 30
    if classes > 3:
        z[2, (y[2] + 1) % classes] = -torch.inf
    share = torch.tensor([1.0, 0.25, 2.0, 0.0] * rows)[:rows]
    return Case(symloss.create_loss(name, **options), z, y, share)


def agree(found: tuple[Tensor, Tensor], truth: tuple[Tensor, Tensor], rounding: float = 0.0) -> None:
    """Values up to float32, and each row of the gradient against its largest entry."""
    (values, gradient), (true_values, true_gradient) = found, truth
    assert values.dtype == torch.float32
    assert torch.allclose(values.double(), true_values, rtol=2e-5, atol=2e-6)
    off = (gradient.double() - true_gradient).abs().amax(1)
    size = true_gradient.abs().amax(1)
    tiny = torch.finfo(gradient.dtype).smallest_normal * torch.finfo(gradient.dtype).eps
    assert (off <= max(2e-5, rounding) * size + 2 * tiny).all(), (off / size).tolist()


def run(each: Case, kernel: FusedKernel, in_place: bool = False) -> tuple[Tensor, Tensor]:
    z = each.z.clone()
    out = z if in_place else torch.empty_like(z)
    return kernel(z, each.y, each.share, out), out


def test_losses_without_a_kernel_say_why() -> None:
    found = {name: fused.reason(RECORDS[name].loss(), 10) for name in LOSSES}
    assert {name for name, why in found.items() if why} == set(NOT_SERVED)
    assert all(NOT_SERVED[name] in found[name] for name in NOT_SERVED)
    assert "two classes" in fused.reason(RECORDS["nce"].loss(), 2)
    assert fused.served(RECORDS["gce"].loss(), 2)
    with pytest.raises(fused.NotServedError, match="no function"):
        fused.fused_kernel(RECORDS["mse"].loss(), 10, interpret=True)


def test_other_losses_that_are_not_served() -> None:
    class Rounded(phi.Potential):
        def phi(self, logp: Tensor) -> Tensor:
            return logp.round()

        def derivative(self, logp: Tensor) -> Tensor:
            return torch.zeros_like(logp)

    class Looks(phi.CE):
        def phi(self, logp: Tensor) -> Tensor:
            return -logp if bool((logp < -1).all()) else logp

    noisy = symloss.noisy(phi.CE(), torch.eye(3))
    for loss, why in ((Rounded(), "aten.round"), (Looks(), "traced"), (noisy, "tensors or modules")):
        assert why in fused.reason(symloss.symmetrize(loss) if why == "traced" else loss, 3)


@pytest.mark.parametrize("name", SERVED)
def test_every_loss(name: str) -> None:
    for classes in (10, 1000):
        each = case(name, classes)
        agree(run(each, each.kernel()), each.truth())


@pytest.mark.parametrize("name", SERVED)
def test_every_loss_chunk_by_chunk(name: str) -> None:
    each = case(name, 150)
    agree(run(each, each.kernel(max_on_chip=100), in_place=True), each.truth())


@pytest.mark.parametrize("name", FEW)
@in_turn("classes", [2, 3, 100, 5000])
def test_types_and_numbers_of_classes(name: str, classes: int) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        each = case(name, classes, dtype)
        if fused.served(each.criterion.loss, classes):
            rounding = 0 if dtype == torch.float32 else torch.finfo(dtype).eps
            agree(run(each, each.kernel(), in_place=classes == 100), each.truth(), rounding)


@in_turn("name", ["sgce", "alpha-mae", "unhinged", "ngce"])
@in_turn("normalize", ["l2", None])
@in_turn("max_on_chip", [10, 8192])
def test_division_by_the_norm_and_scale(name: str, normalize: str | None, max_on_chip: int) -> None:
    """A small temperature, scores shorter than eps, scores whose squares overflow or vanish."""
    options = {"temperature": 0.1} if normalize else {"scale": "ce"}
    each = case(name, 20, rows=8, normalize=normalize, **options)
    if normalize:
        for row, size in ((4, 1e-8), (5, 1e30), (6, 1e-30)):
            each.z[row] *= size
    agree(run(each, each.kernel(max_on_chip, chunk=8)), each.truth())


@in_turn("name", FEW)
@in_turn("max_on_chip", [4, 8192])
def test_nan_and_ignored_rows(name: str, max_on_chip: int) -> None:
    """A NaN touches its own row alone; that of an ignored row, none. A label that is no class has no value."""
    each = case(name, 7, rows=7)
    each.y[:] = torch.tensor([1, 1, 1, 7, -100, 3, 5])
    each.share = torch.tensor([1.0, 0.5, 1.0, 1.0, 0.0, 1.0, 2.0])
    each.z[0, 0] = each.z[1, 1] = each.z[2, 6] = torch.nan
    each.z[4] = torch.nan
    values, gradient = run(each, each.kernel(max_on_chip, chunk=4))
    assert values.isnan().tolist() == [True] * 4 + [False] * 3
    present = each.z != -torch.inf
    assert (gradient[:4].isnan() | ~present[:4]).all()
    assert gradient[4:].isfinite().all()
    assert values[4] == 0
    assert (gradient[4] == 0).all()


@in_turn("name", [*FEW, "anl-fl", "ngce", "dirichlet-ce"])
@in_turn("max_on_chip", [3, 8192])
def test_masked_classes_are_absent(name: str, max_on_chip: int) -> None:
    """Down to one class: as by the plain formula of the scores without them."""
    whole = case(name, 6, rows=5)
    whole.z[2, (whole.y[2] + 1) % 6] = 1.0
    whole.share = torch.tensor(1.0)
    whole.y[:] = 0
    for row, present in enumerate((1, 2, 3, 5, 6)):
        whole.z[row, present:] = -torch.inf
    values, gradient = run(whole, whole.kernel(max_on_chip, chunk=4))
    for row, present in enumerate((1, 2, 3, 5, 6)):
        part = Case(whole.criterion, whole.z[row : row + 1, :present], whole.y[:1], whole.share)
        assert (gradient[row, present:] == 0).all()
        agree((values[row : row + 1], gradient[row : row + 1, :present]), part.truth(), 5e-5)


@in_turn("name", ["sgce", "nce", "gce", "nfl", "nnce"])
@in_turn("max_on_chip", [3, 8192])
def test_labels_that_lead_or_trail_by_far(name: str, max_on_chip: int) -> None:
    """The label's entry has its digits, however far its score leads or trails."""
    leads = torch.tensor([0.0, 1e-3, 1.0, 8.0, 30.0, 80.0, 1000.0])
    leads = torch.cat([leads, -leads])
    z = torch.linspace(-1, 0, 7).repeat(len(leads), 1)
    z[:, 3] = leads
    each = Case(symloss.create_loss(name, normalize=None), z, torch.full((len(leads),), 3), torch.tensor(1.0))
    _, gradient = run(each, each.kernel(max_on_chip, chunk=4))
    _, truth = each.truth()
    assert torch.allclose(gradient[:, 3].double(), truth[:, 3], rtol=1e-5, atol=1e-37)


def test_strides_and_scalar_shares() -> None:
    each = case("sgce", 10)
    wide = torch.full((4, 16), torch.nan)
    wide[:, 2:12] = each.z
    out = torch.full((4, 24), 7.0)
    each.share = torch.tensor(0.5)
    values = each.kernel()(wide[:, 2:12], each.y, each.share, out[:, :10])
    agree((values, out[:, :10]), each.truth())
    assert (out[:, 10:] == 7).all()
    assert each.kernel()(wide[:0, :10], each.y[:0], each.share, out[:0, :10]).shape == (0,)


def test_wrong_arguments_are_refused() -> None:
    each = case("mae", 10)
    kernel, out = each.kernel(), torch.empty(4, 10)
    with pytest.raises(ValueError, match=r"\(N, 10\)"):
        kernel(each.z[:, :9], each.y, each.share, out[:, :9])
    with pytest.raises(TypeError, match="float64"):
        kernel(each.z.double(), each.y, each.share, out.double())
    with pytest.raises(ValueError, match="next to each other"):
        kernel(torch.empty(10, 4).T, each.y, each.share, out)
    with pytest.raises(ValueError, match="int64"):
        kernel(each.z, each.y.int(), each.share, out)
    with pytest.raises(ValueError, match="share"):
        kernel(each.z, each.y, each.share.double(), out)


# Reads and writes

READS = {
    "mae": 2,
    "unhinged": 2,
    "nce": 2,
    "gce": 2,
    "label-smoothing": 2,
    "nfl": 3,
    "nnce": 3,
    "anl-fl": 3,
    "sgce": 2,
    "ngce": 3,
}
READS_L2 = {"unhinged": 2, "alpha-mae": 3, "nce": 3, "nfl": 4, "sgce": 3, "ngce": 4}


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[int, int]]:
    """How many entries were loaded and stored since it was asked last."""
    from triton.runtime import interpreter  # noqa: PLC0415

    builder, counted = interpreter.InterpreterBuilder, [0, 0]

    def count(number: int, name: str, mask: int) -> None:
        inner = getattr(builder, name)

        def counting(self: object, *given: object) -> object:
            counted[number] += int(given[mask].data.sum())  # type: ignore[attr-defined]
            return inner(self, *given)

        monkeypatch.setattr(builder, name, counting)

    count(0, "create_masked_load", 1)
    count(1, "create_masked_store", 2)

    def taken() -> tuple[int, int]:
        found = (counted[0], counted[1])
        counted[:] = [0, 0]
        return found

    return taken


@in_turn("name, normalize", [*((n, None) for n in READS), *((n, "l2") for n in READS_L2)])
def test_how_often_scores_are_read(name: str, normalize: str | None, traffic: Callable[[], tuple[int, int]]) -> None:
    """Also read: the share, the label and its score of each row. Also written: the value of each row."""
    each = case(name, 150, rows=3, normalize=normalize)
    for max_on_chip, reads in ((200, 1), (100, (READS_L2 if normalize else READS)[name])):
        kernel = each.kernel(max_on_chip)
        assert kernel.reads == reads
        run(each, kernel)
        assert traffic() == (reads * each.z.numel() + 9, each.z.numel() + 3)


# Elementary functions


def computed(call: str, x: Tensor) -> Tensor:
    """An elementary function, run by the interpreter."""
    head = "def kernel(x_ptr, y_ptr, N: tl.constexpr):\n    x = tl.load(x_ptr + tl.arange(0, N)[None, :])\n"
    text = module_of(head + f"    tl.store(y_ptr + tl.arange(0, N)[None, :], {call})\n")
    y = torch.empty_like(x)
    with fused._quiet():
        fused._function(text, True)[(1,)](x, y, N=len(x))
    return y


def module_of(kernel: str) -> str:
    from symloss.losses.fused import source  # noqa: PLC0415

    return source._module("").split("@triton.jit\ndef kernel")[0] + "@triton.jit\n" + kernel


def ulps(found: Tensor, truth: Tensor) -> float:
    """The largest error in units in the last place of float32; a subnormal result has those of the smallest normal."""
    exact = truth.float()
    unit = torch.where(exact.abs() < 2.0**-126, 2.0**-149, 2.0 ** (torch.frexp(exact)[1] - 24).double())
    ok = exact.isfinite() & (exact.abs() < 3.4e38)
    assert torch.equal(found[~ok].nan_to_num(1e9), exact[~ok].nan_to_num(1e9))
    return float(((found.double() - truth).abs() / unit)[ok].max())


def spread(low: float, high: float, number: int = 4096) -> Tensor:
    """Numbers of all sizes between two powers of 10."""
    return 10 ** torch.linspace(math.log10(low), math.log10(high), number, dtype=torch.float64).float()


NUMBERS = torch.cat([torch.linspace(-110, 95, 4096), -spread(1e-38, 1), spread(1e-38, 1), torch.tensor([0.0] * 4096)])
POSITIVE = torch.cat([spread(1e-44, 3e38), torch.linspace(0.4, 2.5, 4096)])
SPECIAL = torch.tensor([-torch.inf, torch.inf, torch.nan, 0.0])


@in_turn(
    "call, truth, x, bound",
    [
        ("exp(x)", torch.exp, NUMBERS, 1.5),
        ("expm1(x)", torch.expm1, NUMBERS, 2.5),
        ("log(x)", torch.log, POSITIVE, 1.5),
        ("log1p(x)", torch.log1p, POSITIVE, 2),
        ("log1p(x)", torch.log1p, -torch.cat([spread(1e-38, 0.999), torch.linspace(0, 0.9999, 4096)]), 2),
        ("power(x, 0.7, 0.699951171875, 4.8828125e-05)", lambda x: x**0.7, POSITIVE, 2.5),
        ("power(x, -0.4, -0.39990234375, -9.765625e-05)", lambda x: x**-0.4, POSITIVE, 2.5),
        ("power(x, 3.5, 3.5, 0.0)", lambda x: x**3.5, POSITIVE, 4),
        ("root(x)", torch.sqrt, POSITIVE, 1),
        ("log_sigmoid(x)", torch.nn.functional.logsigmoid, NUMBERS, 4),
        ("log_add_exp(x, x * 0.5)", lambda x: torch.logaddexp(x, x * 0.5), spread(1e-3, 1e30), 2.5),
    ],
)
def test_elementary_functions(call: str, truth: Callable[[Tensor], Tensor], x: Tensor, bound: float) -> None:
    x = torch.cat([x, SPECIAL[1:] if "power" in call else SPECIAL])
    padded = torch.cat([x, torch.ones(2 ** math.ceil(math.log2(len(x))) - len(x))])
    assert ulps(computed(call, padded), truth(padded.double())) <= bound


def test_elementary_functions_are_listed_after_what_they_call() -> None:
    known: set[str] = set()
    every = {function.__name__ for function in elementary.FUNCTIONS}
    for function in elementary.FUNCTIONS:
        assert set(function.__code__.co_names) & every <= known
        known.add(function.__name__)


# The operator


@pytest.mark.parametrize("name", ["nce+mae", "sgce"])
def test_operator_inside_torch_compile(name: str) -> None:
    each = case(name, 10)
    unit = each.unit

    def both(z: Tensor, y: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        key = fused_key(each.criterion.loss, z.shape[1], None if unit is None else Unit(unit.temperature, unit.eps))
        values, gradient = torch.ops.symloss.fused_loss(z * 2, y, share, key)
        doubled = z * 2
        again = torch.ops.symloss.fused_loss_(doubled, y, share, key)
        return values.sum() + 1, gradient, again.sum() + 1, doubled

    eager = both(each.z, each.y, each.share)
    compiled = torch.compile(both, backend="aot_eager", fullgraph=True)(each.z, each.y, each.share)
    for one, other in zip(eager, compiled, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(eager[0], eager[2])
    assert torch.equal(eager[1], eager[3])
    each.z *= 2
    agree((each.kernel()(each.z, each.y, each.share, torch.empty_like(each.z)), eager[1]), each.truth())


def test_keys() -> None:
    one, other = fused_key(phi.GCE(0.7), 5), fused_key(phi.GCE(0.7), 5, Unit(1.0, 1e-5))
    assert one == fused_key(phi.GCE(0.7), 5) != other
    assert one != fused_key(phi.GCE(0.8), 5)
    # The text of a sum rounds its factors.
    assert fused_key(1.0000001 * phi.CE() + phi.MAE(), 5) != fused_key(1.0000002 * phi.CE() + phi.MAE(), 5)


def test_symloss_does_not_import_triton() -> None:
    code = (
        "import sys, torch, symloss\n"
        "symloss.create_loss('sgce')(torch.zeros(2, 3), torch.tensor([0, 1]))\n"
        "assert not {'triton', 'symloss.losses.fused'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Compiled for GPUs


def compiled_kernel(loss: Loss, classes: int, unit: Unit | None = None) -> FusedKernel:
    return fused.fused_kernel(loss, classes, unit, interpret=False)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["gce", "sgce", "nce"])
def test_compiles_without_spilled_registers(name: str, target: str) -> None:
    """A row of 8,192 scores fits into the registers, and nothing is computed in float64."""
    each = case(name, 8192)
    found = compiled_kernel(each.criterion.loss, 8192, each.unit).compile(target)
    assert found.spilled == found.scalars_spilled == 0
    assert "f64" not in found.assembly


def test_several_rows_of_few_classes_fit_into_the_registers() -> None:
    kernel = compiled_kernel(RECORDS["nfl"].loss(), 10)
    assert kernel.rows > 1
    assert kernel.compile("sm_90").spilled == 0


def test_compiles_chunk_by_chunk() -> None:
    kernel = compiled_kernel(RECORDS["nfl"].loss(), 32000)
    assert kernel.is_chunked
    with pytest.raises(ValueError, match="sm_80, sm_90, gfx942; got 'sm_1'"):
        kernel.compile("sm_1")
    with pytest.raises(ValueError, match="interpret=False"):
        case("mae", 10).kernel().compile("sm_80")
    assert kernel.compile("sm_80", torch.bfloat16).spilled == 0
