"""Optional packages: which extra of symloss installs each, and the one sentence that says so where one is missing."""

from __future__ import annotations

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
OTHERS = {"matplotlib": "plot", "optuna": "optuna", "ray": "ray", "tensorboard": "tensorboard", "timm": "timm"}
"""The extra of each other package that a part of symloss needs. Adapters need their own library."""


def missing(what: str, package: str, extra: str | None = None) -> str:
    """Return the sentence for a package that is not installed.

    Args:
        what: what needs it.
        package: the name to import.
        extra: the extra of symloss that installs it; by default looked up.

    >>> missing("symloss.RobustClassifier", "sklearn")
    "symloss.RobustClassifier needs scikit-learn, which is not installed: pip install 'symloss[fit]'"
    """
    extra = extra or OTHERS.get(package, "fit")
    return f"{what} needs {FIT.get(package, package)}, which is not installed: pip install 'symloss[{extra}]'"


def is_optional(error: ModuleNotFoundError) -> bool:
    """Return whether an import failed because a package of an extra is not installed."""
    return (error.name or "").partition(".")[0] in (*FIT, *OTHERS)
