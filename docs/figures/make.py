"""Make every figure of the documentation: python docs/figures/make.py [FOLDER]

Without a folder they are written to docs/images. Figures come from the library, and from results kept in docs/results.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import matplotlib
import numpy as np
import readme_picture
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import symloss
from symloss.experiments import compose, load_table, read_runs
from symloss.experiments.curves import SensitivityMap, sensitivity_maps
from symloss.losses.layers import auto_temperature
from symloss.noise import parse, transition_matrix
from symloss.theory.binary import MARGIN_FUNCTIONS, decompose_margin
from symloss.theory.priors import plot_prior
from symloss.theory.regression import UnhingedRegressor

DOCS = Path(__file__).parents[1]
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

matplotlib.rcParams.update({"svg.hashsalt": "symloss", "font.size": 9, "axes.spines.top": False})
matplotlib.rcParams.update({"axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "legend.frameon": False})


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure; width and height in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write a figure: the same bytes for the same lines."""
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    figure.savefig(path, dpi=120, metadata=metadata)


MOVING = torch.linspace(-6, 6, 241, dtype=torch.float64)
SCORES = torch.stack([MOVING, torch.ones_like(MOVING), -torch.ones_like(MOVING)], 1)
"""Three classes. The score of the first one moves; those of the others are 1 and -1."""

RATES = (0.0, 0.1, 0.2, 0.3, 0.4)
SHARE, STEEPNESS = 0.2, 3.0
"""Of two classes the one around 1 has this share. The model says p = sigmoid(STEEPNESS (x - threshold))."""


def draw_two_parts(folder: Path) -> None:
    """Draw cross-entropy and its two parts."""
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
            axes.plot(MOVING, values[:, label], style, color=COLOURS["ce"], label=f"label {label + 1}")
        axes.plot(MOVING, values.sum(1), color="black", linewidth=2.5, label="sum over labels")
        axes.set(title=title, xlabel="score of class 1", ylim=(-8, 16))
    figure.get_axes()[1].legend(loc="upper center")
    save(figure, folder / "two-parts.svg")


def draw_gradient_weights(folder: Path) -> None:
    """Draw the slope in the label's score, with nine other classes that are equally probable."""
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
    save(figure, folder / "gradient-weights.svg")


def draw_risk_under_noise(folder: Path) -> None:
    """Draw the risk of a threshold, by the share of flipped labels."""
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
    save(figure, folder / "risk-under-noise.svg")


def _risk(name: str, thresholds: Tensor, rate: float) -> Tensor:
    """Return the expected loss of each threshold if a share of the labels is flipped: a sum over a fine grid of x."""
    x = torch.linspace(-6, 6, 1201, dtype=torch.float64)
    density = torch.stack([(1 - SHARE) * torch.exp(-((x + 1) ** 2) / 2), SHARE * torch.exp(-((x - 1) ** 2) / 2)], 1)
    density = density / density.sum()
    noisy = (1 - rate) * density + rate * density.flip(1)
    z = STEEPNESS * (x - thresholds[:, None])
    values = symloss.create_loss(name).per_class(torch.stack([-z / 2, z / 2], -1))
    return (values * noisy).sum((1, 2))


KINDS = {"sym": "symmetric noise", "asym": "asymmetric noise"}


def draw_published_table(folder: Path) -> None:
    """Draw the published accuracies of the paper's first table, from its recipe."""
    figure = canvas(9, 5.4)
    table = load_table("table1")
    for row, column in zip(figure.subplots(2, 2), table.datasets, strict=True):
        for axes, (kind, title) in zip(row, KINDS.items(), strict=True):
            rates = [noise for noise in column.noise if noise == "clean" or noise.partition(":")[0] == kind]
            for loss, colour in COLOURS.items():
                cells = [table.published(column.name, loss, noise) for noise in rates]
                at = [0.0 if noise == "clean" else float(noise.partition(":")[2]) for noise in rates]
                axes.plot(at, [cell.value for cell in cells if cell], "o-", markersize=3, color=colour, label=loss)
            axes.set(title=f"{column.name}, {title}", ylabel="accuracy in %", xlabel="noise rate")
    figure.get_axes()[0].legend(fontsize="small")
    save(figure, folder / "published-table1.svg")


FULL = DOCS / "results" / "table1-full"
"""The metrics of each epoch of full cells of table 1, finished or not: one file a loss."""


def draw_full_cells(folder: Path) -> None:
    """Draw full cells of table 1, each up to the epoch that it has reached, beside the published accuracy."""
    figure = canvas(6.5, 3.2)
    axes, table = figure.subplots(), load_table("table1")
    for path in sorted(FULL.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        epochs, colour = [row["epoch"] for row in rows], COLOURS[path.stem]
        accuracy = [100 * row["test_accuracy"] for row in rows]
        state = "finished" if epochs[-1] == EPOCHS else f"unfinished, {epochs[-1]} of {EPOCHS} epochs"
        axes.plot(epochs, accuracy, color=colour, label=f"{path.stem} ({state})")
        published = table.published("cifar10", path.stem, "sym:0.8")
        if published is not None:
            label = f"{path.stem}, published after {EPOCHS}"
            axes.axhline(published.value, color=colour, linestyle="--", linewidth=1, label=label)
    axes.set(xlabel="epoch", ylabel="test accuracy in %", title="CIFAR-10, 80 % symmetric noise", xlim=(0, EPOCHS))
    axes.legend(fontsize="small")
    save(figure, folder / "table1-full.svg")


EPOCHS = 120


def draw_transition_matrices(folder: Path) -> None:
    """Draw the transition matrices of four kinds of noise."""
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


CLASSES = [round(10 ** (exponent / 10)) for exponent in range(4, 53)]


def draw_unit_scores(folder: Path) -> None:
    """Draw the largest probability that a class can have if its scores have norm 1, by the number of classes."""
    figure = canvas(6, 3.2)
    axes = figure.subplots()
    for name, temperature in {"1 (the paper's)": 1.0, "0.25": 0.25, "0.1": 0.1, "0.04 (LogitNorm's)": 0.04}.items():
        axes.plot(CLASSES, [_largest(classes, temperature) for classes in CLASSES], label=name)
    axes.plot(CLASSES, [_largest(classes, auto_temperature(classes)) for classes in CLASSES], "k--", label='"auto"')
    axes.set(xscale="log", yscale="log", xlabel="number of classes", ylabel="largest probability", ylim=(1e-6, 1.5))
    axes.legend(title="temperature")
    save(figure, folder / "unit-scores.svg")


def _largest(classes: int, temperature: float) -> float:
    """Return the largest probability: one score leads, and all others are equal."""
    return 1 / (1 + (classes - 1) * math.exp(-math.sqrt(classes / (classes - 1)) / temperature))


DEVIATIONS = {"ce": "clamped-probability", "focal:gamma=2": "held-focal-factor"}


def draw_deviating_gradients(folder: Path) -> None:
    """Draw gradients of public implementations beside those of the formulas."""
    figure = canvas(8, 3)
    logp = torch.linspace(-12 * math.log(10), -1e-4, 600, dtype=torch.float64)
    for axes, (spec, deviation) in zip(figure.subplots(1, 2), DEVIATIONS.items(), strict=True):
        for name, options in {"formula": {}, deviation: {"deviation": deviation}}.items():
            x = logp.clone().requires_grad_()
            loss = symloss.create_loss(spec, **options).loss
            (slope,) = torch.autograd.grad(loss.phi(x).sum(), x)
            axes.plot(logp.exp(), -slope, label=name)
        axes.set(title=spec, xlabel="probability of the label", ylabel="weight of the example")
        axes.set(xscale="log" if spec == "ce" else "linear")
        axes.legend()
    save(figure, folder / "deviating-gradients.svg")


def draw_sensitivity(folder: Path) -> None:
    """Draw heat maps of the accuracy of SGCE and alpha-MAE: rows are noises, columns weight decay and temperature."""
    (table,) = compose(read_runs(DOCS / "results" / "sensitivity.jsonl"), ["sensitivity"]).sections[0].tables
    maps = sensitivity_maps(table)
    for loss in dict.fromkeys(each.loss for each in maps):
        shown = [each for each in maps if each.loss == loss]
        across = list(dict.fromkeys(each.across for each in shown))
        noises = list(dict.fromkeys(each.noise for each in shown))
        figure = canvas(9, 6.4)
        axes = figure.subplots(len(noises), len(across), squeeze=False)
        for each in shown:
            _map(axes[noises.index(each.noise)][across.index(each.across)], each)
        runs = min(len(cell.runs) for each in shown for cell in each.cells.values())
        figure.suptitle(f"{loss}: accuracy in % on clean digits, mean of {runs} seeds")
        save(figure, folder / f"sensitivity-{loss}.svg")


def _map(axes: Axes, shown: SensitivityMap) -> None:
    means = [[shown.cells[row, column].last.mean for column in shown.columns] for row in shown.rows]
    low, high = shown.extent
    axes.imshow(means, cmap=matplotlib.colormaps["cividis"], aspect="auto", vmin=low, vmax=high)
    for i, line in enumerate(means):
        for j, mean in enumerate(line):
            colour = "black" if mean > low + 0.6 * (high - low) else "white"
            axes.text(j, i, f"{mean:.1f}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(shown.columns)), [f"{value:g}" for value in shown.columns])
    axes.set_yticks(range(len(shown.rows)), [f"{value:g}" for value in shown.rows])
    axes.set(xlabel=shown.across, ylabel=shown.down, title=f"{shown.noise}, {shown.rest}")
    axes.grid(visible=False)


def draw_margin_losses(folder: Path) -> None:
    """Draw margin losses and their odd parts."""
    figure = canvas(8, 3.4)
    z = torch.linspace(-4, 4, 401, dtype=torch.float64)
    whole, odd_part = figure.subplots(1, 2)
    for name, phi in MARGIN_FUNCTIONS.items():
        whole.plot(z, phi(z), label=name)
        odd_part.plot(z, decompose_margin(name)[0](z), label=name)
    whole.set(xlabel="margin z", ylabel="phi(z)", ylim=(-1, 4))
    odd_part.set(xlabel="margin z", ylabel="odd part of phi", ylim=(-2.5, 2.5))
    whole.legend(fontsize="small")
    save(figure, folder / "margin-losses.png")


def draw_regression(folder: Path) -> None:
    """Draw the data of docs/regression.md: y = 2 x, and 60 % of the targets are drawn from N(5 - 4 x, 1)."""
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
    save(figure, folder / "regression-corruption.png")


def draw_priors(folder: Path) -> None:
    """Draw Dirichlet priors of two and of three classes."""
    plot_prior(2, folder / "dirichlet-prior-two-classes.png")
    plot_prior(3, folder / "dirichlet-prior-three-classes.png")


FIGURES = (
    readme_picture.draw,
    draw_two_parts,
    draw_gradient_weights,
    draw_risk_under_noise,
    draw_published_table,
    draw_full_cells,
    draw_transition_matrices,
    draw_unit_scores,
    draw_deviating_gradients,
    draw_sensitivity,
    draw_margin_losses,
    draw_regression,
    draw_priors,
)


def main() -> None:
    """Write all figures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for draw in FIGURES:
        draw(folder)


if __name__ == "__main__":
    main()
