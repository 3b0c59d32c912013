"""Tiny text models with random weights and words of their own, as sentence-transformers loads them from a folder."""

from __future__ import annotations

import datasets
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers.utils import logging

logging.disable_progress_bar()
logging.set_verbosity_error()
datasets.disable_progress_bars()

WORDS = ["the", "red", "blue", "green", "sky", "sea", "rose", "leaf", "is", "of", "was", "very", "bright", "dark"]


def write_bert(folder, cls=transformers.BertModel, **options):
    """A BERT of two layers without dropout, and its tokenizer."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(special + WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ends)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **names).save_pretrained(
        folder
    )
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    torch.manual_seed(0)
    vocabulary = len(special) + len(WORDS)
    cls(cls.config_class(vocab_size=vocabulary, **sizes, **still, **options)).save_pretrained(folder)
    return str(folder)


def columns(count, rows=6):
    """Columns of texts: "rose is dark", ..."""
    random = torch.Generator().manual_seed(3)
    pick = torch.randint(len(WORDS), (count, rows, 3), generator=random).tolist()
    return [[" ".join(WORDS[k] for k in text) for text in column] for column in pick]
