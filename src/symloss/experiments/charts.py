"""Line charts and maps as SVG. The page defines the colours, so that charts fit its light and its dark theme."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape

from symloss.experiments.curves import Curve, Point, SensitivityMap
from symloss.noise.heatmap import shaded_cell

WIDTH, HEIGHT = 560, 310
"""The size in pixels, for two charts side by side on a desktop. A phone shows them smaller, with larger letters."""
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 44  # the margins in pixels
WIDE, HIGH, ROOM_LEFT, ROOM_TOP = 58, 30, 74, 44
"""Width and height of a map's cell, and the room for the names of rows and columns, in pixels."""
COLOURS = 7  # the number of colours that the page defines. Lines beyond them are dashed.


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers from below the smallest value to above the largest.

    >>> ticks(61.2, 93.8)
    [60.0, 70.0, 80.0, 90.0, 100.0]
    >>> ticks(5.0, 5.0)
    [4.0, 4.5, 5.0, 5.5, 6.0]
    """
    if high - low < 1e-9:
        low, high = low - 1, high + 1
    rough = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def extent(curves: Iterable[Curve]) -> tuple[float, float]:
    """Return the smallest and the largest value of all curves, with their bands."""
    points = [point for curve in curves for point in curve.points]
    return min(point.low for point in points), max(point.high for point in points)


Scale = Callable[[float], float]
"""The pixel of a value."""


def _scales(xs: Sequence[float], y_ticks: Sequence[float]) -> tuple[Scale, Scale]:
    """Return the horizontal and the vertical scale of a chart. A few values over many powers are on a log scale."""
    low, high = min(xs), max(xs)
    scaled: Scale = math.log10 if low > 0 and high / low >= 20 and len(xs) <= 20 else float
    wide, left, bottom, top = scaled(high) - scaled(low), scaled(low), y_ticks[0], y_ticks[-1]

    def x(value: float) -> float:
        share = (scaled(value) - left) / wide if wide else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (value - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM), 1)

    return x, y


def line_chart(
    title: str,
    curves: Sequence[Curve],
    *,
    x_title: str,
    x_ticks: Sequence[float],
    y_range: tuple[float, float] | None = None,
    markers: bool = False,
) -> str:
    """Return a chart of lines with bands, as SVG. The title is for screen readers; markers put a dot on each point."""
    y_ticks = ticks(*(y_range or extent(curves)))
    x, y = _scales([point.x for curve in curves for point in curve.points], y_ticks)
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for value in y_ticks:
        parts.append(f'<path class="grid" d="M{LEFT} {y(value)}H{right}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4}" class="end">{value:g}</text>')
    parts += [f'<text x="{x(value)}" y="{floor + 17}" class="mid">{value:g}</text>' for value in x_ticks]
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 4}" class="mid axis">{escape(x_title)}</text>')
    return "".join([*parts, *(_drawn(curve, x, y, markers) for curve in curves), "</svg>"])


def _drawn(curve: Curve, x: Scale, y: Scale, markers: bool) -> str:
    def path(places: Iterable[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{x(each):g} {y(value):g}" for each, value in places)

    points = curve.points
    line = path((point.x, point.mean) for point in points)
    band = ""
    if any(point.high > point.low for point in points):
        upper = [(point.x, point.high) for point in points]
        lower = [(point.x, point.low) for point in reversed(points)]
        band = f'<path class="band" d="{path(upper + lower)}Z"/>'
    dotted = points if markers or len(points) == 1 else ()
    dots = "".join(
        f'<circle cx="{x(point.x)}" cy="{y(point.mean)}" r="3.5"><title>{_tooltip(curve, point)}</title></circle>'
        for point in dotted
    )
    return (
        f'<g class="{colour(curve.series)}" data-series="{curve.series}">{band}<path class="line" d="{line}"/>{dots}'
        f"<title>{_tooltip(curve, points[-1])}</title></g>"
    )


def _tooltip(curve: Curve, point: Point) -> str:
    spread = f" ({point.low:.2f} to {point.high:.2f})" if point.high > point.low else ""
    return f"{escape(curve.title)}: {point.mean:.2f} %{spread} at {point.x:g}"


def colour(series: int) -> str:
    """Return the CSS classes of a line: its colour and its dashes."""
    return f"c{series % COLOURS} d{series // COLOURS % 4}"


def breakable(text: str) -> str:
    """Return a name as HTML in which a browser may break the line between parts, such as the parameters of a loss.

    >>> breakable("gce:q=0.7,<x>")
    'gce:<wbr>q=0.7,<wbr>&lt;x&gt;'
    """
    return re.sub(r"([,:+/_])", r"\1<wbr>", escape(text))


def legend(entries: Sequence[tuple[int, str]]) -> str:
    """Return a legend of buttons that show and hide lines. The entries are pairs of a series and its title."""
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-toggle="{series}"><svg viewBox="0 0 22 8" aria-hidden="true" '
        f'class="{colour(series)}"><path class="line" d="M1 4H21"/></svg><span>{breakable(title)}</span></button>'
        for series, title in entries
    )
    return f'<div class="legend" role="group" aria-label="Lines to show">{buttons}</div>'


def map_picture(shown: SensitivityMap) -> str:
    """Return the map as SVG. The shade goes from the least accuracy of the map to the largest."""
    width, height = ROOM_LEFT + WIDE * len(shown.columns) + 2, ROOM_TOP + HIGH * len(shown.rows) + 2
    parts = [
        f'<svg class="heat" viewBox="0 0 {width} {height}" style="max-width:{1.4 * width:.0f}px" role="img" '
        f'aria-label="{escape(shown.title)}: accuracy in %, from {shown.extent[0]:.1f} to {shown.extent[1]:.1f}">',
        f'<text x="{ROOM_LEFT + WIDE * len(shown.columns) / 2:g}" y="12" class="mid axis">'
        f"{escape(shown.across)}</text>",
        f'<text transform="translate(12 {ROOM_TOP + HIGH * len(shown.rows) / 2:g}) rotate(-90)" class="mid axis">'
        f"{escape(shown.down)}</text>",
    ]
    for j, value in enumerate(shown.columns):
        parts.append(f'<text x="{ROOM_LEFT + WIDE * (j + 0.5):g}" y="{ROOM_TOP - 8}" class="mid">{value:g}</text>')
    for i, value in enumerate(shown.rows):
        parts.append(f'<text x="{ROOM_LEFT - 8}" y="{ROOM_TOP + HIGH * (i + 0.5) + 4:g}" class="end">{value:g}</text>')
        parts += [_square(shown, i, j) for j in range(len(shown.columns))]
    return "".join(parts) + "</svg>"


def _square(shown: SensitivityMap, i: int, j: int) -> str:
    figure = shown.cells[shown.rows[i], shown.columns[j]].last
    assert figure is not None
    low, high = shown.extent
    shade = (figure.mean - low) / (high - low) if high > low else 1.0
    tip = f"{shown.down} {shown.rows[i]:g}, {shown.across} {shown.columns[j]:g}: {figure.text}, n = {figure.n}"
    place = (ROOM_LEFT + WIDE * j, ROOM_TOP + HIGH * i, WIDE, HIGH)
    return shaded_cell(place, shade, f"{figure.mean:.1f}", tip)
