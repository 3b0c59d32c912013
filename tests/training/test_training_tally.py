"""What is counted, against plain Python."""

import pytest
import torch
from lightning_fabric import Fabric

from symloss.training.loop import Tally


@pytest.fixture
def tally():
    return Tally(Fabric(accelerator="cpu", devices=1))


def drawn(size, seed):
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, 4, generator=random)
    labels, clean = torch.randint(4, (2, size), generator=random)
    return scores, labels, clean


def test_everything_is_as_counted_by_hand(tally):
    hits = right = wrong = learned = total = 0
    loss = 0.0
    for seed, size in enumerate((30, 30, 7, 0)):
        scores, labels, clean = drawn(size, seed)
        tally.add(scores, labels, clean)
        tally.add_loss(torch.tensor(0.5 + seed), size)
        loss, total = loss + (0.5 + seed) * size, total + size
        for row, label, true in zip(scores.tolist(), labels.tolist(), clean.tolist(), strict=True):
            found = row.index(max(row))
            hits += found == label
            right += found == true
            wrong += label != true
            learned += label != true and found == label
    assert 0 < learned < wrong < total
    expected = {
        "loss": loss / total,
        "train_accuracy": hits / total,
        "clean_accuracy": right / total,
        "memorised": learned / wrong,
    }
    counted = tally.row(1, 0.1).to_json()
    assert {name: counted[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_without_true_labels_nothing_is_said_of_them(tally):
    scores, labels, _ = drawn(20, 0)
    tally.add(scores, labels, None)
    row = tally.row(1, 0.1)
    assert row.clean_accuracy is None
    assert row.memorised is None
    assert row.train_accuracy == pytest.approx(float((scores.argmax(1) == labels).float().mean()))
    tally.add(scores, labels, labels)
    assert tally.row(1, 0.1).memorised is None, "no label is wrong"
