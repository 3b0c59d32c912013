"""The margins that training keeps of its examples: against plain Python, and through everything a run goes through."""

import signal

import numpy as np
import torch
from in_turn import in_turn
from lightning_fabric import Fabric
from refusals import refused
from training_helpers import exit_code, killed_at, run, small

from symloss.data.batches import Batches
from symloss.noise.margins import margins
from symloss.training import task as training_task
from symloss.training.checkpoint import packed
from symloss.training.margins import MarginSums, read_margins

SIZE = 360
"""Training examples of ``small``."""


def by_hand(scores, labels):
    """In plain Python: of each row the margin, and the margin of the row divided by its norm."""
    rows = []
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        margin = row[label] - max(value for k, value in enumerate(row) if k != label)
        norm = sum(value * value for value in row) ** 0.5
        rows.append((margin, margin / norm if norm else 0.0))
    return np.array(rows).T


def drawn(seed, size=30, classes=4):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(size, classes, generator=random), torch.randint(classes, (size,), generator=random)


def test_margins_are_as_by_hand():
    scores, labels = drawn(0)
    scores[3] = 0.0
    scores[4, labels[4]] = scores[4].max()  # a tie, or the largest
    for given in (scores, scores.bfloat16()):  # half precision is widened first
        found = margins(given, labels)
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found.numpy(), by_hand(given.float(), labels), rtol=1e-6, atol=1e-7)


def test_sums_are_of_epochs_in_any_order_of_examples():
    sums, expected = MarginSums(30, Fabric(accelerator="cpu", devices=1)), np.zeros((2, 30))
    for epoch in range(3):
        scores, labels = drawn(epoch)
        order = torch.randperm(30, generator=torch.Generator().manual_seed(epoch))
        for index in (order[:20], order[20:], order[:0]):
            sums.add(index, scores[index], labels[index])
        sums.end_epoch()
        expected += by_hand(scores, labels)
    means = sums.means(None)
    assert means.epochs == 3
    assert means.positions.tolist() == list(range(30))
    np.testing.assert_allclose([means.margin, means.unit_margin], expected / 3, rtol=1e-5, atol=1e-6)


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


def test_wrong_labels_have_the_smaller_margins(tmp_path):
    settings = small("alpha-mae", model="mlp", epochs=8, lr=0.2)
    run(settings, tmp_path)
    data, kept = training_task.prepare(settings), read_margins(tmp_path)
    wrong = (data.train.labels != data.clean).numpy()
    for margin in (kept.margin, kept.unit_margin):
        assert np.mean(margin[wrong][:, None] < margin[~wrong]) > 0.9


def test_a_run_that_was_killed_has_the_same_margins(tmp_path):
    run(small(), tmp_path / "whole")
    for moment in (("checkpoint.pt.new", 2), ("margins.npz", 1), ("result.json", 1)):
        folder = tmp_path / moment[0]
        assert exit_code(killed_at, *moment, small(), folder) == -signal.SIGKILL
        run(small(), folder)
        assert (folder / "margins.npz").read_bytes() == (tmp_path / "whole" / "margins.npz").read_bytes()


def test_sums_of_other_examples_do_not_fit(tmp_path):
    assert exit_code(killed_at, "checkpoint.pt.new", 3, small(), tmp_path) == -signal.SIGKILL
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    state["margins"]["sums"] = torch.zeros(2, SIZE + 1)
    (tmp_path / "checkpoint.pt").write_bytes(packed(state))
    with refused(ValueError, "must fit the model", f"margins of shape (2, {SIZE + 1}) for (2, {SIZE})"):
        run(small(), tmp_path)


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
