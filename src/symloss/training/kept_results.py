"""Results in one file, a line for each finished run, so that a table can be carried from machine to machine.

The folder of a run holds megabytes: weights, labels, margins. Its result is a few hundred bytes, and is all that a
table needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from symloss.training.results import Result
from symloss.writing import alone, clear_write_errors, write_whole

SUFFIX = ".jsonl"


def read_kept(path: Path) -> dict[str, Result]:
    """The results in a file, by the key of their settings; none if there is no such file.

    A damaged line is refused in one sentence. Of two results with the same settings the first one counts.
    """
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise ValueError(f"{path} must hold results as JSON, a line each; got bytes that are no text") from None
    results = [_result(line, f"{path}, line {number},") for number, line in enumerate(lines, 1) if line.strip()]
    return {result.settings.key: result for result in reversed(results)}


def _result(line: str, place: str) -> Result:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} must hold a result as JSON; {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{place} must hold a result as a JSON object; got {type(document).__name__}")
    return Result.from_json(document, place)


def require_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before hours are spent on what it is to hold."""
    existing = next(each for each in (path, *path.absolute().parents) if each.exists())
    if path.suffix != SUFFIX or path.is_dir() or not os.access(existing, os.W_OK):
        raise ValueError(f"--keep must be a file that ends in {SUFFIX} and can be written; got {str(path)!r}")


def keep(path: Path, results: Iterable[Result]) -> None:
    """Add results to a file, which is made if need be. A result whose settings are there already is left out.

    Several processes may do so at the same time.

    Args:
        path: the file. It is sorted by data, noise, loss and seed, so that a new result is one new line.
        results: of finished runs.
    """
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path):
        kept = read_kept(path)
        new = {result.settings.key: result for result in results if result.settings.key not in kept}
        if new:
            every = sorted((kept | new).values(), key=_order)
            write_whole(path, "".join(json.dumps(result.to_json()) + "\n" for result in every).encode())


def _order(result: Result) -> tuple[str, ...]:
    settings = result.settings
    return settings.data, settings.profile, settings.noise, settings.loss, f"{settings.seed:010d}", settings.key
