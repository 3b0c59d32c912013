"""Training with losses that are composed, or the user's own: settings, folders, predictions, reports."""

import sys

import numpy as np
import pytest
from training_helpers import run, small

from symloss.experiments import FORMATS, compose, read_runs, resolve
from symloss.experiments.layers import resolve_layers
from symloss.training.prediction import predict
from symloss.training.run_folder import RunFolder, folder_name


def test_settings_of_a_composed_loss():
    found = resolve_layers("digits", "digits", "symmetrize( focal:gamma=2 )")
    assert found.settings.loss == "symmetrize(focal:gamma=2)"
    assert (found.settings.lr, found.settings.weight_decay, found.settings.scores) == (0.01, 0.01, "loss")
    spellings = ("blend(sgce:q=.5,alpha=.3)", "blend( sgce:q=0.5, alpha=0.3 )")
    assert len({resolve("digits", text).key for text in spellings}) == 1
    assert found.sources["loss"] == "composed"
    assert found.sources["scores"] == "the loss, which takes them as they are"
    name = folder_name(resolve("digits", "0.5*gce:q=0.7 + 0.5*symmetrize(mse)"))
    assert "-0.5_gce_q_0.7_+_0.5_symmetrize_mse_-seed0-" in name
    assert len(folder_name(resolve("digits", " + ".join(["0.25*symmetrize(gce:q=0.5)"] * 40)))) < 120


@pytest.fixture
def own_loss(tmp_path, monkeypatch):
    (tmp_path / "loss_of_mine.py").write_text(
        "def miss(input, target):\n    return 1 - input.softmax(1).gather(1, target[:, None]).squeeze(1)\n"
    )
    monkeypatch.chdir(tmp_path)
    yield "loss_of_mine:miss"
    sys.modules.pop("loss_of_mine", None)


def test_a_loss_of_ones_own_trains_as_the_same_loss_of_the_catalogue(own_loss, tmp_path):
    ours, theirs = (run(small(loss, model="mlp"), tmp_path / loss[:3]) for loss in ("mae", own_loss))
    assert theirs["last"]["loss"] == pytest.approx(ours["last"]["loss"], rel=1e-5)
    assert theirs["last"]["test_accuracy"] == ours["last"]["test_accuracy"]


def test_a_runs_folder_imports_no_loss(own_loss, tmp_path):
    """It may come from elsewhere: predictions need what is done to the scores, and the text says that."""
    settings = small(f"symmetrize({own_loss}):normalize=l2", model="mlp", validation=0.0)
    run(settings, tmp_path / "run")
    assert RunFolder(tmp_path / "run").settings() == settings
    sys.modules.pop("loss_of_mine")
    (tmp_path / "loss_of_mine.py").write_text("raise SystemError('imported')\n")
    np.savez(tmp_path / "new.npz", x=np.full((2, 1, 8, 8), 100, np.uint8))
    probabilities = [max(row) for _, row in predict(tmp_path / "run", str(tmp_path / "new.npz")).rows]
    assert 0.1 < max(probabilities) < 0.25, "of unit scores"
    assert "loss_of_mine" not in sys.modules
    for render in FORMATS.values():
        text = render(compose(read_runs(tmp_path / "run")))
        assert f"symmetrize({own_loss}):normalize=l2" in text.replace("\\_", "_")
