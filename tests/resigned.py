"""The folder of a fit whose files somebody has changed, with digests that are right again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from symloss.noise.manifest import with_checksum, write_document


def resign(folder: Path, change: Callable[[dict[str, Any]], object] | None = None) -> None:
    """Make the digests of a fit fit its files, after ``change`` has changed its document."""
    document = json.loads((folder / "model.json").read_text())
    if change is not None:
        change(document)
    for name in document["files"]:
        if (folder / name).is_file():
            document["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    write_document(folder / "model.json", with_checksum(document))
