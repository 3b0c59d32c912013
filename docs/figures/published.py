"""The published accuracies of the paper's first table, from its recipe."""

from __future__ import annotations

from pathlib import Path

from drawing import COLOURS, canvas, save

from symloss.experiments import load_table

KINDS = {"sym": "symmetric noise", "asym": "asymmetric noise"}


def draw(folder: Path) -> None:
    """Write the figure."""
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
