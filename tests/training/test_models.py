"""Models by name: layers against the protocol, the seed, the user's own, those of timm, and what does not exist."""

import itertools
import math
import re
import sys
import types

import pytest
import torch
from in_turn import in_turn
from refusals import refused
from torch import nn

from symloss.training.models import create_model, has_pretrained_weights, is_built_in, without_weights
from symloss.training.networks import AveragePool


def build(name: str, shape: tuple[int, ...] = (3, 20, 24), classes: int = 5, seed: int | None = 0) -> nn.Module:
    return create_model(name, input_shape=shape, num_classes=classes, seed=seed)


def count(name: str, input_shape: tuple[int, ...], classes: int) -> int:
    return sum(parameter.numel() for parameter in build(name, input_shape, classes).parameters())


def conv(channels: int, out: int, kernel: int = 3, *, bias: bool = True, norm: bool = True) -> int:
    return kernel * kernel * channels * out + bias * out + norm * 2 * out


def linear(features: int, out: int, *, norm: bool = False) -> int:
    return features * out + out + norm * 2 * out


def cnn8_convolutions(first: int, second: int, third: int) -> int:
    pairs = ((3, first), (first, first), (first, second), (second, second), (second, third), (third, third))
    return sum(conv(*pair) for pair in pairs)


def test_parameters_counted_by_hand() -> None:
    cnn4 = conv(1, 32) + conv(32, 64) + linear(128, 10)
    assert count("cnn4", (1, 28, 28), 10) == cnn4 + linear(3136, 128, norm=True) == 422_090
    assert count("cnn4", (1, 8, 8), 10) == cnn4 + linear(64 * 2 * 2, 128, norm=True)
    wide = cnn8_convolutions(64, 128, 196) + linear(3136, 256, norm=True) + linear(256, 10)
    assert count("cnn8", (3, 32, 32), 10) == wide == 1_639_794
    narrow = cnn8_convolutions(16, 32, 49) + linear(784, 64, norm=True) + linear(64, 10)
    assert count("cnn8:width=0.25", (3, 32, 32), 10) == narrow
    convs = conv(1, 6, 5, norm=False) + conv(6, 16, 5, norm=False)
    assert count("lenet5", (1, 28, 28), 10) == convs + linear(400, 120) + linear(120, 84) + linear(84, 10) == 61_706
    by_hand = linear(64, 256, norm=True) + linear(256, 256, norm=True) + linear(256, 10)
    assert count("mlp", (1, 8, 8), 10) == count("mlp", (64,), 10) == by_hand
    assert count("mlp:hidden=5-7,norm=none", (4,), 3) == linear(4, 5) + linear(5, 7) + linear(7, 3)


def test_networks_without_biases_or_without_batch_normalisation() -> None:
    """Without biases there is no batch normalisation either, so the network is 0 at 0 and linear along rays."""
    cnn4 = conv(1, 32, norm=False) + conv(32, 64, norm=False) + linear(64 * 2 * 2, 128) + linear(128, 10)
    assert count("cnn4:norm=none", (1, 8, 8), 10) == cnn4
    assert count("mlp:hidden=5,norm=batch,bias=true", (4,), 3) == linear(4, 5, norm=True) + linear(5, 3)
    for name, shape in (("mlp", (6,)), ("linear", (6,)), ("cnn4", (1, 8, 8)), ("cnn8:width=0.1", (3, 8, 8))):
        free = name + (",bias=false" if ":" in name else ":bias=false")
        network = build(free, shape, 4)
        layers = [layer for layer in network if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d))]
        assert count(free, shape, 4) == sum(layer.weight.numel() for layer in layers)
        inputs = torch.randn(5, *shape)
        assert not network(0 * inputs).any()
        assert torch.allclose(network(3 * inputs), 3 * network(inputs), atol=1e-5)


def test_parameters_of_resnets() -> None:
    total, channels = conv(3, 64, bias=False), 64
    for out, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        total += conv(channels, out, bias=False) + (2 * blocks - 1) * conv(out, out, bias=False)
        total += conv(channels, out, 1, bias=False) if channels != out else 0
        channels = out
    assert count("resnet34", (3, 32, 32), 100) == total + linear(512, 100) == 21_328_292
    total, channels = conv(3, 64, 7, bias=False), 64
    for inner, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        total += conv(channels, 4 * inner, 1, bias=False)
        for _ in range(blocks):
            total += conv(channels, inner, 1, bias=False) + conv(inner, inner, bias=False)
            total += conv(inner, 4 * inner, 1, bias=False)
            channels = 4 * inner
    assert count("resnet50", (3, 224, 224), 1000) == total + linear(2048, 1000) == 25_557_032


@in_turn("name, shape, last_map", [("resnet34", (3, 32, 32), (512, 4, 4)), ("resnet50", (3, 64, 64), (2048, 2, 2))])
def test_the_map_before_the_average(name, shape, last_map):
    model = build(name, shape, 10).eval()
    before = [*itertools.takewhile(lambda layer: not isinstance(layer, nn.AdaptiveAvgPool2d), model)]
    assert nn.Sequential(*before)(torch.zeros(1, *shape)).shape[1:] == last_map


@in_turn(
    "name, shape",
    [("cnn4", (1, 8, 8)), ("cnn4", (3, 30, 21)), ("cnn8:width=0.1", (1, 28, 28)), ("lenet5", (3, 32, 20)),
     ("resnet18", (3, 33, 32)), ("resnet34", (1, 8, 8)), ("resnet50", (1, 40, 33)), ("mlp", (3, 8, 8)), ("mlp", (30,))],
)  # fmt: skip
def test_one_score_a_class_for_other_shapes_too(name: str, shape: tuple[int, ...]) -> None:
    assert build(name, shape, 7)(torch.zeros(2, *shape)).shape == (2, 7)


@in_turn("name", ["cnn4", "cnn8", "resnet34", "mlp"])
def test_convolutions_kaiming_uniform_and_linear_layers_xavier_uniform(name: str) -> None:
    for layer in build(name, (3, 32, 32), 10).modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            out, fan = len(layer.weight), layer.weight[0].numel()
            bound = math.sqrt(6 / (fan if isinstance(layer, nn.Conv2d) else fan + out))
            assert layer.weight.abs().max() <= bound * 1.0001
            assert_std(layer.weight, bound / math.sqrt(3))


def assert_std(weight: torch.Tensor, expected: float) -> None:
    assert float(weight.detach().std()) == pytest.approx(expected, rel=4 / math.sqrt(weight.numel()))


def test_lenet5_begins_with_a_normal_cut_at_two_sigmas() -> None:
    model = build("lenet5", (1, 28, 28), 10)
    weights = torch.cat([m.weight.flatten() for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)])
    assert 0.19 < weights.abs().max() <= 0.2
    # A standard normal cut at two sigmas has the standard deviation 0.8796.
    assert float(weights.detach().std()) == pytest.approx(0.08796, rel=0.01)


def test_resnet50_strides_in_its_3x3_convolutions_and_begins_kaiming_normal_fan_out() -> None:
    model = build("resnet50", (3, 64, 64), 10)
    strided = [m.kernel_size[0] for m in model.modules() if isinstance(m, nn.Conv2d) and m.stride[0] == 2]
    assert strided == [7] + [3, 1] * 3
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            assert_std(layer.weight, math.sqrt(2 / (layer.kernel_size[0] ** 2 * layer.out_channels)))


@in_turn("name, shape", [("cnn4", (1, 28, 28)), ("cnn8:width=0.25", (3, 32, 32))])
def test_pooling_before_the_relu_is_pooling_after_it(name, shape):
    """Bit for bit, values and gradients: it is only cheaper."""
    ours = build(name, shape, 10)
    layers = list(ours)
    for place in (pools := [place for place, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]):
        layers[place : place + 2] = layers[place + 1], layers[place]
    assert {type(layers[place]) for place in pools} == {nn.ReLU}
    inputs, found = torch.randn(16, *shape), []
    for model in (ours, nn.Sequential(*layers)):
        model.zero_grad()
        scores = model.train()(inputs)
        scores.square().sum().backward()
        found.append([scores.detach(), *(part.grad.clone() for part in model.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@in_turn("shape", [(2, 3, 28, 28), (2, 3, 9, 12), (1, 1, 2, 3)])
def test_average_pool_is_torchs(shape):
    images = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    ours, torchs = AveragePool()(images), nn.AvgPool2d(2)(images)
    torch.testing.assert_close(ours, torchs)
    weights = torch.randn(ours.shape, dtype=torch.float64)
    gradients = [torch.autograd.grad((pooled * weights).sum(), images)[0] for pooled in (ours, torchs)]
    torch.testing.assert_close(*gradients)


SHAPE = (3, 16, 16)


def weights(seed: int | None) -> torch.Tensor:
    return nn.utils.parameters_to_vector(build("cnn4", SHAPE, seed=seed).parameters())


def test_the_seed_alone_decides_the_weights() -> None:
    """It leaves the global random state alone, which decides where there is no seed."""
    first = weights(7)
    torch.rand(3)
    before = torch.get_rng_state()
    assert torch.equal(weights(7), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(weights(8), first)
    torch.manual_seed(5)
    first = weights(None)
    torch.manual_seed(5)
    assert torch.equal(weights(None), first)
    assert not torch.equal(weights(None), first)


@pytest.fixture
def own_models(tmp_path, monkeypatch):
    (tmp_path / "own_model_of_a_test.py").write_text(
        "import math\nfrom torch import nn\nnumber = 4\n"
        "def build(input_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))\n"
        "def not_a_model(input_shape, num_classes): return 3\n"
        "def of_a_number(num_classes=10): return nn.Linear(4, num_classes)\n"
        "class Net(nn.Module):\n    def __init__(self): super().__init__()\n"
        "def passes_on(**options): return of_a_number(**options)\n"
        "def goes_wrong(input_shape, num_classes): return nn.Linear('three', num_classes)\n"
    )
    package = tmp_path / "own_package_of_a_test"
    package.mkdir()
    (package / "inner.py").write_text("from own_model_of_a_test import build\n")
    (package / "broken.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@in_turn("name", ["own_model_of_a_test:build", "own_package_of_a_test.inner:build"])
def test_a_function_of_a_module_in_the_current_directory(own_models, name):
    path = list(sys.path)
    model, again = build(name, SHAPE, 4), build(name, SHAPE, 4)
    assert model(torch.zeros(2, *SHAPE)).shape == (2, 4)
    assert torch.equal(model[1].weight, again[1].weight)
    assert sys.path == path


CALLED = "called with (input_shape=(3, 16, 16), num_classes=4)"
FORM = f"must be a function of input_shape and num_classes, {CALLED}; got one"
MINE = "own_model_of_a_test"


@in_turn(
    "name, error, message",
    [
        ("cnn9", ValueError, "model 'cnn9' does not exist: did you mean 'cnn8'?"),
        ("transformer", ValueError, "model 'transformer' does not exist: known are cnn4, cnn8, "),
        ("cnn9:width=2", ValueError, "got 'cnn9:width=2'; of ours, did you mean 'cnn8'?"),
        ("no.such:thing", ValueError, "got 'no.such:thing', and there is no module 'no'"),
        ("own_package_of_a_test.nothing:build", ValueError, "there is no module 'own_package_of_a_test.nothing'"),
        (":build", ValueError, "module:name of a function of input_shape and num_classes, "),
        (f"{MINE}:nothing", ValueError, "and the module has no 'nothing'"),
        (f"{MINE}:number", ValueError, "must name a function"),
        ("cnn8:widht=2", ValueError, "options of cnn8 must be among: width=..., norm=..., bias=...; got 'widht=2'"),
        ("cnn8:width=0.5,width=1", ValueError, "option width of cnn8 must be given once; got 'width=0.5,width=1'"),
        ("lenet5:width=2", ValueError, "options of lenet5 must be among: none; got 'width=2'"),
        ("cnn8:width=0", ValueError, "width must be a number in (0, 8]; got 0.0"),
        ("mlp:hidden=16-0", ValueError, "hidden must be a whole number in [1, inf); got 0.0"),
        ("mlp:norm=layer", ValueError, "norm must be one of 'batch', 'none'; got 'layer'"),
        ("linear:bias=no", ValueError, "bias must be one of 'true', 'false'; got 'no'"),
        ("cnn4:bias=false,norm=batch", ValueError, "bias=false needs norm=none"),
        ("mlp:norm=batch,bias=false", ValueError, "bias=false needs norm=none"),
        (f"{MINE}:not_a_model", TypeError, "must return a torch.nn.Module; got int"),
        ("cnn8:width=wide", TypeError, "width must be a number in (0, 8]; got 'wide'"),
        (3, TypeError, "model must be a name such as 'cnn8', or module:function; got 3"),
        (f"{MINE}:of_a_number", TypeError, f"{FORM} of (num_classes=10)"),
        (f"{MINE}:Net", TypeError, f"{FORM} of ()"),
        (f"{MINE}:passes_on", TypeError, f"{FORM} that passes them on (of_a_number() got an unexpected keyword"),
        # Errors inside the user's own code pass through.
        (f"{MINE}:goes_wrong", TypeError, "empty"),
        ("own_package_of_a_test.broken:build", ModuleNotFoundError, "no_such_module_anywhere"),
    ],
)
def test_names_that_are_refused(own_models, name, error, message):
    with pytest.raises(error, match=re.escape(message)):
        build(name, SHAPE, 4, None)


@in_turn(
    "name, shape, classes, message",
    [
        ("cnn4", (1, 3, 8), 4, "input_shape of cnn4 must be (channels, height, width) with sides of at least 4; got"),
        ("cnn8", (3, 8, 7), 4, "sides of at least 8; got"),
        ("lenet5", (1, 8, 8), 4, "sides of at least 12; got"),
        ("resnet34", (30,), 4, "sides of at least 1; got"),
        ("mlp", (), 4, "input_shape must hold whole numbers of at least 1; got ()"),
        ("mlp", (4,), 1, "num_classes must be a whole number in [2, inf); got 1"),
    ],
)
def test_inputs_and_classes_that_a_model_cannot_take(name, shape, classes, message):
    with refused(ValueError, message):
        build(name, shape, classes, None)


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
