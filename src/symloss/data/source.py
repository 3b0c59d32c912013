"""Where data comes from: names of published data sets, paths of the user's own, and what to do with bad files.

Nothing here needs torch, so that a wrong path is refused at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from symloss.checks import nearest

TABLES = (".csv", ".tsv", ".parquet")
FILES = (*TABLES, ".npz")


def existing(spec: str) -> Path:
    """The path of the user's own data; what is no path must have been meant as a name."""
    if not spec:  # as a path it would be the current folder
        raise ValueError("data must be a known name or an existing folder or file; got an empty text")
    path = Path(spec)
    if path.exists():
        return _no_pipe(path, "data")
    if path.name != spec or path.suffix in FILES:
        raise FileNotFoundError(f"data must be an existing folder or file, or one of {', '.join(KNOWN)}; got {spec!r}")
    raise ValueError(f"data must be a known name or an existing folder or file; got {spec!r}, {nearest(spec, KNOWN)}")


def existing_test(given: str | Path, train: Path) -> Path:
    """The path of test data, which must be of the same kind as the training data."""
    if given == "":
        raise ValueError("test must be an existing folder or file; got an empty text")
    test = Path(given)
    if not test.exists():
        raise FileNotFoundError(f"test must be an existing folder or file; got {str(test)!r}")
    _no_pipe(test, "test")
    kinds = [("folder" if path.is_dir() else _kind(path)) for path in (train, test)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"test must be of the same kind as the training data, a {kinds[0]}; got a {kinds[1]}, {test}")
    return test


def _no_pipe(path: Path, what: str) -> Path:
    """Pipes and devices would be waited for, and cannot be read twice."""
    if not (path.is_dir() or path.is_file()):
        raise ValueError(f"{what} must be a folder or a file; got a pipe or a device, {str(path)!r}")
    return path


def _kind(path: Path) -> str:
    suffix = path.suffix.lower()
    return "table" if suffix in TABLES else f"{suffix} file"


VOUCHED = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")
"""Data sets whose publishers vouch for the training labels. Those of WebVision were scraped; others are the user's."""
KNOWN = (*VOUCHED, "webvision-mini", "webvision-mini-imagenet")
"""The names of all published data sets, for ``open_data``."""

HINT = "(--skip-bad, or skip_bad=True, leaves such files out)"
"""The end of every message about a bad file."""
ROWS_HINT = "(--skip-bad, or skip_bad=True, leaves such rows out)"


@dataclass(frozen=True)
class BadFiles:
    """Raise an error at the first bad file; or, with ``skip``, report each to ``tell`` and go on."""

    skip: bool = False
    tell: Callable[[Path, str], None] | None = None

    def report(self, path: Path, reason: str) -> None:
        """Leave out a file that is no image, or raise an error if nothing may be skipped."""
        self.leave_out(path, reason, refusal(path, reason))

    def leave_out(self, path: Path, reason: str, error: Exception) -> None:
        """Leave out a file or a part of it, or raise the error if nothing may be skipped."""
        if not self.skip:
            raise error
        if self.tell is not None:
            self.tell(path, reason)


def refusal(path: Path, reason: str) -> ValueError | FileNotFoundError:
    """The error for a file that is no image or does not exist."""
    kind = ValueError if path.exists() else FileNotFoundError
    return kind(f"{path} must be an image that can be read; got {reason} {HINT}")


def warn(path: Path, reason: str) -> None:
    """Warn of a file that was left out. This is the default ``tell``."""
    warnings.warn(f"left out {path}: {reason}", stacklevel=2)
