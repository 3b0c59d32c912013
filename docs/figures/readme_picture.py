"""The picture of the README, from measured rows: python docs/figures/readme_picture.py [FOLDER]

Left: accuracy on clean test data against the share of wrong labels. Right: how good the list of wrong labels is, by
average precision. Both for digits, from the rows of benchmarks/fit_accuracy.py in docs/results/fit: mean and standard
deviation over the seeds. The colours follow the reader's light or dark mode.
"""

from __future__ import annotations

import io
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1]
PICTURE = "fit-and-audit.svg"
PAPER, INK, FAINT = "#ffffff", "#1f2328", "#d1d9e0"
DARK = {PAPER: "#0d1117", INK: "#e6edf3", FAINT: "#3d444d"}
METHODS = {
    "symloss": ("symloss fit", "#2f81f7", "o"),
    "cleanlab": ("cleanlab, around the best of 7 learners", "#d29922", "s"),
    "svc": ("SVC, tuned", "#009e73", "^"),
    "ce": ("network, cross-entropy, stopped in time", "#d55e00", "D"),
}
"""The name, the colour and the marker of each method; the colours can be told apart by people who see red as green."""
SYMMETRIC = {"clean": 0, "sym:0.2": 20, "sym:0.4": 40, "sym:0.6": 60, "sym:0.8": 80}
KINDS = {
    "sym:0.4": "symmetric\n40 %",
    "instance:0.4": "by the image\n40 %",
    "pair:0.3": "next class\n30 %",
    "asym:0.4": "similar class\n20 %",
}


def draw(folder: Path) -> None:
    """Write the picture."""
    with mpl.rc_context():
        mpl.rcdefaults()
        (folder / PICTURE).write_text(svg(panels(rows())))


def rows() -> list[dict[str, Any]]:
    """All rows of digits that are finished."""
    return [json.loads(path.read_text()) for path in sorted((DOCS / "results" / "fit" / "digits").glob("*.json"))]


def mean_and_spread(found: list[dict[str, Any]], method: str, noise: str, column: str) -> tuple[float, float]:
    """Over the seeds of one method at one noise."""
    values = [row[column] for row in found if row["method"] == method and row["noise"] == noise]
    if len(values) < 2:
        raise SystemExit(f"docs/results/fit must have two seeds of {method} at {noise}; got {len(values)}")
    return statistics.mean(values), statistics.stdev(values)


def panels(found: list[dict[str, Any]]) -> Figure:
    """Accuracy on the left, average precision on the right."""
    figure = Figure(figsize=(9.2, 3.7), layout="constrained", facecolor=PAPER)
    left, right = figure.subplots(1, 2)
    for place, (method, (name, colour, marker)) in enumerate(METHODS.items()):
        style = {"color": colour, "capsize": 2, "elinewidth": 1, "zorder": 3 if method == "symloss" else 2}
        accuracy = [mean_and_spread(found, method, noise, "accuracy") for noise in SYMMETRIC]
        means, spreads = ([100 * value for value in column] for column in zip(*accuracy, strict=True))
        width = 2.4 if method == "symloss" else 1.4
        left.errorbar(list(SYMMETRIC.values()), means, spreads, marker=marker, ms=4, lw=width, label=name, **style)

        precision = [mean_and_spread(found, method, noise, "average_precision") for noise in KINDS]
        means, spreads = zip(*precision, strict=True)
        spots = [kind + 0.2 * (place - 1.5) for kind in range(len(KINDS))]
        right.bar(spots, means, 0.18, yerr=spreads, color=colour, ecolor=INK, error_kw={"lw": 1}, capsize=2, zorder=2)
    left.set(xlabel="wrong labels in the training data, %", xticks=list(SYMMETRIC.values()), ylim=(20, 102))
    left.set_title("Accuracy on clean test data, %")
    left.legend(loc="lower left", frameon=False, labelcolor=INK, fontsize=9)
    right.set(xticks=range(len(KINDS)), ylim=(0, 1.05))
    right.set_xticklabels(KINDS.values(), fontsize=9)
    right.set_title("The list of wrong labels: average precision")
    for panel in (left, right):
        _in_colours(panel)
    return figure


def _in_colours(panel: Any) -> None:
    panel.set_facecolor(PAPER)
    panel.tick_params(colors=INK, length=0)
    panel.grid(axis="y", color=FAINT, lw=0.8, zorder=0)
    panel.title.set_color(INK)
    panel.xaxis.label.set_color(INK)
    for side, spine in panel.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(FAINT)


def svg(figure: Figure) -> str:
    """Return the same bytes for the same rows. Paper, ink and grid are variables that dark mode changes."""
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "symloss", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    light = dark = ""
    for number, (colour, at_night) in enumerate(DARK.items()):
        text = text.replace(colour, f"var(--c{number})")
        light += f"--c{number}: {colour}; "
        dark += f"--c{number}: {at_night}; "
    style = f"<style>svg {{ {light}}} @media (prefers-color-scheme: dark) {{ svg {{ {dark}}} }}</style>"
    head, tag, rest = text.partition("<metadata>")
    return "\n".join(line.rstrip() for line in f"{head}{style}\n {tag}{rest}".splitlines()) + "\n"


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "images")
