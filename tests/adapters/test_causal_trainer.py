"""Language models that learn without their scores: the same value and gradients as with them."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

import transformers
from in_turn import in_turn
from language_models import arguments, causal, gradients, moved_by, rows_of, texts
from refusals import all_refused

import symloss
from symloss.adapters import hf
from symloss.adapters.hf import LanguageHead
from symloss.adapters.hf_causal import CausalTrainer, without_scores

ROWS = 8
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
    wanted = hf.loss(loss)(model(ids), labels)
    wanted.backward()
    by_scores = gradients(model)
    model.zero_grad()
    outputs = without_scores(model, loss)(ids, labels=labels)
    outputs.loss.backward()
    assert outputs.logits is None
    torch.testing.assert_close(outputs.loss, wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradients(model), by_scores, rtol=1e-4, atol=1e-6)
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]  # before, by whoever calls the model
    torch.testing.assert_close(model(ids, shift_labels=shifted).loss, wanted, rtol=1e-6, atol=1e-6)
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
    ids, labels = texts(ROWS)

    def step(cls, steps, **loss):
        options = arguments(tmp_path, steps=steps, batch=ROWS // steps)
        return moved_by(cls(causal("GPT2", **FAMILIES["GPT2"]), options, train_dataset=rows_of(ids, labels), **loss))

    by_scores = step(transformers.Trainer, 1, compute_loss_func=hf.loss("gce:q=0.5"))
    torch.testing.assert_close(step(CausalTrainer, 1, loss="gce:q=0.5"), by_scores, rtol=0, atol=1e-6)
    torch.testing.assert_close(step(CausalTrainer, 4, loss="gce:q=0.5"), by_scores, rtol=0, atol=1e-6)
    assert float((step(CausalTrainer, 4, loss="mae") - by_scores).abs().max()) > 1e-3


class NarrowLlama(transformers.LlamaForCausalLM):
    """A model that takes no number of labels, so that the Trainer would not pass it."""

    def forward(self, input_ids=None, labels=None, use_cache=None):
        return super().forward(input_ids=input_ids, labels=labels, use_cache=use_cache)


@pytest.mark.slow
@pytest.mark.parametrize("in_trainer", [True, False])
def test_the_number_of_labels_reaches_every_model(in_trainer, tmp_path):
    ids, labels = texts(ROWS)

    def step(steps):
        model = NarrowLlama(causal().config)
        model.load_state_dict(causal().state_dict())
        options, rows = arguments(tmp_path, steps=steps, batch=ROWS // steps), rows_of(ids, labels)
        if in_trainer:
            return moved_by(CausalTrainer(model, options, train_dataset=rows, loss="mae"))
        return moved_by(transformers.Trainer(without_scores(model, "mae"), options, train_dataset=rows))

    torch.testing.assert_close(step(4), step(1), rtol=0, atol=1e-6)


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
    hf.loss("mae")(model(ids), labels).backward()
    by_scores = gradients(model)
    model.zero_grad()
    without_scores(model, "mae")
    model(ids, labels=labels).loss.backward()
    torch.testing.assert_close(gradients(model), by_scores, rtol=1e-4, atol=1e-7)

    on_the_head = peft.get_peft_model(causal(), peft.LoraConfig(target_modules=["lm_head"], r=2))
    with pytest.raises(ValueError, match="output layer of LlamaForCausalLM must be a plain linear layer; got Linear"):
        without_scores(on_the_head, "mae")


def test_scores_that_are_not_understood_are_refused():
    model = causal()
    forward = model.forward

    def squared(*args, **kwargs):
        outputs = forward(*args, **kwargs)
        outputs.logits = outputs.logits**2
        return outputs

    model.forward = squared
    with pytest.raises(ValueError, match="scores of LlamaForCausalLM are not those of its output layer"):
        without_scores(model, "mae")


def test_a_wrong_plug_gets_one_sentence(tmp_path):
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
