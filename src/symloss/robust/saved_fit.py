"""A fit on disk, without code in its files: settings as JSON, rows and weights as arrays.

Learners that are no networks are fitted again when the model is loaded, to the rows and the corrected labels that are
kept. That takes no longer than reading a large file, and no pickle has to be trusted.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from symloss.models import create_model
from symloss.models.factory import is_built_in
from symloss.models.timm_models import without_weights
from symloss.robust.candidates import Candidate
from symloss.robust.held_out import Labels, fitted
from symloss.robust.predictor import Member, Predictor, precise
from symloss.robust.scaled_table import Table
from symloss.robust.splits import Floats, Rows
from symloss.robust.stacked import HIDDEN
from symloss.robust.threads import one_thread
from symloss.writing import write_whole

MODEL, ROWS, NETWORKS = "model.json", "model.npz", "networks.pt"
FORMAT = 1


def is_saved_fit(folder: Path | str) -> bool:
    """Whether a folder holds a fit."""
    return (Path(folder) / MODEL).is_file()


def save_predictor(
    predictor: Predictor, features: Floats, labels: Rows, weights: Floats | None, seed: int, folder: Path
) -> None:
    """Write a model into a folder.

    Args:
        predictor: the model.
        features: (N, d), the rows that it was fitted to.
        labels: (N,), the corrected labels.
        weights: (N,), what each row counts; None if all count the same.
        seed: of the fit.
        folder: an existing folder.
    """
    members = [
        {
            "learner": member.candidate.learner,
            "settings": dict(member.candidate.settings),
            "scaling": member.candidate.scaling,
            "loss": member.candidate.loss,
            "model": _model_name(member.candidate),
            "temperature": member.temperature,
            "networks": len(member.networks),
        }
        for member in predictor.members
    ]
    arrays: dict[str, Any] = {"features": np.asarray(features, np.float32), "labels": labels}
    arrays |= {} if weights is None else {"weights": np.asarray(weights)}
    content, states = io.BytesIO(), io.BytesIO()
    np.savez_compressed(content, **arrays)
    torch.save([net.state_dict() for member in predictor.members for net in member.networks], states)
    write_whole(folder / ROWS, content.getvalue())
    write_whole(folder / NETWORKS, states.getvalue())
    document = {
        "format": FORMAT,
        "seed": seed,
        "classes": predictor.classes,
        "input_shape": predictor.input_shape,
        "temperature": predictor.temperature,
        "members": members,
    }
    write_whole(folder / MODEL, json.dumps(document, indent=1).encode())


def load_predictor(folder: Path | str) -> Predictor:
    """Read a model that :func:`save_predictor` wrote."""
    folder = Path(folder)
    try:
        document = json.loads((folder / MODEL).read_text())
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}")
        with np.load(folder / ROWS, allow_pickle=False) as arrays:
            rows = dict(arrays)
        states = torch.load(folder / NETWORKS, weights_only=True)
        with one_thread():
            return _rebuilt(document, rows, states)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{folder} must hold a model that symloss fit wrote; got {error}") from error


def _rebuilt(document: dict[str, Any], rows: dict[str, Any], states: list[dict[str, Any]]) -> Predictor:
    classes, seed = int(document["classes"]), int(document["seed"])
    shape = document.get("input_shape")
    table = Table(rows["features"], classes, None if shape is None else tuple(shape))
    labels = Labels(rows["labels"], rows.get("weights"))
    members, place = [], 0
    for one in document["members"]:
        settings = tuple(one["settings"].items())
        candidate = Candidate(one["learner"], settings, one["scaling"], one["loss"], one.get("model"))
        count = int(one["networks"])
        if count:
            networks = tuple(_network(state, candidate, table) for state in states[place : place + count])
            members.append(Member(candidate, float(one["temperature"]), networks=networks))
        else:
            estimator = fitted(candidate, table, labels, np.arange(len(labels.numbers)), seed)
            members.append(Member(candidate, float(one["temperature"]), estimator))
        place += count
    return Predictor(table.scaler, tuple(members), float(document["temperature"]), classes, table.input_shape)


def _model_name(candidate: Candidate) -> str | None:
    """The model by which a network is built again. A file may not name code of anybody's."""
    model = candidate.model
    if model is None or (isinstance(model, str) and is_built_in(model)):
        return model
    raise ValueError(f"a model that is saved must be one of symloss or timm; got {candidate.model_name!r}")


def _network(state: dict[str, Any], candidate: Candidate, table: Table) -> nn.Module:
    name = without_weights(_model_name(candidate) or f"mlp:hidden={HIDDEN}")
    module = create_model(name, input_shape=table.input_shape, classes=table.classes, seed=0)
    module = precise(module, candidate)
    module.load_state_dict(state)
    return module.eval()
