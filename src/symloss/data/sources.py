"""Where data sets are published, and the checksums of what is there."""

from __future__ import annotations

from dataclasses import dataclass

from symloss.noise.noise_spec import HUMAN_LABELS


@dataclass(frozen=True)
class Remote:
    """A file, and its MD5 as published or as PyTorch's own loaders have it."""

    name: str
    md5: str


@dataclass(frozen=True)
class Source:
    """Files below an address: either an archive of one folder, or single files that belong into a folder."""

    url: str
    folder: str
    files: tuple[Remote, ...]

    @property
    def packed(self) -> bool:
        """Whether the file is an archive."""
        return self.files[0].name.endswith(".tar.gz")


CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz/"

SOURCES = {
    "mnist": Source(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "mnist",
        (
            Remote("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            Remote("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            Remote("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            Remote("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
    ),
    "fashion-mnist": Source(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "fashion-mnist",
        (
            Remote("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            Remote("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            Remote("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            Remote("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
    ),
    "cifar10": Source(
        CIFAR_PAGE, "cifar-10-batches-py", (Remote("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),)
    ),
    "cifar10-binary": Source(
        CIFAR_PAGE, "cifar-10-batches-bin", (Remote("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),)
    ),
    "cifar100": Source(
        CIFAR_PAGE, "cifar-100-python", (Remote("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),)
    ),
    "cifar100-binary": Source(
        CIFAR_PAGE, "cifar-100-binary", (Remote("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),)
    ),
}

_WEBVISION = (
    "ask for the Google images resized to 256, the validation images and the list files at "
    "https://data.vision.ee.ethz.ch/cvl/webvision/dataset2017.html and unpack them into {root}/webvision"
)
_IMAGENET = (
    "ask for the ILSVRC12 validation images at https://image-net.org and unpack them into {root}/ilsvrc12/val, "
    "with a list of lines `file label` in {root}/ilsvrc12/val.txt or in a folder for each of the 1000 classes"
)

BY_HAND = {
    "digits": "it is part of scikit-learn and always there",
    "webvision-mini": _WEBVISION,
    "webvision-mini-imagenet": f"{_WEBVISION}; {_IMAGENET}",
    "cifar-n": HUMAN_LABELS,
}
"""For data sets that cannot be downloaded from here: what to do instead."""


def by_hand(name: str, root: object) -> str:
    """What to do to get a data set that cannot be downloaded from here, into this folder."""
    return BY_HAND[name].format(root=root)
