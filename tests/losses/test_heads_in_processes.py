"""Heads in two processes: DDP and FSDP2 find the gradients that one process finds."""

import runpy
from pathlib import Path

import pytest
import torch
from conftest import random_labels, random_scores
from forked_processes import together
from torch import nn

import symloss

CLASSES, WIDTH, TOKENS = 32, 8, 12
EXAMPLE = Path(__file__).parents[2] / "examples" / "vocabulary_shards.py"


class Model(nn.Module):
    """An embedding, a layer, and a head that shares the weights of the embedding."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(CLASSES, WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.head = symloss.LinearLoss("gce:q=0.5", WIDTH, CLASSES, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens, target, num_items):
        return self.head(self.layer(self.table(tokens)).tanh(), target, num_items)


def data():
    tokens = random_labels(4, TOKENS, classes=CLASSES)
    target = tokens.roll(-1, 1)
    target[0, 5:], target[3, 2:4] = -100, -100
    return tokens, target


def model():
    torch.manual_seed(0)
    return Model()


def process(rank, answers, meeting):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    answers.put((rank, (steps(rank), shards(rank))))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def steps(rank):
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    from torch.distributed.tensor import init_device_mesh  # noqa: PLC0415

    tokens, target = data()
    count = (target != -100).sum() / 2  # both divide gradients by the number of processes
    given = tokens.chunk(2)[rank], target.chunk(2)[rank], count
    replicated = nn.parallel.DistributedDataParallel(model())
    replicated(*given).backward()
    found = {name: each.grad.numpy() for name, each in replicated.module.named_parameters()}
    sharded = fully_shard(model(), mesh=init_device_mesh("cpu", (2,)))
    sharded(*given).backward()
    return found, {name: each.grad.full_tensor().numpy() for name, each in sharded.named_parameters()}


def shards(rank):
    features, table, labels = vocabulary()
    weight = table.chunk(2)[rank].clone().requires_grad_()
    logp = runpy.run_path(str(EXAMPLE))["sharded_log_probabilities"](features, weight, labels, 12 * rank)
    loss = symloss.of_logp("gce:q=0.7")(logp).mean()
    loss.backward()
    return loss.item(), features.grad.numpy(), weight.grad.numpy()


def vocabulary():
    features, table = random_scores(6, 5).float(), random_scores(24, 5).float()
    return features.requires_grad_(), table, random_labels(6, classes=24)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return together(process, (tmp_path_factory.mktemp("processes") / "meeting",))


@pytest.mark.slow
def test_shards_of_a_vocabulary_find_what_all_scores_say(found):
    features, table, labels = vocabulary()
    expected = symloss.GCE(q=0.7)(features @ table.requires_grad_().T, labels)
    expected.backward()
    for rank in range(2):
        value, *gradients = found[rank][1]
        assert value == pytest.approx(expected.item(), rel=1e-5)
        ours = [torch.from_numpy(gradient) for gradient in gradients]
        torch.testing.assert_close(ours, [features.grad, table.grad.chunk(2)[rank]], rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_two_processes_find_the_gradients_of_one(found):
    alone, (tokens, target) = model(), data()
    alone(tokens, target, None).backward()
    for both, _ in found.values():
        for gradients in both:
            assert gradients.keys() == {name for name, _ in alone.named_parameters()}
            for name, each in alone.named_parameters():
                torch.testing.assert_close(torch.from_numpy(gradients[name]), each.grad, rtol=1e-5, atol=1e-7)
