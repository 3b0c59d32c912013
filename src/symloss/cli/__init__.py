"""The command line. Heavy imports wait until a command needs them, so that ``--help`` answers at once."""

from symloss.cli.application import app, main

__all__ = ["app", "main"]
