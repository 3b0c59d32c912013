"""Experiments: recipes of published tables, sweeps and searches over many runs, and reports of their figures."""

from __future__ import annotations

from collections.abc import Callable

from symloss.experiments import formats, page
from symloss.experiments.cells import Cell, find_cell, plan
from symloss.experiments.layers import resolve
from symloss.experiments.report import Report
from symloss.experiments.sections import compose
from symloss.experiments.tables import Published, PublishedTable, list_tables, load_table
from symloss.training.reading import Run, Runs, read_run, read_runs

FORMATS: dict[str, Callable[[Report], str]] = {
    "markdown": formats.markdown,
    "latex": formats.latex,
    "csv": formats.csv_table,
    "html": page.render,
}
"""The function that writes a report in each format."""

__all__ = [
    "FORMATS",
    "Cell",
    "Published",
    "PublishedTable",
    "Report",
    "Run",
    "Runs",
    "compose",
    "find_cell",
    "list_tables",
    "load_table",
    "plan",
    "read_run",
    "read_runs",
    "resolve",
]
