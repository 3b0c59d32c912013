"""The page of the atlas: its body in HTML, the data as JSON, the drawing in JavaScript."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from symloss import __version__
from symloss.atlas.curves import HEIGHT
from symloss.atlas.data import atlas_data, known_losses
from symloss.html_page import html_page
from symloss.writing import clear_write_errors, write_whole

SCRIPTS = (
    "decode.js", "drawing.js", "line_chart.js", "simplex_map.js", "threshold_chart.js", "state.js",
    "controls.js", "main.js",
)  # fmt: skip


def write_atlas(path: Path, losses: Iterable[str] | None = None, done: Callable[[int], None] | None = None) -> None:
    """Write the atlas: one HTML file with every loss as curves and maps. It needs no network.

    Args:
        path: the file. It is written wholly or not at all.
        losses: names of the catalogue; None for all.
        done: called after each loss with the number of losses that are done.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atlas(Path(folder) / "atlas.html", losses=["ce", "mae"])
    ...     (Path(folder) / "atlas.html").stat().st_size < 5_000_000
    True
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"the atlas must be written to a file such as atlas.html; got the folder {str(path)!r}")
    records = known_losses(losses)
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    data = atlas_data(records, done)
    write_whole(path, render(data).encode())


def render(data: dict[str, Any]) -> str:
    """The page as the text of an HTML file, from the data of :func:`symloss.atlas.data.atlas_data`."""
    body, script = f"{page_body()}\n{_json(data)}", "".join(map(_asset, SCRIPTS))
    footer = f"Written by symloss {__version__}."
    return html_page("symloss atlas of losses", body, _asset("atlas.css"), script, footer)


def _json(data: dict[str, Any]) -> str:
    """The data inside the page. No text in it can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="data">{text}</script>'


def _asset(name: str) -> str:
    return resources.files("symloss.atlas").joinpath(name).read_text()


INTRODUCTION = """<header>
<p class="eyebrow">symloss atlas</p>
<h1>What a loss does, and what wrong labels do to it</h1>
<p class="lead">A loss has a value at every label. If these values add up to the same number whatever the model
says, the loss is <em>symmetric</em>, and symmetric label noise does not move its minimum. Choose two losses and see
both.</p>
<noscript><p class="notice">This page draws with JavaScript, which is switched off here. Switch it on to see the
curves.</p></noscript>
<p class="notice" id="notice" role="status" hidden></p>
</header>"""

CHOICE = """<fieldset class="choice {side}" id="{side}">
<legend><span class="swatch {side}" aria-hidden="true"></span>{title}</legend>
<select aria-label="{title}"></select>
<p class="formula"></p>
<ul class="facts" aria-label="Facts of the {lower}"></ul>
<div class="sliders"></div>
<p class="small note"></p>
</fieldset>"""

COMMON = """<fieldset class="choice common">
<legend>Both</legend>
<div class="slider"><label for="classes">Classes C</label><output for="classes"></output>
<input type="range" id="classes" min="0" step="1"></div>
<div class="slider"><label for="probe">Probability p of the label</label><output for="probe"></output>
<input type="range" id="probe" step="0.001"></div>
<label class="check"><input type="checkbox" id="scaled"> Same slope at equal scores</label>
<p class="small" id="scaled-note">Divides each loss by its slope at equal scores, as <code>scale="ce"</code> does,
and counts values from there.</p>
<p class="small"><button type="button" id="swap">Swap the two losses</button></p>
</fieldset>"""

CURVES = """<section aria-labelledby="curves-title"><h2 id="curves-title">Along a line</h2>
<p class="caption">The label has probability p, and the other classes share the rest equally. The margin is the
score of the label less that of the others. The sum over labels is counted from equal scores and divided by the
range of the value, so that losses of every size can be compared: a symmetric loss has a flat line. Point at a
chart, or move the slider for p, to read the numbers.</p>
<div class="grid">{figures}</div>
<div class="scroll" tabindex="0" role="region" aria-label="The losses at p"><table id="readout">
<thead><tr><th scope="col">at p = <span></span></th>
<th scope="col">value</th><th scope="col">gradient weight</th><th scope="col">sum over labels</th>
<th scope="col">the sum varies by</th></tr></thead><tbody></tbody></table></div></section>"""

FIGURE = (
    '<figure><figcaption><b>{title}</b> {against}</figcaption>'
    '<svg class="chart" role="img" id="{id}"></svg></figure>'
)  # fmt: skip

SIMPLEX = """<section aria-labelledby="simplex-title"><h2 id="simplex-title">On the triangle of three classes</h2>
<p class="caption">Each point of the triangle is a p of three classes; at a corner one class has it all. The first
map shows the value for the label, the second the sum over the three labels in the same span of colours: one flat
colour means symmetric. Arrow keys or the pointer move the point. C is 3 here.</p>
<div class="radios" role="radiogroup" aria-label="Label of the maps">Label
{labels}</div>
<div class="grid maps">{maps}</div></section>"""

MAP = (
    '<figure class="{side}"><figcaption><b></b></figcaption><div class="map" id="{id}" tabindex="0" role="application">'
    '<canvas width="320" height="277"></canvas><svg aria-hidden="true" viewBox="-20 -22 360 325"></svg></div>'
    '<div class="scale" aria-hidden="true"><span></span><canvas width="256" height="1"></canvas><span></span></div>'
    '<p class="small reading"></p></figure>'
)  # fmt: skip

NOISE = """<section aria-labelledby="noise-title"><h2 id="noise-title">What wrong labels do to the minimum</h2>
<p class="caption">Ten classes, and one number to learn. The examples on this line belong to two of the classes: A
on the left, three times as frequent, and B on the right. The scores are {height:g} tanh(θ &minus; x) for A,
{height:g} tanh(x &minus; θ) for B and &minus;{height:g} for the other eight, so θ is the threshold between A and B.
A wrong label is any of the nine others. Each curve is the expected loss at one rate of noise, and its dot is the
minimum. Nothing is sampled.</p>
<div class="row"><div class="slider"><label for="noise">Wrong labels</label><output for="noise"></output>
<input type="range" id="noise" min="0" step="1"></div>
<label class="check"><input type="checkbox" id="stretched"> Stretch every curve to the same height</label></div>
<div class="grid">{figures}</div>
<p class="caption after">For a symmetric loss the risk at every rate is the clean risk, made flatter and shifted:
stretched, all curves are one. That holds below 90 % here, which is 1 &minus; 1/C. The reverse is not a theorem:
some losses that are not symmetric hardly move on this problem. Only θ can move. A model that may also shrink its
scores answers noise by doubt as well.</p></section>"""

NOISE_FIGURE = (
    '<figure class="{side}"><figcaption><b></b> <span></span></figcaption>'
    '<svg class="chart" role="img" id="noise-{side}"></svg>'
    '<p class="small reading" aria-live="polite"></p></figure>'
)  # fmt: skip

ABOUT = """<section aria-labelledby="about-title"><h2 id="about-title">How this page was made</h2>
<ul class="about"><li>Every number was computed by symloss in float64, gradients by autograd. The page interpolates
between the points
of a grid and draws; it knows no formula.</li>
<li>Losses of raw scores: the option <code>normalize</code> is off, also where a loss has it on by default. The
scores are log p, which matters to the two cosine losses alone.</li>
<li>Numbers are stored in 16 bits. The error of a stored number is at most 1/131,070 of the range of its curve or
map.</li>
<li>The gradient weight is &minus;∂L/∂z of the label&rsquo;s score. For cross-entropy it is 1 &minus; p.</li>
<li>The address of this page holds what you see, so you can link to it.</li></ul></section>"""


def page_body() -> str:
    """The body as HTML, without the data."""
    sides = (("first", "First loss"), ("second", "Second loss"))
    choices = "\n".join(CHOICE.format(side=side, title=title, lower=title.lower()) for side, title in sides)
    sections = [
        CURVES.format(figures=_curve_figures()),
        SIMPLEX.format(labels="\n".join(map(_label, range(3))), maps=_maps([side for side, _ in sides])),
        NOISE.format(figures="\n".join(NOISE_FIGURE.format(side=side) for side, _ in sides), height=HEIGHT),
        ABOUT,
    ]
    return "\n".join(
        [
            INTRODUCTION,
            f'<div class="desk"><form class="controls" aria-label="What is shown">\n{choices}\n{COMMON}\n</form>',
            '<div class="pictures">', *sections, "</div></div>"
        ]
    )  # fmt: skip


def _curve_figures() -> str:
    names = {"value": "Value", "weight": "Gradient weight", "sum": "Sum over labels, relative,"}
    against = {"p": "against p of the label", "margin": "against the margin"}
    return "\n".join(
        FIGURE.format(title=title, against=words, id=f"{name}-{axis}")
        for name, title in names.items()
        for axis, words in against.items()
    )


def _label(number: int) -> str:
    checked = " checked" if number == 0 else ""
    return f'<label><input type="radio" name="label" value="{number}"{checked}> {number + 1}</label>'


def _maps(sides: list[str]) -> str:
    return "\n".join(MAP.format(side=side, id=f"{what}-{side}") for what in ("map", "sum") for side in sides)
