"""The names of run folders: readable, and different for different settings."""

from __future__ import annotations

from pathlib import Path

from symloss.losses.spec import parse
from symloss.training.settings import Settings, displayed_noise

LONGEST = 60
"""Characters of a composed loss in the name of a folder. The key tells longer ones apart."""


def run_path(runs: Path, settings: Settings) -> Path:
    """The folder of a run below ``runs``, whether it exists or not.

    Version 0.1 wrote "clean" for labels of unknown quality. A folder that still has that name is used.
    """
    folder, old_folder = (runs / _name(settings, noise) for noise in (_noise(settings), settings.noise))
    return old_folder if old_folder.exists() and not folder.exists() else folder


def folder_name(settings: Settings) -> str:
    """The name of a run's folder. No two settings share one.

    >>> folder_name(Settings(noise="sym:0.4", loss="sgce:q=0.8"))
    'digits-sym_0.4-sgce-seed0-4507cc6eba60'
    """
    return _name(settings, _noise(settings))


def _noise(settings: Settings) -> str:
    return displayed_noise(settings.data, settings.noise).replace(" ", "-")


def _name(settings: Settings, noise: str) -> str:
    parts = (Path(settings.data).stem, noise, parse(settings.loss)[0][:LONGEST], f"seed{settings.seed}")
    readable = "-".join("".join(c if c.isalnum() or c in ".+-" else "_" for c in part) for part in parts)
    return f"{readable}-{settings.key}"
