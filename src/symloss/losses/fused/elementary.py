"""Elementary functions for the GPU, from sums, products and bits. They are right to a few units in the last place.

The exponential and the logarithm of a GPU lose digits: a logarithm near 1 has an absolute error, an exponential one
that grows with its argument. These functions do not. They also compute the same in Triton's interpreter.

The functions are written in Triton's language, and their text is copied into each kernel. Python does not call them.
"""

from __future__ import annotations

from typing import Any

try:
    import triton.language as tl
except ImportError:  # there are no kernels then
    tl: Any = None  # type: ignore[no-redef]


def scaled(x: Any, n: Any) -> Any:
    """x * 2^n for a whole n from -252 to 254. It is rounded once, also where the product is subnormal."""
    k = n.to(tl.int32)
    half = k >> 1
    first = ((half + 127) << 23).to(tl.float32, bitcast=True)
    second = ((k - half + 127) << 23).to(tl.float32, bitcast=True)
    return x * first * second


def exp(x: Any) -> Any:
    """e^x."""
    safe = tl.where(x > -104.0, tl.where(x < 89.0, x, 89.0), -104.0)
    n = tl.floor(safe * 1.4426950408889634 + 0.5)
    # 0.693359375 is log 2 to nine bits. Its products with n are exact.
    r = (safe - n * 0.693359375) + n * 2.1219444005469058e-4
    series = 1 / 720 + r * (1 / 5040)
    series = 1 / 6 + r * (1 / 24 + r * (1 / 120 + r * series))
    y = 1.0 + (r + r * r * (0.5 + r * series))
    return tl.where(x != x, x, scaled(y, n))  # noqa: PLR0124 (it is NaN)


def expm1(x: Any) -> Any:
    """e^x - 1."""
    r = tl.where(tl.abs(x) < 0.5, x, 0.0)
    series = 1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * (1 / 362880)))
    series = 1 / 6 + r * (1 / 24 + r * (1 / 120 + r * series))
    near = r + r * r * (0.5 + r * series)
    return tl.where(tl.abs(x) < 0.5, near, exp(x) - 1.0)


def parts(x: Any) -> Any:
    """k and f with x = 2^k (1 + f), and 1 + f between the roots of 1/2 and 2. x must be above 0 and finite."""
    small = x < 1.1754943508222875e-38
    bits = tl.where(small, x * 16777216.0, x).to(tl.int32, bitcast=True)
    k = (bits - 0x3F3504F3) >> 23
    f = (bits - (k << 23)).to(tl.float32, bitcast=True) - 1.0
    return tl.where(small, k - 24, k).to(tl.float32), f


def log_near_one(f: Any) -> Any:
    """log(1 + f) for 1 + f between the roots of 1/2 and 2, by the series of the inverse hyperbolic tangent."""
    s = f / (2.0 + f)
    w = s * s
    bend = w * (2 / 3 + w * (2 / 5 + w * (2 / 7 + w * (2 / 9 + w * (2 / 11)))))
    half_square = 0.5 * f * f
    return f - (half_square - s * (half_square + bend))


def log(x: Any) -> Any:
    """The natural logarithm."""
    inside = (x > 0.0) & (x < float("inf"))
    k, f = parts(tl.where(inside, x, 1.0))
    # 0.693359375 is log 2 to nine bits. Its products with k are exact.
    y = k * 0.693359375 + (log_near_one(f) - k * 2.1219444005469058e-4)
    outside = tl.where(x == 0.0, float("-inf"), tl.where(x > 0.0, x, float("nan")))
    return tl.where(inside, y, outside)


def log1p(x: Any) -> Any:
    """log(1 + x). What 1 + x loses by rounding is added to the logarithm."""
    u = 1.0 + x
    inside = (u > 0.0) & (u < float("inf"))
    lost = tl.where(inside, x - (u - 1.0), 0.0)
    return log(u) + lost / tl.where(inside, u, 1.0)


def power(x: Any, q: Any, q_high: Any, q_low: Any) -> Any:
    """x^q for x >= 0 and a number q that is not 0. ``q_high + q_low`` is q; ``q_high`` has at most 12 bits.

    With x = 2^k (1 + f) it is 2^(q k) (1 + f)^q. The whole part of q k is exact, so the error does not grow with it.
    """
    inside = (x > 0.0) & (x < float("inf"))
    k, f = parts(tl.where(inside, x, 1.0))
    exact = q_high * k
    n = tl.floor(exact + 0.5)
    n = tl.where(n > 254.0, 254.0, tl.where(n < -252.0, -252.0, n))
    rest = (exact - n) + q_low * k
    y = scaled(exp(rest * 0.6931471805599453 + q * log_near_one(f)), n)
    zero, infinite = tl.where(q > 0.0, 0.0, float("inf")), tl.where(q > 0.0, float("inf"), 0.0)
    outside = tl.where(x == 0.0, zero, tl.where(x > 0.0, infinite, float("nan")))
    return tl.where(inside, y, outside)


def root(x: Any) -> Any:
    """The square root. GPUs take the root of a subnormal number for 0, so a small one is scaled first."""
    small = x < 1e-30
    y = tl.sqrt(tl.where(small, x * 281474976710656.0, x))
    return tl.where(small, y * 5.9604644775390625e-08, y)


def log_add_exp(a: Any, b: Any) -> Any:
    """log(e^a + e^b)."""
    high, low = tl.where(a > b, a, b), tl.where(a > b, b, a)
    return tl.where(high == low, high + 0.6931471805599453, high + log1p(exp(low - high)))


def log_sigmoid(x: Any) -> Any:
    """log(1 / (1 + e^-x))."""
    return tl.where(x < 0.0, x, 0.0) - log1p(exp(-tl.abs(x)))


def total(x: Any) -> Any:
    """The sum over the classes."""
    return tl.sum(x, axis=1, keep_dims=True)


def largest(x: Any) -> Any:
    """The maximum over the classes."""
    return tl.max(x, axis=1, keep_dims=True)


FUNCTIONS = (scaled, exp, expm1, parts, log_near_one, log, log1p, power, root, log_add_exp, log_sigmoid, total, largest)
"""All functions, each after those that it calls."""
