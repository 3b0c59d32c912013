"""The centroid is a sum: batches, shards, processes, the last layer of a network, and prop. C.1 as an objective."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse
import torch
from closed_form_helpers import blobs, relative
from conftest import assert_close
from forked_processes import together
from in_turn import in_turn
from refusals import all_refused, refused
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from symloss.closed_form import UnhingedClassifier, centroid_alignment, fit_distributed, refit_head

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
    with refused(ValueError, "centroid", "zero", "examples of one class alone"):
        model.predict(x)
    model.partial_fit(x[y > 0], y[y > 0])
    assert relative(model.coef_, UnhingedClassifier(fit_intercept=False).fit(x, y).coef_) < 1e-12
    for shift in (1, 2):
        model.partial_fit(x, (y + shift) % 3)
    assert not {"coef_", "intercept_"} & set(vars(model))
    with refused(ValueError, "centroid", "zero", "the same mean in every class"):
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


# --- The last layer of a network, and prop. C.1 as an objective ------------------------------------------------------


def data(**given):
    x, y = blobs(200, **given)
    return torch.from_numpy(x).float(), torch.from_numpy(y)


def loader(x, y, batch=33):
    return DataLoader(TensorDataset(x, y), batch_size=batch)


def network(bias=True):
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3, bias=bias))


def embeddings(model, x):
    with torch.no_grad():
        return copy.deepcopy(model)[:-1].eval()(x)


@in_turn("center", [True, False])
@in_turn("bias", [True, False])
def test_it_is_the_classifier_on_the_embeddings_and_nothing_else_changes(center, bias):
    (x, y), model = data(), network(bias)
    model[1].eval()
    head, features, before = model[-1], embeddings(model, x), copy.deepcopy(model.state_dict())
    expected = UnhingedClassifier(radius=2.0, fit_intercept=bias, center=center).fit(features, y)
    assert refit_head(model, loader(x, y), radius=2.0, center=center) is model
    assert model[-1] is head
    assert head.weight.requires_grad
    assert (head.bias is not None) == (bias or center)
    assert not head._forward_pre_hooks
    assert (model.training, model[1].training, model[3].training) == (True, False, True)
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value) == (not name.startswith("4.")), name
    torch.testing.assert_close(model.eval()(x), expected.decision_function(features), rtol=1e-4, atol=1e-5)


class OutOfOrder(nn.Module):
    """The layer that was registered first runs last; one never runs."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 3)
        self.body = nn.Linear(4, 8)
        self.unused = nn.Linear(7, 7)

    def forward(self, x):
        return self.fc(self.body(x).relu()).log_softmax(1)


def test_the_layer_that_runs_last_is_taken_or_the_one_that_is_named():
    (x, y), one = data(), OutOfOrder()
    two = copy.deepcopy(one)
    refit_head(one, loader(x, y))
    refit_head(two, loader(x, y), layer="fc")
    torch.testing.assert_close(one.fc.weight, two.fc.weight)
    assert torch.equal(one.body.weight, two.body.weight)
    features = two.body(x).relu().detach()
    assert (one(x).argmax(1) == UnhingedClassifier().fit(features, y).predict(features)).all()
    all_refused(
        (ValueError, "layer ... 'head' ... 'fc' ... 'body'", lambda: refit_head(one, loader(x, y), layer="head")),
        (ValueError, "layer ... 'unused' ... did not", lambda: refit_head(one, loader(x, y), layer="unused")),
    )


def test_precision_and_the_order_of_batches():
    (x, y), single = data(), network()
    double = copy.deepcopy(single).double()
    refit_head(single, loader(x, y, 200))
    refit_head(double, [(a.double(), b, "more") for a, b in reversed(list(loader(x, y, 7)))])
    assert double[-1].weight.dtype == torch.float64
    torch.testing.assert_close(single[-1].weight.double(), double[-1].weight, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_right():
    (x, y), model = data(), network()
    before = model[-1].weight.clone()
    with pytest.raises(ValueError, match="Input X contains NaN"):
        refit_head(model, loader(x * torch.nan, y))
    with refused(ValueError, "centroid", "zero"):
        refit_head(model, [(torch.cat([x[:1], x[:1]]), torch.tensor([0, 1]))] * 2, prior=[0.5, 0.5, 0])
    all_refused(
        (ValueError, "model ... linear layer ... ReLU", lambda: refit_head(nn.ReLU(), loader(x, y))),
        (ValueError, "layer ... none", lambda: refit_head(nn.ReLU(), loader(x, y), layer="fc")),
        (ValueError, "loader ... none", lambda: refit_head(model, [])),
        (TypeError, "loader ... (inputs, labels) ... Tensor", lambda: refit_head(model, [x])),
        (ValueError, "labels ... at least 2 classes", lambda: refit_head(model, loader(x, 0 * y))),
        (TypeError, "labels ... integers ... float32", lambda: refit_head(model, [(x, y.float())])),
        (ValueError, "labels ... 0 to 2 ... 3", lambda: refit_head(model, loader(x, y + 1))),
        (ValueError, "radius ... (0, inf)", lambda: refit_head(model, loader(x, y), radius=0)),
        (ValueError, "(N, d) ... (200, 1, 4)", lambda: refit_head(nn.Linear(4, 3), [(x[:, None], y)])),
    )
    assert torch.equal(model[-1].weight, before)
    assert not any(module._forward_pre_hooks for module in model.modules())


def double_sum(features, labels, classes):
    """1/N^2 sum_ij a_ij <f_i, f_j>."""
    a = (labels[:, None] == labels).double() - 1 / classes
    return (a * (features @ features.T)).sum() / len(features) ** 2


@in_turn("classes", [2, 3, 7])
def test_value_and_gradient_are_those_of_the_double_sum(classes):
    x, y = blobs(50, classes=classes)
    features, labels = torch.from_numpy(x).requires_grad_(), torch.from_numpy(y)
    # Classes that are not there count.
    for given, count in ((None, classes), (classes + 2, classes + 2)):
        values = centroid_alignment(features, labels, given), double_sum(features, labels, count)
        assert_close(*values)
        assert_close(*(torch.autograd.grad(value, features)[0] for value in values))
    assert torch.autograd.gradcheck(lambda f: centroid_alignment(f, labels[:8], classes), features[:8])


def test_memory_is_linear_in_the_examples_and_half_precision_is_summed_in_float32():
    features, labels = torch.ones(200_000, 4), torch.arange(200_000) % 3  # a kernel matrix would have 160 GB
    assert float(centroid_alignment(features, labels)) < 1e-9
    x, y = blobs(20_000, offset=3.0)
    for dtype in (torch.float16, torch.bfloat16):
        rounded, labels = torch.from_numpy(x).to(dtype), torch.from_numpy(y)
        found = centroid_alignment(rounded, labels)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), centroid_alignment(rounded.double(), labels), rtol=1e-4, atol=0)


def test_bad_input_is_refused():
    f, y = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
    all_refused(
        (ValueError, "features ... (N, d) ... (4,)", lambda: centroid_alignment(f[:, 0], y)),
        (TypeError, "features ... torch.int64", lambda: centroid_alignment(f.long(), y)),
        (ValueError, "labels ... (4,) ... (3,)", lambda: centroid_alignment(f, y[:3])),
        (TypeError, "labels ... torch.float32", lambda: centroid_alignment(f, y.float())),
        (ValueError, "labels ... at least 0 ... -1", lambda: centroid_alignment(f, y - 1)),
        (ValueError, "classes ... [2, inf) ... 1", lambda: centroid_alignment(f, y, 1)),
        (IndexError, "label 2 ... 0 to 1", lambda: centroid_alignment(f, 2 * y, 2)),
    )
    assert float(centroid_alignment(f, y * 0)) == 1  # C is at least 2
