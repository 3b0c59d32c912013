"""The loss of a batch by a kernel, with autograd around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symloss.losses import validation
from symloss.losses.fast.computing import Computing
from symloss.losses.fast.labelled import Labelled
from symloss.losses.logits import working_type


class BatchLoss(NamedTuple):
    """A loss at the labels of a batch, as a function of its scores (N, C) or (N, C, d1, ...)."""

    compute: Computing
    """Computes the values at the labels, and their gradient."""
    examples: Labelled
    """The labels, and what each example counts for."""
    plain: Callable[[Tensor], Tensor]
    """Computes the same by the plain formulas, for second derivatives."""
    overwrite: bool = False
    """Whether the gradient may take the place of the scores."""

    def loss(self, z: Tensor) -> Tensor | None:
        """The loss, with its gradient if z requires one; None if it is known that no example counts."""
        if self.examples.kept is not None and self.examples.none_counts():
            return None
        if not (z.requires_grad and torch.is_grad_enabled()):
            return self.examples.reduced(self.values(z, None))
        value: Tensor = _WithGradient.apply(z, self)  # type: ignore[no-untyped-call]
        return value

    def values(self, z: Tensor, out: Tensor | None, upstream: Tensor | None = None) -> Tensor:
        """The value of each example, with size 1 along dimension 1.

        The gradient of the loss, times ``upstream``, is written to ``out``.
        """
        share = self.examples.share(working_type(z), upstream)
        return self.compute(z, self.examples.labels.unsqueeze(1), share, out)


class _WithGradient(torch.autograd.Function):
    """A value that is computed together with its gradient. A second derivative is taken from the plain formula."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, batch: BatchLoss) -> Tensor:
        ctx.batch = batch
        # float16 cannot hold small gradients before they are multiplied by what comes from above.
        later = z.dtype == torch.float16
        overwrite = batch.overwrite and not later
        scores = z.detach() if overwrite else z
        ctx.gradient = None if later else scores if overwrite else torch.empty_like(z)
        values = batch.values(scores, ctx.gradient)
        ctx.save_for_backward(None if overwrite else z)
        return batch.examples.reduced(values)

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, None]:
        (z,) = ctx.saved_tensors
        # Autograd would have to copy a gradient to which another reference exists.
        gradient, ctx.gradient = ctx.gradient, None
        again = torch.is_grad_enabled()
        if z is None and (again or gradient is None):
            raise RuntimeError("overwrite=True keeps no scores, so backward can run once and without create_graph=True")
        if again or (gradient is None and is_batched(incoming)):
            return by_plain(ctx.batch.plain, (z,), (True,), incoming)[0], None
        if gradient is None:
            gradient = torch.empty_like(z)
            ctx.batch.values(z, gradient, incoming)
            return gradient, None
        return times(gradient, incoming), None


def is_batched(tensor: Tensor) -> bool:
    """Whether vmap batches this tensor, so that nothing can be written in place with it."""
    try:
        torch.zeros((), device=tensor.device).expand(tensor.shape).clone().add_(tensor, alpha=0)
    except RuntimeError:
        return True
    return False


def by_plain(
    plain: Callable[..., Tensor], inputs: Sequence[Tensor | None], wanted: Sequence[bool], incoming: Tensor
) -> list[Tensor | None]:
    """The gradients by the plain formula: for second derivatives, and where gradients are batched by vmap."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        parts = [part if again or part is None else part.detach().requires_grad_() for part in inputs]
        needed = [part for part, want in zip(parts, wanted, strict=True) if part is not None and want]
        gradients = iter(torch.autograd.grad(plain(*parts), needed, incoming, create_graph=again))
    return [next(gradients) if want else None for want in wanted]


def times(gradient: Tensor, incoming: Tensor) -> Tensor:
    """A gradient times what comes from above: a number, or one for each example. It is written in place if it can."""
    try:
        if not incoming.dim() and validation.looks_at(incoming) and float(incoming) == 1:
            return gradient
        return gradient.mul_(incoming.unsqueeze(1) if incoming.dim() else incoming)
    except RuntimeError:  # inside vmap a gradient can be neither looked at nor written in place
        return gradient * (incoming.unsqueeze(1) if incoming.dim() else incoming)
