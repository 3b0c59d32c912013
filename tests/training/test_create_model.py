"""Models by name: the seed, the user's own, and one sentence for what does not exist."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from refusals import refused
from torch import nn

from symloss.training.models import create_model, list_models

SHAPE = (3, 16, 16)


@pytest.mark.parametrize("name", list_models())
def test_every_listed_model_can_be_made_and_is_described_in_one_line(name: str) -> None:
    assert isinstance(create_model(name, input_shape=SHAPE, num_classes=4, seed=0), nn.Module)
    assert list_models()[name]
    assert "\n" not in list_models()[name]


def weights(seed: int | None) -> torch.Tensor:
    model = create_model("cnn4", input_shape=SHAPE, num_classes=4, seed=seed)
    return nn.utils.parameters_to_vector(model.parameters())


def test_the_seed_alone_decides_the_weights() -> None:
    first = weights(7)
    torch.rand(3)
    assert torch.equal(weights(7), first)
    assert not torch.equal(weights(8), first)


def test_the_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    weights(7)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_the_global_random_state_decides() -> None:
    torch.manual_seed(5)
    first = weights(None)
    torch.manual_seed(5)
    assert torch.equal(weights(None), first)
    assert not torch.equal(weights(None), first)


@pytest.fixture
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_model_of_a_test.py").write_text(
        "import math\n"
        "from torch import nn\n"
        "def build(input_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))\n"
        "def not_a_model(input_shape, num_classes):\n"
        "    return 3\n"
        "number = 4\n"
        "def of_a_number(num_classes=10):\n"
        "    return nn.Linear(4, num_classes)\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "def passes_on(**options):\n"
        "    return of_a_number(**options)\n"
        "def goes_wrong(input_shape, num_classes):\n"
        "    return nn.Linear('three', num_classes)\n"
    )
    package = tmp_path / "own_package_of_a_test"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text("from own_model_of_a_test import build\n")
    (package / "broken.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["own_model_of_a_test:build", "own_package_of_a_test.inner:build"])
def test_a_function_of_a_module_in_the_current_directory(own_models: Path, name: str) -> None:
    path = list(sys.path)
    model = create_model(name, input_shape=SHAPE, num_classes=4, seed=1)
    again = create_model(name, input_shape=SHAPE, num_classes=4, seed=1)
    assert model(torch.zeros(2, *SHAPE)).shape == (2, 4)
    assert torch.equal(model[1].weight, again[1].weight)
    assert sys.path == path


def test_an_error_inside_the_users_module_passes_through(own_models: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        create_model("own_package_of_a_test.broken:build", input_shape=SHAPE, num_classes=4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cnn9", r"model 'cnn9' does not exist: did you mean 'cnn8'\?"),
        ("transformer", "model 'transformer' does not exist: known are cnn4, cnn8, "),
        ("cnn9:width=2", r"got 'cnn9:width=2'; of ours, did you mean 'cnn8'\?"),
        ("no.such:thing", "got 'no.such:thing', and there is no module 'no'"),
        ("own_package_of_a_test.nothing:build", "there is no module 'own_package_of_a_test.nothing'"),
        (":build", "module:name of a function of input_shape and num_classes, .*; got ':build'"),
        ("own_model_of_a_test:nothing", "and the module has no 'nothing'"),
        ("own_model_of_a_test:number", "must name a function"),
        ("cnn8:widht=2", r"options of cnn8 must be among: width=\.\.\.; got 'widht=2'"),
        ("cnn8:width=0.5,width=1", "option width of cnn8 must be given once; got 'width=0.5,width=1'"),
        ("lenet5:width=2", "options of lenet5 must be among: none; got 'width=2'"),
        ("cnn8:width=0", r"width must be a number in \(0, 8\]; got 0.0"),
        ("mlp:hidden=16-0", r"hidden must be a whole number in \[1, inf\); got 0.0"),
        ("mlp:norm=layer", "norm must be one of 'batch', 'none'; got 'layer'"),
    ],
)
def test_names_that_are_refused(own_models: Path, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_model(name, input_shape=SHAPE, num_classes=4)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        ("of_a_number", "got one of (num_classes=10)"),
        ("Net", "got one of ()"),
        ("passes_on", "got one that passes them on (of_a_number() got an unexpected keyword argument 'input_shape')"),
    ],
)
def test_a_function_of_another_form_is_told_which_one_is_wanted(own_models: Path, function: str, given: str) -> None:
    name = f"own_model_of_a_test:{function}"
    wanted = "must be a function of input_shape and num_classes", f"input_shape={SHAPE}, num_classes=4"
    with refused(TypeError, repr(name), *wanted, given):
        create_model(name, input_shape=SHAPE, num_classes=4)


def test_a_mistake_inside_the_users_function_is_not_taken_for_another_form(own_models: Path) -> None:
    with pytest.raises(TypeError, match="empty"):
        create_model("own_model_of_a_test:goes_wrong", input_shape=SHAPE, num_classes=4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_model_of_a_test:not_a_model", "must return a torch.nn.Module; got int"),
        ("cnn8:width=wide", r"width must be a number in \(0, 8\]; got 'wide'"),
        (3, "model must be a name such as 'cnn8', or module:function; got 3"),
    ],
)
def test_types_that_are_refused(own_models: Path, name: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        create_model(name, input_shape=SHAPE, num_classes=4)


@pytest.mark.parametrize(
    ("name", "shape", "smallest"),
    [("cnn4", (1, 3, 8), 4), ("cnn8", (3, 8, 7), 8), ("lenet5", (1, 8, 8), 12), ("resnet34", (30,), 1)],
)
def test_inputs_that_a_model_cannot_take(name: str, shape: tuple[int, ...], smallest: int) -> None:
    with pytest.raises(ValueError, match=f"input_shape of {name} must be .* sides of at least {smallest}; got"):
        create_model(name, input_shape=shape, num_classes=4)


def test_shapes_and_classes_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match=r"input_shape must hold whole numbers of at least 1; got \(\)"):
        create_model("mlp", input_shape=(), num_classes=4)
    with pytest.raises(ValueError, match=r"num_classes must be a whole number in \[2, inf\); got 1"):
        create_model("mlp", input_shape=(4,), num_classes=1)
