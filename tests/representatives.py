"""One loss for each way a loss is evaluated: enough to test what does not depend on the formula.

Options (weights, masks, reductions, shapes, soft and smoothed labels, data types) are handled by the evaluation, not
by the formula of a loss. So they are tested on these losses. Whatever is about the formula is tested on all of them.
``losses/test_catalogue.py`` checks that no way of evaluation is left out.
"""

from __future__ import annotations

from in_turn import in_turn

from symloss.losses.base import Loss
from symloss.losses.catalogue import RECORDS
from symloss.losses.kernels.targets import kernel_for

NAMED = {
    "unhinged": "linear in the scores: a kernel without exponentials; divides the scores by their norm; symmetric",
    "mae": "a function of the label's probability; symmetric",
    "gce": "a function of the label's probability; not symmetric",
    "alpha-mae": "a function of the label's probability with a linear part, by blend; divides by the norm; symmetric",
    "label-smoothing": "a sum with a part that is the same at every label; not symmetric",
    "dirichlet-ce": "adds a sum over all labels; not symmetric",
    "sgce": "sums over the other classes, by symmetrize; divides by the norm; symmetric",
    "anl-ce": "sums over the other classes, by relative and complement; a sum of losses; symmetric",
    "nce+agce": "sums over the other classes next to a function of the label's probability; not symmetric",
    "mse": "a loss of all probabilities: plain formulas, no kernel",
    "symmetrized-cosine": "a loss of raw scores without a slope at equal scores: plain formulas, no kernel; symmetric",
    "bi-tempered": "has a softmax of its own: plain formulas, no kernel",
}
"""Names of losses, each with what it stands for."""


def leaf_types(loss: Loss) -> set[type[Loss]]:
    return set().union(*map(leaf_types, loss.children)) if loss.children else {type(loss)}


def _with_a_leaf_of_their_own() -> dict[str, str]:
    """Losses that no kernel serves and that hold a leaf which none of the named ones holds."""
    known = set().union(*(leaf_types(RECORDS[name].loss()) for name in NAMED))
    others = {}
    for name, record in RECORDS.items():
        loss = record.loss()
        if kernel_for(loss, 10) is None and not leaf_types(loss) <= known:
            others[name] = "a leaf of its own: plain formulas, no kernel"
            known |= leaf_types(loss)
    return others


REPRESENTATIVES = NAMED | _with_a_leaf_of_their_own()
"""A new loss joins by itself where it brings a formula of its own that no kernel serves."""

WITHOUT_SLOPE = ("cosine", "symmetrized-cosine")
"""Losses that ``scale="ce"`` refuses: they have no slope at equal scores."""

every_path = in_turn("name", REPRESENTATIVES)
"""Marks a test of options: one loss for each way of evaluation."""
