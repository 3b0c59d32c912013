"""The pages of the losses, one each with a plot, from the records and docstrings of the catalogue."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import loss_relatives
import matplotlib as mpl
import numpy as np
import staged_pages
import torch
from loss_relatives import SpecialCase
from matplotlib.figure import Figure
from torch import Tensor

import symloss
from symloss.losses.base import Loss, NoSlopeError
from symloss.losses.catalogue import LOSSES, RECORDS, SOURCES
from symloss.losses.record import Parameter, Record

FACTS = {
    "symmetric": "the sum over all labels is constant",
    "non_increasing": "the loss never grows when the score of the label grows",
    "convex": "the loss is convex in the scores",
    "bounded": "the loss has a lower and an upper bound",
    "permutation_invariant": "renaming the classes changes nothing",
}
CONSTANTS = {"lipschitz": "Lipschitz constant", "smoothness": "smoothness constant"}
MEANINGS = {"lipschitz": "the largest norm of the gradient", "smoothness": "the largest curvature"}
CLASSES = 10
CAPTION = (
    f"At its defaults, with {CLASSES} classes; those besides the label are equally likely, and the scores are log p. "
    "Left: the value. Right: the gradient weight, which says how strongly an example pulls up the score of its label "
    f"(minus the derivative in that score). Dashed: cross-entropy, scaled to the same weight at p = 1/{CLASSES}."
)
GREY, BLUE = "#808790", "#3b82d0"  # to be seen on white and on black
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "symloss",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def pages() -> dict[str, str | Path]:
    """Every page and picture by its name in the site; also the list of losses, with links to the pages."""
    found: dict[str, str | Path] = {"losses.md": _list_with_links()}
    for name in RECORDS:
        found[f"losses/{file_name(name)}.md"] = page(name)
        found[f"losses/{file_name(name)}.svg"] = plot(name)
    return found


def class_path(name: str) -> str:
    """Where users find the class of a loss: in ``symloss``, or in ``symloss.losses`` for the rarer sums."""
    return f"symloss.{name}" if name in dir(symloss) else f"symloss.losses.{name}"


def file_name(name: str) -> str:
    """Return the name of the file of a loss: a plus would mean a space in some addresses."""
    return name.replace("+", "-")


def page(name: str) -> str:
    """Return the page of a loss, in Markdown."""
    record, doc = RECORDS[name], RECORDS[name].text
    title, _, after = doc.partition(f": {record.formula}.")
    sections = {
        "Parameters": _parameters(record.parameters),
        "Facts": _facts(record),
        "Published settings": _presets(record),
        "Example": ["```python", *_example(record), "```"],
        "See also": [f"- {line}" for line in _see_also(name)],
        "Reference": _reference(record),
    }
    lines = [f"# {title_of(name)}", "", f"{title}, `{name}` for short:", "", "```text", record.formula, "```", ""]
    lines += [after.partition("Args:")[0].strip(), ""]
    if record.normalize:
        lines += [f'Scores are divided by their norm unless you say otherwise: `normalize="{record.normalize}"`.', ""]
    lines += [
        f"```{{figure}} {file_name(name)}.svg",
        f":alt: Value and gradient weight of {name}",
        "",
        _caption(name),
        "```",
    ]
    for heading, body in sections.items():
        lines += ["", f"## {heading}", "", *body] if body else []
    return "\n".join([*lines, ""])


def _caption(name: str) -> str:
    atlas = f'<a class="reference external" href="../atlas.html#loss={name.replace("+", "%2B")}">The atlas</a>'
    return f"{CAPTION} {atlas} shows other parameters and other numbers of classes."


def _table(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    head = list(heading)
    lines = [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *cells]]
    return lines if cells else []


def _parameters(parameters: Iterable[Parameter]) -> list[str]:
    rows = ((f"`{p.name}`", "" if p.default is None else f"{p.default:g}", p.interval, p.meaning) for p in parameters)
    return _table(("name", "default", "range", "meaning"), rows)


def _facts(record: Record) -> list[str]:
    facts = record.facts.at(CLASSES, **record.defaults)
    rows = [
        (fact.replace("_", "-"), "yes" if facts[fact] else "no", FACTS[fact] + _depends(getattr(record.facts, fact)))
        for fact in facts
    ]
    for name, value in record.constants.at(CLASSES, **record.defaults).items():
        if value is not None:
            rows.append((CONSTANTS[name], f"{value:.4g}", MEANINGS[name] + _depends(getattr(record.constants, name))))
    text = f"Of raw scores, at the defaults, with {CLASSES} classes. `symloss certify {record.name}` measures them."
    return [text, "", *_table(("fact", "holds", "meaning"), rows)]


def _depends(known: object) -> str:
    return " (depends on the parameters or the number of classes)" if callable(known) else ""


def _presets(record: Record) -> list[str]:
    rows = []
    for name, preset in record.presets.items():
        values = ", ".join(f"{key}={value}" for key, value in preset.values.items()) or "the defaults"
        values += " and batch-norm scores" if preset.batch_norm_scores else ""
        values += "" if preset.penalty is None else f" and an L1 penalty of {preset.penalty:g}"
        rows.append((f"`preset={name}`", values, preset.source))
    return _table(("preset", "values", "source"), rows)


def title_of(name: str) -> str:
    """Return the class of the loss; its name where it has none."""
    return RECORDS[name].class_name if name in LOSSES else name


def _example(record: Record) -> list[str]:
    """Return the example of the docstring, which the tests run; a loss without a class is made from its name."""
    if record.name in LOSSES:
        return record.text[record.text.index(">>>") :].splitlines()
    return [">>> import symloss", f'>>> loss = symloss.create_loss("{record.name}")']


def _link(name: str) -> str:
    return f"[{name}]({file_name(name)}.md)"


def _see_also(name: str) -> Iterator[str]:
    for case in loss_relatives.special_cases(name):
        yield f"{_where(case)} is {_link(case.other)}{_up_to(case)}."
    if wider := list(_wider(name)):
        yield f"It is a special case of {', '.join(wider)}."
    if parts := loss_relatives.parts(name):
        yield f"It is made of {_and(parts)}: `{RECORDS[name].loss()!r}`."
    if used := [other for other in RECORDS if name in loss_relatives.parts(other)]:
        yield f"{_and(used)} {'are' if len(used) > 1 else 'is'} made of it."
    if others := loss_relatives.family(name):
        yield f"The same family: {_and(others)}."
    if name in LOSSES:
        function = f"{{py:func}}`symloss.functional.{RECORDS[name].function_name}`"
        yield f"{{py:class}}`{class_path(title_of(name))}` and {function} in the API."


def _wider(name: str) -> Iterator[str]:
    """Return the losses that are this one at some parameters."""
    for other in RECORDS:
        for case in loss_relatives.special_cases(other):
            if case.other == name and case.at:
                yield f"{_link(other)} ({_where(case).lower().removesuffix(' it')}{_up_to(case)})"


def _where(case: SpecialCase) -> str:
    return f"{'Towards' if case.towards else 'At'} {_settings(case)} it" if case.at else "It"


def _settings(case: SpecialCase) -> str:
    return " and ".join(f"{name} = {value:g}" for name, value in case.at)


def _up_to(case: SpecialCase) -> str:
    left = [word for word, there in (("a factor", case.factor), ("a constant", case.constant)) if there]
    return f", up to {' and '.join(left)}" if left else ""


def _and(names: Iterable[str]) -> str:
    *first, last = map(_link, names)
    return f"{', '.join(first)} and {last}" if first else last


def _reference(record: Record) -> list[str]:
    return [f"{SOURCES[record.source]}. `symloss cite {record.name}` prints it as BibTeX."]


def _list_with_links() -> str:
    """Return the generated list of losses, whose names lead to the pages here. On GitHub there are no such pages."""
    text = (staged_pages.DOCS / "losses.md").read_text()
    for name in RECORDS:
        link = f"| [{name}](losses/{file_name(name)}.md) |"
        text = re.sub(rf"^\| {re.escape(name)} \|", lambda _, link=link: link, text, flags=re.MULTILINE)  # type: ignore[misc]
    entries = [f"losses/{file_name(name)}" for name in RECORDS]
    return "\n".join([text, "```{toctree}", ":hidden:", "", *entries, "```", ""])


def value_and_weight(loss: Loss, p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of the label, and minus its derivative in the label's score.

    Args:
        loss: an expression of the algebra.
        p: probabilities of the label, shape (N,).
    """
    others = ((1 - p) / (CLASSES - 1)).expand(CLASSES - 1, -1)
    scores = torch.vstack([p[None], others]).T.log().requires_grad_()
    values = loss.per_class(scores)[:, 0]
    (slope,) = torch.autograd.grad(values.sum(), scores)
    return values.detach(), -slope[:, 0]


def plot(name: str) -> str:
    """Return the picture of a loss, as SVG."""
    loss, ce = RECORDS[name].loss(), RECORDS["ce"].loss()
    p = torch.from_numpy(np.concatenate([np.geomspace(0.002, 0.05, 15)[:-1], np.linspace(0.05, 0.998, 60)]))
    value, weight = value_and_weight(loss, p)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 2.3))
        left, right = figure.subplots(1, 2)
        figure.subplots_adjust(left=0.08, right=0.985, bottom=0.19, top=0.9, wspace=0.22)
        left.plot(p, value, color=BLUE)
        right.plot(p, weight, color=BLUE)
        if name != "ce" and (slope := _slope(loss)) > 0:
            right.plot(p, slope * value_and_weight(ce, p)[1], color=GREY, linestyle="--", linewidth=1)
        for axes, title in ((left, "value"), (right, "gradient weight")):
            axes.set_title(title, fontsize=9)
            axes.set_xlabel("p of the label")
            axes.set_xlim(0, 1)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return written.getvalue()


def _slope(loss: Loss) -> float:
    """Return the slope at equal scores; 0 if there is none."""
    try:
        return loss.slope(CLASSES)
    except NoSlopeError:
        return 0.0
