"""Hostile pickles: nothing in them runs, and they are refused in one sentence."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from symloss.data import open_data
from symloss.data.published import unpickle


class Hostile:
    """Unpickled by a plain unpickler, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def hostile(path: Path, protocol: int) -> bytes:
    return pickle.dumps({"data": Hostile(path), "labels": [1]}, protocol=protocol)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_runs(tmp_path, protocol):
    path, trace = tmp_path / "batch", tmp_path / "trace"
    path.write_bytes(hostile(trace, protocol))
    with refused(ValueError, path, "only numbers, text and arrays", "posix.mkdir", "none of it was run"):
        unpickle(path)
    assert not trace.exists()
    pickle.loads(path.read_bytes())  # it is hostile indeed
    assert trace.exists()


def test_nothing_runs_in_a_batch_of_cifar(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(hostile(tmp_path / "trace", 2))
    with refused(ValueError, folder / "data_batch_1", "posix.mkdir"):
        open_data("cifar10", root=tmp_path)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (b"cbuiltins\neval\n(V1+1\ntR.", "builtins.eval"),
        (b"cos\nsystem\n(Vtrue\ntR.", "os.system"),
        (b"cnumpy\nload\n(Vx\ntR.", "numpy.load"),
        (b"cnumpy\nndarray.tofile\n.", "numpy.ndarray.tofile"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.", "numpy.ndarray.tofile"),
        (b"(S'x'\nios\nsystem\n.", "os.system"),
        (b"c_codecs\ndecode\n.", "_codecs.decode"),
    ],
    ids=["eval", "system", "numpy.load", "dotted", "dotted, protocol 4", "inst", "decode"],
)
def test_other_names(tmp_path, code, named):
    path = tmp_path / "batch"
    path.write_bytes(code)
    with refused(ValueError, path, f"got {named},"):
        unpickle(path)


@pytest.mark.parametrize(
    "code",
    [
        b"",
        b"\x80\x02}",
        b"not a pickle",
        b"\x80\x63.",
        b"Pid\n.",
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
        b"cnumpy\ndtype\n(Vnonsense\ntR.",
        b"cnumpy\nndarray\n(NtR.",
    ],
    ids=["empty", "cut", "text", "protocol 99", "persistent", "other encoding", "dtype", "array"],
)
def test_damaged_pickles(tmp_path, code):
    path = tmp_path / "batch"
    path.write_bytes(code)
    with refused(ValueError, path, "must be a pickle", "damaged"):
        unpickle(path)


@pytest.mark.parametrize("stand_in", [b"c_codecs\nencode\n", b"cnumpy\ndtype\n"], ids=["encode", "dtype"])
@pytest.mark.parametrize("state", [b"}(Vevil\nK\x01u", b"N}(Vevil\nNu\x86"], ids=["attributes", "slots"])
def test_a_pickle_leaves_no_trace_on_what_it_may_use(tmp_path, stand_in, state):
    path = tmp_path / "batch"
    path.write_bytes(b"\x80\x02" + stand_in + state + b"b.")
    with refused(ValueError, path, "damaged"):
        unpickle(path)


def test_plain_things_are_read(tmp_path):
    things = {"a": [1, 2.5, None, True], "b": ("x", b"\x00\xff"), "c": np.arange(6, dtype=np.uint8).reshape(2, 3)}
    for protocol in range(2, 5):
        path = tmp_path / "things"
        path.write_bytes(pickle.dumps(things, protocol=protocol))
        read = unpickle(path)
        assert {key: read[key] for key in "ab"} == {key: things[key] for key in "ab"}
        np.testing.assert_array_equal(read["c"], things["c"])
