"""Columns of free text are recognised and named, and nobody is told to keep them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from data_helpers import describe_columns

from symloss.data import open_data
from symloss.data.table_encoder import TableEncoder

ROWS = 40
WORDS = ("the", "bin", "street", "was", "not", "emptied", "again", "today", "please", "help")


def messages(words: int, rows: int = ROWS, distinct: int | None = None) -> list[str]:
    """Texts of so many words. The first words make them different."""
    found = []
    for place in range(distinct or rows):
        order = np.random.default_rng(place).permutation(len(WORDS) * 10)[: words - 1]
        found.append(
            " ".join([f"{'abcdefghij'[place // 10]}{'abcdefghij'[place % 10]}", *(WORDS[k % 10] for k in order)])
        )
    return [found[row % len(found)] for row in range(rows)]


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (messages(3), "looks like free text, 40 different values in 40 rows"),
        (messages(12), "looks like free text"),
        (messages(12, rows=60, distinct=40), "looks like free text, 40 different values in 60 rows"),
        ([*messages(6), None, None], "looks like free text, 40 different values in 40 rows"),
        ([f"Where's my parcel No. {k}? It hasn't arrived!" for k in range(ROWS)], "looks like free text"),
        ([f"我的垃圾桶没有清空{chr(0x4E00 + k)}" for k in range(ROWS)], "looks like free text"),
        (messages(2), "text, all different: looks like an id"),
        ([f"https://example.org/a/long/path/{k}" for k in range(ROWS)], "looks like an id"),
        ([f"{k:08x}-dead-beef-cafe-{k:012x}" for k in range(ROWS)], "looks like an id"),
        ([f"2026-01-01 10:{k} 7 8 9 AB12" for k in range(ROWS)], "looks like an id"),
        ([f"王小{chr(0x4E00 + k)}" for k in range(ROWS)], "looks like an id"),
        (messages(4, rows=60, distinct=40), "text with 40 values"),
        (messages(12, rows=90, distinct=40), "text with 40 values"),
        (messages(12, rows=10), "text with 10 values"),
    ],
)
def test_what_is_free_text(texts, reason):
    column, _ = describe_columns({"a": texts, "other": [0.5] * len(texts)})
    assert column.reason.startswith(reason) or reason in column.reason
    assert column.is_free_text == reason.startswith("looks like free text")
    assert column.kind == ("category" if reason.startswith("text with") else "left out")
    assert column.notable == (column.kind == "left out")


def test_free_text_that_is_kept_is_a_category():
    (column,) = describe_columns({"a": messages(12)}, keep=["a"])
    assert (column.kind, column.is_free_text) == ("category", False)


def test_a_file_of_free_text_points_to_embeddings(tmp_path):
    rows = [f"{k},{text},{'xy'[k % 2]}" for k, text in enumerate(messages(12))]
    (tmp_path / "x.csv").write_text("\n".join(["id,message,label", *rows]))
    with pytest.raises(ValueError, match=r"x\.csv must have a column of features; got 'message' \(looks like") as found:
        open_data(str(tmp_path / "x.csv"))
    assert "text columns are not supported directly yet" in str(found.value)
    assert "docs/text.md" in str(found.value)
    assert "keep" not in str(found.value)


def test_a_frame_of_free_text_points_to_embeddings():
    with pytest.raises(ValueError, match=r"^the table must have a column of features; got .*docs/text\.md") as found:
        TableEncoder().fit(pd.DataFrame({"message": messages(12)}))
    assert "keep" not in str(found.value)


def test_python_is_warned_once_of_columns_that_are_left_out():
    frame = pd.DataFrame({"id": range(ROWS), "message": messages(12), "size": np.linspace(0, 1, ROWS)})
    for fit in (TableEncoder().fit, TableEncoder().fit_transform):
        with pytest.warns(UserWarning, match="columns are not used as features") as told:
            fit(frame)
        (warning,) = told
        text = str(warning.message)
        assert "'id' (whole numbers, all different: looks like an id), 'message' (looks like free text" in text
        assert "docs/text.md" in text
        assert "keep" not in text
        assert warning.filename == __file__
    with pytest.warns(UserWarning, match="^columns are not used as features: [^;]*$"):
        TableEncoder().fit(frame[["id", "size"]])


def test_nobody_is_warned_of_what_was_asked_for(tmp_path):
    frame = pd.DataFrame({"id": range(ROWS), "message": messages(12), "size": np.linspace(0, 1, ROWS)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder(drop=["id", "message"]).fit(frame)
        TableEncoder(keep=["id", "message"]).fit(frame)
        frame.assign(label=["x", "y"] * (ROWS // 2)).to_csv(tmp_path / "x.csv", index=False)
        open_data(str(tmp_path / "x.csv"))  # commands say it by themselves
