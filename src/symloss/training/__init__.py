"""Training on labels that are wrong: settings, one loop, and a folder for each run."""

from symloss.training.plan import resolve
from symloss.training.run import train
from symloss.training.settings import Settings

__all__ = ["Settings", "resolve", "train"]
