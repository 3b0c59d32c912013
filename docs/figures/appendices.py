"""Figures of the appendices: margin losses, corrupted targets of regression, and Dirichlet priors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from drawing import canvas, save
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from symloss.theory.binary import MARGIN_FUNCTIONS, decompose_margin
from symloss.theory.priors import plot_prior
from symloss.theory.regression import UnhingedRegressor


def draw(folder: Path) -> None:
    """Write the four figures."""
    _margins(folder / "margin-losses.png")
    _regression(folder / "regression-corruption.png")
    plot_prior(2, folder / "dirichlet-prior-two-classes.png")
    plot_prior(3, folder / "dirichlet-prior-three-classes.png")


def _margins(path: Path) -> None:
    figure = canvas(8, 3.4)
    z = torch.linspace(-4, 4, 401, dtype=torch.float64)
    whole, odd_part = figure.subplots(1, 2)
    for name, phi in MARGIN_FUNCTIONS.items():
        whole.plot(z, phi(z), label=name)
        odd_part.plot(z, decompose_margin(name)[0](z), label=name)
    whole.set(xlabel="margin z", ylabel="phi(z)", ylim=(-1, 4))
    odd_part.set(xlabel="margin z", ylabel="odd part of phi", ylim=(-2.5, 2.5))
    whole.legend(fontsize="small")
    save(figure, path)


def _regression(path: Path) -> None:
    """The data of docs/regression.md: y = 2 x, and 60 % of the targets are drawn from N(5 - 4 x, 1)."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (500, 1))
    mean = 5 - 4 * x[:, 0]
    corrupted = random.random(500) < 0.6
    y = np.where(corrupted, mean + random.normal(size=500), 2 * x[:, 0] + 0.1 * random.normal(size=500))
    offset = make_pipeline(StandardScaler(), UnhingedRegressor(decay=0.4)).fit(x, y - mean)
    ends = np.array([[-1.0], [1.0]])
    axes = (figure := canvas(6, 3.6)).subplots()
    axes.plot(x[~corrupted], y[~corrupted], ".", label="clean")
    axes.plot(x[corrupted], y[corrupted], ".", alpha=0.5, label="corrupted, 60 %")
    axes.plot(ends, LinearRegression().fit(x, y).predict(ends), "k--", label="least squares")
    axes.plot(ends, 5 - 4 * ends[:, 0] + offset.predict(ends), "k-", label="symmetrized under q_x")
    axes.plot(ends, 2 * ends, "r:", label="truth")
    axes.set(xlabel="x", ylabel="y")
    axes.legend(fontsize="small")
    save(figure, path)
