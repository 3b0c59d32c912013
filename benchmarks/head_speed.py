"""Time linear layers with a loss, and their memory beyond features, parameters and gradients.

    OMP_NUM_THREADS=1 python benchmarks/head_speed.py --check             # 1,024 examples, 1,000 to 1,000,000 classes
    OMP_NUM_THREADS=1 python benchmarks/head_speed.py --tokens --check    # a language model with 151,936 classes

Memory is the peak of a process of its own for each cell. --tokens compares float32 and bfloat16, and also gives the
rounding errors of gradients in bfloat16.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import measure
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss import create_loss
from symloss.functional import linear_loss, linear_unhinged
from symloss.losses.validation import plain

Row = dict[str, Any]
Step = Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor]
"""A function of features (N, d), weight (C, d), bias (C,) and labels (N,)."""


class Size(NamedTuple):
    """The size of a linear layer, and the type of features and weights."""

    n: int
    d: int
    c: int
    dtype: str = "float32"
    bias: bool = True

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Return random features, weight, bias and labels."""
        generator, dtype = torch.Generator().manual_seed(0), getattr(torch, self.dtype)
        features = torch.randn(self.n, self.d, generator=generator).to(dtype).requires_grad_()
        weight = torch.empty(self.c, self.d, dtype=dtype).normal_(std=0.05, generator=generator).requires_grad_()
        bias = torch.zeros(self.c, dtype=dtype, requires_grad=True) if self.bias else None
        return features, weight, bias, torch.randint(self.c, (self.n,), generator=generator)


BASE = "linear + cross_entropy"
CLASSES = (1_000, 10_000, 50_000, 200_000, 1_000_000)
MANY = Size(1024, 256, 50_000)
"""Where all heads are timed in turns."""
MOST_SCORES = 200_000
"""With more classes, the ways that compute all scores would need tens of gigabytes."""


def _unit_unhinged(z: Tensor, y: Tensor) -> Tensor:
    """Return the unhinged loss of unit scores in plain torch: normalise, mean, gather."""
    z = F.normalize(z, dim=1, eps=1e-5)
    return (z.mean(1) - z.gather(1, y[:, None]).squeeze(1)).mean()


def _head(spec: str, **options: Any) -> Step:
    loss = create_loss(spec).loss
    return lambda h, w, b, y: linear_loss(loss, h, w, b, y, **options)


HEADS: dict[str, Step] = {
    BASE: lambda h, w, b, y: F.cross_entropy(F.linear(h, w, b), y),
    "linear + unit unhinged": lambda h, w, b, y: _unit_unhinged(F.linear(h, w, b), y),
    "unhinged head": linear_unhinged,
    "unhinged head, raw scores": lambda h, w, b, y: linear_unhinged(h, w, b, y, normalize=None),
    "alpha-mae head": _head("alpha-mae", normalize="l2"),
    "sgce head": _head("sgce", normalize="l2"),
}
WITH_SCORES = (BASE, "linear + unit unhinged")

TOKENS = (2048, 512, 151_936)
"""Tokens, features and classes of a language model."""
ERROR_SIZE = Size(2048, 128, 20_000, "bfloat16", bias=False)
"""The same where errors are measured: float64 needs all scores."""
TOKEN_LOSSES = ("gce:q=0.5", "alpha-mae:kappa=2")
WIDE = ", float32 sum"
"""Marks heads that add up the gradient of the weights in float32."""
TOKEN_HEADS: dict[str, Step] = (
    {BASE: HEADS[BASE]}
    | {f"{name} head": _head(name) for name in TOKEN_LOSSES}
    | {f"{name} head{WIDE}": _head(name, accumulate=torch.float32) for name in TOKEN_LOSSES}
)
MOST_EXTRA = {"float32": 200e6, "bfloat16": 300e6}
"""The most memory, in bytes, that a head may take beyond features, weights and their gradients."""
MOST_TIME = 1.1
"""The longest time of a head, as a multiple of that of cross-entropy by way of the scores."""


def token_ways(dtype: str) -> list[str]:
    """Return the ways that are measured with a type."""
    return [way for way in TOKEN_HEADS if dtype != "float32" or WIDE not in way]


def time_heads(ways: Sequence[str], size: Size, repeats: int) -> Row:
    """Time forward and backward of several ways, in turns."""
    h, w, b, y = size.tensors()

    def run(step: Step) -> None:
        step(h, w, b, y).backward()  # type: ignore[no-untyped-call]
        for part in (h, w, b):
            if part is not None:
                part.grad = None

    steps = HEADS | TOKEN_HEADS
    timed = measure.interleaved({way: functools.partial(run, steps[way]) for way in ways}, repeats)
    return {"dtype": size.dtype, **timed}


def time_one_head(way: str, size: Size, steps: int = 3) -> Row:
    """Return the seconds of the best step, and the memory beyond features, parameters and their gradients."""
    step = (HEADS | TOKEN_HEADS)[way]
    step(*size._replace(c=8).tensors()).backward()  # type: ignore[no-untyped-call]
    before = measure.peak_memory()
    h, w, b, y = size.tensors()
    parts = [part for part in (h, w, b) if part is not None]
    times = []
    for _ in range(steps):
        times.append(measure.timed(lambda: step(h, w, b, y).backward()).seconds)  # type: ignore[no-untyped-call]
        for part in parts:
            part.grad = None
    peak, needed = measure.peak_memory(), 2 * sum(part.numel() * part.element_size() for part in parts)
    extra = max(peak - before - needed, 0)
    found = {"way": way, "c": size.c, "dtype": size.dtype}
    return found | {"seconds": min(times), "extra_bytes": extra, "peak_bytes": peak}


def gradient_errors(size: Size = ERROR_SIZE) -> dict[str, dict[str, list[float]]]:
    """Return relative errors of bfloat16 gradients against float64, of features and weights, by loss and way."""
    h, w, _, y = size.tensors()
    block_bytes = 184 * size.c * 6  # as many blocks as with the whole vocabulary

    def gradients(spec: str, dtype: torch.dtype, **options: Any) -> list[Tensor]:
        parts = [part.detach().to(dtype).clone().requires_grad_() for part in (h, w)]
        value = linear_loss(create_loss(spec).loss, parts[0], parts[1], None, y, **options)
        return [each.double() for each in torch.autograd.grad(value, parts)]

    errors: dict[str, dict[str, list[float]]] = {}
    for name in TOKEN_LOSSES:
        exact = gradients(name, torch.float64)
        with plain():
            found = {"scores, then loss": gradients(name, torch.bfloat16)}
        found["head"] = gradients(name, torch.bfloat16, block_bytes=block_bytes)
        found[f"head{WIDE}"] = gradients(name, torch.bfloat16, block_bytes=block_bytes, accumulate=torch.float32)
        errors[name] = {
            way: [float((one - true).norm() / true.norm()) for one, true in zip(each, exact, strict=True)]
            for way, each in found.items()
        }
    return errors


def head_failures(timed: Row, alone: Sequence[Row]) -> list[str]:
    """Return the targets that were missed, one line each.

    Args:
        timed: what ``time_heads`` returns at 50,000 classes.
        alone: what ``time_one_head`` returns for every way and number of classes.
    """
    ratio = timed["ratios"]
    extra = {(row["way"], row["c"]): row["extra_bytes"] for row in alone}
    whole = {(row["way"], row["c"]): row["peak_bytes"] for row in alone}
    head = "unhinged head"
    checks = {
        "unhinged head: 12 times faster than scores then loss": ratio["linear + unit unhinged"] >= 12 * ratio[head],
        "unhinged head: 6 times faster than linear + cross_entropy": 6 * ratio[head] <= 1,
        "a million classes in 4 GB": whole[head, 1_000_000] < 4e9,
    }
    for way in (head, "alpha-mae head", "sgce head"):
        checks[f"{way}: an eighth of the extra memory"] = 8 * extra[way, MANY.c] <= extra[BASE, MANY.c]
    for way in ("alpha-mae head", "sgce head"):
        checks[f"{way}: at most 1.1 times the time"] = ratio[way] <= 1.1
    return [name for name, met in checks.items() if not met]


def token_failures(times: Sequence[Row], memory: Sequence[Row], errors: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return the targets that were missed, one line each, as ``head_failures`` does."""
    missed = []
    for row in times:
        slow = {way: ratio for way, ratio in row["ratios"].items() if ratio > MOST_TIME and WIDE not in way}
        missed += [f"{way}, {row['dtype']}: {ratio:.2f} times the time, target 1.1" for way, ratio in slow.items()]
    for row in memory:
        wide = 4 * TOKENS[1] * TOKENS[2] if WIDE in row["way"] else 0
        if row["way"] != BASE and row["extra_bytes"] > MOST_EXTRA[row["dtype"]] + wide:
            missed.append(f"{row['way']}, {row['dtype']}: {row['extra_bytes'] / 1e6:.0f} MB extra")
    for name, found in errors.items():
        for way, most in (("head", 2.0), (f"head{WIDE}", 1.05)):
            for one, base in zip(found[way], found["scores, then loss"], strict=True):
                if one > most * base:
                    missed.append(f"{name} {way}: error {one:.1e} where all scores at once have {base:.1e}")
    return missed


def compare_heads(repeats: int, classes: Sequence[int]) -> list[str]:
    """Print time and memory of heads by the number of classes, and return the targets that were missed."""
    cells = [(way, c) for c in classes for way in HEADS if c <= MOST_SCORES or way not in WITH_SCORES]
    work = (measure.in_own_process(time_one_head, way, MANY._replace(c=c)) for way, c in cells)
    alone = measure.with_progress(work, [f"{way}, C {c:,}" for way, c in cells])
    many = MANY._replace(c=min(MANY.c, max(classes)))
    timed = measure.in_own_process(time_heads, list(HEADS), many, repeats)
    texts = {(row["way"], row["c"]): f"{row['seconds']:.3f} s, {row['extra_bytes'] / 1e6:,.0f} MB" for row in alone}
    print(f"N {MANY.n:,}, d {MANY.d}: seconds of the best of 3 steps, and extra memory\n")
    measure.print_table(
        ("way", f"ratio at {many.c:,}", *(f"C {c:,}" for c in classes)),
        ((way, f"{ratio:.3f}", *(texts.get((way, c), "-") for c in classes)) for way, ratio in timed["ratios"].items()),
    )
    return head_failures(timed, alone) if set(CLASSES) <= set(classes) else []


def compare_token_heads(repeats: int, size: tuple[int, int, int], error_size: Size) -> list[str]:
    """Print time, memory and errors of a language model's heads, and return the targets that were missed."""
    sizes = [Size(*size, dtype, bias=False) for dtype in MOST_EXTRA]
    cells = [(way, each) for each in sizes for way in token_ways(each.dtype)]
    work = (measure.in_own_process(time_one_head, way, each, 1) for way, each in cells)
    memory = measure.with_progress(work, [f"memory, {each.dtype}, {way}" for way, each in cells])
    runs = (measure.in_own_process(time_heads, token_ways(each.dtype), each, repeats) for each in sizes)
    times = measure.with_progress(runs, [f"all in turns, {each.dtype}" for each in sizes])
    errors = measure.in_own_process(gradient_errors, error_size)
    extra = {(row["dtype"], row["way"]): f"{row['extra_bytes'] / 1e6:,.0f} MB" for row in memory}
    print("N {:,}, d {:,}, C {:,}: forward and backward\n".format(*size))
    measure.print_table(
        ("type", "way", "seconds", "ratio", "extra memory"),
        (
            (row["dtype"], way, f"{seconds:.2f}", f"{row['ratios'][way]:.2f}", extra[row["dtype"], way])
            for row in times
            for way, seconds in row["seconds"].items()
        ),
        left=2,
    )
    n, d, c, *_ = error_size
    print(f"\nN {n:,}, d {d}, C {c:,}: relative errors of gradients in bfloat16 against float64\n")
    measure.print_table(
        ("loss", "way", "features", "weights"),
        ((name, way, *(f"{e:.1e}" for e in both)) for name, found in errors.items() for way, both in found.items()),
        left=2,
    )
    return token_failures(times, memory, errors)


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--tokens", action="store_true", help="time heads of a language model instead")
    parser.add_argument("--repeats", type=int, help="timed turns; the median counts (default: 11, or 3 with --tokens)")
    parser.add_argument("--smallest", action="store_true", help="time the smallest size only")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    given = parser.parse_args()
    if given.check and given.smallest:
        parser.error("--check requires all sizes; leave out --smallest")
    measure.print_environment()
    if given.tokens:
        sizes = ((16, 8, 50), Size(16, 8, 50, "bfloat16", bias=False)) if given.smallest else (TOKENS, ERROR_SIZE)
        missed = compare_token_heads(given.repeats or 3, *sizes)
    else:
        missed = compare_heads(given.repeats or 11, CLASSES[:1] if given.smallest else CLASSES)
    if given.check:
        measure.judge(missed)


if __name__ == "__main__":
    main()
