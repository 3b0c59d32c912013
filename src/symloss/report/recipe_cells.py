"""The cells of published tables that a run belongs to."""

from __future__ import annotations

import dataclasses

from symloss.lab.cells import Cell, cells_by_key
from symloss.runs.reading import Run


def cells_of(run: Run) -> tuple[Cell, ...]:
    """The cells whose settings a run has. A table may be run with more seeds than were published: any seed counts."""
    return cells_by_key().get(dataclasses.replace(run.settings, seed=0).key, ())
