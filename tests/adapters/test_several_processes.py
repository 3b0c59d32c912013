"""Trainers in two processes move the weights as one does, though the processes hold different numbers of labels."""

from __future__ import annotations

import os
import socket

import pytest
import torch
from forked_processes import together

pytest.importorskip("trl", reason="trl is not installed")

ROWS = 8
TRAINERS = ("Trainer", "CausalTrainer", "SFTTrainer")


def step(name, folder, batch):
    """How far an update of all rows moves the weights."""
    import transformers  # noqa: PLC0415
    from language_models import arguments, causal, moved_by, rows_of, texts  # noqa: PLC0415
    from test_trl import trainer  # noqa: PLC0415

    from symloss.adapters import hf, hf_causal  # noqa: PLC0415

    if name == "SFTTrainer":
        options = {"per_device_train_batch_size": batch}
        return moved_by(trainer(folder, options=options, loss="gce", kl_anchor=0.1))
    ids, labels = texts(ROWS)
    labels[: ROWS // 2, 2:-1] = -100  # so that a mean of means is not the mean
    options, rows = arguments(folder, batch=batch), rows_of(ids, labels)
    if name == "Trainer":
        return moved_by(transformers.Trainer(causal(), options, train_dataset=rows, compute_loss_func=hf.loss("gce")))
    return moved_by(hf_causal.CausalTrainer(causal(), options, train_dataset=rows, loss="gce"))


def work(rank, answers, folder, port):
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    torch.set_num_threads(1)
    moved = {name: step(name, folder, ROWS // 2).numpy() for name in TRAINERS}
    answers.put((rank, moved | {"sharded": sharded_gradients(rank)}))


def sharded_gradients(rank):
    """The gradients of a model whose weights are spread over the processes, each with half of the rows."""
    from language_models import causal, texts  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    from torch.distributed.tensor import init_device_mesh  # noqa: PLC0415

    from symloss.adapters.hf_causal import without_scores  # noqa: PLC0415

    ids, labels = texts(ROWS)
    model, mesh = without_scores(causal(), "gce"), init_device_mesh("cpu", (2,))
    fully_shard(model.lm_head, mesh=mesh)  # so that its weights are in pieces when the loss is computed
    fully_shard(model, mesh=mesh)
    mine, items = slice(rank, None, 2), (labels[:, 1:] >= 0).sum() / 2  # FSDP takes the mean over processes
    model(ids[mine], labels=labels[mine], num_items_in_batch=items).loss.backward()
    return {name: each.grad.full_tensor().numpy() for name, each in model.named_parameters()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the mean probability of the tokens")
def test_two_processes_move_the_weights_as_one_does(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = together(work, (str(tmp_path), port))
    for name in TRAINERS:
        alone = step(name, tmp_path, ROWS)
        assert alone.any()
        for rank in range(2):
            torch.testing.assert_close(torch.from_numpy(found[rank][name]), alone, rtol=0, atol=1e-6)
    whole = whole_gradients()
    for name, gradient in found[0]["sharded"].items():
        torch.testing.assert_close(torch.from_numpy(gradient), whole[name], rtol=0, atol=1e-6)


def whole_gradients():
    from language_models import causal, texts  # noqa: PLC0415

    from symloss.adapters import hf  # noqa: PLC0415

    model, (ids, labels) = causal(), texts(ROWS)
    hf.loss("gce")(model(ids), labels).backward()
    return {name: each.grad for name, each in model.named_parameters()}
