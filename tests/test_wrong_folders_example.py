"""examples/wrong_folders.py: pictures of which a known number lies in a wrong folder, and the rating of a list."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "wrong_folders.py"


def ran(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count", "classes"), [("digits", 640, 4), ("shapes", 300, 3)])
def test_it_says_how_many_are_in_a_wrong_folder(tmp_path, kind, count, classes):
    said = ran(tmp_path / "photos", "--kind", kind)
    files = list((tmp_path / "photos").rglob("*.*"))
    wrong = sum(path.name.split(" - ")[0] != path.parent.name for path in files)
    assert said == f"{count} pictures in {tmp_path / 'photos'}, {wrong} of them in a wrong folder\n"
    assert len(files) == count
    assert len({path.parent.name for path in files}) == classes
    assert 0.2 < wrong / count < 0.3


def test_a_list_is_rated(tmp_path):
    (tmp_path / "audit.csv").write_text(
        "index,file,is_label_issue,label_score,given_label,predicted_label\n"
        "0,two/zero - 0.png,True,0.1,two,zero\n"
        "1,two/zero - 1.png,True,0.2,two,three\n"
        "2,two/two - 2.png,True,0.3,two,zero\n"
        "3,zero/two - 3.png,False,0.9,zero,zero\n"
    )
    said = ran("photos", "--check", tmp_path / "audit.csv")
    assert said == "3 flagged, 2 of them wrong, 1 with the right suggestion; 3 are wrong\n"
