"""SetFit: our losses train its head, and our closed-form classifier is one."""

from __future__ import annotations

import missing_operators  # noqa: F401
import pytest

pytest.importorskip("setfit", reason="setfit is not installed: make frameworks")

import torch
from conftest import assert_close
from sentence_transformers import SentenceTransformer
from setfit import SetFitHead, SetFitModel
from text_models import columns, write_bert
from torch import nn

import symloss
from symloss.closed_form import UnhingedClassifier

pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
TEXTS, LABELS = columns(1, rows=12)[0], [0, 1, 2] * 4


@pytest.fixture(scope="module")
def body(tmp_path_factory):
    return SentenceTransformer(write_bert(tmp_path_factory.mktemp("bert")), device="cpu")


def trained(body, criterion):
    torch.manual_seed(0)
    head = SetFitHead(in_features=16, out_features=3, device="cpu")
    head.get_loss_fn = lambda: criterion
    model = SetFitModel(body, head)
    model.fit(TEXTS, LABELS, num_epochs=2, batch_size=4, head_learning_rate=0.1, show_progress_bar=False)
    return model


def test_the_head_takes_our_losses(body):
    theirs, ours, robust = (trained(body, loss) for loss in (nn.CrossEntropyLoss(), symloss.CE(), symloss.GCE(q=0.7)))
    assert_close(ours.model_head.linear.weight, theirs.model_head.linear.weight, 1e-5)
    assert (robust.model_head.linear.weight - theirs.model_head.linear.weight).abs().max() > 1e-3
    assert_close(robust.predict_proba(TEXTS).sum(1), torch.ones(12), 1e-5)


def test_a_closed_form_head(body):
    model = SetFitModel(body, UnhingedClassifier())
    model.fit(TEXTS, LABELS, num_epochs=1)
    expected = UnhingedClassifier().fit(body.encode(TEXTS), LABELS).predict(body.encode(TEXTS))
    assert model.predict(TEXTS).tolist() == expected.tolist()
