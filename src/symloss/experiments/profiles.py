"""Profiles shrink the runs of a published table for a small machine. The file is profiles.toml."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

FILE = "experiments/recipes/profiles.toml"
FULL = "full"
"""The profile that changes nothing."""


@functools.cache
def profiles() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """The settings that each profile changes, by protocol.

    >>> profiles()["scale16"]["cifar10"]["subset"], profiles()["full"]
    (10000, {})
    """
    return {FULL: {}} | tomllib.loads(resources.files("symloss").joinpath(FILE).read_text())


def changes(profile: str, protocol: str) -> Mapping[str, Any] | None:
    """The settings that a profile changes in a protocol; None if it has no form of this protocol.

    >>> changes("full", "cifar10"), changes("mini", "cifar10")
    ({}, None)
    """
    return {} if profile == FULL else profiles()[profile].get(protocol)
