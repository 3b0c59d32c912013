"""Fine-tuning with TRL: as its own losses where both have them, what it logs stays, and in two processes as in one."""

from __future__ import annotations

import pytest
import torch
from forked_processes import free_port, together

pytest.importorskip("trl", reason="trl is not installed")
peft = pytest.importorskip("peft", reason="peft is not installed")

import trl
from datasets import Dataset
from language_models import VOCABULARY, arguments, causal, join_two, moved_by, step, texts
from refusals import all_refused
from tokenizers import Tokenizer, models
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh
from torch.nn import functional as F  # noqa: N812
from transformers import PreTrainedTokenizerFast

import symloss
from symloss.adapters import hf
from symloss.adapters.hf_causal import CausalTrainer, without_scores
from symloss.adapters.trl import KLAnchor, SFTTrainer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the mean probability of the tokens"),  # of models that have learnt nothing
]
ROWS, LENGTH = 8, 12


def tokenizer():
    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(VOCABULARY)}, unk_token="w3"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", bos_token="w1", eos_token="w2")


def data():
    """Texts of which the completion counts, of different lengths."""
    ids = texts(ROWS, LENGTH)[0]
    rows = [row[: LENGTH - number % 5].tolist() for number, row in enumerate(ids)]
    masks = [[0] * 3 + [1] * (len(row) - 3) for row in rows]
    return Dataset.from_dict({"input_ids": rows, "completion_mask": masks})


def trainer(folder, cls=SFTTrainer, *, model=None, steps=1, options=None, **loss):
    config = arguments(folder, trl.SFTConfig, steps=steps, batch=ROWS // steps, bf16=False, **options or {})
    return cls(model or causal(), config, train_dataset=data(), processing_class=tokenizer(), **loss)


@pytest.mark.parametrize(("loss", "kind"), [("ce", "nll"), ("mae", "dft")])
def test_bit_for_bit_as_trl_s_own_losses(loss, kind, tmp_path):
    ours = moved_by(trainer(tmp_path, loss=loss, steps=2))
    theirs = moved_by(trainer(tmp_path, trl.SFTTrainer, steps=2, options={"loss_type": kind}))
    assert ours.any()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("loss", [symloss.GCE(q=0.5), symloss.AEL(a=2.5).loss], ids=["gce", "ael"])
def test_a_loss_is_that_of_the_scores_also_under_accumulation(loss, tmp_path):
    """AEL is not 0 for a certain label, so positions without a label would be seen."""
    model = causal()
    used = trainer(tmp_path, model=model, loss=loss)
    batch = next(iter(used.get_train_dataloader()))
    labels = batch["labels"][:, 1:]
    scores = causal()(batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    wanted = loss(scores.reshape(-1, VOCABULARY), labels.reshape(-1))
    model.train()
    torch.testing.assert_close(used.compute_loss(model, dict(batch)), wanted, rtol=1e-6, atol=1e-6)
    whole = moved_by(used)
    torch.testing.assert_close(moved_by(trainer(tmp_path, loss=loss, steps=4)), whole, rtol=0, atol=1e-6)


def test_metrics_stay_and_the_mean_probability_joins_them(tmp_path):
    options = {"logging_strategy": "steps", "logging_steps": 1}
    both = trainer(tmp_path, loss="ce", options=options), trainer(tmp_path, trl.SFTTrainer, options=options)
    for each in both:
        each.train()
    ours, theirs = (each.state.log_history[0] for each in both)
    for name in ("entropy", "mean_token_accuracy", "num_tokens", "loss", "grad_norm"):
        assert ours[name] == theirs[name], name
    assert ours["mean_token_probability"] == pytest.approx(0.05, abs=0.05)


def test_experts_keep_the_loss_of_their_routers(tmp_path):
    def moved(cls=SFTTrainer, share=5.0, **loss):
        model, options = causal("Mixtral", num_local_experts=4), {"router_aux_loss_coef": share}
        return moved_by(trainer(tmp_path, cls, model=model, steps=2, options=options, **loss))

    theirs = moved(trl.SFTTrainer)
    assert torch.equal(moved(loss="ce"), theirs)
    assert float((moved(share=0.0, loss="ce") - theirs).abs().max()) > 1e-4


@pytest.mark.parametrize(("cls", "loss"), [(SFTTrainer, {"loss": "mae"}), (trl.SFTTrainer, {})], ids=["ours", "trl's"])
def test_margins_of_texts_are_log_odds_of_their_tokens(cls, loss, tmp_path):
    options = {"max_steps": -1, "num_train_epochs": 1, "learning_rate": 0.0, "per_device_train_batch_size": 2}
    used = trainer(tmp_path, cls, options=options, **loss)
    margins = hf.MarginCallback(used)
    used.train()
    for number, row in enumerate(data()):
        ids = torch.tensor(row["input_ids"])
        p = causal()(ids[None]).logits[0, :-1].detach().softmax(-1).gather(1, ids[1:, None])
        assert margins.recorder.margin[number] == pytest.approx(float((p / (1 - p)).log().mean()), abs=1e-4)
    with pytest.raises(ValueError, match="packing must be False"):
        hf.MarginCallback(trainer(tmp_path, cls, options={"packing": True, "max_length": 8}, **loss))


# The anchor.


def divergence(scores, start):
    return F.kl_div(scores.log_softmax(-1), start.log_softmax(-1), log_target=True, reduction="none").sum(-1)


def anchored(model, start, mask, ids):
    """The divergence at the places of the mask, from the scores."""
    return torch.where(mask, divergence(model(ids).logits[:, :-1], start[:, :-1]), 0.0)


@pytest.mark.parametrize("family", ["Llama", "Gemma2"])
def test_the_anchor_is_the_divergence_of_the_scores(family, monkeypatch):
    monkeypatch.setattr("symloss.adapters.trl.BLOCK", 5 * VOCABULARY)  # several blocks
    options = {"head_dim": 8, "final_logit_softcapping": 3.0} if family == "Gemma2" else {}
    model, (ids, labels) = causal(family, **options), texts()
    start = model(ids).logits.detach()
    anchor = KLAnchor(model)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    mask = labels[:, 1:] >= 0
    values = anchored(model, start, mask, ids), anchor({"input_ids": ids}, mask)
    torch.testing.assert_close(*values, rtol=1e-4, atol=1e-6)
    parameters = list(model.parameters())
    slopes = [torch.autograd.grad(each.sum(), parameters, retain_graph=True) for each in values]
    torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-4)


def test_with_peft_the_start_is_the_model_without_its_adapter():
    model, (ids, labels) = causal(), texts()
    start = model(ids).logits.detach()
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2, init_lora_weights=False))
    anchor = KLAnchor(adapted.train())
    mask = labels[:, 1:] >= 0
    wanted = anchored(adapted, start, mask, ids)
    torch.testing.assert_close(anchor({"input_ids": ids}, mask), wanted, rtol=1e-4, atol=1e-6)
    assert float(wanted.sum().detach()) > 1e-3
    assert adapted.get_base_model().training
    noisy = causal(attention_dropout=0.5).train()
    anchor = KLAnchor(noisy)  # whose start has no dropout
    noisy.eval()(ids)
    assert float(anchor({"input_ids": ids}, torch.ones(4, 11, dtype=torch.bool)).detach().abs().max()) < 1e-6


def test_the_anchor_holds_a_model_back(tmp_path):
    def drift(strength):
        model, ids = causal(), texts(ROWS, LENGTH)[0]
        start = model(ids).logits.detach()
        options = {"max_steps": 20, "learning_rate": 0.05, "logging_strategy": "steps", "logging_steps": 20}
        used = trainer(tmp_path, model=model, loss="ce", kl_anchor=strength, options=options)
        used.train()
        return float(divergence(model.eval()(ids).logits, start).mean().detach()), used.state.log_history[0]

    free, logs = drift(0.0)
    held, anchored_logs = drift(2.0)
    assert held < free / 2
    assert "kl_anchor" not in logs
    assert anchored_logs["kl_anchor"] > 0


# What is refused, and what is warned about.


def test_a_warning_where_cross_entropy_learns_better(tmp_path):
    with torch.no_grad():
        flat = causal()
        flat.get_output_embeddings().weight.zero_()  # every token has the probability 1 / 61
    with pytest.warns(UserWarning, match=r"mean probability of the tokens is 0\.016; there .*MAE.* 0\.016 times"):
        moved_by(trainer(tmp_path, model=flat, loss="mae"))


def test_a_wrong_plug_gets_one_sentence(tmp_path):
    def train(loss="mae", **options):
        return lambda: trainer(tmp_path, loss=loss, options=options)

    all_refused(
        (ValueError, "sgce needs more than the label's log-probability, because of symmetrize", train("sgce")),
        (ValueError, "because of normalize='l2'", train("gce:normalize=l2")),
        (ValueError, "loss_type must be 'nll'", train(loss_type="dft")),
        (ValueError, "label_smoothing_factor must be 0", train(label_smoothing_factor=0.1)),
        (ValueError, "compute_loss_func must be", lambda: trainer(tmp_path, loss="mae", compute_loss_func=print)),
    )


# Trainers in two processes move the weights as one does, though the processes hold different numbers of labels.


def moved(folder, processes=1):
    """How far an update by all rows moves the weights in each trainer."""
    ids, labels = texts(ROWS)
    labels[: ROWS // 2, 2:-1] = -100  # so that a mean of means is not the mean
    size = {"per_device_train_batch_size": ROWS // processes}
    return {
        "Trainer": step(folder, causal(), (ids, labels), processes=processes, compute_loss_func=hf.loss("gce")),
        "CausalTrainer": step(folder, causal(), (ids, labels), CausalTrainer, processes=processes, loss="gce"),
        "SFTTrainer": moved_by(trainer(folder, options=size, loss="gce", kl_anchor=0.1)),
    }


def work(rank, answers, folder, port):
    join_two(rank, port)
    found = {name: each.numpy() for name, each in moved(folder, processes=2).items()}
    answers.put((rank, found | {"sharded": sharded_gradients(rank)}))


def sharded_gradients(rank):
    """The gradients of a model whose weights are spread over the processes, each with half of the rows."""
    ids, labels = texts(ROWS)
    model, mesh = without_scores(causal(), "gce"), init_device_mesh("cpu", (2,))
    fully_shard(model.lm_head, mesh=mesh)  # so that its weights are in pieces when the loss is computed
    fully_shard(model, mesh=mesh)
    mine, items = slice(rank, None, 2), (labels[:, 1:] >= 0).sum() / 2  # FSDP takes the mean over processes
    model(ids[mine], labels=labels[mine], num_items_in_batch=items).loss.backward()
    return {name: each.grad.full_tensor().numpy() for name, each in model.named_parameters()}


def test_two_processes_move_the_weights_as_one_does(tmp_path):
    found = together(work, (str(tmp_path), free_port()))
    for name, alone in moved(tmp_path).items():
        assert alone.any()
        for rank in range(2):
            torch.testing.assert_close(torch.from_numpy(found[rank][name]), alone, rtol=0, atol=1e-6)
    model, (ids, labels) = causal(), texts(ROWS)
    hf.loss("gce")(model(ids), labels).backward()
    for name, whole in model.named_parameters():
        torch.testing.assert_close(torch.from_numpy(found[0]["sharded"][name]), whole.grad, rtol=0, atol=1e-6)
