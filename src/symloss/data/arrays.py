"""Arrays in an .npz file: x and y, or x_train, y_train, x_test and y_test, or inputs and labels."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from symloss.checks import brief
from symloss.data.cells import check_spelling, is_missing, no_label
from symloss.data.dataset import DataSet, Part, assemble
from symloss.data.source import ROWS_HINT, BadFiles

PAIRS = (("x", "y"), ("x_train", "y_train"), ("inputs", "labels"))
TEST_PAIR = ("x_test", "y_test")

Array = np.ndarray[Any, np.dtype[Any]]


def open_arrays(path: Path, test: Path | None, bad: BadFiles) -> DataSet:
    """Open a data set in an .npz file: uint8 images or features (N, d).

    Images have shape (N, height, width), (N, channels, height, width) or (N, height, width, channels).
    """
    train = _part(path, PAIRS, bad)
    with _open(path) as file:
        has_test = any(name in file.files for name in TEST_PAIR)
    clean = _part(test, PAIRS, bad) if test else _part(path, (TEST_PAIR,), bad) if has_test else None
    if clean is not None and _kind(clean) != _kind(train):
        raise ValueError(
            f"the test inputs of {clean.where} must be like the training inputs, {_kind(train)}; got {_kind(clean)}"
        )
    return assemble(path.stem, train, clean)


def _kind(part: Part) -> str:
    assert isinstance(part.inputs, Tensor)
    return f"{str(part.inputs.dtype).removeprefix('torch.')} of shape {tuple(part.inputs.shape[1:])} each"


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    with path.open("rb") as stream:  # NumPy would leave a damaged file open
        try:
            file = np.load(stream, allow_pickle=False)
        except (ValueError, OSError, EOFError, NotImplementedError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} must be an .npz file; got a damaged one or another kind") from error
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError(f"{path} must be an .npz file; got a single array")
        with file:
            yield file


def _part(path: Path, pairs: tuple[tuple[str, str], ...], bad: BadFiles) -> Part:
    pair, (x, y) = _arrays(path, pairs)
    if len(x) != len(y) or not len(x):
        raise ValueError(
            f"{path} must hold as many inputs as labels, and some; got {len(x)} inputs and {len(y)} labels"
        )
    where = f"{pair[1]} of {path}"
    labels = _labels(y, where)
    without = [row for row, label in enumerate(labels) if is_missing(label.strip())]
    if without:
        first = f"{brief(labels[without[0]])} in row {without[0]}"
        wrong = ValueError(f"{where} must hold a label for each example; got {first} {ROWS_HINT}")
        bad.leave_out(path, f"{no_label('row', without[0], len(without))} of {pair[1]}", wrong)
        x, labels = np.delete(x, without, axis=0), np.delete(labels, without).tolist()
    check_spelling(labels, where)
    return Part(_inputs(x, f"{pair[0]} of {path}"), labels, path)


def open_inputs_array(path: Path) -> Tensor:
    """Read the inputs alone, without labels: test inputs if there are any, else training inputs."""
    (name,), (x,) = _arrays(path, [pair[:1] for pair in (TEST_PAIR, *PAIRS)])
    return _inputs(x, f"{name} of {path}")


def _arrays(path: Path, groups: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[Array]]:
    """Read the first group of arrays that the file has, and return their names too."""
    with _open(path) as file:
        names = next((group for group in groups if set(group) <= set(file.files)), None)
        if names is None:
            wanted = " or ".join(" and ".join(group) for group in groups)
            raise ValueError(f"{path} must hold the arrays {wanted}; got {', '.join(file.files) or 'none'}")
        return names, [_array(file, name, path) for name in names]


def _array(file: Any, name: str, path: Path) -> Array:
    wanted = f"{name} of {path} must be an array"
    try:
        array: Array = file[name]
        dimensions = array.ndim  # an entry that is not an array comes as bytes
    except MemoryError as error:
        raise ValueError(f"{wanted} that fits into memory; got a damaged one, or one that does not") from error
    except Exception as error:  # NumPy and zipfile raise many kinds
        raise ValueError(
            f"{wanted} of numbers or text; got a damaged one, or Python objects, which are never loaded"
        ) from error
    if dimensions == 0:
        raise ValueError(f"{wanted}; got a single value")
    return array


def _labels(y: Array, where: str) -> list[str]:
    if y.ndim != 1 or y.dtype.kind not in "iufUS":
        raise ValueError(f"{where} must be one row of numbers or names; got {y.dtype} of shape {y.shape}")
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise ValueError(f"{where} must hold a label for each example; got {y[np.isinf(y)][0]}")
    try:
        text: list[str] = (np.char.decode(y, "utf-8") if y.dtype.kind == "S" else y.astype(np.str_)).tolist()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} must hold names in UTF-8; got {error}") from None
    return text


def _inputs(x: Array, where: str) -> Tensor:
    if x.dtype.kind not in "iuf" or x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise ValueError(
            f"{where} must hold numbers of shape (N, d), (N, height, width), (N, channels, height, width) or "
            f"(N, height, width, channels); got {x.dtype} of shape {x.shape}"
        )
    if x.ndim == 2:
        with np.errstate(over="ignore"):
            features = x.astype(np.float32)
        for row, column in np.argwhere(~np.isfinite(features))[:1].tolist():
            raise ValueError(f"{where} must hold finite numbers; got {x[row, column]} in row {row}, column {column}")
        return torch.from_numpy(features)
    if x.dtype != np.uint8:
        raise ValueError(f"{where} must hold images as uint8, 0 to 255; got {x.dtype} of shape {x.shape}")
    images = torch.from_numpy(x[:, None] if x.ndim == 3 else x)
    if images.shape[1] in (1, 3):
        return images
    if images.shape[3] in (1, 3):
        return images.permute(0, 3, 1, 2).contiguous()
    raise ValueError(f"{where} must hold images of 1 or 3 channels; got shape {x.shape}")
