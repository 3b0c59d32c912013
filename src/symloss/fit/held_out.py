"""Train candidates on some rows, and predict the rows that were held out."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import torch
from scipy import special  # type: ignore[import-untyped]

from symloss import checks
from symloss.fit.choice import Judged
from symloss.fit.learners import CLASSICAL, Candidate
from symloss.fit.networks import LEARNING_RATE, NetworkModel, Networks, NetworkSchedule
from symloss.fit.stacks import STEP, LinearLayers, NetworkMember, Perceptrons, Stack
from symloss.fit.training_data import Floats, Probabilities, Rows, Split, TrainingData
from symloss.training.margins import MarginRecorder
from symloss.training.progress import ProgressLines

Modules = dict[int, list[torch.nn.Module]]
"""Trained networks by the number of the member, a list with one for each split."""


class LearnerFailed(ValueError):  # noqa: N818
    """A candidate could not be fitted to these labels."""

    def __init__(self, candidate: Candidate, reason: str):
        super().__init__(candidate, reason)
        self.candidate, self.reason = candidate, reason

    def __str__(self) -> str:
        return f"{self.candidate.name} cannot be fitted: {self.reason}"


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains candidates."""

    data: TrainingData
    seed: int  # everything random derives from it
    jobs: int | None = None  # worker processes that share learners, and networks that are trained one by one
    progress: ProgressLines = field(default_factory=lambda: ProgressLines(verbose=False))  # is told what is trained
    device: str = "cpu"  # where networks are trained

    def with_labels(self, labels: Rows) -> Trainer:
        """Return the same with other labels to train on: (N,), or (splits, N) if each split has its own."""
        return replace(self, data=self.data.with_labels(labels))

    def predictions(
        self, candidates: Sequence[Candidate], splits: Sequence[Split]
    ) -> Iterator[Probabilities | LearnerFailed]:
        """Return the held-out predictions of candidates other than networks, in their order."""
        if not candidates:
            return iter(())
        work = (joblib.delayed(_attempted)(one, self.data, splits, self.seed) for one in candidates)
        # Ray's backend gives all results at once.
        backend, _ = joblib.parallel.get_active_backend()
        one_by_one = self.jobs is None or backend.supports_return_generator
        return iter(joblib.Parallel(n_jobs=self.jobs, return_as="generator" if one_by_one else "list")(work))

    def networks(self, candidates: Sequence[Candidate], splits: Sequence[Split]) -> Networks:
        """Return networks for all candidates, of one architecture, and all splits, candidate by candidate."""
        data, first = self.data, candidates[0]
        members = [
            NetworkMember(str(candidate.loss), candidate["decay"], torch.from_numpy(split.train), fold)
            for candidate in candidates
            for fold, split in enumerate(splits)
        ]
        schedule = NetworkSchedule.of(min(len(split.train) for split in splits))
        if "epochs" in dict(first.settings):
            schedule = replace(schedule, epochs=int(first["epochs"]))
        model: NetworkModel | type[Stack] = Perceptrons
        if first.learner == "linear":
            model = LinearLayers
            schedule = replace(schedule, rate=min(LEARNING_RATE, STEP / data.features.shape[1]))
        elif first.model is not None:
            model = NetworkModel(first.model, data.input_shape, data.num_classes)
            schedule = replace(schedule, rate=model.learning_rate)
        shape = data.input_shape if isinstance(model, NetworkModel) else (-1,)
        return Networks(
            torch.from_numpy(data.scaled(first.scaling)).reshape(len(data), *shape),
            torch.from_numpy(data.labels),
            torch.ones(len(data)) if data.weights is None else torch.tensor(data.weights).float(),
            data.num_classes,
            members,
            schedule,
            self.seed,
            model,
            self.jobs,
            self.device,
        )

    def learn(self, members: Sequence[Judged], splits: Sequence[Split]) -> tuple[list[Probabilities], Modules]:
        """Train candidates on each of some splits, networks up to their epochs.

        Returns:
            The held-out predictions of each candidate, in the order of the splits; and the networks.

        Raises:
            LearnerFailed: if a candidate cannot be fitted to these labels.
        """
        classical = [k for k, member in enumerate(members) if member.epoch is None]
        predictions: dict[int, Probabilities] = {}
        for k, one in zip(classical, self.predictions([members[k].candidate for k in classical], splits), strict=True):
            if isinstance(one, LearnerFailed):
                raise one
            predictions[k] = one
            self.progress.step("fitting the leaders again", len(predictions), len(classical))
        trained: Modules = {}
        by_architecture: dict[Hashable, list[int]] = {}
        for k, member in enumerate(members):
            if member.epoch is not None:
                by_architecture.setdefault(member.candidate.architecture, []).append(k)
        for places in by_architecture.values():
            for k, found, modules in self._learn_together(members, places, splits):
                predictions[k], trained[k] = found, modules
        return [predictions[k] for k in range(len(members))], trained

    def _learn_together(
        self, members: Sequence[Judged], places: Sequence[int], splits: Sequence[Split]
    ) -> Iterator[tuple[int, Probabilities, list[torch.nn.Module]]]:
        """Train the networks at these places, of one architecture; yield each as soon as it has had its epochs."""
        left = sorted(places, key=lambda k: str(members[k].candidate.loss))
        networks = self.networks([members[k].candidate for k in left], splits)
        while left:
            networks.train_epoch()
            last = max(members[k].epoch or 0 for k in left)
            self.progress.step("training the leaders' networks, epoch", networks.epoch, last)
            if all(members[k].epoch != networks.epoch for k in left):
                continue
            kept: list[int] = []
            for place, (k, found) in enumerate(zip(left, network_predictions(networks, splits), strict=True)):
                own = range(place * len(splits), (place + 1) * len(splits))
                if members[k].epoch == networks.epoch:
                    yield k, found, [networks.module(each) for each in own]
                else:
                    kept += own
            left = [k for k in left if members[k].epoch != networks.epoch]
            networks.keep(kept)

    def fitted(self, candidate: Candidate) -> Any:
        """Return a candidate other than a network, fitted to all rows."""
        return fitted(candidate, self.data, self.data.labels, np.arange(len(self.data)), self.seed)

    def network_on_all(self, candidate: Candidate, epochs: int, margins: bool = False) -> Networks:
        """Return the network of a candidate, trained on all rows, with their margins if they are wanted."""
        rows = np.arange(len(self.data))
        networks = self.networks([candidate], [Split(rows, rows[:0])])
        networks.margins = MarginRecorder(len(rows)) if margins else None
        for _ in range(epochs):
            networks.train_epoch()
        return networks


def fitted(candidate: Candidate, data: TrainingData, labels: Rows, rows: Rows, seed: int) -> Any:
    """Return the estimator of a candidate, fitted to some rows."""
    learner = CLASSICAL[candidate.learner]
    estimator = learner.type(**learner.options(candidate, data.kernel_width(candidate.scaling), seed))
    if candidate.learner == "k-nn":
        estimator.n_neighbors = min(estimator.n_neighbors, len(rows))
    rows = data.counted(rows)
    options = {}
    if data.weights is not None and learner.weighted:
        options["sample_weight"] = data.weights[rows]
    with warnings.catch_warnings():
        # Few rows for many classes: there would be a warning for each of a hundred learners.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        # And "lda" would say so of each class of one row.
        warnings.filterwarnings("ignore", "Only one sample available", UserWarning)
        return estimator.fit(data.scaled(candidate.scaling)[rows], labels[rows], **options)


def probabilities(estimator: Any, features: Any, classes: int) -> Floats:
    """Return what an estimator predicts, (n, C). Scores become probabilities by a softmax."""
    if hasattr(estimator, "predict_proba"):
        predicted = np.asarray(estimator.predict_proba(features))
    else:
        scores = estimator.decision_function(features)
        predicted = special.softmax(np.stack([-scores, scores], 1) / 2 if scores.ndim == 1 else scores, 1)
    every = np.zeros((len(predicted), classes), np.float32)
    every[:, np.asarray(estimator.classes_, np.int64)] = predicted
    return every


def _attempted(
    candidate: Candidate, data: TrainingData, splits: Sequence[Split], seed: int
) -> Probabilities | LearnerFailed:
    """Return the held-out predictions of a candidate. Data that one learner cannot take must not end the search."""
    parts = []
    try:
        for place, split in enumerate(splits):
            labels = data.labels_of(place)
            known = np.unique(labels[data.counted(split.train)])
            if len(known) == 1:  # nothing to learn: the one class is certain
                parts.append(np.eye(data.num_classes, dtype=np.float32)[np.repeat(known, len(split.held_out))])
                continue
            estimator = fitted(candidate, data, labels, split.train, seed)
            features = data.scaled(candidate.scaling)[split.held_out]
            parts.append(probabilities(estimator, features, data.num_classes))
    except Exception as error:
        reason = checks.brief(" ".join(str(error).split()) or type(error).__name__).strip("'\"")
        return LearnerFailed(candidate, reason)
    return np.concatenate(parts)


def network_predictions(networks: Networks, splits: Sequence[Split]) -> list[Probabilities]:
    """Return the held-out predictions of networks: one array for each candidate."""
    rows = [torch.from_numpy(splits[member.fold].held_out) for member in networks.members]
    scores = [score.softmax(1).numpy() for score in networks.scores(rows)]
    count = len(splits)
    return [np.concatenate(scores[k : k + count]) for k in range(0, len(scores), count)]
