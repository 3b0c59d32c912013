"""sentence-transformers: InfoNCE with any loss, and the losses of theirs that take one of ours."""

from __future__ import annotations

import pytest

st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")

import datasets
import torch
import transformers
from conftest import assert_close
from forked_processes import together
from in_turn import in_turn
from language_models import arguments, columns, gradients, moved_by, write_bert
from refusals import all_refused
from sentence_transformers.cross_encoder.losses import CrossEntropyLoss
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss, SoftmaxLoss
from sentence_transformers.util import dot_score
from torch import nn

import symloss
from symloss.adapters.sentence_transformers import RobustInfoNCE
from symloss.losses.potentials import MAEPotential

datasets.disable_progress_bars()
ROWS = 6
LABELS = [0, 0, 0, 0, 1, 2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def model(folder):
    return st.SentenceTransformer(folder, device="cpu")


def value_and_gradients(loss, model, texts):
    model.zero_grad()
    value = loss([model.preprocess(column) for column in texts], torch.zeros(ROWS))
    value.backward()
    return value.detach(), gradients(model)


@in_turn("count", [2, 3, 4])  # pairs, triplets, two hard negatives
def test_cross_entropy_is_their_ranking_loss(model, count):
    texts, model = columns(count), model.double()
    for options in ({}, {"scale": 3.0, "similarity_fct": dot_score}):
        theirs = value_and_gradients(MultipleNegativesRankingLoss(model, **options), model, texts)
        ours = value_and_gradients(RobustInfoNCE(model, "ce", **options), model, texts)
        assert_close(ours, theirs, 1e-12)
        assert theirs[1].abs().max() > 1e-2


def test_another_loss_is_of_the_similarities(model):
    anchors, positives = columns(2)
    value, gradient = value_and_gradients(RobustInfoNCE(model, "gce:q=0.5", scale=5.0), model, [anchors, positives])
    encoded = (model.encode(texts, convert_to_tensor=True) for texts in (anchors, positives))
    rows, others = map(nn.functional.normalize, encoded)
    probability = (5.0 * rows @ others.T).softmax(1).diagonal()
    assert_close(value, ((1 - probability.sqrt()) / 0.5).mean(), 1e-6)
    assert gradient.abs().max() > 1e-3


def test_a_loss_can_be_a_text_an_expression_or_a_criterion(model):
    texts = columns(2)
    forms = ["mae", "mae:normalize=none", MAEPotential(), symloss.MAE()]
    values = [value_and_gradients(RobustInfoNCE(model, form), model, texts) for form in forms]
    for value in values[1:]:
        assert_close(value, values[0], 1e-7)
    assert RobustInfoNCE(model, "sgce:q=0.5").criterion.normalize is None
    config = RobustInfoNCE(model, "gce:q=0.5", scale=7).get_config_dict()  # which the model card shows
    assert config == {"loss": "GCE(q=0.5)", "scale": 7.0, "similarity_fct": "cos_sim", "gather_across_devices": False}


def sentence_trainer(model, loss, folder, **data):
    settings = arguments(folder, st.SentenceTransformerTrainingArguments, batch=ROWS)
    return st.SentenceTransformerTrainer(model, settings, datasets.Dataset.from_dict(data), loss=loss)


def test_their_trainer_trains_with_it(model, folder, tmp_path):
    anchors, positives = columns(2)
    data = {"anchor": anchors, "positive": positives}
    moved = moved_by(sentence_trainer(model, RobustInfoNCE(model, "gce:q=0.5"), tmp_path, **data))
    fresh = st.SentenceTransformer(folder, device="cpu")
    loss = RobustInfoNCE(fresh, "gce:q=0.5")
    loss([fresh.preprocess(anchors), fresh.preprocess(positives)]).backward()
    slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in fresh.parameters()]
    assert_close(moved, nn.utils.parameters_to_vector(slopes), 1e-5)
    assert moved.abs().max() > 1e-2


class Given(nn.Module):
    """Embeddings that are given, as a model."""

    def forward(self, features):
        return {"sentence_embedding": features}


def _half(rank, answers, address, vectors):
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    mine = [column.chunk(2)[rank].clone().requires_grad_() for column in vectors]
    RobustInfoNCE(Given(), "gce:q=0.5", gather_across_devices=True)(mine).backward()
    answers.put((rank, [column.grad.tolist() for column in mine]))
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*all_gather is deprecated:FutureWarning")
def test_two_processes_have_the_gradient_of_one(tmp_path):
    """Each has half of the pairs, and the candidates of both. Gradients are averaged over processes, as DDP does."""
    vectors = torch.randn(3, 8, 5).unbind()
    whole = [column.clone().requires_grad_() for column in vectors]
    RobustInfoNCE(Given(), "gce:q=0.5")(whole).backward()
    found = together(_half, (f"file://{tmp_path}/door", vectors))
    for number, column in enumerate(whole):
        both = torch.cat([torch.tensor(found[rank][number]) for rank in range(2)]) / 2
        assert_close(both, column.grad, 1e-6)
    assert whole[0].grad.abs().max() > 1e-3


def test_what_is_refused():
    def made(loss, **options):
        return lambda: RobustInfoNCE(Given(), loss, **options)

    all_refused(
        (ValueError, "must have normalize=None here ... divides the scale ... symmetrize", made(symloss.SGCE())),
        (ValueError, "must have normalize=None here ... GCE(q=0.7)", made("gce:normalize=l2")),
        (ValueError, "reduction='mean' or 'sum' ... got reduction='none'", made("mae:reduction=none")),
        (TypeError, "loss must be a spec such as 'gce:q=0.5' ... L1Loss()", made(nn.L1Loss())),
        (ValueError, "scale must be a number in (0, inf) ... got 0", made("ce", scale=0)),
        (ValueError, "anchors and positives ... got one column", lambda: made("ce")()([torch.eye(3)])),
    )


def test_their_losses_take_ours(folder, tmp_path):
    """SoftmaxLoss, and the loss of a cross-encoder."""
    first, second = columns(2)
    data = {"first": first, "second": second, "label": LABELS}
    classifier = write_bert(tmp_path / "bert", transformers.BertForSequenceClassification, num_labels=3)

    def softmax(criterion):
        fresh = st.SentenceTransformer(folder, device="cpu")
        torch.manual_seed(0)
        loss = SoftmaxLoss(fresh, 16, 3, **{} if criterion is None else {"loss_fct": criterion})
        return sentence_trainer(fresh, loss, tmp_path, **data)

    def cross_encoder(criterion):
        encoder = st.CrossEncoder(classifier, device="cpu")
        loss = CrossEntropyLoss(encoder)
        loss.ce_loss = loss.ce_loss if criterion is None else criterion
        settings = arguments(tmp_path, st.CrossEncoderTrainingArguments, batch=ROWS)
        return st.CrossEncoderTrainer(encoder, settings, datasets.Dataset.from_dict(data), loss=loss)

    for trainer in (softmax, cross_encoder):
        theirs, same, robust = (moved_by(trainer(each)) for each in (None, symloss.CE(), symloss.GCE(q=0.7)))
        assert_close(same, theirs, 1e-5)
        assert robust.abs().max() > 1e-3
        assert (robust - theirs).abs().max() > 1e-3
