"""The statements of appendix F on regression: a test for each, named after it; and the regressors."""

import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from conftest import assert_close, generator
from estimator_checks import assert_is_an_estimator
from in_turn import in_turn
from refusals import all_refused, refused
from scipy import integrate, sparse, stats
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import distributions as D, nn  # noqa: N812

from symloss.noise import corrupt_targets
from symloss.theory.regression import (
    LinearFamilyRegressor,
    LinearRegressionLoss,
    UnhingedRegressionLoss,
    UnhingedRegressor,
    certify_regression,
    symmetrize_regression,
    weight_decay,
)

Q = D.Normal(torch.tensor(0.5, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64))

LOSSES = {
    "squared": nn.MSELoss(reduction="none"),
    "absolute": nn.L1Loss(reduction="none"),
    "huber": nn.HuberLoss(reduction="none"),
    "log-cosh": lambda z, y: (z - y).cosh().log(),
    "welsch": lambda z, y: 1 - (-(z - y).square() / 2).exp(),
    "linex": lambda z, y: (0.3 * (z - y)).exp() - 0.3 * (z - y) - 1,
    "unhinged": lambda z, y: -y * z,
}

# A clean problem with finitely many x: at each, y is normal about CLEAN. A hypothesis is one prediction for each x.
SHARE = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
CLEAN = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
NOISE_RATE = 0.6


def q_of_x(x):
    return D.Normal(0.5 - 2 * x, 0.7 + x.abs() / 2)


any_corruption = in_turn("q", [Q, q_of_x])
HYPOTHESES = [torch.tensor(h, dtype=torch.float64) for h in itertools.product((-1.0, 0.1, 0.9, 2.0), repeat=3)]

# Simpson's rule is exact to 1e-10 here: the kinks of the losses, at hundredths, lie between its parabolas.
T = np.linspace(-30, 30, 12001)


def risks(loss, q, hypotheses):
    """The corrupted risks (targets as in definition F.1: p q_x + (1 - p) D_{y|x}) and the clean ones, by scipy."""
    drawn = q(CLEAN) if callable(q) else q.expand((3,))
    clean = stats.norm(CLEAN.numpy(), 0.3).pdf(T[:, None])
    replaced = stats.norm(drawn.loc.numpy(), drawn.scale.numpy()).pdf(T[:, None])
    targets = torch.from_numpy(T)[:, None].expand(-1, 3)
    values = np.stack([loss(h.expand(len(T), 3), targets).numpy() for h in hypotheses])
    both = NOISE_RATE * replaced + (1 - NOISE_RATE) * clean, clean
    return [integrate.simpson(values * density, x=T, axis=1) @ SHARE.numpy() for density in both]


@any_corruption
@in_turn("name", LOSSES)
def test_definition_f_1_and_lemma_f_2_corrupted_risk(name, q):
    """p Gamma_h + (1 - p) clean risk."""
    corrupted, clean = risks(LOSSES[name], q, HYPOTHESES[::13])
    gamma = [float(SHARE @ symmetrize_regression(LOSSES[name], q).expected(h, CLEAN)) for h in HYPOTHESES[::13]]
    np.testing.assert_allclose(corrupted, NOISE_RATE * np.array(gamma) + (1 - NOISE_RATE) * clean, atol=1e-7)


@any_corruption
@in_turn("name", LOSSES)
def test_lemma_f_2_on_data(name, q):
    """Both sides for the examples, against scipy's integrals; the insensitive term is constant iff symmetric."""
    h = HYPOTHESES[7]
    robust = symmetrize_regression(LOSSES[name], q)
    found = robust.noisy_risk(h, CLEAN, NOISE_RATE, CLEAN)
    drawn = q(CLEAN) if callable(q) else q.expand((3,))
    density = stats.norm(drawn.loc.numpy(), drawn.scale.numpy()).pdf(T[:, None])
    values = LOSSES[name](h.expand(len(T), 3), torch.from_numpy(T)[:, None].expand(-1, 3)).numpy()
    gamma = integrate.simpson(values * density, x=T, axis=0)
    assert found.clean == pytest.approx(float(LOSSES[name](h, CLEAN).mean()))
    assert found.insensitive == pytest.approx(gamma.mean(), abs=1e-7)
    assert (found.low, found.high) == pytest.approx((gamma.min(), gamma.max()), abs=1e-7)
    assert found.identity == pytest.approx(NOISE_RATE * gamma.mean() + (1 - NOISE_RATE) * found.clean, abs=1e-7)
    rough = float(robust.error(h, CLEAN).max()) + (0.02 if name in ("absolute", "huber") else 1e-7)  # kinks
    assert found.noisy == pytest.approx(found.identity, abs=rough)
    assert not found.constant
    assert (found.p, found.remainder, found.examples) == (NOISE_RATE, 0, 3)


def test_lemma_f_2_the_insensitive_term_of_a_symmetric_loss_is_constant():
    z = torch.linspace(-3, 3, 7)
    for loss in (lambda z, y: -y * z, LinearRegressionLoss(lambda y: y.tanh(), D.Normal(0.0, 1.0), reduction="none")):
        found = symmetrize_regression(loss, D.Normal(0.0, 1.0)).noisy_risk(z, z, p=0.3)
        assert found.constant
        assert found.noisy == pytest.approx(0.7 * found.clean, abs=1e-12)
    with refused(ValueError, "p", "[0, 1)", 1.0):
        symmetrize_regression(nn.MSELoss(), Q).noisy_risk(z, z, p=1.0)


@in_turn("name", LOSSES)
def test_definition_f_3_the_decomposition_and_proposition_f_8(name):
    """The symmetrized loss satisfies the condition, the original not, and the rest does not read the target.

    The decomposition is unique: whatever label-insensitive term is added, the symmetric part is the same. No loss is
    convex and symmetric but not affine: symmetrizing a convex one makes it affine, or not convex.
    """
    loss = LOSSES[name]
    symmetric = symmetrize_regression(loss, Q, reduction="none")
    certificate = certify_regression(symmetric, Q)
    assert certificate.symmetric, certificate
    assert not certify_regression(loss, Q).symmetric
    assert certificate.affine or not certificate.convex
    assert bool(certificate.affine) == (name in ("squared", "unhinged"))
    z = torch.linspace(-3, 3, 7, dtype=torch.float64)
    for y in (-2.0, 0.3, 4.0):
        target = torch.full_like(z, y)
        assert_close(loss(z, target) - symmetric(z, target), symmetric.expected(z))
    plain = loss.forward if isinstance(loss, nn.Module) else loss  # by quadrature, as the other
    first = symmetrize_regression(plain, Q, reduction="none")
    for other in (lambda z, y: plain(z, y) + z.sin() * z**2 + 5, first):
        again = symmetrize_regression(other, Q, reduction="none")
        assert_close(again(z, z.flip(0)), first(z, z.flip(0)), 1e-10)


@any_corruption
@in_turn("name", LOSSES)
def test_corollary_f_4_same_minimiser(name, q):
    """The corrupted risk of the symmetrized loss is 1 - p times the clean one: same order, same best hypothesis.

    Without symmetry it is not: the squared error is drawn towards the mean of q.
    """
    robust = symmetrize_regression(LOSSES[name], q, reduction="none")
    corrupted, clean = risks(lambda z, y: robust(z, y, CLEAN), q, HYPOTHESES[3::9])
    np.testing.assert_allclose(corrupted, (1 - NOISE_RATE) * clean, atol=1e-7)
    assert corrupted.argmin() == clean.argmin()
    if name == "squared":
        corrupted, clean = risks(LOSSES[name], q, HYPOTHESES)
        assert corrupted.argmin() != clean.argmin()


def test_corollary_f_4_for_targets_that_were_drawn():
    """By corrupt_targets: the mean over the data is the risk above, to within what chance allows."""
    places = torch.multinomial(SHARE, 20_000, replacement=True, generator=generator(0))
    x = CLEAN[places]
    y = x + 0.3 * torch.randn(len(x), dtype=torch.float64, generator=generator(1))
    noisy = torch.from_numpy(corrupt_targets(y, NOISE_RATE, q_of_x, x, seed=0).targets)
    robust = symmetrize_regression(nn.HuberLoss(), q_of_x, reduction="none")
    _, clean = risks(lambda z, y: robust(z, y, CLEAN), q_of_x, HYPOTHESES[3::9])
    for h, expected in zip(HYPOTHESES[3::9], (1 - NOISE_RATE) * clean, strict=True):
        found = robust(h[places], noisy, x)
        assert abs(float(found.mean()) - expected) < 4 * float(found.std()) / math.sqrt(len(x))


@in_turn("half_width", [0.5, 3.0])
def test_example_f_5_squared_error_under_uniform_corruption(half_width):
    """(z - y)^2 less its mean over [-I, I] is -2 z y plus what does not read z. So is its linear approximation at 0."""
    q = D.Uniform(-half_width, half_width)
    robust = symmetrize_regression(nn.MSELoss(), q, reduction="none")
    z = torch.linspace(-5, 5, 11, dtype=torch.float64)
    y = torch.linspace(-half_width, half_width, 11, dtype=torch.float64)
    assert_close(robust(z, y), -2 * z * y + y**2 - half_width**2 / 3, 1e-6)
    doubt = torch.zeros_like(y, requires_grad=True)
    for loss in (nn.MSELoss(reduction="sum"), symmetrize_regression(nn.MSELoss(), q, reduction="sum")):
        assert_close(torch.autograd.grad(loss(doubt, y), doubt)[0], -2 * y, 1e-9)
    moved = symmetrize_regression(nn.MSELoss(), D.Exponential(0.5), reduction="none")  # of mean 2 and variance 4
    rest = moved(z, y) / 2 - UnhingedRegressionLoss(corruption_mean=2.0, reduction="none")(z, y)
    assert_close(rest, ((y - 2) ** 2 - 4) / 2, 1e-6)
    unhinged = UnhingedRegressionLoss(reduction="none")
    assert_close(unhinged(z, y), -z * y)
    assert certify_regression(unhinged, q).symmetric


@pytest.fixture(scope="module")
def xy():
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 3)) * [1, 2, 0.5] + [0, 3, -1]
    return x, x @ [1.0, -0.5, 2.0] + 4 + random.normal(size=80)


def assert_least(objective, weights):
    """A convex objective is least where its slope is zero."""
    weights = torch.tensor(weights, requires_grad=True)
    (slope,) = torch.autograd.grad(objective(weights), weights)
    assert_close(slope, torch.zeros_like(slope))


@in_turn("delta", [0.5, 1.0, 3.0])
@in_turn("sigma", [0.7, 4.0])
def test_example_f_7_slope_of_the_symmetrized_huber_loss(delta, sigma):
    robust = symmetrize_regression(nn.HuberLoss(delta=delta), D.Normal(0.0, sigma), reduction="none")
    y = torch.linspace(-5, 5, 21, dtype=torch.float64)
    z = torch.zeros_like(y, requires_grad=True)
    (slope,) = torch.autograd.grad(robust(z, y).sum(), z)
    assert_close(slope, -y.clamp(-delta, delta), 1e-12)
    loss = UnhingedRegressionLoss(delta, reduction="none")
    assert_close(loss(torch.full_like(y, 1.7), y), -1.7 * y.clamp(-delta, delta))


@in_turn("delta", [None, 0.5, 2.0])
def test_examples_f_5_and_f_7_closed_form_is_the_centroid_and_the_optimum(delta, xy):
    """The centroid is the sum of y x / n, example by example, as a linear Hebbian learner adds it (remark F.6)."""
    regressor = UnhingedRegressor(0.7, delta=delta, fit_intercept=False, center=False).fit(*xy)
    clipped = xy[1] if delta is None else [max(-delta, min(delta, y)) for y in xy[1]]
    centroid = sum(y * x for x, y in zip(xy[0], clipped, strict=True)) / 80
    assert np.allclose(regressor.coef_, centroid / 0.7, rtol=1e-12)
    assert regressor.intercept_ == 0
    (x, y), loss = map(torch.from_numpy, xy), UnhingedRegressionLoss(delta)
    assert_least(lambda w: loss(x @ w, y) + weight_decay([w], 0.7), regressor.coef_)


@in_turn("name", [name for name in LOSSES if name != "absolute"])
def test_linear_approximations_of_a_symmetric_loss_are_symmetric(name):
    """At any point z' the slope has mean zero under q, so slope(y) z is symmetric."""
    robust = symmetrize_regression(LOSSES[name], Q, reduction="none")
    for place in (-1.2, 0.0, 2.0):

        def slope(y, place=place):
            with torch.enable_grad():
                z = torch.full_like(y, place, requires_grad=True)
                return torch.autograd.grad(robust(z, y).sum(), z)[0]

        mean = integrate.simpson(slope(torch.from_numpy(T)).numpy() * stats.norm(0.5, 2).pdf(T), x=T)
        assert abs(mean) < (1e-10 if robust.method() == "closed form" else 1e-6)  # Huber's is in closed form
        certificate = certify_regression(lambda z, y, slope=slope: slope(y) * z, Q, points=5)
        assert certificate.symmetric.measure < 1e-5 + 2 * certificate.error, certificate
        assert certificate.affine


def test_proposition_f_8_needs_a_density_that_is_positive():
    """Where q is 0 on a part of the domain of y, convexity there is free: z^2 at targets that q never draws."""
    assert certify_regression(lambda z, y: torch.where(y.abs() > 1, z**2, -y * z), D.Uniform(-1.0, 1.0)).symmetric


FAMILY = {"unhinged": np.negative, "clipped": lambda y: -np.clip(y, -1, 1)}
FAMILY |= {"tanh": lambda y: -np.tanh(y), "square": lambda y: 1 - y**2}


@in_turn("name", FAMILY)
def test_linear_family_is_symmetric_iff_f_has_mean_zero(name, xy):
    """And the closed form of its regressor is the optimum."""
    f = FAMILY[name]

    def of_tensor(y):
        return torch.from_numpy(np.asarray(f(y.numpy())))

    centred = LinearRegressionLoss(of_tensor, Q)
    certificate = certify_regression(centred, Q)
    assert certificate.symmetric, certificate
    assert certificate.error < 0.2  # clipping has kinks, which quadrature feels
    assert not certify_regression(LinearRegressionLoss(of_tensor), Q).symmetric
    mean = integrate.quad(lambda t: float(f(np.array(t))) * stats.norm(0.5, 2).pdf(t), -30, 30, points=[-1, 1])[0]
    assert float(centred.mean()) == pytest.approx(mean, abs=1e-3)
    assert abs(float(centred.mean()) - mean) <= 2 * float(centred.error()) + 1e-9
    sample = np.array([-3.0, 0.2, 0.4, 5.0])
    regressor = LinearFamilyRegressor(f, corruption=sample, decay=0.5, fit_intercept=False, center=False).fit(*xy)
    assert regressor.mean_f_ == pytest.approx(f(sample).mean(), rel=1e-12)
    x, slopes = torch.from_numpy(xy[0]), torch.from_numpy(f(xy[1]) - f(sample).mean())
    assert_least(lambda w: (slopes * (x @ w)).mean() + 0.25 * w.square().sum(), regressor.coef_)


# The regressors.


@pytest.mark.parametrize(
    "estimator",
    [
        UnhingedRegressor(),
        UnhingedRegressor(delta=1.5, corruption_mean="median", fit_intercept=False, center=False),
        LinearFamilyRegressor(corruption=[-1.0, 0.5, 2.0]),  # joblib cannot hash what torch makes
    ],
)
def test_scikit_learn_checks(estimator):
    assert_is_an_estimator(estimator)


@in_turn("center", [True, False])
@in_turn("intercept", [True, False])
@in_turn(("delta", "mean"), [(None, 0.0), (1.5, 2.5), (None, "mean"), (1.5, "median")])
def test_closed_form_is_the_optimum(xy, center, intercept, delta, mean):
    """The intercept is the weight of one more column, and predictions are measured from the mean of the corruption."""
    x, y = xy
    regressor = UnhingedRegressor(0.8, delta=delta, corruption_mean=mean, fit_intercept=intercept, center=center)
    regressor.fit(x, y)
    m = {"mean": y.mean(), "median": np.median(y)}.get(mean, mean)
    offset = y - m if delta is None else np.clip(y - m, -delta, delta)
    assert regressor.corruption_mean_ == pytest.approx(m)
    columns = np.column_stack([x - x.mean(0) if center else x, np.full(80, 1.0 * intercept)])
    weights = np.append(regressor.coef_, regressor.predict(x)[0] - m - columns[0, :3] @ regressor.coef_)
    by_column = -torch.from_numpy(offset @ columns / 80)
    assert_least(lambda w: by_column @ w + 0.4 * w.square().sum(), weights)
    assert np.allclose(regressor.predict(x), m + columns @ weights)
    assert np.allclose(regressor.predict(x), x @ regressor.coef_ + regressor.intercept_)


def test_sparse_single_and_far_features_give_the_same(xy):
    x, y = xy
    thin = np.where(x > 1, x, 0)
    for regressor in (UnhingedRegressor(), LinearFamilyRegressor(np.tanh), UnhingedRegressor(center=False)):
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
    ours, theirs = (each.fit(white, y).predict(white) for each in (UnhingedRegressor(), LinearRegression()))
    assert np.allclose(ours, theirs)


@in_turn("delta", [None, 3.0])
def test_the_centroid_of_corrupted_targets_is_1_minus_p_times_the_clean_one(xy, delta):
    """On average, exactly: the targets of q are put in, each with its share, instead of drawn."""
    x, y = xy
    q, p = np.linspace(-8, 8, 33), 0.7
    weight = np.concatenate([np.full(80, 1 - p), np.full(80 * 33, p / 33)])
    options = {"delta": delta, "fit_intercept": False, "center": False}
    every = np.vstack([x, np.repeat(x, 33, 0)]), np.concatenate([y, np.tile(q, 80)])
    corrupted = UnhingedRegressor(1 - p, **options).fit(*every, sample_weight=weight)
    assert np.allclose(UnhingedRegressor(**options).fit(x, y).coef_, corrupted.coef_)


def test_weights_are_repetitions_and_targets_are_fitted_one_by_one(xy):
    x, y = xy
    weight, both = np.arange(80) % 4, np.column_stack([y, -2 * y + 1])
    for mean in (0.0, "mean", "median"):
        regressor = UnhingedRegressor(delta=2.0, corruption_mean=mean)
        weighted = clone(regressor).fit(x, y, sample_weight=weight)
        repeated = clone(regressor).fit(np.repeat(x, weight, 0), np.repeat(y, weight))
        assert np.allclose(weighted.coef_, repeated.coef_)
        assert weighted.corruption_mean_ == pytest.approx(repeated.corruption_mean_)
    for each in (regressor, LinearFamilyRegressor(np.tanh)):
        together = clone(each).fit(x, both)
        assert (together.coef_.shape, together.intercept_.shape) == ((2, 3), (2,))
        for k in range(2):
            assert np.allclose(together.predict(x)[:, k], clone(each).fit(x, both[:, k]).predict(x))


def test_searches_and_pickles(xy):
    x, y = xy
    chain = make_pipeline(StandardScaler(), UnhingedRegressor())
    search = GridSearchCV(chain, {"unhingedregressor__decay": np.arange(1, 4)}, cv=4).fit(x, y)  # whole numbers
    assert search.best_score_ > 0.5
    family = LinearFamilyRegressor(np.tanh, corruption=D.Normal(0.0, 1.0)).fit(x, y)
    assert np.array_equal(pickle.loads(pickle.dumps(family)).predict(x), family.predict(x))


@in_turn("corruption", [D.Exponential(0.5), torch.tensor([1.0, 3.0]), np.array([1, 3]), [1.5, 2.5]])
def test_the_mean_of_f_is_subtracted(xy, corruption):
    x, y = xy
    found = LinearFamilyRegressor(corruption=corruption, center=False).fit(x, y)
    expected = UnhingedRegressor(corruption_mean=2.0, center=False).fit(x, y)
    assert found.mean_f_ == pytest.approx(-2, rel=1e-9)
    assert np.allclose(found.predict(x), expected.predict(x) - 2)


def test_bad_input(xy):
    x, y = xy
    single = x.astype(np.float32)
    for decay in (0, -1.0, np.inf, np.nan):
        with refused(ValueError, "decay", "(0, inf)"):
            UnhingedRegressor(decay).fit(x, y)
    for weight in (0, np.inf, -1):
        with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
            UnhingedRegressor().fit(x, y, sample_weight=np.full(80, weight))
    with pytest.raises(ValueError, match="NaN"):
        UnhingedRegressor().fit(x, np.where(y > 3, np.nan, y))

    def fit(*setting, x=x, y=y, **options):
        return lambda: UnhingedRegressor(*setting, **options).fit(x, y)

    def family(f=None, corruption=None):
        return lambda: LinearFamilyRegressor(f, corruption=corruption).fit(x, y)

    large, number = UnhingedRegressor(1e-3).fit(single, y), "f must return one finite number"
    all_refused(
        (TypeError, "decay ... '1'", fit("1")),
        (ValueError, "delta ... (0, inf) ... -1", fit(delta=-1.0)),
        (ValueError, "corruption_mean must be 'mean', 'median' or a number ... 'mode'", fit(corruption_mean="mode")),
        (ValueError, "overflows ... scale", fit(x=x * 1e300, y=y * 1e300)),
        (ValueError, "overflows ... scale", fit(1e-3, x=single * np.float32(1e37), y=y * 100)),
        (ValueError, "overflows ... scale", fit(corruption_mean=-1.7e308, y=1e307 * y)),
        (ValueError, "X ... predictions are finite in float32 ... too large", lambda: large.predict(single * 1e37)),
        (TypeError, "f must be a function ... 3", family(3)),
        (ValueError, f"{number} ... shape (80, 1) ... shape ()", family(lambda y: y.sum())),
        (ValueError, f"{number} ... NaN or infinity", family(lambda y: np.full_like(y, np.nan))),
        (TypeError, "corruption must be ... 'normal'", family(corruption="normal")),
        (ValueError, "one distribution ... (2,)", family(corruption=D.Normal(torch.zeros(2), 1.0))),
    )
