"""Where the closed form shines and where it fails: three problems that a straight line solves.

Long and Servedio's mixture breaks convex losses such as that of logistic regression, which with a fifth of the labels
flipped does little better than chance, while the centroid is right about every example. The other two problems have
clean labels and break the centroid: clusters of one class that pull in different directions, which centring cannot
mend, and classes of unequal size far from the origin, which it can.

    python examples/long_servedio.py --plot long_servedio.png
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from symloss.closed_form import UnhingedClassifier
from symloss.writing import write_whole

Data = tuple[np.ndarray, np.ndarray]


def long_servedio(count: int, random: np.random.Generator) -> Data:
    """Six Gaussians at +-(1, 0), +-(g, 5g), +-(g, -g) with weights 1/8, 1/8, 1/4 each; the label is the sign of x1."""
    g = 1 / 24
    return _two_signs(count, random, [(1, 0), (g, 5 * g), (g, -g)], [1 / 4, 1 / 4, 1 / 2], 0.01)


def unbalanced_clusters(count: int, random: np.random.Generator) -> Data:
    """Half of each class at +-(1, -1), half ten times as far up at +-(1, 10); the label is the sign of x1."""
    return _two_signs(count, random, [(1, -1), (1, 10)], [1 / 2, 1 / 2], 0.1)


def unequal_classes(count: int, random: np.random.Generator) -> Data:
    """Nine examples of ten at (10, 1), the tenth, of the other class, at (10, -1)."""
    label = np.where(random.random(count) < 0.9, 1, -1)
    centres = np.stack([np.full(count, 10.0), label], axis=1)
    return centres + 0.1 * random.standard_normal((count, 2)), label


def _two_signs(
    count: int, random: np.random.Generator, centres: list[tuple[float, float]], shares: list[float], spread: float
) -> Data:
    cluster, sign = random.choice(len(centres), count, p=shares), random.choice([-1, 1], count)
    x = sign[:, None] * np.array(centres)[cluster] + spread * random.standard_normal((count, 2))
    return x, np.where(x[:, 0] > 0, 1, -1)


@dataclass(frozen=True)
class Problem:
    title: str
    draw: Callable[[int, np.random.Generator], Data]
    flipped: float


PROBLEMS = (
    Problem("Long-Servedio, 20 % flipped", long_servedio, 0.2),
    Problem("unbalanced clusters, clean", unbalanced_clusters, 0.0),
    Problem("unequal classes, clean", unequal_classes, 0.0),
)
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "centroid": lambda: UnhingedClassifier(fit_intercept=False, center=False),
    "centroid, centred": lambda: UnhingedClassifier(fit_intercept=False, center=True),
    "logistic regression": lambda: LogisticRegression(fit_intercept=False, C=np.inf),
}
EXAMPLES = 1000


def training_data(problem: Problem, random: np.random.Generator) -> Data:
    x, y = problem.draw(EXAMPLES, random)
    return x, np.where(random.random(EXAMPLES) < problem.flipped, -y, y)


def accuracies(problem: Problem, repeats: int) -> dict[str, np.ndarray]:
    """Of each classifier, on fresh clean data: the mean over the two classes, so that chance is 1/2."""
    found: dict[str, list[float]] = {name: [] for name in CLASSIFIERS}
    for seed in range(repeats):
        random = np.random.default_rng(seed)
        x, y = training_data(problem, random)
        test_x, test_y = problem.draw(EXAMPLES, random)
        for name, make in CLASSIFIERS.items():
            right = make().fit(x, y).predict(test_x) == test_y
            found[name].append(float(np.mean([right[test_y == sign].mean() for sign in (-1, 1)])))
    return {name: np.array(each) for name, each in found.items()}


def draw(path: Path) -> None:
    """One data set of each problem, and the line that each classifier draws through it."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 (an extra)
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install 'symloss[plot]'") from None
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    for axes, problem in zip(figure.subplots(1, len(PROBLEMS)), PROBLEMS, strict=True):
        x, y = training_data(problem, np.random.default_rng(0))
        for label, colour in ((1, "tab:blue"), (-1, "tab:orange")):
            axes.plot(*x[y == label].T, ".", color=colour, markersize=3, alpha=0.5, label=f"label {label:+d}")
        _lines(axes, x, y)
        axes.set_title(problem.title)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:] or "png", dpi=100)
    write_whole(path, picture.getvalue())


def _lines(axes: Any, x: np.ndarray, y: np.ndarray) -> None:
    low, high = x.min(0), x.max(0)
    low, high = low - 0.1 * (high - low), high + 0.1 * (high - low)
    grid = np.stack(np.meshgrid(*np.linspace(low, high, 200).T), axis=-1)
    styles = zip(CLASSIFIERS.items(), ("-", ":", "--"), ("black", "tab:green", "tab:red"), strict=True)
    for (name, make), style, colour in styles:
        heights = make().fit(x, y).decision_function(grid.reshape(-1, 2)).reshape(200, 200)
        axes.contour(grid[..., 0], grid[..., 1], heights, levels=[0], colors=colour, linestyles=style)
        axes.plot([], [], style, color=colour, label=name)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=200, help="data sets of each problem (200)")
    parser.add_argument("--plot", type=Path, help="a picture to write, such as long_servedio.png")
    parser.add_argument("--json", action="store_true", help="print JSON instead, for other programs")
    chosen = parser.parse_args(arguments)
    if chosen.repeats < 1:
        parser.error(f"--repeats must be at least 1; got {chosen.repeats}")
    found = {problem.title: accuracies(problem, chosen.repeats) for problem in PROBLEMS}
    if chosen.json:
        print(json.dumps({title: {name: list(some) for name, some in each.items()} for title, each in found.items()}))
    else:
        print(f"accuracy on clean data, mean (and standard deviation) of {chosen.repeats} data sets of {EXAMPLES}")
        for title, each in found.items():
            print(title)
            for name, some in each.items():
                print(f"  {name:20} {some.mean():.3f} ({some.std():.3f})")
    if chosen.plot:
        draw(chosen.plot)


if __name__ == "__main__":
    main()
