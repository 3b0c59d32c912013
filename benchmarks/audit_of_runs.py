"""Measure how well the audit of a run finds mislabelled examples.

    python benchmarks/audit_of_runs.py                                          # about five minutes
    python benchmarks/audit_of_runs.py --losses ce --noise clean --seeds 1      # seconds

Each loss is trained on digits with each noise, as ``symloss train --data digits --noise N --loss L --seed S`` does, and
the run is audited, as ``symloss audit RUN`` does. The columns: average precision of the ranking; distance of the
estimated share of wrong labels to the true one, in points of per cent; F1 of the flags; and, of the labels that are
flagged and wrong, how many get their true class suggested.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import measure
import torch

from symloss.experiments import resolve
from symloss.fit.audit.models import audit_run
from symloss.fit.audit.scores import Audit
from symloss.training import train

LOSSES = ("alpha-mae", "gce", "ce")
NOISE = ("sym:0.4", "sym:0.6", "asym:0.4", "pair:0.3", "instance:0.4", "clean")


def audited(loss: str, noise: str, seed: int) -> Audit:
    """Train a run and return its audit."""
    with tempfile.TemporaryDirectory() as folder:
        train(resolve("digits", loss, noise=noise, seed=seed), Path(folder) / "run", accelerator="cpu")
        return audit_run(Path(folder) / "run").audit


def measures(audit: Audit) -> tuple[float | None, ...]:
    """Return the four figures of a run; None where no label is wrong."""
    wrong = audit.really_wrong
    assert wrong is not None
    error = 100 * abs(audit.n_wrong - wrong) / len(audit)
    if not wrong:
        return None, error, None, None
    assert audit.truth is not None
    found = audit.flagged & (audit.given != audit.truth)
    f1 = 2 * found.sum() / (audit.flagged.sum() + wrong)
    return audit.average_precision, error, float(f1), float((audit.suggested == audit.truth)[found].mean())


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--losses", nargs="+", default=LOSSES, metavar="SPEC", help="losses to train with")
    parser.add_argument("--noise", nargs="+", default=NOISE, metavar="SPEC", help="clean, sym:0.4 ...")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)

    def line(loss: str, noise: str) -> list[str]:
        runs = [measures(audited(loss, noise, seed)) for seed in range(chosen.seeds)]
        columns = zip(zip(*runs, strict=True), (3, 1, 3, 3), strict=True)
        return [loss, noise, *(measure.spread(column, digits) for column, digits in columns)]

    measure.print_table(
        ("loss", "noise", "average precision", "error of the share", "F1", "right suggestions"),
        (line(loss, noise) for loss in chosen.losses for noise in chosen.noise),
        left=2,
    )


if __name__ == "__main__":
    main()
