"""The ranking of the points that a search tried, a remark on how sure it is, and the best points as TOML."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from symloss.losses.spec import parse

TriedPoint = dict[str, Any]
"""``settings``, ``validation`` (mean and std), ``seeds``, ``held_out`` (examples of each seed), ``final``."""


def ranked(rows: Sequence[TriedPoint]) -> list[TriedPoint]:
    """The points, the best first. Finalists, which have more seeds, come before all others."""
    return sorted(rows, key=lambda row: (not row["final"], -row["validation"]["mean"]))


def standard_error(row: TriedPoint) -> float:
    """The standard error of a mean accuracy.

    It is that of the seeds, but at least sqrt(p (1 - p) / n), the standard error of an accuracy p on n examples. One
    seed has no spread, and a few may agree by chance.

    >>> round(standard_error({"validation": {"mean": 0.2, "std": None}, "seeds": 1, "held_out": 100}), 6)
    0.04
    """
    mean, std = row["validation"]["mean"], row["validation"]["std"]
    counting = math.sqrt(mean * (1 - mean) / (row["held_out"] * row["seeds"]))
    return max(counting, 0.0 if std is None else std / math.sqrt(row["seeds"]))


def leaders(rows: Sequence[TriedPoint]) -> int:
    """The number of ranked points that are within one standard error of the first one. It is at least 1."""
    best = rows[0]
    count = 1
    for row in rows[1:]:
        lead = best["validation"]["mean"] - row["validation"]["mean"]
        if row["final"] != best["final"] or lead > math.hypot(standard_error(best), standard_error(row)):
            break
        count += 1
    return count


def remark(rows: Sequence[TriedPoint]) -> str:
    """A sentence that says whether the first of the ranked points is better than the others beyond chance."""
    if len(rows) == 1:
        return "Only one point was tried: there was nothing to choose."
    several, percent = leaders(rows), 100 * standard_error(rows[0])
    if several == 1:
        return f"The first leads by more than one standard error (its own is {percent:.2f})."
    return (
        f"The first {several} are within one standard error of the first (its own is {percent:.2f}): this search "
        "cannot tell them apart; more --seeds can, or --final-seeds for the --finalists."
    )


def as_toml(data: str, rows: Sequence[TriedPoint]) -> Iterator[str]:
    """The best point of each loss as lines of protocols.toml, each with a comment on its figures."""
    yield f"[{_quoted(data)}.losses]"
    by_loss: dict[str, list[TriedPoint]] = {}
    for row in ranked(rows):
        by_loss.setdefault(parse(row["settings"]["loss"])[0], []).append(row)
    for name, (best, *others) in by_loss.items():
        settings = best["settings"]
        inner = ", ".join(f"{key} = {_quoted(value)}" for key, value in parse(settings["loss"])[1].items())
        loss = f", loss = {{ {inner} }}" if inner else ""
        comment = (
            f"# validation {best['validation']['mean']:.4f} of {best['seeds']} seed{'s' if best['seeds'] > 1 else ''}"
        )
        comment += f", next {others[0]['validation']['mean']:.4f}, of {len(others) + 1} settings" if others else ""
        values = f"lr = {settings['lr']!r}, weight_decay = {settings['weight_decay']!r}{loss}"
        yield f"{_quoted(name)} = {{ {values} }}  {comment}"


def _quoted(value: object) -> str:
    """A value as TOML. TOML has no None; the text "None" is read as one in a loss."""
    return str(value) if isinstance(value, (int, float)) else json.dumps(str(value), ensure_ascii=False)
