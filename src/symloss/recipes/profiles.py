"""Profiles shrink the runs of a published table for a small machine. The file is profiles.toml."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

FILE = "profiles.toml"
FULL = "full"
"""The profile that changes nothing."""


@functools.cache
def profiles() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """The settings that each profile changes, by protocol.

    >>> profiles()["mini"]["cifar10"]["subset"], profiles()["full"]
    (5000, {})
    """
    return {FULL: {}} | tomllib.loads(resources.files("symloss.recipes").joinpath(FILE).read_text())
