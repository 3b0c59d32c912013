"""Bad input gets one sentence: how every test looks at it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

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
