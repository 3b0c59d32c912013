"""Files of a known data set: the publisher's, or others."""

import gzip
import hashlib

import numpy as np
import pytest
from data_helpers import idx_bytes, random_bytes
from refusals import refused

from symloss.data import published
from symloss.data.published import deviation
from symloss.experiments import resolve
from symloss.training import Settings, train
from symloss.training.task import prepare

IMAGES = random_bytes(40, 28, 28)
LABELS = np.arange(40, dtype=np.uint8) % 10


def write(root, images=IMAGES, labels=LABELS, packed=False):
    folder = root / "mnist"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        for stem, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            data = idx_bytes(array)
            (folder / f"{stem}.gz" if packed else folder / stem).write_bytes(gzip.compress(data) if packed else data)
    return root


@pytest.fixture
def as_if_published(tmp_path, monkeypatch):
    """As if these were what the publisher's checksums are of."""
    root = write(tmp_path / "published")
    sums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in (root / "mnist").iterdir()}
    monkeypatch.setitem(published.SOURCES, "mnist", published.SOURCES["mnist"]._replace(unpacked=sums))
    return root


def test_the_publishers_files_need_no_fingerprint_packed_or_not(tmp_path, as_if_published):
    assert deviation("mnist", as_if_published) is None
    assert deviation("mnist", write(tmp_path / "packed", packed=True)) is None


def test_other_files_have_one_of_their_own(tmp_path, as_if_published):
    one = deviation("mnist", write(tmp_path / "one", images=IMAGES ^ 1))
    two = deviation("mnist", write(tmp_path / "two", labels=(LABELS + 1) % 10))
    again = deviation("mnist", write(tmp_path / "again", images=IMAGES ^ 1, packed=True))
    assert None not in (one, two)
    assert one != two
    assert again == one


def test_a_file_that_changes_is_looked_at_again(as_if_published):
    path = as_if_published / "mnist" / "t10k-labels-idx1-ubyte"
    assert deviation("mnist", as_if_published) is None
    path.write_bytes(idx_bytes((LABELS + 1) % 10))
    assert deviation("mnist", as_if_published) is not None


@pytest.mark.parametrize("name", ["digits", "cifar10", "webvision-mini", "mnist"])
def test_without_files_there_is_nothing_to_say(tmp_path, name):
    assert deviation(name, tmp_path) is None


def test_damaged_files_are_left_to_whoever_opens_them(tmp_path):
    root = write(tmp_path / "root", packed=True)
    path = root / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:100])
    assert deviation("mnist", root) is None


KEYS = {
    "digits": "fdd3388181c8", "mnist": "174d22ff910b", "fashion-mnist": "7ed132807483", "cifar10": "263adfba0e9b",
    "cifar100": "8ec6271767a7", "webvision-mini": "3c9e61af4413",
}  # fmt: skip


@pytest.mark.parametrize("data", KEYS)
def test_keys_are_those_of_version_01(tmp_path, data):
    """Written down before fingerprints of known data came: another key would make every run of before a stranger."""
    assert resolve(data, "sgce", noise="sym:0.4", root=tmp_path).key == KEYS[data]


def test_on_the_publishers_files_too(as_if_published):
    assert resolve("mnist", "sgce", noise="sym:0.4", root=as_if_published).key == KEYS["mnist"]


def test_two_data_folders_are_two_runs(tmp_path, as_if_published):
    other = write(tmp_path / "other", images=IMAGES ^ 1)
    small = {"model": "mlp:hidden=4", "epochs": 1, "validation": 0.0, "optimizer": "sgd"}
    ours, theirs = (resolve("mnist", "ce", root=root, **small) for root in (as_if_published, other))
    assert ours.key != theirs.key
    train(theirs, tmp_path / "run", root=other, accelerator="cpu")
    with refused(ValueError, "holds a run with other settings (fingerprint)"):
        train(ours, tmp_path / "run", root=as_if_published, accelerator="cpu")
    with refused(ValueError, "mnist with noise clean has changed since these settings were made"):
        prepare(theirs, as_if_published)
    assert prepare(ours, as_if_published).data.name == "mnist"


def test_a_run_without_a_fingerprint_goes_on_with_its_labels_alone(tmp_path):
    """Settings made by hand, or by version 0.1."""
    settings = Settings("mnist", model="mlp:hidden=4", epochs=2, validation=0.0)
    roots = write(tmp_path / "one"), write(tmp_path / "two", labels=(LABELS + 1) % 10)

    def stops(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "run", root=roots[0], accelerator="cpu", on_epoch=stops)
    with refused(ValueError, tmp_path / "run", "The labels of mnist have changed since"):
        train(settings, tmp_path / "run", root=roots[1], accelerator="cpu")
    assert train(settings, tmp_path / "run", root=roots[0], accelerator="cpu").last.epoch == 2
