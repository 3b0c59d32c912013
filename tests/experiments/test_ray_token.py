"""A cluster that requires a token: one sentence instead of Ray's own lines."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace

from refusals import refused

from symloss.experiments import ray as on_ray

LINE = b"gcs_client.cc:210: Failed to get cluster ID: InvalidAuthToken: Authentication token is missing or incorrect\n"
SENTENCE = ("The Ray cluster at 'auto' requires an authentication token", "RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN")


class AuthenticationError(Exception):
    """As Ray raises it where token mode is on and no token is found."""


def fake_ray(monkeypatch, init):
    errors = SimpleNamespace(RayError=AuthenticationError)
    ray = SimpleNamespace(is_initialized=lambda: False, init=init, exceptions=errors, shutdown=lambda: None)
    monkeypatch.setattr(on_ray, "_ray", lambda: ray)


def test_a_refused_token_is_one_sentence(monkeypatch, capfd):
    def init(**_):
        for _ in range(20):
            os.write(2, LINE)
        os.write(2, b"something else\n")
        raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379")

    fake_ray(monkeypatch, init)
    with refused(ValueError, *SENTENCE), on_ray._connected("auto"):
        pass
    assert capfd.readouterr().err == "something else\n"
    os.write(2, LINE)
    assert capfd.readouterr().err.encode() == LINE, "standard error is as before"


def test_no_token_is_the_same_sentence_and_other_outcomes_are_as_before(monkeypatch, capfd):
    for error, *said in (
        (AuthenticationError("Token authentication is enabled but no token was found"), *SENTENCE),
        (
            ConnectionError("Failed to connect\nand more"),
            "`ray` must be the address of a running",
            "(Failed to connect)",
        ),
        (None,),
    ):

        def init(error=error, **_):
            os.write(2, b"hello\n")
            if error:
                raise error

        fake_ray(monkeypatch, init)
        with refused(ValueError, *said) if error else contextlib.nullcontext(), on_ray._connected("auto"):
            pass
        assert capfd.readouterr().err == "hello\n"
