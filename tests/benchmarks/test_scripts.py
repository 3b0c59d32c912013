"""What holds for all benchmarks: their help, the examples in their docstrings, and what they share."""

import doctest
import importlib
from pathlib import Path

import measure
import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
WITH_EXAMPLES = [path.stem for path in SCRIPTS if "    >>> " in path.read_text()]


@pytest.mark.slow
def test_every_script_has_help(warm_python):
    for script in SCRIPTS:
        if '__name__ == "__main__"' in script.read_text():
            shown = warm_python.run([script, "--help"])
            assert shown.returncode == 0, f"{script.name}: {shown.stderr}"
            assert shown.stdout.startswith("usage: "), script.name
            assert "Traceback" not in shown.stderr, script.name


def test_examples_in_docstrings():
    for name in WITH_EXAMPLES:
        ran = doctest.testmod(importlib.import_module(name))
        assert ran.attempted, name
        assert not ran.failed, name


def test_missed_targets_are_named(capsys):
    measure.judge([])
    assert capsys.readouterr().err == "all targets met\n"
    with pytest.raises(SystemExit, match="1"):
        measure.judge(["too slow"])
    assert capsys.readouterr().err == "missed: too slow\n1 targets missed\n"


def test_an_error_in_a_process_of_its_own_is_raised_here():
    with pytest.raises(ValueError, match="invalid literal"):
        measure.in_own_process(int, "one")
