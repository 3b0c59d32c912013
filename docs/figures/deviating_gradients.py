"""Gradients of public implementations beside those of the formulas."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from drawing import canvas, save

import symloss

CASES = {"ce": "clamped-probability", "focal:gamma=2": "held-focal-factor"}


def draw(folder: Path) -> None:
    """Write the figure."""
    figure = canvas(8, 3)
    logp = torch.linspace(-12 * math.log(10), -1e-4, 600, dtype=torch.float64)
    for axes, (spec, deviation) in zip(figure.subplots(1, 2), CASES.items(), strict=True):
        for name, options in {"formula": {}, deviation: {"deviation": deviation}}.items():
            x = logp.clone().requires_grad_()
            loss = symloss.create_loss(spec, **options).loss
            (slope,) = torch.autograd.grad(loss.phi(x).sum(), x)
            axes.plot(logp.exp(), -slope, label=name)
        axes.set(title=spec, xlabel="probability of the label", ylabel="weight of the example")
        axes.set(xscale="log" if spec == "ce" else "linear")
        axes.legend()
    save(figure, folder / "deviating-gradients.svg")
