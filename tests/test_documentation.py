"""What README and docs show runs as it stands there, page by page, in order, and figures are made by scripts.

Long shell lines are shortened.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from data_helpers import python3_pickle, random_bytes, save_image, write_idx
from documentation import PAGES, ROOT, Block, blocks, script

FOUND = {str(page.relative_to(ROOT)): list(blocks(page.read_text())) for page in PAGES}
SIZE = 40
"""Images of a batch of the small CIFAR-10."""
HERE = {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local", "RAY_worker_niceness": "0"}
"""No page may join a cluster that another test, or somebody else, has started here, or wait for all other tests."""
OWN = """def my_loss(input, target):
    return 1 - input.softmax(1).gather(1, target[:, None]).squeeze(1)


margin = my_loss
"""


def of(name: str, language: str) -> list[Block]:
    return [block for block in FOUND[name] if block.language == language and block.environment is None]


def test_every_block_is_python_or_shell():
    assert {block.language for page in FOUND.values() for block in page} == {"python", "sh"}
    assert {block.environment for page in FOUND.values() for block in page} <= {None, "frameworks"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a reader would try it: with photos, a table, losses of their own and the files of the repository."""
    monkeypatch.chdir(tmp_path)
    for number in range(24):  # two classes that can be told apart, with a wrong label each
        pixels = random_bytes(16, 16, 3, seed=number) // 2 + 100 * (number % 2 != number // 22)
        save_image(tmp_path / "photos" / f"class{number % 2}" / f"{number}.png", pixels)
    save_image(tmp_path / "new-photos" / "new.png", random_bytes(16, 16, 3))
    true, names = np.arange(90) % 3, ("Barolo", "Grignolino", "Barbera")
    np.save(tmp_path / "pred_probs.npy", 0.7 * np.eye(3)[true] + 0.1)
    rows = [f"{row},{names[(kind + (row % 8 == 0)) % 3]}\n" for row, kind in enumerate(true)]
    (tmp_path / "wines.csv").write_text("alcohol,wine\n" + "".join(rows))
    for module in ("mylosses.py", "mypackage/losses.py"):
        (tmp_path / module).parent.mkdir(exist_ok=True)
        (tmp_path / module).write_text(OWN)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").touch()  # the environment of the tests is active already
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "examples", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    for kept in (ROOT / "docs" / "results").glob("*.jsonl"):  # copies: a command of a page may add to them
        shutil.copy(kept, tmp_path / "docs" / "results")
    return tmp_path


@pytest.fixture
def published(tmp_path):
    """Small files in the layouts of MNIST, CIFAR-10 and its human labels."""
    data, clean = tmp_path / "data", []
    write_idx(data / "mnist", sizes=(200, 50))
    batches = data / "cifar-10-batches-py"
    batches.mkdir()
    for number, name in enumerate(["test_batch", *(f"data_batch_{k}" for k in range(1, 6))]):
        labels = random_bytes(SIZE, seed=number, high=10).tolist()
        (batches / name).write_bytes(python3_pickle("labels", labels, random_bytes(SIZE, 3072, seed=number)))
        clean += labels
    people = np.array(clean[SIZE:])
    torch.save({"clean_label": people, "worse_label": (people + 1) % 10}, data / "CIFAR-10_human.pt")
    return data


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FOUND if of(name, "python")])
def test_python_blocks(name, folder, warm_python):
    page = folder / Path(name).name
    page.write_text(script(of(name, "python")))
    check(warm_python.run([page], env=os.environ | HERE))


TUTORIALS = ("docs/start.md",)
"""Pages to follow from top to bottom: their blocks are one script."""
SCRIPTS = {
    **{f"{name}-{b.line}": b.shell for name in FOUND if name not in TUTORIALS for b in of(name, "sh")},
    **{name: "\n".join(b.shell for b in of(name, "sh")) for name in TUTORIALS},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_shell_lines(name, folder, published, warm_python):
    """``symloss`` and ``python`` are found before those of the environment."""
    path = os.pathsep.join([str(warm_python.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | HERE | {"SYMLOSS_DATA": str(published), "PATH": path}
    command = ["bash", "-euo", "pipefail", "-c", SCRIPTS[name]]
    check(subprocess.run(command, env=environment, capture_output=True, text=True, check=False))


def check(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, f"{ran.args[-1]}\n{ran.stdout[-500:]}\n{ran.stderr}"
    assert "Traceback" not in ran.stderr, ran.stderr


def test_every_figure_that_a_page_shows_is_there():
    missing = [
        f"{page.name}: {shown}"
        for page in PAGES
        for shown in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text())
        if not shown.startswith("http") and not (page.parent / shown).is_file()
    ]
    assert missing == []


@pytest.mark.slow
def test_one_command_makes_the_figures_that_pages_show(warm_python, tmp_path):
    ran = warm_python.run([ROOT / "docs" / "figures" / "make.py", tmp_path])
    assert ran.returncode == 0, ran.stderr
    made = {figure.name for figure in tmp_path.iterdir()}
    shown = {name for page in PAGES for name in re.findall(r"images/([^)]+)\)", page.read_text())}
    assert len(made) == 15
    assert made <= shown
    assert all(figure.stat().st_size > 5_000 for figure in tmp_path.iterdir())
