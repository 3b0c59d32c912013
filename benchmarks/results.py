"""Write RESULTS.md from what the benchmarks printed: python results.py losses.json heads.json training.json"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from symloss.bench.head_speed import HEADS
from symloss.bench.loss_speed import limit, loss_failures

LIMITS = [
    "What limits losses that miss their target: at 128 x 10 the number of operations, since each call of torch has "
    "its price however few numbers it gets; at 1024 x 50000 the page faults of a fresh tensor of that size; at 4096 x "
    "1000, in the default regime, whether the C library hands out recycled pages or fresh ones.",
    "",
    "The tables of losses and heads are of version 0.1. Since then masked labels are looked for, the unhinged loss "
    "keeps its digits under a common shift, SGCE the gradient of a wrong class that leads, and losses serve every "
    "device, so that other figures are to be expected today. The targets were set on the machine above.",
]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def losses(data: dict[str, Any]) -> list[str]:
    rows = data["results"]
    short = {"default": "default", "fresh pages": "fresh"}
    heads = [f"{row['n']} x {row['c']}, {short[row['regime']]}" for row in rows]
    lines = [_row("loss", *heads), "|---|" + "---:|" * len(rows)]
    milliseconds = [f"{1e3 * row['seconds']['torch cross_entropy']:.3g}" for row in rows]
    lines.append(_row("torch cross_entropy, ms", *milliseconds))
    for name in list(rows[0]["ratios"])[1:]:
        lines.append(_row(name, *(_cell(row, name) for row in rows)))
    faults = [f"{row['page_faults']['torch cross_entropy']:.0f} / {row['page_faults']['gce']:.0f}" for row in rows]
    return [*lines, _row("page faults, cross_entropy / gce", *faults)]


def _cell(row: dict[str, Any], name: str) -> str:
    ratio, most = row["ratios"][name], limit(name, (row["n"], row["c"]))
    missed = row["regime"] == "default" and ratio > most
    return f"{ratio:.2f} ({most:g})" if missed else f"{ratio:.2f}"


def heads(data: dict[str, Any]) -> list[str]:
    counts = sorted({row["c"] for row in data["alone"]})
    found = {(row["way"], row["c"]): row for row in data["alone"]}
    lines = [_row("way", "ratio at 50,000", *(f"C {c:,}" for c in counts)), "|---|" + "---:|" * (1 + len(counts))]
    for way in HEADS:
        cells = [found.get((way, c)) for c in counts]
        texts = [f"{c['seconds']:.3f} s, {c['extra_bytes'] / 1e6:,.0f} MB" if c else "-" for c in cells]
        lines.append(_row(way, f"{data['at_50000']['ratios'][way]:.3f}", *texts))
    return lines


def page(loss: dict[str, Any], head: dict[str, Any], training: dict[str, Any]) -> list[str]:
    e = loss["environment"]
    missed = loss_failures([row for row in loss["results"] if row["regime"] == "default"])
    first = training["rounds"][0]
    return [
        "# Results",
        "",
        f"{e['processor']}, {e['threads']} threads, {e['system']}, Python {e['python']}, torch {e['torch']}; a virtual "
        "machine with 2 cores and 24 GiB, no GPU. float32, eager mode, forward and backward. Written by `results.py`.",
        "",
        "## Losses",
        "",
        "`symloss bench losses`: ratios to `F.cross_entropy` in the same run; medians of 15 interleaved runs after a "
        "warm-up (150 short ones at 128 x 10), each size and regime in a process of its own. *default*: memory as the "
        "C library hands it out. *fresh*: every large tensor gets fresh pages. In brackets the target where it is "
        "missed (in the default "
        f"regime: {len(missed)} of {3 * (len(loss['results'][0]['ratios']) - 1)}).",
        "",
        *losses(loss),
        "",
        *LIMITS,
        "",
        "## Heads",
        "",
        "`symloss bench heads`: a linear layer and a loss, N 1024, d 256. Ratio: medians of 11 interleaved runs at "
        "C = 50,000. Seconds (best of 3) and memory beyond features, parameters and their gradients: peak of a process "
        "of its own for each cell. Ways that form all scores are not run beyond 200,000 classes.",
        "",
        *heads(head),
        "",
        "## Training",
        "",
        f"`symloss bench training --rounds {len(training['rounds'])} --steps {first['steps']}`: {first['model']} on "
        f"{first['data']}, batch {first['batch']}, loop and bare step in turns: the loop reaches "
        f"{100 * training['speed']:.1f} % of the bare step's speed (median of the rounds).",
    ]


def others(before: str) -> str:
    """The last sections of the page as they are: those of `symloss bench tokens` and counted.py."""
    _, heading, sections = before.partition("\n## Heads of a language model")
    return heading + sections


if __name__ == "__main__":
    parts = [json.loads(Path(name).read_text()) for name in sys.argv[1:4]]
    path = Path(__file__).with_name("RESULTS.md")
    path.write_text("\n".join(page(*parts)) + "\n" + others(path.read_text()))
