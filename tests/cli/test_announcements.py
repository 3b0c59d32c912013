"""What commands say before they train."""

import itertools
import sys
import time

import pytest
from data_helpers import random_bytes, save_image
from in_turn import in_turn
from training.training_helpers import small

from symloss.cli import training
from symloss.cli.training import Announcement, opening
from symloss.data import open_data
from symloss.experiments import cost
from symloss.training import train
from symloss.training.run_folder import RunFolder


@pytest.fixture
def photos(tmp_path):
    for name, number in itertools.product(("cats", "dogs"), range(10)):
        pixels = random_bytes(9 + number % 2, 9, 3, seed=number)
        save_image(tmp_path / "photos" / name / f"{number}.png", pixels)
    return tmp_path


QUICK = ("--data", "photos", "--epochs", "2", "--model", "mlp:hidden=4")


@in_turn(
    "words, what",
    [
        (("train",), "photos, alpha-mae"),
        (("compare", "--losses", "ce,mae", "--seeds", "2"), "photos, 4 runs"),
        (("tune", "--losses", "ce", "--vary", "weight_decay=0.1,0.2,0.3"), "photos, 3 runs"),
        (("tune", "--losses", "ce", "--sampler", "random", "--trials", "2", "--seeds", "2"), "photos, 4 runs"),
    ],
)
def test_a_command_says_what_it_takes_before_it_trains(run_command, photos, words, what):
    done = run_command(*words, *QUICK, cwd=photos)
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith(f"{what}: mlp:hidden=4, 2 epochs of 20 examples (3 x 9 x 9): about ")
    assert first.endswith(" s here (a few steps were timed)")
    if words[0] == "compare":
        assert run_command(*words, *QUICK, cwd=photos).stderr == "", "what is done takes no time"


def test_a_size_is_chosen_or_given_and_prediction_follows(run_command, photos):
    done = run_command("train", *QUICK, "--settings", "size=12", "--out", "run", cwd=photos)
    assert "(3 x 12 x 12)" in done.stderr
    assert RunFolder(photos / "run").settings().size == 12
    save_image(photos / "new" / "one.png", random_bytes(50, 70, 3))
    assert len(run_command("predict", "run", "--data", "new", cwd=photos).stdout.splitlines()) == 2
    refusal = run_command("train", "--data", "digits", "--settings", "size=12", "--out", "no", cwd=photos)
    assert refusal.returncode == 2
    assert "size must divide the 8 pixels of digits, as 1, 2, 4, 8 do; got 12" in refusal.stderr
    assert not (photos / "no").exists()


def test_code_of_ones_own_is_not_run_to_be_timed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cost, "build_model", None)
    Announcement([(small(), tmp_path)], open_data("digits"))()
    assert "no time estimate for a model of your own" in capsys.readouterr().err


def test_runs_that_are_done_or_begun_take_less(tmp_path, monkeypatch, capsys):
    runs = [(small(model="mlp:hidden=4", seed=seed), tmp_path / str(seed)) for seed in range(3)]
    monkeypatch.setattr(cost, "_epoch_seconds", lambda settings, data: 100.0 - cost.WRITING)
    train(*runs[0])
    with pytest.raises(SystemExit):
        train(*runs[1], on_epoch=lambda row: sys.exit())
    announcement = Announcement(runs, open_data("digits"))
    announcement()
    announcement()
    what = "digits, 2 runs: mlp:hidden=4, 3 epochs of 400 examples (1 x 8 x 8)"
    assert capsys.readouterr().err == f"{what}: about 8.3 min here (a few steps were timed)\n"


def test_decoding_is_part_of_the_estimate(photos, monkeypatch):
    monkeypatch.setattr(cost, "_epoch_seconds", lambda settings, data: 1.0)
    data, settings = open_data(str(photos / "photos")), small(model="mlp", epochs=10)
    alone, *others = cost.quick_estimates([settings, settings], data)
    assert alone > others[0] == pytest.approx(10 * (1 + cost.WRITING))
    assert cost.quick_estimates([], data) == []


def test_slow_opening_is_announced_and_quick_opening_is_not(monkeypatch, capsys):
    monkeypatch.setattr(training, "PATIENCE", 0.05)
    with opening("photos"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "opening photos\n"
    monkeypatch.setattr(training, "PATIENCE", 60.0)
    with opening("photos"):
        pass
    assert capsys.readouterr().err == ""


def test_steps_are_told_while_an_epoch_goes_on(tmp_path):
    seen, starts = [], []
    settings = small(model="mlp:hidden=4", epochs=2)
    train(settings, tmp_path, on_step=lambda *step: seen.append(step), on_start=lambda: starts.append(len(seen)))
    assert seen == 2 * [(step, 6) for step in range(1, 7)]
    assert starts == [0]
    train(settings, tmp_path, on_start=pytest.fail)
