"""Whether the files of a known data set are its publisher's. A run on other files is another run."""

from __future__ import annotations

import functools
import gzip
import hashlib
import zlib
from pathlib import Path

from symloss.data.cifar import CIFAR, cifar_files
from symloss.data.idx import SCALING as IDX
from symloss.data.idx import idx_files

MD5 = {
    "mnist": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    "cifar100": {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
        "test.bin": "4499cfba6c016c1be1438163640a0898",
    },
}
"""The MD5 of each unpacked file."""
_BLOCKS = 256
"""How many megabytes of a file are read at most. All have fewer; a packed file may unpack to any size."""


def deviation(name: str, root: Path) -> str | None:
    """A checksum of files that are not the publisher's.

    None if they are the publisher's. None also for files that cannot be read, since opening them raises an error, and
    for data sets without published checksums (WebVision).
    """
    try:
        paths = _files(name, root)
        found = {path.name.removesuffix(".gz"): _md5(path, path.stat().st_mtime_ns) for path in paths}
    except (OSError, EOFError, zlib.error):
        return None
    if all(MD5[name][file] == md5 for file, md5 in found.items()):
        return None
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:12]


def _files(name: str, root: Path) -> list[Path]:
    if name in IDX:
        return idx_files(name, root)
    return cifar_files(name, root) if name in CIFAR else []


@functools.lru_cache(maxsize=64)
def _md5(path: Path, changed: int) -> str:
    """The MD5 of a file's content, unpacked; cached until the file changes."""
    digest = hashlib.md5(usedforsecurity=False)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for _ in range(_BLOCKS):
            digest.update(file.read(2**20))
    return digest.hexdigest()
