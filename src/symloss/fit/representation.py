"""What learners see of images: their pixels or the features of an encoder, whichever predicts noisy labels better."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]

from symloss import checks
from symloss.data.dataset import Examples, ImageFiles
from symloss.data.images import RESIDENT_BYTES, chosen_size, stack_images
from symloss.encoders.features import Function, encode, loaded
from symloss.encoders.images import Features, Progress, image_array, lite0_packages
from symloss.encoders.names import LITE0, check_encoder, check_named, installed, kind
from symloss.encoders.pictures import SUFFIXES, NotAnImage, look
from symloss.extras import MissingExtraError
from symloss.fit.choice import Epochs, Judged, judged
from symloss.fit.held_out import LearnerFailed, Trainer, network_predictions
from symloss.fit.learners import Candidate
from symloss.fit.networks import SMALLEST_SIDE, NetworkSchedule, chosen_model
from symloss.fit.search import Memory
from symloss.fit.training_data import (
    LARGEST,
    UNEQUAL,
    Floats,
    Rows,
    Split,
    TrainingData,
    balanced_weights,
    features_of,
    folds,
    number_of_folds,
    rows_held_out,
)
from symloss.training.progress import ProgressLines

PIXELS = "pixels"
SAMPLE, SMALL, MOST = 1_000, 1_500, 4_000
"""Images that are encoded to choose: at first, at first if there are no more, and for the comparison with a network."""
CLEAR, ERRORS = 0.1, 3.0
"""A lead in accuracy on noisy labels, and in paired standard errors. What exceeds both, no network makes up for."""
SMALL_SIDE = 32
"""Pixels of a side, at most, for the learners that stand for pixels on the sample."""
PHOTO_SIDE = 64
"""Images of at least this many pixels a side, or in colour, are taken for photos."""
EPOCHS = 10
ON_FEATURES = (
    Candidate("logistic", (("C", 0.001),), "standard"),
    Candidate("logistic", (("C", 0.01),), "standard"),
    Candidate("lda", (), "standard"),
)
ON_PIXELS = (
    Candidate("unhinged", (), "raw"),
    Candidate("logistic", (("C", 0.001),), "standard"),
    Candidate("logistic", (("C", 0.01),), "standard"),
    Candidate("k-nn", (("neighbours", 15),), "raw"),
    Candidate("svc", (("C", 1.0), ("gamma", 1.0)), "raw"),
)
HINT = (
    "These look like photos: pip install 'symloss[images]' brings features of a pretrained network, which usually help "
    'with photos (--encoder none, or encoder="none", keeps pixels without this line)'
)


class Comparison(NamedTuple):
    """How well pixels and features predict noisy labels of held-out images."""

    encoder: str  # whose features they are
    features: float  # the noisy accuracy of the best learner on features
    pixels: float  # that of the best learner on pixels
    features_by: str  # the learner, in words
    pixels_by: str  # the learner, in words
    images: int  # how many were held out
    better: bool  # whether features lead by more than a paired standard error: pixels need no encoder later


@dataclass(frozen=True, eq=False)
class Images:
    """Images as encoders and as other learners see them.

    Args:
        examples: what an encoder is given: paths, or uint8 images (N, C, height, width); None for other numbers.
        shape: of the pixels of one image, (C, height, width).
        given: (N, C, height, width), the pixels if they are not made from ``examples``.
        same_size: whether image files are those of one size; new ones of others are resized to it.
    """

    examples: tuple[Path, ...] | NDArray[Any] | None
    shape: tuple[int, ...]
    given: NDArray[Any] | None = None
    same_size: bool = True

    def __len__(self) -> int:
        held: Any = self.given if self.examples is None else self.examples
        return len(held)

    @property
    def pixel_bytes(self) -> int:
        """Memory for the pixels."""
        return 4 * len(self) * int(np.prod(self.shape))

    def take(self, rows: Rows) -> Any:
        """Return what an encoder is given of some images."""
        assert self.examples is not None
        return self.examples[rows] if isinstance(self.examples, np.ndarray) else [self.examples[row] for row in rows]

    def pixels(self) -> Any:
        """Return the pixels (N, C, height, width), between 0 and 1 if they come from files or bytes."""
        if self.given is not None:
            return self.given
        if isinstance(self.examples, np.ndarray):
            return np.divide(self.examples, np.float32(255), dtype=np.float32)
        assert self.examples is not None
        if self.same_size:
            return stack_images(self.examples, self.shape, resize=True).float().div_(255).numpy()
        return _decoded(self.examples, self.shape[1])

    def small(self, rows: Rows) -> NDArray[np.float32]:
        """Return the pixels (n, d) of some images, shrunk to at most 32 a side."""
        size = tuple(min(side, SMALL_SIDE) for side in self.shape[1:])
        if self.given is None and not isinstance(self.examples, np.ndarray):
            return _decoded(self.take(rows), max(size)).reshape(len(rows), -1)
        held = self.given if self.given is not None else self.examples
        assert isinstance(held, np.ndarray)
        pixels = torch.from_numpy(held[rows].astype(np.float32))
        shrunk = pixels if pixels.shape[2:] == size else F.interpolate(pixels, size, mode="bilinear", antialias=True)
        return shrunk.flatten(1).numpy()


def _decoded(paths: Sequence[Path], side: int) -> NDArray[np.float32]:
    return features_of(Examples(ImageFiles(tuple(paths)), torch.zeros(len(paths), dtype=torch.int64)), side)


def image_files(values: Any) -> tuple[Path, ...] | None:
    """Return a list, an array or a Series of paths, or of texts that all end as image files do, as paths; else None.

    >>> image_files(["cat.png", "dog.JPG"]), image_files(["a cat", "a dog"])
    ((PosixPath('cat.png'), PosixPath('dog.JPG')), None)
    """
    if not isinstance(values, list | tuple):  # as column_of_texts, which would take paths for sentences
        if getattr(getattr(values, "dtype", None), "kind", "O") not in "OUT" or hasattr(values, "columns"):
            return None
        values = np.asarray(values, object)
        if values.shape not in ((values.size,), (values.size, 1)):
            return None
        values = values.ravel().tolist()
    if not len(values) or not all(isinstance(each, str | PurePath) for each in values):
        return None
    named = all(isinstance(each, str) and "\n" not in each and Path(each).suffix.lower() in SUFFIXES for each in values)
    return tuple(map(Path, values)) if named or any(isinstance(each, PurePath) for each in values) else None


def is_image_array(values: Any) -> bool:
    """Return whether this is an array of images (N, C, height, width), grey or in RGB."""
    return (
        isinstance(values, np.ndarray) and values.ndim == 4 and values.shape[1] in (1, 3) and values.dtype.kind in "uif"
    )


def images_of_files(paths: tuple[Path, ...], size: int | None = None) -> Images:
    """Return image files. Without a size, those of several sizes are resized as ``symloss fit`` resizes them."""
    looks = []
    for path in paths:
        try:
            looks.append(look(path))
        except NotAnImage as reason:
            raise ValueError(f"X must hold images that can be read; {path} is {reason}") from None
    sides = [(found.height, found.width) for found in looks]
    channels = 1 if all(found.grey for found in looks) else 3
    fits = len(sides) * channels * max(height * width for height, width in sides) <= RESIDENT_BYTES
    side = chosen_size(size, sides, fits)
    return Images(paths, (channels, *sides[0])) if side is None else Images(paths, (3, side, side), same_size=False)


def images_of_array(values: NDArray[Any], given: NDArray[Any] | None) -> Images:
    """Return an array of images, which an encoder may see if its numbers are bytes or lie between 0 and 1."""
    unit = values.dtype.kind == "f" and values.size and values.min() >= 0 and values.max() <= 1
    fits = values.dtype == np.uint8 or unit
    examples = image_array(values) if fits or given is None else None  # raises an error that says what fits
    return Images(examples, tuple(values.shape[1:]), given)


def images_of(examples: Examples, size: int | None) -> Images | NDArray[np.float32]:
    """Return the inputs of a data set: images, or features (N, d)."""
    inputs, positions = examples.inputs, examples.positions
    if isinstance(inputs, ImageFiles):
        assert size is not None
        places = range(len(inputs)) if positions is None else positions.tolist()
        return Images(tuple(inputs.paths[place] for place in places), (3, size, size), same_size=False)
    if inputs.dim() != 4 or inputs.dtype != torch.uint8 or inputs.shape[1] not in (1, 3):
        return features_of(examples, size)
    chosen = inputs if positions is None else inputs[positions]
    return Images(chosen.numpy(), tuple(inputs.shape[1:]))


def check_choice(encoder: object, reads: str) -> None:
    """Raise an error unless this encoder fits the data: "images", "texts", a "table" or "numbers"."""
    holds = {"images": "images", "texts": "texts", "table": "a table", "numbers": "numbers"}[reads]
    if not isinstance(encoder, str):
        if not callable(encoder):
            raise TypeError(
                f'`encoder` must be "auto", "none", the name of an encoder, or a function; got {checks.brief(encoder)}'
            )
        if reads not in ("images", "texts"):
            raise ValueError(f"a function as `encoder` must be given images or a list of texts; X holds {holds}")
        return
    if encoder == "none" and reads == "texts":
        raise ValueError("encoder 'none' leaves texts out, and X holds nothing else: use 'auto', 'minilm' or 'tfidf'")
    if encoder in ("auto", "none"):
        return
    wanted = kind(encoder)
    if reads == "numbers":
        raise ValueError(f"encoder {encoder!r} reads {wanted}, but X holds numbers: leave `encoder` out")
    if wanted != ("images" if reads == "images" else "texts"):
        use = f"{LITE0!r} or 'timm:NAME'" if reads == "images" else "'minilm' or 'tfidf'"
        raise ValueError(f"encoder {encoder!r} reads {wanted}, but X holds {holds}: use {use}")
    check_encoder(encoder)


@dataclass(frozen=True)
class Representation:
    """What learners see of images or texts, also of new ones."""

    encoder: str | Function | None  # whose features they see; None for pixels
    identity: str | None = None  # of an encoder by name: it changes with the weights
    comparison: Comparison | None = None  # with what was not chosen, if they were compared
    shape: tuple[int, ...] = ()  # of the pixels, (C, height, width)
    of_files: bool = False  # whether pixels were read from files
    same_size: bool = True  # whether files had one size, to which new ones are resized

    @property
    def name(self) -> str:
        """``"pixels"``, or the name of the encoder."""
        if self.encoder is None or isinstance(self.encoder, str):
            return self.encoder or PIXELS
        return str(getattr(self.encoder, "__name__", type(self.encoder).__name__))

    def of_new(
        self, given: Any, device: str = "auto", n_jobs: int | None = None, progress: Progress | None = None
    ) -> Any:
        """Return what learners see of new images: files or an array."""
        files = image_files(given)
        if self.encoder is not None:
            examples = given if files is None else files
            return features_by(self.encoder, examples, device, n_jobs, self.identity, progress=progress)
        if files is None:
            return given / np.float32(255) if self.of_files and given.dtype == np.uint8 else given
        if not self.of_files:
            raise ValueError(f"X must hold arrays {self.shape} as in fit; got files")
        return Images(files, self.shape, same_size=self.same_size).pixels()

    def facts(self) -> dict[str, Any]:
        """Return the name, the identity and the comparison, for JSON."""
        found = None if self.comparison is None else self.comparison._asdict()
        return {"name": self.name, "identity": self.identity, "comparison": found}

    def to_document(self) -> dict[str, str] | None:
        """Return what :meth:`from_document` reads: None for pixels."""
        if self.encoder is None:
            return None
        if not isinstance(self.encoder, str) or self.identity is None:
            raise ValueError(f"a model that is saved must have an encoder by name; got the function {self.name}")
        return {"name": self.encoder, "identity": self.identity}

    @classmethod
    def from_document(cls, document: Any, where: object, named: str | None = None) -> Representation:
        """Read the document of a fit, which may be somebody else's.

        Weights from elsewhere are loaded only if the user has ``named`` their encoder too.
        """
        if document is None:
            check_named(None, where, named)
            return cls(None)
        found = checks.record(where, document, {"name": "str", "identity": "str"})
        check_named(found["name"], where, named)
        check_choice(found["name"], "images")
        return cls(found["name"], found["identity"])


def features_folder(memory: str | Path | None) -> Path | None:
    """Return the folder, inside the memory of a fit, that keeps features."""
    return None if memory is None else Path(memory) / "features"


def features_by(
    encoder: str | Function,
    examples: Any,
    device: str = "auto",
    n_jobs: int | None = None,
    identity: str | None = None,
    **more: Any,
) -> Features:
    """Encode images or texts. An encoder of another ``identity`` than the one that is expected is refused."""
    if not isinstance(encoder, str):
        return encode(examples, encoder, progress=more.get("progress"))
    if identity is not None and (found := loaded(encoder, device).identity) != identity:
        raise ValueError(
            f"encoder {encoder!r} must have the weights that it had in fit, {identity}; got {found}: install that "
            "version, or fit again"
        )
    return encode(examples, encoder, device, n_jobs=n_jobs or 1, **more)


@dataclass(frozen=True, eq=False)
class Chooser:
    """Chooses what learners see of images, and makes it."""

    images: Images
    noisy: Rows
    num_classes: int
    weights: Floats | None
    seed: int
    device: str
    jobs: int | None
    progress: ProgressLines
    memory: Path | None

    def pixels(self, comparison: Comparison | None = None) -> tuple[Any, Representation]:
        """Return the pixels (N, C, height, width)."""
        images = self.images
        of_files = isinstance(images.examples, tuple)
        found = Representation(None, None, comparison, images.shape, of_files, images.same_size)
        return images.pixels(), found

    def encoded(self, encoder: str | Function) -> tuple[Any, Representation]:
        """Return the features (N, d) by an encoder that the user has chosen."""
        features = Encoded(self, encoder).of(np.arange(len(self.images)))
        return features, Representation(encoder, self._identity(encoder), None, self.images.shape)

    def chosen(self, *, with_networks: bool) -> tuple[Any, Representation]:
        """Return the pixels or features, whichever predicts noisy labels better."""
        images = self.images
        if images.examples is None or min(images.shape[1:]) < SMALLEST_SIDE:
            return self.pixels()
        if not installed(LITE0):
            if images.shape[0] == 3 or min(images.shape[1:]) >= PHOTO_SIDE:
                warnings.warn(HINT, stacklevel=6)
            return self.pixels()
        try:
            lite0_packages()
        except MissingExtraError as reason:
            warnings.warn(f"{reason}. Until then pixels are learnt from", stacklevel=6)
            return self.pixels()
        encoded = Encoded(self, LITE0)
        comparison = self._compared(encoded, with_networks)
        self.progress.phase(
            f"learning from {'features' if comparison.better else 'pixels'}: noisy accuracy on held-out images by "
            f"{LITE0} {100 * comparison.features:.1f} %, pixels {100 * comparison.pixels:.1f} %"
        )
        if not comparison.better:
            return self.pixels(comparison)
        features = encoded.of(np.arange(len(images)))
        return features, Representation(LITE0, self._identity(LITE0), comparison, images.shape)

    def _identity(self, encoder: str | Function) -> str | None:
        return loaded(encoder, self.device).identity if isinstance(encoder, str) else None

    def _compared(self, encoded: Encoded, with_networks: bool) -> Comparison:
        """Compare on a sample; where that is not clear, on more images, with the small network for pixels."""
        order = stratified(self.noisy, self.seed)
        rows = np.sort(order[: SAMPLE if len(order) > SMALL else SMALL])
        about = [self._state(), encoded.of(rows), self.noisy, self._row_weights, self.seed, with_networks]
        memory = Memory(self.memory, about)
        kept = memory.recall("representation")
        if kept is not None:
            return Comparison(**{name: kept[name].item() for name in Comparison._fields})
        features, pixels = self._on_sample(encoded, rows)
        lead, error = pixels.gap(features)
        if (lead <= max(CLEAR, ERRORS * error)) and with_networks and not self._too_large:
            rows = np.sort(order[:MOST])
            features, pixels = self._against_network(encoded, rows)
            lead, error = pixels.gap(features)
        found = Comparison(
            str(encoded.encoder),
            features.score,
            pixels.score,
            features.candidate.name,
            pixels.candidate.name,
            len(features.right),
            self._too_large or lead > error,
        )
        memory.keep("representation", {name: np.array(value) for name, value in found._asdict().items()})
        return found

    def _on_sample(self, encoded: Encoded, rows: Rows) -> tuple[Judged, Judged]:
        """Return the best learner on features and the best on pixels, on the same folds of some images."""
        noisy = self.noisy[rows]
        counts = np.bincount(noisy)
        splits = folds(noisy, number_of_folds(int(counts[counts > 0].min()), "auto", len(noisy)), self.seed)
        return (
            self._best(ON_FEATURES, encoded.of(rows), rows, splits, "comparing learners on features"),
            self._best(ON_PIXELS, self.images.small(rows), rows, splits, "comparing learners on pixels"),
        )

    def _against_network(self, encoded: Encoded, rows: Rows) -> tuple[Judged, Judged]:
        """Return the best learner on features of some images, and the network on the pixels of all, on one fold."""
        first = folds(self.noisy[rows], 5, self.seed)[0]
        features = self._best(ON_FEATURES, encoded.of(rows), rows, (first,), "comparing learners on features")
        held_out = rows[first.held_out]
        split = Split(np.setdiff1d(np.arange(len(self.noisy)), held_out), held_out)
        pixels = self.images.pixels().reshape(len(self.noisy), -1)
        model = chosen_model("auto", self.images.shape, self.num_classes)
        assert model is not None
        epochs = min(EPOCHS, NetworkSchedule.of(len(split.train)).epochs)
        candidate = Candidate("network", (("decay", 1e-3), ("epochs", epochs)), "channels", "gce", model.model)
        trainer = self._trainer(pixels, np.arange(len(self.noisy)), self.images.shape)
        networks, running = trainer.networks([candidate], [split]), Epochs(candidate, trainer.data, held_out)
        for epoch in range(1, epochs + 1):
            networks.train_epoch()
            running.add(network_predictions(networks, [split])[0])
            self.progress.step("comparing features with a network on pixels, epoch", epoch, epochs)
        return features, running.result()

    def _best(
        self, candidates: Sequence[Candidate], features: Any, rows: Rows, splits: Sequence[Split], what: str
    ) -> Judged:
        trainer = self._trainer(features, rows)
        found, failure = [], None
        for number, candidate in enumerate(candidates, 1):
            # One after the other: where there are few images, another process takes longer to start.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                result = next(trainer.predictions([candidate], splits))
            self.progress.step(what, number, len(candidates))
            if isinstance(result, LearnerFailed):
                failure = result
            else:
                found.append(judged(candidate, result, trainer.data, rows_held_out(splits)))
        if not found:
            assert failure is not None
            raise failure
        return max(found, key=lambda one: one.score)

    def _trainer(self, features: Any, rows: Rows, shape: tuple[int, ...] | None = None) -> Trainer:
        weights = None if self._row_weights is None else self._row_weights[rows]
        data = TrainingData(features, self.noisy[rows], self.num_classes, shape, weights, balanced=False)
        return Trainer(data, self.seed, None, self.progress, self.device)

    @functools.cached_property
    def _row_weights(self) -> Floats | None:
        """The weight of each row, as in the fit. Samples have the same."""
        counts = np.bincount(self.noisy)
        unequal = counts.max() > UNEQUAL * counts.min()
        return balanced_weights(self.noisy, self.weights) if unequal else self.weights

    @property
    def _too_large(self) -> bool:
        """Whether the pixels of image files do not fit into memory."""
        return isinstance(self.images.examples, tuple) and self.images.pixel_bytes > LARGEST

    def _state(self) -> Any:
        """Return what changes with the images."""
        examples = self.images.examples
        if not isinstance(examples, tuple):
            return examples
        states = ((path, path.stat()) for path in examples)
        return [(str(path), state.st_size, state.st_mtime_ns) for path, state in states]


class Encoded:
    """Features of images by one encoder, each encoded when it is first needed."""

    def __init__(self, chooser: Chooser, encoder: str | Function) -> None:
        self.chooser, self.encoder = chooser, encoder
        self.features: Features | None = None
        self.there = np.zeros(len(chooser.images), np.bool_)

    def of(self, rows: Rows) -> Features:
        """Return the features (n, d) of some images."""
        missing = rows[~self.there[rows]]
        if len(missing):
            found = self._encode(missing)
            if self.features is None:
                self.features = np.empty((len(self.there), found.shape[1]), np.float32)
            self.features[missing], self.there[missing] = found, True
        assert self.features is not None
        return self.features[rows]

    def _encode(self, rows: Rows) -> Features:
        chooser = self.chooser
        before, total = int(self.there.sum()), int(self.there.sum()) + len(rows)
        name = Representation(self.encoder).name

        def progress(done: int, _: int) -> None:
            chooser.progress.step(f"encoding with {name}, image", before + done, total)

        examples, cache = chooser.images.take(rows), features_folder(chooser.memory)
        return features_by(self.encoder, examples, chooser.device, chooser.jobs, progress=progress, cache=cache)


def stratified(labels: Rows, seed: int) -> Rows:
    """Return the numbers of all rows in an order whose beginnings have the classes in equal shares.

    >>> np.bincount(np.repeat([0, 1], [90, 10])[stratified(np.repeat([0, 1], [90, 10]), seed=0)[:20]])
    array([18,  2])
    """
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(labels))
    place = np.empty(len(labels))
    for label in np.unique(labels):
        rows = shuffled[labels[shuffled] == label]
        place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    order: Rows = shuffled[np.argsort(place[shuffled], kind="stable")]
    return order
