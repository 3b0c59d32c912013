"""Which data set is meant: names, paths, where published data are kept, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from data_helpers import write_idx
from refusals import refused

import symloss.data
from symloss.data import KNOWN, data_root, open_data


def test_the_root(monkeypatch, tmp_path):
    monkeypatch.delenv("SYMLOSS_DATA", raising=False)
    assert data_root() == Path.home() / ".cache" / "symloss" / "data"
    monkeypatch.setenv("SYMLOSS_DATA", str(tmp_path))
    assert data_root() == tmp_path
    monkeypatch.setenv("SYMLOSS_DATA", "~/mine")
    assert data_root() == Path.home() / "mine"


def test_the_root_is_used(monkeypatch, tmp_path):
    write_idx(tmp_path / "mnist", sizes=(3, 2))
    monkeypatch.setenv("SYMLOSS_DATA", str(tmp_path))
    assert len(open_data("mnist").train) == 3


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("cifar-10", "did you mean 'cifar10'?"),
        ("mnsit", "did you mean 'mnist'?"),
        ("Digits", "did you mean 'digits'?"),
        ("qqq", "known are cifar10"),
    ],
)
def test_unknown_names(spec, hint):
    with refused(ValueError, "data must be a known name", f"got {spec!r}", hint):
        open_data(spec)


@pytest.mark.parametrize("name", ["nowhere", "nowhere.csv"])
def test_a_missing_path(tmp_path, name):
    path = tmp_path / name
    with refused(FileNotFoundError, "an existing folder or file", *KNOWN, f"got {str(path)!r}"):
        open_data(str(path))


def test_a_missing_file_here():
    with refused(FileNotFoundError, "an existing folder or file", "got 'nowhere.npz'"):
        open_data("nowhere.npz")


def test_an_empty_text_is_not_the_current_folder(tmp_path):
    with refused(ValueError, "data must be a known name or an existing folder or file", "got an empty text"):
        open_data("")
    with refused(FileNotFoundError, "test must be an existing folder or file", "got ''"):
        open_data(str(tmp_path), test="")


def test_another_kind_of_file(tmp_path):
    path = tmp_path / "x.xlsx"
    path.write_text("")
    with refused(ValueError, "a folder or a file ending in .csv, .tsv, .parquet, .npz", f"got {str(path)!r}"):
        open_data(str(path))


def test_published_data_bring_their_own_test(tmp_path):
    with refused(ValueError, "test must be left out for digits", f"got {str(tmp_path)!r}"):
        open_data("digits", test=tmp_path)


def test_missing_test_data(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,label\n1,x\n2,y\n")
    with refused(FileNotFoundError, "test must be an existing", "got 'nowhere.csv'"):
        open_data(str(path), test="nowhere.csv")


def test_test_data_of_another_kind(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,label\n1,x\n2,y\n")
    with refused(ValueError, "test must be of the same kind", "a table", "got a folder"):
        open_data(str(path), test=tmp_path)


def test_a_name_goes_before_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert len(open_data("digits").train) == 1437
    with refused(ValueError, "digits", "a folder of images for each class"):
        open_data("./digits")


def test_every_public_name_is_there():
    for name in symloss.data.__all__:
        assert getattr(symloss.data, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = symloss.data.nonsense


def test_fetching_does_not_import_torch():
    code = "import sys; from symloss.data import get; assert 'torch' not in sys.modules; import symloss.data.opening; "
    code += "assert 'torch' in sys.modules; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
