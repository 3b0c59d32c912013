"""A pickle that does harm when a plain unpickler reads it."""

import os
from pathlib import Path


class Bomb:
    """Unpickled by a plain unpickler, it makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.trace,)
