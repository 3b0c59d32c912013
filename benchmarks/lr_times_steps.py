"""Measure whether the learning rate should grow as the number of steps falls.

    python benchmarks/lr_times_steps.py --data digits
    python benchmarks/lr_times_steps.py --data mnist --data-dir FOLDER

A part of the data is trained for as many epochs as the whole, so in fewer steps: with the learning rate of the whole,
with one that is higher by the same factor (learning rate times steps stays the same), and with one in between. Finished
runs are kept in docs/results/lr-times-steps.jsonl and are not trained again.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import measure

from symloss.experiments import resolve
from symloss.training import train
from symloss.training.reading import keep, read_kept
from symloss.training.results import Result, in_percent
from symloss.training.settings import Settings

KEPT = Path(__file__).parents[1] / "docs" / "results" / "lr-times-steps.jsonl"
FACTORS = {"digits": 4, "mnist": 10}
"""By how much the part is smaller than the whole."""
SIZES = {"digits": 1437, "mnist": 60_000}
LOSSES = ("ce", "gce", "mae", "unhinged", "sgce", "alpha-mae")


def settings_of(data: str, loss: str, noise: str, seed: int, power: float) -> Settings:
    """Return a run on the part of the data, with the learning rate of the whole times factor ** power."""
    usual = resolve(data, loss)
    factor = FACTORS[data]
    return resolve(
        data, loss, noise=noise, seed=seed, validation=0.0, subset=SIZES[data] // factor, lr=usual.lr * factor**power
    )


def trained(settings: Settings, data_dir: Path | None) -> Result:
    """Return the kept result of a run, or train it."""
    kept = read_kept(KEPT).get(settings.key)
    if kept is not None:
        return kept
    with tempfile.TemporaryDirectory() as folder:
        result = train(settings, Path(folder) / "run", root=data_dir, accelerator="cpu")
    keep(KEPT, [result])
    return result


def lines(data: str, losses: Sequence[str], noises: Sequence[str], seeds: int, data_dir: Path | None) -> Iterator[str]:
    """Yield a line of a Markdown table for each loss and noise: the accuracy for each learning rate."""
    factor = FACTORS[data]
    yield measure.header(
        f"{data}, 1/{factor}", "noise", "lr", f"lr x {math.sqrt(factor):.3g}", f"lr x {factor}", left=2
    )
    for noise in noises:
        for loss in losses:
            cells = []
            for power in (0.0, 0.5, 1.0):
                runs = [trained(settings_of(data, loss, noise, seed, power), data_dir) for seed in range(seeds)]
                spread = in_percent(run.last.test_accuracy for run in runs)
                assert spread is not None
                cells.append(spread.text)
            yield measure.row(loss, noise, *cells)


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--data", choices=list(FACTORS), default="digits", help="data set (default: digits)")
    parser.add_argument("--losses", nargs="+", default=LOSSES, metavar="SPEC", help=f"default: {' '.join(LOSSES)}")
    parser.add_argument(
        "--noise", nargs="+", default=("clean", "sym:0.4"), metavar="SPEC", help="default: clean sym:0.4"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--data-dir", type=Path, help="folder with MNIST")
    given = parser.parse_args()
    for line in lines(given.data, given.losses, given.noise, given.seeds, given.data_dir):
        print(line, flush=True)


if __name__ == "__main__":
    main()
