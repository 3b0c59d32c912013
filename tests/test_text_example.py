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
