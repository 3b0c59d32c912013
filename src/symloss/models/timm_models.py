"""Models of the package timm, by the names that timm gives them: ``timm:NAME`` or ``timm:NAME:pretrained``."""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

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
    timm = _timm()
    channels, *sides = image_shape(name, input_shape)
    _, architecture, *rest = name.split(":")
    if rest not in ([], [PRETRAINED]):
        raise ValueError(f"a model of timm must be timm:NAME or timm:NAME:{PRETRAINED}; got {name!r}")
    # Other names that timm takes download code or files from elsewhere.
    if architecture not in timm.list_models():
        raise ValueError(f"timm has no model {architecture!r}; {checks.nearest(architecture, timm.list_models())}")
    options: dict[str, Any] = {"num_classes": classes, "in_chans": channels}
    if getattr(timm.get_pretrained_cfg(architecture), "fixed_input_size", False):
        options["img_size"] = tuple(sides)
    try:
        model: nn.Module = timm.create_model(architecture, pretrained=bool(rest), **options)
    except Exception as error:
        # timm, Hugging Face and the network each raise their own kinds.
        wanted = f"weights that are at hand or can be downloaded, or no :{PRETRAINED}" if rest else f"images {sides}"
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"model {name!r} must have {wanted}; got an error of timm ({checks.brief(reason)})") from error
    return model


def _timm() -> Any:
    try:
        return importlib.import_module(PREFIX)
    except (ImportError, RuntimeError, AttributeError) as error:  # of torchvision, which timm needs and must fit torch
        missing = getattr(error, "name", None) == PREFIX
        reason = "pip install 'symloss[timm]'" if missing else " ".join(str(error).split())
        raise ValueError(f"a model of timm needs the package timm, which cannot be imported: {reason}") from None
