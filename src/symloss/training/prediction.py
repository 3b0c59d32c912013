"""What a trained model says of other data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from symloss.data.bad import BadFiles
from symloss.data.batches import Batches
from symloss.data.dataset import Examples, Scaling
from symloss.data.unlabelled import Wanted, open_inputs
from symloss.training.build import build_loss, build_model
from symloss.training.folder import BEST, SETTINGS, RunFolder, load_state


def predictions(
    run: Path | str,
    data: str,
    *,
    best: bool = False,
    image: str | None = None,
    root: Path | None = None,
    skip: bool = False,
    batch: int = 256,
) -> Iterator[tuple[str, str, float]]:
    """The name of each example, its predicted class and that class's probability.

    The probability is the softmax of the scores that the loss saw; it is not calibrated.
    """
    folder = RunFolder(run)
    settings, about = folder.settings(), folder.read("data.json")
    if settings is None or about is None:
        raise FileNotFoundError(f"{run} must be the folder of a run; got one without {SETTINGS}")
    state = load_state(folder.path / BEST) if best and (folder.path / BEST).exists() else folder.load_checkpoint()
    if state is None:
        raise FileNotFoundError(f"{run} has no checkpoint yet; let it train for an epoch")
    shape = tuple(about["input_shape"])
    model = build_model(settings, shape, len(about["classes"]))
    model.load_state_dict(state["model"])
    wanted = Wanted(shape, about["size"], tuple(about["columns"]))
    found = open_inputs(data, wanted, root=root, image=image, bad=BadFiles(skip))
    examples = Examples(found.inputs, torch.zeros(len(found.names), dtype=torch.int64))
    batches = Batches(
        examples, batch=batch, scaling=Scaling(tuple(about["mean"]), tuple(about["std"])),
        shuffle=False, seed=0, device="cpu", size=about["size"],
    )  # fmt: skip
    score_map = getattr(build_loss(settings), "score_map", None)
    model.eval()
    with torch.inference_mode():
        for part in batches.epoch(0):
            scores = model(part.inputs)
            probabilities = (scores if score_map is None else score_map(scores)).softmax(1)
            values, classes = probabilities.max(1)
            for place, value, number in zip(part.index.tolist(), values.tolist(), classes.tolist(), strict=True):
                yield found.names[place], about["classes"][number], value
