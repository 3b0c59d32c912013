"""A model by its name: one of ours, one of timm, or ``module:function`` of the user's own."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.own_code import load, own_code, working_folder
from symloss.training.networks import cnn, image_shape, lenet5, mlp, resnet

Builder = Callable[..., nn.Module]
"""Called with ``input_shape`` and ``num_classes``, and for ours with the options."""


Options = Mapping[str, Callable[[str], object]]
"""How to read each option from text."""


@dataclass(frozen=True)
class ModelEntry:
    """A model of this package."""

    build: Builder  # returns the model
    description: str  # one line for ``list_models``
    options: Options = field(default_factory=dict)  # how to read each option from text


def _number(text: str) -> object:
    """Read a text as a number, or leave it. The builder checks what is allowed."""
    try:
        return float(text)
    except ValueError:
        return text


def _flag(text: str) -> bool:
    checks.choice("bias", text, ("true", "false"))
    return text == "true"


_BIAS: Options = {"bias": _flag}
_NORM_BIAS: Options = {"norm": str, **_BIAS}
_CNN: Options = {"width": _number, **_NORM_BIAS}
_CNN4 = partial(cnn, "cnn4", stages=((32,), (64,)), hidden=128)
_CNN8 = partial(cnn, "cnn8", stages=((64, 64), (128, 128), (196, 196)), hidden=256)
_RESNET18 = partial(resnet, "resnet18", stages=(2, 2, 2, 2))
_RESNET34 = partial(resnet, "resnet34", stages=(3, 4, 6, 3), small_images=True)
_RESNET50 = partial(resnet, "resnet50", stages=(3, 4, 6, 3), bottleneck=True)
MODELS = {
    "cnn4": ModelEntry(
        _CNN4, "2 convolutions, 2 linear layers (MNIST); options: width=0.25, norm=batch|none, bias=true|false", _CNN
    ),
    "cnn8": ModelEntry(
        _CNN8, "6 convolutions, 2 linear layers (CIFAR-10); options: width=0.25, norm=batch|none, bias=true|false", _CNN
    ),
    "lenet5": ModelEntry(lenet5, "LeNet-5 with ReLU and average pools (MNIST)"),
    "linear": ModelEntry(
        partial(mlp, hidden=()), "one linear layer, for features of another network; options: bias=true|false", _BIAS
    ),
    "mlp": ModelEntry(
        mlp,
        "linear layers, for tables and small images; options: hidden=256-256, norm=batch|none, bias=true|false",
        {"hidden": lambda text: tuple(map(_number, text.split("-"))), **_NORM_BIAS},
    ),
    "resnet18": ModelEntry(_RESNET18, "residual network for photos of 100 pixels and more; half of resnet34"),
    "resnet34": ModelEntry(_RESNET34, "residual network for small images (CIFAR-100)"),
    "resnet50": ModelEntry(_RESNET50, "residual network for large images (ImageNet, WebVision)"),
}


def list_models() -> dict[str, str]:
    """List the names that ``create_model`` takes, each with a description.

    >>> list(list_models())
    ['cnn4', 'cnn8', 'lenet5', 'linear', 'mlp', 'resnet18', 'resnet34', 'resnet50']
    """
    return {name: entry.description for name, entry in MODELS.items()}


def is_built_in(name: str) -> bool:
    """Return whether a model is one of this package or of timm, so that no user code is imported.

    >>> is_built_in("cnn8:width=0.25"), is_built_in("timm:resnet18"), is_built_in("mine:model")
    (True, True, False)
    """
    return name.partition(":")[0] in (*MODELS, TIMM)


def model_errors(name: str) -> contextlib.AbstractContextManager[None]:
    """Add a note to errors that a user's model raises. Models of this package get none."""
    return contextlib.nullcontext() if is_built_in(name) else own_code(name)


def create_model(name: str, *, input_shape: tuple[int, ...], num_classes: int, seed: int | None = None) -> nn.Module:
    """Build a model by its name.

    Args:
        name: one of ``list_models()``, with options after a colon; ``timm:NAME`` or ``timm:NAME:pretrained``, a model
            of the package timm; or ``module:function`` of your own, a function of ``input_shape`` and ``num_classes``.
        input_shape: the shape of one input: (channels, height, width) or (features,).
        num_classes: the number of classes C. The model turns inputs (N, *input_shape) into scores (N, C).
        seed: initial weights depend on it alone, and the global random state stays as it is. None draws them from the
            global random state.

    >>> create_model("mlp:hidden=16,norm=none", input_shape=(4,), num_classes=3, seed=0)
    Sequential(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): Linear(in_features=4, out_features=16, bias=True)
      (2): ReLU(inplace=True)
      (3): Linear(in_features=16, out_features=3, bias=True)
    )
    """
    shape = tuple(input_shape)
    if not shape or not all(isinstance(size, int) and size >= 1 for size in shape):
        raise ValueError(f"input_shape must hold whole numbers of at least 1; got {checks.brief(input_shape)}")
    num_classes = int(checks.number("num_classes", num_classes, "[2, inf)", whole=True))
    with seeded(seed):
        build, options = _find(name)
        model = _built(name, build, {"input_shape": shape, "num_classes": num_classes} | options)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model {name!r} must return a torch.nn.Module; got {type(model).__name__}")
    return model


def _built(name: str, build: Builder, arguments: dict[str, Any]) -> object:
    """Call the builder. A user's function with other parameters raises an error that names the right ones."""
    if is_built_in(name):
        return build(**arguments)
    call = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    wanted = f"model {name!r} must be a function of input_shape and num_classes, called with ({call})"
    with contextlib.suppress(ValueError):  # some functions that are not written in Python have no signature
        given = inspect.signature(build)
        try:
            given.bind(**arguments)
        except TypeError:
            raise TypeError(f"{wanted}; got one of {given}") from None
    try:
        with working_folder(), own_code(name):
            return build(**arguments)
    except TypeError as error:
        # The error comes from inside a function that takes any arguments, as those of torchvision do.
        if not any(f"unexpected keyword argument '{key}'" in str(error) for key in arguments):
            raise
        raise TypeError(f"{wanted}; got one that passes them on ({error})") from error


@contextlib.contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Draw everything random inside from the seed, and leave the global random state alone; None changes nothing."""
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:  # torch.manual_seed would seed every GPU as well
            torch.default_generator.manual_seed(int(checks.number("seed", seed, "[0, inf)", whole=True)))
        yield


def _find(name: str) -> tuple[Builder, dict[str, Any]]:
    if not isinstance(name, str):
        raise TypeError(f"model must be a name such as 'cnn8', or module:function; got {checks.brief(name)}")
    head, colon, rest = name.partition(":")
    if head == TIMM:
        return partial(timm_model, name), {}
    if head in MODELS:
        return MODELS[head].build, _options(head, rest)
    if not colon:
        raise ValueError(f"model {name!r} does not exist: {checks.nearest(name, MODELS)}")
    ours = f"; of ours, {checks.nearest(head, MODELS)}"
    build = load(name, "model", "a function of input_shape and num_classes", ours)
    if not callable(build):
        raise ValueError(f"model {name!r} must name a function; got {type(build).__name__}")
    return build, {}


def _options(model: str, text: str) -> dict[str, Any]:
    known = MODELS[model].options
    values: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if not equals or key not in known:
            raise ValueError(
                f"options of {model} must be among: {', '.join(f'{k}=...' for k in known) or 'none'}; got {item!r}"
            )
        if key in values:
            raise ValueError(f"option {key} of {model} must be given once; got {text!r}")
        values[key] = known[key](value)
    return values


TIMM, PRETRAINED = "timm", "pretrained"


def has_pretrained_weights(name: str) -> bool:
    """Return whether a model starts from pretrained weights.

    >>> has_pretrained_weights("timm:resnet18:pretrained"), has_pretrained_weights("timm:resnet18")
    (True, False)
    """
    return without_weights(name) != name


def without_weights(name: str) -> str:
    """Name the same model with random weights, for a checkpoint that is loaded into it.

    >>> without_weights("timm:resnet18:pretrained")
    'timm:resnet18'
    """
    return name.removesuffix(f":{PRETRAINED}") if name.startswith(f"{TIMM}:") else name


def timm_model(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build a timm model for images (channels, height, width). The last layer is made for the classes anew."""
    _, _, architecture = without_weights(name).partition(":")
    pretrained = has_pretrained_weights(name)
    if not architecture or ":" in architecture:
        raise ValueError(f"a model of timm must be timm:NAME or timm:NAME:{PRETRAINED}; got {name!r}")
    try:
        timm: Any = importlib.import_module(TIMM)
    except (ImportError, RuntimeError, AttributeError) as error:  # of torchvision, which timm needs and must fit torch
        missing = getattr(error, "name", None) == TIMM
        reason = "pip install 'symloss[timm]'" if missing else " ".join(str(error).split())
        raise ValueError(f"a model of timm needs the package timm, which cannot be imported: {reason}") from None
    channels, *sides = image_shape(name, input_shape)
    known = timm.list_models()
    # Other names that timm takes download code or files from elsewhere.
    if architecture not in known:
        close = difflib.get_close_matches(architecture.lower(), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"timm.list_models() has {len(known):,} names"
        raise ValueError(f"timm has no model {architecture!r}; {hint}")
    options: dict[str, Any] = {"num_classes": num_classes, "in_chans": channels}
    if getattr(timm.get_pretrained_cfg(architecture), "fixed_input_size", False):
        # Some models of timm take one number only.
        options["img_size"] = sides[0] if sides[0] == sides[1] else tuple(sides)
    try:
        model: nn.Module = timm.create_model(architecture, pretrained=pretrained, **options)
    except Exception as error:
        # timm, Hugging Face and the network each raise their own kinds.
        weights = f"weights that are at hand or can be downloaded, or no :{PRETRAINED}"
        wanted = weights if pretrained else f"images {sides}"
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"model {name!r} must have {wanted}; got an error of timm ({checks.brief(reason)})") from error
    training, shape = model.training, (channels, *sides)
    require_scores_of_two(f"model {name!r}", model.eval(), shape, num_classes)
    model.train(training)
    patch = getattr(getattr(model, "patch_embed", None), "proj", None)
    size = patch.kernel_size if isinstance(patch, nn.Conv2d) and patch.stride == patch.kernel_size else (1, 1)
    if sides[0] % size[0] or sides[1] % size[1]:
        raise ValueError(
            f"model {name!r} must have images that its patches {tuple(size)} divide, or their border is cut off; "
            f"got images {shape}"
        )
    return model


@torch.no_grad()
def require_scores_of_two(what: str, net: nn.Module, input_shape: tuple[int, ...], num_classes: int) -> None:
    """Raise ValueError unless a network turns two inputs of this shape into scores of every class."""
    inputs, wanted = torch.zeros(2, *input_shape), (2, num_classes)
    try:
        scores = net(inputs)
    except Exception as error:
        # A network may raise anything.
        reason = checks.brief(" ".join(str(error).split()) or type(error).__name__)
        raise ValueError(f"{what} must take inputs {tuple(inputs.shape)}; got an error ({reason})") from error
    if not isinstance(scores, Tensor) or scores.shape != wanted:
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"{what} must turn inputs {tuple(inputs.shape)} into scores {wanted}; got {got}")
