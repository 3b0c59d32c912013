"""Learn contrastively from pairs some of which don't belong together.

    python benchmarks/wrong_pairs.py
    python benchmarks/wrong_pairs.py --losses mae --noise 0.3 --seeds 1 --epochs 1    # seconds

A pair is the upper and the lower half of a digit of scikit-learn. In a share of the 1,297 training pairs the lower half
is that of another digit, drawn at random. Two small networks embed the halves, with ``RobustInfoNCE`` in batches of 64.
The figure is the share of the 500 test digits whose lower half is among the ten most similar of all 500. Chance is 2 %.
"""

from __future__ import annotations

import measure
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn

from symloss.adapters.sentence_transformers import RobustInfoNCE

LOSSES = ("ce", "gce:q=0.3", "gce:q=0.7", "mae", "sgce:q=0.7", "nce+rce", "unhinged")
NOISE = (0.0, 0.3, 0.6)
TRAIN, BATCH, NEAREST = 1297, 64, 10


class Halves(nn.Module):
    """An encoder for upper halves and one for lower halves, called as a SentenceTransformer is."""

    def __init__(self) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict({half: self._encoder() for half in ("upper", "lower")})

    @staticmethod
    def _encoder() -> nn.Module:
        return nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        ((half, pixels),) = features.items()
        return {"sentence_embedding": self.encoders[half](pixels)}


def found(loss: str, noise: float, seed: int, epochs: int) -> float:
    """Return the share of test digits, in per cent, whose lower half is among the ten most similar ones."""
    torch.manual_seed(seed)
    upper, lower = (torch.tensor(load_digits().data, dtype=torch.float32) / 16).split(32, dim=1)  # type: ignore[no-untyped-call]
    order = torch.randperm(len(upper))
    train, test = order[:TRAIN], order[TRAIN:]
    partner = torch.where(torch.rand(TRAIN) < noise, train[torch.randint(TRAIN, (TRAIN,))], train)
    model = Halves()
    criterion, optimizer = RobustInfoNCE(model, loss), torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(TRAIN)[: TRAIN - TRAIN % BATCH], BATCH):
            optimizer.zero_grad()
            criterion([{"upper": upper[train[batch]]}, {"lower": lower[partner[batch]]}]).backward()
            optimizer.step()
    with torch.no_grad():
        anchors, candidates = (
            nn.functional.normalize(model({name: half[test]})["sentence_embedding"])
            for name, half in (("upper", upper), ("lower", lower))
        )
    similarity = anchors @ candidates.T
    rank = (similarity > similarity.diagonal()[:, None]).sum(1)
    return 100 * float((rank < NEAREST).float().mean())


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--losses", nargs="+", default=LOSSES, metavar="SPEC", help=f"default: {' '.join(LOSSES)}")
    parser.add_argument("--noise", type=float, nargs="+", default=NOISE, help="shares of wrong pairs")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    parser.add_argument("--epochs", type=int, default=60, help="number of epochs (default: 60)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)

    def cell(loss: str, noise: float) -> str:
        return measure.spread((found(loss, noise, seed, chosen.epochs) for seed in range(chosen.seeds)), 1)

    measure.print_table(
        ("loss", *(f"{noise:.0%} wrong pairs" for noise in chosen.noise)),
        ((loss, *(cell(loss, noise) for noise in chosen.noise)) for loss in chosen.losses),
    )


if __name__ == "__main__":
    main()
