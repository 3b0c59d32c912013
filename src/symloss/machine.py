"""What figures were measured on."""

from __future__ import annotations

import functools
import platform
from pathlib import Path


@functools.cache
def processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or None)
