"""The package as people get it: a wheel in an environment of its own, without extras, and where Unix is missing."""

import os
import re
import shutil
import site
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import symloss
from symloss import extras

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
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


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(wheel):
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "symloss").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(name).suffix for name in wanted} == {".py", ".pyi", ".typed", ".toml", ".bib", ".html", ".css", ".js"}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == wanted


@pytest.mark.slow
def test_what_is_installed_works(environment, tmp_path):
    def command(line):
        return ran(str(environment / "bin" / "symloss"), *line.split(), cwd=tmp_path)

    assert "alpha-mae" in command("losses")
    assert "61.06(1.60)" in command("recipe table1/cifar10/sgce/sym:0.8")
    assert "written to runs" in command("train --data digits --epochs 1 --accelerator cpu")
    command("report runs --out report.html")
    assert "<style>" in (tmp_path / "report.html").read_text()


# Extras that are not installed: every other package than torch and NumPy is hidden.

HIDDEN = """
import importlib.machinery, sys

find = importlib.machinery.PathFinder.find_spec

def hide(name, path=None, target=None):
    return None if name.partition(".")[0] in HIDDEN else find(name, path, target)

HIDDEN = {hidden}
importlib.machinery.PathFinder.find_spec = staticmethod(hide)
"""
LOSSES = """
import torch, symloss
from symloss import functional

scores, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])
for name in symloss.list_losses():
    assert symloss.create_loss(name)(scores, labels).isfinite(), name
for name in dir(symloss.losses):
    assert getattr(symloss.losses, name) is not None
for name in functional.__all__:
    if not name.startswith("linear"):
        assert getattr(functional, name)(scores, labels).isfinite(), name
operators = symloss.losses
made = [symloss.symmetrize("gce"), operators.relative("ce"), operators.complement("ce", p_min=0.1)]
made += [operators.blend("mae", 2), operators.dirichlet("ce", 0.5), 0.5 * symloss.CE() + symloss.MAE()]
for loss in [*made, *symloss.decompose("focal")]:
    loss(scores, labels)
symloss.LinearLoss("unhinged", in_features=4, num_classes=4)(scores, labels).backward()
assert symloss.certify("mae", 3).to_dict()
symloss.of_logp("gce:q=0.5")(scores.log_softmax(1)[:, 0])
symloss.noise.corrupt(labels, "sym:0.5", seed=0, num_classes=4)
from symloss.theory import binary, bounds, priors, regression
recorder, best, model = symloss.MarginRecorder(5), symloss.BestEpoch(), torch.nn.Linear(1, 1)
recorder.add(torch.arange(5), scores, labels)
assert recorder.margin.shape == (5,)
best.add(0.5, model)
best.load_into(model)
"""
MISSING = """
for ask in (lambda: symloss.RobustClassifier, lambda: symloss.closed_form.UnhingedClassifier,
            lambda: symloss.data.open_data, lambda: symloss.training.train):
    try:
        ask()
    except ImportError as error:
        print(error)
sys.argv = ["symloss", "--help"]
from symloss.__main__ import main
main()
"""


def started(code, *arguments):
    """Python that has imported nothing yet."""
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_losses_need_torch_and_numpy_alone_and_a_missing_extra_is_one_sentence():
    # filelock comes with torch.
    hidden = {*extras.FIT, *extras.OTHERS, "click", "lightning", "transformers"} - {"filelock"}
    code = HIDDEN.replace("{hidden}", repr(hidden)) + LOSSES + MISSING
    done = started(code)
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    needs = r"symloss\.\w+(\.\w+)? needs \S+, which is not installed: pip install 'symloss\[fit\]'"
    assert all(re.fullmatch(needs, line) for line in lines)
    sentence = "symloss: The command line needs typer, which is not installed: pip install 'symloss[fit]'"
    assert (done.returncode, done.stderr.splitlines()) == (1, [sentence])


def test_extras_are_as_declared():
    packages = {re.split(r"[>=]", each)[0] for each in PROJECT["optional-dependencies"]["fit"]}
    assert {called.lower() for name, called in extras.FIT.items() if name != "joblib"} == packages
    assert set(extras.OTHERS.values()) <= set(PROJECT["optional-dependencies"])
    assert [re.split(r"[>=]", each)[0] for each in PROJECT["dependencies"]] == ["torch", "numpy"]
    (everything,) = PROJECT["optional-dependencies"]["all"]
    named = set(re.fullmatch(r"symloss\[(.+)\]", everything)[1].split(","))
    assert set(PROJECT["optional-dependencies"]) - named == {"all", "sentence-transformers", "timm"}
    assert symloss.__version__


def test_hooks_have_the_pinned_versions():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    (pinned,) = re.findall(r"^ruff==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert set(re.findall(r"ruff==[\d.]+", hooks)) == {pinned}


WITHOUT_UNIX = """
import os, signal, sys, warnings
for module in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog"):
    sys.modules[module] = None  # importing it raises ImportError
warnings.filterwarnings("ignore", "only soft file lock")
import numpy, torch, sklearn.ensemble, scipy.stats, joblib, skops.io  # these know Windows, and look at its name
for name in (
    "chown", "fchmod", "fchown", "fork", "getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "killpg",
    "mkfifo", "nice", "register_at_fork", "sched_getaffinity", "setsid", "statvfs", "sysconf", "uname",
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK",
):
    vars(os).pop(name, None)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "alarm", "setitimer", "pthread_sigmask"):
    vars(signal).pop(name, None)

from symloss.cli.application import main
folder, table = sys.argv[1:]
for arguments in (
    ["fit", "--data", table, "--budget", "1", "--out", folder],
    ["fit", "--data", table, "--budget", "1", "--out", folder, "--overwrite"],
    ["predict", folder, "--data", table],
    ["audit", folder],
):
    sys.argv = ["symloss", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, arguments

import importlib, pkgutil, symloss
for module in pkgutil.walk_packages(symloss.__path__, "symloss."):
    if not any(part in module.name for part in (".__main__", ".adapters.")):
        importlib.import_module(module.name)
print("done")
"""


@pytest.mark.slow
def test_every_module_is_imported_and_a_model_fitted_written_and_read_without_unix(tmp_path):
    """What Windows lacks is not needed."""
    table, folder = tmp_path / "rows.csv", tmp_path / "model"
    lines = [f"{i % 7},{i % 2 * 3 + i % 5},{'ab'[i % 2]}" for i in range(60)]
    table.write_text("\n".join(["x,z,label", *lines]) + "\n")
    done = started(WITHOUT_UNIX, folder, table)
    assert (done.returncode, done.stdout.split()[-1]) == (0, "done"), done.stderr  # Ray prints what it misses
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows.csv"]
