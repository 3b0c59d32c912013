"""What a trained model says of other data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.data import open_data
from symloss.data.bad_files import BadFiles, warn
from symloss.data.batches import EVALUATION_BATCH, Batches
from symloss.data.dataset import Examples, Scaling
from symloss.data.unlabelled import Wanted, open_inputs
from symloss.models.factory import is_built_in, model_errors
from symloss.runs.run_folder import BEST, DATA, SETTINGS, RunFolder
from symloss.training.checkpoint import load_best, load_checkpoint, must_fit
from symloss.training.task import build_model, build_score_map, require_scores

DATA_HOLDS: dict[str, Any] = {
    "classes": str,
    "input_shape": int,
    "columns": str,
    "mean": (int, float),
    "std": (int, float),
}
"""Lists of the data's description, and what each is a list of; there is the size of streamed images besides."""


@dataclass
class Trained:
    """The model of a run, and what has to be known of the data it was trained on."""

    model: nn.Module
    score_map: Any
    about: dict[str, Any]
    name: str
    """Of the model."""
    image: str | None = None
    """The column of the image files, in a table."""

    def scores(self, examples: Examples) -> Iterator[tuple[Tensor, Tensor]]:
        """The numbers of some examples, and the scores that the loss would see of them, batch by batch."""
        about = self.about
        batches = Batches(
            examples, batch=EVALUATION_BATCH, scaling=Scaling(tuple(about["mean"]), tuple(about["std"])),
            shuffle=False, seed=0, device="cpu", size=about["size"],
        )  # fmt: skip
        self.model.eval()
        with torch.inference_mode():
            for part in batches.epoch(0):
                with model_errors(self.name):
                    scores = self.model(part.inputs)
                require_scores(scores, len(about["classes"]), self.name)
                yield part.index, scores if self.score_map is None else self.score_map(scores)


def trained(run: Path | str, best: bool = False, model: str | None = None) -> Trained:
    """The model of the last epoch, or of the one that was best on validation.

    A model that is not built in must be named: the folder may be somebody else's, and its word alone runs no code.
    """
    folder = RunFolder(run)
    settings, about = folder.settings(), _about(folder)
    if settings is None or about is None:
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
    network = build_model(settings, tuple(about["input_shape"]), len(about["classes"]))
    with must_fit(folder.path, settings.model):
        network.load_state_dict(state["model"])
    return Trained(network, build_score_map(settings), about, settings.model, settings.image)


def _about(folder: RunFolder) -> dict[str, Any] | None:
    """What has to be known of the data, checked: the folder may be somebody else's."""
    about = folder.read(DATA, needs=(*DATA_HOLDS, "size"))
    if about is None:
        return None
    for name, kinds in DATA_HOLDS.items():
        found = about[name]
        if not isinstance(found, list) or not all(isinstance(each, kinds) for each in found):
            wanted = "texts" if kinds is str else "numbers"
            raise ValueError(f"{folder.path / DATA} must hold {name} as a list of {wanted}; got {checks.brief(found)}")
    size = about["size"]
    if not isinstance(size, (int, NoneType)):
        raise ValueError(f"{folder.path / DATA} must hold size as a number or nothing; got {checks.brief(size)}")
    return about


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
    about = found.about
    wanted = Wanted(tuple(about["input_shape"]), about["size"], tuple(about["columns"]), found.image)
    inputs = open_inputs(data, wanted, root=root, image=image, bad=BadFiles(skip, warn))
    examples = Examples(inputs.inputs, torch.zeros(len(inputs.names), dtype=torch.int64))
    for index, scores in found.scores(examples):
        values, classes = scores.softmax(1).max(1)
        for place, value, number in zip(index.tolist(), values.tolist(), classes.tolist(), strict=True):
            yield inputs.names[place], about["classes"][number], value


def accuracy_on(run: Path | str, data: str, *, model: str | None = None, root: Path | None = None) -> dict[str, Any]:
    """How often the model of the last epoch is right on the test examples of another data set with the same classes."""
    found, other = trained(run, model=model), open_data(data, root=root)
    if other.test is None or list(other.classes) != found.about["classes"]:
        raise ValueError(f"{data} must have test examples of the classes that {run} was trained on; it has others")
    right = sum(int((scores.argmax(1) == other.test.labels[index]).sum()) for index, scores in found.scores(other.test))
    return {"data": data, "accuracy": right / len(other.test), "examples": len(other.test)}
