"""How symmetrization works: the two parts of a loss, the weight of an example, and the risk under noise."""

from __future__ import annotations

from pathlib import Path

import torch
from drawing import COLOURS, canvas, save
from torch import Tensor

import symloss

PATH = torch.linspace(-6, 6, 241, dtype=torch.float64)
SCORES = torch.stack([PATH, torch.ones_like(PATH), -torch.ones_like(PATH)], 1)
"""Three classes. The score of the first one moves; those of the others are 1 and -1."""

RATES = (0.0, 0.1, 0.2, 0.3, 0.4)
SHARE, STEEPNESS = 0.2, 3.0
"""Of two classes the one around 1 has this share. The model says p = sigmoid(STEEPNESS (x - threshold))."""


def draw(folder: Path) -> None:
    """Write the three figures."""
    _parts(folder / "two-parts.svg")
    _weights(folder / "gradient-weights.svg")
    _risks(folder / "risk-under-noise.svg")


def _parts(path: Path) -> None:
    figure = canvas(9, 3)
    symmetric, insensitive = symloss.decompose(symloss.CE())
    named = {
        "cross-entropy": symloss.CE(),
        "= symmetric part (unhinged)": symmetric,
        "+ class-insensitive part": insensitive,
    }
    for axes, (title, loss) in zip(figure.subplots(1, 3, sharey=True), named.items(), strict=True):
        values = loss.per_class(SCORES)
        for label, style in enumerate(("-", "--", ":")):
            axes.plot(PATH, values[:, label], style, color=COLOURS["ce"], label=f"label {label + 1}")
        axes.plot(PATH, values.sum(1), color="black", linewidth=2.5, label="sum over labels")
        axes.set(title=title, xlabel="score of class 1", ylim=(-8, 16))
    figure.get_axes()[1].legend(loc="upper center")
    save(figure, path)


def _weights(path: Path) -> None:
    """The slope in the label's score, with nine other classes that are equally probable."""
    figure = canvas(6, 3.2)
    axes = figure.subplots()
    p = torch.linspace(0.001, 0.999, 400, dtype=torch.float64)
    for spec in ("ce", "gce:q=0.7", "mae", "sgce:q=0.8", "unhinged"):
        scores = torch.cat([p[:, None].log(), ((1 - p) / 9).log()[:, None].expand(-1, 9)], 1).requires_grad_()
        loss = symloss.create_loss(spec, normalize=None, scale="ce", reduction="sum")
        (slope,) = torch.autograd.grad(loss(scores, torch.zeros(len(p), dtype=torch.int64)), scores)
        axes.plot(p, -slope[:, 0], color=COLOURS[spec.partition(":")[0]], label=spec)
    axes.axvline(0.1, color="black", linewidth=0.8, linestyle=":")
    axes.set(xlabel="probability of the label (10 classes)", ylabel="pull on the label's score")
    axes.set(ylim=(0, 3.4))
    axes.legend(ncols=3, loc="upper center")
    save(figure, path)


def _risks(path: Path) -> None:
    figure = canvas(8, 3.2)
    thresholds = torch.linspace(-1.5, 2.0, 351, dtype=torch.float64)
    for axes, name in zip(figure.subplots(1, 2), ("ce", "mae"), strict=True):
        for rate in RATES:
            risk = _risk(name, thresholds, rate)
            best = risk.argmin()
            shade = COLOURS[name] if rate == 0 else str(0.2 + 1.2 * rate)
            axes.plot(thresholds, risk - risk[best], color=shade, label=f"{rate:.0%} flipped")
            axes.plot(thresholds[best], 0, "o", color=shade, clip_on=False)
        axes.set(title=name, xlabel="threshold", ylabel="risk above its minimum", ylim=(0, 0.3))
    axes.legend()
    save(figure, path)


def _risk(name: str, thresholds: Tensor, rate: float) -> Tensor:
    """The expected loss of each threshold if a share of the labels is flipped, by a sum over a fine grid of x."""
    x = torch.linspace(-6, 6, 1201, dtype=torch.float64)
    density = torch.stack([(1 - SHARE) * torch.exp(-((x + 1) ** 2) / 2), SHARE * torch.exp(-((x - 1) ** 2) / 2)], 1)
    density = density / density.sum()
    noisy = (1 - rate) * density + rate * density.flip(1)
    z = STEEPNESS * (x - thresholds[:, None])
    values = symloss.create_loss(name).per_class(torch.stack([-z / 2, z / 2], -1))
    return (values * noisy).sum((1, 2))
