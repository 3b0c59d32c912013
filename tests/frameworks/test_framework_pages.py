"""What the documentation shows of these frameworks runs as it stands there, page by page, in order."""

from __future__ import annotations

import importlib
import os
import runpy
import tempfile

import missing_operators  # noqa: F401
import pytest
from data_helpers import random_bytes, save_image
from documentation import PAGES, blocks, script

os.environ |= {"KERAS_BACKEND": "torch", "YOLO_CONFIG_DIR": tempfile.gettempdir(), "YOLO_OFFLINE": "true"}
LIBRARIES = ("fastai", "keras", "mmpretrain", "segmentation_models_pytorch", "setfit", "timm", "ultralytics")
FOUND = {page.name: [each for each in blocks(page.read_text()) if each.environment == "frameworks"] for page in PAGES}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a reader would try it: with photos to learn from."""
    for library in LIBRARIES:
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
