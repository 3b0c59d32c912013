"""A small language model on a text with wrong bytes: cross-entropy, GCE and MAE, measured on clean text.

    python benchmarks/noisy_tokens.py --out docs/results/tokens    # 75 minutes of one core
    python benchmarks/noisy_tokens.py --out tokens --tiny          # whether it runs

The text is the source code of symloss. A model of bytes learns it with 30 % of the bytes replaced by others, from the
start ("scratch") or after it has learnt another part of the text without noise ("tuned"). Rows that are finished are
kept, one JSON file each, and the table is printed from them.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments
from transformers.utils import logging

import symloss
from symloss.adapters.hf_causal import CausalTrainer
from symloss.environment import versions
from symloss.writing import write_whole

LOSSES = ("ce", "gce:q=0.3", "gce:q=0.7", "mae")
STARTS = ("scratch", "tuned")
NOISE = 0.3
WINDOW = 128
"""Bytes of a training example."""


@dataclass(frozen=True)
class Plan:
    """How much is trained.

    Args:
        steps: updates on the noisy text.
        clean_steps: updates on the clean text before, for a model that is tuned.
        width: of the model.
        layers: of the model.
        batch: examples of an update.
        seeds: how many.
        most: so many examples of each part are used; None for all.
    """

    steps: int = 800
    clean_steps: int = 2000
    width: int = 128
    layers: int = 3
    batch: int = 16
    seeds: int = 3
    most: int | None = None


TINY = Plan(steps=2, clean_steps=2, width=16, layers=1, seeds=1, most=64)


def text() -> np.ndarray:
    """Return the source code of the package as bytes."""
    folder = Path(str(symloss.__file__)).parent
    whole = b"".join(path.read_bytes() for path in sorted(folder.rglob("*.py")))
    return np.frombuffer(whole, dtype=np.uint8)


def parts(whole: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Examples to learn from without noise, with noise, and to test on: of ten blocks of the text 4, 5 and 1."""
    blocks = whole[: len(whole) // (10 * WINDOW * 8) * 10 * WINDOW * 8].reshape(-1, 10, 8, WINDOW)
    return tuple(blocks[:, part].reshape(-1, WINDOW) for part in (slice(0, 4), slice(4, 9), slice(9, 10)))  # type: ignore[return-value]


def corrupted(examples: np.ndarray, alphabet: np.ndarray, seed: int) -> np.ndarray:
    """Return the examples with 30 % of the bytes replaced by another byte of the alphabet."""
    random = np.random.default_rng(seed)
    places = np.searchsorted(alphabet, examples)
    shift = random.integers(1, len(alphabet), examples.shape)
    return np.where(random.random(examples.shape) < NOISE, alphabet[(places + shift) % len(alphabet)], examples)


def model(plan: Plan, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=256, hidden_size=plan.width, intermediate_size=3 * plan.width, num_hidden_layers=plan.layers,
        num_attention_heads=4, max_position_embeddings=WINDOW, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def learn(net: LlamaForCausalLM, examples: np.ndarray, loss: str, steps: int, plan: Plan, seed: int) -> None:
    rows = [{"input_ids": row, "labels": row} for row in torch.from_numpy(examples.astype(np.int64))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=plan.batch, learning_rate=2e-3,
            warmup_steps=steps // 20, lr_scheduler_type="cosine", weight_decay=0.01, seed=seed, use_cpu=True,
            disable_tqdm=True, report_to="none", save_strategy="no", logging_strategy="no", dataloader_pin_memory=False,
        )  # fmt: skip
        CausalTrainer(net, arguments, train_dataset=rows, loss=loss).train()


@torch.no_grad()
def measured(net: LlamaForCausalLM, examples: np.ndarray) -> dict[str, float]:
    """Perplexity, accuracy and the mean probability of the right byte."""
    net.eval()
    found = []
    for rows in torch.split(torch.from_numpy(examples.astype(np.int64)), 64):
        log_probs: Tensor = net(rows).logits[:, :-1].log_softmax(-1)
        right = log_probs.gather(-1, rows[:, 1:, None])[..., 0]
        found.append(torch.stack([-right, right.exp(), (log_probs.argmax(-1) == rows[:, 1:]).float()]).flatten(1))
    nll, probability, accuracy = torch.cat(found, 1).mean(1).tolist()
    return {"perplexity": float(np.exp(nll)), "accuracy": accuracy, "mean_probability": probability}


def runs(plan: Plan, folder: Path) -> None:
    """Train and measure what is missing in the folder."""
    whole = text()
    clean, noisy, test = (part[: plan.most] for part in parts(whole))
    alphabet = np.unique(whole)
    about = versions() | {
        "text": hashlib.sha256(whole.tobytes()).hexdigest()[:16],
        "bytes": len(whole),
        "plan": vars(plan),
    }
    for seed in range(plan.seeds):
        wrong = corrupted(noisy, alphabet, seed)
        before = None
        for start in STARTS:
            for loss in LOSSES:
                path = folder / f"{start}-{loss.replace(':', '-')}-{seed}.json"
                if path.exists():
                    continue
                net = model(plan, seed)
                began = time.process_time()
                if start == "tuned":
                    if before is None:
                        learn(net, clean, "ce", plan.clean_steps, plan, seed)
                        before = {name: value.clone() for name, value in net.state_dict().items()}
                    net = model(plan, seed)
                    net.load_state_dict(before)
                row = {"start": start, "loss": loss, "seed": seed, "before": measured(net, test)}
                learn(net, wrong, loss, plan.steps, plan, seed)
                row |= measured(net, test) | {"cpu_seconds": time.process_time() - began, "about": about}
                write_whole(path, json.dumps(row, indent=1).encode())
                print(start, loss, seed, {k: round(v, 3) for k, v in row.items() if isinstance(v, float)}, flush=True)


def table(rows: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Markdown: mean and standard deviation over the seeds."""
    yield measure.header("start", "loss", "clean perplexity", "clean accuracy", "mean p", "seeds", left=2)
    for start in STARTS:
        mine = [row for row in rows if row["start"] == start]
        cells = {"before": [row["before"] for row in mine if row["loss"] == LOSSES[0]]}
        cells |= {loss: [row for row in mine if row["loss"] == loss] for loss in LOSSES}
        for name, cell in cells.items():
            if cell:
                factors = {"perplexity": 1, "accuracy": 100, "mean_probability": 1}
                columns = (measure.spread((f * row[key] for row in cell), 2) for key, f in factors.items())
                yield measure.row(start, name, *columns, len(cell))


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the finished rows")
    parser.add_argument("--seeds", type=int, default=Plan.seeds, help="number of seeds (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="a few steps of a tiny model: whether it runs")
    parser.add_argument("--show", action="store_true", help="print the table of the finished rows, and train nothing")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if not options.show:
        runs(TINY if options.tiny else replace(Plan(), seeds=options.seeds), options.out)
    print("\n".join(table([json.loads(path.read_text()) for path in sorted(options.out.glob("*.json"))])))


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
