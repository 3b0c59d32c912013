"""The regressors: scikit-learn's own checks, the closed form with intercept and centring, streams of bad input."""

import pickle

import numpy as np
import pytest
import torch
from estimator_checks import assert_is_an_estimator
from in_turn import in_turn
from refusals import all_refused, refused
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import distributions as D  # noqa: N812

from symloss.theory.regression import LinearFamilyRegressor, UnhingedRegressor


class _Tanh:
    """A function whose name is the same in every process: scikit-learn makes names of tests of it."""

    def __call__(self, y):
        return -np.tanh(y)

    def __repr__(self):
        return "tanh"


tanh = _Tanh()


@pytest.mark.parametrize(
    "estimator",
    [
        UnhingedRegressor(),
        UnhingedRegressor(delta=1.5, corruption_mean="median", fit_intercept=False, center=False),
        LinearFamilyRegressor(tanh, corruption=[-1.0, 0.5, 2.0]),  # joblib cannot hash what torch makes
    ],
)
def test_scikit_learn_checks(estimator):
    assert_is_an_estimator(estimator)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 3)) * [1, 2, 0.5] + [0, 3, -1]
    return x, x @ [1.0, -0.5, 2.0] + 4 + random.normal(size=80)


def objective(x, slopes, decay, center, intercept):
    """What the regressors minimise, with the intercept as one more column; w and b by an iterative solver."""
    columns = x - x.mean(0) if center else x
    columns = np.column_stack([columns, np.ones(len(x))]) if intercept else columns
    found = optimize.minimize(
        lambda w: (slopes * (columns @ w)).mean() + decay / 2 * w @ w,
        np.zeros(columns.shape[1]),
        jac=lambda w: slopes @ columns / len(x) + decay * w,
        options={"gtol": 1e-13},
    ).x
    return columns @ found


@in_turn("center", [True, False])
@in_turn("intercept", [True, False])
@in_turn(("delta", "mean"), [(None, 0.0), (1.5, 2.5), (None, "mean"), (1.5, "median")])
def test_closed_form_is_the_optimum(data, center, intercept, delta, mean):
    x, y = data
    regressor = UnhingedRegressor(0.8, delta=delta, corruption_mean=mean, fit_intercept=intercept, center=center)
    m = {"mean": y.mean(), "median": np.median(y)}.get(mean, mean)
    offset = y - m if delta is None else np.clip(y - m, -delta, delta)
    expected = m + objective(x, -offset, 0.8, center, intercept)
    regressor.fit(x, y)
    assert np.allclose(regressor.predict(x), expected, atol=1e-6)
    assert np.allclose(x @ regressor.coef_ + regressor.intercept_, regressor.predict(x))
    assert regressor.corruption_mean_ == pytest.approx(m)


def test_sparse_single_and_far_features_give_the_same(data):
    x, y = data
    thin = np.where(x > 1, x, 0)
    for regressor in (UnhingedRegressor(), LinearFamilyRegressor(tanh), UnhingedRegressor(center=False)):
        dense = clone(regressor).fit(thin, y)
        for kind in (sparse.csr_matrix, sparse.csc_array):
            found = clone(regressor).fit(kind(thin), y)
            assert np.allclose(found.coef_, dense.coef_, rtol=1e-12)
            assert np.allclose(found.predict(kind(thin)), dense.predict(thin), rtol=1e-12)
    near, far = UnhingedRegressor().fit(x, y), UnhingedRegressor().fit(x + 1e6, y + 1e6)
    assert np.allclose(near.coef_, far.coef_, rtol=1e-6)
    single = UnhingedRegressor().fit(x.astype(np.float32), y)
    assert single.coef_.dtype == single.predict(x.astype(np.float32)).dtype == np.float32
    assert np.allclose(single.coef_, near.coef_, rtol=1e-5)
    white = np.linalg.qr(x - x.mean(0))[0] * np.sqrt(len(x))  # for which it is least squares
    assert np.allclose(
        UnhingedRegressor().fit(white, y).predict(white), LinearRegression().fit(white, y).predict(white)
    )


@in_turn("delta", [None, 3.0])
def test_the_centroid_of_corrupted_targets_is_1_minus_p_times_the_clean_one(data, delta):
    """On average, exactly: the targets of q are put in, each with its share, instead of drawn."""
    x, y = data
    q, p = np.linspace(-8, 8, 33), 0.7
    weight = np.concatenate([np.full(80, 1 - p), np.full(80 * 33, p / 33)])
    options = {"delta": delta, "fit_intercept": False, "center": False}
    every = np.vstack([x, np.repeat(x, 33, 0)]), np.concatenate([y, np.tile(q, 80)])
    corrupted = UnhingedRegressor(1 - p, **options).fit(*every, sample_weight=weight)
    assert np.allclose(UnhingedRegressor(**options).fit(x, y).coef_, corrupted.coef_)


def test_weights_are_repetitions(data):
    x, y = data
    weight = np.arange(80) % 4
    for mean in (0.0, "mean", "median"):
        regressor = UnhingedRegressor(delta=2.0, corruption_mean=mean)
        weighted = clone(regressor).fit(x, y, sample_weight=weight)
        repeated = clone(regressor).fit(np.repeat(x, weight, 0), np.repeat(y, weight))
        assert np.allclose(weighted.coef_, repeated.coef_)
        assert weighted.corruption_mean_ == pytest.approx(repeated.corruption_mean_)


def test_several_targets_at_once(data):
    x, y = data
    both = np.column_stack([y, -2 * y + 1])
    for regressor in (UnhingedRegressor(delta=2.0, corruption_mean="median"), LinearFamilyRegressor(tanh)):
        together = clone(regressor).fit(x, both)
        assert together.coef_.shape == (2, 3)
        assert together.intercept_.shape == (2,)
        for k in range(2):
            assert np.allclose(together.predict(x)[:, k], clone(regressor).fit(x, both[:, k]).predict(x))


def test_searches_and_pickles(data):
    x, y = data
    chain = make_pipeline(StandardScaler(), UnhingedRegressor())
    search = GridSearchCV(chain, {"unhingedregressor__decay": np.arange(1, 4)}, cv=4).fit(x, y)  # whole numbers
    assert search.best_score_ > 0.5
    family = LinearFamilyRegressor(tanh, corruption=D.Normal(0.0, 1.0)).fit(x, y)
    assert np.array_equal(pickle.loads(pickle.dumps(family)).predict(x), family.predict(x))


@in_turn("corruption", [D.Exponential(0.5), torch.tensor([1.0, 3.0]), np.array([1, 3]), [1.5, 2.5]])
def test_the_mean_of_f_is_subtracted(data, corruption):
    x, y = data
    found = LinearFamilyRegressor(corruption=corruption, center=False).fit(x, y)
    expected = UnhingedRegressor(corruption_mean=2.0, center=False).fit(x, y)
    assert found.mean_f_ == pytest.approx(-2, rel=1e-9)
    assert np.allclose(found.predict(x), expected.predict(x) - 2)


def test_bad_input(data):
    x, y = data
    for decay in (0, -1.0, np.inf, np.nan):
        with refused(ValueError, "decay", "(0, inf)"):
            UnhingedRegressor(decay).fit(x, y)
    for text in ("mode", "a number"):
        with refused(ValueError, "corruption_mean must be 'mean', 'median' or a number", repr(text)):
            UnhingedRegressor(corruption_mean=text).fit(x, y)
    for weights in (np.zeros(80), np.full(80, np.inf), -np.ones(80)):
        with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
            UnhingedRegressor().fit(x, y, sample_weight=weights)
    with refused(ValueError, "overflows", "scale"):
        UnhingedRegressor(1e-3).fit((x * 1e37).astype(np.float32), y * 100)
    with refused(ValueError, "X", "predictions are finite in float32", "too large"):
        UnhingedRegressor(1e-3).fit(x.astype(np.float32), y).predict(np.float32(1e37) * x.astype(np.float32))
    with pytest.raises(ValueError, match="NaN"):
        UnhingedRegressor().fit(x, np.where(y > 3, np.nan, y))
    with refused(ValueError, "f must return one finite number", "shape (80, 1)", "shape ()"):
        LinearFamilyRegressor(lambda y: y.sum()).fit(x, y)
    with refused(ValueError, "f must return one finite number", "NaN or infinity"):
        LinearFamilyRegressor(lambda y: np.full_like(y, np.nan)).fit(x, y)
    with refused(ValueError, "one distribution", "(2,)"):
        LinearFamilyRegressor(corruption=D.Normal(torch.zeros(2), 1.0)).fit(x, y)
    all_refused(
        (TypeError, "decay ... '1'", lambda: UnhingedRegressor("1").fit(x, y)),
        (ValueError, "delta ... (0, inf) ... -1", lambda: UnhingedRegressor(delta=-1.0).fit(x, y)),
        (ValueError, "overflows ... scale", lambda: UnhingedRegressor().fit(x * 1e300, y * 1e300)),
        (ValueError, "overflows ... scale", lambda: UnhingedRegressor(corruption_mean=-1.7e308).fit(x, 1e307 * y)),
        (TypeError, "f must be a function ... 3", lambda: LinearFamilyRegressor(3).fit(x, y)),
        (TypeError, "corruption must be ... 'normal'", lambda: LinearFamilyRegressor(corruption="normal").fit(x, y)),
    )
