"""Lightning: a module trains with our losses, and the callback keeps the margins that find wrong labels."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("lightning", reason="lightning is not installed")

import lightning
import torch
from conftest import assert_close
from refusals import all_refused, refused
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import symloss
from symloss.adapters.lightning import MarginCallback, WithIndex

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]
SIZE, CLASSES = 51, 4


def net_of(library):
    class Net(library.LightningModule):
        """One layer. It writes down the margins of each example, as plain Python has them."""

        def __init__(self, lr=0.5, skipped=None, **options):
            super().__init__()
            self.lr, self.skipped = lr, skipped
            self.layer = nn.Linear(3, CLASSES)
            self.loss = symloss.AlphaMAE(alpha=2.0, **options)
            self.seen = [[] for _ in range(SIZE)]

        def training_step(self, batch, batch_idx):
            points, labels, index = batch
            if batch_idx == self.skipped:
                return None
            scores = self.layer(points)
            for row, label, example in zip(scores.tolist(), labels.tolist(), index.tolist(), strict=True):
                self.seen[example].append(row[label] - max(value for k, value in enumerate(row) if k != label))
            loss = self.loss(scores, labels)
            return {"loss": loss, "scores": scores, "labels": labels, "index": index}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr)

        def means(self):
            return torch.tensor([sum(each) / len(each) for each in self.seen if each])

    return Net


Net = net_of(lightning)


class Writing(MarginCallback):
    """Writes what it knows at the end into a file for each process."""

    def on_fit_end(self, trainer, module):
        visits = sum(map(len, module.seen))
        torch.save((seen(self), kept(self), visits), f"{self.path}{trainer.global_rank}")


class Stopping(lightning.Callback):
    """Writes a checkpoint in the middle of an epoch, after so many batches, and stops."""

    def __init__(self, path, batches):
        self.path, self.batches = path, batches

    def on_train_batch_end(self, trainer, *_):
        if trainer.fit_loop.total_batch_idx + 1 == self.batches:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


def points():
    random = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(SIZE, 3, generator=random), torch.randint(CLASSES, (SIZE,), generator=random))


def loader(**options):
    return DataLoader(WithIndex(points()), batch_size=16, **options)


def trainer(*callbacks, library=lightning, **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"max_epochs": 2, "enable_checkpointing": False, **options}
    return library.Trainer(accelerator="cpu", callbacks=list(callbacks), **quiet, **options)


def kept(callback):
    margin = callback.recorder.margin
    return torch.from_numpy(margin[callback.recorder.seen])


def seen(callback):
    return callback.recorder.seen.nonzero()[0].tolist()


@pytest.mark.filterwarnings("ignore:.*training_step. returned .None.")
def test_margins_are_the_means_over_epochs():
    net, margins = Net(), MarginCallback(SIZE)
    trainer(margins, accumulate_grad_batches=2).fit(net, loader(shuffle=True))
    assert (seen(margins), margins.recorder.epochs) == (list(range(SIZE)), 2)
    assert all(len(each) == 2 for each in net.seen)
    assert_close(kept(margins), net.means(), 1e-6)
    assert kept(margins).std() > 0.1
    net, margins = Net(skipped=1), MarginCallback(SIZE)
    trainer(margins).fit(net, loader())
    assert seen(margins) == [*range(16), *range(32, SIZE)]  # a skipped batch has no margins
    assert_close(kept(margins), net.means(), 1e-6)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_a_checkpoint_in_the_middle_of_an_epoch_goes_on(tmp_path):
    """The batches before the checkpoint and those after it make the mean: here 3 of one epoch, and two more epochs."""
    path, margins, net = tmp_path / "half.ckpt", MarginCallback(SIZE), Net()
    trainer(margins, Stopping(path, 3)).fit(net, loader())
    assert seen(margins) == list(range(48))
    half = MarginCallback(SIZE)
    half.on_load_checkpoint(None, None, torch.load(path, weights_only=True))
    assert_close(kept(half), net.means(), 1e-6)

    whole, second = MarginCallback(SIZE), Net()
    second.seen = net.seen
    trainer(whole, max_epochs=2).fit(second, loader(), ckpt_path=path)
    assert max(map(len, second.seen)) == 3
    assert_close(kept(whole), second.means(), 1e-6)

    runs = trainer(whole, max_epochs=3)
    runs.fit(second, loader(), ckpt_path=path)
    runs.save_checkpoint(path)
    half.on_load_checkpoint(None, None, torch.load(path, weights_only=True))
    assert half.recorder.epochs == 3


def batch(**changed):
    step = {"scores": torch.eye(2), "labels": torch.tensor([0, 1]), "index": torch.tensor([0, 2])}
    return step | changed


def test_what_is_refused():
    def step(outputs):
        return lambda: MarginCallback(3).on_train_batch_end(None, None, outputs, None, 0)

    far, below, alone = (torch.tensor(each) for each in ([0, 3], [-1, 0], [1]))
    checkpoint, margins = {}, MarginCallback(7)
    MarginCallback(8).on_save_checkpoint(trainer(), None, checkpoint)
    margins.on_load_checkpoint(None, None, {})
    load = margins.on_load_checkpoint
    all_refused(
        (ValueError, "examples must be 8 as in the checkpoint ... got 7", lambda: load(None, None, checkpoint)),
        (ValueError, "No margins to audit. Train with", lambda: margins.audit([0], np.ones((7, 2)))),
        (ValueError, "examples must be a whole number in [1, inf) ... 0", lambda: MarginCallback(0)),
        (TypeError, "examples must be tuples, lists or dictionaries ... 'ab'", lambda: WithIndex(["ab"])[0]),
        # What training_step must return.
        (ValueError, "must return a dictionary with loss, index, scores, labels", step(torch.tensor(1.0))),
        (ValueError, "got the keys ['loss', 'scores']", step({"loss": 1, "scores": 2})),
        (IndexError, "index must be 0 to 2 for 3 examples; got 0 to 3", step(batch(index=far))),
        (IndexError, "index must be 0 to 2 for 3 examples; got -1 to 0", step(batch(index=below))),
        (ValueError, "index and labels (M,) ... index (1,) of torch.int64", step(batch(index=alone))),
        (ValueError, "index and labels (M,) ... labels (2, 2) of torch.float32", step(batch(labels=torch.eye(2)))),
        (ValueError, "(M,) whole numbers ... labels (2,) of torch.float32", step(batch(labels=torch.ones(2)))),
        (ValueError, "logits must be (M, C) ... logits (2,)", step(batch(scores=torch.eye(2)[0]))),
    )
    assert WithIndex([["a", 1], ["b", 0]])[1] == ("b", 0, 1)
    assert WithIndex([{"x": 5}])[0] == {"x": 5, "index": 0}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_two_processes_keep_what_one_keeps(tmp_path):
    """Each sees half of the examples, and one is seen twice. As the learning rate is 0, both have the same scores."""
    one, two, net = MarginCallback(SIZE), Writing(SIZE), Net(lr=0.0)
    trainer(one).fit(net, loader())
    net.seen, two.path = [[] for _ in range(SIZE)], tmp_path / "two.pt"
    trainer(two, devices=2, strategy="ddp_fork").fit(net, loader())
    for rank in range(2):
        positions, margin, visits = torch.load(tmp_path / f"two.pt{rank}", weights_only=True)
        assert visits == SIZE + 1
        assert positions == list(range(SIZE))
        assert_close(margin, kept(one), 1e-6)


def test_class_weights_are_no_part_of_a_checkpoint(tmp_path):
    net, runs = Net(weight=torch.tensor([1.0, 2.0, 1.0, 1.0])), trainer(max_epochs=1)
    runs.fit(net, loader())
    runs.save_checkpoint(tmp_path / "weighted.ckpt")
    loaded = Net.load_from_checkpoint(tmp_path / "weighted.ckpt", weights_only=True)
    assert torch.equal(loaded.layer.weight, net.layer.weight)
    assert loaded.loss.weight is None


def test_the_package_by_its_older_name_calls_it_too():
    older = pytest.importorskip("pytorch_lightning", reason="pytorch_lightning is not installed")
    margins, net = MarginCallback(SIZE), net_of(older)()
    trainer(margins, library=older).fit(net, loader())
    assert_close(kept(margins), net.means(), 1e-6)


def test_the_audit_has_the_examples_that_were_seen():
    margins = MarginCallback(3)
    margins.on_train_batch_end(None, None, batch(labels=torch.tensor([0, 0])), None, 0)
    chances = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
    found = margins.audit(torch.tensor([0, 1, 0]), chances, truth=[0, 0, 1])
    assert found.positions.tolist() == [0, 2]
    assert found.flagged.tolist() == [False, True]
    assert found.suggested.tolist() == [0, 1]
    assert (found.precision, found.recall) == (1.0, 1.0)
    assert margins.audit([0, 1, 0], chances, n_wrong=0).flagged.sum() == 0
    with refused(ValueError, "probabilities must be of all 3 examples", "got 2"):
        margins.audit([0, 1, 0], chances[:2])
    short = MarginCallback(3)  # whose margins, all 1, are no probabilities
    short.on_train_batch_end(None, None, batch(labels=torch.tensor([0, 1])), None, 0)
    assert kept(short).tolist() == [1.0, 1.0]
    assert short.audit([0, 1, 1], np.full((3, 2), 0.5)).n_wrong == 0
