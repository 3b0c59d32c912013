"""What several models share: the check of the input's shape, and the initial weights."""

from __future__ import annotations

from torch import nn


def image_shape(model: str, shape: tuple[int, ...], smallest: int = 1) -> tuple[int, int, int]:
    """Check that the model can take images of this shape, and return (channels, height, width)."""
    if len(shape) != 3 or min(shape) < 1 or min(shape[1:]) < smallest:
        raise ValueError(
            f"input_shape of {model} must be (channels, height, width) with sides of at least {smallest}; "
            f"got {tuple(shape)}"
        )
    channels, height, width = shape
    return channels, height, width


def initialise(model: nn.Module) -> nn.Module:
    """Initialise convolutions Kaiming-uniform and linear layers Xavier-uniform. Biases stay as torch draws them."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_uniform_(layer.weight, mode="fan_in", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return model
