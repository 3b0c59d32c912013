"""Tables of features and of image files, in CSV and Parquet."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from data_helpers import random_bytes, save_image
from refusals import refused

from symloss.data import ImageFiles, open_data, tables
from symloss.data.opening import open_inputs
from symloss.data.source import DataSource
from symloss.data.table_encoder import TableEncoder
from symloss.data.tables import CsvTable

FLOWERS = """width,label,height
1.5,rose,2
-0.1,tulip,3e2
7,rose,0.30000000000000004
"""


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_table_is_read_as_written(tmp_path):
    data = open_data(write(tmp_path / "flowers.csv", FLOWERS))
    expected = torch.tensor([[1.5, 2], [-0.1, 300], [7, 0.3]], dtype=torch.float32)
    assert torch.equal(data.train.inputs, expected)
    assert data.train.labels.tolist() == [0, 1, 0]
    assert (data.name, data.class_names, data.input_shape, data.test) == ("flowers", ("rose", "tulip"), (2,), None)
    assert data.columns == ("width", "height")
    np.testing.assert_allclose(data.scaling.mean, expected.double().mean(0), rtol=1e-12)
    np.testing.assert_allclose(data.scaling.std, expected.double().numpy().std(0), rtol=1e-12)


def test_labels_of_another_column(tmp_path):
    data = open_data(write(tmp_path / "x.csv", "a,target\n1,10\n2,9\n3,10\n"), label="target")
    assert data.class_names == ("9", "10")
    assert data.train.labels.tolist() == [1, 0, 1]


def test_string_labels_come_back(tmp_path):
    names = ["weiß", "rouge, foncé", 'said "blue"', "weiß", "a b"]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    rows = "".join(f"{k},{name}\n" for k, name in enumerate(quoted))
    data = open_data(write(tmp_path / "x.csv", "a,label\n" + rows))
    assert [data.class_names[label] for label in data.train.labels] == names


def test_forms_of_csv(tmp_path):
    """A byte-order mark, Windows line ends, spaces, empty lines, no last line end: all from spreadsheets."""
    plain = open_data(write(tmp_path / "x.csv", "label,a\nx,1\ny,2\n"))
    path = tmp_path / "y.csv"
    path.write_bytes("\ufefflabel, a\r\n x , 1\r\n\r\ny,2".encode())
    odd = open_data(str(path))
    assert torch.equal(plain.train.inputs, odd.train.inputs)
    assert torch.equal(plain.train.labels, odd.train.labels)
    assert plain.class_names == odd.class_names


def test_a_constant_feature_is_not_divided_by_zero(tmp_path):
    scaling = open_data(write(tmp_path / "x.csv", "a,b,label\n3,1,x\n3,2,y\n")).scaling
    assert scaling.mean == (3.0, 1.5)
    assert scaling.std == (1.0, 0.5)


def test_test_columns_may_come_in_another_order(tmp_path):
    train = write(tmp_path / "x.csv", "a,b,label\n1,2,x\n3,4,y\n")
    test = write(tmp_path / "t.csv", "label,more,b,a\ny,0,20,10\n")
    data = open_data(train, test=test)
    assert data.test.inputs.tolist() == [[10, 20]]
    assert data.test.labels.tolist() == [1]


# --- Parquet -----------------------------------------------------------------------------------------------------


def test_parquet_equals_csv(tmp_path):
    labels = ["rose", "tulip", "rose"]
    columns = {"width": [1.5, -0.1, 7.0], "label": labels, "height": [2, 300, 4]}
    pq.write_table(pa.table(columns), tmp_path / "flowers.parquet")
    rows = [f"{w},{n},{h}\n" for w, n, h in zip(*columns.values(), strict=True)]
    csv = open_data(write(tmp_path / "flowers.csv", "width,label,height\n" + "".join(rows)))
    parquet = open_data(str(tmp_path / "flowers.parquet"))
    assert torch.equal(csv.train.inputs, parquet.train.inputs)
    assert torch.equal(csv.train.labels, parquet.train.labels)
    assert (csv.class_names, csv.scaling, csv.name) == (parquet.class_names, parquet.scaling, parquet.name)


@pytest.mark.parametrize(
    "labels",
    [pa.array([10, 9, 10]), pa.array(["10", "9", "10"]), pa.array(["10", "9", "10"]).dictionary_encode()],
    ids=["numbers", "text", "categories"],
)
def test_labels_in_parquet(tmp_path, labels):
    pq.write_table(pa.table({"a": [1.0, 2.0, 3.0], "label": labels}), tmp_path / "x.parquet")
    data = open_data(str(tmp_path / "x.parquet"))
    assert data.class_names == ("9", "10")
    assert data.train.labels.tolist() == [1, 0, 1]


def test_the_index_of_pandas_is_no_feature(tmp_path):
    columns = {"a": [1.0, 2.0], "label": ["x", "y"], "__index_level_0__": [0, 1]}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert open_data(str(tmp_path / "x.parquet")).input_shape == (1,)


def test_without_pyarrow(tmp_path, monkeypatch):
    pq.write_table(pa.table({"a": [1.0, 2.0], "label": ["x", "y"]}), tmp_path / "x.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refused(ValueError, "needs pyarrow, which is not installed", "symloss[fit]"):
        open_data(str(tmp_path / "x.parquet"))


@pytest.mark.parametrize(
    ("columns", "ingredients"),
    [
        ({"a": [1.0, 1e300], "label": ["x", "y"]}, ("'a'", "finite", "1e+300 in row 2")),
        ({"a": [[1.0], [2.0]], "label": ["x", "y"]}, ("'a'", "numbers or text", "got array(", "--drop a")),
        (
            {"a": ["1"] * 10 + ["1O"], "label": ["x"] * 10 + ["y"]},
            ("'a'", "number", "'1O' in row 11", "--settings categorical=a"),
        ),
        ({"a": [1.0, 2.0], "label": ["x", None]}, ("'label'", "an empty cell in row 2")),
        ({"a": [1.0, 2.0], "label": [1.0, float("nan")]}, ("'label'", "'nan' in row 2")),
        ({"a": [1.0, 2.0], "other": ["x", "y"]}, ("label column 'label'", "got the columns a, other")),
        ({"a": [], "label": []}, ("at least one row",)),
    ],
    ids=["huge", "list", "mistake", "null label", "nan label", "no label", "no rows"],
)
def test_bad_parquet(tmp_path, columns, ingredients):
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with refused(ValueError, tmp_path / "x.parquet", *ingredients):
        open_data(str(tmp_path / "x.parquet"))


def test_no_parquet(tmp_path):
    with refused(ValueError, tmp_path / "x.parquet", "must be a Parquet file"):
        open_data(write(tmp_path / "x.parquet", "a,label\n1,x\n"))


def test_damaged_parquet(tmp_path):
    """Its head is at the end, and still good."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": np.arange(500.0), "label": ["x", "y"] * 250}), path)
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * 1000 + content[1100:])
    with refused(ValueError, path, "must be a Parquet file"):
        open_data(str(path))


# --- Bad CSV -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ingredients"),
    [
        (
            "a,b,target\n1,2,x\n",
            ("label column 'label'", "columns a, b, target (--label, or label=, names another one)"),
        ),
        ("a,label\n1,x\n2,y,3\n", ("line 3", "2 cells", "got 3")),
        ("a,label\n1,x\n\n2\n", ("line 4", "2 cells", "got 1")),
        ('a,label\n"1\n",x\n2\n', ("line 4", "2 cells", "got 1")),
        ("a,b,label\n1,2,x\n1,-inf,y\n", ("'b'", "finite", "'-inf' in line 3")),
        ("a,b,label\n1,2,x\n1,1e39,y\n", ("'b'", "finite", "'1e39' in line 3")),
        ("b,label\n" + "1,x\n" * 9 + "NA,x\n1O,y\n", ("'b'", "number", "'1O' in line 12", "--settings categorical=b")),
        ("a,label\n1,x\n2, \n", ("'label'", "an empty cell in line 3")),
        ("a,label\n1,x\n2,x\n", ("at least two classes", "got only 'x'")),
        ("a,label\n1,0.5\n2,0.7\n", ("names or whole numbers", "got 0.5")),
        ("a,label\n", ("at least one row", "got none")),
        ("", ("line of column names", "empty")),
        ("label\nx\ny\n", ("a column of features beside 'label'",)),
        ("a,a,label\n1,2,x\n", ("different names", "'a' twice")),
        ('a,label\n1,"x\n', ("comma-separated text",)),
    ],
    ids=[
        *(
            "no label",
            "long row",
            "short row",
            "after two lines in one cell",
            "inf",
            "huge",
            "mistake",
        ),
        *("empty label", "one class", "fractions", "no rows", "empty", "no features", "same name", "open quote"),
    ],
)
def test_bad_csv(tmp_path, text, ingredients):
    with refused(ValueError, tmp_path / "x.csv", *ingredients):
        open_data(write(tmp_path / "x.csv", text))


def test_another_encoding(tmp_path):
    (tmp_path / "x.csv").write_bytes("a,label\n1,weiß\n2,y\n".encode("latin1"))
    with refused(ValueError, tmp_path / "x.csv", "UTF-8"):
        open_data(str(tmp_path / "x.csv"))


@pytest.mark.parametrize(
    ("text", "ingredients"),
    [
        ("a,label\n1,x\n", ("feature column 'b'", "got the columns a, label")),
        ("a,b\n1,2\n", ("label column 'label'", "got the columns a, b")),
        ("a,b,label\n1,2,z\n", ("classes of the training data", "got 'z'")),
    ],
    ids=["no feature", "no label", "unknown class"],
)
def test_bad_test_tables(tmp_path, text, ingredients):
    train = write(tmp_path / "x.csv", "a,b,label\n1,2,x\n3,4,y\n")
    with refused(ValueError, tmp_path / "t.csv", *ingredients):
        open_data(train, test=write(tmp_path / "t.csv", text))


# --- Wide tables -------------------------------------------------------------------------------------------------


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


def comparisons(path: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """In training, in testing on a second table, and in predicting."""
    read = CsvTable._header
    with monkeypatch.context() as patch:
        patch.setattr(CsvTable, "_header", lambda table: [Name(name) for name in read(table)])
        train, test = write_wide(path / "x.csv", columns), write_wide(path / "t.csv", columns)
        Name.compared = 0
        data = open_data(train, test=test)
        open_inputs(DataSource(test), data.description(), data.encoder)
    assert data.test.inputs[1, -1] == columns
    return Name.compared


def test_the_work_on_names_grows_with_their_number_only(tmp_path, monkeypatch):
    few, many = (comparisons(tmp_path, columns, monkeypatch) for columns in (20, 200))
    assert many <= 11 * few


def test_a_parquet_file_is_opened_as_often_whatever_its_width(tmp_path, monkeypatch):
    opened, read = pq.ParquetFile, []

    class Counted(opened):
        def read(self, columns, **options):
            read.append(len(columns))
            return super().read(columns=columns, **options)

    monkeypatch.setattr(pq, "ParquetFile", Counted)
    expected = np.random.default_rng(0).standard_normal((3, 500)).astype(np.float32)
    columns = {f"c{k}": expected[:, k] for k in range(500)}
    pq.write_table(pa.table({"label": ["x", "y", "x"]} | columns), tmp_path / "x.parquet")
    data = open_data(str(tmp_path / "x.parquet"))
    assert read == [1, 500]
    np.testing.assert_array_equal(data.train.inputs.numpy(), expected)
    np.testing.assert_allclose(data.scaling.std, expected.astype(np.float64).std(0), rtol=1e-12)
    # Where not all of it fits, some columns at a time, in any order.
    monkeypatch.setattr(tables, "_CELLS", 3 * 128)
    turned = TableEncoder().fit(dict(reversed(columns.items())))
    inputs = open_inputs(DataSource(str(tmp_path / "x.parquet")), data.description(), turned).inputs
    np.testing.assert_array_equal(inputs.numpy(), expected[:, ::-1])
    assert read[2:] == [128, 128, 128, 116]


def test_a_message_does_not_name_a_thousand_columns(tmp_path):
    path = write_wide(tmp_path / "x.csv", 1000)
    with refused(ValueError, "label column 'target'", "got the columns c0, c1, ", "c19 and 981 more"):
        open_data(path, label="target")


# --- Labels that are missing, or written in two ways -------------------------------------------------------------


def parquet(path: Path, labels: pa.Array) -> str:
    pq.write_table(pa.table({"a": [float(k) for k in range(len(labels))], "label": labels}), path)
    return str(path)


@pytest.mark.parametrize("missing", ["nan", "NaN", "-nan", ""])
def test_a_missing_label_is_no_class(tmp_path, missing):
    path = write(tmp_path / "x.csv", f"a,label\n0,x\n1,{missing}\n2,y\n3,{missing}\n4,x\n")
    given = repr(missing) if missing else "an empty cell"
    with refused(ValueError, "'label'", path, "a label", f"got {given} in line 3", "--skip-bad", "skip_bad=True"):
        open_data(path)
    told = []
    data = open_data(path, skip_bad=True, on_bad=lambda *bad: told.append(bad))
    assert (data.class_names, data.train.labels.tolist()) == (("x", "y"), [0, 1, 0])
    assert data.train.inputs.tolist() == [[0], [2], [4]]
    assert told == [(tmp_path / "x.csv", "no label in line 3 and 1 more lines")]


@pytest.mark.parametrize(
    "labels", [pa.array([1.0, float("nan"), None, 2.0]), pa.array(["1.0", "nan", None, "2.0"])], ids=["numbers", "text"]
)
def test_a_missing_label_in_parquet(tmp_path, labels):
    path = parquet(tmp_path / "x.parquet", labels)
    with refused(ValueError, "'label'", path, "'nan' in row 2", "--skip-bad"):
        open_data(path)
    data = open_data(path, skip_bad=True)
    assert (data.class_names, data.train.inputs.tolist()) == (("1.0", "2.0"), [[0], [3]])


def test_features_of_a_row_without_a_label_are_not_looked_at(tmp_path):
    pq.write_table(pa.table({"a": [1.0, 1e300, 2.0], "label": ["x", None, "y"]}), tmp_path / "x.parquet")
    assert open_data(str(tmp_path / "x.parquet"), skip_bad=True).train.inputs.tolist() == [[1], [2]]
    assert len(open_data(write(tmp_path / "x.csv", "a,label\n1,x\n,\n2,y\n"), skip_bad=True).train) == 2


def test_an_image_without_a_label(tmp_path):
    written = write_images(tmp_path)
    path = write(tmp_path / "list.csv", "image,label\npictures/0.png,x\npictures/1.png,nan\npictures/2.png,y\n")
    with refused(ValueError, "'nan' in line 3"):
        open_data(path)
    np.testing.assert_array_equal(open_data(path, skip_bad=True).train.inputs.numpy(), written[[0, 2]])


@pytest.mark.parametrize("labels", [("1", "1.0", "2"), ("1", "+1", "x"), ("1e1", "10", "2")])
def test_a_number_that_is_written_in_two_ways(tmp_path, labels):
    path = write(tmp_path / "x.csv", "a,label\n" + "".join(f"{k},{label}\n" for k, label in enumerate(labels)))
    with refused(ValueError, "'label'", path, "in one way", repr(labels[0]), repr(labels[1]), "the same number"):
        open_data(path)
    with refused(ValueError, "'label'", "in one way", "the same number"):
        open_data(parquet(tmp_path / "x.parquet", pa.array(labels)))


def test_codes_with_zeros_in_front_are_classes_of_their_own(tmp_path):
    path = write(tmp_path / "x.csv", "a,label\n1,007\n2,7\n3,-9007199254740993\n4,-9007199254740992\n")
    assert len(open_data(path).class_names) == 4


def test_a_test_label_that_is_written_in_another_way(tmp_path):
    train = write(tmp_path / "x.csv", "a,label\n1,1\n2,2\n")
    with refused(ValueError, "got '1.0', which is the number of '1', written in another way"):
        open_data(train, test=write(tmp_path / "t.csv", "a,label\n1,1.0\n"))


def test_digits_of_other_scripts_are_text(tmp_path):
    arabic = [chr(0x660 + digit) for digit in (1, 2)]
    path = write(tmp_path / "x.csv", f"a,label\n1,{arabic[1]}\n2,{arabic[0]}\n3,1\n4,10\n5,9\n")
    assert open_data(path).class_names == ("1", "10", "9", *arabic)
    for cell in (arabic[0], "1_000"):
        with refused(ValueError, "'a'", "a finite number", repr(cell), "line 11"):
            open_data(write(tmp_path / "y.csv", "a,label\n" + "1,x\n" * 9 + f"{cell},y\n"))
    # Spaces that are not ASCII are spaces all the same.
    spaced = open_data(write(tmp_path / "z.csv", "a,label\n1\u00a0,x\n\u30002,y\n"))
    assert spaced.train.inputs.tolist() == [[1], [2]]


# --- Tables of image files ---------------------------------------------------------------------------------------


def write_images(folder: Path) -> np.ndarray:
    written = [random_bytes(4, 3, 3, seed=k) for k in range(3)]
    for k, pixels in enumerate(written):
        save_image(folder / "pictures" / f"{k}.png", pixels)
    return np.stack(written).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("column", ["image", "path", "file"])
def test_a_table_of_image_files(tmp_path, column):
    written = write_images(tmp_path)
    absolute = tmp_path / "pictures" / "0.png"
    text = f"label,{column}\ndog,pictures/2.png\ncat,{absolute}\ndog,pictures/1.png\n"
    data = open_data(write(tmp_path / "list.csv", text))
    np.testing.assert_array_equal(data.train.inputs.numpy(), written[[2, 0, 1]])
    assert data.train.labels.tolist() == [1, 0, 1]
    assert (data.name, data.class_names) == ("list", ("cat", "dog"))


def test_image_files_in_parquet_and_a_column_of_ones_own(tmp_path):
    written = write_images(tmp_path)
    columns = {"photo": ["pictures/0.png", "pictures/1.png"], "kind": [3, 1]}
    pq.write_table(pa.table(columns), tmp_path / "list.parquet")
    test = write(tmp_path / "t.csv", "photo,kind\npictures/2.png,3\n")
    data = open_data(str(tmp_path / "list.parquet"), image="photo", label="kind", test=test)
    np.testing.assert_array_equal(data.train.inputs.numpy(), written[:2])
    np.testing.assert_array_equal(data.test.inputs.numpy(), written[2:])
    assert (data.class_names, data.train.labels.tolist(), data.test.labels.tolist()) == (("1", "3"), [1, 0], [1])


def test_listed_images_of_different_sizes_stay_on_disk(tmp_path):
    write_images(tmp_path)
    save_image(tmp_path / "big.png", random_bytes(9, 9, 3))
    data = open_data(write(tmp_path / "list.csv", "image,label\nbig.png,x\npictures/1.png,y\n"))
    assert data.train.inputs == ImageFiles((tmp_path / "big.png", tmp_path / "pictures" / "1.png"))


def test_a_listed_file_that_is_missing(tmp_path):
    write_images(tmp_path)
    path = write(tmp_path / "list.csv", "image,label\npictures/0.png,x\nnone.png,y\npictures/1.png,y\n")
    with refused(FileNotFoundError, tmp_path / "none.png", "no such file"):
        open_data(path)
    told = []
    assert len(open_data(path, skip_bad=True, on_bad=lambda *bad: told.append(bad)).train) == 2
    assert told == [(tmp_path / "none.png", "no such file")]


def test_no_such_image_column(tmp_path):
    with refused(ValueError, tmp_path / "x.csv", "image column 'photo'", "got the columns a, label"):
        open_data(write(tmp_path / "x.csv", "a,label\n1,x\n2,y\n"), image="photo")


def test_a_test_table_without_images(tmp_path):
    write_images(tmp_path)
    train = write(tmp_path / "x.csv", "image,label\npictures/0.png,x\npictures/1.png,y\n")
    with refused(ValueError, tmp_path / "t.csv", "image column 'image'", "got the columns a, label"):
        open_data(train, test=write(tmp_path / "t.csv", "a,label\n1,x\n"))
