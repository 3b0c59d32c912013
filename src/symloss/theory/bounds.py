"""Bounds on the unhinged risk of a network that was trained with another loss (prop. 5.3)."""

from __future__ import annotations

import math

import torch
from torch import nn

from symloss import checks
from symloss.theory.certificates import Constant


def output_bound(R: float, r: float, c: float = 1.0, layers: int = 1) -> float:
    """Return the bound R c^(layers - 1) r on the norm of a network's output.

    Args:
        R: a bound on the Euclidean norm of the inputs.
        r: a bound on the product of the Euclidean norms of the layers' weights.
        c: the Lipschitz constant of the non-linearity between layers, which must be 0 at 0.
        layers: the number of layers. None may have a bias.

    >>> output_bound(R=2.0, r=0.5, c=1.0, layers=3)
    1.0
    """
    R, r, c = (checks.number(name, value, "[0, inf)") for name, value in (("R", R), ("r", r), ("c", c)))
    layers = int(checks.number("layers", layers, "[1, inf)", whole=True))
    return float(R * c ** (layers - 1) * r)


def remainder_bound(
    beta: float, R: float, r: float, c: float = 1.0, layers: int = 1, *, allow_lower_bound: bool = False
) -> float:
    """Return the bound beta/2 (R c^(layers - 1) r)^2 on the distance of a loss from its linear approximation at 0.

    Args:
        beta: the smoothness of the loss in the scores.
        R, r, c, layers: as in :func:`output_bound`.
        allow_lower_bound: accept a measured beta that is only a lower bound. The result is then an estimate, no bound.

    >>> remainder_bound(beta=0.5, R=2.0, r=0.5, layers=3)
    0.25
    """
    size = checks.number("beta", beta, "[0, inf)")
    if isinstance(beta, Constant) and not beta.exact and not allow_lower_bound:
        raise ValueError(
            f"beta must be at least the loss's smoothness for the bound to hold; got {beta}, a lower bound (for an "
            "estimate, say allow_lower_bound=True)"
        )
    return size / 2 * output_bound(R, r, c, layers) ** 2


def unhinged_gap_bound(
    beta: float, R: float, r: float, c: float = 1.0, layers: int = 1, *, allow_lower_bound: bool = False
) -> float:
    """Return the bound R^2 beta c^(2 (layers - 1)) r^2 on L_D(f_phi) - L_D(f_unhinged) (prop. 5.3).

    L_D is the unhinged risk. f_phi is a network of least phi-risk and f_unhinged one of least unhinged risk, both among
    bias-free networks as in :func:`output_bound`. phi must be beta-smooth, and its linear approximation at 0 must be
    the unhinged loss: divide it by its slope there (``symloss.certify(phi, C).slope``, or ``scale="ce"``).

    Args:
        beta, R, r, c, layers, allow_lower_bound: as in :func:`remainder_bound`.

    >>> unhinged_gap_bound(beta=0.5, R=2.0, r=0.5, c=1.0, layers=3)
    0.5
    """
    return 2 * remainder_bound(beta, R, r, c, layers, allow_lower_bound=allow_lower_bound)


# Lipschitz constants of non-linearities that are 0 at 0.
_LIPSCHITZ = {nn.ReLU: 1.0, nn.Tanh: 1.0, nn.ReLU6: 1.0, nn.Softsign: 1.0, nn.GELU: 1.13, nn.SiLU: 1.1}
_NEUTRAL: tuple[type[nn.Module], ...] = (nn.Identity, nn.Flatten)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
Layer = nn.Linear | Convolution


def weight_product(network: nn.Module) -> float:
    """Return a bound on the product of the layers' operator norms, the r of prop. 5.3.

    A linear layer counts with the Euclidean (Frobenius) norm of its weights, as in the paper, and a convolution with
    :func:`convolution_norm_bound`.

    Args:
        network: an ``nn.Sequential``, which may be nested, of bias-free ``nn.Linear`` and convolutions,
            non-linearities, and pools whose windows do not overlap.

    >>> weight_product(nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False))) > 0
    True
    """
    found = [part for part in _parts(network) if isinstance(part, Layer)]
    if not found:
        raise ValueError("network must hold at least one nn.Linear layer or convolution; got none")
    for layer in found:
        if layer.bias is not None:
            raise ValueError(f"network must be bias-free for the bound to hold; got {layer}")
    return math.prod(
        float(layer.weight.detach().double().norm()) if isinstance(layer, nn.Linear) else convolution_norm_bound(layer)
        for layer in found
    )


def convolution_norm_bound(layer: Convolution) -> float:
    """Return a bound on the operator norm of a convolution with zero padding, for inputs of every size.

    Each output is the kernel, as a matrix with a row for each channel, times a patch of the input. No input is part of
    more than prod_i ceil(k_i / s_i) patches, with kernel sizes k_i and strides s_i. So the norm of the output is at
    most that of the input, times the kernel's spectral norm, times the square root of that number. The bound is reached
    where patches do not overlap. Power iteration would give a lower bound, for one size of input.

    Args:
        layer: a convolution.

    >>> convolution_norm_bound(nn.Conv2d(1, 4, 3, stride=3, bias=False)) > 0
    True
    """
    if layer.padding_mode != "zeros":
        raise ValueError(f"network must pad with zeros for the bound to hold; got {layer}")
    groups = layer.weight.detach().double().reshape(layer.groups, layer.out_channels // layer.groups, -1)
    steps = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    overlap = math.prod(math.ceil(k * math.gcd(stride, dilation) / stride) for k, stride, dilation in steps)
    return math.sqrt(overlap) * float(torch.linalg.matrix_norm(groups, 2).max())


def network_gap_bound(network: nn.Module, beta: float, R: float, *, allow_lower_bound: bool = False) -> float:
    """Return :func:`unhinged_gap_bound` of a network, from the norms of its layers and the slopes between them.

    Args:
        network: as in :func:`weight_product`.
        beta, R, allow_lower_bound: as in :func:`remainder_bound`.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False))
    >>> bool(network_gap_bound(network, beta=0.5, R=1.0) == 0.5 * weight_product(network) ** 2)
    True
    """
    steepness = math.prod(_LIPSCHITZ[type(part)] for part in _parts(network) if type(part) in _LIPSCHITZ)
    return unhinged_gap_bound(beta, R, weight_product(network) * steepness, allow_lower_bound=allow_lower_bound)


def _parts(network: nn.Module) -> list[nn.Module]:
    """Return the layers in order. A layer for which the bound is not known to hold is refused."""
    if isinstance(network, nn.Sequential):
        return [part for child in network for part in _parts(child)]
    if type(network) in _LIPSCHITZ or isinstance(network, (Layer, *_NEUTRAL)):
        return [network]
    if isinstance(network, _POOLS):
        # Without overlap a pool has Lipschitz constant 1.
        named = (getattr(network, name, 1) for name in ("kernel_size", "stride", "dilation"))
        size, stride, dilation = map(torch.as_tensor, named)
        overlap = bool((stride < size).any()) or bool((dilation != 1).any())
        if overlap or getattr(network, "divisor_override", None) is not None:
            raise ValueError(f"network must pool over windows that do not overlap for the bound to hold; got {network}")
        return [network]
    kinds: list[type[nn.Module]] = [nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, *_LIPSCHITZ, *_POOLS, *_NEUTRAL]
    known = ", ".join(kind.__name__ for kind in kinds)
    given = type(network).__name__ if isinstance(network, nn.Module) else checks.brief(network)
    raise TypeError(f"network must be an nn.Sequential of {known}; got {given}")
