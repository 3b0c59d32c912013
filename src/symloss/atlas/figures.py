"""Figures of the atlas for a paper, as SVG and PDF: the same numbers as on the page, drawn by matplotlib."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from symloss import extras
from symloss.atlas import curves
from symloss.atlas.data import drawn_losses
from symloss.losses.base import Loss
from symloss.writing import clear_write_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 8  # losses in one figure. More lines could not be told apart.
LEVELS = 24  # colours of a map
SUFFIXES = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""The formats of each figure, with the metadata that would differ from run to run."""
# Letters stay letters: outlines in SVG, embedded TrueType in PDF. Equal input gives equal bytes.
STYLE: Any = {"svg.fonttype": "path", "svg.hashsalt": "symloss", "pdf.fonttype": 42, "font.size": 9}


def write_figures(folder: Path, losses: Iterable[str] | None = None) -> list[Path]:
    """Write figures of losses at their defaults, each as SVG and PDF, and return their paths.

    ``curves`` has the losses along a line, and where label noise moves their minimum; ``triangle-NAME`` has the maps of
    one loss. It needs matplotlib: ``pip install 'symloss[plot]'``.

    Args:
        folder: made if necessary. Figures of the same names are replaced.
        losses: at most eight, as :func:`symloss.create_loss` takes them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write_figures(Path(folder), ["ce", "0.5*ce + mae"])][::2]
    ['curves.svg', 'triangle-ce.svg', 'triangle-0.5-ce-mae.svg']
    """
    with extras.needed_by("atlas figures"):
        import matplotlib as mpl  # noqa: PLC0415 (not always installed)

    drawn = {record.name: record.loss() for record in drawn_losses(losses)}
    if len(drawn) > MOST:
        raise ValueError(f"figures must be of at most {MOST} losses, chosen by `--losses`; got {len(drawn)}")
    folder = Path(folder)
    with clear_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(STYLE):
        for name, figure in _figures(drawn):
            for suffix, metadata in SUFFIXES.items():
                written.append(folder / f"{name}{suffix}")
                with clear_write_errors(written[-1]):
                    figure.savefig(written[-1], metadata=metadata)
    return written


def _figures(losses: dict[str, Loss]) -> Iterator[tuple[str, Figure]]:
    yield "curves", _curves(losses)
    seen: Counter[str] = Counter()
    for name, loss in losses.items():
        stem = re.sub(r"[^a-z0-9.=]+", "-", name.lower()).strip("-")
        seen[stem] += 1
        again = f"-{seen[stem]}" if seen[stem] > 1 else ""  # "ce + mae" and "ce - mae" have the same letters
        yield f"triangle-{stem}{again}", _triangle(name, loss)


def _curves(losses: dict[str, Loss]) -> Figure:
    """Draw value, gradient weight and sum over labels against p of the label, and the minimum against the noise."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (not always installed)

    classes = curves.THRESHOLD_CLASSES
    figure = Figure(figsize=(7.2, 5), layout="constrained")
    axes = figure.subplots(2, 2)
    p = curves.probabilities(classes)
    inside = (p >= curves.PROBABILITIES[0] - 1e-9) & (p <= curves.PROBABILITIES[1] + 1e-9)
    titles = {"value": "loss", "weight": "gradient weight", "sum": f"sum over the {classes} labels"}
    for name, loss in losses.items():
        along = curves.loss_curves(loss, classes)
        for field, panel in zip(titles, axes.flat[:3], strict=True):
            panel.plot(p[inside], along[field][inside], label=name)
        axes.flat[3].plot([100 * rate for rate in curves.NOISE], curves.noisy_risk(loss)["minima"])
    for title, panel in zip(titles.values(), axes.flat[:3], strict=True):
        panel.set(xlabel="p of the label", ylabel=title)
    axes.flat[3].set(xlabel="symmetric noise in %", ylabel="threshold with the least risk")
    axes.flat[0].legend(fontsize="small")
    return figure


def _triangle(name: str, loss: Loss) -> Figure:
    """Draw the value for the first of three classes, and the sum over the three labels, on the triangle."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (not always installed)

    p = curves.simplex_points()
    x, y = p[:, 2] + p[:, 0] / 2, p[:, 0] * math.sqrt(3) / 2
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    titles = {"value": f"{name}, label 1", "sum": "sum over the 3 labels"}
    for (field, title), panel in zip(titles.items(), figure.subplots(1, 2), strict=True):
        values = curves.simplex_map(loss)[field]
        low, high = float(values.min()), float(values.max())
        if high - low < 1e-9 * max(1.0, abs(low)):  # a sum that is flat but for rounding has one colour
            low, high = low - 1, low + 1
        levels = torch.linspace(low, high, LEVELS + 1, dtype=torch.float64)
        figure.colorbar(panel.tricontourf(x, y, values.clamp(low, high), levels), ax=panel)
        panel.set(title=title, aspect="equal")
        panel.set_axis_off()
    return figure
