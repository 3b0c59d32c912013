"""What the folder of a fit holds: the model, what the data is like, the audit; and predictions on other data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn  # type: ignore[import-untyped]
import torch

from symloss import __version__, checks
from symloss.data.dataset import DataSet
from symloss.data.opening import open_inputs
from symloss.data.source import DataDescription, DataSource, warn
from symloss.data.table_encoder import TableEncoder
from symloss.fit.audit.scores import Audit
from symloss.fit.fit_data import FitData, features_of
from symloss.fit.saved_audit import LabelSource, save_audit
from symloss.fit.saved_fit import LEARNERS, NETWORKS, load_predictor, save_predictor
from symloss.training.fit_files import RESULT, finish_fit, open_fit
from symloss.training.prediction import Predictions
from symloss.training.run_folder import COLUMNS, DATA, RunFolder

if TYPE_CHECKING:
    from symloss.fit.estimator import RobustClassifier
    from symloss.fit.predictor import Predictor

OF_PREDICTIONS = (DATA, COLUMNS, LEARNERS, NETWORKS)


def save_fit(
    folder: Path,
    model: RobustClassifier,
    rows: FitData,
    data: DataSet,
    audit: Audit,
    source: LabelSource,
    *,
    settings: Mapping[str, Any],
    result: Mapping[str, Any],
) -> None:
    """Write the model of a fit, its audit, and all that predictions on other data need.

    Args:
        folder: see :func:`symloss.training.fit_files.replaced_fit`. Files in it become part of the fit.
        model: the estimator after its fit.
        rows: what it was fitted to.
        data: the data set of the rows.
        audit: of its labels.
        source: where they came from.
        settings: of the command. The same command again prints the result again.
        result: what the command prints.
    """
    run = RunFolder(folder)
    run.write(DATA, asdict(data.description()))
    if data.encoder is not None:
        run.write(COLUMNS, data.encoder.to_document())
    rows.corruption.save(folder)
    save_audit(audit, source, folder)
    run.write(RESULT, dict(result))
    description = save_predictor(model.predictor_, folder)
    versions = {"symloss": __version__, "scikit-learn": sklearn.__version__, "torch": str(torch.__version__)}
    finish_fit(folder, versions=versions, settings=dict(settings), model=description)


def open_predictor(folder: Path) -> tuple[DataDescription, Predictor]:
    """The model of a fit, and what its data was like."""
    document = open_fit(folder, OF_PREDICTIONS)
    data = RunFolder(folder).data()
    assert data is not None  # open_fit has seen it
    try:
        predictor = load_predictor(document["model"], folder)
        if predictor.classes != len(data.class_names):
            raise ValueError(f"the model has {predictor.classes} classes, and {DATA} {len(data.class_names)}")
    except Exception as error:
        if document["versions"].get("scikit-learn") != sklearn.__version__:
            raise ValueError(
                f"{folder} was fitted with scikit-learn {checks.brief(document['versions'].get('scikit-learn'))}, and "
                f"{sklearn.__version__} cannot load it: install that version, or fit again"
            ) from error
        raise ValueError(f"{folder} is damaged: {checks.brief(str(error))[1:-1]}; fit again") from error
    return data, predictor


def predict_with_fit(
    folder: Path, data: str, *, image: str | None = None, root: Path | None = None, skip: bool = False
) -> Predictions:
    """Predict on other data with a fit.

    Args:
        folder: of the fit.
        data: a known data set, whose test part is taken; a folder of images; a table; or an ``.npz`` file.
        image: the column of image paths in a table.
        root: the folder of published data sets.
        skip: leave out files that are no images.
    """
    known, predictor = open_predictor(folder)
    document = RunFolder(folder).read(COLUMNS) if known.columns else None
    encoder = None if document is None else TableEncoder.from_document(document, folder / COLUMNS)
    source = DataSource(data, image=image, skip_bad=skip)
    inputs = open_inputs(source, known, encoder, root=root, on_bad=warn)
    features = features_of(inputs.inputs, known.size)
    predicted = predictor.probabilities(features.reshape(len(features), -1))
    if not np.isfinite(predicted).all():
        raise ValueError(f"{folder} must hold a model that predicts probabilities; got NaN: fit again")

    def rows() -> Iterator[tuple[str, list[float]]]:
        yield from zip(inputs.origin.names(len(inputs)), predicted.tolist(), strict=True)

    return Predictions(known.class_names, True, rows())
