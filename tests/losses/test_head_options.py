"""Heads in half precision, within a memory budget, with a count from outside, a soft cap and shared weights."""

import pytest
import torch
from in_turn import in_turn
from representatives import every_path
from test_heads import compare, head_of

import symloss
from symloss.losses import heads
from symloss.losses.catalogue import RECORDS
from symloss.losses.kernels import linear_head
from symloss.losses.kernels.batch import Examples
from symloss.losses.kernels.linear_head import Allowance, BlockHead, Head
from symloss.losses.logits import HALF

GCE = RECORDS["gce"].loss()


def gradients(loss, parts, target, scale=1.0, **options):
    """The value and the gradients of features and weight in float64; the loss is scaled as mixed precision does."""
    leaves = [part.detach().clone().requires_grad_() for part in parts]
    value = heads.linear_loss(loss, *leaves, None, target, **options)
    (value * scale).sum().backward()
    return [value.detach().double(), *(leaf.grad.double() / scale for leaf in leaves)]


def relative_errors(found, truth):
    return [float((one - other).norm() / other.norm()) for one, other in zip(found, truth, strict=True)]


@pytest.mark.parametrize("native", [True, False], ids=["native", "cast"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["gce", "sgce", "alpha-mae", "unhinged"])
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
    scores = (features.detach() @ weight.detach().T).half().requires_grad_()
    (symloss.GCE()(scores, target) * 1e-4 * 2.0**16).backward()
    exact_scores = scores.detach().double().requires_grad_()
    (symloss.GCE()(exact_scores, target) * 1e-4 * 2.0**16).backward()
    torch.testing.assert_close(scores.grad.double(), exact_scores.grad, rtol=2e-3, atol=1e-6)


def test_blocks_keep_to_the_memory():
    head = Head(torch.empty(5000, 4, device="meta"), torch.empty(1000, 4, device="meta"), None)

    def rows(memory, head=head):
        return BlockHead(None, Examples(None, None, None, "mean"), None, Allowance(memory)).rows(head)

    assert rows(4000 * 64) == 64
    assert rows(1) == 1
    assert rows(None) == 5000
    on_cpu = Head(torch.empty(5000, 4), torch.empty(1000, 4), None)
    assert 256 <= rows(None, on_cpu) < 5000
    half = Head(*(part if part is None else part.bfloat16() for part in on_cpu))
    assert rows(6000 * 64, half) == 64  # float32 scores, and their gradient in bfloat16


@every_path
def test_a_soft_cap_is_that_of_the_scores(name):
    parts, target = head_of()
    target[5] = -100
    loss = RECORDS[name].loss()
    leaves = [part.detach().clone().requires_grad_() for part in parts]
    z = torch.nn.functional.linear(*leaves)
    truth = loss(2.0 * (z / 2.0).tanh(), target)
    expected = [truth, *torch.autograd.grad(truth, leaves)]
    value = heads.linear_loss(loss, *parts, target, softcap=2.0)
    torch.testing.assert_close([value, *torch.autograd.grad(value, parts)], expected, rtol=1e-9, atol=1e-11)


def test_a_soft_cap_keeps_masked_classes():
    (features, weight, bias), target = head_of()
    target %= 29
    value = heads.linear_loss(GCE, features, weight[:29], bias[:29], target, softcap=2.0)
    bias = bias.detach().index_fill(0, torch.tensor([29]), -torch.inf)
    torch.testing.assert_close(heads.linear_loss(GCE, features, weight, bias, target, softcap=2.0), value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["gce", "sgce", "unhinged", "mse"])
def test_parts_of_a_batch_add_up(name, dtype):
    """64 tokens at once equal 8 times 8, with ragged padding and a count from outside; without it they do not."""
    (features, weight, _), target = head_of(n=64, dtype=torch.float64)
    features, weight, loss = features.detach().to(dtype), weight.detach().to(dtype), RECORDS[name].loss()
    for row, padding in enumerate((0, 3, 5, 7, 1, 8, 2, 4)):
        target[8 * row + 8 - padding : 8 * row + 8] = -100
    whole = gradients(loss, (features, weight), target)
    count = (target != -100).sum()

    def accumulated(**options):
        leaf = weight.clone().requires_grad_()
        total = 0.0
        for part in range(0, 64, 8):
            rows = slice(part, part + 8)
            if (target[rows] == -100).all() and not options:
                continue  # its mean is no number
            value = heads.linear_loss(loss, features[rows], leaf, None, target[rows], **options)
            value.backward()
            total += value.item()
        return total, leaf.grad.double()

    rounding = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-2, "atol": 2e-3}
    for given in (count, int(count)):
        value, gradient = accumulated(num_items=given)
        torch.testing.assert_close(gradient, whole[2], **rounding)
        assert value == pytest.approx(whole[0].item(), rel=1e-2 if dtype == torch.bfloat16 else 1e-9)
    assert (accumulated()[1] - whole[2]).norm() > whole[2].norm()  # means of parts are about 8 times too large


def test_nothing_counts_in_a_part():
    """A part that is all padding adds 0, not NaN, if the count comes from outside."""
    parts, target = head_of(dtype=torch.float32)
    value = heads.linear_loss(GCE, *parts, torch.full_like(target, -100), num_items=7)
    value.backward()
    assert value == 0
    assert parts[1].grad.abs().sum() == 0


def test_shared_weights():
    """The weights of the head are also those of an embedding: both gradients arrive."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(30, 6, dtype=torch.float64, generator=generator)
    tokens = torch.randint(30, (2, 8), generator=generator)
    found = []
    for way in (heads.linear_loss, lambda loss, h, w, b, y: loss((h @ w.T).flatten(0, 1), y.flatten())):
        leaf = table.clone().requires_grad_()
        hidden = torch.nn.functional.embedding(tokens, leaf).cumsum(1).tanh()
        way(GCE, hidden[:, :-1], leaf, None, tokens[:, 1:]).backward()
        found.append(leaf.grad)
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-12)


def test_torchs_class_weights_in_blocks():
    """A loss that is not symmetric is multiplied by the weight of its label, block by block."""
    parts, target = head_of()
    target[::7] = -100
    for reduction in ("mean", "sum", "none"):
        compare(GCE, parts, target, class_weight=torch.linspace(0, 2, 30, dtype=torch.float64), reduction=reduction)


def test_gradients_of_many_upstreams_at_once():
    """vmap over what comes from above, as a Jacobian takes it."""
    parts, target = head_of(n=5, c=4, d=3)
    for name in ("gce", "unhinged"):
        values = heads.linear_loss(RECORDS[name].loss(), *parts, target, reduction="none")
        (jacobian,) = torch.autograd.grad(
            values, parts[1], torch.eye(5).double(), is_grads_batched=True, retain_graph=True
        )
        rows = [torch.autograd.grad(each, parts[1], retain_graph=True)[0] for each in values]
        torch.testing.assert_close(jacobian, torch.stack(rows))


@pytest.mark.parametrize("name", ["gce", "unhinged"])
def test_torch_func(name):
    """Gradients of single examples, by vmap over grad."""
    (features, weight, _), target = head_of(n=5, c=4, d=3)
    loss, features, weight = RECORDS[name].loss(), features.detach(), weight.detach()

    def of_weight(weight, row, label):
        return heads.linear_loss(loss, row[None], weight, None, label[None], normalize="l2")

    found = torch.func.vmap(torch.func.grad(of_weight), in_dims=(None, 0, 0))(weight, features, target)
    for row, label, gradient in zip(features, target, found, strict=True):
        leaf = weight.clone().requires_grad_()
        torch.testing.assert_close(gradient, torch.autograd.grad(of_weight(leaf, row, label), leaf)[0])


def test_a_module_with_head_options():
    head = symloss.LinearLoss("gce", 6, 30, softcap=3.0, block_bytes=1000, accumulate=torch.float32)
    features, target = torch.randn(40, 6), torch.randint(30, (40,))
    expected = symloss.GCE(reduction="sum")(head.logits(features), target) / 50
    assert head(features, target, num_items=50).item() == pytest.approx(expected.item(), rel=1e-5)
    assert head.logits(100 * features).abs().max() <= 3


@in_turn(
    "options, message",
    [
        ({"num_items": 0}, r"num_items must be a number in \(0, inf\); got 0"),
        ({"num_items": torch.ones(2)}, r"num_items must be one number; got a tensor of shape \(2,\)"),
        ({"num_items": 3, "reduction": "sum"}, "num_items is what a mean divides by; got reduction='sum'"),
        ({"softcap": 0.0}, r"softcap must be a number in \(0, inf\); got 0.0"),
        ({"block_bytes": 0}, r"block_bytes must be a whole number in \[1, inf\); got 0"),
        ({"accumulate": torch.float64}, "accumulate must be one of None, torch.float32; got torch.float64"),
    ],
)
def test_wrong_options(options, message):
    parts, target = head_of(n=4, c=3)
    with pytest.raises(ValueError, match=message):
        heads.linear_loss(GCE, *parts, target, **options)


@pytest.mark.parametrize("accumulate", [None, torch.float32])
def test_products_that_only_a_gpu_has(accumulate, monkeypatch):
    """The meta device takes them as a GPU does: the shapes and types fit."""
    monkeypatch.setattr(linear_head, "has_wide_products", lambda factor: True)
    parts = [torch.randn(*shape, dtype=torch.bfloat16, device="meta").requires_grad_() for shape in ((6, 4), (9, 4))]
    target = torch.zeros(6, dtype=torch.long, device="meta")
    heads.linear_loss(GCE, *parts, None, target, accumulate=accumulate, block_bytes=100).backward()
    assert [part.grad.dtype for part in parts] == [torch.bfloat16, torch.bfloat16]
