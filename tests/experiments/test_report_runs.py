"""Folders are read as they are: unfinished ones are named, damaged ones refused in one sentence."""

import json
import shutil

from in_turn import in_turn
from refusals import all_refused, refused
from report_helpers import own, result, write_run

from symloss.experiments import read_runs, resolve
from symloss.training import train


def test_real_run_is_read_whole(tmp_path):
    plan = resolve("digits", "sgce", noise="sym:0.4", epochs=2, subset=300)
    train(plan, tmp_path / "deep" / "er" / "run", accelerator="cpu")
    (run,) = read_runs(tmp_path).finished
    assert (run.name, run.settings, run.result.measure) == ("deep/er/run", plan, "test_accuracy")
    assert [row.epoch for row in run.epochs] == [1, 2]
    assert run.class_names == tuple("0123456789")
    assert run.noise[1].shape == (10, 10)
    assert run.result.last.test_accuracy == result(run.folder)["last"]["test_accuracy"]
    assert [each.name for each in read_runs(run.folder).finished] == ["run"], "a run itself is a folder of runs"


def test_unfinished_and_failed_runs_are_kept_and_named_and_equal_settings_count_once(tmp_path):
    write_run(tmp_path / "cut", own(seed=1), 0.5, finished=False)
    write_run(tmp_path / "failed", own(seed=2), 0.5, finished=False)
    write_run(tmp_path / "done", own(seed=3), 0.5)
    for name, reason in (("failed", "the loss became nan"), ("done", "killed before it was done")):
        (tmp_path / name / "failure.json").write_text(json.dumps({"error": reason}))
    write_run(tmp_path / "begun", own(seed=3), 0.5, finished=False)
    shutil.copytree(tmp_path / "done", tmp_path / "later")
    runs = read_runs(tmp_path)
    assert [run.name for run in runs.finished] == ["done"]
    expected = {"cut": "unfinished: 2 of 3 epochs", "failed": "failed: the loss became nan"}
    assert {run.name: run.progress for run in runs.unfinished} == expected
    assert sorted((run.name, other.name) for run, other in runs.repeated) == [("begun", "done"), ("later", "done")]


def test_a_place_without_runs_is_refused(tmp_path):
    nothing = tmp_path / "nothing"
    all_refused(
        (FileNotFoundError, f"RUNS ... {nothing}", lambda: read_runs(nothing)),
        (FileNotFoundError, f"RUNS ... {tmp_path} ... without any run", lambda: read_runs(tmp_path)),
    )


@in_turn(
    "file, content, ingredient",
    [
        ("settings.json", {"format": 99}, "newer version"),
        ("settings.json", {"format": "one"}, "settings"),
        ("settings.json", {"format": 1, "epochs": 0}, "epochs"),
        ("settings.json", {"format": 1, "data": 5}, "data must be a text"),
        ("settings.json", {"format": 1, "test": ["x"]}, "test must be"),
        ("settings.json", {"format": 1, "schedule": 5}, "schedule must be a text"),
        ("settings.json", {"format": 1, "augment": "yes"}, "augment must be one of"),
        ("settings.json", [1], "JSON object"),
        ("result.json", [1], "JSON object"),
        ("result.json", {"best": None}, "must hold best as an object; got None"),
        ("result.json", {"last": {"test_accuracy": 1.5}}, "must hold test_accuracy as a number from 0 to 1"),
        ("result.json", {"last": {"test_accuracy": float("nan")}}, "test_accuracy"),
        ("result.json", {"last": {"test_accuracy": "high"}}, "test_accuracy"),
        ("result.json", {"seconds": "long"}, "seconds"),
        ("result.json", {"versions": 3}, "versions"),
        ("failure.json", "reason", "JSON object"),
        *((file, broken, "JSON") for file in ("settings.json", "result.json") for broken in (b"", b'{"l', b"\xff\xfe")),
    ],
)
def test_damaged_folders_are_refused(tmp_path, file, content, ingredient):
    folder = write_run(tmp_path / "run", own(), 0.5)
    if file == "result.json" and isinstance(content, dict):
        content = json.loads((folder / file).read_text()) | content
    (folder / file).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with refused(ValueError, folder, ingredient):
        read_runs(tmp_path)


def test_damaged_noise_classes_metrics_and_evaluations_are_refused_when_they_are_read(tmp_path):
    folder = write_run(tmp_path / "run", own(), 0.5)
    evaluation = folder / "evaluation-other.json"
    (run,) = read_runs(tmp_path).finished
    assert run.accuracy("other") is None
    evaluation.write_text(json.dumps({"accuracy": 0.25, "examples": 4}))
    assert run.accuracy("other") == 0.25
    square = {"transitions": [[1, 2]], "noisy_sha256": ""}
    for file, content, name, said in (
        ("noise.json", "{}", "noise", "transitions"),
        ("noise.json", json.dumps(square), "noise", "transitions"),
        ("noise.json", json.dumps(square | {"transitions": [[-1]]}), "noise", "transitions"),
        ("data.json", '{"class_names": 10}', "class_names", "class_names as a list of texts or nothing; got 10"),
        ("metrics.jsonl", '{"epoch": 1}\nzzz\n{"epoch": 3}\n', "epochs", "is damaged: line 2 must hold the metrics"),
    ):
        (folder / file).write_text(content)
        (run,) = read_runs(tmp_path).finished
        with refused(ValueError, folder / file, said):
            getattr(run, name)
    evaluation.write_text(json.dumps({"examples": 4}))
    with refused(ValueError, "evaluation-other.json", "accuracy"):
        run.accuracy("other")
