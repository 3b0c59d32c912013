"""The command line. Commands import torch and other large packages only when they run, so that ``--help`` is quick."""

from symloss.cli.application import app, main

__all__ = ["app", "main"]
