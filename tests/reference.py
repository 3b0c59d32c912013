"""Every loss of the catalogue in 100 digits, each from its plain formula: what the package is checked against.

Nothing here knows about rounding: p is e^z / sum e^z, the loss is what the literature writes, and derivatives are
differences at a step of 1e-40. Gradients down to float32's smallest number (1e-45, next to values of 1) keep their
digits that way, which 60 digits with a step of 1e-20 would not give.

To add a loss: one line in ``PHI`` or ``REFERENCE``.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mpmath

mp = mpmath.mp.clone()  # A context of our own: the precision of the global one is nobody's to change.
mp.dps = 100
mpf, log = mp.mpf, mp.log

STEP = mpf("1e-40")
NOISE = 1e-50
"""What difference quotients of such steps cannot tell from 0."""
P_MIN = mpf("1e-7")
LOG_ZERO = -log(mpf("1e-4"))

Number = Any  # mpmath has no types
Scores = tuple[Number, ...]


def mean(values: Sequence[Number]) -> Number:
    return mp.fsum(values) / len(values)


def norm(z: Scores) -> Number:
    return max(mp.sqrt(mp.fsum(x * x for x in z)), mpf("1e-5"))


def unit(z: Scores) -> Scores:
    length = norm(z)
    return tuple(x / length for x in z)


@functools.lru_cache(maxsize=4096)
def softmax(z: Scores) -> Scores:
    weights = [mp.exp(x) for x in z]
    total = mp.fsum(weights)
    return tuple(w / total for w in weights)


@functools.lru_cache(maxsize=4096)
def tempered_softmax(z: Scores, t: Number) -> Scores:
    """exp_t(z - lambda), with lambda such that the sum is 1. At lambda = max z the sum is at least 1."""
    if t == 1:
        return softmax(z)
    top, power = max(z), 1 / (1 - t)

    def entries(shift: Number) -> Scores:
        return tuple((1 + (1 - t) * (x - top - shift)) ** power for x in z)

    last = (len(z) ** (t - 1) - 1) / (t - 1)
    shift = mp.findroot(lambda x: mp.fsum(entries(x)) - 1, (mpf(0), last), solver="anderson", tol=mpf("1e-90"))
    return entries(shift)


def phuber_gce(p: Number, q: Number = 0.7, tau: Number = 10) -> Number:
    edge, gce = tau ** (1 / (q - 1)), PHI["gce"]
    return gce(p, q) if p > edge else gce(edge, q) - tau * (p - edge)


def js(p: Number, pi: Number = 0.5) -> Number:
    m, rest = pi + (1 - pi) * p, 1 - pi
    return (-rest * log(rest) * (1 - p) - m * log(m) + rest * p * log(p)) / (-rest * log(rest))


PHI: dict[str, Callable[..., Number]] = {
    "ce": lambda p: -log(p),
    "mae": lambda p: 1 - p,
    "rce": lambda p: LOG_ZERO * (1 - p),
    "gce": lambda p, q=0.7: (1 - p**q) / q if q else -log(p),
    "focal": lambda p, gamma=0.5: -((1 - p) ** gamma) * log(p),
    "agce": lambda p, a=0.6, q=0.6: ((a + 1) ** q - (a + p) ** q) / q,
    "aul": lambda p, a=5.5, q=3: ((a - p) ** q - (a - 1) ** q) / q,
    "ael": lambda p, a=2.5: mp.exp(-p / a),
    "taylor-ce": lambda p, t=2: mp.fsum((1 - p) ** i / i for i in range(1, int(t) + 1)),
    "phuber-ce": lambda p, tau=10: -log(p) if p > 1 / tau else -tau * p + log(tau) + 1,
    "phuber-gce": phuber_gce,
    "js": js,
}
"""Losses of the label's probability alone."""


def at_label(phi: Callable[..., Number]) -> Callable[..., Number]:
    """The loss of scores and a label, with the same parameters."""
    return functools.wraps(phi)(lambda z, y, **parameters: phi(softmax(z)[y], **parameters))


# What operators make of them.


def at(name: str, z: Scores, y: int, *parameters: Number) -> Number:
    return PHI[name](softmax(z)[y], *parameters)


def relative(name: str, z: Scores, y: int, *parameters: Number) -> Number:
    every = [PHI[name](p, *parameters) for p in softmax(z)]
    return every[y] / mp.fsum(every)


def complement(name: str, z: Scores, y: int, *parameters: Number) -> Number:
    bound = PHI[name](P_MIN, *parameters)
    room = [bound - min(PHI[name](p, *parameters), bound) for p in softmax(z)]
    return 1 - room[y] / mp.fsum(room)


def unhinged(z: Scores, y: int) -> Number:
    return mean(z) - z[y]


def bi_tempered(p: Scores, y: int, t1: Number) -> Number:
    log_t1 = log(p[y]) if t1 == 1 else (p[y] ** (1 - t1) - 1) / (1 - t1)
    return -log_t1 - (1 - mp.fsum(x ** (2 - t1) for x in p)) / (2 - t1)


def amse(p: Scores, y: int, a: Number) -> Number:
    return mean([(a * (k == y) - x) ** 2 for k, x in enumerate(p)])


REFERENCE: dict[str, Callable[..., Number]] = {
    "unhinged": unhinged,
    "sgce": lambda z, y, q=0.7: (mean([p**q for p in softmax(z)]) - softmax(z)[y] ** q) / q,
    "alpha-mae": lambda z, y, alpha=2, kappa=None: (
        (1 - alpha) * unhinged(z, y) + alpha * len(z) * at("mae", z, y)
        if kappa is None
        else unhinged(z, y) + kappa * at("mae", z, y)
    ),
    "symmetrized-mse": lambda z, y: 2 * (mean(softmax(z)) - softmax(z)[y]),
    "symmetrized-cosine": lambda z, y: unhinged(z, y) / norm(z),
    **{name: at_label(phi) for name, phi in PHI.items()},
    "mse": lambda z, y: 1 - 2 * softmax(z)[y] + mp.fsum(p * p for p in softmax(z)),
    "cosine": lambda z, y: 1 - z[y] / norm(z),
    "bi-tempered": lambda z, y, t1=0.8, t2=1.2: bi_tempered(tempered_softmax(z, t2), y, t1),
    "ldr-kl": lambda z, y, lam=1, margin=0.1: (
        lam * log(mean([mp.exp((margin * (k != y) + x - z[y]) / lam) for k, x in enumerate(z)]))
    ),
    "nce": lambda z, y: relative("ce", z, y),
    "nfl": lambda z, y, gamma=0.5: relative("focal", z, y, gamma),
    "ngce": lambda z, y, q=0.7: relative("gce", z, y, q),
    "nnce": lambda z, y: complement("ce", z, y),
    "nnfl": lambda z, y, gamma=0.5: complement("focal", z, y, gamma),
    "sce": lambda z, y, alpha=1, beta=1: alpha * at("ce", z, y) + beta * at("rce", z, y),
    "nce+mae": lambda z, y, alpha=1, beta=1: alpha * relative("ce", z, y) + beta * at("mae", z, y),
    "nce+rce": lambda z, y, alpha=1, beta=1: alpha * relative("ce", z, y) + beta * at("rce", z, y),
    "nfl+mae": lambda z, y, alpha=1, beta=1, gamma=0.5: alpha * relative("focal", z, y, gamma) + beta * at("mae", z, y),
    "nfl+rce": lambda z, y, alpha=1, beta=1, gamma=0.5: alpha * relative("focal", z, y, gamma) + beta * at("rce", z, y),
    "nce+agce": lambda z, y, alpha=1, beta=1, a=0.6, q=0.6: (
        alpha * relative("ce", z, y) + beta * at("agce", z, y, a, q)
    ),
    "nce+aul": lambda z, y, alpha=1, beta=1, a=5.5, q=3: alpha * relative("ce", z, y) + beta * at("aul", z, y, a, q),
    "nce+ael": lambda z, y, alpha=1, beta=1, a=2.5: alpha * relative("ce", z, y) + beta * at("ael", z, y, a),
    "anl-ce": lambda z, y, alpha=1, beta=1: alpha * relative("ce", z, y) + beta * complement("ce", z, y),
    "anl-fl": lambda z, y, alpha=1, beta=1, gamma=0.5: (
        alpha * relative("focal", z, y, gamma) + beta * complement("focal", z, y, gamma)
    ),
    "jal-ce": lambda z, y, alpha=1, beta=1, a=30: alpha * relative("ce", z, y) + beta * amse(softmax(z), y, a),
    "jal-fl": lambda z, y, alpha=1, beta=1, a=30, gamma=0.5: (
        alpha * relative("focal", z, y, gamma) + beta * amse(softmax(z), y, a)
    ),
    "label-smoothing": lambda z, y, r=0.1: (1 - r) * at("ce", z, y) + r * mean([-log(p) for p in softmax(z)]),
    "dirichlet-ce": lambda z, y, alpha=0.5: at("ce", z, y) + (alpha - 1) * mp.fsum(-log(p) for p in softmax(z)),
}
"""The loss of a tuple of raw scores at the label y. Parameters and their defaults are those of ``create_loss``."""


def _parameters(name: str, given: dict[str, float]) -> dict[str, Number]:
    """The given parameters and the defaults of the rest, with all digits from here on."""
    own = [parameter for parameter in inspect.signature(REFERENCE[name]).parameters.values() if "=" in str(parameter)]
    values = {parameter.name: given.get(parameter.name, parameter.default) for parameter in own}
    return {name: value if value is None else mpf(value) for name, value in values.items()}


def _present(z: Sequence[float], y: int) -> tuple[Scores, int, list[int]]:
    """The scores and the label without the classes that -inf masks out, and the places of those that are left."""
    places = [k for k, score in enumerate(z) if score != -math.inf]
    return tuple(mpf(z[k]) for k in places), places.index(y), places


def _evaluate(name: str, z: Scores, y: int, normalize: str | None, parameters: dict[str, Number]) -> Number:
    return REFERENCE[name](z if normalize is None else unit(z), y, **parameters)


def value(name: str, z: Sequence[float], y: int, *, normalize: str | None = None, **parameters: float) -> float:
    scores, label, _ = _present(z, y)
    return float(_evaluate(name, scores, label, normalize, _parameters(name, parameters)))


def gradient(
    name: str,
    z: Sequence[float],
    y: int,
    entries: Iterable[int] | None = None,
    *,
    normalize: str | None = None,
    **parameters: float,
) -> list[float]:
    """The derivatives by the given entries of z (all of them unless said otherwise); 0 where an entry is masked."""
    scores, label, places = _present(z, y)
    exact = _parameters(name, parameters)

    def moved(k: int, step: Number) -> Number:
        return _evaluate(name, (*scores[:k], scores[k] + step, *scores[k + 1 :]), label, normalize, exact)

    def derivative(entry: int) -> float:
        if entry not in places:
            return 0.0
        k = places.index(entry)
        slope = float((moved(k, STEP) - moved(k, -STEP)) / (2 * STEP))
        return slope if abs(slope) > NOISE else 0.0

    return [derivative(entry) for entry in (range(len(z)) if entries is None else entries)]
