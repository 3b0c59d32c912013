"""Reports of runs: tables of their figures beside the published ones, as Markdown, LaTeX, CSV or one HTML page."""

from collections.abc import Callable

from symloss.report import csv_table, latex, markdown, page
from symloss.report.audit_decisions import corrections
from symloss.report.audit_writing import write_audit
from symloss.report.compose import compose
from symloss.report.document import Report
from symloss.runs import Run, Runs, read_run, read_runs

FORMATS: dict[str, Callable[[Report], str]] = {
    "markdown": markdown.render,
    "latex": latex.render,
    "csv": csv_table.render,
    "html": page.render,
}
"""The function that writes a report in each format."""

__all__ = ["FORMATS", "Report", "Run", "Runs", "compose", "corrections", "read_run", "read_runs", "write_audit"]
