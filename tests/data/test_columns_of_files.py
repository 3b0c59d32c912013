"""Tables in files with gaps, categories, ids and other delimiters than the comma."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from refusals import refused

from symloss.data import open_data
from symloss.data.opening import open_inputs
from symloss.data.source import DataSource
from symloss.data.table_encoder import TableEncoder


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def people(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "id": rng.permutation(rows),
            "age": rng.integers(20, 60, rows).astype(float),
            "town": rng.choice(["Bern", "Graz", "Köln"], rows),
            "height": rng.normal(170, 10, rows).round(2),
            "member": rng.random(rows) < 0.5,
            "label": rng.choice(["yes", "no"], rows),
        }
    )
    frame.loc[rng.random(rows) < 0.2, "age"] = np.nan
    frame.loc[rng.random(rows) < 0.2, "town"] = None
    return frame


def features(frame: pd.DataFrame) -> np.ndarray:
    return TableEncoder(drop=["id"]).fit_transform(frame.drop(columns="label"))


@pytest.mark.parametrize("gap", ["", "NA", "NaN", "null", "n/a", "?"])
def test_a_csv_is_read_as_pandas_reads_it(tmp_path, gap):
    frame = people().astype({"member": int})
    frame.to_csv(tmp_path / "x.csv", index=False, na_rep=gap)
    data = open_data(str(tmp_path / "x.csv"))
    np.testing.assert_array_equal(data.train.inputs.numpy(), features(frame))
    towns = ("town=Bern", "town=Graz", "town=Köln", "town is missing")
    assert data.columns == ("age", "height", "member", "age is missing", *towns)
    assert [column.name for column in data.encoder.columns_] == list(frame.columns[:-1])


def test_parquet_is_the_same(tmp_path):
    frame = people()
    frame.astype({"town": "category"}).to_parquet(tmp_path / "x.parquet", index=False)
    data = open_data(str(tmp_path / "x.parquet"))
    np.testing.assert_array_equal(data.train.inputs.numpy(), features(frame))


@pytest.mark.parametrize(
    ("delimiter", "decimal", "name"), [(";", ",", "x.csv"), (";", ".", "x.csv"), ("\t", ".", "x.tsv")]
)
def test_other_delimiters(tmp_path, delimiter, decimal, name):
    frame = people().astype({"member": int})
    frame.to_csv(tmp_path / name, index=False, sep=delimiter, decimal=decimal)
    frame.to_csv(tmp_path / "comma.csv", index=False)
    found, expected = open_data(str(tmp_path / name)), open_data(str(tmp_path / "comma.csv"))
    assert torch.equal(found.train.inputs, expected.train.inputs)
    assert (found.columns, found.class_names) == (expected.columns, expected.class_names)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a;b,label\n1,x\n2,y\n", ("a;b",)),
        ('"a;b";c;label\n1;2;x\n3;4;y\n', ("a;b", "c")),
        ("a, in cm;b;label\n1;2;x\n3;4;y\n", ("a, in cm", "b")),
        ("a;label\n1;x\n2;y\n", ("a",)),
    ],
)
def test_which_delimiter_it_is(tmp_path, text, columns):
    assert open_data(write(tmp_path / "x.csv", text)).columns == columns


def test_a_line_that_is_too_long_after_semicolons(tmp_path):
    with refused(ValueError, "line 3", "3 cells", "got 4"):
        open_data(write(tmp_path / "x.csv", "a;b;label\n1;2;x\n3;4;y;5\n"))


def test_a_decimal_comma_is_none_between_commas(tmp_path):
    path = write(tmp_path / "x.csv", 'a,label\n"1,5",x\n"2,5",y\n"1,5",y\n')
    assert open_data(path).columns == ("a=1,5", "a=2,5")


def test_a_table_of_numbers_has_the_fingerprint_of_before(tmp_path):
    """Written down by the version that read numbers only: another one would make every run of before a stranger."""
    rows = "1.5,rose,2\n-0.1,tulip,3e2\n7,rose,0.30000000000000004\n3,tulip,5\n"
    data = open_data(write(tmp_path / "f.csv", "width,label,height\n" + rows))
    assert data.fingerprint == "37f645e75b6e"


# --- Choices of the user -----------------------------------------------------------------------------------------


def test_choices(tmp_path):
    frame = people()
    frame.to_csv(tmp_path / "x.csv", index=False)
    path = str(tmp_path / "x.csv")
    assert open_data(path, keep=["id"]).columns[:3] == ("id", "age", "height")
    assert "town=Bern" not in open_data(path, drop=["town"]).columns
    ages = {f"age={int(age)}" for age in frame["age"].dropna()}
    assert ages < set(open_data(path, categorical=["age"]).columns)


def test_a_column_that_is_dropped_is_not_read(tmp_path):
    path = write(tmp_path / "x.csv", "a,b,label\n1,inf,x\n2,inf,y\n")
    assert open_data(path, drop=["b"]).columns == ("a",)


@pytest.mark.parametrize(
    ("data", "choice", "ingredients"),
    [
        ("x.csv", {"drop": ["d"]}, ("drop must name columns", "got 'd'", "a, b")),
        ("x.csv", {"drop": ["label"]}, ("drop must name columns", "got 'label'")),
        ("digits", {"drop": ["a"]}, ("drop must be left out for digits", "no table of features", "got a")),
        ("x.npz", {"categorical": ["a"]}, ("categorical must be left out for", "x.npz")),
        ("images.csv", {"keep": ["a"]}, ("keep must be left out for", "images.csv")),
    ],
)
def test_bad_choices(tmp_path, monkeypatch, data, choice, ingredients):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.csv", "a,b,label\n1,2,x\n2,3,y\n")
    write(tmp_path / "images.csv", "image,label\na.png,x\nb.png,y\n")
    np.savez(tmp_path / "x.npz", x=np.eye(2), y=np.arange(2))
    with refused(ValueError, *ingredients):
        open_data(data, **choice)


def test_only_ids(tmp_path):
    path = write(tmp_path / "x.csv", "id,label\n" + "".join(f"{k},{'xy'[k % 2]}\n" for k in range(30)))
    with refused(ValueError, path, "a column of features", "'id' (whole numbers, all different", "keep=COLUMN"):
        open_data(path)


# --- Large whole numbers, which float32 does not tell apart ------------------------------------------------------


def test_ids_with_many_digits(tmp_path):
    ids = [9_000_000_000_000_000_000 + k for k in range(30)]
    sums = [100_000_000 + 7919 * k * k for k in range(30)]
    table = pa.table({"id_number": ids, "sum": sums, "label": ["x", "y"] * 15})
    pq.write_table(table, tmp_path / "x.parquet")
    table.to_pandas().to_csv(tmp_path / "x.csv", index=False)
    for name in ("x.csv", "x.parquet"):
        kinds = {column.name: column.kind for column in open_data(str(tmp_path / name)).encoder.columns_}
        assert kinds == {"id_number": "left out", "sum": "number"}


# --- Tables that come later --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_test_table_and_a_table_to_predict_on(tmp_path, name):
    train, later = people(), people(30, seed=1)
    later.loc[3, "town"], later.loc[4, "height"] = "Wien", np.nan
    train.to_csv(tmp_path / "x.csv", index=False)
    mixed_up = later[["label", "height", "town", "age", "id", "member"]].astype({"member": str})
    (mixed_up.to_csv if name == "t.csv" else mixed_up.to_parquet)(tmp_path / name, index=False)
    data = open_data(str(tmp_path / "x.csv"), test=str(tmp_path / name))
    encoder = TableEncoder(drop=["id"]).fit(train.drop(columns="label").astype({"member": str}))
    expected = encoder.transform(later.astype({"member": str}))
    np.testing.assert_array_equal(data.test.inputs.numpy(), expected)
    later_rows = open_inputs(DataSource(str(tmp_path / name)), data.description(), data.encoder)
    np.testing.assert_array_equal(later_rows.inputs.numpy(), expected)


def test_a_later_table_with_mistakes(tmp_path):
    data = open_data(write(tmp_path / "x.csv", "a,b,label\n1,red,x\n2,blue,y\n"))
    for text, ingredients in (
        ("a\n1\n", ("feature column 'b'", "got the columns a")),
        ("a,b\nred,1\n", ("'a'", "a finite number", "'red' in line 2")),
        ("a,b\ninf,1\n", ("'a'", "a finite number", "'inf' in line 2")),
    ):
        with refused(ValueError, tmp_path / "t.csv", *ingredients):
            open_inputs(DataSource(write(tmp_path / "t.csv", text)), data.description(), data.encoder)


@pytest.mark.parametrize(
    ("cell", "given"),
    [("red", "'red'"), (1e300, "1e+300"), (float("inf"), "inf")],
)
def test_a_later_table_must_have_numbers_where_the_first_had_them(tmp_path, cell, given):
    data = open_data(write(tmp_path / "x.csv", "a,label\n1.5,x\n2.5,y\n"))
    pq.write_table(pa.table({"a": [cell]}), tmp_path / "t.parquet")
    with refused(ValueError, "'a'", "a finite number", f"got {given} in row 1"):
        open_inputs(DataSource(str(tmp_path / "t.parquet")), data.description(), data.encoder)
    with refused(ValueError, "'a'", "a finite number", "line 2"):
        open_inputs(DataSource(write(tmp_path / "t.csv", f"a,b\n{cell},1\n")), data.description(), data.encoder)


def test_the_largest_number_of_float32_is_a_number(tmp_path):
    numbers = [float(np.finfo(np.float32).max), 1.0]
    pq.write_table(pa.table({"a": numbers, "label": ["x", "y"]}), tmp_path / "x.parquet")
    text = "a,label\n{},x\n{},y\n".format(*numbers)
    for path in (str(tmp_path / "x.parquet"), write(tmp_path / "x.csv", text)):
        assert open_data(path).train.inputs.flatten().tolist() == numbers


def test_rows_without_a_label_teach_nothing(tmp_path):
    path = write(tmp_path / "x.csv", "a,b,label\n1,red,x\n,green,\n3,blue,y\n")
    data = open_data(path, skip_bad=True, test=path)
    assert torch.equal(data.test.inputs, data.train.inputs)
    assert data.columns == ("a", "b=blue", "b=red")
    pq.write_table(
        pa.table({"a": [1.0, None, 3.0], "b": ["red", "green", "blue"], "label": ["x", None, "y"]}),
        tmp_path / "x.parquet",
    )
    assert open_data(str(tmp_path / "x.parquet"), skip_bad=True).columns == data.columns
