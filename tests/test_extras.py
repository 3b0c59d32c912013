"""symloss without its extras: torch and NumPy alone, simulated by hiding every other package."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import symloss
from symloss import extras

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
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


def test_losses_need_torch_and_numpy_alone_and_a_missing_extra_is_one_sentence():
    # filelock comes with torch.
    hidden = {*extras.FIT, *extras.OTHERS, "click", "lightning", "transformers"} - {"filelock"}
    code = HIDDEN.replace("{hidden}", repr(hidden)) + LOSSES + MISSING
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
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
