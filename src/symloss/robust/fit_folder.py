"""The folder of a fit: the model, what the data is like, and predictions on other data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from symloss.data.bad_files import BadFiles, warn
from symloss.data.dataset import DataSet
from symloss.data.table_encoder import TableEncoder
from symloss.data.unlabelled import Wanted, open_inputs
from symloss.robust.audit import Audit
from symloss.robust.fit_data import FitData, features_of
from symloss.robust.saved_audit import LabelSource, save_audit
from symloss.robust.saved_fit import load_predictor, save_predictor
from symloss.runs.run_folder import COLUMNS, DATA, DataDescription, RunFolder
from symloss.training.prediction import Predictions
from symloss.writing import clear_write_errors

if TYPE_CHECKING:
    from symloss.robust.classifier import RobustClassifier


def save_fit(
    path: Path, model: RobustClassifier, rows: FitData, data: DataSet, audit: Audit, source: LabelSource
) -> None:
    """Write the model of a fit, its audit, and all that predictions on other data need.

    Args:
        path: the folder. It is made if it does not exist.
        model: the estimator after its fit.
        rows: what it was fitted to.
        data: the data set of the rows.
        audit: of its labels.
        source: where they came from.
    """
    with clear_write_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(path)
    folder.write(DATA, asdict(_description(data)))
    if data.encoder is not None:
        folder.write(COLUMNS, data.encoder.to_document())
    rows.corruption.save(path)
    save_audit(audit, source, path)
    features = rows.features.reshape(len(rows.noisy), -1)
    save_predictor(model.predictor_, features, model.trained_labels_, None, model.seed_, path)


def _description(data: DataSet) -> DataDescription:
    return DataDescription(
        name=data.name,
        classes=data.classes,
        input_shape=data.input_shape,
        size=data.size,
        columns=data.columns,
        mean=data.scaling.mean,
        std=data.scaling.std,
    )


def predict_with_fit(
    path: Path, data: str, *, image: str | None = None, root: Path | None = None, skip: bool = False
) -> Predictions:
    """Predict on other data with a fit.

    Args:
        path: the folder of the fit.
        data: a known data set, whose test part is taken; a folder of images; a table; or an ``.npz`` file.
        image: the column of image paths in a table.
        root: the folder of published data sets.
        skip: leave out files that are no images.
    """
    folder = RunFolder(path)
    known = folder.data()
    if known is None:
        raise FileNotFoundError(f"{path} must be the folder of a fit; got one without {DATA}")
    document = folder.read(COLUMNS)
    encoder = None if document is None else TableEncoder.from_document(document, path / COLUMNS)
    wanted = Wanted(known.input_shape, known.size, known.columns, image, encoder)
    inputs = open_inputs(data, wanted, root=root, image=image, bad=BadFiles(skip, warn))
    features = features_of(inputs.inputs, known.size)
    predicted = load_predictor(path).probabilities(features.reshape(len(features), -1))

    def rows() -> Iterator[tuple[str, list[float]]]:
        yield from zip(inputs.names, predicted.tolist(), strict=True)

    return Predictions(known.classes, True, rows())
