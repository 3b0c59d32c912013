"""Turn texts into features: sentence embeddings, or TF-IDF of character n-grams where no package for them is installed.

What was learnt is JSON, and weights are safetensors: nothing that is read here can hold code.
"""

from __future__ import annotations

import base64
import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from symloss import checks, extras
from symloss.encoders import minilm
from symloss.encoders.devices import chosen_device
from symloss.encoders.names import HUB, MINILM, TFIDF, missing_package

Features = NDArray[np.float32]
Progress = Callable[[int, int], None]
"""Called with how many texts are encoded, and how many there are."""

TEXT_NAMES = (MINILM, TFIDF)
"""The text encoders by name. ``HUB`` and a name is a model of sentence-transformers."""
BATCH = 32
_AT_ONCE = 8  # batches between two calls of progress
_NOTHING = 1e-6  # a singular value of less than this share of the largest is none
_WIDEST = 2**16  # features of an encoder in a document


class TextEncoder(ABC):
    """What :func:`text_encoder` returns.

    Attributes:
        name: the name that makes this encoder again.
        identity: changes with the weights or with what was learnt; a key for caches.
        width: how many features a text gets.
    """

    name: str

    @property
    @abstractmethod
    def identity(self) -> str:
        """A text that changes with the weights or with what was learnt: a key for caches."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many features a text gets."""

    def fit(self, texts: Sequence[str]) -> TextEncoder:
        """Learn from the training texts, without labels. Sentence embeddings have nothing to learn."""
        return self

    @abstractmethod
    def transform(self, texts: Sequence[str], progress: Progress | None = None) -> Features:
        """Return the features (N, width) of texts. The batch a text is in does not change them, up to rounding."""

    @abstractmethod
    def to_document(self) -> dict[str, Any]:
        """Return all that :func:`text_encoder_from_document` needs, for JSON."""


def text_encoder(name: str, *, device: str = "auto", batch: int | None = None) -> TextEncoder:
    """Return a text encoder.

    Args:
        name: "minilm" (all-MiniLM-L6-v2, 384 features, offline), "tfidf" (TF-IDF of character n-grams, learned from the
            training texts), or "sentence-transformers:NAME": any model of sentence-transformers, by its name on the
            Hugging Face hub, where it is downloaded if need be, or by its folder. Only weights in safetensors are read.
        device: such as "cuda" or "cpu"; "auto" takes a GPU where there is one. TF-IDF ignores it.
        batch: how many texts are encoded at once.

    >>> encoder = text_encoder("tfidf").fit(["the bin is full", "the bus is late", "my bus was late"])
    >>> encoder.transform(["bus", ""]).shape
    (2, 3)
    """
    check_text_encoder(name)
    size = int(checks.number("batch", BATCH if batch is None else batch, "[1, inf)", whole=True))
    if name == "tfidf":
        return TfidfEncoder()
    if (package := missing_package(name)) is not None:
        raise extras.MissingExtraError(extras.missing(f"the text encoder {name}", package))
    return SentenceEncoder(name, device, size)


def check_text_encoder(name: object) -> None:
    """Raise ValueError unless this is the name of a text encoder."""
    if name not in TEXT_NAMES and not (isinstance(name, str) and name.startswith(HUB) and name != HUB):
        known = ", ".join(map(repr, TEXT_NAMES))
        raise ValueError(f"the encoder of texts must be {known} or '{HUB}NAME'; got {checks.brief(name)}")


def auto_text_encoder() -> str:
    """Return the name of the best text encoder whose packages are installed: "minilm", or else "tfidf".

    Warns if they are installed but broken.
    """
    if missing_package(MINILM) is not None:
        return TFIDF
    try:
        minilm.package()
    except extras.MissingExtraError as reason:
        warnings.warn(f"{reason}. Until then texts are encoded by {TFIDF}", stacklevel=2)
        return TFIDF
    return MINILM


def text_encoder_from_document(document: Any, where: object) -> TextEncoder:
    """Read what :meth:`TextEncoder.to_document` wrote. The document may be somebody else's: every value is checked.

    No network is used: a model of the hub must be in the cache. ``where`` is what messages call the document.
    """
    where = f"the text encoder of {where}"
    name = checks.record(where, document, {"name": "str"})["name"]
    try:
        check_text_encoder(name)
    except ValueError as error:
        raise ValueError(f"{where} must be one that this version knows: {error}") from None
    if name == "tfidf":
        return TfidfEncoder.from_document(document, where)
    found = checks.record(where, document, {"identity": "str", "width": "int"})
    checks.number(f"the width of {where}", found["width"], f"[1, {_WIDEST}]", whole=True)
    return SentenceEncoder(name, expected=(found["identity"], found["width"], where))


class SentenceEncoder(TextEncoder):
    """Sentence embeddings: unit vectors. The model is loaded when it is first needed.

    Args:
        name: "minilm" or "sentence-transformers:NAME".
        device, batch: as in :func:`text_encoder`.
        expected: identity and width that a document names, and what messages call it. Then no network is used.
    """

    def __init__(
        self, name: str, device: str = "auto", batch: int = BATCH, expected: tuple[str, int, object] | None = None
    ) -> None:
        self.name, self.device, self.batch, self.expected = name, chosen_device(device), batch, expected
        self._model: Any = None

    @property
    def identity(self) -> str:
        """The name, and the start of the SHA-256 of the weights."""
        return self._known[0] if self._known is not None else str(self._loaded().identity)

    @property
    def width(self) -> int:
        """How many features a text gets."""
        return self._known[1] if self._known is not None else int(self._loaded().width)

    def transform(self, texts: Sequence[str], progress: Progress | None = None) -> Features:
        """Return unit vectors (N, width)."""
        # Each text once, and texts of a length together: there is less to pad.
        places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            places.setdefault(_readable(text), []).append(place)
        found, done = np.empty((len(texts), self.width), dtype=np.float32), 0
        distinct, step = sorted(places, key=lambda text: (len(text), text)), _AT_ONCE * self.batch
        for start in range(0, len(distinct), step):
            part = distinct[start : start + step]
            features = self._loaded().encode(part, self.batch)
            for text, row in zip(part, features, strict=True):
                found[places[text]] = row
                done += len(places[text])
            if progress is not None:
                progress(done, len(texts))
        return found

    def to_document(self) -> dict[str, Any]:
        """Return the name, the identity and the width."""
        return {"name": self.name, "identity": self.identity, "width": self.width}

    @property
    def _known(self) -> tuple[str, int] | None:
        """The identity and the width, where they are known before the model is loaded."""
        if self.expected is not None:
            return self.expected[:2]
        return (_MiniLM.identity, _MiniLM.width) if self.name == MINILM else None

    def _loaded(self) -> Any:
        if self._model is None:
            kind = _MiniLM if self.name == MINILM else _HubModel
            model = kind(self.name, self.device, local=self.expected is not None)
            if self.expected is not None and (model.identity, model.width) != self.expected[:2]:
                raise ValueError(
                    f"{self.expected[2]} must have the weights that it was fitted with, {self.expected[0]}; got "
                    f"{model.identity}: install that version, or fit again"
                )
            self._model = model
        return self._model


class _MiniLM:
    identity, width = f"{MINILM}-{minilm.DIGEST[:16]}", minilm.WIDTH

    def __init__(self, name: str, device: torch.device, local: bool) -> None:
        self.sentences = minilm.sentences(device)

    def encode(self, texts: Sequence[str], batch: int) -> Features:
        parts = (texts[start : start + batch] for start in range(0, len(texts), batch))
        return np.concatenate([self.sentences.encode(part).numpy() for part in parts])


class _HubModel:
    """A model of sentence-transformers. Code of a repository is never run, and pickles are not read."""

    def __init__(self, name: str, device: torch.device, local: bool) -> None:
        with extras.importing(f"the text encoder {name}", "text"):
            from sentence_transformers import SentenceTransformer  # noqa: PLC0415

        model = name.removeprefix(HUB)
        if (pickled := _without_safetensors(Path(model))) is not None:
            raise ValueError(f"{name} must hold weights in safetensors; got {pickled}, which is not read")
        try:
            self.model = SentenceTransformer(
                model,
                device=str(device),
                trust_remote_code=False,
                local_files_only=local,
                model_kwargs={"use_safetensors": True},
            )
        except (OSError, ValueError, ImportError, RuntimeError) as error:
            here = f" in the hub cache, where {HUB}{model} brings it when it is first used" if local else ""
            raise ValueError(f"{name} must be a model with safetensors{here}; got {_line(error)}") from error
        digest = hashlib.sha256()
        for key, tensor in sorted(self.model.state_dict().items()):
            digest.update(repr((key, tensor.dtype, tuple(tensor.shape))).encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        self.identity = f"{name}-{digest.hexdigest()[:16]}"
        self.width = int(self.model.encode([""], show_progress_bar=False).shape[1])

    def encode(self, texts: Sequence[str], batch: int) -> Features:
        found = self.model.encode(list(texts), batch_size=batch, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(found, dtype=np.float32)


class TfidfEncoder(TextEncoder):
    """TF-IDF of character n-grams within words, reduced by a truncated SVD to unit vectors of 256 features at most.

    Character n-grams are found in every script, with or without spaces, and in misspelt words. ``fit`` counts them in
    the training texts; nothing is random.
    """

    name = "tfidf"
    NGRAMS, TERMS, WIDTH, LONGEST = (2, 4), 5000, 256, 10_000
    """Lengths of the n-grams; how many are kept, the most frequent; features; characters of a text that are read."""

    _terms: tuple[str, ...]
    _idf: NDArray[np.float32]
    _components: NDArray[np.float16]
    _ngrams: tuple[int, int] = NGRAMS

    @property
    def identity(self) -> str:
        """The name, and the start of the SHA-256 of what was learnt."""
        digest = hashlib.sha256(repr((self._ngrams, self._terms)).encode("utf-8", "surrogatepass"))
        digest.update(self._idf.tobytes() + self._components.tobytes())
        return f"{self.name}-{digest.hexdigest()[:16]}"

    @property
    def width(self) -> int:
        """How many features a text gets: fewer than 256 for few texts."""
        return len(self._components)

    def fit(self, texts: Sequence[str]) -> TfidfEncoder:
        """Learn the n-grams, their frequencies and the components."""
        with extras.needed_by("the text encoder tfidf"):
            from sklearn.utils.extmath import randomized_svd  # type: ignore[import-untyped]  # noqa: PLC0415

        vectorizer = self._vectorizer(max_features=self.TERMS)
        if not any(map(str.strip, texts)):
            raise ValueError("texts must hold characters; got none but empty ones")
        weights = vectorizer.fit_transform(self._cut(texts))
        self._ngrams = self.NGRAMS
        self._terms, self._idf = tuple(vectorizer.get_feature_names_out()), vectorizer.idf_.astype(np.float32)
        _, sizes, components = randomized_svd(weights, min(self.WIDTH, *weights.shape), n_iter=5, random_state=0)
        # Directions without any text are rounding errors. Two bytes a number keep the document small, and are what
        # every transform takes, also before it is written.
        self._components = components[sizes > _NOTHING * sizes[0]].astype(np.float16)
        return self

    def transform(self, texts: Sequence[str], progress: Progress | None = None) -> Features:
        """Return unit vectors (N, width); zeros for a text without a single n-gram of the training texts."""
        vectorizer = self._vectorizer(vocabulary=self._terms)
        vectorizer.idf_ = self._idf.astype(np.float64)
        components = self._components.T.astype(np.float64)
        found, step = np.empty((len(texts), self.width), dtype=np.float32), 1000
        for start in range(0, len(texts), step):
            part = vectorizer.transform(self._cut(texts[start : start + step])) @ components
            lengths = np.linalg.norm(part, axis=1, keepdims=True)
            found[start : start + step] = part / np.where(lengths > 0, lengths, 1)
            if progress is not None:
                progress(min(start + step, len(texts)), len(texts))
        return found

    def to_document(self) -> dict[str, Any]:
        """Return the n-grams, and the numbers in base64, little-endian."""
        numbers = {"idf": self._idf.astype("<f4"), "components": self._components.astype("<f2")}
        return {
            "name": self.name,
            "ngrams": list(self._ngrams),
            "terms": list(self._terms),
            "width": self.width,
            **{name: base64.b64encode(values.tobytes()).decode() for name, values in numbers.items()},
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], where: object) -> TfidfEncoder:
        """Read what :meth:`to_document` wrote."""
        kinds = {"ngrams": "tuple[int, ...]", "terms": "tuple[str, ...]", "width": "int", "idf": "str"}
        found = checks.record(where, document, kinds | {"components": "str"})
        terms, width, ngrams = found["terms"], found["width"], found["ngrams"]
        if len(ngrams) != 2 or not 1 <= ngrams[0] <= ngrams[1] <= 9:
            raise ValueError(f"{where} must have two lengths of n-grams, from 1 to 9; got {list(ngrams)}")
        if not 0 < len(terms) == len(set(terms)) <= _WIDEST:
            raise ValueError(f"{where} must have different terms, one to {_WIDEST}; got {len(terms)}")
        checks.number(f"the width of {where}", width, "[1, 4096]", whole=True)
        encoder = cls()
        encoder._terms, encoder._ngrams = terms, (ngrams[0], ngrams[1])
        encoder._idf = _numbers(found["idf"], "<f4", (len(terms),), f"{where} must hold idf")
        components = _numbers(found["components"], "<f2", (width, len(terms)), f"{where} must hold components")
        encoder._components = components.astype(np.float16)
        return encoder

    def _vectorizer(self, **options: Any) -> Any:
        with extras.needed_by("the text encoder tfidf"):
            from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]  # noqa: PLC0415
                TfidfVectorizer,
            )

        return TfidfVectorizer(analyzer="char_wb", ngram_range=self._ngrams, sublinear_tf=True, **options)

    def _cut(self, texts: Sequence[str]) -> list[str]:
        return [_readable(text[: self.LONGEST]) for text in texts]


def _numbers(text: str, kind: str, shape: tuple[int, ...], what: str) -> NDArray[np.float32]:
    """Read finite numbers in base64, of a shape."""
    wanted = f"{what} as {' x '.join(map(str, shape))} finite numbers"
    try:
        found = np.frombuffer(base64.b64decode(text, validate=True), dtype=kind)
    except ValueError:
        raise ValueError(f"{wanted} in base64; got {checks.brief(text)}") from None
    if found.size != int(np.prod(shape)) or not np.isfinite(found).all():
        raise ValueError(f"{wanted}; got {found.size}" + (", not all finite" if found.size else ""))
    return found.reshape(shape).astype(np.float32)


def _readable(text: str) -> str:
    """Return a text without halves of characters, which no tokenizer takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _without_safetensors(folder: Path) -> Path | None:
    """Return a file of pickled weights without safetensors beside it, in a local folder."""
    pickled = sorted(path for suffix in ("bin", "pt", "pth", "pkl") for path in folder.rglob(f"*.{suffix}"))
    return next((path for path in pickled if not any(path.parent.glob("*.safetensors"))), None)


def _line(error: Exception) -> str:
    return checks.shortened(" ".join(str(error).split()))
