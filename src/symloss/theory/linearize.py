"""Linear approximations of losses, as losses themselves, and what holds for them (section 5.2, appendices D, F)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, overload

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation
from symloss.losses.base import FirstOrder, Loss, same, shown
from symloss.losses.criterion import AnyLoss, Numbers, numbers
from symloss.losses.logits import Scores, without_autocast
from symloss.losses.operators import unreduced_copy
from symloss.noise.targets import AnyTargetDistribution, TargetDistribution, target_distribution
from symloss.theory.linear_facts import Constraint, LinearFacts, linear_facts, square
from symloss.theory.regression import (
    LinearRegressionLoss,
    RegressionLoss,
    SymmetrizedRegression,
)
from symloss.theory.subject import raw_loss
from symloss.theory.target_means import recognised, rule

__all__ = [
    "LinearFormula",
    "LinearizedRegression",
    "SlopeAt",
    "linearize",
    "linearize_regression",
]


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class LinearFormula(Loss):  # noqa: PLW1641 (the dataclass writes the hash)
    """A loss that is linear in the scores: sum_k a_k(y) z_k. Such a loss has a fixed number of classes.

    Args:
        coefficients: a_k(y), shape (C, C): a row for each label y, a column for each score k.
        origin: what the coefficients come from, as text; None for the coefficients themselves.

    >>> loss = LinearFormula([[-1.0, 1.0, 1.0], [1.0, -1.0, 0.0], [0.0, 0.0, -1.0]])  # remark D.3
    >>> loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0]))
    tensor(4.)
    >>> loss.symmetric, loss.facts.permutation_invariant
    (True, False)
    """

    coefficients: Tensor = field(hash=False)
    origin: str | None = None
    facts: LinearFacts = field(init=False, hash=False)
    """Which constraints the coefficients meet, and which multiple of the unhinged loss they are."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficients", square(self.coefficients).clone())
        object.__setattr__(self, "facts", linear_facts(self.coefficients))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearFormula) and same(self.coefficients, other.coefficients)

    def __repr__(self) -> str:
        return self.origin or f"LinearFormula({shown(self.coefficients)})"

    @property
    def symmetric(self) -> bool:
        return bool(self.facts.symmetric)

    @property
    def any_classes(self) -> bool:
        return False

    def refuse(self, s: Scores, kept: Tensor) -> None:
        if bool((kept & ~s.present).any()):
            raise ValueError("a linear loss has no value where a class is masked out; got a score of -inf")

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        classes = len(self.coefficients)
        if s.classes != classes:
            raise ValueError(f"{checks.brief(self)} must have scores of {classes} classes; got {s.classes}")
        a = self.coefficients.to(s.z)
        z = torch.where(s.present, s.z, 0.0)
        if labels is not None:
            rows = a[labels.squeeze(s.dim)].movedim(-1, s.dim)
            return (rows * z).sum(s.dim, keepdim=True)
        with without_autocast(z.device):
            return (z.movedim(s.dim, -1) @ a.T).movedim(-1, s.dim)

    def first_order(self, s: Scores) -> FirstOrder:
        ones = torch.ones_like(s.count)
        own, all_of_them = self.coefficients.diagonal().mean(), self.coefficients.mean()
        return FirstOrder(0 * ones, float(all_of_them - own) / (1 - 1 / s.classes) * ones)


TorchRegression = nn.MSELoss | nn.L1Loss | nn.HuberLoss | nn.SmoothL1Loss


@overload
def linearize(  # type: ignore[overload-overlap]  # a regression loss is a module too, and goes here
    loss: LinearRegressionLoss | SymmetrizedRegression | TorchRegression, at: float = ...
) -> LinearizedRegression: ...
@overload
def linearize(loss: AnyLoss, at: float | Numbers = ..., num_classes: int | None = ...) -> LinearFormula: ...
def linearize(loss: Any, at: Any = 0.0, num_classes: int | None = None) -> LinearFormula | LinearizedRegression:
    """Return the linear approximation of a loss at a point z', the loss grad L(z', y) . z, without its constant.

    It is a loss like any other: call it, add it, symmetrize it, certify it, or make a ``Criterion`` of it. Its
    ``facts`` say whether it is symmetric and permutation-invariant, and which multiple of the unhinged loss it is. A
    symmetric and permutation-invariant loss has such a multiple at every point of equal scores where its gradient is
    not 0 (proposition 5.2). Elsewhere it need not (example D.4).

    Args:
        loss: of any kind. The loss itself is meant, on raw scores: the normalisation that a loss of this package may
            apply to the scores is left out. For torch's squared, absolute, Huber and smooth L1 loss, and for the
            regression losses of this package, the result is that of :func:`linearize_regression`.
        at: z', a number for equal scores, or a score for each class.
        num_classes: the number of classes C, 10 if ``at`` does not tell.

    Reference: section 5.2 of the paper.

    >>> linear = linearize("mae", num_classes=4)
    >>> linear.facts.multiple_of_unhinged
    0.25
    >>> elsewhere = linearize("mae", at=(1.0, 0.0, 0.0))
    >>> print(elsewhere.facts)
    yes  symmetric: sum_y a_k(y) = 0
    yes  non-increasing: a_y(y) <= 0
    no   lemma D.1 i: a_y(y) = a_k(k)           a_0(0) = -0.244206 and a_1(1) = -0.167022
    yes  lemma D.1 ii: a_k(y) = a_y(k)
    no   lemma D.1 iii: a_k(y) = a_k'(y)        a_0(1) = 0.122103 and a_2(1) = 0.0449192
    no   permutation-invariant: i, ii and iii
    yes  non-trivial
    no   a multiple of unhinged                 distance 0.258
    """
    is_regression = isinstance(loss, (SymmetrizedRegression, LinearRegressionLoss)) or recognised(loss) is not None
    if is_regression:
        if num_classes is not None:
            raise ValueError(f"num_classes is for classification; got a regression loss, {checks.brief(loss)}")
        return linearize_regression(loss, at)
    z = _point(at, num_classes)
    expression = raw_loss(loss)
    if expression.any_classes and not bool(z.any()):
        expression.slope(len(z))  # which says so if the loss has none at 0
    name = checks.brief(loss) if isinstance(loss, str) else repr(expression)
    place = f"{float(z[0]):g}" if bool((z == z[0]).all()) else f"({', '.join(f'{x:g}' for x in z.tolist())})"
    return LinearFormula(_gradients(expression, z, name), f"linearize({name}, at={place})")


def _point(at: object, num_classes: int | None) -> Tensor:
    """Return the point as a vector of scores in float64."""
    if num_classes is not None:
        num_classes = int(checks.number("num_classes", num_classes, "[2, inf)", whole=True))
    if isinstance(at, Tensor) and at.dim() == 0:
        at = at.item()
    if not hasattr(at, "__len__") or isinstance(at, str):
        level = checks.number("at", at, "(-inf, inf)")
        return torch.full((num_classes or 10,), level, dtype=torch.float64)
    z = numbers("at", at).detach().cpu().double()
    if z.dim() != 1 or len(z) < 2 or not bool(z.isfinite().all()):
        raise ValueError(f"at must be a number or a finite score for each of at least two classes; got {at}")
    if num_classes not in (None, len(z)):
        raise ValueError(f"at must have a score for each of the {num_classes} classes; got {len(z)} scores")
    return z


def _gradients(loss: Loss, z: Tensor, name: str) -> Tensor:
    """Return the gradient of the loss at every label, (C, C), in the precision in which the loss computes."""
    classes = len(z)
    labels = torch.arange(classes)[:, None]
    try:
        loss.values(Scores(z[None]), labels[:1])
    except RuntimeError:  # some losses take float32 alone, as one of torch does that has class weights
        z = z.float()
    values, found = _with_gradient(loss, z.expand(classes, classes), labels, name)
    place = f"at {tuple(z.tolist())}" if classes <= 6 else "at this point"
    if not bool(values.isfinite().all() and found.isfinite().all()):
        raise ValueError(f"{name} has no finite value and gradient {place}; choose another point `at`")
    alone = _with_gradient(loss, z[None], labels[:1], name)
    precise = values.dtype == torch.float64
    for whole, one in zip((values, found), alone, strict=True):
        size = float(whole.abs().max())
        if not torch.allclose(whole[:1], one, rtol=0.0, atol=(1e-9 if precise else 1e-4) * size):
            raise ValueError(
                f"{name} must give each example a value of its own; got another one for a label alone than in a batch"
            )
    _refuse_kinks(loss, z, found, precise, f"{name} has no gradient {place}")
    return found.to(torch.float64 if precise else torch.float32)


def _with_gradient(loss: Loss, z: Tensor, labels: Tensor, name: str) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        z = z.clone().requires_grad_()
        values = loss.values(Scores(z), labels)
        if not values.requires_grad:
            raise ValueError(f"linearize needs a differentiable loss; {name} returns values without a gradient")
        (found,) = torch.autograd.grad(values.sum(), z, allow_unused=True)
    return values.detach(), torch.zeros_like(z) if found is None else found.detach()


@torch.no_grad()
def _refuse_kinks(loss: Loss, z: Tensor, gradients: Tensor, precise: bool, what: str) -> None:
    """Raise ValueError where steps to either side do not have the slope that the gradient says.

    For a smooth loss the difference shrinks with the step. At a kink or a jump it does not, and autograd returns one
    of several slopes.
    """
    classes = len(z)
    # A random direction crosses every kink.
    ways = torch.randn(6, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ways = torch.nn.functional.normalize(ways, dim=1).to(z.dtype)
    labels = torch.arange(classes)[:, None]
    largest = float(gradients.abs().max())
    steps = (1e-4, 1e-5) if precise else (1e-1, 3e-2)
    size = max(1.0, float(z.abs().max()))
    here = loss.values(Scores(z.expand(classes, classes).clone()), labels)
    for way in ways:
        said = gradients.double() @ way.double()
        worst = []
        for step in steps:
            off = [
                sign
                * (loss.values(Scores((z + sign * step * size * way).expand(classes, classes).clone()), labels) - here)
                for sign in (1, -1)
            ]
            slopes = torch.cat(off, 1).double() / (step * size)
            worst.append((slopes - said[:, None]).abs())
        scale = largest + float(slopes.abs().max())
        # The rounding of values, divided by a step, is no kink.
        noise = 16 * torch.finfo(here.dtype).eps * (float(here.abs().max()) + scale * size) / (steps[1] * size)
        allowed = (1e-4 if precise else 0.1) * scale + noise
        bent = ~(worst[1] <= torch.maximum(0.5 * worst[0], torch.full_like(worst[1], allowed)))
        if bool(bent.any()):
            y, side = divmod(int(bent.flatten().int().argmax()), 2)
            direction = "forward" if side == 0 else "backward"
            raise ValueError(
                f"{what}: for label {y} autograd says a slope of {float(said[y]):.6g} and a step {direction} "
                f"has {float(slopes[y, side]):.6g}; choose a point `at` where the loss is differentiable"
            )


@dataclass(frozen=True)
class SlopeAt:
    """The function f(y) = dL/dz (z', y) of targets: the derivative of a regression loss at a prediction.

    It takes tensors and numpy arrays, entry by entry, and returns the same kind. So it can be the ``f`` of
    :class:`LinearRegressionLoss` and of :class:`LinearFamilyRegressor`.

    Args:
        loss: a function or module of (input, target), entry by entry. Its reduction is ignored.
        at: z', the prediction.

    >>> SlopeAt(torch.nn.MSELoss(), 0.0)(torch.tensor([3.0]))
    tensor([-6.])
    """

    loss: RegressionLoss
    at: float

    def __call__(self, target: Any) -> Any:
        """Return f at each target."""
        given = target if isinstance(target, Tensor) else torch.tensor(target)
        t = given.detach().double()
        with torch.enable_grad():
            z = torch.full_like(t, self.at, requires_grad=True)
            values = unreduced_copy(self.loss)(z, t)
            values = validation.one_each("the loss must return one value for each target (reduction='none')", values, z)
            if not values.requires_grad:
                raise ValueError("linearize needs a differentiable loss; this one returns values without a gradient")
            (slope,) = torch.autograd.grad(values.sum(), z, allow_unused=True)
        slope = torch.zeros_like(t) if slope is None else slope.detach()
        if not bool(slope.isfinite().all()):
            off = float(t[~slope.isfinite()].flatten()[0])
            raise ValueError(f"the loss has no finite slope at the prediction {self.at:g} and the target {off:g}")
        found = slope.to(given.dtype if given.is_floating_point() else torch.float64)
        return found if isinstance(target, Tensor) else found.numpy()


class LinearizedRegression(LinearRegressionLoss):
    """The linear approximation f(y) z of a regression loss, of :func:`linearize_regression`.

    Args:
        loss: a function or module of (input, target), entry by entry. Its reduction is ignored.
        at: z', the prediction at which f is the derivative of the loss.
        bound, reduction: as in :class:`LinearRegressionLoss`.
    """

    f: SlopeAt

    def __init__(self, loss: RegressionLoss, at: float = 0.0, *, bound: float | None = None, reduction: str = "mean"):
        if isinstance(loss, type) or not callable(loss):
            given = checks.brief(loss)
            raise TypeError(f"loss must be a torch module or a function of (input, target); got {given}")
        f = SlopeAt(loss, checks.number("at", at, "(-inf, inf)"))
        f(torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64))  # which says so if the loss has no slope
        super().__init__(f, bound=bound, reduction=reduction)

    def symmetric(self, corruption: AnyTargetDistribution) -> Constraint:
        """Return whether the loss is symmetric under a distribution q of targets, that is, whether E_q f = 0.

        The mean is the derivative of E_q L at z' where that has a closed form, and a quadrature else.
        ``LinearRegressionLoss(self.f, q)`` is symmetric in any case: it subtracts the mean.

        Args:
            corruption: q, as in :class:`SymmetrizedRegression`, but no function of x.
        """
        q = target_distribution(corruption)
        mean, error = self._mean_under(q)
        with torch.no_grad():
            points, weights = rule(q.source, 24)[:2]
            size = float((weights * self.f(points).abs()).sum(0).max())
        # Distributions of torch keep their parameters in float32, unless they are told otherwise.
        measure, bar = float(mean.abs().max()), 1e-6 * size + 2 * error
        return Constraint(measure <= bar, measure, f"E_q f = {float(mean.flatten()[mean.abs().argmax()]):.6g}")

    def _mean_under(self, q: TargetDistribution) -> tuple[Tensor, float]:
        """Return E_q f and its error."""
        loss, at = self.f.loss, self.f.at
        inner = loss.loss if isinstance(loss, SymmetrizedRegression) else loss
        try:
            mean = _slope_of_mean(SymmetrizedRegression(inner, q.source), at)
        except ValueError:  # the loss has no mean; its slope may have one
            mean = None
        if mean is not None and isinstance(loss, SymmetrizedRegression):
            subtracted = _slope_of_mean(loss, at)
            mean = None if subtracted is None else mean - subtracted
        if mean is not None:
            return mean, 0.0
        whole = LinearRegressionLoss(self.f, q.source)
        return whole.mean(), float(whole.error().max())

    def extra_repr(self) -> str:
        return f"{checks.brief(self.f.loss)}, at={self.f.at:g}, reduction={self.reduction!r}"


def _slope_of_mean(robust: SymmetrizedRegression, at: float) -> Tensor | None:
    """Return the derivative of E_q L at a prediction, which is E_q f; None if the mean is no closed form and no sum."""
    if robust.method() == "quadrature":
        return None
    with torch.enable_grad():
        z = torch.full(robust.at().batch, at, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(robust.expected(z).sum(), z)
    return slope


def linearize_regression(
    loss: RegressionLoss, at: float = 0.0, *, bound: float | None = None, reduction: str = "mean"
) -> LinearizedRegression:
    """Return the linear approximation of a regression loss at a prediction z', the loss f(y) z with f = dL/dz (z', y).

    Terms without z are left out. ``result.symmetric(q)`` says whether the loss is symmetric under q, and
    ``LinearFamilyRegressor(result.f)`` minimises it over linear predictors in closed form.

    Args:
        loss: a function or module of (input, target), entry by entry. Its reduction is ignored.
        at: z', the prediction.
        bound, reduction: as in :class:`LinearRegressionLoss`.

    Reference: examples F.5 and F.7 of the paper.

    >>> from torch.distributions import Normal
    >>> squared = linearize_regression(torch.nn.MSELoss())  # -2 y z
    >>> squared(torch.tensor([3.0]), torch.tensor([2.0]))
    tensor(-12.)
    >>> bool(squared.symmetric(Normal(0.0, 1.0))), bool(squared.symmetric(Normal(0.5, 1.0)))
    (True, False)
    >>> squared.symmetric(Normal(0.5, 1.0)).seen
    'E_q f = -1'
    """
    return LinearizedRegression(loss, at, bound=bound, reduction=reduction)
