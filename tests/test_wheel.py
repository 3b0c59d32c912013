"""The package as people get it: a wheel, in an environment that has never seen the source tree."""

import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


def ran(*command, cwd):
    """What a command printed, with nothing of the tree on its path and no network to fetch anything from."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    environment |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, as a build leaves files behind, and files left behind by another may hide what is missing."""
    copy, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TREE / name, copy)
    shutil.copytree(TREE / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps")
    ran(*pip, "--wheel-dir", str(out), str(copy), cwd=out)
    (found,) = out.glob("symloss-*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A new one, which sees the packages installed here but no editable install: .pth files there do not count."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = str(folder / "bin" / "python")
    ran(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", str(wheel), cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    where = ran(python, "-c", "import symloss; print(symloss.__file__)", cwd=folder).strip()
    assert Path(where).is_relative_to(packages)
    return folder


def test_the_wheel_has_every_file_of_the_package(wheel):
    source = TREE / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "symloss").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(name).suffix for name in wanted} == {".py", ".pyi", ".typed", ".toml", ".bib", ".html", ".css", ".js"}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == wanted


def test_what_is_installed_works(environment, tmp_path):
    symloss = str(environment / "bin" / "symloss")
    assert "alpha-mae" in ran(symloss, "losses", cwd=tmp_path)
    assert "61.06(1.60)" in ran(symloss, "recipe", "table1/cifar10/sgce/sym:0.8", cwd=tmp_path)
    trained = ran(symloss, "train", "--data", "digits", "--epochs", "1", "--accelerator", "cpu", cwd=tmp_path)
    assert "written to runs" in trained
    ran(symloss, "report", "runs", "--out", "report.html", cwd=tmp_path)
    assert "<style>" in (tmp_path / "report.html").read_text()
