"""The products of a linear head, in the precision of its weights.

The products of a block of examples are computed in the type of the weights, and the scores of the block are float32.
On a CPU that is slow in half precision blocks of the weights are turned into float32 instead. There is never a
float32 copy of all weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss.losses.logits import HALF, working_type

CLASSES = 4096  # rows of the weights that are turned into float32 at a time

# Only torch knows what the processor can do, and it has no public question for it.
_has_bfloat16 = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)


class Head(NamedTuple):
    """A linear layer and its inputs. All parts have one type, but the bias may have more precision."""

    features: Tensor  # (N, d)
    weight: Tensor  # (C, d)
    bias: Tensor | None  # (C,)

    def scores(self) -> Tensor:
        """All scores, shape (N, C)."""
        bias = None if self.bias is None else self.bias.to(self.weight.dtype)
        return F.linear(self.features, self.weight, bias)


def is_cast(weight: Tensor) -> bool:
    """Whether blocks of these weights are turned into float32, because products in their type would be slower."""
    if weight.dtype not in HALF or not weight.is_cpu:
        return False
    return weight.dtype == torch.float16 or not _has_bfloat16()


def has_wide_products(factor: Tensor) -> bool:
    """Whether torch can multiply in half precision without rounding the result to it."""
    return factor.is_cuda and hasattr(torch.ops.aten.mm, "dtype_out")  # CUDA and ROCm, from torch 2.8 on


def write_scores(features: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write features @ weight.T + bias to ``out``, which has full precision."""
    if is_cast(weight):
        wide = features.float()
        for part, block in _blocks(weight):
            torch.mm(wide, block.T, out=out[:, part])
    elif weight.dtype == out.dtype:
        torch.mm(features, weight.T, out=out)
    elif has_wide_products(weight):
        torch.mm(features, weight.T, out_dtype=out.dtype, out=out)
    else:
        out.copy_(torch.mm(features, weight.T))
    if bias is not None:
        out += bias


def write_feature_gradient(gradient: Tensor, weight: Tensor, out: Tensor) -> None:
    """Write gradient @ weight to ``out``, where the gradient is one of scores."""
    if is_cast(weight):
        total = torch.zeros(out.shape, dtype=torch.float32)
        for part, block in _blocks(weight):
            total.addmm_(gradient[:, part], block)
        out.copy_(total)
    else:
        torch.mm(gradient.to(weight.dtype), weight, out=out)


def add_weight_gradient(gradient: Tensor, features: Tensor, out: Tensor) -> None:
    """Add gradient.T @ features to ``out``, which has the type of the weights or float32."""
    if is_cast(features):
        wide = features.float()
        for part, block in _blocks(out, cast=False):
            block.add_(torch.mm(gradient[:, part].T, wide))
    elif out.dtype == features.dtype:
        out.addmm_(gradient.to(features.dtype).T, features)
    elif has_wide_products(features):
        out += torch.mm(gradient.to(features.dtype).T, features, out_dtype=out.dtype)
    else:  # the product would be rounded before it is added
        wide = features.to(out.dtype)
        for part, block in _blocks(out, cast=False):
            block.addmm_(gradient[:, part].T, wide)


def weighted_rows(factors: Tensor, weight: Tensor) -> Tensor:
    """factors @ weight in full precision, for factors (C,) or (n, C)."""
    if weight.dtype not in HALF:
        return factors @ weight
    out = torch.zeros(*factors.shape[:-1], weight.shape[1], dtype=torch.float32, device=weight.device)
    for part, block in _blocks(weight):
        out += factors[..., part].float() @ block
    return out


def add_at_labels(out: Tensor, labels: Tensor, rows: Tensor) -> None:
    """Add rows (N, d), which have full precision, to the rows of ``out`` (C, d) that the labels name."""
    if out.dtype == rows.dtype:
        out.index_add_(0, labels, rows)
        return
    # Half precision would round every addition. So the rows of a label are added up at one of its examples first.
    place = torch.zeros(len(out), dtype=torch.long, device=out.device)
    place.index_copy_(0, labels, torch.arange(len(labels), device=out.device))
    place = place[labels]
    total = torch.zeros_like(rows).index_add_(0, place, rows)
    out.index_copy_(0, labels, (out[labels] + total[place]).to(out.dtype))


def _blocks(rows: Tensor, cast: bool = True) -> Iterator[tuple[slice, Tensor]]:
    for start in range(0, len(rows), CLASSES):
        part = slice(start, start + CLASSES)
        yield part, rows[part].to(working_type(rows)) if cast else rows[part]
