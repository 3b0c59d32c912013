"""Predictions for rows that a learner was not trained on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import torch
from scipy import special  # type: ignore[import-untyped]

from symloss import checks
from symloss.fit.candidates import Candidate
from symloss.fit.learners import CLASSICAL
from symloss.fit.network_model import NetworkModel
from symloss.fit.scaled_table import Table
from symloss.fit.single_networks import SingleNetworks
from symloss.fit.splits import Floats, Rows, Split
from symloss.fit.stacked import NetworkSchedule, StackedMember, StackedNetworks

Networks = StackedNetworks | SingleNetworks

Probabilities = Floats
"""(n, C), one row for each row that was held out, in the order of the splits."""


@dataclass(frozen=True)
class Failure:
    """Why a learner could not be fitted."""

    reason: str


class LearnerFailed(ValueError):  # noqa: N818
    """A candidate could not be fitted to these labels, although it could to others."""

    def __init__(self, candidate: Candidate, failure: Failure):
        super().__init__(f"{candidate.name} cannot be fitted: {failure.reason}")
        self.candidate = candidate


@dataclass(frozen=True)
class Labels:
    """What learners are trained on.

    Args:
        numbers: (N,), class numbers; or (splits, N) if each split has its own.
        weights: (N,), what each row counts; None if all count the same.
    """

    numbers: Rows
    weights: Floats | None = None

    def of_split(self, place: int) -> Labels:
        """The labels of one split."""
        return self if self.numbers.ndim == 1 else replace(self, numbers=self.numbers[place])

    def counted(self, rows: Rows) -> Rows:
        """Those of the rows whose weight is not zero."""
        return rows if self.weights is None else rows[self.weights[rows] > 0]


def rows_held_out(splits: Sequence[Split]) -> Rows:
    """The rows that are held out, in the order of the splits."""
    return np.concatenate([split.held_out for split in splits])


def fitted(candidate: Candidate, table: Table, labels: Labels, rows: Rows, seed: int) -> Any:
    """The estimator of a candidate, fitted to some rows."""
    features = table.scaled(candidate.scaling)
    estimator = CLASSICAL[candidate.learner].make(candidate, table.kernel_width(candidate.scaling), seed)
    if candidate.learner == "k-nn":
        estimator.n_neighbors = min(estimator.n_neighbors, len(rows))
    rows = labels.counted(rows)
    options = {}
    if labels.weights is not None and candidate.learner != "k-nn":
        options["sample_weight"] = labels.weights[rows]
    with warnings.catch_warnings():
        # Of few rows for many classes. Whoever called fit knows, and there would be one for each of a hundred learners.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return estimator.fit(features[rows], labels.numbers[rows], **options)


def probabilities(estimator: Any, features: Any, classes: int) -> Floats:
    """What an estimator predicts, (n, C). Scores become probabilities by a softmax."""
    if hasattr(estimator, "predict_proba"):
        predicted = np.asarray(estimator.predict_proba(features))
    else:
        scores = estimator.decision_function(features)
        predicted = special.softmax(np.stack([-scores, scores], 1) / 2 if scores.ndim == 1 else scores, 1)
    every = np.zeros((len(predicted), classes), np.float32)
    every[:, np.asarray(estimator.classes_, np.int64)] = predicted
    return every


def classical_predictions(
    candidate: Candidate, table: Table, labels: Labels, splits: Sequence[Split], seed: int
) -> Probabilities:
    """The predictions of a candidate that is no network, for all rows that are held out."""
    features = table.scaled(candidate.scaling)
    parts = []
    for place, split in enumerate(splits):
        given = labels.of_split(place)
        known = np.unique(given.numbers[given.counted(split.train)])
        if len(known) == 1:  # nothing to learn: the one class is certain
            parts.append(np.eye(table.classes, dtype=np.float32)[np.repeat(known, len(split.held_out))])
            continue
        estimator = fitted(candidate, table, given, split.train, seed)
        parts.append(probabilities(estimator, features[split.held_out], table.classes))
    return np.concatenate(parts)


def attempted(
    candidate: Candidate, table: Table, labels: Labels, splits: Sequence[Split], seed: int
) -> Probabilities | Failure:
    """As :func:`classical_predictions`. Data that one learner cannot take must not end the search for others."""
    try:
        return classical_predictions(candidate, table, labels, splits, seed)
    except Exception as error:
        return Failure(checks.brief(" ".join(str(error).split()) or type(error).__name__).strip("'\""))


def predictions_in_parallel(
    candidates: Sequence[Candidate], table: Table, labels: Labels, splits: Sequence[Split], seed: int, jobs: int | None
) -> Iterator[Probabilities | Failure]:
    """The candidates' predictions, in their order, from as many processes as ``jobs`` says."""
    work = (joblib.delayed(attempted)(c, table, labels, splits, seed) for c in candidates)
    if not candidates:
        return iter(())
    # Ray's backend gives all results at once.
    backend, _ = joblib.parallel.get_active_backend()
    one_by_one = jobs is None or backend.supports_return_generator
    return iter(joblib.Parallel(n_jobs=jobs, return_as="generator" if one_by_one else "list")(work))


def stack(
    candidates: Sequence[Candidate],
    table: Table,
    labels: Labels,
    splits: Sequence[Split],
    seed: int,
    jobs: int | None = None,
) -> Networks:
    """Networks for all candidates, which have one model and scaling, and for all splits, candidate by candidate."""
    members = [
        StackedMember(str(candidate.loss), candidate["decay"], torch.from_numpy(split.train), fold)
        for candidate in candidates
        for fold, split in enumerate(splits)
    ]
    weights = torch.ones(labels.numbers.shape[-1]) if labels.weights is None else torch.tensor(labels.weights).float()
    schedule = NetworkSchedule.of(min(len(split.train) for split in splits))
    if "epochs" in dict(candidates[0].settings):
        schedule = replace(schedule, epochs=int(candidates[0]["epochs"]))
    features, numbers = torch.from_numpy(table.scaled(candidates[0].scaling)), torch.from_numpy(labels.numbers)
    model = candidates[0].model
    if model is None:
        return StackedNetworks(features, numbers, weights, table.classes, members, schedule, seed)
    built = NetworkModel(model, table.input_shape, table.classes)
    inputs = features.reshape(-1, *table.input_shape)
    schedule = replace(schedule, rate=built.learning_rate)
    return SingleNetworks(built, inputs, numbers, weights, members, schedule, seed, jobs)


def network_predictions(networks: Networks, splits: Sequence[Split]) -> list[Probabilities]:
    """The predictions of the networks for the rows that are held out: one array for each candidate."""
    rows = [torch.from_numpy(splits[member.fold].held_out) for member in networks.members]
    scores = [score.softmax(1).numpy() for score in networks.scores(rows)]
    count = len(splits)
    return [np.concatenate(scores[k : k + count]) for k in range(0, len(scores), count)]
