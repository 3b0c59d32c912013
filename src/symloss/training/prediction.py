"""Predictions of a trained model on other data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from symloss.data import open_data
from symloss.data.bad_files import BadFiles, warn
from symloss.data.batches import EVALUATION_BATCH, Batches
from symloss.data.dataset import Examples, Scaling
from symloss.data.table_encoder import TableEncoder
from symloss.data.unlabelled import Wanted, open_inputs
from symloss.losses.criterion import ScoreMap
from symloss.models.factory import is_built_in, model_errors
from symloss.runs.run_folder import BEST, COLUMNS, DATA, SETTINGS, DataDescription, RunFolder
from symloss.training.checkpoint import load_best, load_checkpoint, must_fit
from symloss.training.task import build_model, build_score_map, require_scores


@dataclass
class Trained:
    """The model of a run, and what has to be known of the data it was trained on.

    Args:
        model: the trained network.
        score_map: how the loss changes the scores; None if it takes them as they are.
        data: what the run trained on.
        name: the name of the model.
        image: the column of the image files, in a table.
        encoder: how the columns of a table become features; None for other data, and for runs of version 0.1.
    """

    model: nn.Module
    score_map: ScoreMap | None
    data: DataDescription
    name: str
    image: str | None = None
    encoder: TableEncoder | None = None

    def scores(self, examples: Examples) -> Iterator[tuple[Tensor, Tensor]]:
        """The numbers of some examples, and the scores that the loss would see of them, batch by batch."""
        batches = Batches(
            examples, batch=EVALUATION_BATCH, scaling=Scaling(self.data.mean, self.data.std),
            shuffle=False, seed=0, device="cpu", size=self.data.size,
        )  # fmt: skip
        self.model.eval()
        with torch.inference_mode():
            for part in batches.epoch(0):
                with model_errors(self.name):
                    scores = self.model(part.inputs)
                require_scores(scores, len(self.data.classes), self.name)
                yield part.index, scores if self.score_map is None else self.score_map(scores)


def trained(run: Path | str, best: bool = False, model: str | None = None) -> Trained:
    """The model of the last epoch, or of the one that was best on validation.

    A model that is not built in must be named: the folder may be somebody else's, and its word alone runs no code.
    """
    folder = RunFolder(run)
    settings, data = folder.settings(), folder.data()
    if settings is None or data is None:
        raise FileNotFoundError(
            f"{run} must be the folder of a run; got one without {SETTINGS if settings is None else DATA}"
        )
    if not is_built_in(settings.model) and model != settings.model:
        raise ValueError(
            f"model must be {settings.model!r}, as {run} says, if you trust that code of your own; got {model!r}"
        )
    if best and not (folder.path / BEST).exists():
        raise FileNotFoundError(f"{run} must have held examples out to have a best epoch; got no {BEST}")
    state = load_best(folder) if best else load_checkpoint(folder)
    if state is None:
        raise FileNotFoundError(f"{run} has no checkpoint yet; let it train for an epoch")
    network = build_model(settings, data.input_shape, len(data.classes))
    with must_fit(folder.path, settings.model):
        network.load_state_dict(state["model"])
    return Trained(network, build_score_map(settings), data, settings.model, settings.image, _encoder(folder))


def _encoder(folder: RunFolder) -> TableEncoder | None:
    document = folder.read(COLUMNS)
    return None if document is None else TableEncoder.from_document(document, folder.path / COLUMNS)


def predictions(
    run: Path | str,
    data: str,
    *,
    best: bool = False,
    model: str | None = None,
    image: str | None = None,
    root: Path | None = None,
    skip: bool = False,
) -> Iterator[tuple[str, str, float]]:
    """The name of each example, its predicted class and that class's probability.

    The probability is the softmax of the scores that the loss saw; it is not calibrated.
    """
    found = trained(run, best, model)
    known = found.data
    wanted = Wanted(known.input_shape, known.size, known.columns, found.image, found.encoder)
    inputs = open_inputs(data, wanted, root=root, image=image, bad=BadFiles(skip, warn))
    examples = Examples(inputs.inputs, torch.zeros(len(inputs.names), dtype=torch.int64))
    for index, scores in found.scores(examples):
        values, classes = scores.softmax(1).max(1)
        for place, value, number in zip(index.tolist(), values.tolist(), classes.tolist(), strict=True):
            yield inputs.names[place], known.classes[number], value


def accuracy_on(run: Path | str, data: str, *, model: str | None = None, root: Path | None = None) -> dict[str, Any]:
    """How often the model of the last epoch is right on the test examples of another data set with the same classes."""
    found, other = trained(run, model=model), open_data(data, root=root)
    if other.test is None or other.classes != found.data.classes:
        raise ValueError(f"{data} must have test examples of the classes that {run} was trained on; it has others")
    right = sum(int((scores.argmax(1) == other.test.labels[index]).sum()) for index, scores in found.scores(other.test))
    return {"data": data, "accuracy": right / len(other.test), "examples": len(other.test)}
