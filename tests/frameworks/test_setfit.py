"""SetFit: our losses train its head, and our closed-form classifier is one."""

from __future__ import annotations

import functools
import pickle

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
    head.get_loss_fn = criterion
    model = SetFitModel(body, head)
    model.fit(TEXTS, LABELS, num_epochs=2, batch_size=4, head_learning_rate=0.1, show_progress_bar=False)
    return model


def test_the_head_takes_our_losses(body):
    theirs, ours, robust = (trained(body, loss) for loss in (nn.CrossEntropyLoss, symloss.CE, symloss.GCE))
    assert_close(ours.model_head.linear.weight, theirs.model_head.linear.weight, 1e-5)
    assert (robust.model_head.linear.weight - theirs.model_head.linear.weight).abs().max() > 1e-3
    assert_close(robust.predict_proba(TEXTS).sum(1), torch.ones(12), 1e-5)


def test_a_model_with_our_loss_is_saved_and_loaded(body, tmp_path):
    model = trained(body, functools.partial(symloss.GCE, q=0.5))
    model.save_pretrained(tmp_path)
    loaded = SetFitModel.from_pretrained(tmp_path)
    assert loaded.model_head.get_loss_fn().loss == symloss.GCE(q=0.5).loss
    assert_close(loaded.predict_proba(TEXTS), model.predict_proba(TEXTS), 1e-6)
    with pytest.raises(pickle.PicklingError):
        trained(body, lambda: symloss.GCE(q=0.5)).save_pretrained(tmp_path / "other")


def test_a_closed_form_head(body):
    model = SetFitModel(body, UnhingedClassifier())
    model.fit(TEXTS, LABELS, num_epochs=1)
    expected = UnhingedClassifier().fit(body.encode(TEXTS), LABELS).predict(body.encode(TEXTS))
    assert model.predict(TEXTS).tolist() == expected.tolist()
