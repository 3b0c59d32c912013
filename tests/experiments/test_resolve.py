"""Settings that nobody has to give, for the paper's data and one's own; ``symloss recipe`` says why they are so."""

import json
import os
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch
from in_turn import in_turn
from PIL import Image
from refusals import refused
from typer.testing import CliRunner

from symloss.cli import app
from symloss.data import KNOWN, open_data
from symloss.data.dataset import Examples, ImageFiles
from symloss.experiments import resolve
from symloss.experiments.layers import explain, protocol_for, resolve_layers
from symloss.losses.spec import parse
from symloss.training import train
from symloss.training.run_folder import folder_name

WEIGHT_DECAY = dict.fromkeys(("sgce", "alpha-mae"), (5e-3, 5e-4)) | dict.fromkeys(("ce", "gce"), (5e-3, 1e-3))
WEIGHT_DECAY |= {"unhinged": (1e-2, 1e-3), "mae": (1e-4, 5e-5), "sce": (1e-2, 5e-4), "anl-ce": (0.0, 0.0)}
WEIGHT_DECAY |= dict.fromkeys(("nce+rce", "nce+agce"), (1e-4, 1e-5))
CIFAR = ("cifar10", "cifar100")


def test_weight_decay_and_penalty_are_the_papers():
    assert {loss: tuple(resolve(data, loss).weight_decay for data in CIFAR) for loss in WEIGHT_DECAY} == WEIGHT_DECAY
    assert [resolve(data, "anl-ce").penalty for data in CIFAR] == [5e-5, 5e-7]
    assert resolve("cifar10", "ce").penalty == 0
    # Of WebVision the columns of table 5 are in test_tables; ImageNet's pictures only test what it trained.
    webvision = resolve("webvision-mini", "sgce")
    assert resolve("webvision-mini-imagenet", "sgce") == replace(webvision, data="webvision-mini-imagenet")


def test_what_is_given_wins():
    given = {"weight_decay": 0.25, "lr": 3.0, "model": "cnn4", "scores": "none", "penalty": 0.5, "batch": 7}
    for data, loss in (("cifar10", "sgce"), ("cifar100", "unhinged"), ("webvision-mini", "sgce")):
        found = resolve(data, loss, **given)
        assert {name: getattr(found, name) for name in given} == given
    assert parse(resolve("cifar10", "sgce:q=0.3").loss) == ("sgce", {"q": 0.3})
    assert resolve("cifar10", "sgce:preset=cifar100").loss == "sgce:preset=cifar100"
    assert resolve("cifar10", "gce", lr=None, model=None) == resolve("cifar10", "gce")
    # What a loss does to its scores anyhow needs no saying.
    for loss, anyhow, other in (("sgce", "l2", "none"), ("ce", "none", "l2")):
        assert resolve("cifar10", loss, scores=anyhow) == resolve("cifar10", loss)
        assert resolve("cifar10", loss, scores=other).scores == other


def test_scores_go_through_batch_normalisation_where_the_paper_says_so():
    assert resolve("webvision-mini", "sgce").scores == "batch-norm"
    found = [resolve_layers("cifar100-step", "cifar100", each).settings for each in ("sgce", "alpha-mae", "anl-ce")]
    assert [settings.scores for settings in found[:2]] == ["batch-norm", "loss"]
    # No settings are published for this one under that schedule: those of CIFAR-100.
    assert found[2].loss == resolve("cifar100", "anl-ce").loss


def test_every_setting_has_its_source():
    found = explain("cifar10", "sgce", lr=0.5, model=None)
    assert set(found.sources) == set(found.settings.to_dict())
    expected = {"lr": "as given", "loss": "Lemire Paquin 2026, table 5", "precision": "the default"}
    assert expected.items() <= found.sources.items()
    assert resolve_layers("cifar10", "cifar10", "sgce:q=0.1").sources["loss"] == "as given"
    assert "Ye 2023" in resolve_layers("cifar10", "cifar10", "anl-ce").sources["penalty"]
    for protocol, data in (("digits", "digits"), ("mnist-lenet5", "mnist")):  # what a search found says so
        sources = resolve_layers(protocol, data, "sgce").sources
        assert "`symloss tune`" in sources["weight_decay"]
        assert "tune" not in sources["epochs"]


PUBLIC = "the public implementation of Ye 2023"
BASELINES = f"the settings of the baselines in {PUBLIC}"
UNPUBLISHED = "not published; ours"
AS_ON_CIFAR10 = "not published; ours: as the paper's for CIFAR-10"
REPLICATION = "Menon 2020, as replicated in ReScience C 2021"


@in_turn(
    "protocol, loss, settings, source",
    [
        # The paper says these of all losses, the batch and the rest of its own three alone.
        ("cifar10", "ce", "model epochs optimizer lr schedule", "the paper, section 7.1"),
        ("cifar100-step", "anl-ce", "model epochs optimizer lr schedule", "the paper, section 7.1"),
        ("cifar10", "ce", "batch momentum clip", PUBLIC),
        ("cifar100", "mae", "batch momentum clip", PUBLIC),
        ("cifar100-step", "gce", "batch momentum clip", PUBLIC),
        ("cifar10", "sgce", "batch momentum clip epochs optimizer lr schedule weight_decay", "the paper, table 5"),
        ("cifar100", "alpha-mae", "batch momentum clip epochs weight_decay", "the paper, table 6"),
        ("cifar100-step", "unhinged", "batch momentum clip schedule weight_decay", "the paper, table 7"),
        ("cifar10", "gce", "weight_decay", "the paper, table 8"),
        ("cifar100-step", "anl-ce", "weight_decay", "the paper, table 8"),
        # The paper has no focal loss, and no MAE and SCE under one step.
        ("cifar10", "focal", "weight_decay", f"as the baselines' in {PUBLIC}"),
        ("cifar10", "focal", "loss", PUBLIC),
        ("cifar10", "anl-fl", "weight_decay", f"ours; {PUBLIC} has 0"),
        ("cifar100-step", "mae", "weight_decay", f"not published; ours: as the baselines' on CIFAR-100 in {PUBLIC}"),
        ("cifar100-step", "sce", "weight_decay", f"not published; ours: as the baselines' on CIFAR-100 in {PUBLIC}"),
        ("cifar100-step", "sce", "loss", f"{BASELINES}, for cifar100"),
        # Tables 3 and 4 say where scores went through batch normalisation.
        ("cifar100-step", "sgce", "scores", "the paper, table 4"),
        ("webvision-mini", "sgce", "scores model", "the paper, table 3"),
        ("webvision-mini", "sgce", "clip momentum optimizer epochs batch lr weight_decay", "the paper, table 5"),
        ("webvision-mini", "anl-ce", "weight_decay clip batch", PUBLIC),
        ("webvision-mini", "anl-ce", "loss penalty", BASELINES),
        ("webvision-mini", "anl-fl", "loss", UNPUBLISHED),
        ("webvision-mini", "anl-fl", "penalty", f"{UNPUBLISHED}: none"),
        ("webvision-mini", "anl-fl", "weight_decay", "not published; ours: as ANL-CE"),
        ("webvision-mini", "ce", "batch lr schedule weight_decay", PUBLIC),
        ("mnist", "sgce", "loss weight_decay", AS_ON_CIFAR10),
        ("mnist", "alpha-mae", "loss weight_decay", AS_ON_CIFAR10),
        ("mnist", "unhinged", "weight_decay", AS_ON_CIFAR10),
        ("mnist", "anl-ce", "weight_decay epochs", PUBLIC),
        ("mnist-lenet5", "gce", "loss epochs clip", REPLICATION),
        ("mnist-lenet5", "sgce", "loss", "ours: as the paper's for CIFAR-10"),
        ("digits", "sce", "loss", f"{BASELINES}, for mnist"),
        ("digits", "sce", "epochs model", "ours"),
        ("table", "focal", "loss", UNPUBLISHED),
    ],
)
def test_a_source_is_where_the_value_is_printed(protocol, loss, settings, source):
    data = {"cifar100-step": "cifar100", "mnist-lenet5": "mnist"}.get(protocol, protocol)
    found = resolve_layers(protocol, data, loss).sources
    assert {name: found[name] for name in settings.split()} == dict.fromkeys(settings.split(), source)


QUICK = {"epochs": 1, "model": "mlp:hidden=8"}


def recipe(*words):
    return json.loads(CliRunner().invoke(app, ["recipe", *words, "--json"], catch_exceptions=False).stdout)


def table(path, flip=False):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    path.write_text("a,b,label\n" + "".join(f"{a},{b},{(a > 0) != flip}\n" for a, b in rows))
    return str(path)


def images(path, count=4, side=8):
    for name in ("cats", "dogs"):
        (path / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (side, side), (i, 0, 0)).save(path / name / f"{i}.png")
    return path


def test_data_of_ones_own_has_a_protocol_for_its_kind_which_is_seen_by_opening_it(tmp_path):
    models = {"table": "mlp", "few-images": "cnn8:width=0.5", "images": "cnn8", "many-photos": "resnet50"}
    for kind, model in (models | dict.fromkeys(("photos", "pretrained"), "resnet18")).items():
        assert resolve_layers(kind, "somewhere/mine", "mae").settings.model == model
    assert resolve(table(tmp_path / "t.csv"), "mae").model == "mlp"
    said = recipe("gce", "--data", str(tmp_path / "t.csv"))["settings"]
    assert (said["model"]["value"], said["model"]["layer"]) == ("mlp", "protocol table")
    assert said["fingerprint"]["value"] is not None
    assert resolve(str(images(tmp_path / "photos")), "mae").model == "cnn8:width=0.5"
    assert resolve(images(tmp_path / "large", side=97), "mae").model == "resnet18"


@in_turn(
    "shape, count, expected",
    [
        ((20,), 10**6, "table"),
        ((3, 7, 30), 100, "table"),
        ((3, 8, 48), 9_999, "few-images"),
        ((1, 28, 28), 10_000, "images"),
        ((3, 48, 49), 10_000, "photos"),
        ((3, 224, 224), 99_999, "photos"),
        ((3, 224, 224), 100_000, "many-photos"),
    ],
)
def test_the_network_fits_size_and_number_of_images(shape, count, expected):
    data = SimpleNamespace(input_shape=shape, train=range(count))
    assert protocol_for(data) == expected
    assert protocol_for(data, "timm:resnet18") == expected
    assert protocol_for(data, "timm:resnet18:pretrained") == ("table" if expected == "table" else "pretrained")


def test_photos_of_several_sizes_have_a_size_with_a_source(tmp_path):
    def sized(data, **given):
        found = explain(data, "mae", **given)
        return found.settings.size, found.sources["size"]

    photos = images(tmp_path / "photos", side=20)
    Image.new("RGB", (90, 30)).save(photos / "cats" / "wide.png")
    assert sized(photos) == (20, "ours: the shorter side of the median image, at most 224")
    assert sized(photos, size=40) == (40, "as given")
    assert resolve(photos, "mae", size=40).key != resolve(photos, "mae").key
    assert resolve(images(tmp_path / "even"), "mae").size is None
    assert sized("cifar10", size=16) == (16, "as given")


def test_a_folder_that_is_called_like_a_protocol_or_a_preset_is_still_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images(tmp_path / "photos")
    plain = resolve("photos", "sgce")
    for name in ("webvision", "table", "photos-of-mine", "cifar100-step", "mnist-lenet5"):
        images(tmp_path / name)
        assert replace(resolve(name, "sgce"), data="photos") == plain, name
    assert {resolve(data, "sgce").fingerprint for data in KNOWN} == {None}


def test_a_table_that_changed_is_another_run(tmp_path):
    data = table(tmp_path / "mine.csv")
    first = resolve(data, "mae", **QUICK)
    assert resolve(data, "mae", **QUICK) == first
    found = train(first, tmp_path / folder_name(first))
    table(tmp_path / "mine.csv", flip=True)
    second = resolve(data, "mae", **QUICK)
    assert folder_name(second) != folder_name(first)
    with refused(ValueError, "holds a run with other settings (fingerprint)"):
        train(second, tmp_path / folder_name(first))
    with refused(ValueError, "mine.csv with noise clean has changed", second.fingerprint):
        train(first, tmp_path / "again")
    assert train(first, tmp_path / folder_name(first)) == found, "what is done needs no data"


def test_a_picture_moved_to_another_class_is_noticed_in_the_same_process(tmp_path):
    folder = images(tmp_path / "photos")
    before = resolve(str(folder), "mae").fingerprint
    time.sleep(0.02)  # a clock of ten milliseconds is the coarsest there is
    os.rename(folder / "cats" / "3.png", folder / "dogs" / "9.png")
    assert resolve(str(folder), "mae").fingerprint != before


def test_the_fingerprint_is_of_inputs_labels_classes_and_test_data(tmp_path):
    def of(x, y, **test):
        np.savez(tmp_path / "d.npz", x=x, y=y, **test)
        return open_data(str(tmp_path / "d.npz")).fingerprint

    x, y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array(list("ababab"))
    same, other = of(x, y), x.copy()
    other[0, 0] = 0.5
    assert of(x, y) == same
    found = {same, of(other, y), of(x, y[::-1]), of(x, np.array(list("acacac"))), of(x, y, x_test=x, y_test=y)}
    assert len(found) == 5
    # Streamed files count by name and size.
    path = tmp_path / "a.png"
    path.write_bytes(b"12")
    examples = Examples(ImageFiles((path,)), torch.tensor([0]))
    before = examples.fingerprint()
    path.write_bytes(b"123")
    assert examples.fingerprint() != before


def test_why_a_parameter_is_what_it_is_here():
    found = recipe("sgce", "--data", "cifar10")
    assert found["settings"]["loss"]["value"] == "sgce:q=0.8"
    published = {"layer": "preset of sgce for cifar10", "value": 0.8, "source": "Lemire Paquin 2026, table 5"}
    default = {"layer": "loss sgce", "value": 0.7, "source": "not published; ours"}
    assert found["parameters"]["q"] == published | {"overrides": [default]}
    files = {layer["name"]: layer["file"] for layer in found["layers"]}
    assert files["preset of sgce for cifar10"] == "losses/presets.toml"
    written = recipe("sgce:q=0.3", "--data", "cifar10")["parameters"]["q"]
    assert (written["value"], written["source"]) == (0.3, "as given")
    assert written["overrides"] == [published, default]


def test_parameters_of_one_loss_may_have_different_sources():
    found = recipe("anl-ce:alpha=3", "--data", "cifar10")
    assert found["settings"]["loss"]["value"] == "anl-ce:alpha=3,beta=5.0"
    parameters = found["parameters"]
    assert (parameters["alpha"]["source"], parameters["beta"]["layer"]) == ("as given", "preset of anl-ce for cifar10")
    found = recipe("focal", "--data", "digits")
    gamma = found["parameters"]["gamma"]
    assert (found["settings"]["loss"]["value"], gamma["value"], gamma["layer"]) == ("focal", 0.5, "loss focal")


def test_a_cell_says_what_its_profile_overrides():
    found = recipe("table1/cifar10/sgce/sym:0.8", "--profile", "scale16")
    lr = found["settings"]["lr"]
    assert (lr["value"], lr["source"], lr["layer"]) == (0.05, "profile scale16", "profile scale16")
    # The protocol sets it; the paper prints it for this loss.
    assert lr["overrides"][0] == {"layer": "protocol cifar10", "value": 0.01, "source": "the paper, table 5"}
    assert found["published"]["text"] == "61.06(1.60)"


def test_people_read_value_source_what_it_overrides_and_the_files():
    for words in (("sgce", "--data", "cifar10"), ("table1/cifar10/sgce/sym:0.8",)):
        lines = CliRunner().invoke(app, ["recipe", *words]).stdout.splitlines()
        decay = next(line for line in lines if line.startswith("weight_decay"))
        assert decay.split(maxsplit=2)[1:] == ["0.005", decay[decay.index("the paper, table 5") :]]
        assert "0.0001 (as the baselines' in the public implementation of Ye 2023)" in decay
        assert "  preset of sgce for cifar10 (symloss/losses/presets.toml)" in lines


def test_what_cannot_be_meant_is_refused():
    for words, said in (
        (("sgce",), "No table 'sgce'"),
        (("table1/cifar10/sgce",), "must read table/data set/loss/noise"),
        (("--data", "cifar10"), "`--data` requires a loss"),
        (("sgec", "--data", "cifar10"), "there is no loss named 'sgec'; did you mean 'sgce'?"),
        (("sgce", "--data", "cifar10", "--profile", "mini"), "`--profile mini` applies to tables only"),
    ):
        done = CliRunner().invoke(app, ["recipe", *words])
        assert isinstance(done.exception, ValueError)
        assert said in str(done.exception)
    with refused(ValueError, "there is no protocol 'cifar11'", "did you mean 'cifar1"):
        resolve_layers("cifar11", "cifar10", "ce")
