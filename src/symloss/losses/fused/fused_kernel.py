"""Fused kernels: which losses have one, how it is built, and how it is run.

A fused kernel computes values and gradient as the kernels in ``fast`` do, in one launch. It runs on a GPU, or in
Triton's interpreter on the CPU. Triton is imported when the first kernel is built.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import linecache
import os
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from symloss.losses.algebra import Loss
from symloss.losses.fast.kernel_choice import Unit, has_hash
from symloss.losses.fast.partials import FastForm, fast_form
from symloss.losses.fused.program import program
from symloss.losses.fused.source import KernelText, chunked, on_chip
from symloss.losses.fused.tracing import NotServedError

if TYPE_CHECKING:
    from symloss.losses.fused.compiling import Compiled

MAX_ON_CHIP = 8192
"""Rows with at most this many classes are held on the chip."""
CHUNK = 4096
"""The number of classes that a kernel of longer rows works on at a time."""
TILE = 512
"""A program works on several rows if they have fewer scores than this together."""
PER_THREAD = {32: 16, 64: 8}
"""The number of scores of a row that each thread holds, by the size of a warp."""
ROWS_PER_THREAD = 4
"""The number of rows that a thread works on, where a program has several. Each row takes registers of its own."""

TYPES = (torch.float32, torch.float16, torch.bfloat16)


def has_triton() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def reason(loss: Loss, classes: int) -> str:
    """Why a loss has no fused kernel for this number of classes; empty if it has one."""
    try:
        _form(loss, classes)
    except NotServedError as error:
        return str(error)
    return ""


def served(loss: Loss, classes: int, unit: Unit | None = None) -> bool:
    """Whether a loss has a fused kernel for this number of classes. With ``unit`` the answer is the same."""
    return not reason(loss, classes)


def fused_kernel(loss: Loss, classes: int, unit: Unit | None = None, interpret: bool | None = None) -> FusedKernel:
    """The fused kernel of a loss.

    Args:
        loss: an expression of the algebra.
        classes: the number of classes.
        unit: how scores are divided by their norm; None if they are not.
        interpret: whether Triton's interpreter runs the kernel, on the CPU; None if TRITON_INTERPRET is to decide.
    """
    if interpret is None:
        interpret = os.environ.get("TRITON_INTERPRET", "0") == "1"
    return _cached(loss, classes, unit, interpret)


@functools.lru_cache(maxsize=256)
def _cached(loss: Loss, classes: int, unit: Unit | None, interpret: bool) -> FusedKernel:
    return FusedKernel(_form(loss, classes), classes, unit, interpret)


def _form(loss: Loss, classes: int) -> FastForm:
    if not loss.any_classes:
        raise NotServedError("the loss holds tensors or modules")
    try:
        return _traced_form(loss, classes)
    except TypeError:
        if has_hash(loss):
            raise
        raise NotServedError("the loss has no hash, so its kernel cannot be kept") from None


@functools.lru_cache(maxsize=256)
def _traced_form(loss: Loss, classes: int) -> FastForm:
    form = fast_form(loss, classes)
    if form is None:
        raise NotServedError("the loss is no function of the label's probability and of sums over the other classes")
    if classes < 3 and form.summed:
        raise NotServedError("with two classes the sum has one term, and only the plain formulas keep its digits")
    program(form, classes, None, False)  # traces all formulas, and raises an error if that cannot be done
    return form


@dataclass(frozen=True, eq=False)
class FusedKernel:
    """The kernel of a loss for a number of classes."""

    form: FastForm
    """The loss."""
    classes: int
    """The number of classes."""
    unit: Unit | None = None
    """How scores are divided by their norm; None if they are not."""
    interpret: bool = False
    """Whether Triton's interpreter runs the kernel, on the CPU."""
    max_on_chip: int = MAX_ON_CHIP
    """Longer rows are worked on in chunks."""
    chunk: int = CHUNK
    """The number of classes in a chunk, a power of 2."""
    rows_at_once: int | None = None
    """The number of rows of a program, a power of 2; None if it depends on the number of classes."""

    @property
    def is_chunked(self) -> bool:
        """Whether a row is worked on in chunks, because it does not fit on the chip."""
        return self.classes > self.max_on_chip

    @functools.cached_property
    def source(self) -> KernelText:
        """The text of the kernel."""
        made = program(self.form, self.classes, self.unit, few_reads=self.is_chunked)
        return chunked(made) if self.is_chunked else on_chip(made)

    @property
    def reads(self) -> int:
        """How often each score is read. The gradient is written once.

        It is 1 if a row fits on the chip. Else it is 2: one to collect the largest score and all sums that can be
        rescaled when it grows (of e, of scores, and of powers of p), one to write the gradient. Sums of other
        potentials need log p first, which takes one more. So does the norm, if scores are divided by it; only a loss
        that is linear in the scores needs no more than its norm and its mean score, which are collected together.
        """
        return self.source.reads

    @functools.cached_property
    def function(self) -> Any:
        """The kernel as Triton's function."""
        return _function(self.source.text, self.interpret)

    @property
    def block(self) -> int:
        """The number of classes that a program works on at a time."""
        return self.chunk if self.is_chunked else max(2, 1 << (self.classes - 1).bit_length())

    @property
    def rows(self) -> int:
        """The number of rows of a program."""
        return self.rows_at_once or max(1, TILE // self.block)

    def options(self, width: int) -> dict[str, Any]:
        """How the kernel is compiled for a GPU whose warps have ``width`` threads."""
        scores = PER_THREAD[width] if self.rows == 1 else ROWS_PER_THREAD
        warps = max(1, min(1024 // width, self.rows * self.block // (width * scores)))
        # Whichever needs fewer registers: without fusion no row on the chip spills any, with it no chunk does.
        return {"num_warps": warps, "enable_fp_fusion": self.is_chunked}

    @property
    def constants(self) -> dict[str, int]:
        """What the kernel is compiled for."""
        return {"CLASSES": self.classes, "ROWS": self.rows, "BLOCK": self.block}

    def __call__(self, z: Tensor, y: Tensor, share: Tensor, out: Tensor) -> Tensor:
        """The values at the labels, as float32. The gradient of sum(share * values) is written to ``out``.

        Args:
            z: scores (N, C). The entries of a row lie next to each other. A score of -inf masks a class out.
            y: the labels (N,), as int64. The value of a label that is no class is NaN.
            share: what each example counts for in the gradient, as float32: (N,), or a scalar. An example with a share
                of 0 gets the value 0 and the gradient 0.
            out: a tensor like z. It may be z itself.
        """
        self._check(z, y, share, out)
        values = torch.empty(len(z), dtype=torch.float32, device=z.device)
        if len(z) == 0:
            return values
        step = share.stride(0) if share.dim() else 0
        arguments = (z, y, share, values, out, len(z), z.stride(0), step, out.stride(0))
        grid = (-(-len(z) // self.rows),)
        options = {} if self.interpret else self.options(64 if torch.version.hip else 32)
        # The interpreter computes both branches of a condition, with warnings for the one that is not taken.
        with _quiet() if self.interpret else torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            self.function[grid](*arguments, **self.constants, **options)
        return values

    def compile(self, target: str, dtype: torch.dtype = torch.float32) -> Compiled:
        """Compile the kernel for a GPU that need not be there.

        Args:
            target: "sm_80", "sm_90" or "gfx942".
            dtype: the type of the scores.
        """
        from symloss.losses.fused.compiling import compile_for  # noqa: PLC0415 (it is built on this module)

        return compile_for(self, target, dtype)

    def _check(self, z: Tensor, y: Tensor, share: Tensor, out: Tensor) -> None:
        rows = len(z)
        if z.shape != (rows, self.classes) or out.shape != z.shape or out.dtype != z.dtype:
            raise ValueError(
                f"z and out must have shape (N, {self.classes}) and one type; "
                f"got {tuple(z.shape)} of {z.dtype} and {tuple(out.shape)} of {out.dtype}"
            )
        if z.dtype not in TYPES:
            raise TypeError(f"z must be float32, float16 or bfloat16; got {z.dtype}")
        if z.stride(1) != 1 or out.stride(1) != 1:
            raise ValueError(f"the entries of a row must lie next to each other; got strides {z.stride(1)}")
        if y.shape != (rows,) or y.dtype != torch.int64 or not y.is_contiguous():
            raise ValueError(f"y must be a contiguous int64 tensor of shape ({rows},); got {y.dtype} {tuple(y.shape)}")
        if share.shape not in ((rows,), ()) or share.dtype != torch.float32:
            raise ValueError(f"share must be float32 of shape ({rows},) or (); got {share.dtype} {tuple(share.shape)}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


_lock = threading.Lock()


@functools.lru_cache(maxsize=512)
def _function(text: str, interpret: bool) -> Any:
    """The function ``kernel`` of a module with this text."""
    from triton import knobs  # noqa: PLC0415

    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"<symloss fused kernel {digest}{' interpreted' * interpret}>"
    # Triton reads the text of a function by the name of its file.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {"__name__": f"symloss_fused_{digest}"}
    with _lock:
        before = knobs.runtime.interpret
        knobs.runtime.interpret = interpret
        try:
            exec(compile(text, name, "exec"), names)
        finally:
            knobs.runtime.interpret = before
    if interpret:
        names.update(_reductions())
    return names["kernel"]


def _reductions() -> dict[str, Any]:
    """Sums and maxima for the interpreter. It cannot run Triton's own unless it was on when Triton was imported."""
    import triton.language as tl  # noqa: PLC0415

    return {
        "total": lambda x: tl.reduce(x, 1, tl.standard._sum_combine, keep_dims=True),
        "largest": lambda x: tl.reduce(x, 1, tl.standard._elementwise_max, keep_dims=True),
    }
