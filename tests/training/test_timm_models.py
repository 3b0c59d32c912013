"""Models of timm. The package needs torchvision, which does not load beside every torch: a small one stands for it."""

import sys
import types

import pytest
import torch
from in_turn import in_turn
from refusals import refused
from torch import nn

from symloss.training.models import create_model, has_pretrained_weights, is_built_in, without_weights


class Net(nn.Module):
    """A network of the registry; what it was asked for is kept."""

    def __init__(self, **asked):
        super().__init__()
        self.asked = asked
        self.head = nn.Linear(asked["in_chans"], asked["num_classes"])
        if asked["name"] == "patches":
            self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, 4, 16, stride=16)})
            self.patch_embed.proj = self.patch_embed["proj"]

    def forward(self, images):
        if self.asked["name"] == "raises":
            raise RuntimeError("too small")
        scores = self.head(images.mean((2, 3)))
        return (scores, scores) if self.asked["name"] == "two_outputs" else scores


@pytest.fixture
def timm(monkeypatch):
    """As much of timm's interface as is used: ``list_models``, ``get_pretrained_cfg`` and ``create_model``."""

    def build(name, pretrained=False, **options):
        assert name != "fixed", "Input size must be a multiple of 14"
        if pretrained and name != "tiny_net":
            raise RuntimeError(f"No pretrained weights exist for {name}.\nUse `pretrained=False` for random init.")
        net = Net(name=name, pretrained=pretrained, **options)
        if pretrained:
            nn.init.constant_(net.head.weight, 3.0)
        return net

    module = types.ModuleType("timm")
    module.list_models = lambda: ["tiny_net", "tiny_vit", "patches", "two_outputs", "raises", "fixed"]
    module.get_pretrained_cfg = lambda name: types.SimpleNamespace(fixed_input_size=name == "tiny_vit")
    module.create_model = build
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def build(name, shape=(3, 20, 24)):
    return create_model(name, input_shape=shape, num_classes=5, seed=1)


def test_a_model_is_built_for_the_images_and_classes(timm):
    assert build("timm:tiny_net").asked == {"name": "tiny_net", "pretrained": False, "num_classes": 5, "in_chans": 3}
    assert build("timm:tiny_net", (1, 8, 8)).asked["in_chans"] == 1
    assert build("timm:tiny_vit").asked["img_size"] == (20, 24)
    assert build("timm:tiny_vit", (3, 20, 20)).asked["img_size"] == 20
    assert build("timm:patches", (3, 32, 32)).training
    assert build("timm:tiny_net")(torch.zeros(2, 3, 20, 24)).shape == (2, 5)


def test_pretrained_weights_are_asked_for_by_name(timm):
    assert build("timm:tiny_net:pretrained").head.weight.unique().tolist() == [3.0]
    assert build("timm:tiny_net").head.weight.unique().numel() == 15
    assert torch.equal(build("timm:tiny_net").head.weight, build("timm:tiny_net").head.weight)
    assert (is_built_in("timmy:a"), has_pretrained_weights("mine:pretrained")) == (False, False)
    assert without_weights("mine:pretrained") == "mine:pretrained"


@in_turn(
    "name, ingredients",
    [
        ("timm:tiny_nett", ["timm has no model 'tiny_nett'", "did you mean 'tiny_net'?"]),
        ("timm:", ["must be timm:NAME or timm:NAME:pretrained", "'timm:'"]),
        ("timm:something", ["timm has no model 'something'", "timm.list_models() has 6 names"]),
        ("timm:patches", ["its patches (16, 16) divide", "(3, 20, 24)"]),
        ("timm:two_outputs", ["must turn inputs (2, 3, 20, 24) into scores (2, 5)", "tuple"]),
        ("timm:raises", ["must take inputs (2, 3, 20, 24)", "too small"]),
        ("timm:hf_hub:somebody/model", ["must be timm:NAME or timm:NAME:pretrained", "hf_hub"]),
        ("timm:hf-hub", ["timm has no model 'hf-hub'"]),
        ("timm:fixed", ["model 'timm:fixed' must have images [20, 24]", "a multiple of 14"]),
        ("timm:tiny_vit:pretrained", ["weights that are at hand", "No pretrained weights exist for tiny_vit"]),
    ],
)
def test_a_wrong_model_is_one_sentence(timm, name, ingredients):
    with refused(ValueError, *ingredients):
        build(name)
    with refused(ValueError, "input_shape of timm:tiny_net must be (channels, height, width)", "(7,)"):
        build("timm:tiny_net", (7,))


def test_without_the_package_or_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "timm", None)
    with refused(ValueError, "needs the package timm, which cannot be imported: pip install 'symloss[timm]'"):
        build("timm:resnet18")
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text("import torchvision_of_nobody\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with refused(ValueError, "cannot be imported: No module named 'torchvision_of_nobody'"):
        build("timm:resnet18")
