"""Predictions of a trained model on other data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from symloss.data.batches import EVALUATION_BATCH, Batches
from symloss.data.dataset import Examples, Scaling
from symloss.data.opening import open_data, open_inputs
from symloss.data.source import DataDescription, DataSource, warn
from symloss.data.table_encoder import TableEncoder
from symloss.encoders.names import check_named
from symloss.losses.criterion import ScoreMap
from symloss.noise.calibration import calibrate
from symloss.training.checkpoint import load_checkpoint, load_state, must_fit
from symloss.training.models import is_built_in, model_errors, without_weights
from symloss.training.run_folder import BEST, CALIBRATION, COLUMNS, DATA, RunFolder, no_run
from symloss.training.settings import Settings
from symloss.training.task import Task, build_model, build_score_map, require_scores


@dataclass
class Trained:
    """The model of a run, and what has to be known of the data it was trained on."""

    model: nn.Module  # the trained network
    score_map: ScoreMap | None  # how the loss changes the scores; None if it takes them as they are
    data: DataDescription  # what the run trained on
    name: str  # the name of the model
    epoch: int  # the epoch of the weights
    temperature: float | None = None  # what scores are divided by before the softmax; None if it was not fitted
    encoder: TableEncoder | None = None  # how the columns of a table become features; None for other data

    def scores(self, examples: Examples, device: torch.device | str = "cpu") -> Iterator[Tensor]:
        """Yield the scores that the loss would see of some examples, in their order, batch by batch."""
        scaling, size = Scaling(self.data.mean, self.data.std), self.data.size
        batches = Batches(
            examples, batch=EVALUATION_BATCH, scaling=scaling, shuffle=False, seed=0, device=device, size=size
        )
        self.model.eval().to(device)
        with torch.inference_mode():
            for part in batches.epoch(0):
                with model_errors(self.name):
                    scores = self.model(part.inputs)
                require_scores(scores, len(self.data.class_names), self.name)
                yield scores if self.score_map is None else self.score_map(scores)

    def all_scores(self, examples: Examples, device: torch.device | str = "cpu") -> Tensor:
        """Return the scores (N, C) of some examples in float32, on the CPU."""
        return torch.cat([scores.float().cpu() for scores in self.scores(examples, device)])

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return the softmax of scores (N, C), with the temperature if one was fitted."""
        return scores.softmax(1) if self.temperature is None else (scores.double() / self.temperature).softmax(1)


def trained(run: Path | str, best: bool | None = None, model: str | None = None, encoder: str | None = None) -> Trained:
    """Return the model of a run, with the weights of its best or its last epoch.

    By default the best one, if examples were held out. A model that is not built in must be named, so that a folder
    from elsewhere cannot run code. So must an encoder of texts whose weights are not installed with it.
    """
    folder = RunFolder(run)
    settings, data = folder.settings(), folder.data()
    if settings is None:
        raise FileNotFoundError(no_run(run))
    if data is None:
        raise FileNotFoundError(f"The run in {str(run)!r} has no {DATA}. Rerun the command that began it.")
    if not is_built_in(settings.model) and model != settings.model:
        raise ValueError(f"model must be {settings.model!r}, as {run} says, if you trust that code; got {model!r}")
    held_out = (folder.path / BEST).exists()
    if best and not held_out:
        raise FileNotFoundError(f"{run} has no best epoch, because no examples were held out.")
    best = held_out if best is None else best
    state = load_state(folder.path / BEST) if best else load_checkpoint(folder)
    if state is None:
        raise FileNotFoundError(f"{run} has no checkpoint yet. Train it for at least one epoch.")
    # The checkpoint holds all weights.
    untrained = replace(settings, model=without_weights(settings.model))
    network = build_model(untrained, data.input_shape, len(data.class_names))
    with must_fit(folder.path, settings.model):
        network.load_state_dict(state["model"])
    epoch = state["epoch"]
    temperature = folder.temperature("best" if best else "last", epoch)
    score_map = build_score_map(settings)
    return Trained(network, score_map, data, settings.model, epoch, temperature, kept_encoder(folder, encoder))


def kept_encoder(folder: RunFolder, named: str | None = None) -> TableEncoder | None:
    """Return how the columns of a table become features; None for other data.

    An encoder of texts whose weights come from elsewhere must be ``named`` by the user too.
    """
    document, path = folder.read(COLUMNS), folder.path / COLUMNS
    if document is None:
        check_named(None, folder.path, named)
        return None
    found = TableEncoder.from_document(document, path)
    for name in found.text_encoders_ or (None,):
        check_named(name, path, named)
    return found


def encoder_used(folder: RunFolder, named: str | None = None) -> str:
    """Return the encoder of free text that a run was begun with; "auto" if it was not begun, or not on a table.

    By now, "auto" might choose another one for the same table.
    """
    kept = kept_encoder(folder, named)
    return "auto" if kept is None else kept.encoder_used_


@dataclass(frozen=True)
class Predictions:
    """The predictions of a run on other data."""

    class_names: tuple[str, ...]
    calibrated: bool  # whether the probabilities were calibrated on held-out labels
    # the name of each example, and its probabilities in the order of the classes
    rows: Iterator[tuple[str, list[float]]]


def predict(
    run: Path | str,
    data: str,
    *,
    best: bool | None = None,
    model: str | None = None,
    image: str | None = None,
    root: Path | None = None,
    skip: bool = False,
    encoder: str | None = None,
) -> Predictions:
    """Predict on other data with the model of a run.

    The probabilities are those of the true classes, calibrated on the held-out labels of the run. A run that held
    nothing out, or is not finished, has only the softmax of the scores that its loss saw.

    Args:
        run: the folder of the run.
        data: as in training; labels are not needed.
        best, model, encoder: as in :func:`trained`.
        image: the column of the image files, in a table.
        root: where known data sets are.
        skip: skip unreadable images instead of refusing them.
    """
    found = trained(run, best, model, encoder)
    source = DataSource(data, image=image, skip_bad=skip)
    examples = open_inputs(source, found.data, found.encoder, root=root, on_bad=warn)
    predicted = (values for scores in found.scores(examples) for values in found.probabilities(scores).tolist())
    rows = zip(examples.origin.names(len(examples)), predicted, strict=True)
    return Predictions(found.data.class_names, found.temperature is not None, rows)


def accuracy_on(run: Path | str, data: str, *, model: str | None = None, root: Path | None = None) -> dict[str, Any]:
    """Return the accuracy of the last epoch on the test examples of another data set with the same classes."""
    found, other = trained(run, best=False, model=model), open_data(data, root=root)
    if other.test is None or other.class_names != found.data.class_names:
        raise ValueError(f"{data} must have test examples of the classes that {run} was trained on; got others")
    predicted = torch.cat([scores.argmax(1) for scores in found.scores(other.test)])
    right = int((predicted == other.test.labels).sum())
    return {"data": data, "accuracy": right / len(other.test), "examples": len(other.test)}


def keep_calibration(
    folder: RunFolder, settings: Settings, task: Task, data: DataDescription, model: nn.Module, device: torch.device
) -> None:
    """Write the temperatures of the best and of the last epoch. A run that held nothing out has none.

    Held-out labels that may be wrong are explained by a transition matrix, which is estimated with the temperature. So
    the probabilities are those of the true classes. Labels that are known to be true need no such matrix.
    """
    if task.validation is None:
        return
    document, best = {}, load_state(folder.path / BEST)
    for which, epoch in (("last", settings.epochs), ("best", best["epoch"])):
        if which == "best":
            model.load_state_dict(best["model"])
        network = Trained(model, build_score_map(settings), data, settings.model, epoch)
        scores = network.all_scores(task.validation, device)
        known = torch.eye(scores.shape[1]) if settings.clean_validation else None
        with contextlib.suppress(ValueError):  # scores that are infinite have no temperature
            found = calibrate(scores, task.validation.labels.cpu(), known)
            document[which] = {"epoch": epoch, "temperature": found.temperature, "noise_rate": found.noise_rate}
    folder.write(CALIBRATION, document)
