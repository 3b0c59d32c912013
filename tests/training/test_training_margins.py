"""The margins that training keeps of its examples: against plain Python, and through everything a run goes through."""

import numpy as np
import torch
from in_turn import in_turn
from refusals import refused
from training_helpers import run, small

from symloss.data.batches import Batches
from symloss.training import task as training_task
from symloss.training.margins import margins, read_margins


def by_hand(scores, labels):
    """In plain Python: of each row the margin, and the margin of the row divided by its norm."""
    rows = []
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        margin = row[label] - max(value for k, value in enumerate(row) if k != label)
        norm = sum(value * value for value in row) ** 0.5
        rows.append((margin, margin / norm if norm else 0.0))
    return np.array(rows).T


def test_margins_are_as_by_hand():
    random = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(30, 4, generator=random), torch.randint(4, (30,), generator=random)
    scores[3] = 0.0
    scores[4, labels[4]] = scores[4].max()  # a tie, or the largest
    for given in (scores, scores.bfloat16()):  # half precision is widened first
        found = margins(given, labels)
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found.numpy(), by_hand(given.float(), labels), rtol=1e-6, atol=1e-7)


def linear(input_shape, num_classes):
    """Its scores do not depend on the batch."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(torch.Size(input_shape).numel(), num_classes))


def test_a_run_keeps_the_margins_of_the_raw_scores_of_its_batches(tmp_path):
    """With a step that changes nothing the scores stay those of the start; the loss would divide them by their norm."""
    settings = small("alpha-mae", model="test_training_margins:linear", lr=1e-30, epochs=2)
    run(settings, tmp_path)
    data = training_task.prepare(settings)
    model = training_task.build_model(settings, data.data.input_shape, 10)
    kept = read_margins(tmp_path)
    assert kept.positions.tolist() == data.train.positions.tolist()
    assert kept.epochs == 2
    plain = Batches(data.train, batch=64, scaling=data.data.scaling, shuffle=False, seed=0, device="cpu")
    scores = torch.cat([model(batch.inputs) for batch in plain.epoch(0)]).detach()
    expected = by_hand(scores, data.train.labels)
    np.testing.assert_allclose([kept.margin, kept.unit_margin], expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(kept.margin, kept.unit_margin)


@in_turn(
    "changed, message",
    [({"margin": np.zeros(3, np.float32)}, "(3,)"), ({"epochs": np.zeros(1, np.int64)}, "(1,)"),
     ({"positions": np.zeros(2)}, "float64"), ({"unit_margin": None}, "damaged")],
)  # fmt: skip
def test_a_file_that_holds_something_else_is_refused(tmp_path, changed, message):
    good = {"positions": np.arange(2), "margin": np.zeros(2, np.float32), "unit_margin": np.zeros(2, np.float32)}
    arrays = good | {"epochs": np.array(3)} | changed
    np.savez(tmp_path / "margins.npz", **{name: value for name, value in arrays.items() if value is not None})
    with refused(ValueError, "margins.npz", "must hold", message):
        read_margins(tmp_path)
