"""``in_turn``: like ``pytest.mark.parametrize``, but all values are one case."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

Test = Callable[..., None]
MOST_SHOWN = 20


def in_turn(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with one value after the other, for values that take milliseconds and rarely fail alone.

    Every value is tried, and the error says at which ones the test failed. Several names, in a tuple or separated by
    commas, take tuples, as those of pytest do. Each value has for itself the same random numbers, ``monkeypatch`` and
    ``tmp_path``.
    """
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = list(values)
    assert values, f"{names} has no values"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*given: Any, **fixtures: Any) -> None:
            failed: list[tuple[str, BaseException]] = []
            for number, value in enumerate(values):
                chosen = dict(zip(split, value if len(split) > 1 else [value], strict=True))
                own = dict(fixtures)
                if "tmp_path" in own:
                    own["tmp_path"] = fixtures["tmp_path"] / str(number)
                    own["tmp_path"].mkdir()
                torch.manual_seed(0)
                with pytest.MonkeyPatch.context() as patch:
                    if "monkeypatch" in own:
                        own["monkeypatch"] = patch
                    try:
                        test(*given, **own, **chosen)
                    except (Exception, pytest.fail.Exception) as error:
                        failed.append((", ".join(f"{name}={repr(each)[:200]}" for name, each in chosen.items()), error))
            if failed:
                error = failed[0][1]
                error.add_note(f"in turn, {len(failed)} of {len(values)} failed; this is the first of:")
                for where, _ in failed[:MOST_SHOWN]:
                    error.add_note(f"  {where}")
                raise error

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in split]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
