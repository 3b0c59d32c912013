"""Try all candidates that the budget allows: cheap learners one by one, networks by successive halving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

from symloss.fit.candidates import Candidate, Factory, Shape
from symloss.fit.choice import Epochs, Judged, judged, ranked
from symloss.fit.held_out import (
    Failure,
    Labels,
    network_predictions,
    predictions_in_parallel,
    rows_held_out,
    stack,
)
from symloss.fit.learners import CLASSICAL, candidates
from symloss.fit.memory import Memory
from symloss.fit.network_plan import SHARE, NetworkPlan
from symloss.fit.progress import ProgressLines
from symloss.fit.scaled_table import Table
from symloss.fit.splits import Judge, Split
from symloss.fit.stacked import HIDDEN, NetworkSchedule

LOSSES = ("alpha-mae", "mae", "gce", "sgce", "ce", "alpha-mae:alpha=5")
"""The losses that networks try by default."""
WEIGHT_DECAYS = (1e-3, 0.1)
RUNGS = (0.2, 0.4)
"""After these shares of the epochs the worse half of the networks is given up."""

FEWEST_EPOCHS = 3


@dataclass(frozen=True)
class Search:
    """What is searched, and by which means.

    Args:
        table: the features.
        labels: the noisy labels, with weights.
        splits: which rows are held out.
        judge: of the predictions.
        learners: the kinds of learners to try.
        losses: the losses that networks try.
        budget: in seconds of one core, by the formulas of :mod:`symloss.fit.learners`.
        seed: everything random derives from it.
        jobs: processes that share learners, and networks that are trained one by one.
        progress: is told how far the search is, and what leads.
        memory: keeps what was found.
        model: of networks that are trained one by one; None for the stacked ones.
        plan: how many of such networks are tried; None if the budget is too small for any.
        failures: candidates that could not be fitted, with the reason. The search adds them.
    """

    table: Table
    labels: Labels
    splits: tuple[Split, ...]
    judge: Judge
    learners: tuple[str, ...]
    losses: tuple[str, ...]
    budget: float
    seed: int
    jobs: int | None
    progress: ProgressLines
    memory: Memory
    model: str | Factory | None = None
    plan: NetworkPlan | None = None
    failures: dict[Candidate, str] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The size of one training."""
        features = self.table.features
        rows = min(len(split.train) for split in self.splits)
        return Shape(rows, features.shape[1], self.table.classes, sparse.issparse(features))


def run(search: Search) -> list[Judged]:
    """The candidates with their predictions for the rows that were held out, the best first."""
    found = list(_classical(search))
    if "network" in search.learners and not search.shape.sparse:
        choose = network_candidates if search.model is None else single_candidates
        tried = choose(search, _scaling(found))
        found += _networks(search, tried) if tried else []
    return ranked(found)


def affordable(search: Search) -> list[Candidate]:
    """The candidates that are no networks and that the budget allows, in the order of the list.

    About a third of the budget is theirs, and as much goes to networks and to the rounds of correction. Beside
    networks that are trained one by one they have less.
    """
    with_networks = 0.35 if search.plan is None else 1 - SHARE
    left = search.budget * (with_networks if "network" in search.learners else 0.6)
    chosen = []
    for candidate in candidates(search.shape, search.learners):
        cost = len(search.splits) * CLASSICAL[candidate.learner].seconds(candidate, search.shape)
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
    results = predictions_in_parallel(missing, search.table, search.labels, search.splits, search.seed, search.jobs)
    for number, candidate in enumerate(tried, 1):
        if candidate not in known:
            result = next(results)
            if isinstance(result, Failure):
                search.failures[candidate] = result.reason
                continue
            known[candidate] = result
            search.memory.keep(candidate.name, {"predictions": result})
        found = judged(candidate, known.pop(candidate), search.judge, rows)
        best = found if best is None or found.score > best.score else best
        search.progress.step(f"{number} of {len(tried)} learners tried; {_leads(search.judge, best)}")
        yield found


def _leads(judge: Judge, best: Judged) -> str:
    return f"{best.candidate.name} leads with {100 * best.score:.1f} % {judge.measure} on noisy labels"


def _scaling(found: Sequence[Judged]) -> str:
    """Networks take the scaling with which the learners that measure distances did better."""
    by_distance = [one for one in found if one.candidate.learner in ("svc", "k-nn", "kernel-unhinged")]
    return ranked(by_distance)[0].candidate.scaling if by_distance else "standard"


def network_candidates(search: Search, scaling: str) -> list[Candidate]:
    """The networks to try. Those with the same loss are neighbours, so that one call evaluates them."""
    every = [
        Candidate("network", (("decay", decay),), scaling, loss) for loss in search.losses for decay in WEIGHT_DECAYS
    ]
    # Half of them stop after a fifth of the epochs, and half of the others after two fifths.
    cost = 0.4 * network_seconds(search.shape) * len(search.splits)
    count = int(search.budget * 0.35 / cost)
    return every[: max(1, min(count, len(every)))]


def network_seconds(shape: Shape) -> float:
    """About how long one core takes to train one of the stacked networks to the end."""
    schedule = NetworkSchedule.of(shape.rows)
    steps = schedule.epochs * max(1, shape.rows // schedule.batch)
    return steps * (5e-5 + schedule.batch * HIDDEN * (shape.features + shape.classes + 10) * 3e-10)


def within_budget(
    leaders: list[Judged], rounds: int, folds: int, shape: Shape, budget: float
) -> tuple[list[Judged], int]:
    """As many leaders and rounds as cost at most twice the budget; one leader and one round at the least.

    Args:
        leaders: the candidates to average, the best first.
        rounds: how often they learn.
        folds: each of which has a training.
        shape: the size of one training.
        budget: in seconds.
    """
    costs = [_seconds(one.candidate, shape) for one in leaders]
    few = dict.fromkeys(min(most, len(leaders)) for most in (len(leaders), 3, 2, 1))
    for count, times in product(few, range(rounds, min(rounds, 2) - 1, -1)):
        if folds * times * sum(costs[:count]) <= 2 * budget:
            return leaders[:count], times
    return leaders[:1], 1


def _seconds(candidate: Candidate, shape: Shape) -> float:
    if candidate.learner == "network":
        return network_seconds(shape)
    return CLASSICAL[candidate.learner].seconds(candidate, shape)


def single_candidates(search: Search, scaling: str) -> list[Candidate]:
    """The networks to try that are trained one by one: every loss once, then with another weight decay."""
    if search.plan is None:
        search.progress.phase("no networks are tried: the budget is too small for one")
        return []
    scaling = "channels" if len(search.table.input_shape) == 3 else scaling
    epochs = max(FEWEST_EPOCHS, round(search.plan.epochs * NetworkSchedule.of(search.shape.rows).epochs))
    every = [
        Candidate("network", (("decay", decay), ("epochs", epochs)), scaling, loss, search.model)
        for decay in WEIGHT_DECAYS
        for loss in search.losses
    ]
    return every[: search.plan.candidates]


def _networks(search: Search, tried: list[Candidate]) -> list[Judged]:
    """The networks, each at its best epoch. They are kept together: they were trained together."""
    names = " ".join(one.name for one in tried)
    kept = search.memory.recall(names)
    if kept is not None:
        rows = rows_held_out(search.splits)
        parts = zip(kept["candidate"], kept["epoch"], kept["score"], kept["predictions"], strict=True)
        return [
            Judged(tried[int(k)], int(epoch), float(score), search.judge.right(predictions, rows), predictions)
            for k, epoch, score, predictions in parts
        ]
    found = _halving(search, tried)
    columns = {
        "candidate": np.array([tried.index(one.candidate) for one in found]),
        "epoch": np.array([one.epoch for one in found]),
        "score": np.array([one.score for one in found]),
        "predictions": np.stack([one.predictions for one in found]),
    }
    search.memory.keep(names, columns)
    return found


def _halving(search: Search, tried: list[Candidate]) -> list[Judged]:
    networks = stack(tried, search.table, search.labels, search.splits, search.seed, search.jobs)
    rows = rows_held_out(search.splits)
    running = [Epochs(candidate, search.judge, rows) for candidate in tried]
    finished: list[Judged] = []
    rungs = [round(share * networks.schedule.epochs) for share in RUNGS]
    for epoch in range(1, networks.schedule.epochs + 1):
        networks.train_epoch()
        for one, predictions in zip(running, network_predictions(networks, search.splits), strict=True):
            one.add(predictions)
        if epoch in rungs and len(running) > 3:
            running, dropped = _halved(running)
            finished += [one.result() for one in dropped]
            networks.keep([k for k, member in enumerate(networks.members) if _among(member, running)])
        best = ranked([one.result() for one in running])[0]
        search.progress.step(
            f"{len(running)} of {len(tried)} networks after {epoch} of {networks.schedule.epochs} epochs; "
            f"{_leads(search.judge, best)}"
        )
    return finished + [one.result() for one in running]


def _among(member: object, running: Sequence[Epochs]) -> bool:
    wanted = {(one.candidate.loss, one.candidate["decay"]) for one in running}
    return (member.loss, member.weight_decay) in wanted  # type: ignore[attr-defined]


def _halved(running: Sequence[Epochs]) -> tuple[list[Epochs], list[Epochs]]:
    """The better half, in their order, and the others."""
    scores = {id(one): one.result().score for one in running}
    cut = sorted(scores.values(), reverse=True)[(len(running) + 1) // 2 - 1]
    kept = [one for one in running if scores[id(one)] >= cut]
    return kept, [one for one in running if scores[id(one)] < cut]
