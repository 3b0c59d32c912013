"""What a certificate is measured on: a loss in float64, as a function of scores and labels, and its rounding errors."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from symloss.losses.base import Loss
from symloss.losses.criterion import AnyLoss, Criterion
from symloss.losses.logits import Scores
from symloss.losses.operators import Wrapped, as_loss
from symloss.losses.spec import create_loss

Objective = Callable[[Tensor, Tensor], Tensor]
"""A function of scores (P, C) and labels (P,) with values (P,)."""

EPS = 2.0**-52
COARSE = 1e-5  # a loss with larger rounding errors, relative to its values, is not judged
STEP, SIXTH = 1e-7, (1.0, -6.0, 15.0, -20.0, 15.0, -6.0, 1.0)
"""The steps between the values whose sixth difference is all rounding, relative to 1 + |z|, and its coefficients."""
MANY = 100.0  # so many times the estimated rounding error, a deviation is no rounding error
FEW = 64.0  # and so many units in the last place
CANDIDATES = 12  # points whose rounding error is measured, since they violate a property most


def raw_loss(loss: AnyLoss) -> Loss:
    """Return the expression behind a loss of any kind, without its normalisation and reduction.

    >>> raw_loss("ce"), raw_loss("sgce:q=0.5,normalize=l2")
    (CE(), symmetrize(GCE(q=0.5)))
    """
    if isinstance(loss, str):
        loss = create_loss(loss)
    if isinstance(loss, Criterion) and loss.weight is None and loss.label_smoothing == 0:
        return loss.loss
    return as_loss(loss)


class Subject:
    """The loss that is measured, in float64. Construction refuses a loss that is not one number for each example.

    Args:
        loss: an expression of this package.
        num_classes: the number of classes C.
        scores: a map of the scores that is measured together with the loss.
    """

    def __init__(self, loss: Loss, num_classes: int, scores: Callable[[Tensor], Tensor] | None = None):
        self.loss, self.num_classes = copied(loss), num_classes
        self.map = scores if scores is not None else torch.clone  # a loss may change its input in place
        generator = torch.Generator().manual_seed(1)
        ball = torch.rand(48, num_classes, dtype=torch.float64, generator=generator) * 2 - 1
        labels = torch.randint(num_classes, (48,), generator=generator)
        # In some the label leads or trails by 10, so that most losses show their range.
        ball[::4].scatter_(1, labels[::4, None], 10.0)
        ball[1::4].scatter_(1, labels[1::4, None], -10.0)
        self.unit, self.eps = 0.0, EPS
        try:
            values = self.value(ball, labels).detach()
        except RuntimeError as error:
            if "dtype" not in str(error) and "scalar type" not in str(error):
                raise
            self.loss = copied(loss, torch.float64)  # a module with weights in float32
            values = self.value(ball, labels).detach()
        self.refuse_nan(ball, labels, values)
        self._refuse_change(values, self.value(ball, labels).detach(), "changes from call to call", 0.0)
        every = self.per_class(ball).detach()
        spread = float((every.amax(0) - every.amin(0)).max())
        self.unit = spread if 0 < spread < math.inf else float(every.abs().max().nan_to_num(1.0))
        # The precision that the loss computes in: float32 inside is rounding too.
        found = rounding(self.value, ball, labels, step=1e-5) / (values.abs() + self.unit).clamp_min(1e-300)
        self.eps = max(EPS, 4 * float(found.median()))
        alone = torch.cat([self.value(ball[k : k + 1], labels[k : k + 1]).detach() for k in (1, 5)])
        if self.eps > COARSE:
            raise ValueError(
                "certify needs a loss that computes in float32 or float64; the values of this one vary by "
                f"{self.eps / 4:.0e} of their size between scores that are next to each other"
            )
        bound = self.tolerance(values.abs(), ball, rounding(self.value, ball, labels))[[1, 5]]
        self._refuse_change(values[[1, 5]], alone, "depends on the other examples of the batch", bound)
        self.differentiable = self._has_derivative(ball, labels)
        self.ball = ball

    def _has_derivative(self, z: Tensor, y: Tensor) -> bool:
        """Return whether gradients are the derivatives of the values at most points: ``detach`` changes them."""
        if not self.value(z[:2].clone().requires_grad_(), y[:2]).requires_grad:
            return False
        way = torch.randn(z.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        slope = (self.gradient(z, y) * way).sum(1)
        error = torch.full_like(slope, math.inf)
        for step in (1e-3, 1e-4, 1e-5, 1e-6):
            with torch.no_grad():
                change = (self.value(z + step * way, y) - self.value(z - step * way, y)) / (2 * step)
            error = torch.minimum(error, (change - slope).abs() - 0.01 * (change.abs() + slope.abs()))
        return float((error > 1e-5 * self.unit).double().mean()) < 0.2

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the losses (P,) of scores (P, C) at labels (P,)."""
        return real(self.loss.values(Scores(self.map(z)), y[:, None].clone()).squeeze(1))

    def per_class(self, z: Tensor) -> Tensor:
        """Return the losses (P, C) of scores (P, C) at every label."""
        return real(self.loss.per_class(self.map(z)))

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the gradients (P, C) in the scores. They can be differentiated again if z requires a gradient."""
        keep = z.requires_grad
        z = z if keep else z.detach().requires_grad_()
        return derivative(self.value(z, y).sum(), z, keep)

    def hessian(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the second derivatives (P, C, C) in the scores."""
        z = z.detach().requires_grad_()
        g = self.gradient(z, y)
        rows = [derivative(g[:, k].sum(), z, False, retain=True) for k in range(self.num_classes)]
        return torch.stack(rows, 1)

    def tolerance(self, size: Tensor, z: Tensor, noise: Tensor | float = 0.0) -> Tensor:
        """Return what a deviation must exceed at each point: rounding, relative to the values there.

        Args:
            size: (P,), the sizes of the values that were added.
            z: (P, C). A loss may differ by a unit's change for each unit of the scores.
            noise: (P,), the measured rounding errors.
        """
        return MANY * noise + FEW * self.eps * (size + self.unit * (1 + z.abs().amax(1)))

    def exceeding(self, violation: Tensor, size: Tensor, z: Tensor, noise_at: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the indices of the violations (P,) that exceed the rounding errors at their points.

        Rounding errors are measured only for the largest violations.

        Args:
            violation: (P,), how much a property fails at each point.
            size, z: as in :meth:`tolerance`.
            noise_at: a function of indices that returns the rounding errors there.
        """
        ratio = (violation / self.tolerance(size, z)).nan_to_num(0.0)
        ranks = (ratio, violation.nan_to_num(0.0))
        chosen = {place for rank in ranks for place in rank.topk(min(CANDIDATES, len(rank))).indices.tolist()}
        places = torch.tensor(sorted(chosen), dtype=torch.long)
        places = places[ratio[places] > 1]
        return places[violation[places] > self.tolerance(size[places], z[places], noise_at(places))]

    def refuse_nan(self, z: Tensor, y: Tensor, values: Tensor) -> None:
        """Raise an error that names the first point at which the values (P,) are NaN."""
        wrong = values.isnan().nonzero()
        if len(wrong):
            at = int(wrong[0, 0])
            raise ValueError(
                f"certify needs a loss that is a number at all scores; it is nan at {shown(z[at].tolist())}, "
                f"label {int(y[at])}"
            )

    def refuse_replay(self, z: Tensor, y: Tensor, before: Tensor) -> None:
        """Raise an error unless the values come again, in another order and in batches of other sizes."""
        order = torch.randperm(len(z), generator=torch.Generator().manual_seed(4))
        bound = self.tolerance(before.abs(), z)
        for part in order.tensor_split((1, 3, 10, 40, 140, 440, 1440)):
            if len(part):
                with torch.no_grad():
                    again = self.value(z[part], y[part])
                self._refuse_change(before[part], again, "changes with the batch or from call to call", bound[part])

    @staticmethod
    def _refuse_change(before: Tensor, after: Tensor, how: str, bound: Tensor | float) -> None:
        """Raise an error if an example has two losses."""
        off = ((after - before).abs() > bound).nonzero().flatten()
        if len(off):
            raise ValueError(
                f"certify needs a function of one example's scores and label; this loss {how} "
                f"({float(before[off[0]]):.6g}, then {float(after[off[0]]):.6g})"
            )


def real(values: Tensor) -> Tensor:
    """Return values in float64. Complex ones are refused."""
    if values.is_complex() or values.dtype in (torch.float16, torch.bfloat16):
        kind = str(values.dtype).removeprefix("torch.")
        raise ValueError(f"certify needs a loss with values in float32 or float64; got {kind}")
    return values.double()


def copied(loss: Loss, dtype: torch.dtype | None = None) -> Loss:
    """Return the loss with copies of its modules, so that the user's keep their state, in this precision if given."""

    def change(leaf: Loss) -> Loss:
        if not (isinstance(leaf, Wrapped) and isinstance(leaf.function, nn.Module)):
            return leaf
        return Wrapped(copy.deepcopy(leaf.function).to(dtype))

    return loss.map(change)


def derivative(value: Tensor, z: Tensor, create_graph: bool, retain: bool = False) -> Tensor:
    """Return the derivative of ``value`` by z; zeros if it does not depend on z, like the slope of a linear loss."""
    if not value.requires_grad:
        return torch.zeros_like(z)
    (found,) = torch.autograd.grad(
        value, z, create_graph=create_graph, retain_graph=create_graph or retain, allow_unused=True
    )
    return torch.zeros_like(z) if found is None else found


def rounding(
    function: Objective, z: Tensor, y: Tensor, along: Tensor | None = None, step: float = STEP, lines: int = 2
) -> Tensor:
    """Estimate the rounding errors (P,) of a function, from its sixth differences on lines of tiny steps.

    Over such steps a smooth function is a polynomial, and its sixth difference is zero (Moré and Wild, ECnoise).

    Args:
        function: a function of scores and labels.
        z: (P, C).
        y: (P,).
        along: (P, C), the direction of the steps, for points beside a jump; random ones by default.
        step: the step, relative to 1 + |z|.
        lines: the number of random lines; the largest estimate counts.
    """
    generator = torch.Generator().manual_seed(3)
    worst = torch.zeros(len(z), dtype=torch.float64)
    if not len(z):
        return worst
    for _ in range(1 if along is not None else lines):
        drawn = torch.rand(z.shape, generator=generator, dtype=torch.float64) * 2 - 1
        move = step * (1 + z.abs()) * (drawn if along is None else along)
        with torch.no_grad():
            values = function(torch.cat([z + k * move for k in range(len(SIXTH))]), y.repeat(len(SIXTH)))
        sixth = (values.reshape(len(SIXTH), -1) * torch.tensor(SIXTH, dtype=torch.float64)[:, None]).sum(0)
        worst = torch.maximum(worst, sixth.abs().nan_to_num(0.0) / math.sqrt(924))
    return worst


def shown(vector: list[float], label: int | None = None, most: int = 6) -> str:
    """Return a score vector on a line: whole if short, else the label's score, the extremes and the count."""
    if len(vector) <= most:
        return "(" + ", ".join(f"{x:.4g}" for x in vector) + ")"
    own = "" if label is None else f"label {vector[label]:.4g}, "
    return f"({own}others {min(vector):.4g} to {max(vector):.4g}, {len(vector)} in all)"
