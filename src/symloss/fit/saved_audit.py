"""The audit of a fit on disk, so that the labels can be listed and corrected later."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symloss import checks
from symloss.data.source import DataSource
from symloss.fit.audit.scores import Audit
from symloss.training.run_folder import DATA, RunFolder
from symloss.writing import write_whole

SOURCE, LABELS = "source.json", "audit.npz"
_ARRAYS = {
    "given": np.int64,
    "suggested": np.int64,
    "label_scores": np.float64,
    "flagged": np.bool_,
    "given_probs": np.float64,
    "suggested_probs": np.float64,
}
_STORED = {"given": "iu", "suggested": "iu", "flagged": "b"} | dict.fromkeys(
    ("label_scores", "given_probs", "suggested_probs"), "f"
)
"""The kinds of numbers that the file may hold."""


@dataclass(frozen=True)
class LabelSource:
    """Where the labels of a fit or a run came from.

    Args:
        source: of the data.
        noise: that was added to the labels; "clean" if none was.
        fingerprint: a checksum of the user's own training data; None for published data.
    """

    source: DataSource
    noise: str
    fingerprint: str | None = None


def save_audit(audit: Audit, source: LabelSource, path: Path) -> None:
    """Write an audit and the source of its labels into the folder of a fit."""
    content = io.BytesIO()
    np.savez_compressed(content, interval=audit.n_wrong_interval, **{name: getattr(audit, name) for name in _ARRAYS})
    write_whole(path / LABELS, content.getvalue())
    document = source.source.to_document() | {"noise": source.noise, "fingerprint": source.fingerprint}
    RunFolder(path).write(SOURCE, document)


OF_AUDITS = (DATA, SOURCE, LABELS)
"""The files of a fit that an audit is read from."""


def load_source(path: Path) -> LabelSource:
    """Read the source of the labels of a fit. The folder may be somebody else's, so every value is checked."""
    document = RunFolder(path).read(SOURCE, needs=("data", "noise"))
    if document is None:
        raise ValueError(f"{path} is damaged: {SOURCE} is missing; fit again")
    for name, kind, words in (("noise", str, "a text"), ("fingerprint", str | None, "a text or nothing")):
        if not isinstance(document.get(name), kind):
            raise ValueError(f"{path / SOURCE} must hold {name} as {words}; got {checks.brief(document.get(name))}")
    source = DataSource.from_document(document, path / SOURCE)
    return LabelSource(source, document["noise"], document.get("fingerprint"))


def load_audit(path: Path) -> Audit:
    """Read the audit of a fit."""
    description = RunFolder(path).data()
    try:
        if description is None:
            raise ValueError(f"no {DATA}")
        classes = tuple(description.class_names)
        with np.load(path / LABELS, allow_pickle=False) as file:
            if not all(file[name].dtype.kind in kinds for name, kinds in _STORED.items()):
                raise ValueError("numbers of other kinds")
            arrays: dict[str, Any] = {name: file[name].astype(kind) for name, kind in _ARRAYS.items()}
            low, high = map(int, file["interval"])
        if len({each.shape for each in arrays.values()}) > 1 or arrays["given"].ndim != 1:
            raise ValueError("arrays of different shapes")
        shares = np.stack([arrays["label_scores"], arrays["given_probs"], arrays["suggested_probs"]])
        if not ((shares >= 0) & (shares <= 1)).all() or not 0 <= low <= high <= len(arrays["given"]):
            raise ValueError("scores or an interval that cannot be")
        numbers = np.concatenate([arrays["given"], arrays["suggested"]])
        if not ((numbers >= 0) & (numbers < len(classes))).all():
            raise ValueError(f"labels beyond the {len(classes)} classes")
    except Exception as error:
        raise ValueError(f"{path / LABELS} must be the audit that symloss fit wrote; got {error}") from error
    count, places = int(arrays["flagged"].sum()), np.arange(len(arrays["given"]))
    return Audit(**arrays, n_wrong=count, n_wrong_interval=(low, high), classes=classes, positions=places)
