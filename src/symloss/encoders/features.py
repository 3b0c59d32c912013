"""Features of images or texts, by any encoder: ``encode``."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symloss import checks
from symloss.encoders.cache import FeatureCache
from symloss.encoders.images import (
    Features,
    ImageEncoder,
    Progress,
    check_shape,
    decoded,
    image_array,
    image_encoder,
)
from symloss.encoders.names import LITE0, TFIDF, kind
from symloss.encoders.pictures import SUFFIXES
from symloss.own_code import own_code

Examples = tuple[Path, ...] | tuple[str, ...] | NDArray[Any]
Function = Callable[[Any], Any]

FLUSH = 256
"""Examples between two writes of the cache, at least."""
AT_ONCE = 64
"""Images that a worker process encodes at a time, at least."""
OWN_BATCH = 64
"""Examples that a function of the user's own is called with, unless ``batch`` says otherwise."""


class Encoder(Protocol):
    """What encoders of images and of texts have in common."""

    name: str

    @property
    def identity(self) -> str:
        """A text that changes with the features."""

    @property
    def width(self) -> int:
        """How many features an example has."""

    def transform(self, examples: Any, progress: Progress | None = None) -> Features:
        """Return the features (N, width)."""


def encode(
    data: Iterable[object] | NDArray[Any] | Tensor,
    encoder: str | Function = "auto",
    device: str = "auto",
    batch: int | None = None,
    cache: str | Path | None = None,
    progress: Progress | None = None,
    n_jobs: int | None = None,
) -> Features:
    """Turn images or texts into features.

    Args:
        data: a list of image files (``pathlib.Path``, or strings that all end as image files do); images
            (N, C, height, width) with 1 or 3 channels, in uint8 or in floats from 0 to 1; or a list of texts.
        encoder: "auto", which is "efficientnet-lite0" for images and "minilm" or "tfidf" for texts; the name of another
            encoder, see :func:`symloss.encoders.kind`; or a function. It is called with a list of RGB images of Pillow,
            with a part of the array, or with a list of texts, and returns numbers (n, d).
        device: such as "cpu" or "cuda"; "auto" takes a GPU where there is one.
        batch: how many examples are encoded at a time; None chooses by encoder and device.
        cache: a folder that keeps the features of each example by its content, for this encoder. After an interruption,
            or when examples were added or changed, only those that are missing are encoded. "tfidf" keeps none.
        progress: called with the number of examples that are done, and of all.
        n_jobs: worker processes that share images on a CPU, each with one thread (does not change the result). None
            encodes in this process, with all of its threads: their number may change the last digit.

    Returns:
        Features (N, d) in float32, in the order of the data.

    Raises:
        ValueError: if the encoder does not fit the data, or a file cannot be read as an image.

    >>> images = np.zeros((3, 1, 28, 28), dtype=np.uint8)
    >>> encode(images, "efficientnet-lite0", device="cpu").shape
    (3, 1280)
    >>> encode(["good", "not bad"], lambda texts: [[len(text)] for text in texts])
    array([[4.],
           [7.]], dtype=float32)
    """
    examples = _recognised(data)
    if not len(examples):
        raise ValueError("`data` must hold at least one example; got none")
    reads = "texts" if isinstance(examples[0], str) else "images"
    if callable(encoder):
        if cache is not None:
            raise ValueError("`cache` needs an encoder by name: nobody can tell whether a function is still the same")
        size = OWN_BATCH if batch is None else int(checks.number("batch", batch, "[1, inf)", whole=True))
        return _by_function(examples, encoder, size, progress)
    name = _chosen(encoder, reads)
    if reads == "texts":
        from symloss.encoders.texts import text_encoder  # noqa: PLC0415

        found: Encoder = text_encoder(name, device=device, batch=batch).fit(list(map(str, examples)))
    else:
        examples = image_array(examples) if isinstance(examples, np.ndarray) else examples
        found = image_encoder(name, device, batch) if n_jobs is None else SharedEncoder(name, device, batch, n_jobs)
    flush = found.at_once if isinstance(found, SharedEncoder) else batch or 0
    return transformed(examples, found, cache, progress, max(FLUSH, flush))


@functools.lru_cache(maxsize=1)
def loaded(name: str, device: str, batch: int | None = None) -> ImageEncoder:
    """Return an encoder of images. The last one stays in memory, also in worker processes."""
    return image_encoder(name, device, batch)


class SharedEncoder:
    """An encoder of images whose work is shared by processes, each with one thread of torch.

    Inside ``joblib.parallel_config`` another backend than processes of this machine can be used, such as Ray's. A GPU
    is not shared.
    """

    def __init__(self, name: str, device: str, batch: int | None, n_jobs: int) -> None:
        self.name, self.arguments = name, (name, device, batch)
        found = loaded(*self.arguments)
        self.identity, self.width = found.identity, found.width
        self.chunk = -(-AT_ONCE // found.batch) * found.batch
        self.n_jobs = n_jobs if found.device.type == "cpu" else 1

    @property
    def at_once(self) -> int:
        """How many images keep all processes at work."""
        import joblib  # type: ignore[import-untyped]  # noqa: PLC0415

        return 2 * self.chunk * int(joblib.effective_n_jobs(self.n_jobs))

    def transform(self, examples: Any, progress: Progress | None = None) -> Features:
        """Return the features (N, width)."""
        import joblib  # noqa: PLC0415

        parts = [examples[start : start + self.chunk] for start in range(0, len(examples), self.chunk)]
        backend, _ = joblib.parallel.get_active_backend()
        lists = self.n_jobs != 1 and not backend.supports_return_generator  # Ray's gives all results at once
        jobs = self.n_jobs if len(parts) > 1 else 1
        work = (joblib.delayed(_by_one_thread)(part, *self.arguments) for part in parts)
        features = np.empty((len(examples), self.width), dtype=np.float32)
        done = 0
        for part in joblib.Parallel(n_jobs=jobs, return_as="list" if lists else "generator")(work):
            features[done : done + len(part)] = part
            done += len(part)
            if progress is not None:
                progress(done, len(examples))
        return features


def _by_one_thread(images: Any, name: str, device: str, batch: int | None) -> Features:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return loaded(name, device, batch).transform(images)
    finally:
        torch.set_num_threads(before)


def _recognised(data: Iterable[object] | NDArray[Any] | Tensor) -> Examples:
    """Return paths, texts or an array."""
    if isinstance(data, Tensor):
        data = data.detach().cpu()
        data = (data.float() if data.dtype == torch.bfloat16 else data).numpy()
    if isinstance(data, np.ndarray) and data.dtype.kind not in "OUST":
        check_shape(data.shape)
        return data
    if isinstance(data, str | bytes | PurePath):
        raise TypeError(f"`data` must be a list of image files or texts; got {checks.brief(data)} alone")
    listed = list(data)
    for place, each in enumerate(listed):
        if not isinstance(each, str | Path):
            raise TypeError(
                f"`data` must be image files, texts, or an array of images (N, channels, height, width); "
                f"entry {place} is {checks.brief(each)}"
            )
    are_files = any(isinstance(each, Path) for each in listed) or all(_is_named_as_image(each) for each in listed)
    return tuple(map(Path, listed)) if are_files else tuple(map(str, listed))


def _is_named_as_image(text: str) -> bool:
    return "\n" not in text and PurePath(text).suffix.lower() in SUFFIXES


def _chosen(encoder: str, reads: str) -> str:
    """Return the encoder's name, or raise an error unless it reads such data."""
    name = encoder
    if encoder == "auto" and reads == "texts":
        from symloss.encoders.texts import auto_text_encoder  # noqa: PLC0415

        name = auto_text_encoder()
    elif encoder == "auto":
        name = LITE0
    if kind(name) == "images" and reads == "texts":
        raise ValueError(
            f"encoder {name!r} reads images, but `data` holds texts: use 'minilm' or 'tfidf', or name image files by "
            "pathlib.Path"
        )
    if kind(name) == "texts" and reads == "images":
        raise ValueError(f"encoder {name!r} reads texts, but `data` holds images: use {LITE0!r} or 'timm:NAME'")
    return name


def _by_function(examples: Examples, function: Function, batch: int, progress: Progress | None) -> Features:
    name = getattr(function, "__name__", type(function).__name__)
    parts: list[Features] = []
    for start in range(0, len(examples), batch):
        part: Any = examples[start : start + batch]
        if not isinstance(part, np.ndarray):
            part = [decoded(each) if isinstance(each, Path) else each for each in part]
        with own_code(name):
            found = function(part)
        parts.append(_checked(name, found, len(part), parts[0].shape[1] if parts else None))
        if progress is not None:
            progress(start + len(part), len(examples))
    return np.concatenate(parts)


def _checked(name: str, found: Any, count: int, width: int | None) -> Features:
    """Return what a function made of a batch as float32 (count, width)."""
    wanted = f"encoder {name} must return finite numbers ({count}, {'d' if width is None else width})"
    if isinstance(found, Tensor):
        found = found.detach().cpu()
    try:
        features: Features = np.asarray(found, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"{wanted}; got {checks.brief(found)}") from None
    shape = features.shape
    if len(shape) != 2 or shape[0] != count or shape[1] != (width or shape[1]) or not shape[1]:
        raise ValueError(f"{wanted}; got the shape {shape}")
    if not np.isfinite(features).all():
        raise ValueError(f"{wanted}; got {features[~np.isfinite(features)][0]}")
    return features


def transformed(
    examples: Examples,
    encoder: Encoder,
    cache: str | Path | None,
    progress: Progress | None = None,
    flush: int = FLUSH,
    *,
    required: bool = True,
) -> Features:
    """Return the features of examples by an encoder that is ready.

    Args:
        examples: paths, texts or an array of images.
        encoder: of images or texts, fitted.
        cache: a folder for :class:`FeatureCache`, or None. TF-IDF, which is quick and learned from each table, keeps
            nothing.
        progress: called with the number of examples that are done, and of all.
        flush: examples between two writes of the cache.
        required: as in :class:`FeatureCache`.
    """
    if cache is None or encoder.name == TFIDF:
        return encoder.transform(examples, progress)
    digests = [_digest(each) for each in examples]
    store = FeatureCache(Path(cache), encoder.identity, encoder.width, required=required)
    rows = store.read(set(digests))
    missing = [place for digest, place in {digest: i for i, digest in enumerate(digests)}.items() if digest not in rows]
    done = len(examples) - len(missing)
    for start in range(0, len(missing), flush):
        places = missing[start : start + flush]
        features = encoder.transform(_taken(examples, places), _shifted(progress, done + start, len(examples)))
        part = [digests[place] for place in places]
        store.add(part, features)
        rows |= dict(zip(part, features, strict=True))
    if progress is not None and not missing:
        progress(done, done)
    return np.stack([rows[digest] for digest in digests])


def _shifted(progress: Progress | None, before: int, total: int) -> Progress | None:
    return None if progress is None else lambda done, _: progress(before + done, total)


def _taken(examples: Examples, places: Sequence[int]) -> Any:
    return examples[places] if isinstance(examples, np.ndarray) else [examples[place] for place in places]


def _digest(example: Path | str | NDArray[Any]) -> bytes:
    """Return the SHA-256 of what an example holds."""
    if isinstance(example, str):
        return hashlib.sha256(example.encode(errors="surrogatepass")).digest()
    if isinstance(example, np.ndarray):
        return hashlib.sha256(f"{example.shape} ".encode() + example.tobytes()).digest()
    if not example.is_file():
        decoded(example)  # raises the error that says what is wrong
    try:
        with open(example, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise ValueError(f"{example} cannot be read as an image: {error.strerror}") from None
