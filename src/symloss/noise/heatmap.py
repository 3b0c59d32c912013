"""A transition matrix as a picture: cells with numbers for few classes, a bitmap for many."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from symloss.noise.transition import shares

NUMBERS, CELLS = 12, 24
"""The most classes whose cells show numbers, and the most classes that are drawn cell by cell."""
SIZE = 30  # the width and height of a cell, in pixels
TURNED = 28 + 6.4 * 3  # If names need more room than this, the names above the columns are turned by 90 degrees
INK = (58, 124, 196)
"""The colour of the bitmap. It is visible on a light and on a dark page."""


@dataclass(frozen=True)
class Transitions:
    """Counts over all draws of a noise. ``counts[i, j]`` examples of the true class i have the label j."""

    class_names: tuple[str, ...]
    counts: NDArray[np.int64]
    draws: int

    @property
    def rates(self) -> NDArray[np.float64]:
        """The share of each label in each true class, shape (C, C). A class without examples has a row of zeros."""
        return shares(self.counts)

    @property
    def rate(self) -> float:
        """The share of all labels that are wrong."""
        return 1 - float(np.trace(self.counts)) / max(int(self.counts.sum()), 1)

    def largest(self, most: int) -> list[tuple[str, str, float]]:
        """Return the most frequent wrong labels: true class, label and rate."""
        rates = self.rates.copy()
        np.fill_diagonal(rates, 0)
        order = np.argsort(-rates, axis=None, kind="stable")[:most]
        pairs = [divmod(int(index), len(self.class_names)) for index in order]
        return [(self.class_names[i], self.class_names[j], float(rates[i, j])) for i, j in pairs if rates[i, j] > 0]


class Words(NamedTuple):
    """What a heat map is of: the title of its rows, of its columns, and of all, and what its labels are said to be."""

    rows: str
    columns: str
    title: str
    verdict: str


NOISE = Words("true class", "label", "Transition matrix", "are wrong")


def heat_map(transitions: Transitions, words: Words = NOISE) -> str:
    """Return a heat map as HTML. Rows are true classes, columns are labels, unless other words say otherwise.

    The shade is the square root of the rate, so that small rates are visible too.
    """
    return _cells(transitions, words) if len(transitions.class_names) <= CELLS else _bitmap(transitions, words)


def _cells(transitions: Transitions, words: Words) -> str:
    count = len(transitions.class_names)
    # Room for the names of the classes and the title of the axis, in pixels.
    edge = 28 + round(6.4 * max(len(_shortened(name)) for name in transitions.class_names))
    size = edge + count * SIZE + 2
    middle = edge + count * SIZE / 2
    parts = [
        f'<svg class="heat" viewBox="0 0 {size} {size}" style="max-width:{1.4 * size:.0f}px" role="img" '
        f'aria-label="{escape(_description(transitions, words))}">'
        f'<text x="{middle}" y="11" class="mid axis">{escape(words.columns)}</text>'
        f'<text transform="translate(11 {middle}) rotate(-90)" class="mid axis">{escape(words.rows)}</text>'
    ]
    for i, name in enumerate(transitions.class_names):
        parts += _names(name, edge, edge + i * SIZE + SIZE / 2, turned=edge > TURNED)
    rates = transitions.rates
    parts += [_cell(transitions, i, j, float(rates[i, j]), edge) for i in range(count) for j in range(count)]
    return "".join(parts) + "</svg>"


def _names(name: str, edge: int, middle: float, turned: bool) -> list[str]:
    """Return the name of a class beside its row and above its column."""
    shown = f"<title>{escape(name)}</title>{escape(_shortened(name))}"
    row = f'<text x="{edge - 6}" y="{middle + 4:g}" class="end">{shown}</text>'
    if turned:
        return [row, f'<text transform="translate({middle + 4:g} {edge - 6}) rotate(-90)">{shown}</text>']
    return [row, f'<text x="{middle:g}" y="{edge - 6}" class="mid">{shown}</text>']


def _cell(transitions: Transitions, i: int, j: int, rate: float, edge: int) -> str:
    classes, counts = transitions.class_names, transitions.counts
    description = f"{classes[i]} → {classes[j]}: {100 * rate:.1f} % ({counts[i, j]} of {counts[i].sum()})"
    number = f"{100 * rate:.0f}"
    number = number if len(classes) <= NUMBERS and number != "0" else ""
    place = (edge + j * SIZE, edge + i * SIZE, SIZE, SIZE)
    return shaded_cell(place, rate**0.5, number, description, f' data-row="{i}" data-column="{j}"')


def shaded_cell(place: tuple[int, int, int, int], shade: float, text: str, tip: str, attributes: str = "") -> str:
    """Return a cell of a map as SVG: place (x, y, width and height), shade from 0 to 1, its text and its tip."""
    x, y, width, height = place
    square = f'x="{x + 1}" y="{y + 1}" width="{width - 2}" height="{height - 2}" rx="3"'
    center = f'x="{x + width / 2:g}" y="{y + height / 2 + 4:g}"'
    label = f'<text {center} class="mid{" on" if shade > 0.7 else ""}">{text}</text>' if text else ""
    rects = f'<rect class="under" {square}/><rect {square} fill-opacity="{shade:.2f}"/>'
    return f"<g{attributes}>{rects}{label}<title>{escape(tip)}</title></g>"


def _shortened(name: str) -> str:
    return name if len(name) <= 11 else name[:10] + "…"


def _description(transitions: Transitions, words: Words) -> str:
    count, percent = len(transitions.class_names), 100 * transitions.rate
    return f"{words.title} of {count} classes: {percent:.1f} % of the labels {words.verdict}"


def _bitmap(transitions: Transitions, words: Words) -> str:
    shades = np.rint(255 * np.sqrt(transitions.rates)).astype(np.uint8)
    from PIL import Image  # noqa: PLC0415 (a report of few classes needs no pictures)

    picture = Image.new("RGBA", shades.shape, INK)
    picture.putalpha(Image.fromarray(shades))
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    content = base64.b64encode(file.getvalue()).decode()
    alt = escape(_description(transitions, words))
    return f'<img class="heat pixels" alt="{alt}" src="data:image/png;base64,{content}">'
