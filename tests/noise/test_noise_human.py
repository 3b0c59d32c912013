"""Human labels, from small files in the publisher's layout."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest
import torch
from noise_helpers import some_labels
from refusals import refused

from symloss.noise import corrupt, human_labels
from symloss.noise.transition import cifar100_coarse

SIZE = 200
KEYS = {
    "aggregate": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "worst": "worse_label",
}


def cifar10n() -> dict[str, np.ndarray]:
    columns = ["clean_label", *KEYS.values()]
    return {key: some_labels(SIZE, 10, seed).astype(np.int64) for seed, key in enumerate(columns)}


def cifar100n() -> dict[str, object]:
    """As published: fine labels are arrays, coarse ones lists."""
    coarse = np.array(cifar100_coarse())
    clean, noisy = (some_labels(SIZE, 100, seed).astype(np.int64) for seed in (0, 1))
    return {
        "clean_label": clean,
        "noisy_label": noisy,
        "clean_coarse_label": coarse[clean].tolist(),
        "noisy_coarse_label": coarse[noisy].tolist(),
    }


@pytest.fixture
def root(tmp_path):
    torch.save(cifar10n(), tmp_path / "CIFAR-10_human.pt")
    torch.save(cifar100n(), tmp_path / "CIFAR-100_human.pt")
    return tmp_path


@pytest.mark.parametrize("name", KEYS)
def test_cifar10n(root, name):
    content = cifar10n()
    labels = human_labels(root / "CIFAR-10_human.pt", name, content["clean_label"])
    np.testing.assert_array_equal(labels, content[KEYS[name]])
    assert labels.dtype == np.int64


@pytest.mark.parametrize(("name", "clean", "noisy", "classes"), [
    ("fine", "clean_label", "noisy_label", 100), ("coarse", "clean_coarse_label", "noisy_coarse_label", 20),
])  # fmt: skip
def test_cifar100n(root, name, clean, noisy, classes):
    content = cifar100n()
    corruption = corrupt(content[clean], f"human:{name}", num_classes=classes, seed=0, root=root)
    np.testing.assert_array_equal(corruption.labels, content[noisy])


def test_through_corrupt(root):
    content = cifar10n()
    by_root = corrupt(content["clean_label"], "human:worst", num_classes=10, seed=3, root=root)
    path = root / "CIFAR-10_human.pt"
    by_path = corrupt(torch.from_numpy(content["clean_label"]), f"human:worst@{path}", num_classes=10, seed=3)
    np.testing.assert_array_equal(by_root.labels, content["worse_label"])
    np.testing.assert_array_equal(by_path.labels, content["worse_label"])
    assert by_root.manifest.method == "given"
    assert by_root.manifest.rate == (content["worse_label"] != content["clean_label"]).mean()
    assert by_path.manifest.spec == f"human:worst@{path}"


def numpy_1_pickle(content: dict[str, np.ndarray]) -> bytes:
    """The published files: protocol 2, with the module name that numpy had before version 2."""
    return pickle.dumps(content, protocol=2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def as_published(path, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")


def test_a_file_written_by_numpy_1(tmp_path):
    content = cifar10n()
    data = numpy_1_pickle(content)
    assert b"numpy.core.multiarray" in data
    as_published(tmp_path / "a.pt", data)
    labels = human_labels(tmp_path / "a.pt", "worst", content["clean_label"])
    np.testing.assert_array_equal(labels, content["worse_label"])


# --- Refused -------------------------------------------------------------------------------------------------------


def test_clean_labels_that_differ(root):
    path, clean = root / "CIFAR-10_human.pt", cifar10n()["clean_label"]
    wrong = clean.copy()
    wrong[:3] = (wrong[:3] + 1) % 10
    with refused(ValueError, "clean labels must be those of", str(path), "got 3 of 200 that differ"):
        human_labels(path, "worst", wrong)
    with refused(ValueError, "clean labels must be those of", "200 in the publisher's order", "got 150"):
        human_labels(path, "worst", clean[:150])
    with refused(ValueError, "clean labels must be those of", "that differ"):
        corrupt(clean[::-1], "human:worst", num_classes=10, seed=0, root=root)


def test_unknown_names_and_places(root):
    clean = cifar10n()["clean_label"]
    with refused(ValueError, "must be one of aggregate, random1, random2, random3, worst", "got 'worse_label'"):
        human_labels(root / "CIFAR-10_human.pt", "worse_label", clean)
    with refused(ValueError, "must hold 'noisy_label'", "'worse_label'"):
        human_labels(root / "CIFAR-10_human.pt", "fine", clean)
    with refused(FileNotFoundError, "path of human labels must be a file", "elsewhere", "not there", "cifar-10-100n"):
        corrupt(clean, "human:worst", num_classes=10, seed=0, root=root / "elsewhere")


def test_labels_that_are_no_classes(tmp_path):
    content = cifar10n()
    content["worse_label"][5] = 10
    torch.save(content, tmp_path / "CIFAR-10_human.pt")
    with refused(ValueError, "must be 0 to 9 with 10 classes", "CIFAR-10_human.pt", "got 10"):
        corrupt(content["clean_label"], "human:worst", num_classes=10, seed=0, root=tmp_path)
    content["worse_label"] = cifar10n()["worse_label"][:100]
    torch.save(content, tmp_path / "CIFAR-10_human.pt")
    with refused(ValueError, "must hold as many 'worse_label' as 'clean_label'", "got 100 and 200"):
        corrupt(content["clean_label"], "human:worst", num_classes=10, seed=0, root=tmp_path)


class Bomb:
    """Unpickling it would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def hidden_in_an_array(bomb: Bomb) -> dict[str, object]:
    return cifar10n() | {"worse_label": np.array([bomb], dtype=object)}


@pytest.mark.parametrize("hide", [lambda bomb: bomb, lambda bomb: {"clean_label": bomb}, hidden_in_an_array])
@pytest.mark.parametrize("layout", ["torch", "legacy torch", "zip", "pickle"])
def test_a_malicious_file_runs_nothing(tmp_path, hide, layout):
    path, trace = tmp_path / "CIFAR-10_human.pt", tmp_path / "trace"
    content = hide(Bomb(trace))
    if layout == "torch":
        torch.save(content, path)
    elif layout == "legacy torch":
        torch.save(content, path, _use_new_zipfile_serialization=False)
    elif layout == "zip":
        as_published(path, numpy_1_pickle(content))
    else:
        path.write_bytes(pickle.dumps(content))
    with refused(ValueError, "file of human labels must hold arrays of labels and nothing else", str(path)):
        human_labels(path, "worst", cifar10n()["clean_label"])
    assert not trace.exists()


def test_the_bomb_works(tmp_path):
    """Or the test above would prove nothing."""
    pickle.loads(pickle.dumps(Bomb(tmp_path / "trace"))).close()
    assert (tmp_path / "trace").exists()


def test_nothing_stays_allowed(root):
    before = set(torch.serialization.get_safe_globals())
    human_labels(root / "CIFAR-10_human.pt", "worst", cifar10n()["clean_label"])
    assert set(torch.serialization.get_safe_globals()) == before


def test_damaged_files(root):
    path, clean = root / "CIFAR-10_human.pt", cifar10n()["clean_label"]
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"no archive at all"):
        path.write_bytes(damaged)
        with refused(ValueError, "file of human labels must hold arrays", str(path), "was not read"):
            human_labels(path, "worst", clean)
    buffer = io.BytesIO()
    torch.save([1, 2], buffer)
    path.write_bytes(buffer.getvalue())
    with refused(ValueError, "file of human labels must hold a dictionary", "got list"):
        human_labels(path, "worst", clean)
