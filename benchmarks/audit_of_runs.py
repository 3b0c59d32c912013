"""How well the audit of a run finds wrong labels: python benchmarks/audit_of_runs.py (about five minutes)

Each loss is trained on digits with each noise, as ``symloss train --data digits --noise N --loss L --seed S`` does, and
the run is audited, as ``symloss audit RUN`` does. ``--losses``, ``--noise`` and ``--seeds`` take other values. The
columns: average precision of the ranking; distance of the estimated share of wrong labels to the true one, in points
of per cent; F1 of the flags; and, of the labels that are flagged and wrong, how many get their true class suggested.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from symloss.experiments import resolve
from symloss.fit.audit.models import audit_run
from symloss.fit.audit.scores import Audit
from symloss.training import train
from symloss.training.results import spread

LOSSES = ("alpha-mae", "gce", "ce")
NOISE = ("sym:0.4", "sym:0.6", "asym:0.4", "pair:0.3", "instance:0.4", "clean")


def audited(loss: str, noise: str, seed: int) -> Audit:
    """The audit of a run that is trained for it."""
    with tempfile.TemporaryDirectory() as folder:
        train(resolve("digits", loss, noise=noise, seed=seed), Path(folder) / "run", accelerator="cpu")
        return audit_run(Path(folder) / "run").audit


def measures(audit: Audit) -> tuple[float | None, ...]:
    """The four figures of a run; None where no label is wrong."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", nargs="+", default=LOSSES)
    parser.add_argument("--noise", nargs="+", default=NOISE)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| loss | noise | average precision | error of the share | F1 | right suggestions |")
    print("|---|---|---:|---:|---:|---:|")
    for loss in chosen.losses:
        for noise in chosen.noise:
            runs = [measures(audited(loss, noise, seed)) for seed in range(chosen.seeds)]
            columns = [spread(column) for column in zip(*runs, strict=True)]
            cells = [known.rounded(n) if known else "" for known, n in zip(columns, (3, 1, 3, 3), strict=True)]
            print(f"| {loss} | {noise} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
