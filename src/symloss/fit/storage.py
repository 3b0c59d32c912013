"""Write and read the model of a fit without code: fitted learners by skops, weights as tensors, the rest as JSON.

A file is read into a fixed list of types, whatever it names. Nothing is fitted again when a model is loaded, and the
training rows are not kept, except those that k-NN, SVC and the kernel form of the unhinged loss predict with.
"""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn  # type: ignore[import-untyped]
import torch
from sklearn.exceptions import InconsistentVersionWarning  # type: ignore[import-untyped]
from torch import nn

from symloss import __version__, checks
from symloss.data.dataset import DataSet, ImageFiles
from symloss.data.opening import open_inputs
from symloss.data.source import DataDescription, DataSource, warn
from symloss.encoders.images import Progress
from symloss.fit.audit.scores import Audit
from symloss.fit.ensemble import Ensemble, Member, precise
from symloss.fit.folder import RESULT, LabelSource, finish_fit, open_fit, save_audit
from symloss.fit.learners import CLASSICAL, Candidate
from symloss.fit.networks import one_thread
from symloss.fit.representation import Images, Representation, images_of
from symloss.fit.stacks import STACKED
from symloss.fit.training_data import SCALINGS, Scaler, features_of
from symloss.noise.manifest import Corruption
from symloss.training.models import create_model, is_built_in, without_weights
from symloss.training.prediction import Predictions, kept_encoder
from symloss.training.run_folder import COLUMNS, DATA, FIT, RunFolder
from symloss.writing import write_whole

if TYPE_CHECKING:
    from symloss.fit.estimator import RobustClassifier

LEARNERS, NETWORKS = "learners.skops", "networks.pt"
OF_PREDICTIONS = (DATA, COLUMNS, LEARNERS, NETWORKS)
TEMPERATURES = "[1e-6, 1e6]"
"""Beyond these no fit comes, and logarithms divided by a temperature would overflow."""
_SCALER = f"{Scaler.__module__}.{Scaler.__qualname__}"


def save_fit(
    folder: Path,
    model: RobustClassifier,
    corruption: Corruption,
    data: DataSet,
    audit: Audit,
    source: LabelSource,
    *,
    settings: Mapping[str, Any],
    result: Mapping[str, Any],
) -> None:
    """Write the model of a fit, its audit, and all that predictions on other data need.

    The folder is that of :func:`symloss.fit.folder.replaced_fit`; files in it become part of the fit. ``result`` is
    what the command prints, and prints again if it is called with the same ``settings``.
    """
    seen = None if model.seen_ is None else model.seen_.to_document()
    run = RunFolder(folder)
    run.write(DATA, asdict(data.description()))
    if data.encoder is not None:
        run.write(COLUMNS, data.encoder.to_document())
    corruption.save(folder)
    save_audit(audit, source, folder)
    run.write(RESULT, dict(result))
    description = save_predictor(model.predictor_, folder)
    versions = {"symloss": __version__, "scikit-learn": sklearn.__version__, "torch": str(torch.__version__)}
    finish_fit(folder, versions=versions, settings=dict(settings), model=description | {"encoder": seen})


def open_predictor(folder: Path, encoder: str | None = None) -> tuple[DataDescription, Ensemble, Representation]:
    """Return the model of a fit, what its data was like, and what it sees of images.

    An ``encoder`` whose weights are not installed with it must be named by the user.
    """
    document = open_fit(folder, OF_PREDICTIONS)
    data = RunFolder(folder).data()
    assert data is not None  # open_fit has seen it
    try:
        predictor = load_predictor(document["model"], folder)
        if predictor.num_classes != len(data.class_names):
            raise ValueError(f"the model has {predictor.num_classes} classes, and {DATA} {len(data.class_names)}")
    except Exception as error:
        if document["versions"].get("scikit-learn") != sklearn.__version__:
            raise ValueError(
                f"{folder} was fitted with scikit-learn {checks.brief(document['versions'].get('scikit-learn'))}, and "
                f"{sklearn.__version__} cannot load it: install that version, or fit again"
            ) from error
        raise ValueError(f"{folder} is damaged: {checks.brief(str(error))[1:-1]}; fit again") from error
    seen = Representation.from_document(
        document["model"].get("encoder"), folder / FIT, None if data.columns else encoder
    )
    return data, predictor, seen


def predict_with_fit(
    folder: Path,
    data: str,
    *,
    image: str | None = None,
    root: Path | None = None,
    skip: bool = False,
    encoder: str | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Predictions:
    """Predict on other data with a fit; arguments as in :func:`symloss.training.prediction.predict`.

    ``n_jobs`` worker processes encode images. ``progress`` is called with the number of images that are encoded, and
    of all.
    """
    known, predictor, seen = open_predictor(folder, encoder)
    table = kept_encoder(RunFolder(folder), encoder) if known.columns else None
    source = DataSource(data, image=image, skip_bad=skip)
    like = known
    if len(known.input_shape) == 3:  # image files may have any size
        like = replace(known, size=known.size or known.input_shape[-1])
    encoded = seen.encoder is not None
    inputs = open_inputs(source, like, table, root=root, on_bad=warn, any_size=encoded)
    if not encoded and isinstance(inputs.inputs, ImageFiles) and known.size is None:
        features = Images(inputs.inputs.paths, known.input_shape).pixels()
    elif not encoded:
        features = features_of(inputs, known.size)
    else:
        images = images_of(inputs, like.size)
        if not isinstance(images, Images):
            raise ValueError(f"data must be images, as in the fit; got {data!r}")
        with one_thread():
            features = seen.of_new(images.examples, n_jobs=n_jobs, progress=progress)
        if features.shape[1:] != predictor.input_shape:
            raise ValueError(f"{folder} is damaged: its encoder must have {predictor.input_shape[0]} features")
    predicted = predictor.probabilities(features.reshape(len(features), -1))
    if not np.isfinite(predicted).all():
        raise ValueError(f"{folder} must hold a model that predicts probabilities; got NaN: fit again")
    names = inputs.origin.names(len(inputs))
    return Predictions(known.class_names, True, zip(names, predicted.tolist(), strict=True))


def save_predictor(predictor: Ensemble, folder: Path) -> dict[str, Any]:
    """Write the learners of a model into a folder; return what else is needed to load it, for JSON."""
    # skops takes half a second to import.
    import skops.io  # type: ignore[import-untyped]  # noqa: PLC0415

    description = {
        "num_classes": predictor.num_classes,
        "input_shape": predictor.input_shape,
        "temperature": predictor.temperature,
        "adjustment": predictor.adjustment,
        "members": [
            {
                "learner": member.candidate.learner,
                "settings": dict(member.candidate.settings),
                "scaling": member.candidate.scaling,
                "loss": member.candidate.loss,
                "model": _known_model(member.candidate),
                "temperature": member.temperature,
                "weight": member.weight,
                "networks": len(member.networks),
            }
            for member in predictor.members
        ],
    }
    estimators = [member.estimator for member in predictor.members if not member.networks]
    parts = {"scaler": predictor.scaler, "estimators": estimators}
    write_whole(folder / LEARNERS, skops.io.dumps(parts, compression=zipfile.ZIP_DEFLATED))
    states = io.BytesIO()
    torch.save([net.state_dict() for member in predictor.members for net in member.networks], states)
    write_whole(folder / NETWORKS, states.getvalue())
    return description


def load_predictor(description: dict[str, Any], folder: Path) -> Ensemble:
    """Read a model that :func:`save_predictor` wrote. The folder may be somebody else's: every value is checked."""
    num_classes = int(checks.number("num_classes", description["num_classes"], "[2, inf)", whole=True))
    sides = description["input_shape"]
    shape = tuple(int(checks.number("input_shape", side, "[1, inf)", whole=True)) for side in sides)
    temperature = checks.number("temperature", description["temperature"], TEMPERATURES)
    given = description.get("adjustment", ())  # models of earlier versions have none
    adjustment = tuple(checks.number("adjustment", each, "[0, 10]") for each in given)
    if len(adjustment) not in (0, num_classes):
        raise ValueError(f"adjustment must have a number for each of {num_classes} classes; got {len(adjustment)}")
    rows = [_Row(member) for member in description["members"]]
    if not rows:
        raise ValueError("members must be one or more; got none")
    parts = _learners(folder, {row.candidate.learner for row in rows if not row.networks})
    scaler, estimators = parts["scaler"], parts["estimators"]
    states = torch.load(folder / NETWORKS, weights_only=True)
    if not isinstance(scaler, Scaler) or len(scaler.mean) != math.prod(shape):
        raise ValueError(f"the scaling must be of {math.prod(shape)} features")
    if len(estimators) != sum(not row.networks for row in rows):
        raise ValueError(f"{LEARNERS} must hold a learner for each member that is no network; got {len(estimators)}")
    if len(states) != sum(row.networks for row in rows):
        raise ValueError(f"{NETWORKS} must hold the networks of all members; got {len(states)}")
    members, fitted, weights = [], iter(estimators), iter(states)
    for row in rows:
        networks = tuple(_network(next(weights), row.candidate, shape, num_classes) for _ in range(row.networks))
        estimator = None if networks else _checked(next(fitted), row.candidate, math.prod(shape), num_classes)
        members.append(Member(row.candidate, row.temperature, estimator, networks, row.weight))
    return Ensemble(scaler, tuple(members), temperature, num_classes, shape, adjustment)


class _Row:
    """A member as JSON has it, checked."""

    def __init__(self, member: dict[str, Any]):
        checks.choice("learner", member["learner"], (*CLASSICAL, *STACKED))
        checks.choice("scaling", member["scaling"], SCALINGS)
        given = member["settings"].items()
        settings = tuple((name, checks.number(name, value, "(-inf, inf)")) for name, value in given)
        self.candidate = Candidate(member["learner"], settings, member["scaling"], member["loss"], member["model"])
        _known_model(self.candidate)
        self.temperature = checks.number("temperature", member["temperature"], TEMPERATURES)
        self.weight = checks.number("weight", member.get("weight", 1.0), "(0, 1]")  # earlier versions had none
        self.networks = int(checks.number("networks", member["networks"], "[0, 1000]", whole=True))
        if bool(self.networks) != (self.candidate.learner in STACKED):
            raise ValueError(f"networks must be those of a network; got {self.networks} of {self.candidate.name}")


def _learners(folder: Path, used: set[str]) -> dict[str, Any]:
    import skops.io  # noqa: PLC0415

    trusted = [_SCALER, *(name for learner in used for name in CLASSICAL[learner].types)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        parts = skops.io.loads((folder / LEARNERS).read_bytes(), trusted=trusted)
    others = [one.message for one in told if isinstance(one.message, InconsistentVersionWarning)]
    if others:
        warnings.warn(
            f"{folder} was fitted with scikit-learn {others[0].original_sklearn_version}, which is not the version "
            "installed here; its predictions may differ",
            stacklevel=2,
        )
    checks.record(LEARNERS, parts, {"estimators": "list"})
    return dict(parts)


def _checked(estimator: Any, candidate: Candidate, features: int, num_classes: int) -> Any:
    """Return a learner of the kind that the candidate names, for these features and classes."""
    if type(estimator) is not CLASSICAL[candidate.learner].type:
        raise ValueError(f"{candidate.name} must be a {candidate.learner}; got a {type(estimator).__name__}")
    known = [int(number) for number in estimator.classes_]
    if estimator.n_features_in_ != features or not all(0 <= number < num_classes for number in known):
        raise ValueError(f"{candidate.name} must have {features} features and {num_classes} classes; got others")
    return estimator


def _known_model(candidate: Candidate) -> str | None:
    """Return the model by which a network is built again. A file may not name code of anybody's."""
    model = candidate.model
    if model is None or (isinstance(model, str) and is_built_in(model)):
        return model
    raise ValueError(f"a model that is saved must be one of symloss or timm; got {checks.brief(candidate.model_name)}")


def _network(state: dict[str, Any], candidate: Candidate, shape: Sequence[int], num_classes: int) -> nn.Module:
    name = without_weights(_known_model(candidate) or STACKED[candidate.learner])
    module = create_model(name, input_shape=tuple(shape), num_classes=num_classes, seed=0)
    module = precise(module, candidate)
    module.load_state_dict(state)
    return module.eval()
