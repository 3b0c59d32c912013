"""The metrics of an epoch, the result of a run, and the mean and spread of several results.

``metrics.jsonl`` and ``result.json`` hold the first two.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symloss import checks
from symloss.training.settings import Settings

MEASURES = ("test_accuracy", "validation_accuracy")
"""What the accuracy of a run is measured on: the test set, else the examples held out for validation."""


@dataclass(frozen=True)
class EpochRow:
    """The metrics of one epoch. A metric is None where it could not be measured.

    Attributes:
        epoch: counted from 1.
        lr: the learning rate of the last step.
        loss: the mean training loss.
        train_accuracy: the share of training examples whose (possibly wrong) label has the largest score.
        clean_accuracy: the same share, for the true labels.
        memorised: the share of wrong training labels that the model predicts.
        validation_accuracy: on the examples that were held out.
        test_accuracy: on the test set.
        seconds: the time since the run began, without what was written.

    >>> EpochRow.from_json({"epoch": 3, "loss": 0.5}).loss
    0.5
    """

    epoch: int
    lr: float | None = None
    loss: float | None = None
    train_accuracy: float | None = None
    clean_accuracy: float | None = None
    memorised: float | None = None
    validation_accuracy: float | None = None
    test_accuracy: float | None = None
    seconds: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """Return the metrics by name, in the order in which they are written."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: object, where: object = "an epoch") -> EpochRow:
        """Check and read a JSON document, which messages call ``where``. Unknown names are ignored."""
        metrics = [each.name for each in dataclasses.fields(cls) if each.name != "epoch"]
        kinds = {"epoch": "int"} | dict.fromkeys(metrics, "metric | None")
        return cls(**checks.record(where, document, kinds, optional=metrics))


@dataclass(frozen=True)
class Result:
    """The result of a finished run.

    Attributes:
        settings: the settings of the run.
        train, validation, test: the numbers of examples.
        validation_labels: "noisy", "clean", or "none" where nothing was held out.
        noise_rate: the share of wrong labels among the training examples; None where it is unknown.
        last: the last epoch.
        best: the epoch with the best validation accuracy, smoothed over its neighbours on the user's own data; the last
            one where nothing was held out.
        seconds: the training time.
        versions: software, commit, threads and machine.
        smoothed: the smoothed validation accuracy of the best epoch; None where single epochs were compared.
    """

    settings: Settings
    train: int
    validation: int
    validation_labels: str
    test: int
    noise_rate: float | None
    last: EpochRow
    best: EpochRow
    seconds: float
    versions: Mapping[str, Any] = field(default_factory=dict)
    smoothed: float | None = None

    @property
    def best_first(self) -> bool:
        """Whether the best epoch is the result of the run: on the user's own data, where labels were held out.

        Published protocols report the last epoch.
        """
        return self.validation > 0 and not self.settings.data_is_published

    @property
    def judged(self) -> float | None:
        """The validation accuracy that runs are compared by: of the best epoch, smoothed, or of the last one."""
        if not self.best_first:
            return self.last.validation_accuracy
        return self.best.validation_accuracy if self.smoothed is None else self.smoothed

    @property
    def measure(self) -> str | None:
        """The metric that counts as the accuracy of the run; None where no example was kept for it."""
        return next((name for name in MEASURES if getattr(self.last, name) is not None), None)

    def to_json(self) -> dict[str, Any]:
        """Return the document for ``result.json``."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any], path: Path | str) -> Result:
        """Read a document, and raise ValueError with one sentence that names ``path`` if it is damaged."""
        values = checks.record(path, document, cls)
        for name in ("last", "best"):
            where = f"the {name} epoch of {path}"
            shares = dict.fromkeys((*MEASURES, "memorised"), "share | None")
            checks.record(where, values[name], shares, optional=shares)
            values[name] = EpochRow.from_json(values[name], where)
        try:
            values["settings"] = Settings.from_dict(document["settings"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} holds no settings of a run; {error}") from None
        return cls(**values)


@dataclass(frozen=True)
class Spread:
    """Several values, their mean, and their standard deviation (n - 1). One value has no standard deviation.

    >>> several = Spread.of([87.0, 88.0, 92.0])
    >>> several.n, several.text
    (3, '89.00(2.65)')
    """

    mean: float
    std: float | None
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of one or more values."""
        known = tuple(values)
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, known)

    @property
    def n(self) -> int:
        """The number of values."""
        return len(self.values)

    @property
    def text(self) -> str:
        """``mean(standard deviation)`` with two decimals."""
        return self.rounded(2)

    def rounded(self, decimals: int) -> str:
        """``mean(standard deviation)``."""
        return f"{self.mean:.{decimals}f}" + ("" if self.std is None else f"({self.std:.{decimals}f})")

    def to_json(self) -> dict[str, float | None]:
        """Return mean and standard deviation, for JSON."""
        return {"mean": self.mean, "std": self.std}


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the spread of the values that are not None; None if there is no such value."""
    known = [value for value in values if value is not None]
    return Spread.of(known) if known else None


def in_percent(shares: Iterable[float | None]) -> Spread | None:
    """Return the spread of shares in percent; None if all are None."""
    return spread(None if share is None else 100 * share for share in shares)


@dataclass(frozen=True)
class LossSummary:
    """One line of a comparison: a loss and the figures of its runs."""

    loss: str
    lr: float
    weight_decay: float
    measure: str
    """The metric of ``last`` and ``best``."""
    last: Spread | None
    best: Spread | None
    memorised: Spread | None
    seconds: float
    """The mean training time of a run."""
    runs: int

    def to_json(self) -> dict[str, Any]:
        """Return the line, for JSON."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {name: value.to_json() if isinstance(value, Spread) else value for name, value in fields.items()}


def summarize(results: Sequence[Result]) -> LossSummary:
    """Summarize the runs of one loss with different seeds."""
    settings = results[0].settings
    measure = "test_accuracy" if results[0].test else "validation_accuracy"
    return LossSummary(
        loss=settings.loss,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        measure=measure,
        last=spread(getattr(result.last, measure) for result in results),
        best=spread(getattr(result.best, measure) for result in results),
        memorised=spread(result.last.memorised for result in results),
        seconds=sum(result.seconds for result in results) / len(results),
        runs=len(results),
    )
