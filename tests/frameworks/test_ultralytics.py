"""ultralytics: a classifier trains with our loss in its own loop, on a folder of images."""

from __future__ import annotations

import os
import tempfile

import missing_operators  # noqa: F401
import pytest

os.environ |= {"YOLO_CONFIG_DIR": tempfile.gettempdir(), "YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false"}
pytest.importorskip("ultralytics", reason="ultralytics is not installed: make frameworks")

import torch
from conftest import assert_close
from data_helpers import random_bytes, save_image
from ultralytics import YOLO
from ultralytics.models.yolo.classify import ClassificationTrainer
from ultralytics.nn.tasks import ClassificationModel

import symloss


class RobustLoss:
    """As ``v8ClassificationLoss`` is called."""

    def __init__(self, loss):
        self.loss, self.values = loss, []

    def __call__(self, preds, batch):
        scores = preds[1] if isinstance(preds, list | tuple) else preds
        value = self.loss(scores, batch["cls"])
        self.values.append(value.item())
        return value, {"loss": value.detach()}


def gradient(criterion):
    torch.manual_seed(0)
    model = ClassificationModel("yolo11n-cls.yaml", nc=3, verbose=False).train()
    model.criterion = criterion
    loss, _ = model.loss({"img": torch.rand(4, 3, 32, 32), "cls": torch.tensor([0, 1, 2, 0])})
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_cross_entropy_is_theirs():
    theirs, ours, robust = map(gradient, (None, RobustLoss(symloss.CE()), RobustLoss(symloss.GCE(q=0.7))))
    assert_close(ours, theirs, 1e-4)
    assert (robust - theirs).abs().max() > 1e-3


@pytest.mark.slow
def test_their_loop_trains_with_it(tmp_path):
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

    YOLO("yolo11n-cls.yaml").train(
        trainer=Trainer, data=tmp_path / "photos", epochs=2, imgsz=32, batch=4, workers=0, device="cpu", plots=False,
        project=str(tmp_path / "runs"), verbose=False,
    )  # fmt: skip
    assert len(loss.values) == 2 * 3
    assert all(0 < value < 1 for value in loss.values)
    (best,) = tmp_path.glob("runs/**/best.pt")
    assert YOLO(best).names == {0: "class0", 1: "class1", 2: "class2"}
