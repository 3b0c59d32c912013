"""Read pickles of numbers, text and arrays safely: a pickle that names anything else is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core.multiarray import _reconstruct

# Stand-ins for functions that pickles name. They have no attributes, not even __dict__: a pickle can set those too, and
# on a function they would outlive the reading.


class _Dtype:
    """numpy.dtype; old pickles say 0 and 1 for False and True, of which NumPy warns."""

    __slots__ = ()

    def __call__(self, name: str | bytes, align: object = False, copy: object = False) -> np.dtype[Any]:
        text = name.decode("latin1") if isinstance(name, bytes) else name
        return np.dtype(text, align=bool(align), copy=bool(copy))


class _Encode:
    """codecs.encode: how Python 3 writes bytes in the old protocols."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str = "latin1") -> bytes:
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"the encoding {encoding!r}")
        return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _Dtype(),
    ("_codecs", "encode"): _Encode(),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
}


class _Refused(pickle.UnpicklingError):
    """The pickle names something outside the list."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        return _ALLOWED[module, name]


def unpickle(path: Path) -> Any:
    """Read containers and arrays from a pickle of Python 2 or 3. Text of Python 2 comes as bytes."""
    with path.open("rb") as file:
        try:
            return _Unpickler(file, encoding="bytes").load()
        except _Refused as refused:
            raise ValueError(
                f"{path} must hold only numbers, text and arrays; got {refused}, and none of it was run"
            ) from refused
        except Exception as error:  # a damaged pickle can raise nearly anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"{path} must be a pickle as its publisher wrote it; got a damaged one ({reason})"
            ) from error
