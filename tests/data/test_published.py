"""Published data: CIFAR, MNIST and mini WebVision in the publishers' layouts, digits, shrunk images.

Files are read as written, or damage is named; nothing in a pickle is run; other files than the publisher's are told.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pickle
import tracemalloc
from pathlib import Path

import data_helpers
import numpy as np
import pytest
import torch
from data_helpers import cut, holds, idx_bytes, not_opened, random_bytes, skipping, write_idx
from hostile_pickle import Bomb
from in_turn import in_turn
from refusals import all_refused, refused
from sklearn.datasets import load_digits

from symloss.data import ImageFiles, open_data, open_webvision, published
from symloss.data.opening import open_inputs
from symloss.data.published import CIFAR100_CLASSES, deviation, shrunk, unpickle
from symloss.data.source import DataDescription, DataSource
from symloss.experiments import resolve
from symloss.training import Settings, train
from symloss.training.task import prepare

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


def write_python(root: Path, name: str, form=data_helpers.python2_pickle) -> Path:
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
    *(data_helpers.python2_pickle, data_helpers.python3_pickle, "binary"),
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
            # Red, green, blue; each row by row.
            pixels = np.concatenate([batch for batch, _ in written]).reshape(-1, 3, 32, 32)
            holds(examples, pixels, [label for _, labels in written for label in labels])
        assert data.input_shape == (3, 32, 32)


def test_the_protocol_of_cifar(tmp_path):
    ten, hundred = (open_data(name, root=write_python(tmp_path, name)) for name in FILES)
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
    not_opened("cifar10", path, *ingredients, root=tmp_path)


@in_turn("name, record", [("cifar10", 3073), ("cifar100", 3074)])
def test_wrong_binary_files_and_missing_ones(tmp_path, name, record):
    with refused(FileNotFoundError, name, tmp_path / PYTHON[name], "got neither", f"symloss data get {name}"):
        open_data(name, root=tmp_path)
    path = write_binary(tmp_path, name) / f"{FILES[name][-1]}.bin"
    for size in (0, 100, 2 * 3072):
        path.write_bytes(bytes(size))
        not_opened(name, path, f"records of {record} bytes", f"got {size} bytes", root=tmp_path)
    path.write_bytes(bytes(record - 3073) + b"\x64" + bytes(3072))
    not_opened(name, path, "labels 0 to", "got 100", root=tmp_path)
    path.unlink()
    not_opened(name, name.replace("cifar", "CIFAR-"), path, "without it", exception=FileNotFoundError, root=tmp_path)


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@in_turn("packed", [False, True])
@in_turn("name, mean, std", [("mnist", 0.1307, 0.3081), ("fashion-mnist", 0.2860, 0.3530)])
def test_idx_files_are_read_as_written(tmp_path, name, packed, mean, std):
    for root, folder in ((tmp_path / "one", tmp_path / "one" / name), (tmp_path / "two", tmp_path / "two")):
        images, labels, test_images, test_labels = write_idx(folder, packed=packed)
        data = open_data(name, root=root)
        holds(data.train, images[:, None], labels.tolist())
        holds(data.test, test_images[:, None], test_labels.tolist())
    assert (data.name, len(data.class_names), data.input_shape, data.augmentation) == (name, 10, (1, 28, 28), ())
    assert (data.scaling.mean, data.scaling.std) == ((mean,), (std,))
    next((tmp_path / "two").glob("t10k-labels-idx1-ubyte*")).unlink()
    not_opened(name, "t10k-labels-idx1-ubyte", "got neither", exception=FileNotFoundError, root=tmp_path / "two")
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
    not_opened("mnist", path, *ingredients, root=tmp_path)


def test_damaged_gz_files_and_wrong_labels(tmp_path):
    write_idx(tmp_path, packed=True)
    path, labels = tmp_path / f"{IMAGES}.gz", tmp_path / f"{LABELS}.gz"
    for values, *ingredients in (
        (random_bytes(11, high=10), path, labels, "got 12 and 11"),
        (np.array([0, 10] * 6, dtype=np.uint8), labels, "0 to 9", "got 10"),
    ):
        labels.write_bytes(gzip.compress(idx_bytes(values)))
        not_opened("mnist", *ingredients, root=tmp_path)
    for content in (path.read_bytes()[:-3000], b"<html>"):
        path.write_bytes(content)
        not_opened("mnist", path, "whole gzip file", "damaged", root=tmp_path)
    # One that swells is not read to its end.
    path.write_bytes(gzip.compress(idx_bytes(np.zeros((12, 28, 28), dtype=np.uint8)) + bytes(30_000_000), 1))
    tracemalloc.start()
    try:
        not_opened("mnist", path, "must hold 9408 bytes", "got more", root=tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@in_turn("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_runs_and_plain_things_are_read(tmp_path, protocol):
    path, trace = write_python(tmp_path, "cifar10") / "data_batch_1", tmp_path / "trace"
    path.write_bytes(pickle.dumps({"data": Bomb(trace), "labels": [1]}, protocol=protocol))
    not_opened("cifar10", path, "only numbers, text and arrays", "posix.mkdir", "none of it was run", root=tmp_path)
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


def test_every_digit_is_there_once_always_in_the_same_part():
    digits, source = open_data("digits"), load_digits()
    ours = torch.cat([digits.train.inputs, digits.test.inputs])[:, 0].double() * 16 / 255
    labels = torch.cat([digits.train.labels, digits.test.labels])

    def rows(images: np.ndarray, labels: np.ndarray) -> list[tuple[float, ...]]:
        return sorted(tuple(row) for row in np.column_stack([labels, images.reshape(len(images), -1)]))

    assert rows(ours.round().numpy(), labels.numpy()) == rows(source.images, source.target)
    # Results on digits can be compared only while these labels stay.
    assert digits.train.labels[:12].tolist() == [3, 9, 1, 3, 1, 9, 4, 4, 2, 8, 3, 5]
    assert digits.test.labels[:12].tolist() == [7, 6, 3, 7, 7, 3, 2, 8, 9, 3, 2, 6]
    assert (len(digits.train), len(digits.test), digits.streamed) == (1437, 360, False)
    assert int(digits.train.inputs.max()) == 255
    assert digits.train.inputs.dtype == torch.uint8
    assert digits.train.inputs.shape[1:] == digits.input_shape == (1, 8, 8)
    share = digits.train.labels.bincount() / labels.bincount()
    assert bool(((share - 0.8).abs() < 0.005).all())
    data_helpers.is_scaled(digits, digits.train.inputs.numpy())


def test_a_pixel_of_a_shrunk_image_is_the_rounded_mean_of_its_square():
    whole, small = open_data("digits"), open_data("digits", size=4)
    for before, after in ((whole.train, small.train), (whole.test, small.test)):
        squares = before.inputs.numpy().reshape(-1, 1, 4, 2, 4, 2).astype(np.float64).mean((3, 5))
        holds(after, np.rint(squares).astype(np.uint8), before.labels.tolist())
    assert (small.input_shape, small.class_names, small.scaling) == ((1, 4, 4), whole.class_names, whole.scaling)
    assert len(np.unique(squares % 1)) > 1, "some means lie between whole numbers"
    digits = dataclasses.replace(whole, augmentation=("crop:4", "flip", "rotate:20"))
    assert shrunk(digits, 4).augmentation == ("crop:2", "flip", "rotate:20")
    assert shrunk(digits, 1).augmentation == ("flip", "rotate:20"), "a frame of half a pixel is none"
    assert shrunk(digits, 8) is digits
    flat = dataclasses.replace(digits, train=dataclasses.replace(digits.train, inputs=torch.zeros(1437, 64)))
    all_refused(
        (ValueError, "must divide the 8 pixels of digits, as 1, 2, 4, 8 do ... got 3", lambda: shrunk(digits, 3)),
        (ValueError, "size must be left out for digits, which has no square ... got 2", lambda: shrunk(flat, 2)),
        (TypeError, "a whole number in [1, 4096]; got True", lambda: open_data("digits", size=True)),
    )


def write_mnist(root, **options):
    write_idx(root / "mnist", **options)
    return root


@pytest.fixture
def as_if_published(tmp_path, monkeypatch):
    """As if these were what the publisher's checksums are of."""
    root = write_mnist(tmp_path / "published")
    source = published.SOURCES["mnist"]
    sums = {name: hashlib.md5((root / "mnist" / name).read_bytes()).hexdigest() for name in source.unpacked}
    monkeypatch.setitem(published.SOURCES, "mnist", source._replace(unpacked=sums))
    return root


def test_files_that_are_not_the_publishers_have_a_fingerprint(tmp_path, as_if_published):
    assert deviation("mnist", as_if_published) is None
    assert deviation("mnist", write_mnist(tmp_path / "packed", packed=True)) is None
    found = [deviation("mnist", write_mnist(tmp_path / "one", first=5))]
    assert found == [deviation("mnist", write_mnist(tmp_path / "again", first=5, packed=True))]
    for name in ("t10k-labels-idx1-ubyte", "train-images-idx3-ubyte"):  # a file that changes is looked at again
        (as_if_published / "mnist" / name).write_bytes((tmp_path / "one" / "mnist" / name).read_bytes())
        found.append(deviation("mnist", as_if_published))
    assert None not in found
    assert len(set(found)) == 3
    # Missing and damaged files are left to whoever opens them.
    assert [deviation(name, tmp_path) for name in ("digits", "cifar10", "webvision-mini", "mnist")] == [None] * 4
    damaged = tmp_path / "packed" / "mnist" / "train-images-idx3-ubyte.gz"
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert deviation("mnist", tmp_path / "packed") is None


def test_two_data_folders_are_two_runs(tmp_path, as_if_published):
    keys = {
        "digits": "fdd3388181c8",
        "mnist": "174d22ff910b",
        "fashion-mnist": "7ed132807483",
        "cifar10": "263adfba0e9b",
        "cifar100": "8ec6271767a7",
        "webvision-mini": "3c9e61af4413",
    }
    # Written down before fingerprints of known data came: another key would make every run of before a stranger.
    assert {data: resolve(data, "sgce", noise="sym:0.4", root=tmp_path).key for data in keys} == keys
    assert resolve("mnist", "sgce", noise="sym:0.4", root=as_if_published).key == keys["mnist"]
    other, run = write_mnist(tmp_path / "other", first=5), tmp_path / "run"
    small = {"model": "mlp:hidden=4", "epochs": 2, "validation": 0.0, "optimizer": "sgd"}
    ours, theirs = (resolve("mnist", "ce", root=root, **small) for root in (as_if_published, other))
    assert ours.key != theirs.key
    with refused(ValueError, "mnist with noise clean has changed since these settings were made"):
        prepare(theirs, as_if_published)
    assert prepare(ours, as_if_published).data.name == "mnist"

    def stops(row):
        raise KeyboardInterrupt

    # Settings made by hand, or by version 0.1, have no fingerprint: the labels alone tell.
    settings = Settings("mnist", model="mlp:hidden=4", epochs=2, validation=0.0)
    with pytest.raises(KeyboardInterrupt):
        train(settings, run, root=other, accelerator="cpu", on_epoch=stops)
    with refused(ValueError, run, "The labels of mnist have changed since"):
        train(settings, run, root=as_if_published, accelerator="cpu")
    assert train(settings, run, root=other, accelerator="cpu").last.epoch == 2
    train(theirs, tmp_path / "theirs", root=other, accelerator="cpu")
    with refused(ValueError, "holds a run with other settings (fingerprint)"):
        train(ours, tmp_path / "theirs", root=as_if_published, accelerator="cpu")


def write_list(listing: Path, images: Path, entries: list[tuple[str, int]]) -> None:
    listing.parent.mkdir(parents=True, exist_ok=True)
    listing.write_text("".join(f"{name} {label}\n" for name, label in entries))
    for name, _ in entries:
        data_helpers.save_image(images / name, random_bytes(2, 2, 3))


TRAIN = [("google/q0002/b c.jpg", 49), ("google/q0001/a.jpg", 0), ("google/q0051/d.jpg", 50), ("google/q0001/e.jpg", 0)]
VAL = [("val000001.jpg", 7), ("val000002.jpg", 999), ("val000003.jpg", 0)]


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "webvision"
    write_list(folder / "info" / "train_filelist_google.txt", folder, TRAIN)
    write_list(folder / "info" / "val_filelist.txt", folder / "val_images_256", VAL)
    return tmp_path


def test_the_first_50_classes_in_the_order_of_the_list(root):
    data, folder = open_data("webvision-mini", root=root), root / "webvision"
    assert data.train.inputs == ImageFiles(tuple(folder / TRAIN[k][0] for k in (0, 1, 3)))
    assert data.train.labels.tolist() == [49, 0, 0]
    assert data.test.inputs == ImageFiles(tuple(folder / "val_images_256" / VAL[k][0] for k in (0, 2)))
    assert data.test.labels.tolist() == [7, 0]
    assert data.class_names == tuple(str(k) for k in range(50))
    assert (data.size, data.input_shape) == (224, (3, 224, 224))
    assert data.augmentation == ("resized-crop:224", "flip", "jitter:0.4,0.4,0.4,0.2")
    assert (data.scaling.mean, data.scaling.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    lines = [f"n{k:08d} name {k}, other name\n" for k in range(1000)]
    (folder / "info" / "synsets.txt").write_text("".join(lines))
    assert open_webvision(root).class_names == tuple(f"name {k}" for k in range(50))


def test_ilsvrc12_by_folder_and_by_list(root):
    """50 or 1000 folders; other numbers cannot be told apart."""
    with refused(FileNotFoundError, root / "ilsvrc12" / "val.txt", "https://image-net.org", f"{root}/ilsvrc12/val"):
        open_data("webvision-mini-imagenet", root=root)
    val = root / "ilsvrc12" / "val"
    for folders in (1, 49, 50, 51, 1000):
        for k in range(folders):
            (val / f"n{k:08d}").mkdir(parents=True, exist_ok=True)
        for k in range(min(folders, 60)):
            data_helpers.save_image(val / f"n{k:08d}" / f"{k}.JPEG", random_bytes(2, 2, 3))
        if folders in (50, 1000):
            test = open_data("webvision-mini-imagenet", root=root).test
            assert [path.name for path in test.inputs.paths] == [f"{k}.JPEG" for k in range(50)]
            assert test.labels.tolist() == list(range(50))
            continue
        with refused(FileNotFoundError, "folders of all 1000 classes or of the first 50", f"and {folders} folders"):
            open_data("webvision-mini-imagenet", root=root)
    entries = [("ILSVRC2012_val_00000001.JPEG", 65), ("ILSVRC2012_val_00000002.JPEG", 3)]
    write_list(root / "ilsvrc12" / "val.txt", val, entries)
    data = open_data("webvision-mini-imagenet", root=root)
    assert data.test.inputs == ImageFiles((val / entries[1][0],))
    assert (data.name, data.test.labels.tolist()) == ("webvision-mini-imagenet", [3])
    assert data.train.inputs == open_data("webvision-mini", root=root).train.inputs


def test_missing_and_damaged_images(root):
    paths = [root / "webvision" / name for name, _ in TRAIN]
    bad = [cut(paths[1]), cut(root / "webvision" / "val_images_256" / VAL[0][0])]
    assert len(open_data("webvision-mini", root=root).train) == 3  # skipping decodes every image
    data, told = skipping("webvision-mini", root=root)
    assert data.train.inputs == ImageFiles((paths[0], paths[3]))
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([49, 0], [0])
    assert [path for path, _ in told] == bad
    paths[1].unlink()
    not_opened("webvision-mini", paths[1], "no such file", exception=FileNotFoundError, root=root)
    data, told = skipping("webvision-mini", root=root)
    assert (data.train.labels.tolist(), told[0]) == ([49, 0], (paths[1], "no such file"))
    for path in (paths[0], paths[3]):
        cut(path)
    none = "train_filelist_google.txt", "at least one image that can be read", "got none"
    not_opened("webvision-mini", *none, root=root, skip_bad=True)
    for path in paths:
        path.unlink(missing_ok=True)
    with refused(FileNotFoundError, "train_filelist_google.txt", "got none of 3", "data.vision.ee.ethz.ch"):
        open_data("webvision-mini", root=root)


def test_inputs_to_predict_on_go_by_their_names(root):
    def inputs(shape, size=None, **options):
        like = DataDescription("d", ("a", "b"), shape, size, columns=(), mean=(), std=())
        found = open_inputs(DataSource("webvision-mini", **options), like, None, root=root)
        assert [path.name for path in found.inputs.paths] == list(found.origin.names(len(found)))
        return list(found.origin.names(len(found)))

    assert inputs((3, 224, 224), 224) == [VAL[0][0], VAL[2][0]]
    cut(root / "webvision" / "val_images_256" / VAL[0][0])
    assert inputs((3, 224, 224), 224, skip_bad=True) == [VAL[2][0]]
    with refused(ValueError, "images of 8 x 9 pixels, as in the run", "got webvision-mini", "several sizes"):
        inputs((1, 8, 9))
    with refused(ValueError, "6 features, as in the run", "got images"):
        inputs((6,))


def test_bad_and_missing_lists(root):
    listing = root / "webvision" / "info" / "train_filelist_google.txt"
    for line in ("google/a.jpg", "google/a.jpg -1", "google/a.jpg cat", "7"):
        listing.write_text(f"{TRAIN[0][0]} 49\n{line}\n")
        not_opened("webvision-mini", f"line 2 of {listing}", "`path label`", f"got {line!r}", root=root)
    listing.write_text(f"{TRAIN[0][0]} 49\n")
    for missing in (listing.with_name("val_filelist.txt"), listing):
        missing.unlink()
        with refused(FileNotFoundError, missing, "data.vision.ee.ethz.ch", f"into {root}/webvision"):
            open_data("webvision-mini", root=root)
