"""Counts of what operations of torch read, write and hold. Nothing is timed, and tensors need no memory.

The counts are of operations as torch dispatches them. A tensor counts once for each operation that reads it, whatever a
cache saves. An operation counts as one launch, although some launch several kernels on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
ALLOCATES = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
"""Operations that only take memory."""
ONLY_WRITES = {aten.copy_, aten.fill_, aten.zero_}
"""Operations in place that do not read what they write."""
PICKS = {aten.gather: 2, aten.nll_loss_forward: 1}
"""Operations that read one number of their first argument for each index; with the position of the indices."""
SHAPE_ONLY = {aten.nll_loss_backward: 1, aten.new_zeros: 0, aten.zeros_like: 0, aten.ones_like: 0, aten.full_like: 0}
"""Operations that need only the shape of an argument; with its position."""
SCATTERS = {aten.scatter_, aten.scatter_add_}
"""Operations in place that touch one number for each index. The indices come third."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that a computation moves, and how often it launches a kernel."""

    read: float
    """Bytes read."""
    written: float
    """Bytes written."""
    launches: int
    """Operations or kernels that read or write."""

    @property
    def moved(self) -> float:
        """Bytes read and written.

        >>> Traffic(3, 2, 1).moved
        5
        """
        return self.read + self.written

    def times(self, factor: float) -> Traffic:
        """Return the traffic of ``factor`` times as many rows. The number of launches stays the same.

        >>> Traffic(3, 2, 1).times(2)
        Traffic(read=6, written=4, launches=1)
        """
        return Traffic(self.read * factor, self.written * factor, self.launches)


@dataclass(frozen=True)
class Counts(Traffic):
    """Traffic and memory of a computation."""

    peak: float
    """Largest number of bytes allocated at a time, without those allocated before."""
    kept: float = 0
    """Bytes that stay allocated between forward and backward."""


class CountedWork(TorchDispatchMode):
    """Counts the work of all operations inside ``with`` that touch a device.

    Views cost nothing. An expanded tensor counts by the numbers that are there. An operation that picks numbers by
    indices counts the picked ones. ``seen`` lists the operations with their bytes.

    Args:
        device: operations on other devices are not counted.

    >>> with CountedWork() as counted:
    ...     _ = torch.empty(10, device="meta").exp()
    >>> counted.work
    Counts(read=40, written=40, launches=1, peak=80, kept=0)
    """

    def __init__(self, device: str = "meta") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.read = self.written = self.peak = 0
        self.seen: list[tuple[str, int, int]] = []
        self._live: dict[StorageWeakRef, int] = {}

    @property
    def work(self) -> Counts:
        """What was counted so far."""
        return Counts(self.read, self.written, len(self.seen), self.peak)

    def live(self) -> int:
        """Return the bytes that were allocated inside ``with`` and are still in use."""
        self._live = {storage: size for storage, size in self._live.items() if not storage.expired()}  # type: ignore[no-untyped-call]
        return sum(self._live.values())

    def launch(self, name: str, read: int, written: int) -> None:
        """Count one launch."""
        self.seen.append((name, read, written))
        self.read += read
        self.written += written

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        there = {_storage(tensor) for tensor in self._tensors((args, kwargs))}
        fresh = [tensor for tensor in self._tensors(out) if _storage(tensor) not in there]
        self._take(fresh)
        mutated = self._tensors(list(_mutated(func, args, kwargs)))
        if (fresh or mutated) and func.overloadpacket not in ALLOCATES:
            targets = {argument.name for argument in func._schema.arguments if argument.is_out}
            inputs = self._tensors((args, {name: value for name, value in kwargs.items() if name not in targets}))
            self.launch(str(func), _read(func, args, inputs, mutated), _written(func, args, fresh + mutated))
        return out

    def _tensors(self, tree: Any) -> list[Tensor]:
        return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.device.type == self.device]

    def _take(self, tensors: Iterable[Tensor]) -> None:
        self.live()  # forgets what was freed before
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._live[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]
        self.peak = max(self.peak, sum(self._live.values()))


def forward_and_backward(
    loss: Callable[[Tensor], Tensor], scores: Tensor, counted: CountedWork | None = None
) -> Counts:
    """Count a loss and its gradient in the scores.

    Args:
        loss: a function of the scores.
        scores: on the device that is counted.
        counted: a counter that has counted nothing yet; None for a new one on the meta device.
    """
    leaf = scores.detach().requires_grad_()
    counting = counted or CountedWork()
    with counting:
        value = loss(leaf)
        kept = counting.live() - value.untyped_storage().nbytes()
        value.backward()  # type: ignore[no-untyped-call]
    return replace(counting.work, kept=kept)


def extent(tensor: Tensor) -> int:
    """Return the bytes of a tensor in memory: expanded dimensions count once.

    >>> extent(torch.zeros(3, 1).expand(3, 5))
    12
    """
    number = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        number *= 1 if stride == 0 else size
    return number * tensor.element_size()


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _mutated(func: Any, args: Any, kwargs: Any) -> Iterable[Any]:
    """Yield the arguments that an operation writes to."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield args[position] if position < len(args) else kwargs.get(argument.name)


def _read(func: Any, args: Any, inputs: list[Tensor], mutated: list[Tensor]) -> int:
    kind = func.overloadpacket
    counted = {_place(tensor): extent(tensor) for tensor in inputs}
    if kind in PICKS:
        counted[_place(args[0])] = args[PICKS[kind]].numel() * args[0].element_size()
    if kind in SCATTERS:
        counted[_place(args[0])] = args[2].numel() * args[0].element_size() if kind is aten.scatter_add_ else 0
    if kind in SHAPE_ONLY:
        counted.pop(_place(args[SHAPE_ONLY[kind]]), None)
    if kind in ONLY_WRITES:
        counted.pop(_place(mutated[0]), None)
    return sum(counted.values())


def _written(func: Any, args: Any, tensors: list[Tensor]) -> int:
    if func.overloadpacket in SCATTERS:
        return int(args[2].numel() * args[0].element_size())
    return sum({_place(tensor): extent(tensor) for tensor in tensors}.values())


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return _storage(tensor), tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
