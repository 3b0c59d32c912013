"""What the figures of the documentation share: their colours, and how they are saved."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

matplotlib.rcParams.update({"svg.hashsalt": "symloss", "font.size": 9, "axes.spines.top": False})
matplotlib.rcParams.update({"axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "legend.frameon": False})

COLOURS = {
    "ce": "#d1495b",
    "gce": "#edae49",
    "mae": "#66757f",
    "anl-ce": "#8d6a9f",
    "unhinged": "#00798c",
    "sgce": "#30638e",
    "alpha-mae": "#2e933c",
}
"""A loss has the same colour in every figure."""


def canvas(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write a figure, always the same for the same lines."""
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    figure.savefig(path, dpi=120, metadata=metadata)
