"""An estimator that refuses to fit is as it was before; so is one that was never fitted."""

import numpy as np
import pandas as pd
import pytest
import torch
from in_turn import in_turn
from sklearn.exceptions import NotFittedError

from symloss.closed_form import KernelUnhingedClassifier, UnhingedClassifier, fit_distributed
from symloss.theory.regression import LinearFamilyRegressor, UnhingedRegressor

RANDOM = np.random.default_rng(0)
X, Y = pd.DataFrame(RANDOM.standard_normal((30, 3)), columns=["a", "b", "c"]), np.arange(30) % 3
OTHER = RANDOM.standard_normal((30, 2))
"""Features that change what the estimator knows about its input, before it comes to what is wrong."""

ESTIMATORS = [UnhingedClassifier, KernelUnhingedClassifier, UnhingedRegressor, LinearFamilyRegressor]


class Interrupting:
    """Weights during which somebody presses Ctrl-C."""

    shape, dtype = (30,), np.dtype(float)

    def __array__(self, *_, **__):
        raise KeyboardInterrupt


def fails(estimator, method, *data, error=(ValueError, TypeError), **options):
    """The call is refused, and every attribute is the very object that it was."""
    before = dict(vars(estimator))
    with pytest.raises(error):
        getattr(estimator, method)(*data, **options)
    after = vars(estimator)
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)


@in_turn(("make", "features"), [(make, OTHER) for make in ESTIMATORS] + [(UnhingedClassifier, torch.from_numpy(OTHER))])
def test_a_refused_fit_changes_nothing(make, features):
    fitted = make().fit(X, Y)
    for estimator in (fitted, make()):
        fails(estimator, "fit", features, Y[:7])
        fails(estimator, "fit", features, np.full(30, np.nan))
        fails(estimator, "fit", features, Y, sample_weight=np.zeros(30))
        fails(estimator, "fit", np.where(OTHER > 1, np.nan, OTHER), Y)
        fails(estimator, "fit", features, Y, sample_weight=Interrupting(), error=KeyboardInterrupt)
    assert fitted.predict(X).shape == Y.shape
    with pytest.raises(NotFittedError):
        make().predict(X)


@in_turn(
    ("make", "setting"),
    [
        (UnhingedClassifier, {"radius": -1.0}),
        (UnhingedClassifier, {"prior": [0.5, 0.5]}),
        (KernelUnhingedClassifier, {"prior": "uniform"}),
        (KernelUnhingedClassifier, {"block_size": 0}),
        (UnhingedRegressor, {"delta": -1.0, "corruption_mean": "mean"}),
        (UnhingedRegressor, {"decay": 1e-320, "corruption_mean": "median"}),
        (LinearFamilyRegressor, {"f": lambda y: y + np.nan, "corruption": [1.0, 2.0]}),
    ],
)
def test_nor_do_settings_that_are_refused_late(make, setting):
    estimator = make().fit(X, Y).set_params(**setting)
    fails(estimator, "fit", OTHER, Y)


def test_a_refused_partial_fit_or_merge_changes_nothing():
    model, first = UnhingedClassifier().fit(X.to_numpy(), Y), UnhingedClassifier()
    fails(first, "partial_fit", X, Y[:7])
    fails(first, "partial_fit", X, np.zeros(30, int))
    fails(model, "partial_fit", OTHER, Y)
    fails(model, "partial_fit", X.to_numpy(), Y + 1)
    fails(model.set_params(radius=-1.0), "partial_fit", X.to_numpy(), Y)
    fails(model, "merge", UnhingedClassifier().fit(X, Y))


def test_a_refused_fit_of_processes_changes_nothing(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        model = UnhingedClassifier().fit(X, Y)
        before = dict(vars(model))
        for labels, radius in ((np.zeros(30, int), 1.0), (Y[:7], 1.0), (Y, -1.0)):
            with pytest.raises(ValueError, match=r"2 classes|inconsistent|radius"):
                fit_distributed(model.set_params(radius=radius), OTHER, labels)
            assert all(vars(model)[name] is value for name, value in before.items() if name.endswith("_"))
        assert fit_distributed(estimator=model.set_params(radius=1.0), X=OTHER, y=Y) is model
        assert model.n_features_in_ == 2
    finally:
        torch.distributed.destroy_process_group()
