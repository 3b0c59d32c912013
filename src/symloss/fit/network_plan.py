"""How much is tried with networks that are trained one by one: the more a training costs, the less."""

from __future__ import annotations

from dataclasses import dataclass, replace

SHARE = 0.75
"""Of the budget, for networks. The other learners have the rest."""
STOPS_AT = 0.5
"""The share of the epochs after which a network that was chosen stops, about."""
HALVED = 0.45
"""The share of its epochs that a candidate sees on average, where the worse half is given up twice."""


@dataclass(frozen=True)
class NetworkPlan:
    """How networks are tried.

    Args:
        folds: into so many the rows are split.
        judged: so many of the folds judge the candidates.
        candidates: so many networks are tried.
        leaders: so many networks at most are averaged, and learn from corrected labels.
        rounds: how often they learn.
        epochs: the share of the ordinary epochs that a training has.
        refit: whether the networks that predict are trained on all rows. With few folds, the folds' networks have
            seen too little.
    """

    folds: int
    judged: int
    candidates: int
    leaders: int
    rounds: int
    epochs: float = 1.0
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
    """The most that the budget allows. None if it is too small for the least.

    Args:
        seconds: what one training on all rows costs.
        budget: in seconds, for everything.
        folds: the most that the data allow.
        fixed: whether it must be just so many folds, and all of them judge.

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
