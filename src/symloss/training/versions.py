"""What a run was made with: software, its commit, and the machine."""

from __future__ import annotations

import functools
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from symloss import __version__
from symloss.machine import processor


def versions() -> dict[str, Any]:
    return {
        "symloss": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "processor": processor(),
    }


@functools.cache
def _commit() -> str | None:
    """Of the checkout that this runs from, "-dirty" if it was changed; None where it was installed from elsewhere."""
    here = Path(__file__)
    # An environment inside somebody else's checkout has a commit too, but not ours.
    ours = _git(here.parent, "ls-files", "--error-unmatch", here.name)
    return _git(here.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") if ours else None


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
