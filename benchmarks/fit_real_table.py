"""The Markdown tables of fit_real.py, from finished rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fit_table import provenance, table
from real_rivals import RIVALS

Row = dict[str, Any]
OURS, CLEANLAB, CLEAN = "symloss", "cleanlab", "clean-forest"
APART = 0.9
"""Classes of a table are apart if a forest that learns true labels has at least this accuracy."""
POINTS = 2.0
"""A cell is lost clearly if symloss is more points of accuracy below the best rival."""
LISTS = {
    "development": "## Development data\n\nLooked at while `fit` was written.",
    "test": "## Test data\n\nMeasured once, after development.",
}


@dataclass(frozen=True, eq=False)
class Cell:
    """The rows of one data set, noise and seed.

    Args:
        rows: by method.
        apart: whether classes are apart; None if it was not measured.
    """

    rows: dict[str, Row]
    apart: bool | None

    @property
    def first(self) -> Row:
        """One of the rows."""
        return next(iter(self.rows.values()))

    @property
    def rivals(self) -> list[Row]:
        """The rows of rivals."""
        return [row for method, row in self.rows.items() if method in RIVALS]

    def of(self, kind: str) -> Row | None:
        """Return the row of symloss or of cleanlab, or of the best rival."""
        return best_rival(self.rivals) if kind == "rival" else self.rows.get(kind)


def best_rival(rows: Sequence[Row]) -> Row | None:
    """Return the row of the rival with the best accuracy on held-out noisy labels; None without a row."""
    order = list(RIVALS)
    return max(rows, key=lambda row: (row["noisy_accuracy"], -order.index(row["method"])), default=None)


def cells_of(rows: Sequence[Row]) -> list[Cell]:
    """Return the cells of some rows, in their order."""
    clean = {(row["data"], row["seed"]): row["accuracy"] for row in rows if row["method"] == CLEAN}
    found: dict[tuple[str, str, int], dict[str, Row]] = {}
    for row in rows:
        if row["method"] != CLEAN:
            found.setdefault((row["data"], row["noise"], row["seed"]), {})[row["method"]] = row
    return [
        Cell(by_method, None if (data, seed) not in clean else clean[data, seed] >= APART)
        for (data, _, seed), by_method in found.items()
    ]


def markdown(rows: Sequence[Row], details: bool = False) -> str:
    """Return all tables of some rows, list by list, and how they were made.

    Args:
        rows: finished rows.
        details: whether a table of all cells is added.
    """
    parts = []
    for name, head in LISTS.items():
        of_list = [row for row in rows if row["list"] == name]
        if of_list:
            parts += [head, *_parts(cells_of(of_list), details)]
    parts += ["## How this was made", provenance(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parts(cells: Sequence[Cell], details: bool) -> Iterable[str]:
    folders = [cell for cell in cells if "wrong_after" in cell.first]
    learned = [cell for cell in cells if "wrong_after" not in cell.first]
    kinds = [kind for kind in (OURS, "rival", CLEANLAB) if any(cell.of(kind) for cell in learned)]
    groups = _groups(_complete(learned, kinds))
    if groups:
        yield (
            f"Mean over cells (data, noise and seed) that all have finished: {' / '.join(map(_name, kinds))}. The best "
            "rival is the one with the best accuracy on held-out noisy labels. Classes are apart where a forest that "
            f"learns true labels has at least {100 * APART:.0f} %. Average precision is of the list of wrong labels; "
            "cleanlab's is the best of its three scores in the group."
        )
        yield _means(groups, kinds)
        if OURS in kinds:
            yield _comparison(groups, kinds)
        yield _seconds(groups, kinds)
    if folders:
        yield "### Photos in folders"
        yield _folders(folders)
    if details and groups:
        yield "### All cells"
        yield _all_cells(next(iter(groups.values())), kinds)


def _complete(cells: Sequence[Cell], kinds: Sequence[str]) -> list[Cell]:
    """Return the cells in which all kinds, and all rivals that any cell of the group has, are finished."""
    rivals: dict[str, set[str]] = {}
    for cell in cells:
        rivals.setdefault(cell.first["group"], set()).update(row["method"] for row in cell.rivals)
    return [
        cell
        for cell in cells
        if all(cell.of(kind) for kind in kinds)
        and {row["method"] for row in cell.rivals} == rivals[cell.first["group"]]
    ]


def _groups(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return cells by the name of a line: all, each group, and tables by whether classes are apart."""
    found = {"all": list(cells)} if cells else {}
    for cell in cells:
        group = cell.first["group"]
        found.setdefault(group, []).append(cell)
        if group == "tables" and cell.apart is not None:
            found.setdefault(f"tables, {'apart' if cell.apart else 'overlapping'}", []).append(cell)
    return found


def _name(kind: str) -> str:
    return "best rival" if kind == "rival" else kind


def _means(groups: dict[str, list[Cell]], kinds: Sequence[str]) -> str:
    columns: list[tuple[str, Callable[[Sequence[Cell], str], str]]] = [
        ("accuracy", lambda cells, kind: _mean(cells, kind, "accuracy", 100, 1)),
        ("balanced", lambda cells, kind: _mean(cells, kind, "balanced_accuracy", 100, 1)),
        ("log-loss", lambda cells, kind: _mean(cells, kind, "log_loss", 1, 3)),
        ("average precision", _precision),
        ("calibration error", lambda cells, kind: _mean(cells, kind, "calibration_error", 1, 3)),
    ]
    lines = [
        [name, str(len(cells)), *(" / ".join(shown(cells, kind) for kind in kinds) for _, shown in columns)]
        for name, cells in groups.items()
    ]
    return table(["data", "cells", *(name for name, _ in columns)], lines)


def _values(cells: Sequence[Cell], kind: str, column: str) -> list[float]:
    rows = [cell.of(kind) for cell in cells]
    return [row[column] for row in rows if row is not None and row.get(column) is not None]


def _mean(cells: Sequence[Cell], kind: str, column: str, factor: float, digits: int) -> str:
    values = _values(cells, kind, column)
    return f"{factor * statistics.fmean(values):.{digits}f}" if values else "-"


def _precision(cells: Sequence[Cell], kind: str) -> str:
    if kind != CLEANLAB:
        return _mean(cells, kind, "average_precision", 1, 3)
    found = [row["average_precisions"] for row in (cell.rows[CLEANLAB] for cell in cells)]
    means = [
        statistics.fmean(values)
        for score in (found[0] if found else {})
        if (values := [one[score] for one in found if one[score] is not None])
    ]
    return f"{max(means):.3f}" if means else "-"


def _comparison(groups: dict[str, list[Cell]], kinds: Sequence[str]) -> str:
    def line(name: str, cells: Sequence[Cell]) -> list[str]:
        gaps = [100 * (ours["accuracy"] - best["accuracy"]) for ours, best in _pairs(cells)]
        won, lost = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
        return [
            name,
            f"{won} / {len(gaps) - won - lost} / {lost}" if gaps else "-",
            _with_error(gaps),
            f"{100 * sum(gap < -POINTS for gap in gaps) / len(gaps):.0f} %" if gaps else "-",
            _covered(cells),
            " / ".join(_rate_error(cells, kind) for kind in (OURS, CLEANLAB) if kind in kinds),
            *([_unadjusted(cells)] if compared else []),
        ]

    compared = any("unadjusted" in row for cells in groups.values() for cell in cells if (row := cell.of(OURS)))
    head = [
        "data", "won / same / lost", "points above the best rival", f"more than {POINTS:.0f} points below",
        "intervals that cover the noise rate",
        f"mean error of the rate, in points: {' / '.join(kind for kind in (OURS, CLEANLAB) if kind in kinds)}",
        *(["without adjusted logits: accuracy, balanced (cells)"] if compared else []),
    ]  # fmt: skip
    return table(head, [line(name, cells) for name, cells in groups.items()])


def _with_error(gaps: Sequence[float]) -> str:
    """Return a mean and its standard error, which takes cells for independent."""
    if len(gaps) < 2:
        return f"{gaps[0]:+.1f}" if gaps else "-"
    return f"{statistics.fmean(gaps):+.1f} ± {statistics.stdev(gaps) / len(gaps) ** 0.5:.1f}"


def _unadjusted(cells: Sequence[Cell]) -> str:
    found = [row["unadjusted"] for cell in cells if (row := cell.of(OURS)) and "unadjusted" in row]
    means = [100 * statistics.fmean(one[name] for one in found) for name in ("accuracy", "balanced_accuracy") if found]
    return f"{means[0]:.1f}, {means[1]:.1f} ({len(found)})" if found else "-"


def _pairs(cells: Sequence[Cell]) -> list[tuple[Row, Row]]:
    found = [(cell.of(OURS), cell.of("rival")) for cell in cells]
    return [(ours, best) for ours, best in found if ours is not None and best is not None]


def _covered(cells: Sequence[Cell]) -> str:
    known = [row for cell in cells if (row := cell.of(OURS)) and _ends(row)]
    if not known:
        return "-"
    covering = sum(low <= row["noise_rate"] <= high for row in known for low, high in [_ends(row)])
    width = statistics.fmean(high - low for low, high in map(_ends, known))
    return f"{100 * covering / len(known):.0f} % (mean width {100 * width:.0f} points)"


def _ends(row: Row) -> tuple[float, ...]:
    ends = row.get("noise_rate_interval") or ()
    return tuple(ends) if all(end is not None for end in ends) else ()


def _rate_error(cells: Sequence[Cell], kind: str) -> str:
    rows = [row for cell in cells if (row := cell.of(kind)) and row.get("noise_rate_estimate") is not None]
    errors = [abs(row["noise_rate_estimate"] - row["noise_rate"]) for row in rows]
    return f"{100 * statistics.fmean(errors):.1f}" if errors else "-"


def _seconds(groups: dict[str, list[Cell]], kinds: Sequence[str]) -> str:
    def total(cells: Sequence[Cell], kind: str) -> str:
        found = [
            sum(row["processor_seconds"] for row in (cell.rivals if kind == "rival" else [cell.rows[kind]]))
            for cell in cells
        ]
        return f"{statistics.fmean(found):.1f}"

    head = ["processor seconds a cell", *("all rivals" if kind == "rival" else kind for kind in kinds)]
    return table(head, [[name, *(total(cells, kind) for kind in kinds)] for name, cells in groups.items()])


def _folders(cells: Sequence[Cell]) -> str:
    def line(row: Row) -> list[str]:
        ends = _ends(row)
        rate = row["noise_rate_estimate"]
        return [
            str(row["seed"]),
            f"{100 * row['noise_rate']:.1f} %",
            f"{100 * row['wrong_after']:.1f} %" + (" (refused)" if row["refused"] else ""),
            f"{row['moved']}, {row['moved_rightly']}",
            ("-" if rate is None else f"{100 * rate:.1f} %")
            + (f" ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})" if ends else ""),
            f"{row['processor_seconds']:.1f}",
        ]

    head = ["draw", "wrong before", "wrong after", "moved, rightly", "estimated", "processor seconds"]
    return table(head, [line(cell.first) for cell in cells])


def _all_cells(cells: Sequence[Cell], kinds: Sequence[str]) -> str:
    by_place: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        by_place.setdefault((cell.first["data"], cell.first["noise"]), []).append(cell)

    def line(place: tuple[str, str], found: Sequence[Cell]) -> list[str]:
        chosen = [row["method"] for cell in found if (row := cell.of("rival"))]
        return [
            " ".join(place),
            str(len(found)),
            *(_mean(found, kind, "accuracy", 100, 1) for kind in kinds),
            ", ".join(dict.fromkeys(chosen)),
            " / ".join(_mean(found, kind, "balanced_accuracy", 100, 1) for kind in kinds),
            " / ".join(_mean(found, kind, "log_loss", 1, 2) for kind in kinds),
            " / ".join(_precision(found, kind) for kind in kinds),
            f"{100 * statistics.fmean(cell.first['noise_rate'] for cell in found):.1f}",
            " / ".join(_mean(found, kind, "noise_rate_estimate", 100, 1) for kind in kinds if kind != "rival") or "-",
        ]

    head = [
        "data and noise", "seeds", *map(_name, kinds), "best rivals", "balanced", "log-loss", "average precision",
        "true rate, %", "estimated, %",
    ]  # fmt: skip
    return table(head, [line(place, found) for place, found in by_place.items()])
