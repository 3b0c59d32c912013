"""The temperature of a finished run: fitted on its held-out examples, and kept in its folder."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn

from symloss.data.dataset import Examples
from symloss.data.source import DataDescription
from symloss.noise.calibration import Calibration, calibrate
from symloss.training.checkpoint import load_best
from symloss.training.prediction import Trained
from symloss.training.run_folder import CALIBRATION, RunFolder
from symloss.training.settings import Settings
from symloss.training.task import Task, build_score_map


def keep_calibration(
    folder: RunFolder, settings: Settings, task: Task, data: DataDescription, model: nn.Module, device: torch.device
) -> None:
    """Write the temperatures of the best and of the last epoch. A run that held nothing out has none.

    Held-out labels that may be wrong are explained by a transition matrix, which is estimated with the temperature. So
    the probabilities are those of the true classes. Labels that are known to be true need no such matrix.

    Args:
        folder: of the run.
        settings: of the run.
        task: the data of the run.
        data: what ``data.json`` holds.
        model: with the weights of the last epoch. It ends with those of the best one.
        device: where the model is.
    """
    if task.validation is None:
        return
    network = Trained(model, build_score_map(settings), data, settings.model, settings.epochs)
    document = {"last": _temperature(network, task.validation, settings.clean_validation, device)}
    best = load_best(folder)
    if best["epoch"] == network.epoch:
        document["best"] = document["last"]
    else:
        network.epoch = best["epoch"]
        model.load_state_dict(best["model"])
        document["best"] = _temperature(network, task.validation, settings.clean_validation, device)
    folder.write(CALIBRATION, {which: kept for which, kept in document.items() if kept})


def _temperature(network: Trained, held_out: Examples, clean: bool, device: torch.device) -> dict[str, Any]:
    """What is kept of a calibration; nothing if the scores are infinite."""
    with contextlib.suppress(ValueError):
        found = _calibrated(network, held_out, clean, device)
        return {"epoch": network.epoch, "temperature": found.temperature, "noise_rate": found.noise_rate}
    return {}


def _calibrated(network: Trained, held_out: Examples, clean: bool, device: torch.device) -> Calibration:
    parts = list(network.scores(held_out, device))
    scores = torch.cat([scores.float().cpu() for _, scores in parts])
    labels = held_out.labels[torch.cat([index.cpu() for index, _ in parts])]
    return calibrate(scores, labels, torch.eye(scores.shape[1]) if clean else None)
