"""Training on labels that are wrong: one loop, which writes a folder for each run."""

from symloss.runs.settings import Settings
from symloss.training.plan import resolve
from symloss.training.run import train

__all__ = ["Settings", "resolve", "train"]
