"""Batches of a data set, epoch after epoch. Order and augmentation can be repeated exactly.

The batches of epoch 7 depend on the seed and on the number 7 alone. So a run that was killed continues as if nothing
had happened, and several processes agree without communication.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from symloss import checks
from symloss.data.augment import Augmentation, fit, pixels
from symloss.data.dataset import Examples, ImageFiles, Scaling
from symloss.data.images import RESIDENT_BYTES
from symloss.data.source import HINT
from symloss.encoders.pictures import NotAnImage, picture

_ORDER, _AUGMENTATION = 0, 1
"""Separate streams of random numbers for the same seed and epoch."""


class Batch(NamedTuple):
    """One process's share of a batch: inputs, which examples they are, and the size of the batch over all processes."""

    inputs: Tensor
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    total: int


EVALUATION_BATCH = 256
"""Examples in a batch of an evaluation. The number changes no result."""


class Batches:
    """Normalised inputs on the device, batch by batch.

    Tensors are moved to the device once. Images in files are decoded by ``workers`` processes and resized to ``size``
    by ``size`` pixels. Each batch of ``batch`` examples is cut into ``world`` neighbouring shares, as equal as can be.
    This process gets share number ``rank``. In the last, smaller batch a share may be empty.

    >>> digits = Examples(torch.arange(20, dtype=torch.uint8).view(5, 1, 2, 2), torch.zeros(5, dtype=torch.int64))
    >>> batches = Batches(digits, batch=2, scaling=Scaling((0.5,), (0.5,)), shuffle=False, seed=0, device="cpu")
    >>> [batch.index.tolist() for batch in batches.epoch(0)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        examples: Examples,
        *,
        batch: int,
        scaling: Scaling,
        augmentation: tuple[str, ...] = (),
        shuffle: bool,
        seed: int,
        device: torch.device | str,
        rank: int = 0,
        world: int = 1,
        size: int | None = None,
        workers: int = 0,
        channels_last: bool = False,
    ):
        self.count, self.shuffle, self.device = len(examples), shuffle, torch.device(device)
        self.world = int(checks.number("world", world, "[1, inf)", whole=True))
        self.rank = int(checks.number("rank", rank, f"[0, {world})", whole=True))
        self.batch = int(checks.number("batch", batch, f"[{world}, inf)", whole=True))
        self.seed = int(checks.number("seed", seed, "[0, inf)", whole=True))
        self._positions = None if examples.positions is None else examples.positions.to(self.device)
        steps = Augmentation.parse(augmentation) if augmentation else None
        self._source: Resident | Streamed
        if isinstance(examples.inputs, ImageFiles):
            self._source = Streamed(examples.inputs, steps, self.device, size, workers)
        else:
            self._source = Resident(examples.inputs.to(self.device), steps)
        shape, unit = self._source.shape, 255 if self._source.dtype == torch.uint8 else 1  # bytes stand for 0 to 1
        if not len(scaling.mean) == len(scaling.std) == shape[0]:
            raise ValueError(
                f"scaling must have a mean and a std for each of {shape[0]} channels or features; "
                f"got {len(scaling.mean)} and {len(scaling.std)}"
            )
        if not all(std > 0 for std in scaling.std):
            raise ValueError(f"scaling must have every std above 0; got {checks.brief(scaling.std)}")
        both = unit * torch.tensor([scaling.mean, scaling.std], dtype=torch.float64)
        mean, std = both.view(2, -1, *(1 for _ in shape[1:]))
        self._shift, self._factor = (values.to(torch.float32).to(self.device) for values in (mean, 1 / std))
        self._channels_last = channels_last and len(shape) == 3

    def __len__(self) -> int:
        """Return how many batches an epoch has."""
        return math.ceil(self.count / self.batch)

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of an epoch. Every call with the same number gives the same batches."""
        number = int(checks.number("epoch", number, "[0, inf)", whole=True))
        starts = range(0, self.count, self.batch)
        shares = [self._share(start) for start in starts]
        order = torch.arange(self.count)
        if self.shuffle:
            order = torch.randperm(self.count, generator=generator(self.seed, number, _ORDER))
        order = order.to(self.device)
        places = order if self._positions is None else self._positions[order]
        loaded = self._source.load(places, shares, self.seed, number)
        for start, share, raw in zip(starts, shares, loaded, strict=True):
            yield Batch(self._normalise(raw), order[share], min(self.batch, self.count - start))

    def _normalise(self, raw: Tensor) -> Tensor:
        """Turn raw inputs into float32 and scale them: (x - mean) / std. Overwrites its input."""
        scaled = raw.to(torch.float32).sub_(self._shift).mul_(self._factor)
        # Only now: broadcasting over channels that lie last takes several times as long.
        return scaled.contiguous(memory_format=torch.channels_last) if self._channels_last else scaled

    def _share(self, start: int) -> slice:
        """Return the part of a batch that this process gets, as positions in the epoch's order."""
        total = min(self.batch, self.count - start)
        # Rounded up, so that a lone example goes to rank 0.
        first, last = (-(-total * rank // self.world) for rank in (self.rank, self.rank + 1))
        return slice(start + first, start + last)


def generator(seed: int, *key: int) -> torch.Generator:
    """Return a random generator for a seed and a key. The global random state is not used."""
    state = np.random.SeedSequence(seed, spawn_key=key).generate_state(1)
    return torch.Generator().manual_seed(int(state[0]))


class Resident:
    """Inputs that are on the device."""

    def __init__(self, inputs: Tensor, augmentation: Augmentation | None):
        if inputs.dtype != torch.uint8 and not inputs.is_floating_point():
            raise TypeError(f"inputs must be uint8 images or floating-point features; got {inputs.dtype}")
        if inputs.dim() < 2 or (augmentation is not None and inputs.dim() != 4):
            wanted = "(N, C, H, W), to be augmented" if augmentation is not None else "(N, d) or (N, C, H, W)"
            raise ValueError(f"inputs must have shape {wanted}; got {tuple(inputs.shape)}")
        self.inputs, self.augmentation = inputs, augmentation
        self.shape, self.dtype = tuple(inputs.shape[1:]), inputs.dtype

    def load(self, order: Tensor, shares: list[slice], seed: int, epoch: int) -> Iterator[Tensor]:
        """Yield the augmented inputs of each share of an epoch."""
        steps = self.augmentation
        # Copies, which the normaliser may write to.
        raw = (self.inputs.index_select(0, order[share]) for share in shares)
        if steps is None:
            return raw
        drawn = steps.draw(len(order), generator(seed, epoch, _AUGMENTATION))
        return (steps.apply(images, drawn[share]) for images, share in zip(raw, shares, strict=True))


class Streamed:
    """Images in files, decoded when they are needed."""

    dtype = torch.uint8

    def __init__(
        self, files: ImageFiles, augmentation: Augmentation | None, device: torch.device, size: int | None, workers: int
    ):
        self.size = int(checks.number("size", size, "[1, inf)", whole=True))
        self.workers = int(checks.number("workers", workers, "[0, inf)", whole=True))
        if augmentation is not None and augmentation.size not in (None, self.size):
            raise ValueError(f"size must be that of the resized-crop, {augmentation.size}; got {size}")
        self.paths, self.augmentation, self.device = files.paths, augmentation, device
        self.shape = (3, self.size, self.size)
        # Images of earlier epochs, if they fit into memory. Processes that decode images share none with this one.
        fit_into_memory = 3 * self.size**2 * len(files) <= RESIDENT_BYTES
        self.resized = files.resized if fit_into_memory and not workers else None

    def load(self, order: Tensor, shares: list[slice], seed: int, epoch: int) -> Iterator[Tensor]:
        """Yield the augmented inputs of each share of an epoch."""
        loader: DataLoader[Any] = DataLoader(
            [order[share].tolist() for share in shares],  # type: ignore[arg-type]  # a list is a data set
            batch_size=None,
            collate_fn=functools.partial(self._decode, seed, epoch),
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
            # Without one the loader draws from the global random state.
            generator=torch.Generator(),
        )
        for images in loader:
            if isinstance(images, ValueError):
                raise images
            yield images.to(self.device, non_blocking=True)

    def _decode(self, seed: int, epoch: int, share: list[int]) -> Tensor | ValueError:
        """Return a share. An error is returned too: raised in a worker, it would bring a traceback of many lines."""
        images = torch.empty(len(share), *self.shape, dtype=self.dtype)
        try:
            for place, index in enumerate(share):
                images[place] = self._image(seed, epoch, index)
        except ValueError as error:
            return error
        return images

    def _image(self, seed: int, epoch: int, index: int) -> Tensor:
        steps = self.augmentation
        if steps is None:
            return self._fitted(index)
        image = self._fitted(index) if steps.size is None else pixels(_decoded(self.paths[index]))
        drawn = steps.draw(1, generator(seed, epoch, _AUGMENTATION, index))
        return steps.apply(image[None], drawn)[0]

    def _fitted(self, index: int) -> Tensor:
        """Return the pixels of an image, resized. Decoding is slow, so it is done once if memory allows."""
        if self.resized is not None and (self.size, index) in self.resized:
            return self.resized[self.size, index]
        image = pixels(fit(_decoded(self.paths[index]), self.size)).contiguous()
        if self.resized is not None:
            self.resized[self.size, index] = image
        return image


def _decoded(path: Path) -> Image.Image:
    try:
        return picture(path)
    except NotAnImage as reason:
        raise ValueError(f"{path} cannot be decoded as an image: {reason} {HINT}") from None
