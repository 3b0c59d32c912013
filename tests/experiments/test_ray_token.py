"""A cluster that requires a token: one sentence instead of Ray's own lines."""

import contextlib
import os
import sys
from types import SimpleNamespace

from refusals import refused

from symloss.experiments import ray as on_ray

LINE = b"gcs_client.cc:210: Failed to get cluster ID: InvalidAuthToken: Authentication token is missing or incorrect\n"
SENTENCE = ("The Ray cluster at 'auto' requires an authentication token", "RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN")


class AuthenticationError(Exception):
    """As Ray raises it where token mode is on and no token is found."""


def test_a_missing_or_refused_token_is_one_sentence_and_other_outcomes_are_as_before(monkeypatch, capfd):
    no_token = AuthenticationError("Token authentication is enabled but no token was found")
    for error, lines, *said in (
        (ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379"), 20, *SENTENCE),
        (no_token, 0, *SENTENCE),
        (ConnectionError("Failed\nand more"), 0, "`ray` must be the address of a running cluster", "(Failed)"),
        (None, 0),
    ):

        def init(error=error, lines=lines, **_):
            os.write(2, lines * LINE + b"hello\n")
            if error:
                raise error

        errors = SimpleNamespace(RayError=AuthenticationError)
        ray = SimpleNamespace(is_initialized=lambda: False, init=init, exceptions=errors, shutdown=lambda: None)
        monkeypatch.setitem(sys.modules, "ray", ray)
        with refused(ValueError, *said) if error else contextlib.nullcontext(), on_ray._connected("auto"):
            pass
        assert capfd.readouterr().err == "hello\n"
        os.write(2, LINE)
        assert capfd.readouterr().err.encode() == LINE, "standard error is as before"
