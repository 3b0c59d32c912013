"""What becomes of the columns of a table, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from symloss.cli.output import say, visible

if TYPE_CHECKING:
    from symloss.data.columns import Column

NAMED = 3
"""How many columns a remark names. `symloss data show` lists all."""
LISTED = 60
"""In a table with more columns than this, those of plain numbers share one line."""
PLAIN = "numbers"
"""The reason of a column of which there is nothing to say."""


def say_columns(columns: Sequence[Column]) -> None:
    """Say in a line each which columns were left out though nobody asked for it, and which may be ids."""
    from symloss.data.columns import NO_TEXT

    groups = {
        ("left out", False): ("left out", "--keep COLUMN uses one that looks like an id"),
        ("left out", True): ("left out", NO_TEXT),
        ("number", False): ("used as features", "--drop COLUMN leaves one out"),
    }
    for group, (what, hint) in groups.items():
        found = [column for column in columns if column.notable and (column.kind, column.is_free_text) == group]
        if found:
            named = ", ".join(f"{column.name!r} ({column.reason})" for column in found[:NAMED])
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            say(f"{what}: {named}{more}; {hint}", err=True)


def column_lines(columns: Sequence[Column]) -> Iterator[str]:
    """A line for each column: its name, what it becomes, and why."""
    plain = [column for column in columns if column.reason == PLAIN] if len(columns) > LISTED else []
    yield "column\tbecomes\twhy"
    if plain:
        yield f"{len(plain)} columns\tnumber\t{PLAIN}"
    for column in columns:
        if not (plain and column.reason == PLAIN):
            yield "\t".join(map(visible, (column.name, column.kind, column.reason)))
