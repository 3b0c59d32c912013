"""The largest probability that a class can have if its scores have norm 1, by the number of classes."""

from __future__ import annotations

import math
from pathlib import Path

from drawing import canvas, save

from symloss.losses.layers import auto_temperature

CLASSES = [round(10 ** (exponent / 10)) for exponent in range(4, 53)]


def draw(folder: Path) -> None:
    """Write the figure."""
    figure = canvas(6, 3.2)
    axes = figure.subplots()
    for name, temperature in {"1 (the paper's)": 1.0, "0.25": 0.25, "0.1": 0.1, "0.04 (LogitNorm's)": 0.04}.items():
        axes.plot(CLASSES, [_largest(classes, temperature) for classes in CLASSES], label=name)
    axes.plot(CLASSES, [_largest(classes, auto_temperature(classes)) for classes in CLASSES], "k--", label='"auto"')
    axes.set(xscale="log", yscale="log", xlabel="number of classes", ylabel="largest probability", ylim=(1e-6, 1.5))
    axes.legend(title="temperature")
    save(figure, folder / "unit-scores.svg")


def _largest(classes: int, temperature: float) -> float:
    """One score leads, and all others are equal."""
    return 1 / (1 + (classes - 1) * math.exp(-math.sqrt(classes / (classes - 1)) / temperature))
