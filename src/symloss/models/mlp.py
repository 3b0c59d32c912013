"""A multi-layer perceptron, for tables and for flattened images."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from symloss import checks
from symloss.models.layers import initialise


def mlp(
    input_shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (256, 256), norm: str = "batch"
) -> nn.Module:
    """Linear layers with ReLU between them, and batch normalisation unless ``norm`` is "none"."""
    checks.choice("norm", norm, ("batch", "none"))
    layers: list[nn.Module] = [nn.Flatten()]
    features = math.prod(input_shape)
    for given in hidden:
        size = int(checks.number("hidden", given, "[1, inf)", whole=True))
        layers.append(nn.Linear(features, size))
        layers += [nn.BatchNorm1d(size)] if norm == "batch" else []
        layers.append(nn.ReLU(inplace=True))
        features = size
    return initialise(nn.Sequential(*layers, nn.Linear(features, classes)))
