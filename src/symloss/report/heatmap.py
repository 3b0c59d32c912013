"""A transition matrix as a picture: cells with numbers for few classes, a bitmap for many."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape

import numpy as np

from symloss.report.transitions import Transitions

NUMBERS, CELLS = 12, 24
"""Up to so many classes have their numbers in the cells, and are drawn cell by cell."""
SIZE = 30
TURNED = 28 + 6.4 * 3
"""Names that need more room than this stand on end above their columns."""
INK = (58, 124, 196)
"""Of the bitmap; it is seen on light and on dark."""


def heat_map(found: Transitions) -> str:
    """Rows are true classes, columns labels; the shade is the square root of the rate, so that little is seen too."""
    return _cells(found) if len(found.classes) <= CELLS else _bitmap(found)


def _cells(found: Transitions) -> str:
    count = len(found.classes)
    edge = _edge(found)
    size = edge + count * SIZE + 2
    middle = edge + count * SIZE / 2
    parts = [
        f'<svg class="heat" viewBox="0 0 {size} {size}" style="max-width:{1.4 * size:.0f}px" role="img" '
        f'aria-label="{escape(_said(found))}"><text x="{middle}" y="11" class="mid axis">label</text>'
        f'<text transform="translate(11 {middle}) rotate(-90)" class="mid axis">true class</text>'
    ]
    for i, name in enumerate(found.classes):
        parts += _names(name, edge, edge + i * SIZE + SIZE / 2, turned=edge > TURNED)
    rates = found.rates
    parts += [_cell(found, i, j, float(rates[i, j]), edge) for i in range(count) for j in range(count)]
    return "".join(parts) + "</svg>"


def _edge(found: Transitions) -> int:
    """Room for the names of the classes, and for the title of the axis."""
    return 28 + round(6.4 * max(len(_shortened(name)) for name in found.classes))


def _names(name: str, edge: int, middle: float, turned: bool) -> list[str]:
    """Of a row and of a column."""
    shown = f"<title>{escape(name)}</title>{escape(_shortened(name))}"
    row = f'<text x="{edge - 6}" y="{middle + 4:g}" class="end">{shown}</text>'
    if turned:
        return [row, f'<text transform="translate({middle + 4:g} {edge - 6}) rotate(-90)">{shown}</text>']
    return [row, f'<text x="{middle:g}" y="{edge - 6}" class="mid">{shown}</text>']


def _cell(found: Transitions, i: int, j: int, rate: float, edge: int) -> str:
    x, y = edge + j * SIZE, edge + i * SIZE
    shade = rate**0.5
    said = (
        f"{found.classes[i]} → {found.classes[j]}: {100 * rate:.1f} % ({found.counts[i, j]} of {found.counts[i].sum()})"
    )
    number = f"{100 * rate:.0f}"
    shown = len(found.classes) <= NUMBERS and number != "0"
    place = f'x="{x + SIZE / 2:g}" y="{y + SIZE / 2 + 4:g}"'
    text = f'<text {place} class="mid{" on" if shade > 0.7 else ""}">{number}</text>' if shown else ""
    square = f'x="{x + 1}" y="{y + 1}" width="{SIZE - 2}" height="{SIZE - 2}" rx="3"'
    rects = f'<rect class="under" {square}/><rect {square} fill-opacity="{shade:.2f}"/>'
    return f"<g>{rects}{text}<title>{escape(said)}</title></g>"


def _shortened(name: str) -> str:
    return name if len(name) <= 11 else name[:10] + "…"


def _said(found: Transitions) -> str:
    return f"Transition matrix of {len(found.classes)} classes: {100 * found.rate:.1f} % of the labels are wrong"


def _bitmap(found: Transitions) -> str:
    alpha = np.rint(255 * np.sqrt(found.rates)).astype(np.uint8)
    pixels = np.concatenate(
        [np.broadcast_to(np.array(INK, dtype=np.uint8), (*alpha.shape, 3)), alpha[..., None]], axis=-1
    )
    picture = base64.b64encode(_png(pixels)).decode()
    return f'<img class="heat pixels" alt="{escape(_said(found))}" src="data:image/png;base64,{picture}">'


def _png(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """Of red, green, blue and alpha, in the plainest form of the format."""
    height, width = pixels.shape[:2]
    lines = b"".join(b"\x00" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
