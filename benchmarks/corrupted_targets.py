"""Fit linear regression to corrupted targets.

    OMP_NUM_THREADS=1 python benchmarks/corrupted_targets.py
    OMP_NUM_THREADS=1 python benchmarks/corrupted_targets.py --repeats 2    # seconds

First: 500 examples with 10 white features, y = w x with |w| = 1; 60 % of the targets are replaced by draws of scale 3.
The figure is the cosine between the weights that were found and w.

Second: y = 2 x + 0.1 noise, and 60 % of the targets are drawn from N(5 - 4 x, 1). The figure is the slope that was
found.
"""

from __future__ import annotations

import statistics

import measure
import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, clone  # type: ignore[import-untyped]
from sklearn.linear_model import HuberRegressor, LinearRegression  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

from symloss.theory.regression import LinearFamilyRegressor, UnhingedRegressor

EXAMPLES, FEATURES, CORRUPTED, SCALE = 500, 10, 0.6, 3.0
Array = NDArray[np.float64]


def minus_tanh(targets: Array) -> Array:
    """Return f of a linear loss f(y) z. It is odd, so its mean under both corruptions is 0."""
    return -np.tanh(targets)


MODELS = {
    "least squares": LinearRegression(),
    "HuberRegressor, iterative": HuberRegressor(max_iter=1000),
    "UnhingedRegressor()": UnhingedRegressor(),
    "UnhingedRegressor(delta=1)": UnhingedRegressor(delta=1.0),
    "LinearFamilyRegressor(-tanh)": LinearFamilyRegressor(minus_tanh),
}


def cosine(model: RegressorMixin, draws: str, seed: int) -> tuple[float, float]:
    """Return the cosine between found and true weights, and the milliseconds of the fit."""
    random = np.random.default_rng(seed)
    x, w = random.normal(size=(EXAMPLES, FEATURES)), random.normal(size=FEATURES)
    w /= np.linalg.norm(w)
    noise = random.normal(size=EXAMPLES) if draws == "normal" else random.standard_cauchy(EXAMPLES)
    y = np.where(random.random(EXAMPLES) < CORRUPTED, SCALE * noise, x @ w)
    fresh = clone(model)
    seconds = measure.timed(lambda: fresh.fit(x, y)).seconds
    found = np.ravel(fresh.coef_)
    return float(found @ w / np.linalg.norm(found)), 1e3 * seconds


def slopes(seed: int) -> tuple[float, float]:
    """Return the slope by least squares, and by the unhinged loss that is symmetric under the corruption."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (EXAMPLES, 1))
    mean = 5 - 4 * x[:, 0]
    clean = 2 * x[:, 0] + 0.1 * random.normal(size=EXAMPLES)
    y = np.where(random.random(EXAMPLES) < CORRUPTED, mean + random.normal(size=EXAMPLES), clean)
    offset = make_pipeline(StandardScaler(), UnhingedRegressor(decay=1 - CORRUPTED)).fit(x, y - mean)
    return _slope(LinearRegression().fit(x, y)), -4 + _slope(offset)


def _slope(model: RegressorMixin) -> float:
    low, high = np.ravel(model.predict(np.array([[0.0], [1.0]])))
    return float(high - low)


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--repeats", type=int, default=200, help="draws of the data (default: 200)")
    repeats = parser.parse_args().repeats
    print(measure.header("", "normal draws", "Cauchy draws", "ms of a fit, both"))
    for name, model in MODELS.items():
        found = [[cosine(model, draws, seed) for seed in range(repeats)] for draws in ("normal", "Cauchy")]
        cells = [measure.spread((value for value, _ in runs), 3) for runs in found]
        times = " and ".join(f"{statistics.median(time for _, time in runs):.1f}" for runs in found)
        print(measure.row(name, *cells, times), flush=True)
    plain, symmetric = (measure.spread(column, 2) for column in zip(*map(slopes, range(repeats)), strict=True))
    print(f"\nThe true slope is 2. Least squares: {plain}, symmetrized: {symmetric}")


if __name__ == "__main__":
    main()
