"""The labels that a fitted ``RobustClassifier``, or the network of a finished run, takes for wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted  # type: ignore[import-untyped]

from symloss import checks
from symloss.fit.audit.scores import Audit, WrongCount, audit_labels, count_wrong
from symloss.noise.manifest import MANIFEST_FILE
from symloss.training.margins import MARGINS, read_margins
from symloss.training.prediction import encoder_used, trained
from symloss.training.run_folder import RunFolder, no_run
from symloss.training.settings import Settings
from symloss.training.task import Task, prepare

if TYPE_CHECKING:
    from symloss.fit.estimator import RobustClassifier

NOTHING_LEARNT = (
    "Nothing was learnt from these features: what learners predict for held-out rows cannot be told from chance. "
    "The labels cannot be judged."
)
MANY_LOOK_WRONG = (
    "If you expect far fewer wrong labels, these features do not tell the classes apart, and difficult examples look "
    "wrong: check some before you trust the list."
)
MANY = 0.3
"""The share of wrong labels above which a fit says what else it may mean."""


def audit_fit(
    model: RobustClassifier,
    *,
    class_names: Sequence[str] | None = None,
    positions: ArrayLike | None = None,
    truth: ArrayLike | None = None,
) -> Audit:
    """Audit the labels that a :class:`symloss.RobustClassifier` was fitted to.

    The labels are ranked by ``label_scores_``, and ``n_wrong_`` of them are flagged. A suggestion is the most probable
    class given features and label. ``pred_probs`` are held-out predictions that do not use the label, as other
    programs expect them.

    Args:
        model: fitted.
        class_names: the names of the classes; None for ``classes_`` of the model, as text.
        positions: (N,), which examples of a data set these are; None for all, in order.
        truth: (N,), the true labels, to measure by, written as those passed to ``fit``; None if unknown.

    >>> from sklearn.datasets import load_iris
    >>> from symloss import RobustClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> noisy = y.copy()
    >>> noisy[::5] = (y[::5] + 1) % 3
    >>> model = RobustClassifier(learners=["closed-form", "logistic"]).fit(X, noisy)
    >>> audit = audit_fit(model, truth=y)
    >>> audit.n_wrong == model.n_wrong_, audit.average_precision > 0.9
    (True, True)
    """
    check_is_fitted(model)
    names = model.classes_
    low, high = (round(share * len(model.given_labels_)) for share in model.noise_rate_interval_)
    found = audit_labels(
        np.searchsorted(names, model.given_labels_),
        model.label_scores_,
        model.posterior_,
        n_wrong=model.n_wrong_,
        interval=(low, high),
        class_names=[str(name) for name in names] if class_names is None else class_names,
        positions=positions,
        truth=None if truth is None else _numbers(truth, names),
    )
    # Where margins have put the scores into another order, the rest of the probability moves with them.
    rest = np.divide(
        1 - found.label_scores, 1 - found.given_probs, where=found.given_probs < 1, out=np.ones(len(found))
    )
    suggested = np.where(found.flagged, np.minimum(found.suggested_probs * rest, 1.0), found.label_scores)
    return replace(
        found,
        given_probs=found.label_scores,
        suggested_probs=suggested,
        pred_probs=model.oof_probabilities_.astype(np.float64),
        transition=model.transition_,
    )


def warning_of_fit(model: RobustClassifier) -> str:
    """Return what to know before trusting the audit of a fit; empty if there is nothing to say."""
    if not model.learned_:
        return NOTHING_LEARNT
    return "" if model.classes_apart_ or model.noise_rate_ <= MANY else MANY_LOOK_WRONG


def _numbers(truth: ArrayLike, names: NDArray[np.generic]) -> NDArray[np.int64]:
    labels = np.asarray(truth)
    unknown = labels[~np.isin(labels, names)]
    if len(unknown):
        raise ValueError(f"truth must hold classes of the model; got {checks.brief(unknown[0].item())}")
    return np.searchsorted(names, labels)


@dataclass(frozen=True)
class RunAudit:
    """The audit of a run.

    Args:
        audit: of the labels that the run was trained on.
        count: the number of wrong labels, and how it was estimated.
        settings: of the run.
        task: the data of the run.
    """

    audit: Audit
    count: WrongCount
    settings: Settings
    task: Task


def audit_run(
    run: Path | str,
    *,
    model: str | None = None,
    root: Path | None = None,
    skip_bad: bool = False,
    encoder: str | None = None,
) -> RunAudit:
    """Audit the labels that a finished run was trained on.

    The labels are ranked by their mean margin over training. The probabilities are those of the best epoch, or of the
    last if nothing was held out. Held-out examples are not ranked: they count the wrong labels.

    Args:
        run: the folder of the run.
        model: the name of the run's model again, if it is your own code.
        root: where published data sets are.
        skip_bad: as in the training of the run.
        encoder: the name of the run's encoder of texts again, if its weights are not installed with it.
    """
    folder = RunFolder(run)
    settings = folder.settings()
    if settings is None:
        raise ValueError(no_run(run))
    if folder.result() is None:
        raise ValueError(f"The run in {str(run)!r} is not finished. Rerun the command that began it to resume.")
    network = trained(run, model=model, encoder=encoder)
    task = prepare(settings, root, skip_bad, None, encoder_used(folder, encoder))
    if (folder.read(MANIFEST_FILE) or {}).get("noisy_sha256") != task.corruption.manifest.noisy_sha256:
        raise ValueError(
            f"{task.data.name} must have the labels that {folder.path} was trained on; got others, so they have "
            "changed since"
        )
    positions = np.arange(len(task.train)) if task.train.positions is None else task.train.positions.numpy()
    margins = read_margins(folder.path)
    if margins is None:
        raise ValueError(f"{folder.path} is damaged: {MARGINS} is missing; train again")
    if not np.array_equal(margins.positions, positions):
        raise ValueError(
            f"{folder.path / MARGINS} must hold the examples of the run; got {len(margins.positions)} others"
        )
    if task.validation is None or settings.clean_validation:
        # Held-out labels that are true say nothing of how many others are wrong.
        count = count_wrong(margins.margin)
    else:
        held_out = network.all_scores(task.validation).softmax(1).numpy()
        count = count_wrong(margins.margin, task.validation.labels.numpy(), held_out)
    audit = audit_labels(
        task.train.labels.numpy(),
        margins.margin,
        network.probabilities(network.all_scores(task.train)).double().numpy(),
        n_wrong=count.n_wrong,
        interval=count.interval,
        class_names=task.data.class_names,
        positions=positions,
        truth=None if task.clean is None else task.clean.numpy(),
    )
    return RunAudit(audit, count, settings, task)
