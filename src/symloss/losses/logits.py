"""What losses read from scores: exact log-probabilities, sums and means over classes, the label's entry, unit vectors.

A class whose score is ``-inf`` is masked out: it is left out of every sum, every mean and the count.

The largest score of a row needs care. If it leads, 1 - p is the sum of the other probabilities and far below the
rounding of p. So both functions here that normalise a row collect the leader's gradient from the other classes, and no
1 - p is ever computed by a subtraction. (The gradient of ``log_softmax`` is ten percent off at a lead of 15.) Scores
that share the first place need no such care, because none of them is near 1.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)  # Types in which no loss is computed. Such scores are turned into float32.
WIDER = dict.fromkeys(HALF, torch.float32)
"""The type in which losses of such scores are computed, where it is another one."""


def working_type(part: Tensor) -> torch.dtype:
    """Return the type in which losses of such scores are computed."""
    return WIDER.get(part.dtype, part.dtype)


def full_precision(part: Tensor) -> Tensor:
    """Return half precision as float32, and any other tensor as it is."""
    return part.float() if part.dtype in HALF else part


def reduced(values: Tensor, reduction: str) -> Tensor:
    """Return the mean or the sum of the values, or the values themselves for ``"none"``."""
    if reduction == "none":
        return values
    return values.sum() if reduction == "sum" else values.mean()


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Keep the type of the factors in products inside ``with``."""
    # The meta device has no autocast that could be switched off.
    available = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if available else nullcontext()


MASKED = -1e15
"""Stands for the log-probability of a masked class. Its exponential is 0, and no potential overflows there."""


class _LogSoftmax(torch.autograd.Function):
    """The log-softmax along a dimension, and two numbers of each row that its gradient needs.

    ``lead`` is the largest score if it is alone in the first place, else inf. ``others`` is the sum of exp(z - max z)
    without the leader. No comparison is used twice, on purpose: the compiler would store it and read it back, which
    takes several times as long as to compare again.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        top = z.amax(dim, keepdim=True)
        first = z == top
        behind = z - top
        ties = torch.where(first, 1.0, 0.0).to(z.dtype).sum(dim, keepdim=True)
        others = torch.where(first, 0.0, behind.exp()).sum(dim, keepdim=True) + (ties - 1)
        logp = torch.where(z == -torch.inf, MASKED, behind - others.log1p())
        return logp, torch.where(ties > 1, torch.inf, top), others

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], *output)
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Tensor, None]:
        z, logp, lead, others = ctx.saved_tensors
        leads, dim, p = z >= lead, ctx.dim, logp.exp()
        total, rest = g.sum(dim, keepdim=True), torch.where(z < lead, g, 0.0).sum(dim, keepdim=True)
        miss, hit = _odds(p, leads, others, dim)
        return torch.where(leads, (total - rest) * miss - hit * rest, g - p * total), None


def _odds(p: Tensor, leads: Tensor, others: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return 1 - p and p of the leader, as functions of the scores where a derivative of them may be taken."""
    if not torch.is_grad_enabled():
        hit = 1 / (1 + others)
        return others * hit, hit
    miss = torch.where(leads, 0.0, p).sum(dim, keepdim=True)
    return miss, 1 - miss


class _LogSoftmaxWithTangents(_LogSoftmax):
    """The same for forward-mode derivatives, which ``torch.compile`` cannot trace."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, Tensor, Tensor]) -> None:
        _LogSoftmax.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0], *output)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> tuple[Tensor, None, None]:
        z, logp, lead, others = ctx.saved_tensors
        leads, dim, p = z >= lead, ctx.dim, logp.exp()
        moved = p * tangent
        rest = torch.where(leads, 0.0, moved).sum(dim, keepdim=True)
        miss, _hit = _odds(p, leads, others, dim)
        return torch.where(leads, tangent * miss - rest, tangent - moved.sum(dim, keepdim=True)), None, None


def log_softmax(z: Tensor, dim: int) -> Tensor:
    """Return the log-softmax, exact for confident examples too. A masked class has :data:`MASKED` and no gradient."""
    function = _LogSoftmax if torch.compiler.is_compiling() else _LogSoftmaxWithTangents
    logp: Tensor = function.apply(z, dim)[0]  # type: ignore[no-untyped-call]
    return logp


class _Unit(torch.autograd.Function):
    """z / max(|z|, eps) along a dimension, and what its gradient needs.

    All entries are divided by the largest one first, so squares neither overflow nor vanish. ``lead`` is the largest
    size if it is alone in the first place, else inf. ``inverse`` is 1 / size and ``others`` is the sum of (z / size)^2
    without the leader. A norm up to eps has ``inverse`` 1 / eps and ``others`` -1.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, dim: int, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        size_of_each = torch.where(z == -torch.inf, 0.0, z.abs())
        size = size_of_each.amax(dim, keepdim=True)
        tiny = size < eps / z.shape[dim]  # the norm is below eps in any case, and the ratio is not used
        inverse = 1 / torch.where(tiny, 1.0, size)
        first = size_of_each == size
        ties = torch.where(first, 1.0, 0.0).to(z.dtype).sum(dim, keepdim=True)
        others = torch.where(first, 0.0, (size_of_each * inverse).square()).sum(dim, keepdim=True) + (ties - 1)
        root = (1 + others).sqrt()
        short = tiny | (size * root <= eps)
        inverse = torch.where(short, 1 / eps, inverse)
        lead = torch.where(short | (ties > 1), torch.inf, size)
        return z * inverse * torch.where(short, 1.0, 1 / root), lead, inverse, torch.where(short, -1.0, others)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, float], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], *output[1:])
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Tensor, None, None]:
        return _project(ctx, g), None, None


class _UnitWithTangents(_Unit):
    """The same for forward-mode derivatives, which ``torch.compile`` cannot trace."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, float], output: tuple[Tensor, ...]) -> None:
        _Unit.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0], *output[1:])

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, None, None, None]:
        return _project(ctx, tangent), None, None, None


def _project(ctx: Any, g: Tensor) -> Tensor:
    """Multiply by the Jacobian of the unit vectors, which is symmetric: (g - u (u . g)) / |z|, or g / eps."""
    z, lead, inverse, others = ctx.saved_tensors
    dim, finite = ctx.dim, torch.where(z == -torch.inf, 0.0, z)
    short, leads = others < 0, finite.abs() >= lead
    ratio = finite * inverse
    square = torch.where(short, 1.0, 1 + others)
    if torch.is_grad_enabled():  # the same numbers as functions of the scores, for second derivatives
        each = torch.where(short, 0.0, ratio * ratio)
        square, others = (
            value + (found.sum(dim, keepdim=True) - found.detach().sum(dim, keepdim=True))
            for value, found in ((square, each), (others, torch.where(leads, 0.0, each)))
        )
    along = g * ratio
    total, rest = along.sum(dim, keepdim=True), torch.where(finite.abs() < lead, along, 0.0).sum(dim, keepdim=True)
    total = torch.where(short, 0.0, total / square)
    bent = g * torch.where(leads, others / square, 1.0) - ratio * torch.where(leads, rest / square, total)
    projected: Tensor = bent * (inverse / square.sqrt())
    return projected


def unit(z: Tensor, dim: int, eps: float = 1e-5) -> Tensor:
    """Return z / max(|z|, eps) along a dimension. A masked class stays masked and counts for nothing."""
    function = _Unit if torch.compiler.is_compiling() else _UnitWithTangents
    vectors: Tensor = function.apply(z, dim, eps)[0]  # type: ignore[no-untyped-call]
    return vectors


class _Select(torch.autograd.Function):
    """The entry of each label. Its gradient is a comparison, which the compiler fuses; that of gather is a scatter."""

    @staticmethod
    def forward(values: Tensor, index: Tensor, labels: Tensor, dim: int) -> Tensor:
        return values.gather(dim, labels)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:3])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        index, labels = ctx.saved_tensors
        return torch.where(index == labels, g, 0.0), None, None, None


class _once:  # noqa: N801
    """A property that is computed once. torch.compile cannot trace functools.cached_property, which takes a lock."""

    def __init__(self, compute: Callable[[Any], Tensor]):
        self.compute = compute

    def __get__(self, instance: Any, owner: type) -> Tensor:
        name = self.compute.__name__
        if name not in instance.__dict__:
            instance.__dict__[name] = self.compute(instance)
        value: Tensor = instance.__dict__[name]
        return value


class Scores:
    """A batch of score vectors of any shape, with the classes along ``dim``, and what losses read from them.

    Sums, means and selected entries keep the dimension of the classes, with size 1.
    """

    def __init__(self, z: Tensor, dim: int = -1):
        self.z, self.dim = z, dim
        self.present = z != -torch.inf

    @property
    def classes(self) -> int:
        """The number of classes, masked ones included."""
        return self.z.shape[self.dim]

    @property
    def small(self) -> float:
        """A power of two below 1 / classes. As many numbers times it add up without an overflow, and lose no digit."""
        return 2.0 ** -math.ceil(math.log2(self.classes))

    @_once
    def count(self) -> Tensor:
        """How many classes of each example are present; 1 where none is, because such an example must be ignored."""
        return torch.where(self.present, 1.0, 0.0).to(self.z.dtype).sum(self.dim, keepdim=True).clamp_min(1)

    @_once
    def index(self) -> Tensor:
        """Return the number of each class, shaped to broadcast against the scores."""
        return self.align(torch.arange(self.classes, device=self.z.device))

    @_once
    def behind(self) -> Tensor:
        """Each score minus the largest one, and 0 at masked classes. The 0 of the largest score is a constant."""
        leads = self.index == self.z.argmax(self.dim, keepdim=True)
        top = torch.where(leads, self.z, 0.0).sum(self.dim, keepdim=True)
        zero = (top - top).detach()  # NaN if the scores hold NaN
        return torch.where(self.present & ~leads, self.z - top, zero)

    @_once
    def logp(self) -> Tensor:
        """Return the log-softmax. Its gradient is exact for confident examples too."""
        return log_softmax(self.z, self.dim)

    @_once
    def p(self) -> Tensor:
        """Return the softmax."""
        return self.logp.exp()

    @_once
    def shifted(self) -> Tensor:
        """Return the scores minus the largest one: log p up to a constant in each example. It needs no softmax."""
        top = self.z.detach().amax(self.dim, keepdim=True)
        # The gradient does not depend on the scores. The factor makes it NaN if the scores hold NaN.
        return torch.where(self.present, (self.z - top) * torch.where(top.isnan(), top, 1.0), 0.0)

    def align(self, vector: Tensor) -> Tensor:
        """Shape a vector (C,) to broadcast against the scores."""
        shape = [1] * self.z.dim()
        shape[self.dim] = vector.shape[0]
        return vector.reshape(shape)

    def select(self, values: Tensor, labels: Tensor | None, alone: bool = True) -> Tensor:
        """Return the entry of each label; every entry if labels is None. ``alone``: no other entry is needed."""
        if labels is None:
            return values
        if torch.compiler.is_compiling():
            if not alone:  # a gather would have to store all entries
                return torch.where(self.index == labels, values, 0.0).sum(self.dim, keepdim=True)
            chosen: Tensor = _Select.apply(values.expand_as(self.z), self.index, labels, self.dim)  # type: ignore[no-untyped-call]
            return chosen
        return values.expand_as(self.z).gather(self.dim, labels)

    def sum(self, values: Tensor) -> Tensor:
        """Sum over the classes that are present."""
        return torch.where(self.present, values, 0.0).sum(self.dim, keepdim=True)

    def mean(self, values: Tensor) -> Tensor:
        """Average over the classes that are present."""
        return self.sum(values * self.small) / (self.count * self.small)

    def sum_others(self, values: Tensor, labels: Tensor | None) -> Tensor:
        """Sum over the classes that are present, without the label; for every label if labels is None."""
        if labels is None:
            return self.sum(values) - values
        return self.sum(torch.where(self.index == labels, 0.0, values))


class WithoutSoftmax(Scores):
    """Scores that stand in for log p, without the log-sum-exp. They serve losses that ignore a constant in log p."""

    def __init__(self, s: Scores):
        super().__init__(s.z, s.dim)
        self._scores = s

    @_once
    def logp(self) -> Tensor:
        return self._scores.shifted
