"""Models of the package timm, by the names that timm gives them: ``timm:NAME`` or ``timm:NAME:pretrained``."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.models.small_networks import image_shape

PREFIX, PRETRAINED = "timm", "pretrained"


def is_timm(name: str) -> bool:
    """Whether a model is one of timm's.

    >>> is_timm("timm:resnet18"), is_timm("resnet18")
    (True, False)
    """
    return name.partition(":")[0] == PREFIX


def has_pretrained_weights(name: str) -> bool:
    """Whether a model begins with weights that somebody trained before.

    >>> has_pretrained_weights("timm:resnet18:pretrained"), has_pretrained_weights("timm:resnet18")
    (True, False)
    """
    return is_timm(name) and name.endswith(f":{PRETRAINED}")


def without_weights(name: str) -> str:
    """The same model with random weights, for a checkpoint that is loaded into it.

    >>> without_weights("timm:resnet18:pretrained")
    'timm:resnet18'
    """
    return name.removesuffix(f":{PRETRAINED}") if is_timm(name) else name


def timm_model(name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a model of timm for images of this shape.

    Args:
        name: ``timm:NAME``, with ``:pretrained`` for the weights that timm has or downloads.
        input_shape: (channels, height, width).
        classes: the number of classes. The last layer is made for them anew.
    """
    _, _, architecture = without_weights(name).partition(":")
    pretrained = name.endswith(f":{PRETRAINED}")
    if not architecture or ":" in architecture:
        raise ValueError(f"a model of timm must be timm:NAME or timm:NAME:{PRETRAINED}; got {name!r}")
    timm = _timm()
    channels, *sides = image_shape(name, input_shape)
    known = timm.list_models()
    # Other names that timm takes download code or files from elsewhere.
    if architecture not in known:
        close = difflib.get_close_matches(architecture.lower(), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"timm.list_models() has {len(known):,} names"
        raise ValueError(f"timm has no model {architecture!r}; {hint}")
    options: dict[str, Any] = {"num_classes": classes, "in_chans": channels}
    if getattr(timm.get_pretrained_cfg(architecture), "fixed_input_size", False):
        # Some models of timm take one number only.
        options["img_size"] = sides[0] if sides[0] == sides[1] else tuple(sides)
    try:
        model: nn.Module = timm.create_model(architecture, pretrained=pretrained, **options)
    except Exception as error:
        # timm, Hugging Face and the network each raise their own kinds.
        wanted = (
            f"weights that are at hand or can be downloaded, or no :{PRETRAINED}" if pretrained else f"images {sides}"
        )
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"model {name!r} must have {wanted}; got an error of timm ({checks.brief(reason)})") from error
    _try(model, name, (channels, *sides), classes)
    return model


def _try(model: nn.Module, name: str, shape: tuple[int, ...], classes: int) -> None:
    """Raise ValueError unless the model takes images of this shape, cuts nothing off, and scores every class."""
    training = model.training
    try:
        with torch.no_grad():
            scores = model.eval()(torch.zeros(2, *shape))
    except Exception as error:
        # A network may raise anything.
        reason = checks.brief(" ".join(str(error).split()) or type(error).__name__)
        raise ValueError(f"model {name!r} must take images {shape}; got an error of timm ({reason})") from error
    finally:
        model.train(training)
    if not isinstance(scores, Tensor) or scores.shape != (2, classes):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"model {name!r} must turn two images into scores {(2, classes)}; got {got}")
    patch = getattr(getattr(model, "patch_embed", None), "proj", None)
    size = patch.kernel_size if isinstance(patch, nn.Conv2d) and patch.stride == patch.kernel_size else (1, 1)
    if shape[1] % size[0] or shape[2] % size[1]:
        raise ValueError(
            f"model {name!r} must have images that its patches {tuple(size)} divide, or their border is cut off; "
            f"got images {shape}"
        )


def _timm() -> Any:
    try:
        return importlib.import_module(PREFIX)
    except (ImportError, RuntimeError, AttributeError) as error:  # of torchvision, which timm needs and must fit torch
        missing = getattr(error, "name", None) == PREFIX
        reason = "pip install 'symloss[timm]'" if missing else " ".join(str(error).split())
        raise ValueError(f"a model of timm needs the package timm, which cannot be imported: {reason}") from None
