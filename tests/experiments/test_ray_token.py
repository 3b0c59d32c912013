"""A cluster that requires a token: one sentence instead of Ray's own lines."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
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


def test_no_token_is_the_same_sentence(monkeypatch):
    def init(**_):
        raise AuthenticationError("Token authentication is enabled but no authentication token was found")

    fake_ray(monkeypatch, init)
    with refused(ValueError, *SENTENCE), on_ray._connected("auto"):
        pass


@pytest.mark.parametrize("error", [None, ConnectionError("Failed to connect\nand more")])
def test_other_outcomes_are_as_before(monkeypatch, capfd, error):
    def init(**_):
        os.write(2, b"hello\n")
        if error:
            raise error

    fake_ray(monkeypatch, init)
    if error is None:
        with on_ray._connected("auto"):
            pass
    else:
        with refused(ValueError, "`ray` must be the address of a running cluster", "(Failed to connect)"):
            on_ray._connected("auto").__enter__()
    assert capfd.readouterr().err == "hello\n"
