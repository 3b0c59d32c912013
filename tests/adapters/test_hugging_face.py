"""Losses in the libraries of Hugging Face: exact under accumulation, also without scores, or refused."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

import transformers
from accelerate import Accelerator
from conftest import assert_close
from in_turn import in_turn
from language_models import arguments, causal, classifier, gradients, rows_of, step, texts
from refusals import all_refused
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset
from transformers.modeling_outputs import CausalLMOutput, SequenceClassifierOutput, TokenClassifierOutput

import symloss
from symloss.adapters import hf
from symloss.adapters.hf import LanguageHead
from symloss.adapters.hf_causal import CausalTrainer, without_scores

ROWS, LENGTH, CLASSES = 8, 12, 3
LONG = torch.zeros(1, 2).long()


def token_labels():
    """Labels of which rows have 1 to 12, so that a mean of means is not the mean."""
    labels = torch.randint(CLASSES, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    return torch.where(torch.arange(LENGTH) < torch.tensor([1, 12, 2, 11, 3, 12, 1, 7])[:, None], labels, -100)


def shifted(labels):
    """Before, by whoever calls the model."""
    return F.pad(labels, (0, 1), value=-100)[:, 1:]


def sequences():
    return classifier("BertForSequenceClassification"), torch.arange(ROWS) % CLASSES


def tokens():
    return classifier("BertForTokenClassification"), token_labels()


def language():
    ids = texts(ROWS, LENGTH)[0]
    return causal(), torch.where(token_labels() >= 0, ids, -100)


PLACES = [sequences, tokens, language]


def value_and_gradients(model, value):
    value.backward()
    found = gradients(model)
    model.zero_grad()
    return value, found


@in_turn("place", PLACES)
def test_cross_entropy_is_the_model_s_own(place):
    model, labels = place()
    ids = texts(ROWS, LENGTH)[0]
    own, wanted = value_and_gradients(model, model(ids, labels=labels).loss)
    ours = hf.loss("ce")(model(ids), labels)
    ours.backward()
    torch.testing.assert_close(ours, own, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradients(model), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_accumulation_changes_nothing(place, tmp_path):
    model, labels = place()
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def moved(loss, steps):
        model.load_state_dict(state)
        return step(tmp_path, model, (texts(ROWS, LENGTH)[0], labels), steps=steps, compute_loss_func=loss)

    whole = moved(hf.loss("gce:q=0.7"), 1)
    torch.testing.assert_close(moved(hf.loss("gce:q=0.7"), 4), whole, rtol=0, atol=1e-6)

    def mean(outputs, labels, num_items_in_batch=None):  # what a user would write first
        return hf.loss("gce:q=0.7")(outputs, labels)

    times = float(moved(mean, 4).norm() / whole.norm())
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
    torch.testing.assert_close(hf.install(model, "ce")(ids, labels=labels).loss, own.loss)
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
    if "Causal" in name:
        before = model(ids, labels=torch.zeros_like(labels), shift_labels=shifted(labels)).loss
        torch.testing.assert_close(before, robust)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "LlamaForSequenceClassification"])
def test_an_installed_loss_is_exact_under_accumulation(name, tmp_path):
    labels = language()[1] if "Causal" in name else sequences()[1]

    def moved(steps):
        model = hf.install(causal() if "Causal" in name else classifier(name), "gce:q=0.7")
        return step(tmp_path, model, (texts(ROWS, LENGTH)[0], labels), steps=steps)

    torch.testing.assert_close(moved(4), moved(1), rtol=0, atol=1e-6)


# Language models that learn without their scores: the same value and gradients as with them.

# A factor, a soft cap, embeddings that are shared with the output layer, and a layer with a bias.
FAMILIES = {
    "Llama": {},
    "Gemma2": {"head_dim": 8, "final_logit_softcapping": 3.0},
    "Cohere": {"logit_scale": 0.25},
    "Granite": {"logits_scaling": 4.0},
    "GPT2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "Phi": {},
}


@in_turn("family", FAMILIES)
def test_the_same_as_with_the_scores(family):
    model, (ids, labels) = causal(family, **FAMILIES[family]), texts()
    loss = symloss.AlphaMAE(kappa=2.0, normalize=None)
    wanted, by_scores = value_and_gradients(model, hf.loss(loss)(model(ids), labels))
    outputs = without_scores(model, loss)(ids, labels=labels)
    outputs.loss.backward()
    assert outputs.logits is None
    torch.testing.assert_close(outputs.loss, wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradients(model), by_scores, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(model(ids, shift_labels=shifted(labels)).loss, wanted, rtol=1e-6, atol=1e-6)
    half, loss = causal(family, **FAMILIES[family]).bfloat16(), symloss.GCE(q=0.5, weight=torch.linspace(0.5, 1.5, 61))
    wanted = hf.loss(loss)(half(ids), labels)
    value = without_scores(half, loss, block_bytes=10_000, accumulate=torch.float32)(ids, labels=labels).loss
    torch.testing.assert_close(value, wanted, rtol=1e-2, atol=1e-2)


def test_what_the_families_are_for():
    heads = {family: LanguageHead.of(causal(family, **options)) for family, options in FAMILIES.items()}
    assert heads["Cohere"].factor == heads["Granite"].factor == 0.25
    assert heads["Gemma2"].softcap == 3.0
    assert heads["Phi"].parameters()[1] is not None
    assert LanguageHead.of(causal().train()).model.training  # the look at a model leaves its mode
    assert not heads["Llama"].model.training
    gpt2 = heads["GPT2"].model
    assert gpt2.get_output_embeddings().weight is gpt2.get_input_embeddings().weight


@pytest.mark.slow
def test_an_update_of_the_trainer_is_that_of_the_scores(tmp_path):
    def moved(cls=CausalTrainer, **options):
        return step(tmp_path, causal("GPT2", **FAMILIES["GPT2"]), texts(ROWS), cls, **options)

    by_scores = moved(transformers.Trainer, compute_loss_func=hf.loss("gce:q=0.5"))
    for steps in (1, 4):
        torch.testing.assert_close(moved(steps=steps, loss="gce:q=0.5"), by_scores, rtol=0, atol=1e-6)
    assert float((moved(steps=4, loss="mae") - by_scores).abs().max()) > 1e-3


class NarrowLlama(transformers.LlamaForCausalLM):
    """A model that takes no number of labels, so that the Trainer would not pass it."""

    def forward(self, input_ids=None, labels=None, use_cache=None):
        return super().forward(input_ids=input_ids, labels=labels, use_cache=use_cache)


@pytest.mark.slow
@pytest.mark.parametrize("in_trainer", [True, False])
def test_the_number_of_labels_reaches_every_model(in_trainer, tmp_path):
    def moved(steps):
        model = NarrowLlama(causal().config)
        model.load_state_dict(causal().state_dict())
        if in_trainer:
            return step(tmp_path, model, texts(ROWS), CausalTrainer, steps=steps, loss="mae")
        return step(tmp_path, without_scores(model, "mae"), texts(ROWS), steps=steps)

    torch.testing.assert_close(moved(4), moved(1), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_evaluation_and_generation(tmp_path):
    ids, labels = texts()
    model = causal()
    before = model.generate(ids[:1, :4], max_new_tokens=4, do_sample=False)
    wanted = hf.loss("mae")(model(ids), labels)
    trainer = CausalTrainer(model, arguments(tmp_path, per_device_eval_batch_size=4), loss="mae")
    assert trainer.evaluate(rows_of(ids, labels))["eval_loss"] == pytest.approx(float(wanted.detach()), abs=1e-6)
    assert model.generate(ids[:1, :4], max_new_tokens=4, do_sample=False).tolist() == before.tolist()


def test_an_adapter_of_peft_learns_the_same():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    ids, labels = texts()
    config = peft.LoraConfig(target_modules=["q_proj"], r=2, init_lora_weights=False)
    model = peft.get_peft_model(causal(), config).eval()
    _, by_scores = value_and_gradients(model, hf.loss("mae")(model(ids), labels))
    without_scores(model, "mae")
    model(ids, labels=labels).loss.backward()
    torch.testing.assert_close(gradients(model), by_scores, rtol=1e-4, atol=1e-7)

    on_the_head = peft.get_peft_model(causal(), peft.LoraConfig(target_modules=["lm_head"], r=2))
    with pytest.raises(ValueError, match="output layer of LlamaForCausalLM must be a plain linear layer; got Linear"):
        without_scores(on_the_head, "mae")


def test_scores_that_are_not_understood_are_refused():
    model = causal()
    model.lm_head.register_forward_hook(lambda layer, states, scores: scores**2)
    with pytest.raises(ValueError, match="scores of LlamaForCausalLM are not those of its output layer"):
        without_scores(model, "mae")


def test_a_wrong_plug_of_models_without_scores_gets_one_sentence(tmp_path):
    def train(arguments=None, **options):
        return lambda: CausalTrainer(causal(), arguments, loss="mae", **options)

    experts = causal("Mixtral", num_local_experts=2, output_router_logits=True)
    smoothing = arguments(tmp_path, label_smoothing_factor=0.1)
    all_refused(
        (ValueError, "cannot learn 600 classes", lambda: without_scores(causal(vocab_size=600), "sgce")),
        (ValueError, "label_smoothing=0 ... got 0.1", lambda: without_scores(causal(), "gce:label_smoothing=0.1")),
        (ValueError, "loss of its routers", lambda: without_scores(experts, "mae")),
        (ValueError, "takes no compute_metrics", train(compute_metrics=print)),
        (ValueError, "takes no compute_loss_func", train(compute_loss_func=print)),
        (ValueError, "no label_smoothing_factor", train(smoothing)),
    )


# The plain loop of accelerate.


def trained(loss, batch, steps, epochs=3):
    """The weights after a plain loop with ``steps`` batches for each update."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 5), torch.randint(4, (32,)))
    model = nn.Linear(5, 4)
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
def test_accumulation_by_accelerate_changes_nothing(loss):
    """Batches of one size: the mean of their means is the mean."""
    whole, updates = trained(loss, batch=16, steps=1)
    parts, same = trained(loss, batch=4, steps=4)
    assert updates == same == 6
    assert_close(parts, whole, 1e-6)


def test_cross_entropy_in_accelerate_is_torch_s():
    theirs, ours, robust = (trained(loss, 4, 2)[0] for loss in (nn.CrossEntropyLoss(), symloss.CE(), symloss.MAE()))
    assert_close(ours, theirs, 1e-6)
    assert (robust - theirs).abs().max() > 0.01
