"""The run that the tests of training compare with."""

import pytest
from training_helpers import run, small


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(small(), folder)
    return folder
