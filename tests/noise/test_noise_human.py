"""Human labels, from small files in the publisher's layout."""

from __future__ import annotations

import pickle
import zipfile

import numpy as np
import pytest
import torch
from hostile_pickle import Bomb
from in_turn import in_turn
from noise_helpers import some_labels
from refusals import all_refused, refused

from symloss.noise import corrupt, human_labels
from symloss.noise.transition import cifar100_coarse

SIZE = 200
KEYS = {"aggregate": "aggre_label", "worst": "worse_label", **{f"random{k}": f"random_label{k}" for k in (1, 2, 3)}}


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


def test_every_set_of_labels(root):
    fine, coarse = cifar10n(), cifar100n()
    sets = [(name, 10, fine, "clean_label", key) for name, key in KEYS.items()]
    sets += [("fine", 100, coarse, "clean_label", "noisy_label")]
    sets += [("coarse", 20, coarse, "clean_coarse_label", "noisy_coarse_label")]
    for name, classes, content, clean, noisy in sets:
        corruption = corrupt(content[clean], f"human:{name}", num_classes=classes, seed=0, root=root)
        np.testing.assert_array_equal(corruption.labels, content[noisy])
        assert corruption.labels.dtype == np.int64
        assert corruption.manifest.method == "given"
        assert corruption.manifest.rate == (np.array(content[noisy]) != content[clean]).mean()
    text = f"human:worst@{root / 'CIFAR-10_human.pt'}"
    by_path = corrupt(torch.from_numpy(fine["clean_label"]), text, num_classes=10, seed=3)
    np.testing.assert_array_equal(by_path.labels, fine["worse_label"])
    assert by_path.manifest.spec == text


def numpy_1_pickle(content: dict[str, np.ndarray]) -> bytes:
    """The published files: protocol 2, with the module name that numpy had before version 2."""
    return pickle.dumps(content, protocol=2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def as_published(path, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")


def test_a_file_written_by_numpy_1_and_nothing_stays_allowed(tmp_path):
    content, before = cifar10n(), set(torch.serialization.get_safe_globals())
    data = numpy_1_pickle(content)
    assert b"numpy.core.multiarray" in data
    as_published(tmp_path / "a.pt", data)
    labels = human_labels(tmp_path / "a.pt", "worst", content["clean_label"])
    np.testing.assert_array_equal(labels, content["worse_label"])
    assert set(torch.serialization.get_safe_globals()) == before


def test_labels_and_names_that_do_not_belong_to_the_file(root):
    path, content = root / "CIFAR-10_human.pt", cifar10n()
    clean, noisy = content["clean_label"], content["worse_label"]
    wrong = np.append((clean[:3] + 1) % 10, clean[3:])
    differ, elsewhere = f"clean labels must be those of {str(path)!r}, 200 in the publisher's order; got", root / "else"
    all_refused(
        (ValueError, f"{differ} 3 that differ", lambda: human_labels(path, "worst", wrong)),
        (ValueError, f"{differ} 150", lambda: human_labels(path, "worst", clean[:150])),
        (ValueError, "must be one of aggregate, random1 ... 'worse_l", lambda: human_labels(path, "worse_l", clean)),
        (ValueError, "must hold 'noisy_label' ... 'worse_label'", lambda: human_labels(path, "fine", clean)),
        (FileNotFoundError, "must be a file ... else ... not there ... cifar-10-100n", lambda: worst(clean, elsewhere)),
    )
    for bad, ingredients in (
        (np.append(noisy[1:], 10), ("must be 0 to 9 with 10 classes", "CIFAR-10_human.pt", "got 10")),
        (noisy[:100], ("must hold as many 'worse_label' as 'clean_label'", "got 100 and 200")),
    ):
        torch.save(content | {"worse_label": bad}, path)
        with refused(ValueError, *ingredients):
            worst(clean, root)


def worst(clean, root):
    return corrupt(clean, "human:worst", num_classes=10, seed=0, root=root)


HIDDEN = (
    lambda bomb: bomb,
    lambda bomb: {"clean_label": bomb},
    lambda bomb: cifar10n() | {"worse_label": np.array([bomb], dtype=object)},
)


@in_turn("hide", HIDDEN)
@in_turn("layout", ["torch", "legacy torch", "zip", "pickle"])
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
    pickle.loads(pickle.dumps(Bomb(trace)))  # or this would prove nothing
    assert trace.exists()


def test_damaged_files(root):
    path, clean = root / "CIFAR-10_human.pt", cifar10n()["clean_label"]
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"no archive at all"):
        path.write_bytes(damaged)
        with refused(ValueError, "file of human labels must hold arrays", str(path), "was not read"):
            human_labels(path, "worst", clean)
    torch.save([1, 2], path)
    with refused(ValueError, "file of human labels must hold a dictionary", "got list"):
        human_labels(path, "worst", clean)
