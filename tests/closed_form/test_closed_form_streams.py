"""The centroid is a sum: batches, shards, processes."""

import pickle

import numpy as np
import pytest
import scipy.sparse
import torch
from closed_form_helpers import blobs, relative
from forked_processes import together
from in_turn import in_turn
from refusals import all_refused, refused
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from symloss.closed_form import UnhingedClassifier, fit_distributed

OPTIONS = [{}, {"center": False}, {"fit_intercept": False, "prior": "frequencies"}, {"prior": [0.2, 0.3, 0.5]}]


def parts(count, pieces, seed):
    """The examples in any order, cut anywhere."""
    random = np.random.default_rng(seed)
    cuts = np.sort(random.choice(np.arange(1, count), pieces - 1, replace=False))
    return np.split(random.permutation(count), cuts)


@in_turn("options", OPTIONS)
@in_turn("dtype", [np.float32, np.float64])
@in_turn("seed", range(2))
def test_partial_fit_in_any_order_and_split_is_fit(options, dtype, seed):
    x, y = blobs(500, dtype=dtype, offset=100.0)
    weights = np.random.default_rng(seed).random(500) if seed else None
    whole = UnhingedClassifier(**options).fit(x, y, weights)
    model = UnhingedClassifier(**options)
    for part in parts(500, 9, seed):
        model.partial_fit(x[part], y[part], classes=[2, 0, 1], sample_weight=None if weights is None else weights[part])
    for found, expected in ((model.coef_, whole.coef_), (model.intercept_, whole.intercept_)):
        assert relative(found, expected) < (1e-6 if dtype == np.float32 else 1e-11)
        assert found.dtype == expected.dtype


def test_partial_fit_goes_on_after_fit_and_fit_starts_again():
    """Kinds of batches may change, down to single examples."""
    x, y = blobs()
    whole = UnhingedClassifier().fit(x, y)
    model = UnhingedClassifier().fit(x[:20], y[:20]).partial_fit(scipy.sparse.csr_array(x[20:40]), y[20:40])
    model.partial_fit(torch.from_numpy(x[40:60]), y[40:60])
    for row, label in zip(x[60:], y[60:], strict=True):
        model.partial_fit(row[None], [label], classes=[0, 1, 2])
    assert relative(model.coef_, whole.coef_) < 1e-12
    assert model.partial_fit(x.astype(np.float32), y).coef_.dtype == np.float64
    assert relative(model.fit(x, y).coef_, whole.coef_) < 1e-15


@in_turn("options", OPTIONS)
def test_shards_merge_in_any_order(options):
    x, y = blobs(300)
    whole = UnhingedClassifier(**options).fit(x, y)
    for seed in range(3):
        shards = [UnhingedClassifier(**options).partial_fit(x[i], y[i], classes=[0, 1, 2]) for i in parts(300, 4, seed)]
        first, *others = pickle.loads(pickle.dumps(shards))
        for other in others:
            assert first.merge(other) is first
        assert relative(first.coef_, whole.coef_) < 1e-12
        assert first.centroid_norm_ == pytest.approx(whole.centroid_norm_)


def test_merge_leaves_the_other_alone_and_refuses_what_does_not_fit():
    x, y = blobs()
    one, two = (UnhingedClassifier().fit(x[i::2], y[i::2]) for i in range(2))
    before = two.coef_.copy()
    one.merge(two)
    np.testing.assert_array_equal(two.coef_, before)
    fewer = UnhingedClassifier().fit(x[y < 2], y[y < 2])
    all_refused(
        (ValueError, "classes [0, 1, 2] ... [0, 1] ... classes=", lambda: one.merge(fewer)),
        (ValueError, "4 features ... 2", lambda: one.merge(UnhingedClassifier().fit(x[:, :2], y))),
        (TypeError, "UnhingedClassifier ... int", lambda: one.merge(3)),
        (NotFittedError, "not fitted", lambda: one.merge(UnhingedClassifier())),
        (NotFittedError, "not fitted", lambda: UnhingedClassifier().merge(one)),
    )


def test_labels_never_seen_are_refused_and_nothing_is_added():
    x, y = blobs()
    some, names = (x[y < 2], y[y < 2]), np.array(["a", "b", "c"])
    model, fresh = UnhingedClassifier().partial_fit(*some), UnhingedClassifier()
    before = model.sums_
    all_refused(
        (ValueError, "y ... classes [0, 1] ... 2 ... classes=", lambda: model.partial_fit(x, y)),
        (ValueError, "y ... 'a'", lambda: model.partial_fit(x, names[y])),
        (ValueError, "classes ... [0, 1] ... [0, 1, 2]", lambda: model.partial_fit(x, y, classes=[0, 1, 2])),
        (ValueError, "first partial_fit without classes= ... at least 2", lambda: fresh.partial_fit(x[:2], [1, 1])),
        (ValueError, "classes ... at least 2 classes", lambda: fresh.partial_fit(x[:2], [1, 1], classes=[1])),
        (RuntimeError, "init_process_group", lambda: fit_distributed(fresh, x, y)),
    )
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.nan * some[0], some[1])
    assert model.sums_ is before


def test_a_stream_predicts_while_its_centroid_is_not_zero():
    """It may begin with one class, later examples may cancel earlier ones, and what was rounding stays rounding."""
    x, y = blobs()
    model = UnhingedClassifier(fit_intercept=False)
    with pytest.raises(NotFittedError):
        model.predict(x)
    model.partial_fit(x[y == 0], y[y == 0], classes=[0, 1, 2])
    assert not hasattr(model, "coef_")
    with refused(ValueError, "centroid", "zero"):
        model.predict(x)
    model.partial_fit(x[y > 0], y[y > 0])
    assert relative(model.coef_, UnhingedClassifier(fit_intercept=False).fit(x, y).coef_) < 1e-12
    for shift in (1, 2):
        model.partial_fit(x, (y + shift) % 3)
    assert not {"coef_", "intercept_"} & set(vars(model))
    with refused(ValueError, "centroid", "zero"):
        model.predict(x)
    half, model = (np.random.default_rng(0).standard_normal((3000, 3)) + 0.1).astype(np.float32), clone(model)
    model.partial_fit(np.concatenate([half, half[::-1]]), np.repeat([0, 1], 3000))
    assert model.centroid_norm_ > 0
    model.partial_fit(np.zeros((2, 3), np.float32), [0, 1])
    with refused(ValueError, "centroid", "zero"):
        model.predict(half)


# torch.distributed, by processes of their own.


def fits(rank, answers, meeting, cases):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    found = []
    for options, shards in cases:
        try:
            found.append(fit_distributed(UnhingedClassifier(**options), *shards[rank]))
        except (ValueError, TypeError) as error:
            found.append(str(error))
    answers.put((rank, found))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path):
    x, y = blobs(300)
    names, single, weights = np.array(["ant", "bee", "crow"]), x.astype(np.float32), np.linspace(0.1, 2, 300)
    halves, shares = (slice(200), slice(200, None)), {"center": False, "prior": "frequencies"}
    mixed = [(scipy.sparse.csr_array(x[:90]), y[:90]), (torch.from_numpy(x[90:]), torch.from_numpy(y[90:]))]
    whole, named = UnhingedClassifier().fit(x, y), UnhingedClassifier().fit(x, names[y])
    weighted = UnhingedClassifier(**shares).fit(x, y, weights)
    bad = x[200:].copy()
    bad[5, 0] = np.inf
    cases = {
        "plain": ({}, [(x[half], y[half]) for half in halves], whole),
        "weights": (shares, [(x[half], y[half], weights[half]) for half in halves], weighted),
        "classes apart, names": ({}, [(x[part], names[y[part]]) for part in (y < 1, y >= 1)], named),
        "float32, one empty": ({}, [(single, y), (single[:0], y[:0])], UnhingedClassifier().fit(single, y)),
        "sparse and tensor": ({}, mixed, whole),
        "bad": ({}, [(x[:200], y[:200]), (bad, y[200:])], "process 1 were refused: Input X contains infinity"),
        "widths": ({}, [(x, y), (x[:, :2], y)], "same number of features in every process; got [4, 2]"),
        "one class": ({}, [(x[y == 1], y[y == 1])] * 2, "at least 2 classes"),
    }
    given = [case[:2] for case in cases.values()]
    answers = together(fits, (tmp_path / "meeting", given))
    for rank in range(2):
        for name, found in zip(cases, answers[rank], strict=True):
            expected = cases[name][-1]
            if isinstance(expected, str):
                assert expected in found, name
                continue
            assert relative(found.coef_, expected.coef_) < (2e-7 if "32" in name else 1e-12), name
            np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=1e-6 if "32" in name else 1e-11)
            assert found.coef_.dtype == expected.coef_.dtype, name
            np.testing.assert_array_equal(found.predict(x), expected.predict(x))
