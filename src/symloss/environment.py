"""What a command finds on this machine: the software and its commit, the hardware, the folder of published data."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from symloss import __version__


def versions() -> dict[str, Any]:
    """Versions of the software, the commit, the number of threads and the machine, as every run saves them."""
    import torch  # noqa: PLC0415  (reading runs needs no torch)

    return {
        "symloss": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "processor": processor(),
    }


def data_root() -> Path:
    """Return the folder of published data sets: ``$SYMLOSS_DATA``, or ~/.cache/symloss/data."""
    chosen = os.environ.get("SYMLOSS_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "symloss" / "data"


@functools.cache
def processor() -> str | None:
    """Return the name of the processor; None if the system does not tell it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or None)


@functools.cache
def _commit() -> str | None:
    """Return the commit of this checkout, with "-dirty" if files were changed; None outside of a checkout."""
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
