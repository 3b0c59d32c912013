"""The folder of a fit: written whole, with a digest of every file, and checked before it is read; and its audit.

Nothing here needs torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symloss import checks
from symloss.data.source import DataSource
from symloss.fit.audit.scores import Audit
from symloss.noise.manifest import read_document, with_checksum, write_document
from symloss.training.run_folder import COLUMNS, DATA, FIT, RunFolder, no_run
from symloss.writing import repair_folder, write_whole, write_whole_folder

RESULT, SOURCE, LABELS = "fit.json", "source.json", "audit.npz"
OF_AUDITS = (DATA, SOURCE, LABELS)
"""The files of a fit that an audit is read from."""
AUDIT = "audit.json"
"""What makes a folder that of an audit of labels and probabilities in files, see :mod:`symloss.fit.audit.files`."""
WORK = "unfinished"
"""The folder, inside that of the fit, for intermediate results. The same command resumes from it after a kill."""
FORMAT = 2
_SHARES = ("label_scores", "given_probs", "suggested_probs")
_ARRAYS = {"given": "iu", "suggested": "iu", "flagged": "b"} | dict.fromkeys(_SHARES, "f")
"""The arrays of an audit, and the kinds of numbers that the file may hold."""
_TYPES = {"iu": np.int64, "b": np.bool_, "f": np.float64}


def is_saved_fit(folder: Path | str) -> bool:
    """Return whether a folder holds a fit."""
    repair_folder(folder)
    return (Path(folder) / FIT).is_file()


def holds_fit(folder: Path) -> bool:
    """Return whether a folder holds a fit, or else a run. Raise FileNotFoundError if it holds neither."""
    if is_saved_fit(folder):
        return True
    if RunFolder(folder).settings() is None:
        raise FileNotFoundError(no_run(folder))
    return False


def refuse_other_folder(folder: Path) -> None:
    """Raise ValueError unless a fit may be written to a folder: a new or empty one, or that of another fit."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out must be a folder; got the file {str(folder)!r}")
    if Path.cwd().is_relative_to(folder.resolve()):  # it is replaced as a whole, and would vanish below the user's feet
        raise ValueError(f"--out must not be the current folder, or one above it; got {str(folder)!r}")
    held = [entry.name for entry in folder.iterdir() if entry.name != WORK] if folder.is_dir() else []
    if held and not is_saved_fit(folder):
        raise ValueError(
            f"--out must be a new or empty folder, or that of another fit; got {str(folder)!r}, which holds "
            f"{checks.brief(sorted(held)[0])}"
        )


def holds_labels(folder: Path) -> bool:
    """Return whether a folder holds an audit of labels and probabilities in files."""
    repair_folder(folder)
    return (folder / AUDIT).is_file()


def refuse_other_audit(folder: Path, overwrite: bool) -> None:
    """Raise ValueError unless an audit may be written to a folder."""
    if holds_labels(folder):
        if not overwrite:
            raise ValueError(f"{folder} holds an audit already; add `--overwrite` to replace it.")
    elif is_saved_fit(folder):
        raise ValueError(f"{folder} holds a model of `symloss fit`. Choose another folder.")
    else:
        refuse_other_folder(folder)


@contextlib.contextmanager
def replaced_fit(folder: Path) -> Iterator[Path]:
    """Yield an empty folder, which takes the place of a fit when the block ends. A user's own files stay."""
    repair_folder(folder)
    former: Collection[str] = ()
    with contextlib.suppress(ValueError, OSError):  # files of a damaged or older fit are carried over like notes
        former = _document(folder)["files"]
    with write_whole_folder(folder, drop=(*former, FIT, WORK)) as new:
        yield new


def finish_fit(folder: Path, **parts: Any) -> None:
    """Write the document that makes a folder a fit: some ``parts`` for JSON, and the digests of all files in it."""
    files = {file.name: _digest(file) for file in sorted(folder.iterdir())}
    document = json.loads(json.dumps({"format": FORMAT, **parts, "files": files}))
    write_document(folder / FIT, with_checksum(document))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def open_fit(folder: Path, needed: Collection[str]) -> dict[str, Any]:
    """Return the document of a fit. Damage to the files ``needed`` is an error, and to others a warning."""
    repair_folder(folder)
    document = _document(folder)
    for name, digest in document["files"].items():
        file = folder / name
        state = "is missing" if not file.is_file() else "has changed" if _digest(file) != digest else None
        if state is None:
            continue
        if name in needed:
            raise ValueError(f"{folder} is damaged: {name} {state} since the fit; fit again, or put the file back")
        warnings.warn(f"{file} {state} since the fit", stacklevel=2)
    missing = [name for name in needed if name != COLUMNS and name not in document["files"]]
    if missing:
        raise ValueError(f"{folder} is damaged: {FIT} must list {missing[0]}; fit again")
    return document


def _document(folder: Path) -> dict[str, Any]:
    path = folder / FIT
    version = checks.json_object(path, path.read_bytes()).get("format")
    if version != FORMAT:
        raise ValueError(
            f"{folder} must hold a model of format {FORMAT}; got format {checks.brief(version)}, of another version of "
            "symloss: fit again"
        )
    document = read_document(path, ("format", "versions", "settings", "model", "files"))
    checks.record(path, document, dict.fromkeys(("versions", "settings", "model", "files"), "dict"))
    if not all(Path(name).name == name for name in document["files"]):
        raise ValueError(f"{folder} is damaged: {FIT} must list the files of the folder; fit again")
    return document


def finished_fit(folder: Path, needed: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a fit, and its result. Damage to one of the files ``needed`` is an error."""
    settings = open_fit(folder, (RESULT, *needed))["settings"]
    result = RunFolder(folder).read(RESULT)
    assert result is not None  # open_fit has seen it
    return settings, result


@dataclass(frozen=True)
class LabelSource:
    """Where the labels of a fit or a run came from."""

    source: DataSource
    noise: str  # that was added to the labels; "clean" if none was
    fingerprint: str | None = None  # a checksum of the user's own training data; None for published data


def save_audit(audit: Audit, source: LabelSource, path: Path) -> None:
    """Write an audit and the source of its labels into the folder of a fit."""
    content = io.BytesIO()
    np.savez_compressed(content, interval=audit.n_wrong_interval, **{name: getattr(audit, name) for name in _ARRAYS})
    write_whole(path / LABELS, content.getvalue())
    document = source.source.to_document() | {"noise": source.noise, "fingerprint": source.fingerprint}
    RunFolder(path).write(SOURCE, document)


def load_source(path: Path) -> LabelSource:
    """Read the source of the labels of a fit. The folder may be somebody else's, so every value is checked."""
    document = RunFolder(path).read(SOURCE)
    if document is None:
        raise ValueError(f"{path} is damaged: {SOURCE} is missing; fit again")
    added = checks.record(path / SOURCE, document, {"noise": "str", "fingerprint": "str | None"}, ["fingerprint"])
    return LabelSource(DataSource.from_document(document, path / SOURCE), **added)


def load_audit(path: Path) -> Audit:
    """Read the audit of a fit."""
    description = RunFolder(path).data()
    try:
        if description is None:
            raise ValueError(f"no {DATA}")
        classes = tuple(description.class_names)
        with np.load(path / LABELS, allow_pickle=False) as file:
            if not all(file[name].dtype.kind in kinds for name, kinds in _ARRAYS.items()):
                raise ValueError("numbers of other kinds")
            arrays: dict[str, Any] = {name: file[name].astype(_TYPES[kinds]) for name, kinds in _ARRAYS.items()}
            low, high = map(int, file["interval"])
        if len({each.shape for each in arrays.values()}) > 1 or arrays["given"].ndim != 1:
            raise ValueError("arrays of different shapes")
        shares = np.stack([arrays[name] for name in _SHARES])
        if not ((shares >= 0) & (shares <= 1)).all() or not 0 <= low <= high <= len(arrays["given"]):
            raise ValueError("scores or an interval that cannot be")
        numbers = np.concatenate([arrays["given"], arrays["suggested"]])
        if not ((numbers >= 0) & (numbers < len(classes))).all():
            raise ValueError(f"labels beyond the {len(classes)} classes")
    except Exception as error:
        raise ValueError(f"{path / LABELS} must be the audit that symloss fit wrote; got {error}") from error
    count, places = int(arrays["flagged"].sum()), np.arange(len(arrays["given"]))
    return Audit(**arrays, n_wrong=count, n_wrong_interval=(low, high), class_names=classes, positions=places)
