"""The points that a search tried, the best first; which of them cannot be told apart; the best as lines of TOML."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from symloss.losses.spec import parse

TriedPoint = dict[str, Any]
"""``settings``, ``validation`` (mean and std), ``seeds``, ``held_out`` (examples of each seed), ``final``."""


def ranked(rows: Sequence[TriedPoint]) -> list[TriedPoint]:
    """The best first. Points that were run again with more seeds come before all others."""
    return sorted(rows, key=lambda row: (not row["final"], -row["validation"]["mean"]))


def standard_error(row: TriedPoint) -> float:
    """The standard error of the mean accuracy: that of the seeds, but no less than the held-out examples allow.

    One seed has no spread, and a few may agree by chance. The accuracy p of n examples has a standard error of
    sqrt(p (1 - p) / n) in any case.

    >>> round(standard_error({"validation": {"mean": 0.2, "std": None}, "seeds": 1, "held_out": 100}), 6)
    0.04
    """
    mean, std = row["validation"]["mean"], row["validation"]["std"]
    counting = math.sqrt(mean * (1 - mean) / (row["held_out"] * row["seeds"]))
    return max(counting, 0.0 if std is None else std / math.sqrt(row["seeds"]))


def leaders(rows: Sequence[TriedPoint]) -> int:
    """How many of the ranked points are as good as the first: within one standard error of the difference."""
    best = rows[0]
    found = 1
    for row in rows[1:]:
        lead = best["validation"]["mean"] - row["validation"]["mean"]
        if row["final"] != best["final"] or lead > math.hypot(standard_error(best), standard_error(row)):
            break
        found += 1
    return found


def remark(rows: Sequence[TriedPoint]) -> str:
    """One sentence that says whether the first of the ranked points really leads."""
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
    """The best of each loss as lines of protocols.toml, with what it beat."""
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
        found = f"lr = {settings['lr']!r}, weight_decay = {settings['weight_decay']!r}{loss}"
        yield f"{_quoted(name)} = {{ {found} }}  {comment}"


def _quoted(value: object) -> str:
    """As TOML has it; there is no None, but "None" is read as one in a loss."""
    return str(value) if isinstance(value, (int, float)) else json.dumps(str(value), ensure_ascii=False)
