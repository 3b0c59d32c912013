"""Compare gradients of losses of unit scores with that of cross-entropy, by the number of classes.

    python benchmarks/many_classes.py
    python benchmarks/many_classes.py --classes 10 100    # seconds

Each figure is the mean norm of the gradient in the scores, divided by that of cross-entropy on the same raw scores.
Scores and labels are drawn at random from a fixed seed, as at the start of training, so the figures are the same on
every machine up to rounding.
"""

from __future__ import annotations

import warnings
from typing import Any

import measure
import torch
from torch import Tensor

import symloss

CLASSES = (10, 100, 1_000, 50_257, 151_936)
EXAMPLES = 32
WAYS: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    '`temperature="auto"`': {"temperature": "auto"},
    '`scale="ce"`': {"scale": "ce"},
    "both": {"temperature": "auto", "scale": "ce"},
    "`normalize=None`": {"normalize": None},
}
LOSSES = ("unhinged", "sgce", "alpha-mae", "alpha-mae:kappa=2")


def size(loss: str, scores: Tensor, labels: Tensor, **options: Any) -> float:
    """Return the mean norm of the gradient of an example."""
    z = scores.clone().requires_grad_()
    symloss.create_loss(loss, reduction="sum", **options)(z, labels).backward()
    assert z.grad is not None
    return float(z.grad.norm(dim=1).mean())


def ratios(classes: int) -> dict[tuple[str, str], float]:
    """Return the size of each loss's gradient as a multiple of cross-entropy's."""
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(EXAMPLES, classes, dtype=torch.float64, generator=draw)
    labels = torch.randint(classes, (EXAMPLES,), generator=draw)
    whole = size("ce", scores, labels)
    return {
        (loss, way): size(loss, scores, labels, **options) / whole for loss in LOSSES for way, options in WAYS.items()
    }


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES, metavar="C", help="numbers of classes")
    numbers = parser.parse_args().classes
    warnings.simplefilter("ignore")  # of many classes at temperature 1, which is what is measured
    found = {classes: ratios(classes) for classes in numbers}
    measure.print_table(
        ("loss", "scores", *(f"{classes:,}" for classes in numbers)),
        ((loss, way, *(f"{found[c][loss, way]:.2g}" for c in numbers)) for loss in LOSSES for way in WAYS),
        left=2,
    )


if __name__ == "__main__":
    main()
