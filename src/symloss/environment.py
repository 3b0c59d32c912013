"""What a run or a figure was made with: software, its commit, and the machine."""

from __future__ import annotations

import functools
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from symloss import __version__


def versions() -> dict[str, Any]:
    """Of the software, its commit, the threads in use and the machine, as every run keeps them."""
    import torch  # noqa: PLC0415  (whoever only reads runs needs no torch)

    return {
        "symloss": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "processor": processor(),
    }


def hardware_and_versions(*packages: str) -> dict[str, Any]:
    """For benchmarks: what their figures must name, with the versions of these packages besides."""
    import torch  # noqa: PLC0415

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": processor() or "unknown",
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        **{package: metadata.version(package) for package in packages},
    }


@functools.cache
def processor() -> str | None:
    """The name of the processor; None where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or None)


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
