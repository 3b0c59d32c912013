"""Progress of ``train`` and ``fit``: one live line on a terminal, plain lines elsewhere."""

import numpy as np
import pytest
from rich.progress import Progress

from symloss.cli.output import LiveProgress, show_progress
from symloss.fit import RobustClassifier
from symloss.training.progress import ProgressLines, shown_by

TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "160"}


@pytest.fixture
def stderr_of(monkeypatch, capsys):
    """What a block of steps writes to stderr, in an environment that rich looks at."""

    def written(environment, *, quiet=False):
        for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with show_progress(quiet=quiet) as progress:
            progress.phase("looking at the rows")
            for done in (1, 2, 3):
                progress.step("trying learners", done, 3, f"svc\x1b[2J leads with {done}0 %")
        shown = capsys.readouterr()
        assert shown.out == ""
        return type(progress), shown.err

    return written


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_has_one_live_line_which_disappears(stderr_of, quiet):
    kind, shown = stderr_of(TERMINAL, quiet=quiet)
    assert kind is LiveProgress
    assert all(part in shown for part in ("trying learners", "3/3", "leads with 30 %", "0:00:00"))  # the last is left
    assert "[symloss]" not in shown
    assert "\x1b[2J leads" not in shown  # a name cannot steer the terminal
    assert shown.endswith("\x1b[2K")  # nothing is left of the line


@pytest.mark.parametrize("environment", [{}, TERMINAL | {"NO_COLOR": "1"}, TERMINAL | {"TERM": "dumb"}])
def test_files_and_terminals_without_colours_get_plain_lines(stderr_of, environment):
    kind, shown = stderr_of(environment)
    assert kind is ProgressLines
    assert [line.partition(": ")[0] for line in shown.splitlines()] == [
        "[symloss] looking at the rows",
        "[symloss] trying learners 1/3",  # the second is too recent
        "[symloss] trying learners 3/3",
    ]
    assert stderr_of(environment, quiet=True) == (ProgressLines, "")


def test_a_bar_moves_inside_a_step_and_starts_again_with_other_steps():
    progress = Progress(disable=True)
    live = LiveProgress(progress)
    seen = []
    for epoch in (0, 1):
        live.step("epoch", epoch, 3)
        for step in (1, 4):
            live.last = 0.0
            live.inside(step, 4)
            live.inside(2, 4)  # too soon to be shown
            seen.append(progress.tasks[0].completed)
    assert seen == [0.25, 0.999, 1.25, 1.999]
    live.step("other steps", 1, 7)
    assert (progress.tasks[0].completed, progress.tasks[0].total) == (1, 7)


def test_a_fit_tells_the_one_who_shows_it(capsys):
    """The best of all that was tried, and every phase; by lines of its own if it is verbose, and nobody else shows."""
    labels = np.arange(60) % 2
    features = 3 * labels[:, None] + np.random.default_rng(0).normal(size=(60, 2))
    phases, steps, listener = [], [], ProgressLines()
    listener.phase = phases.append
    listener.step = lambda what, done, total, status="": steps.append((what, done, total, status))
    model = RobustClassifier(learners=["closed-form", "network"], losses=["ce"], budget=1)
    with shown_by(listener):
        model.fit(features, labels)
    assert phases[0] == "fitting 60 rows takes up to about 1 s of one core"
    assert phases[-1] == "fitting the model to all rows"
    assert {what for what, *_ in steps} >= {"trying learners", "trying 2 networks, epoch", "fitting the leaders again"}
    assert all(0 < done <= total for _, done, total, _ in steps)
    scores = [float(status.split(" leads with ")[1].split()[0]) for *_, status in steps if status]
    assert scores == sorted(scores)
    assert capsys.readouterr().err == ""
    model.set_params(verbose=1).fit(features, labels)
    lines = capsys.readouterr().err.splitlines()
    assert "leads with" in lines[1]
    assert len(set(lines)) == len(lines)
