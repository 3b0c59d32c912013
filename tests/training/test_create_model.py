"""Models by name: the seed, the user's own, and one sentence for what does not exist."""

import re
import sys

import pytest
import torch
from in_turn import in_turn
from refusals import refused
from torch import nn

from symloss.training.models import create_model

SHAPE = (3, 16, 16)


def weights(seed: int | None) -> torch.Tensor:
    model = create_model("cnn4", input_shape=SHAPE, num_classes=4, seed=seed)
    return nn.utils.parameters_to_vector(model.parameters())


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
    model = create_model(name, input_shape=SHAPE, num_classes=4, seed=1)
    again = create_model(name, input_shape=SHAPE, num_classes=4, seed=1)
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
        ("cnn8:widht=2", ValueError, "options of cnn8 must be among: width=...; got 'widht=2'"),
        ("cnn8:width=0.5,width=1", ValueError, "option width of cnn8 must be given once; got 'width=0.5,width=1'"),
        ("lenet5:width=2", ValueError, "options of lenet5 must be among: none; got 'width=2'"),
        ("cnn8:width=0", ValueError, "width must be a number in (0, 8]; got 0.0"),
        ("mlp:hidden=16-0", ValueError, "hidden must be a whole number in [1, inf); got 0.0"),
        ("mlp:norm=layer", ValueError, "norm must be one of 'batch', 'none'; got 'layer'"),
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
        create_model(name, input_shape=SHAPE, num_classes=4)


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
        create_model(name, input_shape=shape, num_classes=classes)
