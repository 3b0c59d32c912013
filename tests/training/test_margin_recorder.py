"""The recorder of margins: means over visits, resumed, over processes, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from forked_processes import free_port, together
from refusals import all_refused
from torch import distributed

import symloss
from symloss.fit import audit_labels
from symloss.training.margins import margins, read_margins

SIZE = 7


def batches(epochs=2):
    """Batches of 3, 3 and 1 of SIZE examples: index, logits and labels."""
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (SIZE,), generator=random)
    for _ in range(epochs):
        for index in torch.randperm(SIZE, generator=random).split(3):
            yield index, torch.randn(len(index), 4, generator=random), labels[index]


def recorded(given):
    recorder = symloss.MarginRecorder(SIZE)
    for batch in given:
        recorder.add(*batch)
    return recorder


def by_hand(given):
    found = [[] for _ in range(SIZE)]
    for index, logits, labels in given:
        for place, both in zip(index.tolist(), margins(logits, labels).T, strict=True):
            found[place].append(both)
    return np.array([torch.stack(each).mean(0).tolist() for each in found]).T


def test_means_are_over_all_visits():
    recorder = recorded(batches())
    np.testing.assert_allclose([recorder.margin, recorder.unit_margin], by_hand(batches()), rtol=1e-5, atol=1e-7)
    one = recorded([(torch.tensor([2, 2], dtype=torch.int32), torch.eye(2, requires_grad=True), torch.tensor([0, 0]))])
    assert one.seen.tolist() == [False, False, True, *[False] * 4]
    assert (one.margin[2], np.isnan(one.margin).sum()) == (0.0, SIZE - 1)
    assert one.to_frame().to_dict("list") == {"row": [2], "margin": [0.0]}
    worst = recorder.to_frame()
    assert worst.row.tolist() == recorder.margin.argsort().tolist()
    assert (np.diff(worst.margin) >= 0).all()


def test_a_recorder_resumes_where_it_was_written(tmp_path):
    given = list(batches())
    first, second, whole = recorded(given[:2]), symloss.MarginRecorder(SIZE), recorded(given)
    first.end_epoch()
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.add(*given[0])  # which is replaced
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for batch in given[2:]:
        second.add(*batch)
    assert second.epochs == 1
    np.testing.assert_array_equal(second.margin, whole.margin)
    second.save(tmp_path)
    kept = read_margins(tmp_path)
    np.testing.assert_array_equal([kept.margin, kept.unit_margin], [whole.margin, whole.unit_margin])
    assert (kept.positions.tolist(), kept.epochs) == (list(range(SIZE)), 1)


def test_margins_lead_to_the_wrong_labels_in_one_call():
    """A linear layer learns 200 points of which 40 are mislabelled."""
    random = torch.Generator().manual_seed(0)
    true = torch.randint(4, (200,), generator=random)
    points = 4 * torch.eye(8)[true] + torch.randn(200, 8, generator=random)
    noisy = torch.where(torch.arange(200) < 40, (true + 1) % 4, true)
    model, loss, recorder = torch.nn.Linear(8, 4), symloss.AlphaMAE(alpha=2.0), symloss.MarginRecorder(200)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(20):
        for index in torch.randperm(200, generator=random).split(20):
            logits = model(points[index])
            optimizer.zero_grad()
            loss(logits, noisy[index]).backward()
            optimizer.step()
            recorder.add(index, logits, noisy[index])
        recorder.end_epoch()
    audit = audit_labels(noisy, recorder.margin, model(points).softmax(1).detach(), truth=true)
    assert recorder.epochs == 20
    assert audit.average_precision > 0.95
    assert abs(audit.n_wrong - 40) <= 10
    assert audit.right_suggestions > 0.8


def test_wrong_batches_get_one_sentence():
    index, logits, labels = torch.arange(2), torch.eye(2), torch.tensor([0, 1])

    def add(**changed):
        return lambda: symloss.MarginRecorder(3).add(**{"index": index, "logits": logits, "labels": labels} | changed)

    state = symloss.MarginRecorder(4).state_dict()
    all_refused(
        (ValueError, "examples must be a whole number in [1, inf) ... 0", lambda: symloss.MarginRecorder(0)),
        (TypeError, "index, logits and labels must be tensors; got list, Tensor, Tensor", add(index=[0, 1])),
        (ValueError, "index and labels (M,) whole numbers ... index (2,) of torch.float32", add(index=index.float())),
        (ValueError, "index (3,) of torch.int64, logits (2, 2)", add(index=torch.arange(3))),
        (ValueError, "labels (1,) of torch.int64", add(labels=labels[:1])),
        (ValueError, "labels (2, 2) of torch.float32", add(labels=torch.eye(2))),
        (ValueError, "logits must be (M, C) with C > 1 ... logits (2, 1)", add(logits=logits[:, :1])),
        (IndexError, "labels must be 0 to 1 for 2 classes; got -100 to 1", add(labels=torch.tensor([-100, 1]))),
        (IndexError, "index must be 0 to 2 for 3 examples; got 1 to 3", add(index=torch.tensor([1, 3]))),
        (IndexError, "index must be 0 to 2 for 3 examples; got -1 to 0", add(index=torch.tensor([-1, 0]))),
        (ValueError, "examples must be 4 as in", lambda: symloss.MarginRecorder(3).load_state_dict(state)),
    )


def work(rank, answers, port):
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    recorder = recorded(list(batches())[rank::2])
    recorder.end_epoch()
    recorder.end_epoch()  # nothing is counted twice
    answers.put((rank, recorder.margin))
    distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_of_torch_distributed_record_what_one_records():
    for margin in together(work, (free_port(),)).values():
        np.testing.assert_allclose(margin, recorded(batches()).margin, rtol=1e-5)
