"""Losses of a linear layer: the same value and gradients as by way of the scores, without them."""

import itertools

import pytest
import torch
from in_turn import in_turn
from representatives import every_path

import symloss
from symloss import functional
from symloss.losses import heads
from symloss.losses.catalogue import RECORDS
from symloss.losses.criterion import Options, evaluate
from symloss.losses.kernels import linear_head, unhinged_head


def head_of(n=40, d=6, c=30, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(*shape, dtype=dtype, generator=generator) for shape in ((n, d), (c, d), (c,))]
    return [part.requires_grad_() for part in made], torch.randint(c, (n,), generator=generator)


def through_scores(loss, features, weight, bias, target, normalize=None, temperature=1.0, class_weight=None, **options):
    options.pop("block_bytes", None)
    z = torch.nn.functional.linear(features, weight, bias)
    scores = heads.score_map(normalize, temperature)
    flat = z.reshape(-1, z.shape[-1])
    found = evaluate(loss, flat, target.reshape(-1), Options(weight=class_weight, score_map=scores, **options))
    return found.reshape(target.shape) if options.get("reduction") == "none" else found


def compare(loss, parts, target, tolerance=1e-9, **options):
    results = []
    for way in (heads.linear_loss, through_scores):
        value = way(loss, *parts, target, **options)
        wanted = [part for part in parts if part is not None and part.requires_grad]
        upstream = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
        results.append([value, *torch.autograd.grad(value, wanted, upstream)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


UNHINGED = RECORDS["unhinged"].loss()
SIXTEEN_ROWS = 16 * 30 * 8
"""Memory for the scores of 16 rows in float64."""


@pytest.fixture
def no_scores(monkeypatch):
    """The scores must not be formed."""

    def forbidden(*_):
        raise AssertionError("the scores were formed")

    monkeypatch.setattr(linear_head.Head, "scores", forbidden)


@pytest.mark.parametrize("normalize", [None, "l2"])
@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.usefixtures("no_scores")
def test_unhinged_without_scores(normalize, weighted, biased):
    (features, weight, bias), target = head_of()
    some_ignored = target.clone()
    some_ignored[::3] = 7
    options = {
        "normalize": normalize,
        "temperature": 0.3 if normalize else 1.0,
        "class_weight": torch.linspace(0.5, 2, 30, dtype=torch.float64) if weighted else None,
        "ignore_index": 7,
    }
    for reduction, labels in itertools.product(("mean", "sum", "none"), (target, some_ignored)):
        compare(UNHINGED, (features, weight, bias if biased else None), labels, reduction=reduction, **options)


@every_path
def test_every_path_in_blocks(name):
    parts, target = head_of()
    target[5] = -100
    for normalize in (None, "l2"):
        compare(RECORDS[name].loss(), parts, target, normalize=normalize, block_bytes=SIXTEEN_ROWS)


@pytest.mark.usefixtures("no_scores")
@in_turn("name", ["gce", "sgce", "alpha-mae", "nce+rce", "anl-ce"])
def test_blocks_never_form_all_scores(name):
    parts, target = head_of()
    heads.linear_loss(RECORDS[name].loss(), *parts, target, block_bytes=SIXTEEN_ROWS).backward()
    assert parts[0].grad is not None


@in_turn("name", ["unhinged", "sgce"])
def test_gradients_only_where_wanted_and_twice(name):
    for wanted in range(3):
        parts, target = head_of()
        for number, part in enumerate(parts):
            part.requires_grad_(number == wanted)
        compare(RECORDS[name].loss(), parts, target, normalize="l2")
    parts, target = head_of()
    value = heads.linear_loss(RECORDS[name].loss(), *parts, target, normalize="l2")
    first = torch.autograd.grad(value, parts, retain_graph=True)
    torch.testing.assert_close(first, torch.autograd.grad(value, parts), rtol=1e-9, atol=1e-12)


def test_the_cheaper_way_is_chosen():
    """At N 64, d 768, C 1000 the Gram matrix would cost many times the scores; at N 1024, d 256, C 50,000 it pays."""
    unit = symloss.losses.UnitScores()
    for (n, d, c), pays in {(64, 768, 1000): False, (1024, 256, 50_000): True}.items():
        head = linear_head.Head(torch.empty(n, d, device="meta"), torch.empty(c, d, device="meta"), None)
        assert unhinged_head.pays(head, unit) == pays
        assert unhinged_head.pays(head, None)


@pytest.mark.parametrize("name", ["unhinged", "sgce"])
def test_second_derivatives(name):
    parts, target = head_of(n=12, c=5, d=3)
    assert torch.autograd.gradgradcheck(
        lambda *parts: heads.linear_loss(RECORDS[name].loss(), *parts, target, normalize="l2"), parts
    )


def test_float32_norm_keeps_its_digits():
    """Scores that nearly cancel: a Gram matrix in float32 alone would lose them."""
    (features, weight, _), target = head_of(n=400, d=64, c=500, dtype=torch.float32)
    features, weight = features.detach() - features.detach().mean(1, keepdim=True), weight.detach() * 1e-2 + 1
    exact = (features.double() @ weight.double().T).norm(dim=1)
    norm, _ = unhinged_head.norms(linear_head.Head(features, weight, None))
    torch.testing.assert_close(norm.double(), exact, rtol=1e-6, atol=0)
    naive = ((features @ (weight.T @ weight)) * features).sum(1).clamp_min(0).sqrt()
    assert (naive / exact - 1).abs().max() > 1e-3
    assert functional.linear_unhinged(features, weight, None, target).isfinite()


@pytest.mark.parametrize("biased", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("size", [100.0, 1000.0])
def test_a_norm_that_is_lost_in_the_gram_matrix_is_taken_from_the_scores(size, biased):
    """Rows of W that are 10,000 or 1,000 times longer than what the features see of them: values were off by half.

    float32 scores have that many digits less too: the head must be as exact as they are.
    """
    generator = torch.Generator().manual_seed(0)
    n, d, c = 40, 16, 500
    direction = torch.nn.functional.normalize(torch.randn(d, dtype=torch.float64, generator=generator), dim=0)
    weight = 0.1 * torch.randn(c, d, dtype=torch.float64, generator=generator)
    weight += size * torch.randn(c, 1, dtype=torch.float64, generator=generator) * direction
    features = torch.randn(n, d, dtype=torch.float64, generator=generator)
    features -= (features @ direction)[:, None] * direction
    bias = torch.randn(c, dtype=torch.float64, generator=generator) if biased else None
    target = torch.randint(c, (n,), generator=generator)
    single = [None if part is None else part.float() for part in (features, weight, bias)]
    assert unhinged_head.pays(linear_head.Head(*single), symloss.losses.UnitScores())

    def value_and_gradients(way, dtype):
        parts = [None if part is None else part.to(dtype).requires_grad_() for part in single]
        values = way(UNHINGED, *parts, target, normalize="l2", reduction="none")
        return [values, *torch.autograd.grad(values.sum(), [part for part in parts if part is not None])]

    exact = value_and_gradients(through_scores, torch.float64)
    for ours, truth in zip(value_and_gradients(heads.linear_loss, torch.float32), exact, strict=True):
        assert (ours - truth).abs().max() <= 1e-6 * size * truth.abs().max()


@in_turn("large, wide", [(1e20, 1.0), (1.0, 1e20)])
def test_scores_whose_squares_overflow(large, wide):
    (features, weight, _), target = head_of(dtype=torch.float32)
    expected = heads.linear_unhinged(features, weight, None, target)
    grown = (features.detach() * large).requires_grad_()
    value = heads.linear_unhinged(grown, weight.detach() * wide, None, target)
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    (gradient,), (truth,) = torch.autograd.grad(value, grown), torch.autograd.grad(expected, features)
    torch.testing.assert_close(gradient * large, truth, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("normalize", [None, "l2"])
@pytest.mark.parametrize("name", ["unhinged", "sgce", "alpha-mae"])
def test_a_bias_of_minus_infinity_masks_its_class(name, normalize, weighted):
    (features, weight, bias), target = head_of()
    bias = bias.detach().index_fill(0, torch.tensor([3, 17]), -torch.inf).requires_grad_()
    target[(target == 3) | (target == 17)] = 5
    class_weight = torch.linspace(0.5, 2, 30, dtype=torch.float64) if weighted else None
    parts, loss, options = (features, weight, bias), RECORDS[name].loss(), {"normalize": normalize}
    compare(loss, parts, target, class_weight=class_weight, **options)
    target[1], target[2] = -100, 17
    with pytest.raises(ValueError, match="target holds the label 17 where its score is -inf, that is, masked out"):
        heads.linear_loss(loss, *parts, target, class_weight=class_weight, **options)


@every_path
def test_nan_features_give_nan(name):
    parts, target = head_of(dtype=torch.float32)
    parts[0].data[2, 1] = torch.nan
    for normalize in (None, "l2"):
        value = heads.linear_loss(RECORDS[name].loss(), *parts, target, normalize=normalize)
        assert value.isnan()
        assert torch.autograd.grad(value, parts[1])[0].isnan().any()


@pytest.mark.parametrize("name", ["unhinged", "alpha-mae"])
def test_edges(name):
    """Leading dimensions, one example, no example, all ignored, int32 labels, half precision."""
    loss = RECORDS[name].loss()
    (features, weight, bias), target = head_of(n=24)
    shaped = features.detach().reshape(4, 6, -1).requires_grad_()
    compare(loss, (shaped, weight, bias), target.reshape(4, 6), normalize="l2")
    compare(loss, (features.detach()[:1].requires_grad_(), weight, bias), target[:1], normalize="l2")
    assert heads.linear_loss(loss, features[:0], weight, bias, target[:0]).isnan()
    assert heads.linear_loss(loss, features, weight, bias, torch.full_like(target, -100)).isnan()
    by_long = heads.linear_loss(loss, features, weight, bias, target)
    assert heads.linear_loss(loss, features, weight, bias, target.int()) == by_long
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = heads.linear_loss(loss, features.bfloat16(), weight.bfloat16(), bias.bfloat16(), target, normalize="l2")
    assert half.dtype == torch.float32
    half.backward()
    assert torch.isfinite(weight.grad).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unhinged", "sgce"])
def test_heads_compile_to_one_graph(name):
    parts, target = head_of()
    loss = RECORDS[name].loss()

    def step(*parts):
        return heads.linear_loss(loss, *parts, target, normalize="l2")

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    ours, theirs = (torch.autograd.grad(way(*parts), parts) for way in (compiled, step))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch looks at it between two graphs
@pytest.mark.parametrize(
    ("spec", "options", "breaks"),
    [
        ("gce:reduction=none", {}, True),
        ("unhinged", {}, True),
        ("mse", {}, True),  # no kernel, so all scores are formed
        ("gce", {"block_bytes": None}, False),  # all scores fit
    ],
)
def test_a_compiled_head_runs_between_graphs_if_its_scores_do_not_fit(spec, options, breaks):
    head = symloss.LinearLoss(spec, 6, 30, **{"block_bytes": 1000} | options)
    features, target = torch.randn(40, 6).requires_grad_(), torch.randint(30, (40,))
    target[3] = -100
    graphs = []

    def backend(graph, inputs):
        graphs.append(str(graph.graph))
        return graph

    def step(module):
        value = module(features, target)
        return [value, *torch.autograd.grad(value.sum(), (features, head.weight, head.bias))]

    expected = step(head)
    torch._dynamo.reset()
    torch.testing.assert_close(step(torch.compile(head, backend=backend)), expected)
    torch._dynamo.reset()
    assert any("log_softmax" in graph or "linear" in graph for graph in graphs) == (not breaks or spec == "mse")


def test_module():
    head = symloss.LinearLoss("unhinged", in_features=6, num_classes=30, reduction="sum")
    features, target = torch.randn(40, 6), torch.randint(30, (40,))
    value, expected = head(features, target), symloss.Unhinged(reduction="sum")(head.logits(features), target)
    assert value.item() == pytest.approx(expected.item(), abs=1e-4)
    value.backward()
    assert head.weight.grad.shape == (30, 6)
    assert torch.equal(head.predict(features), head.logits(features).argmax(1))
    again = symloss.LinearLoss("unhinged", 6, 30)
    again.load_state_dict(head.state_dict())
    assert torch.equal(again.weight, head.weight)
    blocks = symloss.LinearLoss(symloss.SGCE(q=0.5, normalize=None), 6, 30, bias=False)
    assert blocks.bias is None
    assert torch.isfinite(blocks(features, target))


@in_turn(
    "make, message",
    [
        (lambda: symloss.LinearLoss("unhinge", 3, 4), "did you mean 'unhinged'"),
        (lambda: symloss.LinearLoss("unhinged", 0, 4), r"in_features must be a whole number in \[1, inf\); got 0"),
        (lambda: symloss.LinearLoss(3, 3, 4), "loss must be a name or a loss of this package; got int"),
        (lambda: symloss.LinearLoss(symloss.CE(), 3, 4, reduction="sum"), "options such as reduction go with the name"),
        (lambda: symloss.LinearLoss("ce", 3, 4, label_smoothing=0.1), "takes no label_smoothing"),
        (lambda: symloss.LinearLoss("ce", 3, 4)(torch.zeros(2, 5), torch.zeros(2).long()), r"\(2, 5\) and \(4, 3\)"),
        (lambda: symloss.LinearLoss("ce", 3, 4)(torch.zeros(2, 3), torch.zeros(2)), "class indices of shape"),
        (lambda: symloss.LinearLoss("ce", 3, 4)(torch.zeros(1, 3), torch.tensor([4])), "label 4; with 4 classes"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises((ValueError, TypeError, IndexError), match=message):
        make()
