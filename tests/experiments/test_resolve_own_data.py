"""Settings for data of one's own: what it is decides the protocol, and what is in it is part of the run."""

import os
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch
from in_turn import in_turn
from PIL import Image
from refusals import refused

from symloss.data import KNOWN, open_data
from symloss.data.dataset import Examples, ImageFiles
from symloss.experiments import resolve
from symloss.experiments.layers import explain, protocol_for, resolve_layers
from symloss.training import train
from symloss.training.run_folder import folder_name

QUICK = {"epochs": 1, "model": "mlp:hidden=8"}


def table(path, flip=False):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    path.write_text("a,b,label\n" + "".join(f"{a},{b},{(a > 0) != flip}\n" for a, b in rows))
    return str(path)


def images(path, count=4, side=8):
    for name in ("cats", "dogs"):
        (path / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (side, side), (i, 0, 0)).save(path / name / f"{i}.png")
    return path


def test_data_of_ones_own_has_a_protocol_for_its_kind_which_is_seen_by_opening_it(tmp_path):
    models = {"table": "mlp", "few-images": "cnn8:width=0.5", "images": "cnn8", "many-photos": "resnet50"}
    for kind, model in (models | dict.fromkeys(("photos", "pretrained"), "resnet18")).items():
        assert resolve_layers(kind, "somewhere/mine", "mae").settings.model == model
    assert resolve(table(tmp_path / "t.csv"), "mae").model == "mlp"
    assert resolve(str(images(tmp_path / "photos")), "mae").model == "cnn8:width=0.5"
    assert resolve(images(tmp_path / "large", side=97), "mae").model == "resnet18"


@in_turn(
    "shape, count, expected",
    [
        ((20,), 10**6, "table"),
        ((3, 7, 30), 100, "table"),
        ((3, 8, 48), 9_999, "few-images"),
        ((1, 28, 28), 10_000, "images"),
        ((3, 48, 49), 10_000, "photos"),
        ((3, 224, 224), 99_999, "photos"),
        ((3, 224, 224), 100_000, "many-photos"),
    ],
)
def test_the_network_fits_size_and_number_of_images(shape, count, expected):
    data = SimpleNamespace(input_shape=shape, train=range(count))
    assert protocol_for(data) == expected
    assert protocol_for(data, "timm:resnet18") == expected
    assert protocol_for(data, "timm:resnet18:pretrained") == ("table" if expected == "table" else "pretrained")


def test_photos_of_several_sizes_have_a_size_with_a_source(tmp_path):
    photos = images(tmp_path / "photos", side=20)
    Image.new("RGB", (90, 30)).save(photos / "cats" / "wide.png")
    found = explain(photos, "mae")
    assert found.settings.size == 20
    assert found.sources["size"] == "ours: the shorter side of the median image, at most 224"
    given = explain(photos, "mae", size=40)
    assert (given.settings.size, given.sources["size"]) == (40, "as given")
    assert given.settings.key != found.settings.key
    assert resolve(images(tmp_path / "even"), "mae").size is None
    known = explain("cifar10", "mae", size=16)
    assert (known.settings.size, known.sources["size"]) == (16, "as given")


def test_a_folder_that_is_called_like_a_protocol_or_a_preset_is_still_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images(tmp_path / "photos")
    plain = resolve("photos", "sgce")
    for name in ("webvision", "table", "photos-of-mine", "cifar100-step", "mnist-lenet5"):
        images(tmp_path / name)
        assert replace(resolve(name, "sgce"), data="photos") == plain, name
    assert {resolve(data, "sgce").fingerprint for data in KNOWN} == {None}


def test_a_table_that_changed_is_another_run(tmp_path):
    data = table(tmp_path / "mine.csv")
    first = resolve(data, "mae", **QUICK)
    assert resolve(data, "mae", **QUICK) == first
    found = train(first, tmp_path / folder_name(first))
    table(tmp_path / "mine.csv", flip=True)
    second = resolve(data, "mae", **QUICK)
    assert folder_name(second) != folder_name(first)
    with refused(ValueError, "holds a run with other settings (fingerprint)"):
        train(second, tmp_path / folder_name(first))
    with refused(ValueError, "mine.csv with noise clean has changed", second.fingerprint):
        train(first, tmp_path / "again")
    assert train(first, tmp_path / folder_name(first)) == found, "what is done needs no data"


def test_a_picture_moved_to_another_class_is_noticed_in_the_same_process(tmp_path):
    folder = images(tmp_path / "photos")
    before = resolve(str(folder), "mae").fingerprint
    time.sleep(0.02)  # a clock of ten milliseconds is the coarsest there is
    os.rename(folder / "cats" / "3.png", folder / "dogs" / "9.png")
    assert resolve(str(folder), "mae").fingerprint != before


def test_the_fingerprint_is_of_inputs_labels_classes_and_test_data(tmp_path):
    def of(x, y, **test):
        np.savez(tmp_path / "d.npz", x=x, y=y, **test)
        return open_data(str(tmp_path / "d.npz")).fingerprint

    x, y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array(list("ababab"))
    same, other = of(x, y), x.copy()
    other[0, 0] = 0.5
    assert of(x, y) == same
    found = {same, of(other, y), of(x, y[::-1]), of(x, np.array(list("acacac"))), of(x, y, x_test=x, y_test=y)}
    assert len(found) == 5
    # Streamed files count by name and size.
    path = tmp_path / "a.png"
    path.write_bytes(b"12")
    examples = Examples(ImageFiles((path,)), torch.tensor([0]))
    before = examples.fingerprint()
    path.write_bytes(b"123")
    assert examples.fingerprint() != before
