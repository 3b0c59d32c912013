"""What the tests of data share: sentences of refusal, and small files in the publishers' layouts."""

from __future__ import annotations

import contextlib
import gzip
import pickle
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from refusals import refused

from symloss.data import DataSet, open_data
from symloss.data.cells import FrameTable
from symloss.data.columns import describe_cells
from symloss.data.dataset import Examples


def random_bytes(*shape: int, seed: int = 0, high: int = 256) -> np.ndarray:
    return np.random.default_rng(seed).integers(high, size=shape, dtype=np.uint8)


def idx_bytes(values: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def write_idx(folder: Path, *, packed: bool = False, sizes=(12, 5), first: int = 0) -> list[np.ndarray]:
    """Images and labels of a small MNIST: training images, training labels, test images, test labels."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for seed, (part, size) in enumerate(zip(("train", "t10k"), sizes, strict=True), first):
        for name, values in (
            (f"{part}-images-idx3-ubyte", random_bytes(size, 28, 28, seed=seed)),
            (f"{part}-labels-idx1-ubyte", random_bytes(size, seed=seed, high=10)),
        ):
            path = folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(idx_bytes(values)) if packed else idx_bytes(values))
            written.append(values)
    return written


def python2_pickle(labels_key: str, labels: list[int], pixels: np.ndarray) -> bytes:
    """A CIFAR batch opcode by opcode as Python 2 and an old NumPy wrote it: byte strings, numpy.core, 0 for False."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + text("b") + b"tR"
        b"(K\x01" + number(pixels.shape[0]) + number(pixels.shape[1]) + b"\x86"
        b"cnumpy\ndtype\n(" + text("u1") + b"K\x00K\x01tR(K\x03" + text("|") + b"NNN" + number(-1) * 2 + b"K\x00tb"
        b"\x89T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    )
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(labels_key) + listed + text("data") + array + b"u."


def python3_pickle(labels_key: str, labels: list[int], pixels: np.ndarray) -> bytes:
    return pickle.dumps({labels_key: labels, "data": pixels}, protocol=2)


def save_image(path: Path, pixels: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def cut(path: Path) -> Path:
    """Take away the second half of a file; the head of an image stays good."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """To a program it is as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def describe_columns(frame, drop=(), categorical=(), keep=(), text=(), encoded=True):
    """What becomes of each column of a DataFrame, or of a mapping of names to columns."""
    table = FrameTable(frame)
    cells = table.cells([name for name in table.columns if name not in drop], (*categorical, *text))
    return describe_cells(cells, drop, categorical, keep, text, encoded)


def people(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    """An id, numbers with gaps, text with gaps, numbers, truth values, and labels."""
    rng = np.random.default_rng(seed)
    columns = {
        "id": rng.permutation(rows),
        "age": rng.choice([20.0, 30.0, 40.0, 55.0, np.nan], rows),
        "town": rng.choice(["Bern", "Graz", "Köln", None], rows),
        "height": rng.normal(170, 10, rows).round(2),
        "member": rng.random(rows) < 0.5,
        "label": rng.choice(["yes", "no"], rows),
    }
    return pd.DataFrame(columns)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def skipping(path: Path | str, **options: object) -> tuple[DataSet, list[tuple[Path, str]]]:
    """Open a data set without its bad files, and return what was said of these."""
    told: list[tuple[Path, str]] = []
    return open_data(str(path), skip_bad=True, on_bad=lambda *bad: told.append(bad), **options), told


def holds(examples: Examples, inputs: object, labels: list[int]) -> None:
    """Bytes or float32 that equal these, and their labels."""
    inputs = np.asarray(inputs)
    assert examples.inputs.dtype == (torch.uint8 if inputs.dtype == np.uint8 else torch.float32)
    np.testing.assert_array_equal(examples.inputs.numpy(), inputs.astype(examples.inputs.numpy().dtype))
    assert (examples.labels.dtype, examples.labels.tolist()) == (torch.int64, labels)


def is_scaled(data: DataSet, values: np.ndarray) -> None:
    """By the mean and the standard deviation of each feature or channel; bytes count from 0 to 1."""
    values, axes = (values / 255 if values.dtype == np.uint8 else values), (0, *range(2, values.ndim))
    np.testing.assert_allclose(data.scaling.mean, values.mean(axes), rtol=1e-12)
    np.testing.assert_allclose(data.scaling.std, values.std(axes), rtol=1e-12)


def not_opened(data, *ingredients, exception=ValueError, **options):
    """To open the data is refused, in one sentence that holds every ingredient."""
    with refused(exception, *ingredients):
        open_data(str(data), **options)
