"""accelerate: the plain loop with our losses, exact under gradient accumulation."""

from __future__ import annotations

import pytest

pytest.importorskip("accelerate", reason="accelerate is not installed")

import torch
from accelerate import Accelerator
from conftest import assert_close
from in_turn import in_turn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import symloss

ROWS, CLASSES = 32, 4


def trained(loss, batch, steps, epochs=3):
    """The weights after a training with ``steps`` batches for each update."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(ROWS, 5), torch.randint(CLASSES, (ROWS,)))
    model = nn.Linear(5, CLASSES)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    model, optimizer, loader, loss = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=batch), loss)
    updates = 0
    for _ in range(epochs):
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                accelerator.backward(loss(model(inputs), labels))
                optimizer.step()
                optimizer.zero_grad()
                updates += accelerator.sync_gradients
    return accelerator.unwrap_model(model).weight.detach(), updates


@in_turn("loss", [symloss.CE(), symloss.GCE(q=0.7), symloss.AlphaMAE(alpha=2.0)])
def test_accumulation_changes_nothing(loss):
    """Batches of one size: the mean of their means is the mean."""
    whole, updates = trained(loss, batch=16, steps=1)
    parts, same = trained(loss, batch=4, steps=4)
    assert updates == same == 6
    assert_close(parts, whole, 1e-6)


def test_cross_entropy_is_torch_s():
    theirs, ours, robust = (trained(loss, 4, 2)[0] for loss in (nn.CrossEntropyLoss(), symloss.CE(), symloss.MAE()))
    assert_close(ours, theirs, 1e-6)
    assert (robust - theirs).abs().max() > 0.01
