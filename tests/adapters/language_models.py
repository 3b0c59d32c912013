"""Tiny models of language and texts with random weights, what they learn from, and one step of a Trainer."""

from __future__ import annotations

import os

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers.utils import logging

logging.disable_progress_bar()
logging.set_verbosity_error()

VOCABULARY = 61
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
"""As Llama's configuration calls them."""
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WORDS = ["the", "red", "blue", "green", "sky", "sea", "rose", "leaf", "is", "of", "was", "very", "bright", "dark"]


def causal(name="Llama", **options):
    """A causal model by the name of its family."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES | options)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # sharper than at the start, so that the scores differ
        model.get_output_embeddings().weight.mul_(20)
    return model.eval()


def classifier(name, labels=3, **options):
    """A classifier of sequences or tokens by the name of its class."""
    torch.manual_seed(0)
    cls = getattr(transformers, name)
    sizes = {k: v for k, v in SIZES.items() if k != "num_key_value_heads"}
    sizes |= STILL if cls.config_class is transformers.BertConfig else {}
    return cls(cls.config_class(**sizes, num_labels=labels, **options)).eval()


def texts(rows=4, length=12, seed=0):
    """Tokens (rows, length), and labels of which the first and last are padding in some rows."""
    tokens = torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))
    labels = tokens.clone()
    labels[::2, :3] = -100
    labels[1::3, -4:] = -100
    return tokens, labels


def rows_of(ids, labels):
    """A data set for a Trainer."""
    return [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]


def gradients(model):
    """All gradients of a model in one vector."""
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def weights(model):
    """All parameters of a model in one vector."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def arguments(folder, cls=transformers.TrainingArguments, *, steps=1, batch=2, **options):
    """One update of plain gradient descent with the rate 1: the weights move by the gradient of the whole batch."""
    plain = {
        "learning_rate": 1.0, "lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0.0, "max_steps": 1,
        "use_cpu": True, "seed": 0, "dataloader_pin_memory": False,
        "report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True,
    }  # fmt: skip
    sizes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": steps}
    return cls(output_dir=str(folder), **plain | sizes | options)


def moved_by(trainer):
    """How far an update moves the weights of the trainer's model."""
    before = weights(trainer.model)
    trainer.train()
    return before - weights(trainer.model)


def step(folder, model, data, cls=transformers.Trainer, *, steps=1, processes=1, **loss):
    """How far an update by all rows moves the weights, if they come in so many steps and processes."""
    rows = rows_of(*data)
    options = arguments(folder, steps=steps, batch=len(rows) // steps // processes)
    return moved_by(cls(model, options, train_dataset=rows, **loss))


def write_bert(folder, cls=transformers.BertModel, **options):
    """A BERT of two layers without dropout, and its tokenizer, as sentence-transformers loads them from a folder."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(special + WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ends)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **names)
    fast.save_pretrained(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    vocabulary = len(special) + len(WORDS)
    cls(cls.config_class(vocab_size=vocabulary, **sizes, **STILL, **options)).save_pretrained(folder)
    return str(folder)


def columns(count, rows=6):
    """Columns of texts: "rose is dark", ..."""
    random = torch.Generator().manual_seed(3)
    pick = torch.randint(len(WORDS), (count, rows, 3), generator=random).tolist()
    return [[" ".join(WORDS[k] for k in text) for text in column] for column in pick]


def join_two(rank, port):
    """Make this process one of the two of a Trainer, with one thread."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    torch.set_num_threads(1)
