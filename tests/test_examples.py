"""The examples: their data, their noise, and what they say; the documentation's tests run them."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter

import numpy as np
import pytest
from documentation import ROOT


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def long_servedio():
    return loaded("long_servedio")


def test_messages_their_noise_and_their_parts():
    """All are different, somebody in a hurry mixes up what is said, and none is learned from and tested on."""
    example, classes = (
        loaded("wrong_labels_in_text"),
        ("childcare", "documents", "parking", "streets", "taxes", "waste"),
    )
    texts, labels = example.read_messages()
    assert len(set(texts)) == len(texts) == 528
    assert Counter(labels.tolist()) == dict.fromkeys(classes, 88)
    labels = np.repeat(classes, 100)
    noisy = example.noisy_labels(labels, "hasty", seed=0)
    moved = Counter(f"{a} -> {b}" for a, b in zip(labels, noisy, strict=True) if a != b)
    assert moved == {"parking -> streets": 40, "taxes -> documents": 40, "childcare -> documents": 30}
    labels = np.repeat(["a", "b", "c"], 30)
    rows = np.arange(90.0)[:, None]
    data = example.part(rows, labels, "sym:0.3", seed=1)
    assert set(data.x[:, 0]) | set(data.test[:, 0]) == set(rows[:, 0])
    assert not set(data.x[:, 0]) & set(data.test[:, 0])
    assert np.array_equal(data.test_labels, labels[data.test[:, 0].astype(int)])
    assert (data.noisy != data.clean).sum() == 18


@pytest.fixture
def ran(monkeypatch, capsys):
    """What wrong_folders.py prints, with these arguments."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["wrong_folders.py", *map(str, arguments)])
        loaded("wrong_folders").main()
        return capsys.readouterr().out

    return run


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count", "classes"), [("digits", 640, 4), ("shapes", 300, 3)])
def test_it_says_how_many_are_in_a_wrong_folder(ran, tmp_path, kind, count, classes):
    said = ran(tmp_path / "photos", "--kind", kind)
    files = list((tmp_path / "photos").rglob("*.*"))
    wrong = sum(path.name.split(" - ")[0] != path.parent.name for path in files)
    assert said == f"{count} pictures in {tmp_path / 'photos'}, {wrong} of them in a wrong folder\n"
    assert len(files) == count
    assert len({path.parent.name for path in files}) == classes
    assert 0.2 < wrong / count < 0.3


def test_a_list_is_rated(ran, tmp_path):
    (tmp_path / "audit.csv").write_text(
        "index,file,is_label_issue,label_score,given_label,predicted_label\n"
        "0,two/zero - 0.png,True,0.1,two,zero\n"
        "1,two/zero - 1.png,True,0.2,two,three\n"
        "2,two/two - 2.png,True,0.3,two,zero\n"
        "3,zero/two - 3.png,False,0.9,zero,zero\n"
    )
    said = ran("photos", "--check", tmp_path / "audit.csv")
    assert said == "3 flagged, 2 of them wrong, 1 with the right suggestion; 3 are wrong\n"


def test_the_mixture_is_that_of_long_and_servedio(long_servedio):
    x, y = long_servedio.long_servedio(200_000, np.random.default_rng(0))
    g = 1 / 24
    for centre, share in [((1, 0), 1 / 8), ((g, 5 * g), 1 / 8), ((g, -g), 1 / 4)]:
        for sign in (1, -1):
            near = np.linalg.norm(x - sign * np.array(centre), axis=1) < 0.05
            assert near.mean() == pytest.approx(share, abs=0.004)
            assert x[near].std(0) == pytest.approx([0.01, 0.01], abs=5e-4)
    assert (y == np.sign(x[:, 0])).all()
    _, noisy = long_servedio.training_data(long_servedio.PROBLEMS[0], np.random.default_rng(0))
    clean = long_servedio.long_servedio(long_servedio.EXAMPLES, np.random.default_rng(0))[1]
    assert (noisy != clean).mean() == pytest.approx(0.2, abs=0.03)


def test_who_is_right_about_which_problem(long_servedio):
    mixture, clusters, classes = (
        {name: some.mean() for name, some in long_servedio.accuracies(problem, 6).items()}
        for problem in long_servedio.PROBLEMS
    )
    assert mixture["centroid"] > 0.9995
    assert mixture["logistic regression"] < 0.6
    for problem in (clusters, classes):  # separable
        assert problem["logistic regression"] == 1
        assert problem["centroid"] == pytest.approx(0.5, abs=0.02)
    assert clusters["centroid, centred"] == pytest.approx(0.5, abs=0.02)
    assert classes["centroid, centred"] > 0.95


def test_the_command_prints_and_draws(long_servedio, tmp_path, capsys):
    picture = tmp_path / "picture.png"
    long_servedio.main(["--repeats", "1", "--plot", str(picture)])
    assert "Long-Servedio" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    long_servedio.main(["--repeats", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [len(some) for each in found.values() for some in each.values()] == [1] * 9
    with pytest.raises(SystemExit):
        long_servedio.main(["--repeats", "0"])
    assert "--repeats must be at least 1; got 0" in capsys.readouterr().err
