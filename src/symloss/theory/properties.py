"""The properties of a loss, each measured by a search. A violation counts where it exceeds the rounding error there."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses import validation
from symloss.theory import search
from symloss.theory.findings import Finding, finding
from symloss.theory.search import Places, one_hot
from symloss.theory.subject import MANY, Objective, Subject, rounding


def symmetric(places: Places) -> Finding:
    """Compare the sum over labels at all points with its value at a point near 0."""
    subject = places.subject

    def total(z: Tensor, _: Tensor) -> Tensor:
        return subject.per_class(z).sum(1)

    z, y = places.few
    top, _, _ = search.climb(total, z, y, limit=places.limit)
    bottom, _, _ = search.climb(lambda z, y: -total(z, y), z, y, limit=places.limit)
    near = torch.cat([z, top, bottom, places.thinned(places.rays.z, 2)])
    reference = 0.01 * search.directions(places.z[-1:])
    far = torch.cat([places.thinned(part) for part in (places.far_z, places.far_lines[0].flatten(0, 1))])
    with torch.no_grad():
        level = float(total(reference, places.y[:1]))
        at_reference = float(subject.per_class(reference).abs().sum())
    measure = 0.0
    for z in (near, far):
        if not len(z):
            continue
        with torch.no_grad():
            every = subject.per_class(z)
        sums, size = every.sum(1), every.abs().sum(1) + at_reference + subject.num_classes * subject.unit
        off = (sums - level).abs()
        measure = max(measure, float(off.max()))
        real = subject.exceeding(off, size, z, partial(_noise_of_sums, total, z))
        if len(real):
            pool = torch.cat([z[real], reference])
            sums = torch.cat([sums[real], torch.tensor([level], dtype=torch.float64)])
            a, b = int(sums.argmax()), int(sums.argmin())
            seen = f"the sum over labels is {float(sums[a]):.6g} at a and {float(sums[b]):.6g} at b"
            return finding(False, float(sums[a] - sums[b]), seen, a=pool[a], b=pool[b])
    return _sums_of_gradients(places, Finding(True, measure, None, len(near) + len(far)))


def _noise_of_sums(total: Objective, z: Tensor, at: Tensor) -> Tensor:
    return rounding(total, z[at], torch.zeros_like(at))


def _sums_of_gradients(places: Places, held: Finding) -> Finding:
    """Return what was found, unless gradients near 0 do not sum to 0: they see ripples that are below rounding."""
    subject, classes = places.subject, places.subject.num_classes
    if not subject.differentiable:
        return held
    ball = places.thinned(subject.ball, 4)
    gradients = subject.gradient(ball.repeat_interleave(classes, 0), torch.arange(classes).repeat(len(ball)))
    gradients = gradients.reshape(-1, classes, classes)
    sums = torch.linalg.vector_norm(gradients.sum(1), dim=1)
    sizes = torch.linalg.vector_norm(gradients, dim=2).sum(1)
    ratio = sums / sizes.clamp_min(1e-300)
    worst = int(ratio.argmax())
    if float(ratio.median()) <= 1e-6 + MANY * subject.eps:
        return held
    seen = f"the gradients of all labels sum to a vector of norm {float(sums[worst]):.6g} at a"
    return finding(False, held.measure, seen, a=ball[worst])


def permutation_invariant(places: Places) -> Finding:
    """Try two renamings of the classes that generate all others, at every label."""
    worst = [_renamed(places, order) for order in validation.renamings(places.subject.num_classes)]
    return max(worst, key=lambda each: (not each.holds, each.measure))


def _renamed(places: Places, order: Tensor) -> Finding:
    """Compare L(z, order[j]) with L(z[order], j), at all points and from where they differ most."""
    subject, back = places.subject, order.argsort()

    def difference(z: Tensor, _: Tensor) -> Tensor:
        return (subject.per_class(z[:, order]) - subject.per_class(z)[:, order]).abs()

    found, labels, _ = search.climb(lambda z, y: difference(z, y).amax(1), *places.few, limit=places.limit)
    with torch.no_grad():
        its = order[difference(found, labels).argmax(1)]
        z, y = torch.cat([found, places.every[0]]), torch.cat([its, places.every[1]])
        before, after = torch.cat([subject.value(found, its), places.values]), subject.value(z[:, order], back[y])
    off, size = (after - before).abs(), before.abs() + after.abs()
    real = subject.exceeding(off, size, z, lambda at: 2 * rounding(subject.value, z[at], y[at]))
    if not len(real):
        return Finding(True, float(off.max()), None, len(z))
    at = near_first(real, off, z)
    label, new_label = int(y[at]), int(back[y[at]])
    seen = (
        f"{float(before[at]):.6g} at a, and {float(after[at]):.6g} at b with label {new_label}, "
        "which is a with the classes renamed"
    )
    return finding(False, float(off[at]), seen, label, a=z[at], b=z[at, order])


def near_first(real: Tensor, violation: Tensor, z: Tensor) -> int:
    """Return the place of the largest violation among ordinary scores; of all if there is none."""
    near = real[z[real].abs().amax(1) <= 2 * search.REACH]
    chosen = near if len(near) else real
    return int(chosen[violation[chosen].argmax()])


class Pairs(NamedTuple):
    """Pairs of points (P, C) and their labels (P,). Where only the label's own score differs, b has the larger one."""

    a: Tensor
    b: Tensor
    y: Tensor


def non_increasing(places: Places) -> Finding:
    """Look for a larger value at a larger score of the label: where the derivative is positive, on rays, at jumps."""
    subject = places.subject
    steep, label, slope = _steepest(places)
    if len(steep):
        stepped = _stepped(subject, steep, label)
        rising = _rises(subject, stepped)[0]
        if len(rising):
            at = int(rising[slope[rising].argmax()])
            seen = f"the derivative in the label's own score is {float(slope[at]):.6g} at a"
            return finding(False, float(slope[at]), seen, label[at], a=steep[at])
    pairs = [_risen(places), _jumped(places), _far_apart(places)]
    every = Pairs(*(torch.cat(parts) for parts in zip(*pairs, strict=True)))
    real, before, after = _rises(subject, every)
    if not len(real):
        return Finding(True, max(0.0, float((after - before).max())), None, places.count)
    at = near_first(real, after - before, every.b)
    seen = f"{float(before[at]):.6g} at a and {float(after[at]):.6g} at b, where only the label's own score is higher"
    return finding(False, float(after[at] - before[at]), seen, every.y[at], a=every.a[at], b=every.b[at])


def _rises(subject: Subject, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
    """Return the places of pairs between which the value rises by more than rounding; and the values at both ends."""
    a, b, y = pairs
    with torch.no_grad():
        before, after = subject.value(a, y), subject.value(b, y)
    rise, size = after - before, after.abs() + before.abs()
    noise_at = partial(_noise_of_ends, subject, pairs)
    return subject.exceeding(rise, size, b, noise_at), before, after


def _noise_of_ends(subject: Subject, pairs: Pairs, at: Tensor) -> Tensor:
    """Return the larger rounding error of both ends of pairs, on lines away from what lies between: maybe a jump."""
    a, b, y = (part[at] for part in pairs)
    way = b - a
    way = way / way.abs().amax(1, keepdim=True).clamp_min(1e-300)
    return torch.maximum(rounding(subject.value, a, y, -way), rounding(subject.value, b, y, way))


def _steepest(places: Places) -> tuple[Tensor, Tensor, Tensor]:
    """Return points, labels and positive derivatives in the label's own score."""
    subject, lines = places.subject, places.rays
    if not subject.differentiable:
        return places.z[:0], places.y[:0], places.z[:0, 0]

    def rise(z: Tensor, y: Tensor) -> Tensor:
        return subject.gradient(z, y).gather(1, y[:, None]).squeeze(1)

    found, label, slope = search.climb(rise, places.z, places.y, limit=places.limit)
    slopes = places.gradients.gather(2, lines.labels[:, None, None].expand(-1, lines.t.shape[1], 1)).flatten()
    best = slopes.topk(8).indices
    z, y = torch.cat([found, lines.z[best]]), torch.cat([label, lines.y[best]])
    slope = torch.cat([slope, slopes[best]])
    return z[slope > 0], y[slope > 0], slope[slope > 0]


def _stepped(subject: Subject, z: Tensor, y: Tensor) -> Pairs:
    """Return steps around points in the label's own score, each of the length over which the value rises most."""
    lengths = torch.tensor([10.0**-k for k in (0, 1, 2, 3, 4, 5)], dtype=torch.float64)
    moves = lengths[:, None, None] * one_hot(y, z)
    with torch.no_grad():
        low, high = (
            subject.value((z + sign * moves).flatten(0, 1), y.repeat(len(lengths))).reshape(len(lengths), -1)
            for sign in (-1, 1)
        )
    ratio = (high - low) / (high.abs() + low.abs() + subject.unit)
    step = moves[ratio.nan_to_num(-torch.inf).argmax(0), torch.arange(len(z))]
    return Pairs(z - step, z + step, y)


def _risen(places: Places) -> Pairs:
    """Return the largest rises along the rays of the label's own score, relative to the values there."""
    lines = places.rays
    values = places.along[: lines.own]
    lowest = values.cummin(1)
    ratio = (values - lowest.values) / (values.abs() + lowest.values.abs() + places.subject.unit)
    end = ratio.argmax(1)
    row = torch.arange(lines.own)
    points = lines.at(lines.t)[: lines.own]
    return Pairs(points[row, lowest.indices[row, end]], points[row, end], lines.labels[: lines.own])


def _jumped(places: Places) -> Pairs:
    """Return both sides of the jumps on rays of the label's own score."""
    ray, low, high, _ = places.jumps
    own = ray < places.rays.own
    ray, low, high = ray[own], low[own], high[own]
    base, axis = places.rays.base[ray], places.rays.axis[ray]
    return Pairs(base + low[:, None] * axis, base + high[:, None] * axis, places.rays.labels[ray])


def _far_apart(places: Places) -> Pairs:
    """Return pairs of neighbours on a geometric grid of the label's own score, from minus the reach to the reach."""
    points, labels = places.own_lines
    a, b = points[:, :-1].flatten(0, 1), points[:, 1:].flatten(0, 1)
    y = labels.repeat_interleave(points.shape[1] - 1)
    step = 0.01 * places.far_z.abs().amax(1, keepdim=True) * one_hot(places.far_y, places.far_z)
    return Pairs(torch.cat([a, places.far_z - step]), torch.cat([b, places.far_z + step]), torch.cat([y, places.far_y]))


def convex(places: Places, hollow: tuple[Tensor, Tensor, Tensor] | None) -> Finding:
    """Try chords: between points near and far, on rays, and along the direction of the most negative curvature."""
    subject, classes = places.subject, places.subject.num_classes

    def excess(pair: Tensor, y: Tensor) -> Tensor:
        a, b = pair[:, :classes], pair[:, classes:]
        return subject.value((a + b) / 2, y) - (subject.value(a, y) + subject.value(b, y)) / 2

    z, y, limit = places.z, places.y, places.limit
    shuffled = torch.Generator().manual_seed(2)
    partners = z[torch.randperm(len(z), generator=shuffled)]
    pairs, labels = [torch.cat([z, partners], 1)], [y]
    if hollow is not None:
        points, label, axes = hollow
        for length in (0.03, 0.3, 1.0):
            pairs.append(torch.cat([points - length * axes, points + length * axes], 1).clamp(-limit, limit))
            labels.append(label)
    found, label, _ = search.climb(excess, torch.cat(pairs), torch.cat(labels), limit=limit)
    pairs, labels = [found, *pairs], [label, *labels]
    if len(places.far_z):
        other = places.far_z[torch.randperm(len(places.far_z), generator=shuffled)]
        near = z[torch.arange(len(other)) % len(z)]
        pairs += [torch.cat([places.far_z, end], 1) for end in (other, near, -places.far_z, 0 * near)]
        labels += [places.far_y] * 4
    chords = _chords_of_rays(places)
    points, label = places.own_lines
    low, high = points[:, :-2].flatten(0, 1), points[:, 2:].flatten(0, 1)
    chords.append((low, high, label.repeat_interleave(points.shape[1] - 2)))
    for a, b, y in chords:
        pairs.append(torch.cat([a, b], 1))
        labels.append(y)
    return _judged_chords(subject, torch.cat(pairs), torch.cat(labels), places.count)


def _judged_chords(subject: Subject, pair: Tensor, y: Tensor, count: int) -> Finding:
    a, b = pair[:, : subject.num_classes], pair[:, subject.num_classes :]
    with torch.no_grad():
        ends, middle = [subject.value(end, y) for end in (a, b)], subject.value((a + b) / 2, y)
    excess, size = middle - (ends[0] + ends[1]) / 2, ends[0].abs() + ends[1].abs() + middle.abs()
    far = torch.where((a.abs().amax(1) > b.abs().amax(1))[:, None], a, b)
    real = subject.exceeding(excess, size, far, partial(_noise_of_ends, subject, Pairs(a, b, y)))
    measure = max(0.0, float(excess.nan_to_num(0.0).max()))
    if not len(real):
        return Finding(True, measure, None, count)
    best = near_first(real, excess, far)
    seen = f"midway between a and b the loss is {float(excess[best]):.6g} above the mean of their losses"
    return finding(False, float(excess[best]), seen, y[best], a=a[best], b=b[best])


def _chords_of_rays(places: Places) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return the worst chord of each length on each ray, relative to the values there."""
    values, lines = places.along, places.rays
    points, row = lines.at(lines.t), torch.arange(len(lines.t))
    longest = (values.shape[1] - 1) // 2
    found = []
    for step in sorted({longest, *(2**k for k in range(longest.bit_length()))}):
        low, middle, high = values[:, : -2 * step], values[:, step:-step], values[:, 2 * step :]
        excess = middle - (low + high) / 2
        top = (excess / (low.abs() + middle.abs() + high.abs() + places.subject.unit)).argmax(1)
        found.append((points[row, top], points[row, top + 2 * step], lines.labels))
    ray, low_t, high_t, _ = places.jumps
    axis, width = lines.axis[ray], 1e-3
    for left, right in ((low_t - width, high_t), (low_t, high_t + width)):
        found.append(
            (lines.base[ray] + left[:, None] * axis, lines.base[ray] + right[:, None] * axis, lines.labels[ray])
        )
    return found


def chords_between(subject: Subject, a: Tensor, b: Tensor, count: int) -> Finding:
    """Return whether the loss of every label is convex between two points: chords of all lengths on a fine grid."""
    grid = torch.linspace(0, 1, 257, dtype=torch.float64)[:, None]
    points = a + grid * (b - a)
    pairs = [torch.cat([points[: -2 * step], points[2 * step :]], 1) for step in (1, 2, 4, 8, 16, 32, 64, 128)]
    pair = torch.cat(pairs)
    labels = torch.arange(subject.num_classes).repeat_interleave(len(pair))
    return _judged_chords(subject, pair.repeat(subject.num_classes, 1), labels, count)


def bounded(places: Places) -> tuple[Finding, float, float]:
    """Search for the smallest and the largest value, and whether values grow without end far from 0."""
    if places.overflow is not None:
        point, label, value = places.overflow
        return finding(False, math.inf, f"{value} at a", label, a=point), *_overflown(places, value)
    top, bottom = (_extreme(places, sign) for sign in (1.0, -1.0))
    low = -math.inf if bottom[-1] else bottom[0] + 0.0
    high = math.inf if top[-1] else top[0] + 0.0
    value, point, label, _ = top if top[-1] else bottom
    seen = f"{value:.6g} at a, and still growing there"
    held = finding(high - low != math.inf, high - low, seen, label, a=point)
    return (Finding(True, high - low, None, places.count) if held else held), low, high


def _overflown(places: Places, lost: float) -> tuple[float, float]:
    """Return the smallest and the largest value, where some are infinite or NaN."""
    values = torch.cat([places.along.flatten(), places.subject.value(places.z, places.y).detach()])
    low, high = float(values.min()), float(values.max())
    return (-math.inf if lost == -math.inf else low), (high if lost == -math.inf else math.inf)


def _extreme(places: Places, sign: float) -> tuple[float, Tensor, Tensor, bool]:
    """Return the largest (sign 1) or smallest (sign -1) value, its point and label; and whether there is no bound."""
    subject, z, y = places.subject, places.z, places.y

    def signed(z: Tensor, y: Tensor) -> Tensor:
        return sign * subject.value(z, y)

    points, labels, values = search.climb(signed, z, y, limit=places.limit)
    ridge, its, climbed = points, labels, dict.fromkeys(search.RADII, -math.inf)
    for radius in filter(lambda each: each <= places.reach, search.RADII):  # a ridge may lead on from there
        ridge, its, found = search.climb(signed, radius * search.directions(ridge), its, limit=radius)
        climbed[radius] = float(found[0])
    far = search.directions(z)
    along = sign * places.along.flatten()
    with torch.no_grad():
        growing = search.grows(
            lambda radius: signed(radius * far, y).max().clamp_min(climbed[radius]),
            least=1e4 * subject.eps,
            unit=subject.unit,
        )
        distant = signed(1e6 * far, y)
    top = int(distant.argmax())
    farthest = (float(distant[top]), 1e6 * far[top], y[top])
    if climbed[search.RADII[-1]] > farthest[0]:
        farthest = (climbed[search.RADII[-1]], ridge[0], its[0])
    best = int(along.argmax())
    near = [(float(values[0]), points[0], labels[0]), (float(along[best]), places.rays.z[best], places.rays.y[best])]
    value, point, label = farthest if growing else max([*near, farthest], key=lambda each: each[0])
    return sign * value, point, label, growing
