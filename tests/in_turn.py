"""``in_turn``: like ``pytest.mark.parametrize``, but all values are one case."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def in_turn(names: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with one value after the other, for values that take milliseconds and rarely fail alone.

    A failure says at which value. Several names, separated by commas, take tuples, as those of pytest do.
    """
    split, values = [name.strip() for name in names.split(",")], list(values)
    assert values, f"{names} has no values"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*given: Any, **fixtures: Any) -> None:
            for value in values:
                chosen = dict(zip(split, value if len(split) > 1 else [value], strict=True))
                try:
                    test(*given, **fixtures, **chosen)
                except BaseException as error:
                    error.add_note(f"in turn: {', '.join(f'{name}={each!r}' for name, each in chosen.items())}")
                    raise

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in split]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
