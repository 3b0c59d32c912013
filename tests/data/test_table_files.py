"""Tables of features and of image files, in CSV and Parquet, and corrected copies of them."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from data_helpers import holds, is_scaled, not_opened, people, random_bytes, save_image, skipping, write
from in_turn import in_turn
from refusals import refused

from symloss.data import ImageFiles, open_data, tables
from symloss.data.dataset import Part, find_class_names
from symloss.data.opening import open_inputs
from symloss.data.source import DataSource
from symloss.data.table_encoder import TableEncoder
from symloss.data.tables import CsvTable, open_table
from symloss.extras import MissingExtraError

FLOWERS = "width,label,height\n1.5,rose,2\n-0.1,tulip,3e2\n7,rose,0.30000000000000004\n"


def parquet(path: Path, **columns: object) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def predicted(path: str, data):
    """The features of a table that comes later."""
    return open_inputs(DataSource(path), data.description(), data.encoder).inputs


def test_a_table_is_read_as_written(tmp_path):
    data = open_data(write(tmp_path / "flowers.csv", FLOWERS))
    expected = np.array([[1.5, 2], [-0.1, 300], [7, 0.3]], dtype=np.float32)
    holds(data.train, expected, [0, 1, 0])
    is_scaled(data, expected.astype(float))
    assert (data.name, data.class_names, data.input_shape, data.test) == ("flowers", ("rose", "tulip"), (2,), None)
    assert data.columns == ("width", "height")
    # Another fingerprint than this would make every run of before a stranger.
    assert open_data(write(tmp_path / "f.csv", FLOWERS + "3,tulip,5\n")).fingerprint == "37f645e75b6e"
    # Byte-order mark, Windows line ends, spaces, empty lines, no last line end, quotes: all from spreadsheets.
    (tmp_path / "f.csv").write_bytes('\ufeffkind, a,b\r\n weiß , 1,3\r\n\r\n"say ""no"", no",2,3'.encode())
    odd = open_data(str(tmp_path / "f.csv"), label="kind")
    holds(odd.train, [[1, 3], [2, 3]], [1, 0])
    assert odd.class_names == ('say "no", no', "weiß")
    assert (odd.scaling.mean, odd.scaling.std) == ((1.5, 3.0), (0.5, 1.0))  # a constant is not divided by zero


@in_turn(
    "name, options",
    [
        *(("x.csv", {"na_rep": gap}) for gap in ("", "NA", "NaN", "null", "n/a", "?")),
        *(("x.csv", {"sep": ";", "decimal": decimal}) for decimal in ",."),
        ("x.tsv", {"sep": "\t"}),
        ("x.parquet", {}),
    ],
)
def test_every_form_is_read_as_pandas_reads_it(tmp_path, name, options):
    frame = people().astype({"member": int})
    if name == "x.parquet":
        frame.astype({"town": "category", "member": bool}).to_parquet(tmp_path / name, index=False)
    else:
        frame.to_csv(tmp_path / name, index=False, **options)
    data = open_data(str(tmp_path / name))
    expected = TableEncoder(drop=["id"]).fit_transform(frame.drop(columns="label"))
    np.testing.assert_array_equal(data.train.inputs.numpy(), expected)
    towns = ("town=Bern", "town=Graz", "town=Köln", "town is missing")
    assert data.columns == ("age", "height", "member", "age is missing", *towns)
    assert [column.name for column in data.encoder.columns_] == list(frame.columns[:-1])
    assert [data.class_names[label] for label in data.train.labels] == frame["label"].tolist()


@in_turn(
    "text, columns",
    [
        ("a;b,label\n1,x\n2,y\n", ("a;b",)),
        ('"a;b";c;label\n1;2;x\n3;4;y\n', ("a;b", "c")),
        ("a, in cm;b;label\n1;2;x\n3;4;y\n", ("a, in cm", "b")),
        ("a;label\n1;x\n2;y\n", ("a",)),
        ('a,label\n"1,5",x\n"2,5",y\n"1,5",y\n', ("a=1,5", "a=2,5")),  # no decimal comma between commas
    ],
)
def test_which_delimiter_it_is(tmp_path, text, columns):
    assert open_data(write(tmp_path / "x.csv", text)).columns == columns


@in_turn(
    "labels", [pa.array([10, 9, 10]), pa.array(["10", "9", "10"]), pa.array(["10", "9", "10"]).dictionary_encode()]
)
def test_labels_in_parquet(tmp_path, labels):
    # pandas writes its index as a column.
    data = open_data(parquet(tmp_path / "x.parquet", a=[1.0, 2.0, 3.0], label=labels, __index_level_0__=[0, 1, 2]))
    assert (data.class_names, data.train.labels.tolist()) == (("9", "10"), [1, 0, 1])
    assert data.input_shape == (1,)


def test_large_whole_numbers_and_the_largest_of_float32(tmp_path):
    """Ids with many digits are told apart, though float32 does not."""
    ids = [9_000_000_000_000_000_000 + k for k in range(30)]
    sums = [100_000_000 + 7919 * k * k for k in range(30)]
    largest = [float(np.finfo(np.float32).max), 1.0] * 15
    frame = pd.DataFrame({"id_number": ids, "sum": sums, "largest": largest, "label": ["x", "y"] * 15})
    frame.to_parquet(tmp_path / "x.parquet", index=False)
    frame.to_csv(tmp_path / "x.csv", index=False)
    for path in tmp_path.iterdir():
        data = open_data(str(path))
        kinds = {column.name: column.kind for column in data.encoder.columns_}
        assert kinds == {"id_number": "left out", "sum": "number", "largest": "number"}
        assert data.train.inputs[:, 1].tolist() == largest


def test_damaged_parquet_and_no_pyarrow(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    for invalid in (b"\xff\xff\xff\xff", None):
        parquet(path, a=np.arange(500.0), label=["xxxx", "yyyy"] * 250)
        content = path.read_bytes()  # its head is at the end, and still good
        damaged = content[:100] + b"\xff" * 1000 + content[1100:]
        path.write_bytes(content.replace(b"yyyy", invalid) if invalid else damaged)
        not_opened(path, path, "must be a Parquet file")
    not_opened(write(path, "a,label\n1,x\n"), path, "must be a Parquet file")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    not_opened(path, "needs pyarrow, which is not installed", "symloss[fit]", exception=MissingExtraError)


@in_turn(
    "content, ingredients",
    [
        ({"a": [[1.0], [2.0]], "label": ["x", "y"]}, ("'a'", "numbers or text", "got array(", "--drop a")),
        ({"a": pd.to_timedelta([1, 2], "D"), "label": ["x", "y"]}, ("'a'", "got duration", "--drop a")),
        ({"a": [1.0, 2.0], "label": ["x", None]}, ("'label'", "an empty cell in row 2")),
        ({"a": [1.0, 2.0], "label": [1.0, float("nan")]}, ("'label'", "'nan' in row 2")),
        ({"a": [], "label": []}, ("at least one row",)),
        ("a,b,target\n1,2,x\n", ("label column 'label'", "columns a, b, target (--label, or label=, names another")),
        ("a,label\n1,x\n2,y,3\n", ("line 3", "2 cells", "got 3")),
        ("a,label\n1,x\n\n2\n", ("line 4", "2 cells", "got 1")),
        ('a,label\n"1\n",x\n2\n', ("line 4", "2 cells", "got 1")),
        ("a;b;label\n1;2;x\n3;4;y;5\n", ("line 3", "3 cells", "got 4")),
        ("a,b,label\n1,2,x\n1,-inf,y\n", ("'b'", "finite", "'-inf' in line 3")),
        ("a,b,label\n1,2,x\n1,1e39,y\n", ("'b'", "finite", "'1e39' in line 3")),
        ("b,label\n" + "1,x\n" * 9 + "NA,x\n1O,y\n", ("'b'", "number", "'1O' in line 12", "--settings categorical=b")),
        ("b,label\n" + "1,x\n" * 9 + "1_000,y\n", ("'b'", "number", "'1_000' in line 11")),
        ('a,label\n"1\n",x\n\n2, \n', ("'label'", "an empty cell in line 5")),
        ("a,label\n1,x\n2,x\n", ("at least two classes", "got only 'x'")),
        ("a,label\n1,0.5\n2,0.7\n", ("names or whole numbers", "got 0.5")),
        ("a,label\n", ("at least one row", "got none")),
        ("", ("line of column names", "empty")),
        ("label\nx\ny\n", ("a column of features beside 'label'",)),
        ('a,label\n1,"x\n', ("comma-separated text",)),
        ("a,label\n1,weiß\n2,y\n", ("UTF-8",)),
        (",".join(map(str, range(1000))) + "\n", ("label column 'label'", "columns 0, 1, ", "19 and 980 more")),
        ("id,label\n" + "1,x\n2,y\n", ("a column of features", "'id' (whole numbers, all different", "keep=COLUMN")),
    ],
)
def test_bad_tables(tmp_path, content, ingredients):
    if isinstance(content, dict):
        path = parquet(tmp_path / "x.parquet", **content)
    else:
        (path := tmp_path / "x.csv").write_bytes(content.encode("latin1"))
    not_opened(path, path, *ingredients)


def test_choices(tmp_path):
    frame, path = people(), str(tmp_path / "x.csv")
    frame.to_csv(path, index=False)
    assert open_data(path, keep=["id"]).columns[:3] == ("id", "age", "height")
    assert "town=Bern" not in open_data(path, drop=["town"]).columns
    ages = {f"age={int(age)}" for age in frame["age"].dropna()}
    assert ages < set(open_data(path, categorical=["age"]).columns)
    # A column that is dropped is not read.
    assert open_data(write(tmp_path / "y.csv", "a,b,label\n1,inf,x\n2,inf,y\n"), drop=["b"]).columns == ("a",)


@in_turn("name", ["t.csv", "t.parquet"])
def test_a_test_table_and_a_table_to_predict_on(tmp_path, name):
    """With columns in another order, and values that were never seen."""
    train, later = (people(rows, seed).astype({"member": str}) for rows, seed in ((60, 0), (30, 1)))
    later.loc[3, "town"], later.loc[4, "height"] = "Wien", np.nan
    train.to_csv(tmp_path / "x.csv", index=False)
    mixed_up = later[["label", "height", "town", "age", "id", "member"]]
    (mixed_up.to_csv if name == "t.csv" else mixed_up.to_parquet)(tmp_path / name, index=False)
    data = open_data(str(tmp_path / "x.csv"), test=str(tmp_path / name))
    expected = TableEncoder(drop=["id"]).fit(train.drop(columns="label")).transform(later)
    np.testing.assert_array_equal(data.test.inputs.numpy(), expected)
    assert [data.class_names[label] for label in data.test.labels] == later["label"].tolist()
    np.testing.assert_array_equal(predicted(str(tmp_path / name), data).numpy(), expected)


def test_bad_test_tables(tmp_path):
    train, later = write(tmp_path / "x.csv", "a,b,label\n1.5,red,1\n2.5,blue,2\n"), tmp_path / "t.csv"
    for text, *ingredients in (
        ("a,label\n1,1\n", "feature column 'b'", "got the columns a, label"),
        ("a,b\n1,red\n", "label column 'label'", "got the columns a, b"),
        ("a,b,label\n1,red,z\n", "2 classes of the training data", "'1'", "got 'z'"),
        ("a,b,label\n1,red,1.0\n", "got '1.0', which is the number of '1', written in another way"),
        ("a,b,label\nred,1,1\n", "'a'", "a finite number", "'red' in line 2"),
        ("a,b,label\ninf,1,1\n", "'a'", "a finite number", "'inf' in line 2"),
    ):
        not_opened(train, later, *ingredients, test=write(later, text))


class Name(str):
    """A column's name that counts how often it is compared with another one."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def write_wide(path: Path, columns: int) -> str:
    names = [f"c{k}" for k in range(columns)]
    rows = [",".join([*(str(k + row) for k in range(columns)), "xy"[row]]) for row in range(2)]
    return write(path, "\n".join([",".join([*names, "label"]), *rows]) + "\n")


def test_the_work_on_names_grows_with_their_number_only(tmp_path, monkeypatch):
    read, compared = CsvTable._header, []
    monkeypatch.setattr(CsvTable, "_header", lambda table: [Name(name) for name in read(table)])
    for columns in (20, 200):
        train, test = write_wide(tmp_path / "x.csv", columns), write_wide(tmp_path / "t.csv", columns)
        Name.compared = 0
        data = open_data(train, test=test)
        predicted(test, data)
        compared.append(Name.compared)
        assert data.test.inputs[1, -1] == columns
    assert compared[1] <= 11 * compared[0]


def test_a_parquet_file_is_opened_as_often_whatever_its_width(tmp_path, monkeypatch):
    opened, read = pq.ParquetFile, []

    class Counted(opened):
        def read(self, columns, **options):
            read.append(len(columns))
            return super().read(columns=columns, **options)

    monkeypatch.setattr(pq, "ParquetFile", Counted)
    expected = np.random.default_rng(0).standard_normal((3, 500)).astype(np.float32)
    columns = {f"c{k}": expected[:, k] for k in range(500)}
    path = parquet(tmp_path / "x.parquet", label=["x", "y", "x"], **columns)
    data = open_data(path)
    assert read == [1, 500]
    holds(data.train, expected, [0, 1, 0])
    is_scaled(data, expected.astype(float))
    # Where not all of it fits, some columns at a time, in any order.
    monkeypatch.setattr(tables, "_CELLS", 3 * 128)
    turned = TableEncoder().fit(dict(reversed(columns.items())))
    inputs = open_inputs(DataSource(path), data.description(), turned).inputs
    np.testing.assert_array_equal(inputs.numpy(), expected[:, ::-1])
    assert read[2:] == [128, 128, 128, 116]


def test_a_missing_label_is_no_class_and_its_row_is_not_looked_at(tmp_path):
    for missing in ("nan", "NaN", "-nan", ""):
        path = write(tmp_path / "x.csv", f"a,label\n0,x\n1,{missing}\n2,y\n3,{missing}\n4,x\n")
        given = f"got {repr(missing) if missing else 'an empty cell'} in line 3"
        not_opened(path, "'label'", path, "a label", given, "--skip-bad", "skip_bad=True")
        data, told = skipping(path)
        holds(data.train, [[0], [2], [4]], [0, 1, 0])
        assert data.class_names == ("x", "y")
        assert told == [(tmp_path / "x.csv", "no label in line 3 and 1 more lines")]
    for labels in ([1.0, float("nan"), None, 2.0], ["1.0", "nan", None, "2.0"]):
        columns = {"a": [0.0, 1e300, None, 3.0], "b": ["red", "green", "green", "blue"], "label": labels}
        path = parquet(tmp_path / "x.parquet", **columns)
        not_opened(path, "'label'", path, "'nan' in row 2", "--skip-bad")
        data = open_data(path, skip_bad=True)
        assert (data.class_names, data.columns) == (("1.0", "2.0"), ("a", "b=blue", "b=red"))
        holds(data.train, [[0, 0, 1], [3, 1, 0]], [0, 1])
    path = write(tmp_path / "x.csv", "a,b,label\n1,red,x\n,green,\n3,blue,y\n")
    data = open_data(path, skip_bad=True, test=path)
    assert torch.equal(data.test.inputs, data.train.inputs)
    assert data.columns == ("a", "b=blue", "b=red")


def test_a_number_that_is_written_in_two_ways(tmp_path):
    """But codes with zeros in front are classes of their own, and so are large numbers that differ in a digit."""
    for labels in (("1", "1.0", "2"), ("1", "+1", "x"), ("1e1", "10", "2")):
        path = write(tmp_path / "x.csv", "a,label\n" + "".join(f"{k},{label}\n" for k, label in enumerate(labels)))
        not_opened(path, "'label'", path, "in one way", repr(labels[0]), repr(labels[1]), "the same number")
    path = write(tmp_path / "x.csv", "a,label\n1,007\n2,7\n3,-9007199254740993\n4,-9007199254740992\n")
    assert len(open_data(path).class_names) == 4


@in_turn(
    "labels, classes",
    [
        (["dog", "cat", "dog", "ant"], ("ant", "cat", "dog")),
        (["10", "9", "2", "10"], ("2", "9", "10")),
        (["-1", "1"], ("-1", "1")),
        (["1.0", "0.0", "1.0"], ("0.0", "1.0")),
        (["10", "9", "x"], ("10", "9", "x")),
        (["007", "7", "3"], ("3", "007", "7")),
        (["nan", "inf"], ("inf", "nan")),
        (["ä", "z", "Z"], ("Z", "z", "ä")),
    ],
)
def test_classes_are_ordered_and_labels_come_back(labels, classes):
    assert find_class_names(labels, "here") == classes
    numbers = Part(torch.zeros(len(labels), 1), labels, "here").examples(classes).labels
    assert [classes[number] for number in numbers.tolist()] == labels
    with refused(ValueError, "labels of x.csv", "at least two classes", "got none"):
        find_class_names([], "x.csv")


def test_digits_of_other_scripts_are_text(tmp_path):
    one, two = (chr(0x660 + digit) for digit in (1, 2))
    path = write(tmp_path / "x.csv", f"a,label\n1,{two}\n2,{one}\n3,1\n4,10\n5,9\n")
    assert open_data(path).class_names == ("1", "10", "9", one, two)
    path = write(tmp_path / "y.csv", "a,label\n" + "1,x\n" * 9 + f"{one},y\n")
    not_opened(path, "'a'", "a finite number", repr(one), "line 11")
    # Spaces that are not ASCII are spaces all the same.
    spaced = open_data(write(tmp_path / "z.csv", "a,label\n1\u00a0,x\n\u30002,y\n"))
    assert spaced.train.inputs.tolist() == [[1], [2]]


def write_images(folder: Path) -> np.ndarray:
    written = [random_bytes(4, 3, 3, seed=k) for k in range(3)]
    for k, pixels in enumerate(written):
        save_image(folder / "pictures" / f"{k}.png", pixels)
    return np.stack(written).transpose(0, 3, 1, 2)


@in_turn("column", ["image", "path", "file"])
def test_a_table_of_image_files(tmp_path, column):
    written = write_images(tmp_path)
    absolute = tmp_path / "pictures" / "0.png"
    text = f"label,{column}\ndog,pictures/2.png\ncat,{absolute}\ndog,pictures/1.png\nnan,pictures/1.png\n"
    path = write(tmp_path / "list.csv", text)
    not_opened(path, "'nan' in line 5")
    data = open_data(path, skip_bad=True)
    holds(data.train, written[[2, 0, 1]], [1, 0, 1])
    assert (data.name, data.class_names) == ("list", ("cat", "dog"))
    # In Parquet, with other columns.
    path = parquet(tmp_path / "list.parquet", photo=["pictures/0.png", "pictures/1.png"], kind=[3, 1])
    test = write(tmp_path / "t.csv", "photo,kind\npictures/2.png,3\n")
    data = open_data(path, image="photo", label="kind", test=test)
    holds(data.train, written[:2], [1, 0])
    holds(data.test, written[2:], [1])
    assert data.class_names == ("1", "3")


def test_listed_files_of_several_sizes_or_missing_ones(tmp_path):
    write_images(tmp_path)
    save_image(tmp_path / "big.png", random_bytes(9, 9, 3))
    path = write(tmp_path / "list.csv", "image,label\nbig.png,x\nnone.png,y\npictures/1.png,y\n")
    not_opened(path, tmp_path / "none.png", "no such file", exception=FileNotFoundError)
    data, told = skipping(path)
    assert data.train.inputs == ImageFiles((tmp_path / "big.png", tmp_path / "pictures" / "1.png"))
    assert told == [(tmp_path / "none.png", "no such file")]
    other = write(tmp_path / "t.csv", "a,label\n1,x\n2,y\n")
    for column, options in (("photo", {"data": other, "image": "photo"}), ("image", {"data": path, "test": other})):
        not_opened(options.pop("data"), other, f"image column '{column}'", "got the columns a, label", **options)


TEXT = 'id,label ,note\r\n1,cat,"a, b"\r\n2, dog ,"two\nlines"\r\n\r\n3,cat,"say ""no"""\r\n'


@in_turn("mark", [b"", b"\xef\xbb\xbf"])
def test_only_the_label_of_a_row_changes(tmp_path, mark):
    path = tmp_path / "table.csv"
    path.write_bytes(mark + TEXT.encode())
    changed = open_table(path).relabelled("label", {1: "cat", 2: 'a "dog", maybe'})
    assert changed.startswith(mark + b"id,label ,note\r\n")
    rows = [row for row in csv.reader(io.StringIO(TEXT, newline="")) if row]
    rows[2][1], rows[3][1] = "cat", 'a "dog", maybe'
    assert list(csv.reader(io.StringIO(changed.decode("utf-8-sig"), newline=""))) == rows
    assert path.read_bytes() == mark + TEXT.encode()
    assert open_table(path).rows(["note", "id"], [1, 2]) == {1: ("two\nlines", "2"), 2: ('say "no"', "3")}
    for delimiter in ";\t":  # delimiters and line ends stay, too
        text = "a|label\n1,5|x\n2,5|y\n".replace("|", delimiter)
        path.write_text(text)
        assert open_table(path).relabelled("label", {1: "x"}).decode() == text.replace("y", "x")
        assert open_table(path).rows(["a"], [1]) == {1: ("2,5",)}


def test_a_parquet_table_keeps_its_types(tmp_path):
    path = Path(parquet(tmp_path / "t.parquet", a=[0.5, 1.5, None], label=pa.array([7, 8, 7], pa.int16())))
    for leave_out, rows in (((), [0, 1, 2]), ({1}, [0, 2])):
        changed = pq.read_table(io.BytesIO(open_table(path).relabelled("label", {0: "8"}, leave_out)))
        assert changed.schema == pq.read_table(path).schema
        columns = {"a": [0.5, 1.5, None], "label": [8, 8, 7]}
        assert changed.to_pydict() == {name: [cells[row] for row in rows] for name, cells in columns.items()}
    assert open_table(path).rows(["label", "a"], [2, 0]) == {2: ("7", ""), 0: ("7", "0.5")}
    with refused(ValueError, "labels must be such as", path, "got '9'"):
        open_table(path).relabelled("label", {0: "9"})
