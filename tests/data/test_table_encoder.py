"""Tables become features: against scikit-learn on DataFrames, and what is said of each column."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from data_helpers import describe_columns, people
from in_turn import in_turn
from refusals import all_refused, refused
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from symloss.data import DataSource, open_data, opening, table_encoder
from symloss.data.columns import MOST_CATEGORIES
from symloss.data.opening import open_inputs
from symloss.data.table_encoder import TableEncoder
from symloss.encoders.texts import TfidfEncoder, text_encoder

RNG = np.random.default_rng(0)


def mixed(rows=200, seed=0) -> pd.DataFrame:
    """Numbers, numbers with gaps, text with gaps, a declared category, and text with many values."""
    rng, frame = np.random.default_rng(seed), people(rows, seed).astype({"height": np.float32})
    streets = [f"{int(number)} Road" for number in rng.exponential(30, rows)]
    return frame[["height", "town", "age"]].assign(grade=pd.Categorical(rng.choice([1, 2, 3], rows)), street=streets)


def by_scikit_learn(frame: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """What scikit-learn makes of it without us, with a missing category as a text that sorts last."""
    texts = ["town", "grade", "street"]
    frame, other = (each.astype({"grade": str}).fillna({"town": "~"}) for each in (frame, other))
    encoder = OneHotEncoder(handle_unknown="ignore", max_categories=MOST_CATEGORIES, sparse_output=False)
    steps = [("n", SimpleImputer(strategy="median", add_indicator=True), ["height", "age"]), ("c", encoder, texts)]
    return ColumnTransformer(steps).fit(frame).transform(other).astype(np.float32)


def test_features_are_those_of_scikit_learn_also_after_a_round_trip_through_json():
    frame, other = mixed(1000), mixed(500, seed=1)
    encoder = TableEncoder().fit(frame)
    document = json.loads(json.dumps(encoder.to_document()))
    again = TableEncoder.from_document(document)
    assert frame["street"].nunique() > MOST_CATEGORIES
    assert set(other["street"]) - set(frame["street"])
    for each in (frame, other):
        np.testing.assert_array_equal(encoder.transform(each), by_scikit_learn(frame, each))
        assert again.transform(each).tobytes() == encoder.transform(each).tobytes()
    assert encoder.transform(frame).dtype == np.float32
    assert len(encoder.feature_names_) == encoder.transform(frame).shape[1]
    np.testing.assert_array_equal(TableEncoder().fit_transform(frame), encoder.transform(frame))
    names = TableEncoder(drop=["street"]).fit(mixed()).feature_names_
    towns = ("town=Bern", "town=Graz", "town=Köln", "town is missing")
    assert names == ("height", "age", "age is missing", *towns, "grade=1", "grade=2", "grade=3")
    assert encoder.feature_names_[-1] == "street=(rare)"
    assert again.feature_names_ == encoder.feature_names_
    assert [column[:3] for column in again.columns_] == [column[:3] for column in encoder.columns_]
    assert again.to_document() == document
    assert document["format"] == 1  # which an older version reads


def test_gaps_of_the_largest_numbers_unseen_categories_and_rare_ones():
    encoder = TableEncoder().fit({"a": [1.0, 5.0, 2.0], "b": [0.5, 0.5, 0.25]})
    assert encoder.transform({"a": [None, 7.0], "b": [1, 2]}).tolist() == [[2, 1], [7, 2]]
    largest = float(np.finfo(np.float32).max)
    encoder = TableEncoder().fit({"a": [largest, largest, None]})
    assert encoder.transform({"a": [None]}).tolist() == [[largest, 1]]
    texts = [f"c{k}" for k in range(MOST_CATEGORIES + 5)] * 2 + [f"c{k}" for k in range(MOST_CATEGORIES - 1)]
    encoder = TableEncoder().fit({"a": texts})
    rows = encoder.transform({"a": ["c0", f"c{MOST_CATEGORIES}", f"c{MOST_CATEGORIES + 1}", "new", None]})
    assert np.stack([rows.sum(axis=1), rows[:, -1]]).tolist() == [[1, 1, 1, 0, 0], [0, 1, 1, 0, 0]]
    assert rows.shape == (5, MOST_CATEGORIES)
    encoder = TableEncoder().fit({"a": ["x", "y"]})  # which forgets when it is fitted again
    assert encoder.transform({"a": ["z"]}).tolist() == [[0, 0]]
    assert encoder.fit({"a": ["z", "y", None]}).transform({"a": ["z"]}).tolist() == [[0, 1, 0]]


OBJECTS, SWITCHES = pd.Series([1.5, None, 2.5], dtype=object), [True, False]
NUMBERS = (["7", "7 is missing"], [[1.5, 0], [2, 1], [2.5, 0]])
TEXT = (["7=x", "7=y", "7 is missing"], [[1, 0, 0], [0, 0, 1], [0, 1, 0]])


@in_turn(
    "column, names, expected",
    [
        *((OBJECTS.astype(dtype), *NUMBERS) for dtype in (object, float, "Float64")),
        ([1.5, None, 2.5], *NUMBERS),
        *((column, ["7"], [[1], [0]]) for column in (SWITCHES, pd.Series(SWITCHES, dtype="boolean"))),
        *((pd.Series(["x", None, "y"], dtype=dtype), *TEXT) for dtype in (object, "string", "str", "category")),
    ],
)
def test_cells_of_every_type(column, names, expected):
    encoder = TableEncoder().fit(pd.DataFrame({7: column}))  # a name that is a number
    assert encoder.feature_names_ == tuple(names)
    assert encoder.transform({"7": column}).tolist() == expected


def test_a_later_table_may_write_numbers_and_categories_in_another_way():
    encoder = TableEncoder(categorical=["a"]).fit({"a": [1, 2, 1]})
    for column in ([1, 2, 1], [1.0, 2.0, 1.0], ["1", "2", "1.0"], pd.Series([1, 2, 1], dtype="category")):
        assert encoder.transform({"a": column}).tolist() == [[1, 0], [0, 1], [1, 0]]
    encoder = TableEncoder().fit({"a": [1.0, 2.0], "b": ["x", "y"]})
    assert encoder.transform({"a": ["3", "NA"], "b": ["x", "x"]})[:, 0].tolist() == [3, 1.5]
    wrong = "column 'a' of the table must hold a finite number in every row; got 'x' in row 2"
    absent = "the table must have the feature column ... got the columns"
    all_refused(
        (ValueError, wrong, lambda: encoder.transform({"a": ["3", "x"], "b": ["x", "y"]})),
        (ValueError, f"{absent} a", lambda: encoder.transform({"a": [1.0]})),
        (ValueError, f"{absent} b", lambda: encoder.transform({"b": ["x"]})),
    )


def reason(values, name="a", **choice):
    """Beside another feature."""
    column, _ = describe_columns({name: values, "other": [0.5] * len(values)}, **choice)
    return column.kind, column.reason


MANY = 40
NUMBERED, SPREAD = list(range(MANY)), RNG.permutation(10**6)[:MANY].tolist()
TEXTS = [f"name {k}" for k in range(MANY)]


@in_turn(
    "values, name, kind, words",
    [
        ([1.5, 2.5], "a", "number", "numbers"),
        ([2, 2], "a", "number", "numbers"),
        ([1.5] * 7 + [None], "a", "number", "12 % missing: the median, and a column that marks them"),
        ([1.5] * 999 + [None], "a", "number", "less than 1 % missing"),
        ([None, None], "a", "left out", "no value in any row"),
        (["", "NA"], "a", "left out", "no value in any row"),
        (NUMBERED, "a", "left out", "whole numbers, all different: looks like an id"),
        (NUMBERED[:9] * 2, "id", "number", "numbers"),
        (NUMBERED[:9], "a", "number", "numbers"),
        (NUMBERED[:9], "Unnamed: 0", "left out", "looks like an id"),
        (SPREAD, "a", "number", "whole numbers, all different: to be dropped if it is an id"),
        *((SPREAD, name, "left out", "looks like an id") for name in ("id", "index", "customer_id", "PassengerId", "")),
        *((SPREAD, name, "number", "to be dropped") for name in ("paid", "humidity", "fluid")),
        ([10**17 + k for k in range(MANY)], "a", "left out", "looks like an id"),
        ([10**17 + k // 2 for k in range(MANY)], "a", "number", "numbers"),
        ([2.0**24 + k / 2 for k in range(MANY)], "a", "number", "numbers"),
        ([k + 0.5 for k in range(MANY)], "a", "number", "numbers"),
        ([*range(100), *range(50)], "a", "number", "numbers"),
        ([*range(100), *(k + 0.5 for k in range(50))], "a", "number", "numbers"),
        ([*NUMBERED[:-1], None], "a", "number", "2 % missing"),
        (TEXTS, "a", "left out", "text, all different: looks like an id"),
        (TEXTS[:9], "a", "category", "text with 9 values"),
        (TEXTS[:9], "id", "left out", "text, all different: looks like an id"),
        ([*TEXTS, TEXTS[0]], "a", "left out", "nearly all different (40 values in 41 rows)"),
        (TEXTS * 2, "a", "category", "text with 40 values"),
        (["x", "x"], "a", "left out", "text, always the same"),
        (["x", None], "a", "category", "text with 1 value; 50 % missing count as a value"),
        ([f"v{k}" for k in range(70)] * 2, "a", "category", "text with 70 values: the 63 most frequent, and one"),
    ],
)
def test_what_becomes_of_a_column(values, name, kind, words):
    assert reason(values, name)[0] == kind
    assert words in reason(values, name)[1]


def test_a_choice_goes_first():
    assert reason(NUMBERED, keep=["a"]) == ("number", "whole numbers, all different: kept, as asked")
    assert reason(TEXTS, keep=["a"]) == ("category", "text with 40 values")
    assert reason([1, 2, 1], categorical=["a"]) == ("category", "a category as asked, 2 values")
    assert reason([1, 2, 1], drop=["a"]) == ("left out", "dropped, as asked")
    assert reason(pd.Series(TEXTS, dtype="category")) == ("category", "a category declared, 40 values")


def test_surprises_are_notable_and_numbers_that_are_the_only_feature_are_used():
    columns = describe_columns({"id": NUMBERED, "b": SPREAD, "c": [1.5] * MANY, "d": NUMBERED}, drop=["d"])
    assert [column.notable for column in columns] == [True, True, False, False]
    (column,) = describe_columns({"dose": NUMBERED})
    assert column == ("dose", "number", "whole numbers, all different, but there are no other features", True)
    assert [column.kind for column in describe_columns({"id": NUMBERED, "name": TEXTS})] == ["left out", "left out"]
    # Nor does a wide table of few samples lose its counts.
    counts = RNG.integers(0, 10**6, (30, 50))
    assert {column.kind for column in describe_columns({f"gene {k}": counts[:, k] for k in range(50)})} == {"number"}


FREE, ID = "free text", "looks like an id"
WORDS = ("the", "bin", "street", "was", "not", "emptied", "again", "today", "please", "help")


def messages(words: int, rows: int = MANY, distinct: int = MANY) -> list[str]:
    """Texts of so many words. The first words make them different."""
    first = itertools.islice(itertools.product("abcdefghij", repeat=2), min(rows, distinct))
    found = [" ".join(["".join(letters), *(2 * WORDS)[: words - 1]]) for letters in first]
    return [found[row % len(found)] for row in range(rows)]


@in_turn(
    "texts, words",
    [
        (messages(3), f"{FREE}, 40 different values"),
        (messages(12), FREE),
        (messages(12, rows=60), f"{FREE}, 40 different values"),
        ([*messages(6), None, None], f"{FREE}, 40 different values, 5 % missing count as empty"),
        ([f"Where's my parcel No. {k}? It hasn't arrived!" for k in range(MANY)], FREE),
        ([f"我的垃圾桶没有清空{chr(0x4E00 + k)}" for k in range(MANY)], FREE),
        (messages(2), f"text, all different: {ID}"),
        ([f"https://example.org/a/long/path/{k}" for k in range(MANY)], ID),
        ([f"{k:08x}-dead-beef-cafe-{k:012x}" for k in range(MANY)], ID),
        ([f"2026-01-01 10:{k} 7 8 9 AB12" for k in range(MANY)], ID),
        ([f"王小{chr(0x4E00 + k)}" for k in range(MANY)], ID),
        (messages(4, rows=60), "text with 40 values"),
        (messages(12, rows=90), "text with 40 values"),
        (messages(12, rows=10), "text with 10 values"),
    ],
)
def test_what_is_free_text(texts, words):
    frame = {"a": texts, "other": [0.5] * len(texts)}
    column, _ = describe_columns(frame)
    used, free = words.startswith("text with"), words.startswith(FREE)
    assert words in column.reason
    assert (column.kind, column.notable) == (("category", False) if used else ("text" if free else "left out", True))
    (column,) = describe_columns({"a": texts}, keep=["a"])
    assert column.kind == ("text" if free else "category")
    (column, _), (kept, _) = (describe_columns(frame, keep=keep, encoded=False) for keep in ([], ["a"]))
    assert kept.kind == "category"
    if free:
        assert (column.kind, column.notable) == ("left out", True)
        assert column.reason.endswith(
            f"40 different values in {len(texts) - texts.count(None)} rows: not encoded, as asked"
        )
    (column, _) = describe_columns(frame, text=["a"])
    assert (column.kind, column.reason.startswith(FREE)) == ("text", True)


def reviews() -> pd.DataFrame:
    """Two columns of text with gaps beside numbers and a category."""
    texts = [None if k % 9 == 0 else text for k, text in enumerate(messages(12))]
    colours = pd.Series(["red", "blue"] * (MANY // 2))
    return pd.DataFrame(
        {"review": texts, "size": np.linspace(0, 9, MANY), "colour": colours, "reply": messages(6)[::-1]}
    )


def test_text_columns_are_those_of_their_encoder_beside_all_others():
    frame, told = reviews(), []
    encoder = TableEncoder(encoder="tfidf", progress=lambda *amounts: told.append(amounts))
    features = encoder.fit_transform(frame)
    expected = [TableEncoder().fit_transform(frame[["size", "colour"]])]
    for name in ("review", "reply"):
        texts = frame[name].fillna("").tolist()
        expected.append(text_encoder("tfidf").fit(texts).transform(texts))
    np.testing.assert_array_equal(features, np.concatenate(expected, axis=1))
    assert told == [(MANY, MANY)] * 2
    widths = [each.shape[1] for each in expected]
    assert len(encoder.feature_names_) == sum(widths)
    assert encoder.feature_names_[:4] == ("size", "colour=blue", "colour=red", "review[0]")
    assert encoder.feature_names_[-1] == f"reply[{widths[2] - 1}]"
    assert [column.reason for column in encoder.columns_ if column.kind == "text"] == [
        f"free text, 35 different values, 12 % missing count as empty: {widths[1]} features by tfidf",
        f"free text, 40 different values: {widths[2]} features by tfidf",
    ]
    document = json.loads(json.dumps(encoder.to_document()))
    again = TableEncoder.from_document(document)
    assert document["format"] == 2
    assert (again.to_document(), again.feature_names_) == (document, encoder.feature_names_)
    later = frame.assign(review="Where is the bus?").drop(columns="size").assign(size=2.5)
    assert again.transform(later).tobytes() == encoder.transform(later).tobytes()
    assert not np.array_equal(again.transform(later), again.transform(later.assign(review=None)))


def test_auto_takes_minilm_where_it_is_installed_and_else_says_what_would_bring_it(monkeypatch):
    frame = reviews()[["review", "size"]]
    encoder = TableEncoder().fit(frame)
    assert encoder.columns_[0].reason.endswith(": 384 features by minilm")
    expected = text_encoder("minilm").transform(frame["review"].fillna("").tolist())
    np.testing.assert_allclose(encoder.transform(frame)[:, 1:], expected, atol=1e-5)
    monkeypatch.setattr(table_encoder, "auto_text_encoder", lambda: "tfidf")
    hint = "features by tfidf; pip install 'symloss[text]' brings sentence embeddings"
    assert TableEncoder().fit(frame).columns_[0].reason.endswith(hint)
    assert TableEncoder(encoder="tfidf").fit(frame).columns_[0].reason.endswith("features by tfidf")


def test_texts_are_encoded_once(encoded, tmp_path):
    """With a cache: by another encoder, after a round trip, in another column; and only new texts are."""
    frame, folder = reviews(), tmp_path / "cache"
    distinct = len({*frame["review"].fillna(""), *frame["reply"]})
    first = TableEncoder(encoder="minilm", cache=folder).fit_transform(frame)
    assert len(encoded.texts) == distinct
    encoder = TableEncoder(cache=folder).fit(frame)
    again = TableEncoder.from_document(encoder.to_document())
    assert again.cache is None
    again.cache = folder
    for each in (encoder, again):
        np.testing.assert_array_equal(each.transform(frame), first)
    assert len(encoded.texts) == distinct
    again.transform(frame.assign(reply=["Something new.", *frame["review"].fillna("")[1:]]))
    assert encoded.texts[distinct:] == ["Something new."]
    np.testing.assert_allclose(TableEncoder().fit_transform(frame), first, atol=1e-5)
    assert len(encoded.texts) == 1 + 2 * distinct
    TableEncoder(encoder="tfidf", cache=tmp_path / "tfidf").fit(
        frame
    )  # is as quick as the cache, and another each time
    assert not (tmp_path / "tfidf").exists()


def test_a_table_is_encoded_once_for_all_who_open_it(encoded, tmp_path):
    frame, path, root = reviews().assign(label=["x", "y"] * (MANY // 2)), tmp_path / "x.csv", tmp_path / "root"
    frame.to_csv(path, index=False)
    first = open_data(str(path), root=root, device="somewhere")
    assert (set(encoded.devices), len(encoded.texts) > 0) == ({"somewhere"}, True)
    encoded.texts.clear()
    assert np.array_equal(open_data(str(path), root=root).train.inputs, first.train.inputs)
    kept = TableEncoder.from_document(first.encoder.to_document())
    found = open_inputs(DataSource(str(path)), first.description(), kept, root=root)
    assert np.array_equal(found.inputs, first.train.inputs)
    assert encoded.texts == []
    assert {each.name for each in root.iterdir()} == {"features"}
    # A machine without a home, or a folder that cannot be written.
    (tmp_path / "file").write_text("no folder")
    open_data(str(path), root=tmp_path / "file")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "data_root", Path("~nobody-is-called-so").expanduser)
        open_data(str(path))
    assert len(encoded.texts) > MANY


def test_the_fingerprint_is_that_of_the_texts_not_of_rounded_features(tmp_path, monkeypatch):
    frame, path = reviews().assign(label=["x", "y"] * (MANY // 2)), tmp_path / "x.csv"

    def fingerprint(**changed):
        frame.assign(**changed).to_csv(path, index=False)
        return open_data(str(path), encoder="tfidf").train.fingerprint()

    first = fingerprint()
    assert fingerprint() == first
    assert fingerprint(size=np.linspace(0, 8, MANY)) != first
    assert fingerprint(reply=[*frame["reply"][:-1], "another"]) != first
    transform = TfidfEncoder.transform
    monkeypatch.setattr(TfidfEncoder, "transform", lambda *given: transform(*given) * np.float32(1 + 1e-6))
    assert fingerprint() == first


@in_turn("change", [{"encoder": None}, {"encoder": {"name": "os.system"}}, {"encoder": {"name": "tfidf"}}])
def test_a_damaged_text_encoder(change):
    document = TableEncoder(encoder="tfidf").fit(reviews()[["reply"]]).to_document()
    document["columns"][0] |= change
    with refused(ValueError, "columns.json", "'reply'"):
        TableEncoder.from_document(document, "columns.json")


def test_python_is_warned_once_of_columns_that_are_left_out():
    frame = pd.DataFrame({"id": range(MANY), "name": TEXTS, "size": np.linspace(0, 1, MANY), "message": messages(12)})
    for fit in (TableEncoder(encoder="none").fit, TableEncoder(encoder="none").fit_transform):
        with pytest.warns(UserWarning, match="^columns are not used as features: [^;]*$") as told:
            fit(frame)
        (warning,) = told
        assert "'id' (whole numbers, all different: looks like an id), 'name' (text, all" in str(warning.message)
        assert "'message' (free text, 40 different values in 40 rows: not encoded, as asked)" in str(warning.message)
        assert warning.filename == __file__
    # Warnings are errors here: nobody is warned of what was asked for.
    TableEncoder(drop=["id", "name", "message"]).fit(frame)
    TableEncoder(keep=["id", "name"], encoder="tfidf").fit(frame)


def test_a_table_of_texts_alone_without_an_encoder_is_refused_and_nobody_is_told_to_keep_them(tmp_path):
    frame = pd.DataFrame({"id": range(MANY), "message": messages(12)})
    path = str(tmp_path / "x.csv")
    frame.assign(label=["x", "y"] * (MANY // 2)).to_csv(path, index=False)
    for where, fit in (
        ("the table", lambda: TableEncoder(encoder="none").fit(frame)),
        ("x.csv", lambda: open_data(path, encoder="none")),
    ):
        words = f"{where} must have a column of features; got 'message' (free text, 40 different"
        with refused(ValueError, words, "not encoded, as asked") as found:
            fit()
        assert "keep" not in str(found.value)


@in_turn(
    "frame, choice, ingredients",
    [
        ({"a": [1, 2]}, {"drop": ["b"]}, ("drop must name columns of the table", "got 'b'")),
        ({"a": [1, 2]}, {"categorical": ["b"]}, ("categorical must name columns", "got 'b'")),
        ({"a": [1, 2]}, {"keep": ["b"]}, ("keep must name columns", "got 'b'")),
        ({"a": [1, 2]}, {"keep": ["a"], "drop": ["a"]}, ("keep must name other columns than drop", "'a' in both")),
        ({"a": [1, 2]}, {"drop": ["a"]}, ("a column of features", "'a' (dropped, as asked)")),
        ({"id": NUMBERED}, {}, ("a column of features", "'id' (whole numbers, all different: looks like an id)")),
        ({}, {}, ("a column of features", "got no columns")),
        ({"a": [1.0, np.inf]}, {}, ("column 'a'", "a finite number", "got inf in row 2")),
        ({"a": [1.0, 1e39]}, {}, ("column 'a'", "a finite number", "got 1e+39 in row 2")),
        ({"a": [[1], [2]]}, {}, ("column 'a'", "numbers or text", "got int64")),
        ({"a": pd.Series([{}, {}])}, {}, ("column 'a'", "numbers or text", "got {}")),
        ({"a": pd.to_timedelta([1, 2], "D")}, {}, ("column 'a'", "numbers or text", "got timedelta64", "drop it")),
        ({"a": [1, 2]}, {"encoder": "tf-idf"}, ("encoder of texts must be 'minilm', 'tfidf'", "got 'tf-idf'")),
        ({"a": [1, 2]}, {"text": ["b"]}, ("text must name columns of the table", "got 'b'")),
        ({"a": [" ", "", None]}, {"text": ["a"]}, ("a column of features", "'a' (no value in any row)")),
        ({"a": [*range(19), "1O"]}, {}, ("column 'a'", "a finite number", "got '1O' in row 20", "categorical")),
        ({"a": [1, 2], "b": [1]}, {}, ("the same length", "[1, 2]")),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, ("different names", "'a' twice")),
    ],
)
def test_bad_tables(frame, choice, ingredients):
    with refused(ValueError, *ingredients):
        TableEncoder(**choice).fit(frame)


ENTRY = "what was learnt of each column"


@in_turn(
    "place, change, ingredients",
    [
        *((0, change, [ENTRY, "'a'"]) for change in ({"kind": "word"}, {"median": float("nan")}, {"median": None})),
        *((1, {"values": values}, [ENTRY, "'b'"]) for values in ([5], [])),
        *((1, {"others": others}, [ENTRY, "'b'"]) for others in (None, ["x"])),
        (None, [], [ENTRY, "got []"]),
        (None, {"format": 4, "columns": []}, ["a newer version of symloss", "format 4"]),
        (None, {"format": 1, "columns": {}}, [ENTRY]),
        (None, {"format": 1, "columns": [5]}, [ENTRY, "got 5"]),
    ],
)
def test_a_damaged_document(place, change, ingredients):
    document = change
    if place is not None:
        document = TableEncoder().fit({"a": [1.0, 2.0], "b": ["x", "y"]}).to_document()
        document["columns"][place] |= change
    with refused(ValueError, "columns.json", *ingredients):
        TableEncoder.from_document(document, "columns.json")
