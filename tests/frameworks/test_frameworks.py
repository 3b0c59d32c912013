"""Frameworks that take any loss: cross-entropy of ours trains as theirs does, and a robust loss does something else."""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import runpy
import tempfile

import missing_operators  # noqa: F401
import pytest

os.environ |= {"YOLO_CONFIG_DIR": tempfile.gettempdir(), "YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false"}
os.environ["KERAS_BACKEND"] = "torch"
for library in ("fastai", "segmentation_models_pytorch", "setfit", "timm", "ultralytics"):
    pytest.importorskip(library, reason=f"{library} is not installed: make frameworks")

import fastai.callback.progress  # noqa: F401 (it gives a Learner its no_bar)
import segmentation_models_pytorch as smp
import timm
import torch
from conftest import assert_close
from data_helpers import random_bytes, save_image
from documentation import PAGES, blocks, script
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.metrics import accuracy
from language_models import columns, gradients, write_bert
from sentence_transformers import SentenceTransformer
from setfit import SetFitHead, SetFitModel
from timm.data import Mixup
from timm.task import ClassificationTask
from torch import nn
from torch.utils.data import TensorDataset
from ultralytics import YOLO
from ultralytics.models.yolo.classify import ClassificationTrainer
from ultralytics.nn.tasks import ClassificationModel

import symloss
from symloss.closed_form import UnhingedClassifier
from symloss.training.models import create_model

CLASSES = 4


def assert_theirs(result, losses, tolerance, least):
    """What a framework makes of their cross-entropy and of ours is the same, and of a robust loss something else."""
    theirs, ours, robust = map(result, losses)
    assert_close(ours, theirs, tolerance)
    assert (robust - theirs).abs().max() > least


# fastai


def learned(loss):
    torch.manual_seed(0)
    centres = 3 * torch.randn(CLASSES, 6)
    labels = torch.arange(200) % CLASSES
    data = TensorDataset(centres[labels] + torch.randn(200, 6), labels)
    loaders = DataLoaders.from_dsets(data, data, bs=20, shuffle=False, num_workers=0, device="cpu")
    learn = Learner(loaders, nn.Linear(6, CLASSES), loss_func=loss, metrics=accuracy)
    with learn.no_bar(), learn.no_logging():
        learn.fit(4, lr=0.1)
    return learn


@pytest.mark.parametrize("loss", [symloss.GCE(q=0.7), symloss.AlphaMAE(alpha=2.0)], ids=["gce", "alpha-mae"])
def test_predictions_of_a_learner_are_probabilities(loss):
    learn = learned(loss)
    with learn.no_bar(), learn.no_logging():
        probabilities, labels = learn.get_preds(dl=learn.dls.valid)
        _, _, decoded = learn.get_preds(dl=learn.dls.valid, with_decoded=True)
    assert_close(probabilities.sum(1), torch.ones(200), 1e-5)
    scores = learn.model(learn.dls.valid_ds.tensors[0])
    assert_close(probabilities, loss.activation(scores).detach(), 1e-5)
    assert torch.equal(decoded, probabilities.argmax(1))
    assert (decoded == labels).float().mean() > 0.9


def test_a_learner_has_the_loss_of_each_example_and_cross_entropy_is_torch_s():
    learn = learned(symloss.GCE(q=0.7))
    with learn.no_bar(), learn.no_logging():
        values = learn.get_preds(dl=learn.dls.valid, with_loss=True)[-1]
    inputs, labels = learn.dls.valid_ds.tensors
    assert_close(values, symloss.GCE(q=0.7, reduction="none")(learn.model(inputs), labels).detach(), 1e-6)
    assert learn.loss_func.reduction == "mean"
    losses = (nn.CrossEntropyLoss(), symloss.CE(), symloss.MAE())
    assert_theirs(lambda loss: learned(loss).model.weight, losses, 1e-4, 0.01)


# segmentation-models-pytorch


def pixel_gradient(loss, mask):
    torch.manual_seed(0)
    unet = smp.Unet("resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(8, 8, 8), classes=CLASSES)
    loss(unet(torch.randn(2, 3, 32, 32)), mask).backward()
    return unet.segmentation_head[0].weight.grad


def test_pixels_without_a_label_do_not_count():
    mask = torch.randint(CLASSES, (2, 32, 32))
    mask[:, :10] = 255
    ours, robust = (symloss.create_loss(spec, ignore_index=255) for spec in ("ce", "gce:q=0.7"))
    losses = (nn.CrossEntropyLoss(ignore_index=255), ours, robust)
    assert_theirs(lambda loss: pixel_gradient(loss, mask), losses, 1e-5, 1e-4)
    with pytest.raises(IndexError, match="label 255"):
        pixel_gradient(symloss.create_loss("gce:q=0.7"), mask)


# timm


def task_gradient(criterion, images, target):
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=CLASSES)
    ClassificationTask(model, criterion=criterion, verbose=False)(images, target)["loss"].backward()
    return gradients(model)


@pytest.mark.parametrize("soft", [False, True], ids=["labels", "mixup"])
def test_the_task_of_timm_takes_our_losses(soft):
    images, target = torch.randn(8, 3, 32, 32), torch.randint(CLASSES, (8,))
    if soft:
        images, target = Mixup(mixup_alpha=1.0, num_classes=CLASSES)(images, target)
        assert target.shape == (8, CLASSES)
    losses = (nn.CrossEntropyLoss(), symloss.CE(), symloss.AlphaMAE(alpha=2.0))
    assert_theirs(lambda loss: task_gradient(loss, images, target), losses, 1e-5, 0.01)


def test_our_training_builds_networks_of_timm():
    model = create_model("timm:test_resnet", input_shape=(3, 32, 32), num_classes=CLASSES, seed=1)
    assert model(torch.randn(8, 3, 32, 32)).shape == (8, CLASSES)
    with pytest.raises(ValueError, match="did you mean 'test_resnet'"):
        create_model("timm:test_resnett", input_shape=(3, 32, 32), num_classes=CLASSES, seed=1)


# ultralytics


class RobustLoss:
    """As ``v8ClassificationLoss`` is called."""

    def __init__(self, loss):
        self.loss, self.values = loss, []

    def __call__(self, preds, batch):
        scores = preds[1] if isinstance(preds, list | tuple) else preds
        value = self.loss(scores, batch["cls"])
        self.values.append(value.item())
        return value, {"loss": value.detach()}


def yolo_gradient(criterion):
    torch.manual_seed(0)
    model = ClassificationModel("yolo11n-cls.yaml", nc=3, verbose=False).train()
    model.criterion = criterion
    loss, _ = model.loss({"img": torch.rand(4, 3, 32, 32), "cls": torch.tensor([0, 1, 2, 0])})
    loss.backward()
    return gradients(model)


def test_cross_entropy_is_that_of_yolo():
    assert_theirs(yolo_gradient, (None, RobustLoss(symloss.CE()), RobustLoss(symloss.GCE(q=0.7))), 1e-4, 1e-3)


@pytest.mark.slow
def test_the_loop_of_yolo_trains_with_it(tmp_path):
    for number in range(12):
        for part in ("train", "val"):
            path = tmp_path / "photos" / part / f"class{number % 3}" / f"{number}.png"
            save_image(path, random_bytes(32, 32, 3, seed=number))
    loss = RobustLoss(symloss.MAE())

    class Trainer(ClassificationTrainer):
        def get_model(self, *args, **options):
            model = super().get_model(*args, **options)
            model.criterion = loss
            return model

    small = {"epochs": 2, "imgsz": 32, "batch": 4, "workers": 0, "device": "cpu", "plots": False, "verbose": False}
    model = YOLO("yolo11n-cls.yaml")
    model.train(trainer=Trainer, data=tmp_path / "photos", project=str(tmp_path / "runs"), **small)
    assert len(loss.values) == 2 * 3
    assert all(0 < value < 1 for value in loss.values)
    (best,) = tmp_path.glob("runs/**/best.pt")
    assert YOLO(best).names == {0: "class0", 1: "class1", 2: "class2"}


# SetFit

TEXTS, LABELS = columns(1, rows=12)[0], [0, 1, 2] * 4
pinned = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")


@pytest.fixture(scope="module")
def body(tmp_path_factory):
    return SentenceTransformer(write_bert(tmp_path_factory.mktemp("bert")), device="cpu")


def fitted(body, criterion):
    torch.manual_seed(0)
    head = SetFitHead(in_features=16, out_features=3, device="cpu")
    head.get_loss_fn = criterion
    model = SetFitModel(body, head)
    model.fit(TEXTS, LABELS, num_epochs=2, batch_size=4, head_learning_rate=0.1, show_progress_bar=False)
    return model


@pinned
def test_a_head_of_setfit_takes_our_losses_and_is_saved_with_them(body, tmp_path):
    losses = (nn.CrossEntropyLoss, symloss.CE, symloss.GCE)
    assert_theirs(lambda loss: fitted(body, loss).model_head.linear.weight, losses, 1e-5, 1e-3)
    model = fitted(body, functools.partial(symloss.GCE, q=0.5))
    assert_close(model.predict_proba(TEXTS).sum(1), torch.ones(12), 1e-5)
    model.save_pretrained(tmp_path)
    loaded = SetFitModel.from_pretrained(tmp_path)
    assert loaded.model_head.get_loss_fn().loss == symloss.GCE(q=0.5).loss
    assert_close(loaded.predict_proba(TEXTS), model.predict_proba(TEXTS), 1e-6)
    with pytest.raises(pickle.PicklingError):
        fitted(body, lambda: symloss.GCE(q=0.5)).save_pretrained(tmp_path / "other")


@pinned
def test_a_closed_form_head(body):
    model = SetFitModel(body, UnhingedClassifier())
    model.fit(TEXTS, LABELS, num_epochs=1)
    expected = UnhingedClassifier().fit(body.encode(TEXTS), LABELS).predict(body.encode(TEXTS))
    assert model.predict(TEXTS).tolist() == expected.tolist()


# What the documentation shows of these frameworks runs as it stands there, page by page, in order.

FOUND = {page.name: [each for each in blocks(page.read_text()) if each.environment == "frameworks"] for page in PAGES}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a reader would try it: with photos to learn from."""
    for library in ("keras", "mmpretrain"):
        pytest.importorskip(library, reason=f"{library} is not installed: make frameworks")
    cfg = importlib.import_module("ultralytics.cfg")  # it would write beside itself
    monkeypatch.setattr(cfg, "TESTS_RUNNING", False)
    monkeypatch.setitem(cfg.SETTINGS, "runs_dir", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    for number in range(24):
        part = "train" if number % 3 else "val"
        path = tmp_path / "photos" / part / f"class{number % 2}" / f"{number}.png"
        save_image(path, random_bytes(32, 32, 3, seed=number))
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name, found in FOUND.items() if found])
def test_python_blocks(name, folder):
    assert {block.language for block in FOUND[name]} == {"python"}
    page = folder / f"{name}.py"
    page.write_text(script(FOUND[name]))
    runpy.run_path(str(page), run_name="__main__")
