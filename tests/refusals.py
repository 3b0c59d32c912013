"""Bad input gets one sentence: how every test looks at it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

import pytest


@contextlib.contextmanager
def refused(exception: type[Exception], *ingredients: object) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The exception, and a message of one line that holds every ingredient: argument, given, allowed."""
    everything = "".join(f"(?=.*{re.escape(str(ingredient))})" for ingredient in ingredients)
    with pytest.raises(exception, match=f"(?s)^{everything}") as caught:
        yield caught
    assert type(caught.value) is exception
    message = str(caught.value)
    assert "\n" not in message
    assert message == message.strip()


def all_refused(*cases: tuple[type[Exception], str, Callable[[], object]]) -> None:
    """Each call of a table is refused, with the ingredients of its message between " ... "."""
    for exception, ingredients, call in cases:
        try:
            with refused(exception, *ingredients.split(" ... ")):
                call()
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"the case of {ingredients}")
            raise
