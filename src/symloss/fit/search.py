"""Try all candidates that the budget allows: cheap learners one by one, networks by successive halving."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

from symloss.fit.choice import Epochs, Judged, judged, ranked
from symloss.fit.cost import HALVED, seconds
from symloss.fit.held_out import LearnerFailed, Trainer, network_predictions
from symloss.fit.learners import Candidate, Shape, candidates
from symloss.fit.networks import Factory, NetworkSchedule
from symloss.fit.training_data import Split, rows_held_out
from symloss.writing import clear_write_errors, write_whole

LOSSES = ("alpha-mae", "mae", "gce", "sgce", "ce", "alpha-mae:alpha=5")
"""The losses that networks try by default."""
WEIGHT_DECAYS = (1e-3, 0.1)
LINEAR_LOSSES, DECAYS = ("gce", "elr:strength=3", "elr:strength=1"), (10.0, 1.0)
"""What linear layers try."""
RUNGS = (0.2, 0.4)
"""After these shares of the epochs the worse half of the networks is given up."""
FEWEST_EPOCHS = 3
Arrays = dict[str, np.ndarray[Any, Any]]
SHARE = 0.75
"""Of the budget, for networks. The other learners have the rest."""
STOPS_AT = 0.5
"""The share of the epochs after which a network that was chosen stops, about."""


class Memory:
    """Keeps arrays by name in a folder, if there is one. Other data or settings (``about``) have other names."""

    def __init__(self, folder: Path | str | None, about: Sequence[Any] = ()):
        self.folder = None if folder is None else Path(folder)
        self.key = "" if folder is None else _digest(about)

    def recall(self, name: str) -> Arrays | None:
        """Return the arrays of this name; None if there are none, or their file is damaged."""
        path = self._path(name)
        if path is None or not path.is_file():
            return None
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as found:
                return dict(found)
        except Exception:  # a damaged archive raises anything from BadZipFile to zlib.error
            return None

    def keep(self, name: str, arrays: Arrays) -> None:
        """Write arrays under a name."""
        path = self._path(name)
        if path is None:
            return
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        with clear_write_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.getvalue())

    def _path(self, name: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{hashlib.sha256((self.key + name).encode()).hexdigest()[:20]}.npz"


def _digest(about: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for part in about:
        if sparse.issparse(part):
            for array in (part.data, part.indices, part.indptr):
                digest.update(np.ascontiguousarray(array).data)
        elif isinstance(part, np.ndarray):
            digest.update(repr((part.dtype, part.shape)).encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class NetworkPlan:
    """How networks are tried."""

    folds: int
    judged: int  # the number of folds that judge the candidates
    candidates: int  # the number of networks to try
    leaders: int  # the most networks that are averaged, and learn from corrected labels
    rounds: int  # how often they learn
    epochs: float = 1.0  # the share of the ordinary epochs that a training has
    # whether the networks that predict are trained on all rows. With few folds, the folds' networks have seen too
    # little
    refit: bool = False

    @property
    def trainings(self) -> float:
        """What it costs, in ordinary trainings on all rows."""
        tried = self.candidates * (HALVED if self.candidates > 3 else 1.0)
        search = tried * self.judged * (1 - 1 / self.folds)
        learnt = self.leaders * (self.rounds * (self.folds - 1) + self.refit + self._checks)
        return self.epochs * (search + STOPS_AT * learnt)

    @property
    def _checks(self) -> float:
        """What it costs to find out whether corrections help, for one leader."""
        if self.rounds == 1 or self.folds == 2:
            return 0.0
        pairs = self.judged * (2 * self.folds - self.judged - 1) / 2
        ways = 1 + (self.rounds > 2)
        return pairs * (1 - 2 / self.folds) + ways * self.judged * (1 - 1 / self.folds)


PLANS = (
    NetworkPlan(folds=5, judged=5, candidates=12, leaders=5, rounds=3),
    NetworkPlan(folds=5, judged=5, candidates=6, leaders=3, rounds=3),
    NetworkPlan(folds=5, judged=5, candidates=6, leaders=3, rounds=3, epochs=0.5),
    NetworkPlan(folds=5, judged=5, candidates=4, leaders=2, rounds=2, epochs=0.4),
    NetworkPlan(folds=5, judged=1, candidates=3, leaders=1, rounds=2, epochs=1 / 3),
    NetworkPlan(folds=3, judged=1, candidates=2, leaders=1, rounds=2, epochs=1 / 3, refit=True),
    NetworkPlan(folds=2, judged=1, candidates=1, leaders=1, rounds=1, epochs=1 / 3, refit=True),
)
"""From the most expensive to the cheapest. Four ordinary trainings pay for the fifth.

Shorter trainings come before fewer folds. On 1,500 images of MNIST (60 % of the labels wrong) and of CIFAR-10 (30 %)
the best epoch of ten was as good as the best of thirty; fewer folds take examples away.
"""


def network_plan(seconds: float, budget: float, folds: int, *, fixed: bool = False) -> NetworkPlan | None:
    """Return the most that the budget allows; None if it is too small for the least.

    ``seconds`` is what one training on all rows costs. All ``folds`` are made and judge if their number is ``fixed``.

    >>> cheap, expensive = (network_plan(seconds, budget=400, folds=5) for seconds in (1, 100))
    >>> cheap.candidates, expensive.candidates
    (12, 3)
    """
    for plan in PLANS:
        count = folds if fixed else min(plan.folds, folds)
        fitting = replace(plan, folds=count, judged=count if fixed else min(plan.judged, count))
        if seconds * fitting.trainings <= SHARE * budget:
            return fitting
    return None


@dataclass(frozen=True)
class Search:
    """What is searched, and by which means."""

    trainer: Trainer
    splits: tuple[Split, ...]  # which rows are held out
    learners: tuple[str, ...]  # the kinds of learners to try
    losses: tuple[str, ...]  # the losses that networks try
    budget: float  # in seconds of one core, by the formulas of :mod:`symloss.fit.learners`
    memory: Memory  # keeps what was found
    model: str | Factory | None = None  # of networks that are trained one by one; None for the stacked ones
    plan: NetworkPlan | None = None  # how many of such networks are tried; None if the budget is too small for any
    # candidates that could not be fitted, with the reason. The search adds them
    failures: dict[Candidate, str] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The size of one training."""
        data = self.trainer.data
        rows = min(len(split.train) for split in self.splits)
        return Shape(rows, data.features.shape[1], data.num_classes, sparse.issparse(data.features))


def run(search: Search) -> list[Judged]:
    """Return the candidates with their held-out predictions, the best first."""
    found = list(_classical(search))
    if search.shape.sparse:
        return ranked(found)
    if "linear" in search.learners:
        found += _networks(search, linear_candidates(search), found)
    if "network" in search.learners:
        found += _networks(search, network_candidates(search, _scaling(found)), found)
    return ranked(found)


def affordable(search: Search) -> list[Candidate]:
    """Return the candidates other than networks that the budget allows, in the order of the list.

    About a third of the budget is theirs, and as much goes to networks and to the rounds of correction. Beside
    networks that are trained one by one they have less.
    """
    with_networks = 0.35 if search.plan is None else 1 - SHARE
    left = search.budget * (with_networks if "network" in search.learners else 0.6)
    chosen = []
    for candidate in candidates(search.shape, search.learners):
        cost = len(search.splits) * seconds(candidate, search.shape)
        if cost <= left:
            chosen.append(candidate)
            left -= cost
    return chosen


def _classical(search: Search) -> Iterator[Judged]:
    tried = affordable(search)
    rows = rows_held_out(search.splits)
    best: Judged | None = None
    known = {one: kept["predictions"] for one in tried if (kept := search.memory.recall(one.name)) is not None}
    missing = [one for one in tried if one not in known]
    results = search.trainer.predictions(missing, search.splits)
    for number, candidate in enumerate(tried, 1):
        if candidate not in known:
            result = next(results)
            if isinstance(result, LearnerFailed):
                search.failures[candidate] = result.reason
                continue
            known[candidate] = result
            search.memory.keep(candidate.name, {"predictions": result})
        found = judged(candidate, known.pop(candidate), search.trainer.data, rows)
        best = found if best is None or found.score > best.score else best
        search.trainer.progress.step("trying learners", number, len(tried), _leads(search, best))
        yield found


def _leads(search: Search, best: Judged) -> str:
    measure = search.trainer.data.measure
    return f"{best.candidate.name} leads with {100 * best.score:.1f} % {measure} on noisy labels"


def _scaling(found: Sequence[Judged]) -> str:
    """Networks take the scaling with which the learners that measure distances did better."""
    by_distance = [one for one in found if one.candidate.learner in ("svc", "k-nn", "kernel-unhinged")]
    telling = [one for one in by_distance if not one.nearly_constant]
    best = {"raw": 0.0, "standard": 0.0}
    for one in telling:
        best[one.candidate.scaling] = max(best[one.candidate.scaling], one.score)
    return "raw" if best["raw"] > best["standard"] else "standard"


def linear_candidates(search: Search) -> list[Candidate]:
    """Return the linear layers to try: as many as an eighth of the budget allows."""
    every = [
        Candidate("linear", (("decay", decay),), "standard", loss) for decay, loss in product(DECAYS, LINEAR_LOSSES)
    ]
    cost = HALVED * seconds(every[0], search.shape) * len(search.splits)
    return sorted(every[: int(search.budget / 8 / cost)], key=lambda one: str(one.loss))


def network_candidates(search: Search, scaling: str) -> list[Candidate]:
    """Return the networks to try: stacked ones loss by loss, for fewer calls, others decay by decay."""
    if search.model is None:
        pairs = list(product(search.losses, WEIGHT_DECAYS))
        # Half of them stop after a fifth of the epochs, and half of the others after two fifths.
        every = [Candidate("network", (("decay", decay),), scaling, loss) for loss, decay in pairs]
        cost = HALVED * seconds(every[0], search.shape) * len(search.splits)
        return every[: max(1, int(search.budget * 0.35 / cost))]
    if search.plan is None:
        search.trainer.progress.phase("no networks are tried: the budget is too small for one")
        return []
    scaling = "channels" if len(search.trainer.data.input_shape) == 3 else scaling
    epochs = max(FEWEST_EPOCHS, round(search.plan.epochs * NetworkSchedule.of(search.shape.rows).epochs))
    in_turn = product(WEIGHT_DECAYS, search.losses)
    return [
        Candidate("network", (("decay", decay), ("epochs", epochs)), scaling, loss, search.model)
        for decay, loss in islice(in_turn, search.plan.candidates)
    ]


def within_budget(
    leaders: list[Judged], rounds: int, folds: int, shape: Shape, budget: float
) -> tuple[list[Judged], int]:
    """Return as many leaders and rounds as cost at most twice the budget; one leader and one round at the least."""
    costs = [seconds(each.candidate, shape) for each in leaders]
    few = dict.fromkeys(min(most, len(leaders)) for most in (len(leaders), 3, 2, 1))
    for count, times in product(few, range(rounds, min(rounds, 2) - 1, -1)):
        if folds * times * sum(costs[:count]) <= 2 * budget:
            return leaders[:count], times
    return leaders[:1], 1


def _networks(search: Search, tried: list[Candidate], others: list[Judged]) -> list[Judged]:
    """Return networks of one architecture, each at its best epoch. Trained together, they are kept together."""
    if not tried:
        return []
    names = " ".join(one.name for one in tried)
    kept = search.memory.recall(names)
    if kept is not None:
        rows = rows_held_out(search.splits)
        parts = zip(kept["candidate"], kept["epoch"], kept["score"], kept["predictions"], strict=True)
        return [
            Judged(tried[int(k)], int(epoch), float(score), search.trainer.data.correct(predictions, rows), predictions)
            for k, epoch, score, predictions in parts
        ]
    found = _halving(search, tried, others)
    columns = {
        "candidate": np.array([tried.index(one.candidate) for one in found]),
        "epoch": np.array([one.epoch for one in found]),
        "score": np.array([one.score for one in found]),
        "predictions": np.stack([one.predictions for one in found]),
    }
    search.memory.keep(names, columns)
    return found


def _halving(search: Search, tried: list[Candidate], others: list[Judged]) -> list[Judged]:
    networks = search.trainer.networks(tried, search.splits)
    rows = rows_held_out(search.splits)
    running = [Epochs(candidate, search.trainer.data, rows) for candidate in tried]
    finished: list[Judged] = []
    rungs = [round(share * networks.schedule.epochs) for share in RUNGS]
    for epoch in range(1, networks.schedule.epochs + 1):
        networks.train_epoch()
        for one, predictions in zip(running, network_predictions(networks, search.splits), strict=True):
            one.add(predictions)
        if epoch in rungs and len(running) > 3:
            scores = [one.result().score for one in running]
            cut = sorted(scores, reverse=True)[(len(running) + 1) // 2 - 1]
            finished += [one.result() for one, score in zip(running, scores, strict=True) if score < cut]
            running = [one for one, score in zip(running, scores, strict=True) if score >= cut]
            left = {(one.candidate.loss, one.candidate["decay"]) for one in running}
            networks.keep([k for k, one in enumerate(networks.members) if (one.loss, one.weight_decay) in left])
        best = ranked([*others, *finished, *(one.result() for one in running)])[0]
        what = f"trying {len(running)} networks, epoch"
        search.trainer.progress.step(what, epoch, networks.schedule.epochs, _leads(search, best))
    return finished + [one.result() for one in running]
