"""Losses of a linear layer: the same value and gradients as by way of the scores, without them."""

import itertools
import runpy
from pathlib import Path

import pytest
import torch
from conftest import generator, random_labels, random_scores, value_and_grad
from forked_processes import together
from in_turn import in_turn
from loss_helpers import every_path
from torch import nn
from torch.nn.functional import embedding, linear

import symloss
from symloss import functional
from symloss.losses import heads
from symloss.losses.catalogue import RECORDS
from symloss.losses.criterion import Options, evaluate, score_map
from symloss.losses.kernels import linear_head
from symloss.losses.kernels.batch import Examples
from symloss.losses.kernels.linear_head import Allowance, BlockHead, Head
from symloss.losses.kernels.targets import kernel_for
from symloss.losses.logits import HALF


def head_of(n=40, d=6, c=30, dtype=torch.float64):
    drawn = generator(0)
    parts = [torch.randn(*shape, dtype=dtype, generator=drawn) for shape in ((n, d), (c, d), (c,))]
    return [part.requires_grad_() for part in parts], torch.randint(c, (n,), generator=drawn)


def through_scores(loss, features, weight, bias, target, normalize=None, temperature=1.0, class_weight=None, **options):
    options.pop("block_bytes", None)
    z = linear(features, weight, bias).flatten(0, -2)
    options |= {"weight": class_weight, "score_map": score_map(normalize, temperature)}
    found = evaluate(loss, z, target.reshape(-1), Options(**options))
    return found.reshape(target.shape) if options.get("reduction") == "none" else found


def with_gradients(value, parts):
    """The value, and the gradients of the parts that have one, of its entries weighed one by one."""
    upstream = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    wanted = [part for part in parts if part is not None and part.requires_grad]
    return [value.detach(), *torch.autograd.grad(value, wanted, upstream, retain_graph=True)]


def compare(loss, parts, target, **options):
    ours, theirs = (with_gradients(way(loss, *parts, target, **options), parts) for way in WAYS)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


WAYS = (heads.linear_loss, through_scores)
UNHINGED, GCE = RECORDS["unhinged"].loss(), RECORDS["gce"].loss()
CLASS_WEIGHT = torch.linspace(0.5, 2, 30, dtype=torch.float64)
SIXTEEN_ROWS = 16 * 30 * 8
"""Memory for the scores of 16 rows in float64."""


def forbidden(*_):
    raise AssertionError("the scores were formed")


@in_turn("normalize, weighted, biased", itertools.product([None, "l2"], [False, True], [True, False]))
def test_unhinged_without_scores(normalize, weighted, biased, monkeypatch):
    monkeypatch.setattr(Head, "scores", forbidden)
    (features, weight, bias), target = head_of()
    some_ignored = target.index_fill(0, torch.arange(0, 40, 3), 7)
    options = {"normalize": normalize, "temperature": 0.3 if normalize else 1.0, "ignore_index": 7}
    options |= {"class_weight": CLASS_WEIGHT} if weighted else {}
    for reduction, labels in itertools.product(("mean", "sum", "none"), (target, some_ignored)):
        compare(UNHINGED, (features, weight, bias if biased else None), labels, reduction=reduction, **options)


@every_path
def test_every_path_in_blocks(name, monkeypatch):
    parts, target = head_of()
    target[5] = -100
    if kernel_for(RECORDS[name].loss(), 30) is not None:
        monkeypatch.setattr(Head, "scores", forbidden)
    for normalize in (None, "l2"):
        compare(RECORDS[name].loss(), parts, target, normalize=normalize, block_bytes=SIXTEEN_ROWS)
    if name == "gce":  # not symmetric: multiplied by the weight of its label, block by block
        for reduction in ("mean", "sum", "none"):
            compare(GCE, parts, target, class_weight=CLASS_WEIGHT - 0.5, reduction=reduction, block_bytes=SIXTEEN_ROWS)


@in_turn("name", ["unhinged", "sgce"])
def test_gradients_only_where_wanted_and_twice(name):
    """Where one tensor is wanted, from a graph that is kept, and of second order."""
    for wanted in range(3):
        parts, target = head_of()
        for number, part in enumerate(parts):
            part.requires_grad_(number == wanted)
        compare(RECORDS[name].loss(), parts, target, normalize="l2")
    parts, target = head_of(n=12, c=5, d=3)

    def step(*parts):
        return heads.linear_loss(RECORDS[name].loss(), *parts, target, normalize="l2")

    value = step(*parts)
    torch.testing.assert_close(with_gradients(value, parts), with_gradients(value, parts), rtol=1e-9, atol=1e-12)
    assert torch.autograd.gradgradcheck(step, parts)


def test_the_cheaper_way_is_chosen():
    """At N 64, d 768, C 1000 the Gram matrix would cost many times the scores; at N 1024, d 256, C 50,000 it pays."""
    unit = symloss.losses.UnitScores()
    for (n, d, c), pays in {(64, 768, 1000): False, (1024, 256, 50_000): True}.items():
        head = Head(torch.empty(n, d, device="meta"), torch.empty(c, d, device="meta"), None)
        assert linear_head.pays(head, unit) == pays
        assert linear_head.pays(head, None)


def test_float32_norm_keeps_its_digits():
    """Scores that nearly cancel: a Gram matrix in float32 alone would lose them."""
    (features, weight, _), target = head_of(n=400, d=64, c=500, dtype=torch.float32)
    features, weight = features.detach() - features.detach().mean(1, keepdim=True), weight.detach() * 1e-2 + 1
    exact = (features.double() @ weight.double().T).norm(dim=1)
    norm, _ = linear_head.norms(Head(features, weight, None))
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
    (features, weight, bias), target = head_of(d=16, c=500)
    direction = torch.nn.functional.normalize(torch.randn(16).double(), dim=0)
    features = features - (features @ direction)[:, None] * direction
    weight = 0.1 * weight + size * torch.randn(500, 1) * direction
    single = [part.detach().float() for part in (features, weight, bias)[: 2 + biased]]
    assert linear_head.pays(Head(*single, *[None] * (not biased)), symloss.losses.UnitScores())

    def found(way, dtype):
        parts = [part.to(dtype).requires_grad_() for part in single] + [None] * (not biased)
        return with_gradients(way(UNHINGED, *parts, target, normalize="l2", reduction="none"), parts)

    for ours, truth in zip(*map(found, WAYS, (torch.float32, torch.float64)), strict=True):
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


@in_turn("class_weight", [None, CLASS_WEIGHT])
@in_turn("normalize", [None, "l2"])
@in_turn("name", ["unhinged", "sgce", "alpha-mae"])
def test_a_bias_of_minus_infinity_masks_its_class(name, normalize, class_weight):
    (features, weight, bias), target = head_of()
    bias = bias.detach().index_fill(0, torch.tensor([3, 17]), -torch.inf).requires_grad_()
    target[(target == 3) | (target == 17)] = 5
    parts, loss = (features, weight, bias), RECORDS[name].loss()
    options = {"normalize": normalize, "class_weight": class_weight}
    compare(loss, parts, target, **options)
    target[1], target[2] = -100, 17
    with pytest.raises(ValueError, match="target holds the label 17 where its score is -inf, that is, masked out"):
        heads.linear_loss(loss, *parts, target, **options)


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
    compare(loss, (features.reshape(4, 6, -1), weight, bias), target.reshape(4, 6), normalize="l2")
    compare(loss, (features[:1], weight, bias), target[:1], normalize="l2")
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
def test_heads_compile_to_one_graph():
    parts, target = head_of()

    def step(*parts):
        return heads.linear_loss(UNHINGED, *parts, target, normalize="l2")

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    ours, theirs = (with_gradients(way(*parts), parts) for way in (compiled, step))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch looks at it between two graphs
@pytest.mark.parametrize(
    ("spec", "options", "breaks"),
    [
        ("gce:reduction=none", {}, True),
        ("unhinged", {}, True),
        ("mse", {}, True),  # no kernel, so all scores are formed
        ("unhinged", {"block_bytes": None}, False),  # all scores fit
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
        return with_gradients(module(features, target), (features, head.weight, head.bias))

    expected = step(head)
    torch._dynamo.reset()
    torch.testing.assert_close(step(torch.compile(head, backend=backend, fullgraph=not breaks)), expected)
    torch._dynamo.reset()
    assert any("log_softmax" in graph or "linear" in graph for graph in graphs) == (not breaks or spec == "mse")


def test_module():
    head = symloss.LinearLoss("unhinged", in_features=6, num_classes=30, reduction="sum")
    features, target = torch.randn(40, 6), torch.randint(30, (40,))
    value, expected = head(features, target), symloss.Unhinged(reduction="sum")(head.logits(features), target)
    assert value.item() == pytest.approx(expected.item(), abs=1e-4)
    assert torch.equal(head.predict(features), head.logits(features).argmax(1))
    again = symloss.LinearLoss("unhinged", 6, 30)
    again.load_state_dict(head.state_dict())
    assert torch.equal(again.weight, head.weight)
    blocks = symloss.LinearLoss(symloss.SGCE(q=0.5, normalize=None), 6, 30, bias=False)
    assert blocks.bias is None
    assert torch.isfinite(blocks(features, target))
    head = symloss.LinearLoss("gce", 6, 30, softcap=3.0, block_bytes=1000, accumulate=torch.float32)
    expected = symloss.GCE(reduction="sum")(head.logits(features), target) / 50
    assert head(features, target, num_items=50).item() == pytest.approx(expected.item(), rel=1e-5)
    assert head.logits(100 * features).abs().max() <= 3


def with_options(**options):
    parts, target = head_of(n=4, c=3)
    return lambda: heads.linear_loss("gce", *parts, target, **options)


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
        (with_options(num_items=0), r"num_items must be a number in \(0, inf\); got 0"),
        (with_options(num_items=torch.ones(2)), r"num_items must be one number; got a tensor of shape \(2,\)"),
        (with_options(num_items=3, reduction="sum"), "num_items is what a mean divides by; got reduction='sum'"),
        (with_options(softcap=0.0), r"softcap must be a number in \(0, inf\); got 0.0"),
        (with_options(block_bytes=0), r"block_bytes must be a whole number in \[1, inf\); got 0"),
        (with_options(accumulate=torch.float64), "accumulate must be one of None, torch.float32; got torch.float64"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises((ValueError, TypeError, IndexError), match=message):
        make()


# --- Half precision, a memory budget, a count from outside, a soft cap, shared weights --------------------------------


def gradients(loss, parts, target, scale=1.0, **options):
    """The value and the gradients of features and weight in float64; the loss is scaled as mixed precision does."""
    leaves = [part.detach().clone().requires_grad_() for part in parts]
    value = heads.linear_loss(loss, *leaves, None, target, **options)
    (value * scale).sum().backward()
    return [value.detach().double(), *(leaf.grad.double() / scale for leaf in leaves)]


def relative_errors(found, truth):
    return [float((one - other).norm() / other.norm()) for one, other in zip(found, truth, strict=True)]


@in_turn("native", [True, False])
@in_turn("dtype", [torch.bfloat16, torch.float16])
@in_turn("name", ["gce", "sgce", "alpha-mae", "unhinged"])
def test_half_precision_is_as_exact_as_by_way_of_the_scores(name, dtype, native, monkeypatch):
    """At most twice the error where weights' gradients are added up in half precision, the same error in float32."""
    monkeypatch.setattr(linear_head, "is_cast", lambda weight: weight.dtype in HALF and not native)
    monkeypatch.setattr(linear_head, "CLASSES", 50)
    (features, weight, _), target = head_of(n=256, d=32, c=120, dtype=torch.float32)
    target[:60] = 7  # a label of many examples: its gradient is a long sum
    parts, loss = (features.to(dtype), weight.to(dtype)), RECORDS[name].loss()
    scale = 2.0**12 if dtype == torch.float16 else 1.0
    exact = gradients(loss, [part.double() for part in parts], target)
    with symloss.losses.plain():
        plain = relative_errors(gradients(loss, parts, target, scale), exact)
    memory = 32 * 120 * 6  # eight blocks
    ours = relative_errors(gradients(loss, parts, target, scale, block_bytes=memory), exact)
    wide = relative_errors(gradients(loss, parts, target, scale, block_bytes=memory, accumulate=torch.float32), exact)
    for error, of_accumulated, of_plain in zip(ours, wide, plain, strict=True):
        assert error <= 2.5 * of_plain + 1e-6
        assert of_accumulated <= 1.2 * of_plain + 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_no_wide_copy_of_the_weights(dtype):
    """Gradients have the types of their tensors, and no tensor of full precision is as large as the weights."""

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        found = 0

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            out = operation(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.dtype == torch.float32:
                self.found = max(self.found, out.numel())
            return out

    parts = torch.randn(8, 16, dtype=dtype).requires_grad_(), torch.randn(20_000, 16, dtype=dtype).requires_grad_()
    for name in ("gce", "unhinged"):
        with Largest() as mode:
            heads.linear_loss(RECORDS[name].loss(), *parts, None, torch.arange(8)).backward()
        assert mode.found <= 8 * 20_000
        assert [part.grad.dtype for part in parts] == [dtype, dtype]


def test_float16_keeps_small_gradients():
    """Scaled before they are rounded: a gradient that is computed with the value would be 0."""
    (features, weight, _), target = head_of(n=40, c=30, dtype=torch.float32)
    parts = (features / 100).half(), (weight / 100).half()
    exact = gradients(GCE, [part.double() for part in parts], target)[1:]
    assert max(relative_errors(gradients(GCE, parts, target, 2.0**16)[1:], exact)) < 1e-2
    scores = (features @ weight.T).half()
    both = scores, scores.double()
    ours, truth = (value_and_grad(lambda z: symloss.GCE()(z, target) * 1e-4 * 2.0**16, each)[1] for each in both)
    torch.testing.assert_close(ours.double(), truth, rtol=2e-3, atol=1e-6)


def test_blocks_keep_to_the_memory():
    head = Head(torch.empty(5000, 4, device="meta"), torch.empty(1000, 4, device="meta"), None)

    def rows(memory, head=head):
        return BlockHead(Examples(None, None, None, "mean"), None, None, Allowance(memory)).rows(head)

    assert rows(4000 * 64) == 64
    assert rows(1) == 1
    assert rows(None) == 5000
    on_cpu = Head(torch.empty(5000, 4), torch.empty(1000, 4), None)
    assert 256 <= rows(None, on_cpu) < 5000
    half = Head(*(part if part is None else part.bfloat16() for part in on_cpu))
    assert rows(6000 * 64, half) == 64  # float32 scores, and their gradient in bfloat16


@every_path
def test_a_soft_cap_is_that_of_the_scores(name):
    """A class that is masked out, by its bias, stays so."""
    parts, target = head_of()
    parts[2].data[29], target[target == 29], target[5] = -torch.inf, 0, -100
    loss, z = RECORDS[name].loss(), linear(*parts)
    truth = loss(torch.where(z == -torch.inf, z, 2.0 * (z / 2.0).tanh()), target)
    ours = heads.linear_loss(loss, *parts, target, softcap=2.0)
    found, expected = (with_gradients(value, parts) for value in (ours, truth))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@in_turn("dtype", [torch.float64, torch.bfloat16])
@in_turn("name", ["gce", "sgce", "unhinged", "mse"])
def test_parts_of_a_batch_add_up(name, dtype):
    """64 tokens at once equal 8 times 8, with ragged padding and a count from outside; without it they do not.

    A part that is all padding adds 0, not NaN.
    """
    (*parts, _), target = head_of(n=64)
    (features, weight), loss = (part.detach().to(dtype) for part in parts), RECORDS[name].loss()
    for row, padding in enumerate((0, 3, 5, 7, 1, 8, 2, 4)):
        target[8 * row + 8 - padding : 8 * row + 8] = -100
    whole = gradients(loss, (features, weight), target)
    count = (target != -100).sum()

    def accumulated(**options):
        leaf = weight.clone().requires_grad_()
        batches = zip(features.split(8), target.split(8), strict=True)
        values = [heads.linear_loss(loss, rows, leaf, None, labels, **options) for rows, labels in batches]
        total = sum(value for value in values if value.isfinite() or options)  # a mean over padding is no number
        total.backward()
        return total.item(), leaf.grad.double()

    rounding = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-2, "atol": 2e-3}
    for given in (count, int(count)):
        value, gradient = accumulated(num_items=given)
        torch.testing.assert_close(gradient, whole[2], **rounding)
        assert value == pytest.approx(whole[0].item(), rel=1e-2 if dtype == torch.bfloat16 else 1e-9)
    assert (accumulated()[1] - whole[2]).norm() > whole[2].norm()  # means of parts are about 8 times too large


def test_shared_weights():
    """The weights of the head are also those of an embedding: both gradients arrive."""
    (_, table, _), tokens = head_of(n=16)
    tokens = tokens.reshape(2, 8)
    hidden = embedding(tokens, table).cumsum(1).tanh()[:, :-1]
    ours, theirs = (with_gradients(way(GCE, hidden, table, None, tokens[:, 1:]), [table]) for way in WAYS)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@in_turn("name", ["gce", "unhinged"])
def test_vmap(name):
    """Over what comes from above, as a Jacobian takes it; and over grad, for the gradients of single examples."""
    parts, target = head_of(n=5, c=4, d=3)
    loss, upstream = RECORDS[name].loss(), torch.eye(5).double()
    values = heads.linear_loss(loss, *parts, target, reduction="none")
    (jacobian,) = torch.autograd.grad(values, parts[1], upstream, is_grads_batched=True, retain_graph=True)
    rows = [torch.autograd.grad(each, parts[1], retain_graph=True)[0] for each in values]
    torch.testing.assert_close(jacobian, torch.stack(rows))

    def of_weight(weight, row, label):
        return heads.linear_loss(loss, row[None], weight, None, label[None], normalize="l2")

    features, weight = parts[0].detach(), parts[1].detach()
    found = torch.func.vmap(torch.func.grad(of_weight), in_dims=(None, 0, 0))(weight, features, target)
    for row, label, gradient in zip(features, target, found, strict=True):
        leaf = weight.clone().requires_grad_()
        torch.testing.assert_close(gradient, torch.autograd.grad(of_weight(leaf, row, label), leaf)[0])


@pytest.mark.parametrize("accumulate", [None, torch.float32])
def test_products_that_only_a_gpu_has(accumulate, monkeypatch):
    """The meta device takes them as a GPU does: the shapes and types fit."""
    monkeypatch.setattr(linear_head, "has_wide_products", lambda factor: True)
    parts = [torch.randn(*shape, dtype=torch.bfloat16, device="meta").requires_grad_() for shape in ((6, 4), (9, 4))]
    target = torch.zeros(6, dtype=torch.long, device="meta")
    heads.linear_loss(GCE, *parts, None, target, accumulate=accumulate, block_bytes=100).backward()
    assert [part.grad.dtype for part in parts] == [torch.bfloat16, torch.bfloat16]


# --- Heads in two processes: DDP and FSDP2 find the gradients that one process finds ---------------------------------

CLASSES, WIDTH, TOKENS = 32, 8, 12
EXAMPLE = Path(__file__).parents[2] / "examples" / "vocabulary_shards.py"


class Model(nn.Module):
    """An embedding, a layer, and a head that shares the weights of the embedding."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(CLASSES, WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.head = symloss.LinearLoss("gce:q=0.5", WIDTH, CLASSES, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens, target, num_items):
        return self.head(self.layer(self.table(tokens)).tanh(), target, num_items)


def data():
    tokens = random_labels(4, TOKENS, classes=CLASSES)
    target = tokens.roll(-1, 1)
    target[0, 5:], target[3, 2:4] = -100, -100
    return tokens, target


def model():
    torch.manual_seed(0)
    return Model()


def process(rank, answers, meeting):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    answers.put((rank, (steps(rank), shards(rank))))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def steps(rank):
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    from torch.distributed.tensor import init_device_mesh  # noqa: PLC0415

    tokens, target = data()
    count = (target != -100).sum() / 2  # both divide gradients by the number of processes
    given = tokens.chunk(2)[rank], target.chunk(2)[rank], count
    replicated = nn.parallel.DistributedDataParallel(model())
    replicated(*given).backward()
    found = {name: each.grad.numpy() for name, each in replicated.module.named_parameters()}
    sharded = fully_shard(model(), mesh=init_device_mesh("cpu", (2,)))
    sharded(*given).backward()
    return found, {name: each.grad.full_tensor().numpy() for name, each in sharded.named_parameters()}


def shards(rank):
    features, table, labels = vocabulary()
    weight = table.chunk(2)[rank].clone().requires_grad_()
    logp = runpy.run_path(str(EXAMPLE))["sharded_log_probabilities"](features, weight, labels, 12 * rank)
    loss = symloss.of_logp("gce:q=0.7")(logp).mean()
    loss.backward()
    return loss.item(), features.grad.numpy(), weight.grad.numpy()


def vocabulary():
    features, table = random_scores(6, 5).float(), random_scores(24, 5).float()
    return features.requires_grad_(), table, random_labels(6, classes=24)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return together(process, (tmp_path_factory.mktemp("processes") / "meeting",))


@pytest.mark.slow
def test_shards_of_a_vocabulary_find_what_all_scores_say(found):
    features, table, labels = vocabulary()
    expected = symloss.GCE(q=0.7)(features @ table.requires_grad_().T, labels)
    expected.backward()
    for rank in range(2):
        value, *gradients = found[rank][1]
        assert value == pytest.approx(expected.item(), rel=1e-5)
        ours = [torch.from_numpy(gradient) for gradient in gradients]
        torch.testing.assert_close(ours, [features.grad, table.grad.chunk(2)[rank]], rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_two_processes_find_the_gradients_of_one(found):
    alone, (tokens, target) = model(), data()
    alone(tokens, target, None).backward()
    for both, _ in found.values():
        for gradients in both:
            assert gradients.keys() == {name for name, _ in alone.named_parameters()}
            for name, each in alone.named_parameters():
                torch.testing.assert_close(torch.from_numpy(gradients[name]), each.grad, rtol=1e-5, atol=1e-7)
