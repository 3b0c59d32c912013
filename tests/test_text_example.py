"""The example on wrong labels in text: its data, its noise, and its tables; the documentation's tests run it."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from documentation import ROOT


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("wrong_labels_in_text", ROOT / "examples" / "wrong_labels_in_text.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_messages_are_all_different_and_classes_equally_large(example):
    texts, labels = example.read_messages()
    assert len(set(texts)) == len(texts) == 528
    assert {name: int((labels == name).sum()) for name in set(labels)} == dict.fromkeys(
        ("childcare", "documents", "parking", "streets", "taxes", "waste"), 88
    )


def test_noise_of_somebody_in_a_hurry_mixes_up_what_it_says(example):
    labels = np.repeat(["childcare", "documents", "parking", "streets", "taxes", "waste"], 100)
    noisy = example.noisy_labels(labels, "hasty", seed=0)
    moved = {(a, b): int(((labels == a) & (noisy == b)).sum()) for a in set(labels) for b in set(labels) if a != b}
    assert {pair: count for pair, count in moved.items() if count} == {
        ("parking", "streets"): 40, ("taxes", "documents"): 40, ("childcare", "documents"): 30
    }  # fmt: skip


def test_no_message_is_learned_from_and_tested_on(example):
    labels = np.repeat(["a", "b", "c"], 30)
    rows = np.arange(90.0)[:, None]
    data = example.part(rows, labels, "sym:0.3", seed=1)
    assert set(data.x[:, 0]) | set(data.test[:, 0]) == set(rows[:, 0])
    assert not set(data.x[:, 0]) & set(data.test[:, 0])
    assert np.array_equal(data.test_labels, labels[data.test[:, 0].astype(int)])
    assert (data.noisy != data.clean).sum() == 18


@pytest.mark.slow
def test_tables_know_who_is_better(example, monkeypatch, capsys):
    """Three classes that are far apart: everybody is right about them, and nobody about features without meaning."""
    pytest.importorskip("cleanlab", reason="cleanlab is not installed: pip install 'symloss[cleanlab]'")
    monkeypatch.setattr(example, "NOISES", ("sym:0.3",))
    monkeypatch.setattr(example, "STRENGTHS", {"C": [0.1, 1.0]})
    learners = {name: learner for name, learner in example.LEARNERS.items() if name != "RobustClassifier"}
    monkeypatch.setattr(example, "LEARNERS", learners)
    labels = np.repeat(["a", "b", "c"], 40)
    known = np.repeat(np.eye(3), 40, axis=0) + 0.05 * np.random.default_rng(0).normal(size=(120, 3))
    example.compare(known, labels, seeds=2)
    lines = [
        line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith(("| log", "| Clean"))
    ]
    assert len(lines) == 4
    assert {(line[1], line[3]) for line in lines} == {("100.0 ± 0.0", "1.000 ± 0.000")}
    assert [line[2] for line in lines] == ["-", "+0.0 ± 0.0", "+0.0 ± 0.0", "+0.0 ± 0.0"]
    assert [line[4] for line in lines] == ["-", "-", "100 ± 0", "100 ± 0"]
    assert example.behind([80.0, 90.0], [79.0, 87.0]) == "+2.0 ± 1.0"
    example.compare(np.random.default_rng(1).normal(size=(120, 3)), labels, seeds=2)
    accuracies = [float(line.split(" | ")[1].split()[0]) for line in capsys.readouterr().out.splitlines()
                  if line.startswith(("| log", "| Clean"))]  # fmt: skip
    assert max(accuracies) < 60
