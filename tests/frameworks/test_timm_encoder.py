"""``timm:NAME@FILE`` with timm itself: features, and files that are damaged, hostile or of another model."""

from __future__ import annotations

import pickle

import missing_operators  # noqa: F401
import numpy as np
import pytest
from data_helpers import random_bytes, save_image
from hostile_pickle import Bomb
from refusals import refused

timm = pytest.importorskip("timm", reason="timm is not installed: make frameworks")

import torch

from symloss.encoders import encode, image_encoder

MODEL = "test_resnet"
PIXELS = random_bytes(5, 3, 40, 56)


@pytest.fixture
def checkpoint(tmp_path):
    """Random weights, with those of the last layer, as timm's training saves them."""
    torch.manual_seed(1)
    net = timm.create_model(MODEL, num_classes=7)
    torch.save({"state_dict": net.state_dict(), "epoch": 3}, path := tmp_path / "tiny.pth")
    return path


def expected(path, pixels):
    """Features by timm alone, of images of its own size: the network without classes, and its own scaling."""
    net = timm.create_model(MODEL, num_classes=0).eval()
    weights = torch.load(path, weights_only=True)["state_dict"]
    net.load_state_dict({key: value for key, value in weights.items() if key in net.state_dict()})
    cfg = timm.data.resolve_data_config({}, model=net)
    mean, std = (torch.tensor(cfg[key]).view(3, 1, 1) for key in ("mean", "std"))
    with torch.no_grad():
        return net((torch.from_numpy(pixels) / 255 - mean) / std).numpy()


def test_features_of_a_local_checkpoint_are_those_of_timm(checkpoint, tmp_path):
    name = f"timm:{MODEL}@{checkpoint}"
    encoder = image_encoder(name, "cpu", batch=2)
    side = encoder._network.size[0]
    squares = random_bytes(3, 3, side, side, seed=1)
    found, theirs = encoder.transform(squares), expected(checkpoint, squares)
    assert theirs.std() > 1e-3
    np.testing.assert_allclose(found, theirs, atol=1e-4 * np.abs(theirs).max())
    features = encode(PIXELS, name, device="cpu")
    assert (features.dtype, features.shape) == (np.float32, (5, encoder.width))
    assert np.array_equal(encode(PIXELS, name, device="cpu"), features)
    files = [save_image(tmp_path / f"{k}.png", image.transpose(1, 2, 0)) for k, image in enumerate(PIXELS)]
    assert np.array_equal(encode(files, name, device="cpu"), features)
    # The file may have another name; other weights are another encoder.
    copy = checkpoint.rename(tmp_path / "renamed.pth")
    assert image_encoder(f"timm:{MODEL}@{copy}", "cpu").identity == encoder.identity
    torch.save(timm.create_model(MODEL, num_classes=0).state_dict(), tmp_path / "other.pth")
    assert image_encoder(f"timm:{MODEL}@{tmp_path / 'other.pth'}", "cpu").identity != encoder.identity


def test_a_checkpoint_that_is_damaged_hostile_or_of_another_model_is_refused(checkpoint, tmp_path):
    whole = checkpoint.read_bytes()
    other = timm.create_model("test_vit", num_classes=0).state_dict()
    bad = {"half.pth": whole[: len(whole) // 2], "empty.pth": b"", "text.pth": b"no weights"}
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    torch.save(other, tmp_path / "vit.pth")
    torch.save({"state_dict": Bomb(tmp_path / "was-run")}, tmp_path / "zip-with-code.pth")
    (tmp_path / "pickle.pth").write_bytes(pickle.dumps(Bomb(tmp_path / "was-run"), protocol=2))
    for name in (*bad, "vit.pth", "zip-with-code.pth", "pickle.pth", "absent.pth"):
        with refused(ValueError, f"{tmp_path / name} must hold weights of this model, as tensors alone; "):
            image_encoder(f"timm:{MODEL}@{tmp_path / name}", "cpu")
    assert not (tmp_path / "was-run").exists()
    with refused(ValueError, "timm has no model 'test_resnett'; did you mean 'test_resnet'?"):
        image_encoder(f"timm:test_resnett@{checkpoint}", "cpu")
