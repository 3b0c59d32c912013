"""CIFAR and MNIST in the publishers' layouts: read as written, damage named, nothing in a pickle is run."""

from __future__ import annotations

import gzip
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import torch
from data_helpers import idx_bytes, python2_pickle, python3_pickle, random_bytes, write_idx
from hostile_pickle import Bomb
from in_turn import in_turn
from refusals import refused

from symloss.data import open_data
from symloss.data.published import CIFAR100_CLASSES, unpickle

SIZE = 4
FILES = {"cifar10": [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"], "cifar100": ["train", "test"]}
PYTHON = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
BINARY = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}


def batches(name: str) -> dict[str, tuple[np.ndarray, list[int]]]:
    classes = int(name.removeprefix("cifar"))
    return {
        file: (random_bytes(SIZE, 3072, seed=k), random_bytes(SIZE, seed=k, high=classes).tolist())
        for k, file in enumerate(FILES[name])
    }


def write_python(root: Path, name: str, form=python2_pickle) -> Path:
    folder = root / PYTHON[name]
    folder.mkdir(parents=True)
    for file, (pixels, labels) in batches(name).items():
        (folder / file).write_bytes(form("labels" if name == "cifar10" else "fine_labels", labels, pixels))
    return folder


def write_binary(root: Path, name: str) -> Path:
    folder = root / BINARY[name]
    folder.mkdir(parents=True)
    coarse = b"" if name == "cifar10" else b"\x13"
    for file, (pixels, labels) in batches(name).items():
        records = [coarse + bytes([label]) + row.tobytes() for row, label in zip(pixels, labels, strict=True)]
        (folder / f"{file}.bin").write_bytes(b"".join(records))
    return folder


FORMS = [
    *(python2_pickle, python3_pickle, "binary"),
    lambda key, labels, pixels: pickle.dumps({key.encode(): labels, b"data": pixels}, protocol=2),
    lambda key, labels, pixels: pickle.dumps({key: labels, "data": pixels}, protocol=4),
]


@in_turn("form", FORMS)
@in_turn("name", FILES)
def test_every_layout_is_read_as_written(tmp_path, name, form):
    """Also where the root is the folder itself, or the folder of the one that is named as the data set."""
    parent = tmp_path / name
    folder = write_binary(parent, name) if form == "binary" else write_python(parent, name, form)
    *train, test = batches(name).values()
    for root in (folder, parent, tmp_path):
        data = open_data(name, root=root)
        for examples, written in ((data.train, train), (data.test, [test])):
            assert examples.inputs.dtype == torch.uint8
            # Red, green, blue; each row by row.
            pixels = np.concatenate([batch for batch, _ in written]).reshape(-1, 3, 32, 32)
            np.testing.assert_array_equal(examples.inputs.numpy(), pixels)
            assert examples.labels.tolist() == [label for _, labels in written for label in labels]
        assert data.input_shape == (3, 32, 32)


def test_the_protocol_of_cifar(tmp_path):
    write_python(tmp_path, "cifar10")
    write_python(tmp_path, "cifar100")
    ten, hundred = (open_data(name, root=tmp_path) for name in FILES)
    assert ten.scaling.mean == (0.49139968, 0.48215827, 0.44653124)
    assert ten.scaling.std == (0.24703233, 0.24348505, 0.26158768)
    assert hundred.scaling.mean == (0.5071, 0.4865, 0.4409)
    assert hundred.scaling.std == (0.2673, 0.2564, 0.2762)
    assert (ten.augmentation, hundred.augmentation) == (("crop:4", "flip"), ("crop:4", "flip", "rotate:20"))
    assert (ten.class_names[0], ten.class_names[3], ten.class_names[9]) == ("airplane", "cat", "truck")
    assert hundred.class_names == CIFAR100_CLASSES
    assert len(set(CIFAR100_CLASSES)) == 100
    assert (CIFAR100_CLASSES[11], CIFAR100_CLASSES[99]) == ("boy", "worm")


GOOD = random_bytes(SIZE, 3072), [1, 2, 3, 4]


@in_turn(
    "content, ingredients",
    [
        ([1, 2], ("dictionary", "got list")),
        ({"labels": GOOD[1]}, ("'data'", "uint8 of shape (N, 3072)", "got NoneType")),
        ({"data": GOOD[0].astype(np.float32), "labels": GOOD[1]}, ("'data'", "uint8", "got float32")),
        ({"data": GOOD[0][:, :100], "labels": GOOD[1]}, ("(N, 3072)", "got uint8 (4, 100)")),
        ({"data": GOOD[0]}, ("'labels'", "4 labels", "got NoneType")),
        ({"data": GOOD[0], "labels": [1, 2, 3]}, ("'labels'", "4 labels", "got 3 of them")),
        *(({"data": GOOD[0], "labels": [1, 2, 3, bad]}, ("labels 0 to 9", f"got {bad}")) for bad in (10, -1, None)),
    ],
)
def test_wrong_batches_of_cifar(tmp_path, content, ingredients):
    path = write_python(tmp_path, "cifar10") / "data_batch_2"
    path.write_bytes(pickle.dumps(content))
    with refused(ValueError, path, *ingredients):
        open_data("cifar10", root=tmp_path)


@in_turn("name, record", [("cifar10", 3073), ("cifar100", 3074)])
def test_wrong_binary_files_and_missing_ones(tmp_path, name, record):
    with refused(FileNotFoundError, name, tmp_path / PYTHON[name], "got neither", f"symloss data get {name}"):
        open_data(name, root=tmp_path)
    path = write_binary(tmp_path, name) / f"{FILES[name][-1]}.bin"
    for size in (0, 100, 2 * 3072):
        path.write_bytes(bytes(size))
        with refused(ValueError, path, f"records of {record} bytes", f"got {size} bytes"):
            open_data(name, root=tmp_path)
    path.write_bytes(bytes(record - 3073) + b"\x64" + bytes(3072))
    with refused(ValueError, path, "labels 0 to", "got 100"):
        open_data(name, root=tmp_path)
    path.unlink()
    with refused(FileNotFoundError, name.replace("cifar", "CIFAR-"), path, "without it"):
        open_data(name, root=tmp_path)


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@in_turn("packed", [False, True])
@in_turn("name, mean, std", [("mnist", 0.1307, 0.3081), ("fashion-mnist", 0.2860, 0.3530)])
def test_idx_files_are_read_as_written(tmp_path, name, packed, mean, std):
    for root, folder in ((tmp_path / "one", tmp_path / "one" / name), (tmp_path / "two", tmp_path / "two")):
        written = write_idx(folder, packed=packed)
        data = open_data(name, root=root)
        read = [data.train.inputs[:, 0], data.train.labels, data.test.inputs[:, 0], data.test.labels]
        for ours, theirs in zip(read, written, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs)
    assert (data.train.inputs.dtype, data.train.labels.dtype) == (torch.uint8, torch.int64)
    assert (data.name, len(data.class_names), data.input_shape, data.augmentation) == (name, 10, (1, 28, 28), ())
    assert (data.scaling.mean, data.scaling.std) == ((mean,), (std,))
    (tmp_path / "two" / ("t10k-labels-idx1-ubyte.gz" if packed else "t10k-labels-idx1-ubyte")).unlink()
    with refused(FileNotFoundError, "t10k-labels-idx1-ubyte", "got neither"):
        open_data(name, root=tmp_path / "two")
    with refused(FileNotFoundError, f"{name} must have", tmp_path / name, f"symloss data get {name}"):
        open_data(name, root=tmp_path)
    data.train.inputs[0] = 7  # torch warns of tensors over memory that is read-only
    assert int(data.train.inputs[0].sum()) == 7 * 28 * 28


@in_turn(
    "damage, ingredients",
    [
        (lambda content: content[:-1], ("must hold 9408 bytes", "got only 9407")),
        (lambda content: content[:16], ("must hold 9408 bytes", "got only 0")),
        (lambda content: content + b"\0", ("must hold 9408 bytes", "got more")),
        (lambda content: content[:10], ("header of 16 bytes", "got 10")),
        (lambda content: b"", ("00000803", "got an empty file")),
        (lambda content: b"PK\3\4" + content, ("00000803", "got 504b0304")),
        (lambda content: b"\0\0\x08\1" + content[4:], ("00000803", "got 00000801")),
        (lambda content: content[:4] + b"\xff" * 12 + content[16:], (f"hold {(2**32 - 1) ** 3} bytes", "only 9408")),
    ],
)
@in_turn("packed", [False, True])
def test_damaged_idx_files(tmp_path, damage, ingredients, packed):
    write_idx(tmp_path, packed=packed)
    path = tmp_path / (f"{IMAGES}.gz" if packed else IMAGES)
    content = damage(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    path.write_bytes(gzip.compress(content) if packed else content)
    with refused(ValueError, path, *ingredients):
        open_data("mnist", root=tmp_path)


def test_damaged_gz_files_and_wrong_labels(tmp_path):
    write_idx(tmp_path, packed=True)
    path, labels = tmp_path / f"{IMAGES}.gz", tmp_path / f"{LABELS}.gz"
    for values, *ingredients in (
        (random_bytes(11, high=10), path, labels, "got 12 and 11"),
        (np.array([0, 10] * 6, dtype=np.uint8), labels, "0 to 9", "got 10"),
    ):
        labels.write_bytes(gzip.compress(idx_bytes(values)))
        with refused(ValueError, *ingredients):
            open_data("mnist", root=tmp_path)
    for content in (path.read_bytes()[:-3000], b"<html>"):
        path.write_bytes(content)
        with refused(ValueError, path, "whole gzip file", "damaged"):
            open_data("mnist", root=tmp_path)
    # One that swells is not read to its end.
    path.write_bytes(gzip.compress(idx_bytes(np.zeros((12, 28, 28), dtype=np.uint8)) + bytes(30_000_000), 1))
    tracemalloc.start()
    try:
        with refused(ValueError, path, "must hold 9408 bytes", "got more"):
            open_data("mnist", root=tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@in_turn("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_runs_and_plain_things_are_read(tmp_path, protocol):
    path, trace = tmp_path / PYTHON["cifar10"] / "data_batch_1", tmp_path / "trace"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps({"data": Bomb(trace), "labels": [1]}, protocol=protocol))
    with refused(ValueError, path, "only numbers, text and arrays", "posix.mkdir", "none of it was run"):
        open_data("cifar10", root=tmp_path)
    assert not trace.exists()
    pickle.loads(path.read_bytes())  # it is hostile indeed
    assert trace.exists()
    if protocol not in (2, 3, 4):
        return
    things = {"a": [1, 2.5, None, True], "b": ("x", b"\x00\xff"), "c": np.arange(6, dtype=np.uint8).reshape(2, 3)}
    path.write_bytes(pickle.dumps(things, protocol=protocol))
    read = unpickle(path)
    np.testing.assert_array_equal(read.pop("c"), things.pop("c"))
    assert read == things


NAMED = {
    b"cbuiltins\neval\n(V1+1\ntR.": "builtins.eval",
    b"cos\nsystem\n(Vtrue\ntR.": "os.system",
    b"cnumpy\nload\n(Vx\ntR.": "numpy.load",
    b"cnumpy\nndarray.tofile\n.": "numpy.ndarray.tofile",
    b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.": "numpy.ndarray.tofile",
    b"(S'x'\nios\nsystem\n.": "os.system",
    b"c_codecs\ndecode\n.": "_codecs.decode",
}


@in_turn(
    "code",
    [
        *NAMED,
        b"",
        b"\x80\x02}",
        b"not a pickle",
        b"\x80\x63.",  # protocol 99
        b"Pid\n.",  # persistent
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
        b"cnumpy\ndtype\n(Vnonsense\ntR.",
        b"cnumpy\nndarray\n(NtR.",
        # A pickle leaves no trace on what it may use: neither as attributes nor in slots.
        *(
            b"\x80\x02" + stand_in + state + b"b."
            for stand_in in (b"c_codecs\nencode\n", b"cnumpy\ndtype\n")
            for state in (b"}(Vevil\nK\x01u", b"N}(Vevil\nNu\x86")
        ),
    ],
)
def test_other_names_and_damaged_pickles(tmp_path, code):
    path = tmp_path / "batch"
    path.write_bytes(code)
    named = (f"got {NAMED[code]},",) if code in NAMED else ("must be a pickle", "damaged")
    with refused(ValueError, path, *named):
        unpickle(path)
