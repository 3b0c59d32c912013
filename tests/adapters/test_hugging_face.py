"""Losses in the Trainer of Hugging Face and in its models: exact under accumulation, or refused."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

import transformers
from in_turn import in_turn
from language_models import arguments, causal, classifier, gradients, moved_by, rows_of, texts
from refusals import all_refused
from torch.nn import functional as F  # noqa: N812
from transformers.modeling_outputs import CausalLMOutput, SequenceClassifierOutput, TokenClassifierOutput

import symloss
from symloss.adapters import hf

ROWS, LENGTH, CLASSES = 8, 12, 3
LONG = torch.zeros(1, 2).long()


def token_labels():
    """Labels of which rows have 1 to 12, so that a mean of means is not the mean."""
    labels = torch.randint(CLASSES, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    return torch.where(torch.arange(LENGTH) < torch.tensor([1, 12, 2, 11, 3, 12, 1, 7])[:, None], labels, -100)


def sequences():
    return classifier("BertForSequenceClassification"), torch.arange(ROWS) % CLASSES


def tokens():
    return classifier("BertForTokenClassification"), token_labels()


def language():
    ids = texts(ROWS, LENGTH)[0]
    return causal(), torch.where(token_labels() >= 0, ids, -100)


PLACES = [sequences, tokens, language]


@in_turn("place", PLACES)
def test_cross_entropy_is_the_model_s_own(place):
    model, labels = place()
    ids = texts(ROWS, LENGTH)[0]
    own = model(ids, labels=labels).loss
    own.backward()
    wanted = gradients(model)
    model.zero_grad()
    ours = hf.loss("ce")(model(ids), labels)
    ours.backward()
    torch.testing.assert_close(ours, own, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradients(model), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_accumulation_changes_nothing(place, tmp_path):
    model, labels = place()
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def step(loss, steps):
        model.load_state_dict(state)
        options = arguments(tmp_path, steps=steps, batch=ROWS // steps, remove_unused_columns=False)
        rows = rows_of(texts(ROWS, LENGTH)[0], labels)
        return moved_by(transformers.Trainer(model, options, train_dataset=rows, compute_loss_func=loss))

    whole = step(hf.loss("gce:q=0.7"), 1)
    torch.testing.assert_close(step(hf.loss("gce:q=0.7"), 4), whole, rtol=0, atol=1e-6)

    def mean(outputs, labels, num_items_in_batch=None):  # what a user would write first
        return hf.loss("gce:q=0.7")(outputs, labels)

    times = float(step(mean, 4).norm() / whole.norm())
    assert times > 3, "a mean is divided by nobody"


def test_the_value_is_that_of_the_formula():
    """Whatever the labels are divided by; padding adds nothing."""
    scores, labels = torch.randn(2, 5, CLASSES, requires_grad=True), token_labels()[:2, :5]
    kept, outputs, loss = labels >= 0, TokenClassifierOutput(logits=scores), symloss.GCE(q=0.5)
    p = scores.softmax(-1)[kept].gather(1, labels[kept][:, None])
    wanted = ((1 - p**0.5) / 0.5).sum()
    torch.testing.assert_close(hf.loss(loss)(outputs, labels), wanted / kept.sum())
    torch.testing.assert_close(hf.loss(loss)(outputs, labels, num_items_in_batch=torch.tensor(30)), wanted / 30)
    assert loss.reduction == "mean"  # the user's loss is left as it is
    # DataParallel's Trainer passes the share of each device, and takes the mean of what comes back.
    shares = torch.tensor(15).unsqueeze(0).expand(2, -1)
    torch.testing.assert_close(hf.loss(loss)(outputs, labels, shares), wanted / 30)
    padding = hf.loss("mae")(outputs, torch.full((2, 5), -100))
    assert padding == 0
    assert not torch.autograd.grad(padding, scores)[0].any()
    # Of probabilities the Trainer counts all entries.
    soft, outputs = torch.rand(4, CLASSES).softmax(1), SequenceClassifierOutput(logits=torch.randn(4, CLASSES))
    for counted in (None, soft.ne(-100).sum()):
        torch.testing.assert_close(hf.loss("mae")(outputs, soft, counted), symloss.MAE()(outputs.logits, soft))


def test_scores_of_causal_models_are_those_of_the_next_label():
    scores, labels = torch.randn(2, 5, CLASSES), token_labels()[:2, :5]
    wanted = symloss.MAE()(scores[:, :-1].reshape(-1, CLASSES), labels[:, 1:].reshape(-1))
    torch.testing.assert_close(hf.loss("mae")(CausalLMOutput(logits=scores), labels), wanted)
    torch.testing.assert_close(hf.loss("mae", shift=True)({"logits": scores}, labels), wanted)
    assert hf.loss("mae", shift=False)({"logits": scores}, labels) != wanted


def test_a_wrong_plug_gets_one_sentence():
    def call(loss, labels, *shape, **options):
        return lambda: hf.loss(loss, **options)({"logits": torch.zeros(*shape)}, labels)

    silent, other = (classifier(name) for name in ("BertForTokenClassification", "LlamaForQuestionAnswering"))
    all_refused(
        (ValueError, "reduction='mean' here; got reduction='sum'", lambda: hf.loss("gce:q=0.7,reduction=sum")),
        (ValueError, "shape", call("gce", torch.zeros(1, 3), 1, 2, 3, shift=False)),
        (ValueError, "ignore_index=-100", lambda: hf.loss(symloss.GCE(ignore_index=0))),
        (TypeError, "loss must be a spec such as ... got <function", lambda: hf.loss(F.cross_entropy)),
        (ValueError, f"{type(silent).__name__} does not call ... compute_loss_func", lambda: hf.install(silent, "gce")),
        (ValueError, f"a language model or a classifier ... {type(other).__name__}", lambda: hf.install(other, "gce")),
        (ValueError, "shift must be True", call("gce", torch.zeros(1, 2), 1, 2, 3)),
        (ValueError, "called 'labels'; got none", call("gce", None, 1, 3)),
        (ValueError, "cannot learn 600 classes ... normalize=None", call("sgce", LONG, 1, 2, 600, shift=True)),
    )


def test_experts_with_a_loss_of_their_own_are_refused():
    model = causal("Mixtral", num_local_experts=2, output_router_logits=True)
    ids, labels = texts()
    with pytest.raises(ValueError, match=r"loss of routers.*hf\.install"):
        hf.loss("mae")(model(ids), labels)
    own = model(ids, labels=labels)
    ours = hf.install(model, "ce")(ids, labels=labels)
    torch.testing.assert_close(ours.loss, own.loss)
    assert own.aux_loss > 0


# Models that compute their loss themselves.


OWN = ("LlamaForCausalLM", "LlamaForSequenceClassification", "LlamaForTokenClassification", "ModernBertForMaskedLM")


@in_turn("name", OWN)
def test_a_model_with_the_loss_installed(name):
    model, (ids, labels) = causal() if "Causal" in name else classifier(name), texts()
    if "SequenceClassification" in name:
        labels = torch.arange(len(ids)) % CLASSES
    elif "TokenClassification" in name:
        labels = torch.where(labels >= 0, labels % CLASSES, -100)
    own = model(ids, labels=labels)
    torch.testing.assert_close(hf.install(model, "ce")(ids, labels=labels).loss, own.loss)
    robust = hf.install(model, "gce:q=0.5")(ids, labels=labels).loss
    torch.testing.assert_close(robust, hf.loss("gce:q=0.5")(own, labels))


def test_labels_that_were_shifted_before():
    model, (ids, labels) = hf.install(causal(), "mae"), texts()
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    value = model(ids, labels=torch.zeros_like(labels), shift_labels=shifted).loss
    torch.testing.assert_close(value, model(ids, labels=labels).loss)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "LlamaForSequenceClassification"])
def test_an_installed_loss_is_exact_under_accumulation(name, tmp_path):
    labels = language()[1] if "Causal" in name else sequences()[1]

    def step(steps):
        model = hf.install(causal() if "Causal" in name else classifier(name), "gce:q=0.7")
        options = arguments(tmp_path, steps=steps, batch=ROWS // steps)
        rows = rows_of(texts(ROWS, LENGTH)[0], labels)
        return moved_by(transformers.Trainer(model, options, train_dataset=rows))

    torch.testing.assert_close(step(4), step(1), rtol=0, atol=1e-6)
