"""The page of the atlas: the data as JSON in ``body.html``, drawn by JavaScript."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from symloss.atlas.data import atlas_data, drawn_losses
from symloss.html_page import html_page, packaged
from symloss.writing import clear_write_errors, write_whole

SCRIPTS = ("decode", "drawing", "line_chart", "simplex_map", "threshold_chart", "state", "controls", "main")


def write_atlas(path: Path, losses: Iterable[str] | None = None, done: Callable[[int], None] | None = None) -> None:
    """Write the atlas: one HTML file with every loss as curves and maps. It needs no network.

    Args:
        path: the file, written whole or not at all.
        losses: losses as :func:`symloss.create_loss` takes them, such as "ce", "symmetrize(focal:gamma=2)" or your own
            "module:name"; None for the catalogue.
        done: called after each loss with the number of finished losses.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atlas(Path(folder) / "atlas.html", losses=["ce", "mae"])
    ...     (Path(folder) / "atlas.html").stat().st_size < 5_000_000
    True
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"the atlas must be written to a file such as atlas.html; got the folder {str(path)!r}")
    records = drawn_losses(losses)
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, render(atlas_data(records, done)).encode())


def render(data: dict[str, Any]) -> str:
    """Return the page as the text of an HTML file, from the data of :func:`symloss.atlas.data.atlas_data`."""
    # No text in the data can end its element.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    body = f'{packaged("atlas/body.html")}<script type="application/json" id="data">{text}</script>'
    script = "".join(packaged(f"atlas/{name}.js") for name in SCRIPTS)
    return html_page("symloss atlas of losses", body, packaged("atlas/atlas.css"), script)
