"""A small picture of each loss: its value and its gradient weight against the probability of the label."""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from symloss.losses.base import Loss, NoSlopeError
from symloss.losses.catalogue import RECORDS

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


def value_and_weight(loss: Loss, p: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of the label, and minus its derivative in the label's score.

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
    """The picture of a loss, as SVG."""
    loss, ce = RECORDS[name].loss(), RECORDS["ce"].loss()
    p = torch.from_numpy(np.concatenate([np.geomspace(0.002, 0.05, 15)[:-1], np.linspace(0.05, 0.998, 60)]))
    value, weight = value_and_weight(loss, p)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 2.3), layout="constrained")
        left, right = figure.subplots(1, 2)
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
    """The slope at equal scores; 0 if there is none."""
    try:
        return loss.slope(CLASSES)
    except NoSlopeError:
        return 0.0
