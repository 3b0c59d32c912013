"""Candidates: learners with their settings; and the learners other than networks, and how they are made."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import chain, product, zip_longest
from typing import Any

from symloss import checks
from symloss.fit.networks import Factory

TREES = 100


@dataclass(frozen=True)
class Shape:
    """The size of the data."""

    rows: int  # examples to train on
    features: int  # numbers of each example
    num_classes: int  # how many there are
    sparse: bool = False  # whether the features are a sparse matrix


@dataclass(frozen=True)
class Candidate:
    """One learner with its settings.

    >>> Candidate("svc", (("C", 1.0), ("gamma", 0.5)), "standard").name
    'svc C=1 gamma=0.5 (standard)'
    """

    learner: str  # "network", "linear", or one of :data:`symloss.fit.learners.CLASSICAL`
    settings: tuple[tuple[str, float], ...] = ()  # names and values, in the order in which they are shown
    scaling: str = "raw"  # "raw" for one factor for all features, "standard" for mean 0 and variance 1 of each
    loss: str | None = None  # the loss of a network or of a linear layer; None for other learners
    # a name for :func:`symloss.training.models.create_model`, or a factory; None for the networks that are trained
    # stacked, and for other learners
    model: str | Factory | None = None

    @property
    def name(self) -> str:
        """The candidate in words."""
        head = " ".join(part for part in (self.learner, self.model_name, self.loss) if part is not None)
        values = "".join(f" {name}={value:g}" for name, value in self.settings)
        return f"{head}{values} ({self.scaling})"

    @property
    def model_name(self) -> str | None:
        """The name of the model, or of its factory."""
        if self.model is None or isinstance(self.model, str):
            return self.model
        return str(getattr(self.model, "__name__", type(self.model).__name__))

    @property
    def architecture(self) -> Hashable:
        """What networks must have in common to be trained together."""
        return self.learner, self.model, self.scaling, self.get("epochs")

    @property
    def kind(self) -> Hashable:
        """What candidates have in common that make the same mistakes."""
        return self.learner, self.loss

    def __getitem__(self, setting: str) -> float:
        return dict(self.settings)[setting]

    def get(self, setting: str, default: float | None = None) -> float | None:
        """Return a setting, or the default if the candidate has none of this name."""
        return dict(self.settings).get(setting, default)


@dataclass(frozen=True)
class Learner:
    """A kind of learner."""

    kind: str  # the name by which the user chooses it
    estimator: tuple[str, str]  # module and class
    grid: tuple[tuple[tuple[str, float], ...], ...]  # the settings to try, the most promising first
    # the arguments of the estimator. Called with the candidate, the width of kernels, and a seed
    options: Callable[[Candidate, float, int], dict[str, Any]]
    scalings: tuple[str, ...] = ("raw", "standard")  # how features may be scaled
    sparse: bool = True  # whether it takes sparse matrices
    weighted: bool = True  # whether it takes weights of rows
    needs: str | None = None  # an optional package. Such a learner is tried only if the user names it
    types: tuple[str, ...] = ()  # what a saved one may hold besides the types that skops trusts by default

    def candidates(self, name: str, shape: Shape) -> Iterator[Candidate]:
        """Return the candidates for data of this size. Sparse matrices are not centred."""
        if shape.sparse and not self.sparse:
            return
        scalings = self.scalings[:1] if shape.sparse and "raw" in self.scalings else self.scalings
        for settings, scaling in product(self.grid, scalings):
            if all(value < shape.rows / 4 for key, value in settings if key in ("neighbours", "leaf")) or not settings:
                yield Candidate(name, settings, "raw" if shape.sparse else scaling)

    @property
    def type(self) -> Any:
        """The class of the estimator."""
        module, name = self.estimator
        return getattr(importlib.import_module(module), name)


def _values(name: str, *values: float) -> tuple[tuple[tuple[str, float], ...], ...]:
    return tuple(((name, value),) for value in values)


_OBJECTIVE = "symloss.adapters.boosting.Objective"
_OWN_LOSS = (
    _OBJECTIVE,
    f"{_OBJECTIVE}.loss",
    "symloss.losses.catalogue.probability.GCE",
    "symloss.losses.potentials.GCEPotential",
    "torch.nn.modules.container.ModuleList",
)


def _trees_of(package: str, estimator: str, silent: int, types: tuple[str, ...]) -> Learner:
    """Return gradient boosting of another library with a robust loss.

    The module is named by text, because adapters are built on learners and not the other way round. Trees are shallow,
    because deep ones soon know wrong labels by heart.
    """

    def options(c: Candidate, width: float, seed: int) -> dict[str, Any]:
        settings = {"loss": f"gce:q={c['q']:g}", "n_estimators": int(c["rounds"]), "max_depth": 3}
        return settings | {"n_jobs": 1, "random_state": seed, "verbosity": silent}

    return Learner(
        package,
        ("symloss.adapters.boosting", estimator),
        ((("q", 1.0), ("rounds", 40)), (("q", 0.7), ("rounds", 100))),
        options,
        scalings=("raw",),
        needs=package,
        types=(f"symloss.adapters.boosting.{estimator}", *_OWN_LOSS, *types),
    )


# In the order of simplicity: where two learners cannot be told apart, the first is taken.
CLASSICAL = {
    "unhinged": Learner(
        "closed-form",
        ("symloss.closed_form", "UnhingedClassifier"),
        ((),),
        lambda c, width, seed: {},
        types=("symloss.closed_form.unhinged.UnhingedClassifier", "symloss.closed_form.sums.ClassSums", "numpy.dtype"),
    ),
    "logistic": Learner(
        "logistic",
        ("sklearn.linear_model", "LogisticRegression"),
        _values("C", 0.01, 0.001, 0.1, 3e-4, 1.0),
        lambda c, width, seed: {"C": c["C"], "max_iter": 300},
        scalings=("standard",),
    ),
    "lda": Learner(
        "lda",
        ("sklearn.discriminant_analysis", "LinearDiscriminantAnalysis"),
        ((),),
        lambda c, width, seed: {"solver": "lsqr", "shrinkage": "auto"},
        scalings=("standard",),
        sparse=False,
        weighted=False,
    ),
    "kernel-unhinged": Learner(
        "closed-form",
        ("symloss.closed_form", "KernelUnhingedClassifier"),
        _values("gamma", 1.0, 4.0),
        lambda c, width, seed: {"gamma": c["gamma"] * width},
        sparse=False,
        types=("symloss.closed_form.kernel.KernelUnhingedClassifier",),
    ),
    "k-nn": Learner(
        "k-nn",
        ("sklearn.neighbors", "KNeighborsClassifier"),
        _values("neighbours", 5, 15, 30, 60),
        lambda c, width, seed: {"n_neighbors": int(c["neighbours"]), "weights": "distance"},
        weighted=False,
        types=("sklearn.neighbors._kd_tree.KDTree", "sklearn.metrics._dist_metrics.EuclideanDistance64"),
    ),
    "svc": Learner(
        "svc",
        ("sklearn.svm", "SVC"),
        tuple(
            (("C", cost), ("gamma", gamma))
            for gamma in (1.0, 2.0, 0.5)
            for cost in (1.0, 3.0, 0.3, 10.0)
            if cost < 10 or gamma <= 1
        ),
        lambda c, width, seed: {"C": c["C"], "gamma": c["gamma"] * width},
    ),
    "forest": Learner(
        "forest",
        ("sklearn.ensemble", "RandomForestClassifier"),
        (
            (("leaf", 5),),
            (("leaf", 5), ("share", 0.6)),
            (("leaf", 10),),
            (("leaf", 10), ("share", 0.6)),
            (("leaf", 1),),
        ),
        lambda c, width, seed: {
            "n_estimators": TREES,
            "min_samples_leaf": int(c["leaf"]),
            "max_features": c.get("share") or "sqrt",
            "random_state": seed,
        },
        scalings=("raw",),
        types=("sklearn.tree._tree.Tree",),
    ),
    "boosting": Learner(
        "boosting",
        ("sklearn.ensemble", "HistGradientBoostingClassifier"),
        ((("rate", 0.1), ("depth", 3)), (("rate", 0.05),), (("rate", 0.1),)),
        lambda c, width, seed: {
            "learning_rate": c["rate"],
            "max_depth": None if c.get("depth") is None else int(c["depth"]),
            "l2_regularization": 1.0,
            "random_state": seed,
        },
        scalings=("raw",),
        sparse=False,
        types=("sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",),
    ),
    "xgboost": _trees_of(
        "xgboost", "RobustXGBClassifier", 0, ("xgboost.core.Booster", "xgboost.sklearn.XGBClassifier")
    ),
    "lightgbm": _trees_of(
        "lightgbm",
        "RobustLGBMClassifier",
        -1,
        ("lightgbm.basic.Booster", "lightgbm.sklearn.LGBMModel", "collections.OrderedDict"),
    ),
}

KINDS = ("network", "linear", *dict.fromkeys(learner.kind for learner in CLASSICAL.values() if learner.needs is None))
"""What is tried if the user does not choose."""
OFFERED = (*KINDS, *(learner.kind for learner in CLASSICAL.values() if learner.needs is not None))
"""What the user can choose from."""

SIMPLICITY = {name: place for place, name in enumerate(("unhinged", "linear", *list(CLASSICAL)[1:], "network"))}

_FIRST = ("unhinged", "logistic", "lda", "kernel-unhinged", "k-nn", "svc", "forest", "boosting", "xgboost", "lightgbm")
"""The order in which they are tried, each with its first settings before any with its second ones."""


def check_kinds(kinds: tuple[str, ...]) -> None:
    """Raise an error if there is no such kind of learner, or a package that it needs is not installed."""
    for kind in kinds:
        checks.choice("learners", kind, OFFERED)
        needed = next((learner.needs for learner in CLASSICAL.values() if learner.kind == kind), None)
        if needed is not None and importlib.util.find_spec(needed) is None:
            raise ValueError(
                f"The learner {kind!r} needs {needed}, which is not installed. Run `pip install {needed}`."
            )


def candidates(shape: Shape, kinds: tuple[str, ...]) -> Iterator[Candidate]:
    """Return all candidates other than networks and linear layers, the most promising first."""
    wanted = [name for name in _FIRST if CLASSICAL[name].kind in kinds]
    in_turn = zip_longest(*(CLASSICAL[name].candidates(name, shape) for name in wanted))
    return (one for one in chain.from_iterable(in_turn) if one is not None)
