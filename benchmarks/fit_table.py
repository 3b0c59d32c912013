"""The Markdown tables of fit_accuracy.py, from finished rows."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import measure
from scipy.stats import rankdata  # type: ignore[import-untyped]

Row = dict[str, Any]
OURS = "symloss"
POINTS, ERRORS = 0.5, 2.0
"""A method is behind if it is more than half a point and more than two paired standard errors below."""


class Difference(NamedTuple):
    """How far symloss is above a rival, in points, on the same seeds."""

    rival: str
    mean: float
    error: float | None
    seeds: int

    @property
    def behind(self) -> bool | None:
        """Whether symloss is clearly below the rival; None with one seed."""
        if self.error is None:
            return None
        return self.mean < -POINTS and self.mean < -ERRORS * self.error


class Results:
    """Rows by data, noise and method.

    Args:
        rows: finished rows, in the order of the tables.
    """

    def __init__(self, rows: Sequence[Row]):
        self.rows = list(rows)
        self.methods = sorted(dict.fromkeys(row["method"] for row in rows), key=lambda method: method != OURS)
        self.cells = list(dict.fromkeys((row["data"], row["noise"]) for row in rows))
        self._by_place = {(row["data"], row["noise"], row["method"], row["seed"]): row for row in rows}

    def of(self, cell: tuple[str, str], method: str) -> dict[int, Row]:
        """Return the rows of one method, by seed."""
        return {key[3]: row for key, row in self._by_place.items() if key[:3] == (*cell, method)}

    def values(self, cell: tuple[str, str], method: str, column: str) -> list[float]:
        """Return the values of a column that are not None."""
        return [row[column] for row in self.of(cell, method).values() if row.get(column) is not None]

    def best_on_shared_seeds(self, cell: tuple[str, str], column: str) -> list[str]:
        """Return the methods with the highest mean on the seeds that all methods of the cell share."""
        found = {}
        for method in self.methods:
            known = {seed: row[column] for seed, row in self.of(cell, method).items() if row.get(column) is not None}
            if known:
                found[method] = known
        shared = sorted(set.intersection(*map(set, found.values()))) if len(found) > 1 else []
        if not shared:
            return []
        means = {method: statistics.fmean(known[seed] for seed in shared) for method, known in found.items()}
        return [method for method, mean in means.items() if mean == max(means.values())]

    def mean_ranks(self) -> tuple[dict[str, float], int]:
        """Return the mean rank of each method by accuracy, over seeds and then over cells, and the number of cells.

        A cell counts if every method has finished in it with some seed. Equal accuracies share their ranks.
        """
        found = []
        for cell in self.cells:
            by_method = [self.of(cell, method) for method in self.methods]
            shared = set.intersection(*(set(each) for each in by_method))
            if shared:
                ranks = [rankdata([-each[seed]["accuracy"] for each in by_method]) for seed in sorted(shared)]
                found.append([statistics.fmean(column) for column in zip(*ranks, strict=True)])
        means = [statistics.fmean(column) for column in zip(*found, strict=True)]
        return dict(zip(self.methods, means, strict=False)), len(found)

    def against_best_rival(self, cell: tuple[str, str]) -> Difference | None:
        """Return the difference to the best rival on the same seeds; None without a rival."""
        ours, found = self.of(cell, OURS), []
        for rival in self.methods:
            theirs = self.of(cell, rival)
            shared = sorted(set(ours) & set(theirs))
            if rival != OURS and shared:
                gaps = [100 * (ours[seed]["accuracy"] - theirs[seed]["accuracy"]) for seed in shared]
                found.append(Difference(rival, statistics.fmean(gaps), _standard_error(gaps), len(gaps)))
        return min(found, key=lambda one: one.mean, default=None)


def markdown(rows: Sequence[Row]) -> str:
    """Return all tables of some rows, and how they were made."""
    results = Results(rows)
    return "\n\n".join(part for part in _parts(results) if part) + "\n"


def _parts(results: Results) -> Iterable[str]:
    yield "### Accuracy on clean test data"
    yield (
        "In %: mean ± standard deviation over seeds, and in brackets how many seeds. Bold is the best on the seeds "
        "that all methods of the row have finished."
    )
    yield _by_method(results, "accuracy", lambda values: _spread([100 * value for value in values], 1))
    yield _rank_sentence(results)
    if OURS in results.methods and len(results.methods) > 1:
        yield "### Paired differences"
        yield (
            f"Points by which {OURS} is above the best rival of each row, on the seeds that both have finished. "
            "Behind: more than half a point and more than two paired standard errors below."
        )
        yield _differences(results)
        yield _where_rivals_win(results)
    yield "### The audit: average precision of the ranking of labels"
    yield (
        f"1 is a perfect list of the wrong labels. {OURS}: `label_scores_`. cleanlab: its label quality. All others: "
        "the probability of the given label by a learner that has not seen it."
    )
    yield _by_method(results, "average_precision", lambda values: _spread(values, 3))
    margins = _by_method(results, "average_precision_of_margins", lambda values: _spread(values, 3), bold=False)
    if margins:
        yield "By the margins of a network while it is trained on all rows (AUM), where they were kept:"
        yield margins
    errors = _by_method(results, "calibration_error", lambda values: _spread(values, 3), bold=False)
    if errors:
        yield "### Calibration error on clean test data"
        yield "Expected calibration error of the predicted probabilities in 15 bins, where it was measured. 0 is best."
        yield errors
    yield "### Estimated noise rate"
    yield _noise_rates(results)
    yield "### Processor seconds"
    yield "Of one core, for choosing, learning and predicting; cleanlab's without those of the rivals it builds on."
    yield _by_method(results, "processor_seconds", lambda values: f"{statistics.fmean(values):.1f}", bold=False)
    yield "### How this was made"
    yield provenance(results.rows)


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join([measure.header(*head), *(measure.row(*line) for line in body)])


def _name(cell: tuple[str, str]) -> str:
    return " ".join(cell)


def _by_method(results: Results, column: str, shown: Callable[[list[float]], str], bold: bool = True) -> str:
    def line(cell: tuple[str, str]) -> list[str]:
        best = results.best_on_shared_seeds(cell, column) if bold else []
        texts = []
        for method in results.methods:
            values = results.values(cell, method, column)
            text = shown(values) if values else "-"
            texts.append(f"**{text}**" if method in best else text)
        return [_name(cell), *texts]

    known = [cell for cell in results.cells if any(results.values(cell, method, column) for method in results.methods)]
    return table(["data and noise", *results.methods], map(line, known)) if known else ""


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{measure.spread(values, digits)} ({len(values)})"


def _standard_error(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _rank_sentence(results: Results) -> str:
    ranks, cells = results.mean_ranks()
    if not cells or len(results.methods) < 2:
        return ""
    order = sorted(ranks.items(), key=lambda item: item[1])
    listed = ", ".join(f"{method} {rank:.2f}" for method, rank in order)
    return f"Mean rank over the {cells} rows in which every method has finished with the same seed: {listed}."


def _differences(results: Results) -> str:
    def line(cell: tuple[str, str], found: Difference) -> list[str]:
        verdict = {True: "behind", False: "not behind", None: "one seed"}[found.behind]
        error = "-" if found.error is None else f"{found.error:.2f}"
        return [_name(cell), found.rival, f"{found.mean:+.2f}", error, str(found.seeds), verdict]

    pairs = [(cell, results.against_best_rival(cell)) for cell in results.cells]
    head = ["data and noise", "best rival", "difference", "standard error", "seeds", "verdict"]
    return table(head, [line(cell, found) for cell, found in pairs if found is not None])


def _where_rivals_win(results: Results) -> str:
    pairs = [(cell, results.against_best_rival(cell)) for cell in results.cells]
    lost = [f"{_name(cell)} ({found.rival}, {-found.mean:.2f})" for cell, found in pairs if found and found.mean < 0]
    if not lost:
        return "No rival has the higher mean in any of these cells."
    return f"A rival has the higher mean, by so many points: {', '.join(lost)}."


def _noise_rates(results: Results) -> str:
    methods = [m for m in results.methods if any(results.values(c, m, "noise_rate_estimate") for c in results.cells)]

    def line(cell: tuple[str, str]) -> list[str]:
        true = next(row["noise_rate"] for row in results.rows if (row["data"], row["noise"]) == cell)
        found = [results.values(cell, method, "noise_rate_estimate") for method in methods]
        return [_name(cell), f"{true:.3f}", *(_spread(values, 3) if values else "-" for values in found)]

    known = [cell for cell in results.cells if any(results.of(cell, method) for method in methods)]
    return table(["data and noise", "true", *methods], map(line, known))


def provenance(rows: Sequence[Row]) -> str:
    """Return what all rows share in one line, and what differs in a line each, with the number of rows."""
    environments = [row["environment"] for row in rows]
    counts = {
        key: Counter(str(each.get(key, "-")) for each in environments)
        for key in dict.fromkeys(key for each in environments for key in each)
    }
    shared = ", ".join(f"{key} {next(iter(count))}" for key, count in counts.items() if len(count) == 1)
    lines = [f"- Rows: {len(rows)}, each kept with its setting, its times and its environment."]
    lines += [f"- {shared}"] if shared else []
    for key, count in counts.items():
        if len(count) > 1:
            values = (f"{value} ({many} row{'s' if many > 1 else ''})" for value, many in count.items())
            lines.append(f"- {key}: {', '.join(values)}")
    return "\n".join(lines)
