"""A pytest plugin of `mutants.py`: notes what tests do, and chooses and orders them.

In `reach`, mutated statements of the package call it. It imports nothing that a test could look for.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

SEEN: set[tuple[str, str]] = set()


def note(**row: object) -> None:
    """Add a row to the log."""
    if "MUTANT_LOG" in os.environ:
        with open(os.environ["MUTANT_LOG"], "a") as log:
            log.write(json.dumps(row) + "\n")


def hit(mutant: str) -> None:
    """Note that the running test has come to a mutant's statement, also in another process."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test and (mutant, test) not in SEEN:
        SEEN.add((mutant, test))
        note(mutant=mutant, test=test)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the tests that are asked for, in their order."""
    if "MUTANT_TESTS" in os.environ:
        with open(os.environ["MUTANT_TESTS"]) as file:
            order = {test: rank for rank, test in enumerate(json.load(file))}
        wanted = (item for item in session.items if item.nodeid in order)
        session.items[:] = sorted(wanted, key=lambda item: order[item.nodeid])
        session.testscollected = len(session.items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test ended."""
    if report.when == "call" or report.failed:
        note(test=report.nodeid, outcome=report.outcome, seconds=round(report.duration, 3))
