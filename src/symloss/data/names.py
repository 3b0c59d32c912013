"""The names of the published data sets. Reading them loads no data and no torch."""

from __future__ import annotations

VOUCHED = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")
"""Data sets whose publishers vouch for the training labels. Those of WebVision were scraped; others are the user's."""
KNOWN = (*VOUCHED, "webvision-mini", "webvision-mini-imagenet")
"""The names of all published data sets, for ``open_data``."""
