"""Transition matrices of four kinds of noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from drawing import canvas, save

from symloss.noise import parse, transition_matrix


def draw(folder: Path) -> None:
    """Write the figure."""
    figure = canvas(9, 2.7)
    frequencies = np.arange(10, 0, -1) / 55
    for axes, name in zip(figure.subplots(1, 4), ("sym:0.6", "asym:0.4", "pair:0.3", "prior:0.6"), strict=True):
        matrix = transition_matrix(parse(name), 10, dataset="digits", prior=frequencies)
        image = axes.imshow(matrix, vmin=0, vmax=1, cmap="Blues")
        axes.set(title=name, xlabel="label", xticks=range(10), yticks=range(10))
        axes.tick_params(labelsize=6)
        axes.grid(False)
    figure.get_axes()[0].set(ylabel="true class")
    figure.colorbar(image, ax=figure.get_axes(), label="probability", shrink=0.8)
    save(figure, folder / "transition-matrices.svg")
