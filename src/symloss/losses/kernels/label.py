"""The kernel of losses that read the label's probability, and terms linear in the scores.

With a = dv/dl_y the gradient is g_k = -p_k a (k != y) and g_y = a (1 - p_y). 1 - p_y is the sum of the other
probabilities and never a difference, so confident and hopeless examples keep their digits.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from symloss.losses.kernels.at_label import AtLabel
from symloss.losses.kernels.forms import Form
from symloss.losses.kernels.job import Job, add_multiple, class_mean


class LabelKernel:
    """It keeps its exponentials in the memory of the gradient."""

    squares: ClassVar = False
    scratch: ClassVar = 0

    def __init__(self, form: Form, classes: int):
        self.partials = form.partials
        trial = AtLabel(torch.zeros(1, 1), torch.full((1, 1), classes - 1.0), classes)
        self.shows_masks = self.adds = bool(form.partials(trial).linear != 0)

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, _, scores, _, top = job
        t = torch.sub(z, z.amax(1, keepdim=True) if top is None else top, out=out)
        behind = t.gather(1, y)
        mean = class_mean(t, scores) if self.adds else None
        e = t.exp_().scatter_(1, y, 0.0)
        at = AtLabel(behind, e.sum(1, keepdim=True), z.shape[1], scores)
        loss = self.partials(at)
        slope = at.slope(loss, share)
        e.mul_(slope.mul(at.inverse).neg_())
        slope = slope * at.miss
        if mean is None:
            e.scatter_(1, y, slope)
            return loss.value
        even = loss.linear / at.classes
        add_multiple(e, even, share, out=e)
        if loss.remainder is None:
            slope = add_multiple(slope, even - loss.linear, share)
        else:  # the same, but over many classes slope and linear may be 10^5 times their difference
            slope = add_multiple(at.miss * loss.remainder, loss.linear, 1 / at.classes - at.p).mul_(share)
        e.scatter_(1, y, slope)
        if scores is not None:
            e.masked_fill_(~scores.present, 0.0)
        return add_multiple(loss.value, loss.linear, mean.sub_(behind))
