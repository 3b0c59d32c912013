"""A command opens its data once, however many runs it trains on it."""

from in_turn import in_turn
from typer.testing import CliRunner

from symloss.cli import app
from symloss.data import opening


@in_turn(
    "words",
    ["train --loss ce", "compare --losses ce,mae --seeds 2", "tune --losses ce --vary lr=0.1,0.2 --seeds 1"],
)
def test_a_command_opens_the_users_data_once(tmp_path, monkeypatch, words):
    rows = "".join(f"{number % 7},{number % 5},{'ab'[number % 2]}\n" for number in range(40))
    (tmp_path / "mine.csv").write_text("x,y,label\n" + rows)
    times, open_own = [], opening._open_own
    monkeypatch.setattr(opening, "_open_own", lambda *arguments: times.append(arguments) or open_own(*arguments))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*words.split(), "--data", "mine.csv", "--epochs", "1"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert len(times) == 1
