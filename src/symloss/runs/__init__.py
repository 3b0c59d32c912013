"""What a run leaves on disk: settings, metrics of every epoch, the result. Reading it needs no torch."""

from symloss.runs.reading import Run, Runs, read_run, read_runs
from symloss.runs.result import EpochRow, Result
from symloss.runs.run_folder import RunFolder
from symloss.runs.settings import Settings

__all__ = ["EpochRow", "Result", "Run", "RunFolder", "Runs", "Settings", "read_run", "read_runs"]
