"""The README: short, and its picture and its table are those of the measured rows."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
ROWS = [json.loads(path.read_text()) for path in sorted((ROOT / "docs" / "results" / "fit").rglob("*.json"))]
CELLS = {  # in the order of the README's table: data, noise, the best rival that is not cleanlab
    ("digits", "clean"): "svc",
    ("digits", "sym:0.6"): "svc",
    ("digits", "asym:0.4"): "svc",
    ("table", "pair:0.3"): "forest",
    ("mnist", "asym:0.4"): "gce",
    ("cifar10n", "human:worst"): "gce",
}


def values(cell, method, column):
    return [row[column] for row in ROWS if (row["data"], row["noise"], row["method"]) == (*cell, method)]


def accuracy(cell, method):
    found = [100 * value for value in values(cell, method, "accuracy")]
    return f"{statistics.mean(found):.1f} ± {statistics.stdev(found):.1f}"


def precision(cell, method):
    return f"{statistics.mean(values(cell, method, 'average_precision')):.3f}".lstrip("0")


def test_it_is_short():
    assert len(README.splitlines()) < 120


def test_the_table_is_what_was_measured():
    lines = README[README.index("| data, rows | noise |") :].splitlines()[2 : 2 + len(CELLS)]
    for line, (cell, rival) in zip(lines, CELLS.items(), strict=True):
        shown = [text.strip().replace("**", "") for text in line.strip("|").split("|")][2:]
        assert shown[:2] == [accuracy(cell, "symloss"), accuracy(cell, "cleanlab")], line
        assert shown[2].startswith(accuracy(cell, rival)), line
        others = {row["method"] for row in ROWS if row["data"] == cell[0]} - {"symloss", "cleanlab"}
        assert max(others, key=lambda method: statistics.mean(values(cell, method, "accuracy"))) == rival
        if cell[1] != "clean":
            assert shown[3:] == [precision(cell, "symloss"), precision(cell, "cleanlab")], line


def test_the_picture_is_current(tmp_path):
    pytest.importorskip("matplotlib")
    script = ROOT / "docs" / "figures" / "readme_picture.py"
    subprocess.run([sys.executable, script, tmp_path], check=True, capture_output=True)
    (made,) = tmp_path.iterdir()
    assert f"docs/images/{made.name}" in README
    assert made.read_text() == (ROOT / "docs" / "images" / made.name).read_text(), f"run {script.name} again"
