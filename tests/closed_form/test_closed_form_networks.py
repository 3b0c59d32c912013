"""The closed form as the last layer of a network, and prop. C.1 as an objective."""

import copy

import pytest
import torch
from closed_form_helpers import blobs
from conftest import assert_close
from in_turn import in_turn
from refusals import all_refused, refused
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from symloss.closed_form import UnhingedClassifier, centroid_alignment, refit_head


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
