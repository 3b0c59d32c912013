"""A scikit-learn estimator for noisy labels: it chooses the learner, and finds the mislabelled examples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor, nn

from symloss import checks
from symloss.data.table_encoder import TableEncoder
from symloss.encoders.devices import chosen_device
from symloss.encoders.features import Function
from symloss.fit.audit.models import NOTHING_LEARNT, audit_fit
from symloss.fit.choice import Judged, cannot_be_told_from, leaders, winner
from symloss.fit.correction import Explanation, Round, first_round, label_scores, last_round
from symloss.fit.ensemble import Leaders, ensemble
from symloss.fit.evidence import something_learnt
from symloss.fit.held_out import Trainer
from symloss.fit.large_data import affordable, explained, labels_to_learn, sample_of
from symloss.fit.learners import KINDS, Candidate, Shape, check_kinds
from symloss.fit.networks import Factory, chosen_model, one_thread
from symloss.fit.noise_rate import rate_range
from symloss.fit.representation import (
    Chooser,
    Comparison,
    Images,
    Representation,
    check_choice,
    features_folder,
    image_files,
    images_of_array,
    images_of_files,
    is_image_array,
)
from symloss.fit.search import LOSSES, Memory, Search, network_plan, run, within_budget
from symloss.fit.training_data import Rows, Split, TrainingData, folds, number_of_folds, rows_held_out
from symloss.fitting import all_or_nothing
from symloss.losses.spec import create_loss
from symloss.training.progress import ProgressLines, progress_of_fit

FLOATS = [np.float64, np.float32]
BUDGET, ORDINARY_TRAININGS = 45.0, 4
"""Seconds of one core that a fit takes by default, or this many trainings of the network if that is more."""
FOLDS_UP_TO, FOLDS_BEYOND = 20_000, 3
"""With more rows than this, there are fewer folds, and the first of them judges candidates."""


class RobustClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier for noisy labels.

    ``fit`` tries networks with robust losses, the closed forms of this package, and scikit-learn's own learners. It
    judges them by held-out noisy labels. Then the leaders correct the labels and learn again.

    Args:
        model: the network. "auto" takes a small convolutional network for images (N, channels, height, width) of 12
            pixels a side or more, and a perceptron for everything else. Also a name for
            :func:`symloss.training.models.create_model` such as "cnn8:width=0.5" or "timm:resnet18", or a function of
            ``input_shape`` and ``num_classes`` that returns a module. The other learners see images as rows of pixels.
        losses: "auto", or specs of the losses that networks try.
        learners: "auto", or some of "network", "linear", "closed-form", "logistic", "lda", "k-nn", "svc", "forest",
            "boosting". Also "xgboost" and "lightgbm", with a robust loss; these are not part of "auto".
        budget: seconds of one core. It decides how many candidates are tried, by a formula: the same budget always
            gives the same candidates. By default 45, or four trainings of the network where that is more.
        folds: "auto" or a number.
        rounds: how often the leaders are trained; from the second time on, on corrected labels.
        simple: predict by one learner instead of the mean of the leaders.
        n_jobs: worker processes (does not change the result). Inside ``joblib.parallel_config`` another backend, such
            as Ray's, is used.
        random_state: random seed for everything.
        memory: a folder for intermediate results. Rerun a fit that was killed to resume it. Nothing is stored if
            ``model`` is a function, because a changed function would not be noticed.
        verbose: 1 shows what is tried and what leads.
        encoder: turns images, or free text, into features. "auto" chooses between the pixels of images and features of
            "efficientnet-lite0", where that is installed, by noisy labels; a network that ``model`` names sees pixels.
            For texts it takes "minilm", or "tfidf" if that is not installed. Also "none", the name of another encoder
            (see :func:`symloss.encoders.kind`), or a function (see :func:`symloss.encoders.encode`).
        device: of networks and encoders, such as "cpu" or "cuda"; "auto" takes a GPU where there is one.

    Attributes:
        classes_: the classes.
        representation_: what learners see of images: "pixels" or the name of an encoder; None for other data.
        comparison_: the noisy accuracy of ``pixels`` and of ``features`` on held-out ``images``, if ``encoder="auto"``
            compared them; else None.
        learner_: the kind of learner that won.
        loss_: its loss; None where no network was chosen.
        epoch_: the epoch at which its training stops; None where no network was chosen.
        learned_: False if what candidates predict for held-out rows cannot be told from chance. Then the labels are not
            judged, and ``noise_rate_`` is NaN.
        classes_apart_: whether the labels are explained clearly better by classes that are apart, some with a wrong
            label, than by classes that overlap. Otherwise all that is known of clean accuracy is that it lies between
            ``noisy_accuracy`` and ``clean_accuracy_estimate``.
        candidates_: a dictionary of columns, for ``pandas.DataFrame``: every candidate with its accuracy on noisy
            labels, the standard error, an estimate of the accuracy on true labels if classes are apart, whether it can
            be told from the best, and why it could not be fitted, if so.
        noise_rate_: the share of wrong labels, an estimate.
        noise_rate_interval_: the range that noisy labels allow, from all doubt being overlap to all doubt being noise.
        transition_: (C, C). A row for each true class: how probable each label is.
        given_labels_: (N,), the labels passed to ``fit``.
        label_scores_: (N,), one for each training row. The lower, the more suspicious is the label.
        suggested_labels_: (N,), the most probable true class.
        n_wrong_: how many labels look wrong.
        oof_probabilities_: (N, C), held-out probabilities of the true classes.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> y[::4] = (y[::4] + 1) % 3
    >>> model = RobustClassifier(learners=["closed-form", "logistic"]).fit(X, y)
    >>> 0.15 < model.noise_rate_ < 0.35
    True
    """

    def __init__(
        self,
        *,
        model: str | Factory = "auto",
        losses: str | Sequence[str] = "auto",
        learners: str | Sequence[str] = "auto",
        budget: float | None = None,
        folds: str | int = "auto",
        rounds: int = 3,
        simple: bool = False,
        n_jobs: int | None = None,
        random_state: Any = 0,
        memory: str | Path | None = None,
        verbose: int = 0,
        encoder: str | Function = "auto",
        device: str = "auto",
    ):
        self.model = model
        self.losses = losses
        self.learners = learners
        self.budget = budget
        self.folds = folds
        self.rounds = rounds
        self.simple = simple
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.memory = memory
        self.verbose = verbose
        self.encoder = encoder
        self.device = device

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Choose a learner by the noisy labels, and fit it.

        Args:
            X: (N, d), an array, a sparse matrix or a tensor; a pandas or polars DataFrame, with numbers, categories,
                dates, free text and missing values; a list of N texts; images (N, channels, height, width); or a list
                of N image files (``pathlib.Path``, or strings that all end as image files do).
            y: (N,), any labels.
            sample_weight: (N,), the weight of each row.
        """
        with one_thread():
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:  # noqa: N803
        self._check_options()
        device = str(chosen_device(self.device))
        features, noisy = self._checked_rows(X, y)
        weights = (
            None if sample_weight is None else _check_sample_weight(sample_weight, noisy, ensure_non_negative=True)
        )
        self.seed_ = seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        progress = progress_of_fit(self.verbose)
        features = self._represented(features, noisy, weights, device, progress)
        every = TrainingData(features, noisy, len(self.classes_), self.input_shape_, weights)
        sample = sample_of(noisy, seed)
        data = every if sample is None else every.take(sample)
        if sample is not None:
            progress.phase(f"{len(sample):,} of {len(noisy):,} rows choose the learners; then all rows are learnt from")
        trainer = Trainer(data, seed, self.n_jobs, progress, device)
        found, failures = self._search(trainer)
        best = winner(found)
        if self.plan_ is not None:
            lead, rounds = leaders(found, self.plan_.leaders), min(self.rounds, self.plan_.rounds)
        else:
            lead, rounds = within_budget(leaders(found), self.rounds, len(self.folds_), self.shape_, self.budget_)
        first = first_round(lead if not self.simple or best in lead else [best, *lead], trainer, self.folds_)
        self.learned_ = self._something_learnt(found, data)
        if not self.learned_:
            warnings.warn(NOTHING_LEARNT, stacklevel=4)
        last = self._last_round(first, rounds, trainer)
        trainer.progress.phase("fitting the model to all rows")
        used, corrected = last.leaders.members, trainer.with_labels(last.labels)
        adjustment = last.explanation.adjustment if self.learned_ and not data.balanced else ()
        if self.simple:
            best = best if best in used else winner(used)
            alone = Leaders((best,), (last.leaders.temperatures[used.index(best)],), {})
            self.predictor_ = ensemble(corrected, alone, 1.0, adjustment, refit=True)
        else:
            refit = self.plan_ is not None and self.plan_.refit
            temperature = last.explanation.temperature
            self.predictor_ = ensemble(corrected, last.leaders, temperature, adjustment, refit=refit)
            # The budget may leave fewer than the leaders, and some cannot be fitted to all rows.
            fitted = [member.candidate for member in self.predictor_.members]
            used = tuple(one for one in used if one.candidate in fitted)
            best = winner(used)
        self.learner_, self.loss_, self.epoch_ = best.candidate.learner, best.candidate.loss, best.epoch
        self.measure_ = data.measure
        networks = [one.candidate for one in found if one.candidate.learner == "network"]
        self.label_scores_ = label_scores(last.explanation, networks, trainer)
        self._keep_labels(last.explanation, data.given)
        self.classes_apart_ = last.apart
        self.trained_labels_ = last.labels
        self._keep_candidates(found, failures, best, used)
        if sample is not None:
            self._extend(sample, replace(trainer, data=every), last)
        return self

    def _check_options(self) -> None:
        if self.budget is not None:
            checks.number("budget", self.budget, "(0, inf)")
        checks.number("rounds", self.rounds, "[1, inf)", whole=True)
        if self.folds != "auto":
            checks.number("folds", self.folds, "[2, inf)", whole=True)

    def _extend(self, sample: Rows, trainer: Trainer, last: Round) -> None:
        """Judge the labels of all rows, and let the leaders learn from them, as far as the budget allows."""
        data = trainer.data
        whole = explained(last.explanation, sample, data.given, self.predictor_, data.features)
        self.trained_labels_ = labels_to_learn(whole, sample, last.labels)
        self.label_scores_ = whole.label_scores
        self._keep_labels(whole, data.given)
        used = [one.candidate for one in self.predictor_.members]
        known = [k for k, one in enumerate(last.leaders.members) if one.candidate in used]
        members = [last.leaders.members[k] for k in known]
        shape = Shape(len(data), data.features.shape[1], data.num_classes, sparse.issparse(data.features))
        kept = affordable(members, shape, self.budget_)
        if kept:
            temperatures = tuple(last.leaders.temperatures[known[k]] for k in kept)
            leaders = Leaders(tuple(members[k] for k in kept), temperatures, {})
            before = self.predictor_
            trainer.progress.phase(f"{len(kept)} of {len(used)} learners learn from all {len(data):,} rows")
            corrected = trainer.with_labels(self.trained_labels_)
            self.predictor_ = ensemble(corrected, leaders, before.temperature, before.adjustment, refit=True)

    def _checked_rows(self, features: Any, y: Any) -> tuple[Any, Rows]:
        """Return the features (N, d), or images, and the labels as numbers."""
        features, y = as_array(features), as_array(y)
        files = image_files(features)
        texts = None if files is not None or isinstance(features, Images) else column_of_texts(features)
        if files is not None or isinstance(features, Images) or is_image_array(features):
            reads = "images"
        else:
            reads = "texts" if texts is not None else "table" if hasattr(features, "columns") else "numbers"
        check_choice(self.encoder, reads)
        refuse_missing_labels(y)
        self.encoder_: TableEncoder | None = None
        self.representation_: str | None = None
        self.comparison_: Comparison | None = None
        self.seen_: Representation | None = None
        if texts is not None and callable(self.encoder):
            self.seen_ = Representation(self.encoder)
            features, texts = self._encoded_texts(texts), None
        if files is not None or isinstance(features, Images):
            rows: Any = images_of_files(files) if files is not None else features
            y = column_or_1d(y, warn=True)
            check_consistent_length(range(len(rows)), y)
        elif reads == "images" and self.encoder not in ("auto", "none"):
            given, y = validate_data(self, features, y, dtype=None, allow_nd=True, ensure_min_samples=2)
            rows = Images(given, tuple(given.shape[1:])) if callable(self.encoder) else images_of_array(given, None)
        else:
            rows, y = self._checked_features(features if texts is None else texts, texts, y)
            if reads == "images":
                rows = images_of_array(features, rows)
        if y.dtype.kind == "f":
            check_classification_targets(y)
        self.classes_, noisy = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have two classes or more; got one class, {self.classes_[0]}")
        if len(self.classes_) == len(noisy) > 2:
            raise ValueError(f"y must have fewer classes than rows; got {len(noisy)} labels that are all different")
        return rows, noisy.astype(np.int64)

    def _checked_features(self, features: Any, texts: Any, y: Any) -> tuple[Any, Any]:
        """Return features (N, ...) of anything but image files, and the labels."""
        refuse_texts(features)
        if is_mixed_table(features):
            self.encoder_ = TableEncoder(
                text=() if texts is None else texts.columns,
                encoder=self.encoder if isinstance(self.encoder, str) else "auto",
                device=self.device,
                cache=features_folder(self.memory),
            )
            encoded, y = self.encoder_.fit_transform(features), column_or_1d(y, warn=True)
            self.encoder_.cache = None  # the memory is that of a fit
            validate_data(self, features, skip_check_array=True)
            check_consistent_length(encoded, y)
            return encoded, y
        refuse_gaps(features)
        return tuple(
            validate_data(self, features, y, accept_sparse="csr", dtype=FLOATS, allow_nd=True, ensure_min_samples=2)
        )

    def _encoded_texts(self, texts: Any) -> Any:
        assert self.seen_ is not None
        return self.seen_.of_new([text if isinstance(text, str) else "" for text in texts["text"]])

    def _represented(self, rows: Any, noisy: Rows, weights: Any, device: str, progress: ProgressLines) -> Any:
        """Return the features (N, d), of images in the representation that predicts noisy labels better."""
        if isinstance(rows, Images):
            memory = None if self.memory is None else Path(self.memory)
            chooser = Chooser(
                rows, noisy, len(self.classes_), weights, self.seed_, device, self.n_jobs, progress, memory
            )
            if self.encoder == "none" or (self.encoder == "auto" and self.model != "auto"):
                rows, self.seen_ = chooser.pixels()
            elif self.encoder == "auto":
                rows, self.seen_ = chooser.chosen(with_networks=self._tries_networks(rows))
            else:
                rows, self.seen_ = chooser.encoded(self.encoder)
            self.representation_, self.comparison_ = self.seen_.name, self.seen_.comparison
        self.input_shape_ = tuple(rows.shape[1:])
        return rows.reshape(len(noisy), -1) if rows.ndim > 2 else rows

    def _tries_networks(self, images: Images) -> bool:
        """Return whether the learners and the budget leave a network for pixels."""
        network = chosen_model("auto", images.shape, len(self.classes_))
        if network is None or not (self.learners == "auto" or "network" in self.learners):
            return False
        return self.budget is None or network_plan(network.seconds(len(images)), self.budget, 5) is not None

    def _search(self, trainer: Trainer) -> tuple[list[Judged], dict[Candidate, str]]:
        """Return the candidates, the best first, and those that could not be fitted, with the reason."""
        data, noisy = trainer.data, trainer.data.given
        learners = KINDS if isinstance(self.learners, str) and self.learners == "auto" else tuple(self.learners)
        losses = LOSSES if isinstance(self.losses, str) and self.losses == "auto" else tuple(self.losses)
        check_kinds(learners)
        for spec in losses:
            create_loss(spec)
        wanted = "network" in learners and not sparse.issparse(data.features)
        network = chosen_model(self.model, self.input_shape_, data.num_classes) if wanted else None
        cost = 0.0 if network is None else network.seconds(len(noisy))
        budget = max(BUDGET, ORDINARY_TRAININGS * cost) if self.budget is None else self.budget
        count = number_of_folds(int(np.bincount(noisy).min()), self.folds, len(noisy))
        self.plan_ = None if network is None else network_plan(cost, budget, count, fixed=self.folds != "auto")
        splits = self._splits(noisy, count, trainer.seed)
        trainer.progress.phase(f"fitting {len(noisy):,} rows takes up to about {budget:,.0f} s of one core")
        sizes = [len(self.folds_), len(splits), trainer.seed]
        about = [data.features, self.input_shape_, noisy, data.weights, *sizes]
        memory = Memory(None if callable(self.model) else self.memory, about)
        model = None if network is None else network.model
        search = Search(trainer, splits, learners, losses, budget, memory, model, self.plan_)
        self.shape_, self.budget_ = search.shape, budget
        found = run(search)
        if not found and search.failures:
            name, reason = next((one.name, reason) for one, reason in search.failures.items())
            raise ValueError(f"No learner could be fitted to these {len(noisy)} rows. The first was {name}: {reason}")
        if not found:
            raise ValueError(f"budget must allow one training; got {budget:g} seconds, too few for {len(noisy)} rows")
        return found, search.failures

    def _splits(self, noisy: Rows, count: int, seed: int) -> tuple[Split, ...]:
        """Make the folds, and return those that judge candidates."""
        plan = self.plan_
        large = self.folds == "auto" and len(noisy) > FOLDS_UP_TO
        if plan is None:
            count = min(count, FOLDS_BEYOND) if large else count
        self.folds_ = folds(noisy, count if plan is None else plan.folds, seed)
        if large:
            return self.folds_[:1]
        return self.folds_ if plan is None else self.folds_[: plan.judged]

    def _something_learnt(self, found: Sequence[Judged], data: TrainingData) -> bool:
        """Return whether what candidates predict says anything about the labels."""
        weights = np.ones(len(data)) if data.given_weights is None else data.given_weights
        return something_learnt([one.predictions for one in found], data.given, self.folds_, np.flatnonzero(weights))

    def _last_round(self, first: Round, rounds: int, trainer: Trainer) -> Round:
        if not self.learned_:  # there is nothing to correct labels by
            return first
        checked = 1 if len(trainer.data) > FOLDS_UP_TO else len(self.folds_)
        if self.plan_ is not None:
            checked = self.plan_.judged
        # Where classes are very unequal, every round would give more examples to the large ones.
        rounds = min(rounds, 2) if trainer.data.balanced else rounds
        return last_round(first, rounds, trainer, self.folds_, checked)

    def _keep_labels(self, explanation: Explanation, noisy: Rows) -> None:
        posterior = explanation.posterior
        self.given_labels_ = self.classes_[noisy]
        self.transition_ = explanation.calibration.transition.numpy()
        scores = torch.from_numpy(explanation.scores)
        if self.learned_:
            self.suggested_labels_ = self.classes_[posterior.argmax(1)]
            self.noise_rate_ = float(np.mean(1 - self.label_scores_))
            self.n_wrong_ = round(self.noise_rate_ * len(noisy))
            low, high = rate_range(explanation.scores, noisy)
            self.noise_rate_interval_ = (min(low, self.noise_rate_), max(high, self.noise_rate_))
        else:
            self.suggested_labels_ = self.given_labels_
            self.noise_rate_, self.n_wrong_, self.noise_rate_interval_ = float("nan"), 0, (0.0, 1.0)
        self.oof_probabilities_ = scores.div(explanation.temperature).softmax(1).numpy()
        self.posterior_ = posterior

    def _keep_candidates(
        self, found: Sequence[Judged], failures: dict[Candidate, str], best: Judged, used: Sequence[Judged]
    ) -> None:
        rows = rows_held_out(self.folds_)
        top = found[0]
        estimates = [
            float(self.posterior_[rows[: len(one.predictions)], one.predictions.argmax(1)].mean()) for one in found
        ]
        unknown, none = [math.nan] * len(failures), [False] * len(failures)
        self.candidates_ = {
            "candidate": np.array([one.name for one in (*(each.candidate for each in found), *failures)]),
            "epoch": np.array([*(one.epoch for one in found), *(None for _ in failures)], object),
            "noisy_accuracy": np.array([*(one.score for one in found), *unknown]),
            "standard_error": np.array([*(one.error for one in found), *unknown]),
            "clean_accuracy_estimate": np.array([*estimates, *unknown]),
            "cannot_be_told_from_best": np.array([*(cannot_be_told_from(top, one) for one in found), *none]),
            "averaged": np.array([*(one in used for one in found), *none]),
            "chosen": np.array([*(one is best for one in found), *none]),
            "failure": np.array([*(None for _ in found), *failures.values()], object),
        }

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return the probabilities of the true classes (n, C)."""
        check_is_fitted(self)
        rows = as_array(X)
        refuse_no_rows(rows)
        if self.encoder_ is not None:
            texts = column_of_texts(rows)
            if texts is None and not (hasattr(rows, "columns") or isinstance(rows, Mapping)):
                raise ValueError(
                    f"X must hold a list of texts, or a table with the columns of fit; got {checks.brief(rows)}"
                )
            return self.predictor_.probabilities(self.encoder_.transform(rows if texts is None else texts))
        if self.seen_ is None:
            refuse_texts(rows)
        else:
            rows = self._seen(rows)
        if self.seen_ is None or self.seen_.encoder is None:
            rows = validate_data(self, rows, accept_sparse="csr", dtype=FLOATS, allow_nd=True, reset=False)
        if tuple(rows.shape[1:]) != self.input_shape_:
            raise ValueError(f"X must hold rows {self.input_shape_} as in fit; got {tuple(rows.shape[1:])}")
        return self.predictor_.probabilities(rows.reshape(rows.shape[0], -1) if rows.ndim > 2 else rows)

    def _seen(self, rows: Any) -> Any:
        """Return what learners see of new images or texts."""
        assert self.seen_ is not None
        if isinstance(rows, Images):
            return rows.pixels() if self.seen_.encoder is None else self._seen(rows.examples)
        if self.representation_ is None:
            texts = column_of_texts(rows)
            if texts is None:
                raise ValueError(f"X must hold a list of texts as in fit; got {checks.brief(rows)}")
            return self._encoded_texts(texts)
        if image_files(rows) is None and not is_image_array(rows):
            raise ValueError(
                "X must hold image files, or an array (N, channels, height, width), as in fit; got "
                f"{checks.brief(rows)}"
            )
        return self.seen_.of_new(rows, self.device, self.n_jobs)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the most probable class (n,)."""
        best = self.predict_proba(X).argmax(1)  # before classes_, which a model without a fit does not have
        return self.classes_[best]

    def label_issues(self) -> Any:
        """Return the labels that look wrong as a pandas DataFrame, the most suspicious first.

        Returns:
            Columns ``row`` (position in the training data), ``given``, ``suggested`` and ``score`` (the probability
            that the given label is right). It is empty if nothing was learnt.
        """
        audit = audit_fit(self)
        found = audit.to_frame()
        rows = found["row"].to_numpy()
        columns = {"given": self.given_labels_[rows], "suggested": self.classes_[audit.suggested[rows]]}
        return found.assign(**columns)[found["flagged"]].drop(columns="flagged").reset_index(drop=True)

    def export(self) -> tuple[nn.Module, dict[str, Tensor]]:
        """Return the best network of the model, as a plain module for features, and its state."""
        check_is_fitted(self)
        module = self.predictor_.module()
        if module is None:
            raise ValueError(f"only a network can be exported; the learner that was chosen is {self.learner_}")
        return module, module.state_dict()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        return tags


def as_array(values: Any) -> Any:
    """Return tensors, and lists of tensors or images, as one array, and everything else unchanged.

    >>> as_array([np.zeros((1, 8, 8)), np.zeros((1, 8, 8))]).shape
    (2, 1, 8, 8)
    """
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    listed = isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.dtype == object)
    if not listed or not len(values) or not all(isinstance(one, Tensor | np.ndarray) and one.ndim for one in values):
        return values
    images = [as_array(one) for one in values]
    other = next((one.shape for one in images if one.shape != images[0].shape), None)
    if other is not None:
        raise ValueError(f"X must hold images of one size; got {images[0].shape} and {other}: resize them first")
    return np.stack(images)


def refuse_gaps(features: Any) -> None:
    """Raise ValueError if an array of features holds NaN or inf."""
    if isinstance(features, np.ndarray) and features.dtype.kind == "f" and features.ndim:
        rows = len(features)
        bad = rows - int(np.isfinite(features).all(tuple(range(1, features.ndim))).sum())
        if bad:
            raise ValueError(
                f"X must hold finite numbers; got NaN or inf in {bad:,} of {rows:,} rows: in a DataFrame missing "
                "values are filled in"
            )


def column_of_texts(features: Any) -> Any:
    """Return a list, an array (N,) or (N, 1) or a Series of strings as a DataFrame with the column "text"; else None.

    >>> list(column_of_texts(["late again", "thank you"]).columns)
    ['text']
    """
    listed = isinstance(features, list | tuple) or getattr(getattr(features, "dtype", None), "kind", "O") in "OUT"
    if not listed or hasattr(features, "columns") or not hasattr(features, "__len__"):
        return None
    if isinstance(features, Mapping):
        return None
    if np.asarray(features[:1], object).size != 1:
        return None
    texts = np.asarray(features, object).ravel().tolist()
    if len(texts) != len(features) or not any(isinstance(text, str) for text in texts):
        return None
    import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415

    named = pd.DataFrame({"text": np.array(texts, object)})
    return named if all(isinstance(text, str) or pd.isna(text) is True for text in texts) else None


def refuse_no_rows(features: Any) -> None:
    """Raise ValueError if there is no row to predict."""
    count = (len(features),) if isinstance(features, list | tuple) else getattr(features, "shape", ())[:1]
    if count == (0,):
        raise ValueError("X must have a row or more; got none")


def refuse_texts(features: Any) -> None:
    """Raise ValueError if features are columns of texts without names, or texts among numbers."""
    if sparse.issparse(features) or hasattr(features, "columns") or isinstance(features, Mapping):
        return
    first = np.asarray(features[:1] if hasattr(features, "__len__") else features, object).ravel()[:1]
    if len(first) and isinstance(first[0], str):
        raise ValueError(
            f"X must hold numbers, or be a DataFrame; got texts such as {checks.brief(first[0])}: a list of texts "
            "holds one in each row, and columns need names"
        )


def refuse_missing_labels(labels: Any) -> None:
    """Raise ValueError if labels are missing, or cannot be sorted, which would end in an error that names no row."""
    found = np.asarray(labels, object) if isinstance(labels, list | tuple) else np.asarray(labels)
    if found.ndim != 1 or found.dtype.kind != "O":
        return
    missing = [k for k, one in enumerate(found) if one is None or (isinstance(one, float) and math.isnan(one))]
    if missing:
        raise ValueError(f"y must have a label in every row; got {found[missing[0]]} in row {missing[0]} (from 0)")
    if len({isinstance(label, str) for label in found}) > 1:
        raise ValueError("y must hold labels of one type; got numbers and texts")


def is_mixed_table(features: Any) -> bool:
    """Return whether this is a table with named columns, some of them not numeric or with missing values.

    >>> is_mixed_table(np.eye(3))
    False
    """
    if not hasattr(features, "columns") or not hasattr(features, "__getitem__"):
        return False
    columns = (np.asarray(features[name]) for name in features.columns)
    return any(each.dtype.kind not in "biuf" or (each.dtype.kind == "f" and np.isnan(each).any()) for each in columns)
