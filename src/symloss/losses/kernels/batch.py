"""The loss of a batch by a kernel: which examples count and for how much, blocks of rows, and autograd around them.

Each block is checked for masked classes and for squares and sums that overflow, so kernels need not look. Where looking
would have to wait for a device, every block is treated as if classes may be masked out.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symloss.losses import validation
from symloss.losses.logits import WIDER, Scores

BLOCK = 2**20
"""The number of scores in a block on a CPU: few enough to stay in the cache, many enough to be worth the calls."""
DEVICE_BLOCK = 2**24  # the same on other devices, where a call costs more and a block of float32 scratch takes 64 MiB
FEW = 2**15  # so few scores take less time than the calls of their reductions


Scratch = Sequence[Tensor] | None
"""Tensors that a kernel may overwrite."""


class TooLargeError(Exception):
    """The sum over classes of these scores may overflow, which only the plain formulas can avoid."""


def block_rows(z: Tensor) -> int:
    """Return the number of rows in a block of these scores."""
    size = BLOCK if z.is_cpu else DEVICE_BLOCK
    return len(z) if z.numel() <= size else max(1, size * len(z) // z.numel())


def new_scratch(kernel: Kernel, out: Tensor) -> list[Tensor]:
    """Return the scratch tensors of a kernel, each like ``out``. All blocks share them, because new memory is slow."""
    return [torch.empty_like(out) for _ in range(kernel.scratch)]


def by_blocks(
    kernel: Kernel, z: Tensor, y: Tensor, share: Tensor, out: Tensor | None, ignores: bool, scratch: Scratch = None
) -> Tensor:
    """Return the values at the targets, and write the gradient of sum(share * values) to ``out``.

    Args:
        kernel, z, y, share: as in :class:`Job`, but z may have half precision.
        out: has the shape and type of z. It may be z itself, which is then overwritten. None: no gradient is wanted.
        ignores: whether an example with a share of 0 gets the value 0 and the gradient 0, whatever its scores.
        scratch: what :func:`new_scratch` returns, with at least as many rows as a block; None makes new tensors.
    """
    kind = WIDER.get(z.dtype, z.dtype)
    rows = block_rows(z)
    if out is z and kernel.adds and validation.looks_at(z):  # before a part of the scores is gone
        _refuse_too_large(float(torch.where(z == -torch.inf, z.amax(), z).amin()), float(z.amax()), z)
    if rows == z.shape[0] and out is not None and out is not z and z.dtype == kind:
        tensors = new_scratch(kernel, out) if scratch is None else [each[: len(z)] for each in scratch]
        return _do_block(kernel, Job(z, y, share, out, tensors), ignores)
    like = z[:rows]
    copies = out is z or kind != z.dtype
    source = torch.empty_like(like, dtype=kind) if copies else like
    target = torch.empty_like(like, dtype=kind) if out is None or kind != z.dtype else like
    scratch = new_scratch(kernel, target) if scratch is None else scratch
    values = torch.empty_like(z[:, :1], dtype=kind)
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        block = z[part]
        if copies:
            block = source[: len(block)].copy_(block)
        gradient = out[part] if out is not None and out.dtype == kind else target[: len(block)]
        tensors = [each[: len(block)] for each in scratch]
        shares = share[part] if share.dim() else share
        values[part] = _do_block(kernel, Job(block, y[part], shares, gradient, tensors), ignores)
        if out is not None and out.dtype != kind:
            out[part].copy_(gradient)
    return values


def _do_block(kernel: Kernel, job: Job, ignores: bool) -> Tensor:
    if not validation.looks_at(job.z):
        values = kernel(job._replace(scores=Scores(job.z, 1)))
    elif not kernel.shows_masks:
        values = kernel(_checked(kernel, job))
    else:
        values = kernel(job)
        if not math.isfinite(float(values.sum())):
            values = kernel(_checked(kernel, job)._replace(scores=Scores(job.z, 1)))
    if ignores:  # the scores of an ignored example may be anything, even NaN
        left_out = job.share == 0
        job.out.masked_fill_(left_out, 0.0)
        values = values.masked_fill(left_out, 0.0)
    return values


def _checked(kernel: Kernel, job: Job) -> Job:
    """Return the job with its norms, its largest scores, or its masks. A label must not be masked out."""
    z, y, share, out, scratch = job[:5]
    if kernel.squares:
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        if float(norm.amax()) < torch.inf:
            return Job(z, y, share, out, scratch, None, norm)
    ends = z.aminmax() if z.numel() < FEW and kernel.adds else None  # over many scores two reductions are quicker
    low = float(z.amin() if ends is None else ends.min)
    scores = None if low > -torch.inf else Scores(z, 1)
    if scores is not None and not y.is_floating_point():
        validation.present_labels(z, y, share != 0, 1)
    if not kernel.adds:
        return job if scores is None else Job(z, y, share, out, scratch, scores)
    top = z.amax(1, keepdim=True)
    high = float(top.amax() if ends is None else ends.max)
    _refuse_too_large(low if scores is None else float(torch.where(scores.present, z, high).amin()), high, z)
    return Job(z, y, share, out, scratch, scores, None, top)


def _refuse_too_large(low: float, high: float, z: Tensor) -> None:
    if high - low > torch.finfo(WIDER.get(z.dtype, z.dtype)).max / (8 * z.shape[1]):
        raise TooLargeError


class Examples(NamedTuple):
    """The targets of a batch, and how the values of its examples become one loss."""

    target: Tensor  # class indices (N,) or (N, d1, ...); or a weight for each class, in the shape of the scores
    kept: Tensor | None  # which examples count, in the shape of class indices; None if all do
    factor: Tensor | None  # what the value of each example is multiplied by, in the shape of class indices; None for 1
    reduction: str  # one of "mean", "sum" and "none"
    divisor: float | Tensor | None = None  # what a mean divides by; None for the number of examples that count
    offset: float | Tensor | None = None
    """A constant that is added to the value of each example, in the shape of class indices or a number; None for 0."""

    @property
    def labels(self) -> Tensor:
        """The labels, and 0 where an example is ignored; or the weights as they are."""
        if self.target.is_floating_point():
            return self.target
        return (self.target if self.kept is None else torch.where(self.kept, self.target, 0)).unsqueeze(1)

    def weighed(self, class_weight: Tensor) -> Examples:
        """Return the same examples, each multiplied by the weight (C,) of its label."""
        factor = class_weight.to(self.target.device)[self.labels.squeeze(1)]
        if self.kept is not None:
            factor = torch.where(self.kept, factor, 0.0)
        divisor = factor.sum() if self.divisor is None and self.reduction == "mean" else self.divisor
        return self._replace(factor=factor, divisor=divisor)

    def share(self, kind: torch.dtype, upstream: Tensor | None = None) -> Tensor:
        """Return what each example counts for in the gradient: a scalar if all agree, else of size 1 in dimension 1."""
        total = self.total if self.reduction == "mean" else 1.0
        share = total.to(kind).reciprocal() if isinstance(total, Tensor) else constant(kind, 1 / total)
        if self.factor is not None:
            share = share * self.factor.to(kind)
        if upstream is not None:
            share = share * upstream
        if self.kept is not None:
            share = torch.where(self.kept, share, 0.0)
        return share.unsqueeze(1) if share.dim() else share

    @property
    def total(self) -> float | Tensor:
        """What a mean divides by."""
        if self.divisor is not None:
            return self.divisor
        return self.target.numel() if self.kept is None else self.kept.sum()

    def reduced(self, values: Tensor) -> Tensor:
        """Reduce the values of the examples, which have size 1 along dimension 1, to the loss of the batch."""
        even = self.kept is None and self.factor is None and self.offset is None
        if even and self.divisor is None and self.reduction == "mean":
            return values.mean()
        values = values.squeeze(1)
        if self.factor is not None:
            values = values * self.factor.to(values.dtype)
        if self.offset is not None:
            values = values + self.offset
        if self.kept is not None:
            values = torch.where(self.kept, values, 0.0)
        if self.reduction == "none":
            return values
        if self.reduction == "sum":
            return values.sum()
        total = self.total
        return values.sum() / (total.to(values.dtype) if isinstance(total, Tensor) else total)


Gradients = list[Tensor | None]  # one for each input; None where it is not wanted


@dataclass
class Way(ABC):
    """A way to compute the loss of a batch that finds the gradients in its inputs itself."""

    examples: Examples  # the targets, and what each example counts for
    plain: Callable[..., Tensor]  # computes the same by the plain formulas, for second derivatives
    overwrite = False  # whether gradients take the place of the inputs

    @abstractmethod
    def forward(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> tuple[Tensor, Any]:
        """Return the value of each example; and the gradients, as a list, or else what ``backward`` needs."""

    @abstractmethod
    def backward(self, inputs: Sequence[Any], wanted: Sequence[bool], incoming: Tensor, kept: Any) -> Gradients:
        """Return the gradients, times what comes from above."""

    def loss(self, *inputs: Tensor | None) -> Tensor | None:
        """Return the loss, for autograd; None if sums may overflow, which is left to the plain formulas."""
        try:
            if torch.is_grad_enabled():
                for part in inputs:  # a generator would take as long as a small reduction
                    if part is not None and part.requires_grad:
                        value: Tensor = _WithGradients.apply(self, *inputs)  # type: ignore[no-untyped-call]
                        return value
            return self.examples.reduced(self.forward(inputs, [False] * len(inputs))[0])
        except TooLargeError:
            return None


@dataclass
class BatchLoss(Way):
    """A loss at the targets of a batch, as a function of its scores (N, C) or (N, C, d1, ...)."""

    kernel: Kernel
    overwrite: bool = False

    def forward(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> tuple[Tensor, Gradients | None]:
        (z,) = inputs
        # float16 cannot hold small gradients before they are scaled by the upstream gradient.
        if z.dtype == torch.float16 or not wanted[0]:
            return self._values(z, None), None
        scores = z.detach() if self.overwrite else z
        gradient = scores if self.overwrite else torch.empty_like(z)
        return self._values(scores, gradient), [gradient]

    def backward(self, inputs: Sequence[Any], wanted: Sequence[bool], incoming: Tensor, kept: None) -> Gradients:
        gradient = torch.empty_like(inputs[0])
        self._values(inputs[0], gradient, incoming)
        return [gradient]

    def _values(self, z: Tensor, out: Tensor | None, upstream: Tensor | None = None) -> Tensor:
        share = self.examples.share(WIDER.get(z.dtype, z.dtype), upstream)
        return by_blocks(self.kernel, z, self.examples.labels, share, out, self.examples.kept is not None)


class _WithGradients(torch.autograd.Function):
    """A value that is computed together with its gradients. A second derivative is taken from the plain formula."""

    @staticmethod
    def forward(ctx: Any, way: Way, *inputs: Tensor | None) -> Tensor:
        values, kept = way.forward(inputs, ctx.needs_input_grad[1:])
        ctx.way, ctx.kept = way, kept
        ctx.save_for_backward(*([None] * len(inputs) if way.overwrite and kept is not None else inputs))
        return way.examples.reduced(values)

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        way, inputs = ctx.way, ctx.saved_tensors
        # Autograd would have to copy a gradient to which another reference exists.
        kept, ctx.kept = ctx.kept, None
        again, known = torch.is_grad_enabled(), isinstance(kept, list)
        if inputs[0] is None and (again or not known):
            raise RuntimeError("overwrite=True keeps no scores, so backward can run once and without create_graph=True")
        if again or (not known and is_batched(incoming)):
            return None, *by_plain(way.plain, inputs, ctx.needs_input_grad[1:], incoming)
        if known:
            return None, *[None if part is None else times(part, incoming) for part in kept]
        return None, *way.backward(inputs, ctx.needs_input_grad[1:], incoming, kept)


def is_batched(tensor: Tensor) -> bool:
    """Return whether vmap batches this tensor, so that nothing can be written in place with it."""
    try:
        torch.zeros((), device=tensor.device).expand(tensor.shape).clone().add_(tensor, alpha=0)
    except RuntimeError:
        return True
    return False


def by_plain(
    plain: Callable[..., Tensor], inputs: Sequence[Tensor | None], wanted: Sequence[bool], incoming: Tensor
) -> Gradients:
    """Return the gradients by the plain formula: for second derivatives, and where gradients are batched by vmap."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        parts = [part if again or part is None else part.detach().requires_grad_() for part in inputs]
        needed = [part for part, want in zip(parts, wanted, strict=True) if part is not None and want]
        gradients = iter(torch.autograd.grad(plain(*parts), needed, incoming, create_graph=again))
    return [next(gradients) if want else None for want in wanted]


def times(gradient: Tensor, incoming: Tensor) -> Tensor:
    """Scale by the upstream gradient, one number or one for each example, in place if possible."""
    try:
        if not incoming.dim() and validation.looks_at(incoming) and float(incoming) == 1:
            return gradient
        return gradient.mul_(incoming.unsqueeze(1) if incoming.dim() else incoming)
    except RuntimeError:  # inside vmap a gradient can be neither looked at nor written in place
        return gradient * (incoming.unsqueeze(1) if incoming.dim() else incoming)


class Job(NamedTuple):
    """A block of rows, as a kernel gets it. Dimension 1 holds the classes in every tensor."""

    z: Tensor  # the scores
    y: Tensor  # the labels, with size 1 along dimension 1; or a weight for each class, in the shape of the scores
    share: Tensor
    """What each example counts for in the gradient. Dimension 1 has size 1. It is a scalar if all examples agree."""
    out: Tensor  # the kernel writes the gradient here
    scratch: Sequence[Tensor]  # As many tensors like ``out`` as the kernel declares. The kernel may overwrite them.
    scores: Scores | None = None  # the scores again, if classes may be masked out; None if all classes are present
    norm: Tensor | None = None  # the norms of the score vectors, if they are known and no square overflows
    top: Tensor | None = None  # the largest score of each example, if it is known


class Kernel(ABC):
    """A kernel writes the gradient of a job, and returns the values with size 1 along dimension 1.

    A NaN among the scores of a row becomes the value of that row, and every entry of its gradient.
    """

    shows_masks = False  # whether the values are not finite if a class is masked out and the job does not say so
    squares = False  # whether the kernel squares the scores
    adds = False  # whether it adds up scores of all classes, so that large ones may overflow
    scratch = 0  # how many scratch tensors it needs

    @abstractmethod
    def __call__(self, job: Job) -> Tensor: ...


@functools.lru_cache(maxsize=256)
def constant(dtype: torch.dtype, value: float) -> Tensor:
    """Return a number as a tensor. For a small batch torch would take longer for a Python number than for the batch."""
    return torch.tensor(value, dtype=dtype)


def class_mean(t: Tensor, scores: Scores | None) -> Tensor:
    """Return the mean over the classes that are present, with size 1 along dimension 1."""
    # torch's mean takes longer over few classes.
    return t.sum(1, keepdim=True).div_(t.shape[1]) if scores is None else scores.mean(t)
