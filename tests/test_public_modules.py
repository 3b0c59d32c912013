"""What people find on ``symloss`` after ``import symloss``, in an interpreter of their own."""

import subprocess
import sys

import pytest

import symloss
from symloss.lazy_names import stub_names
from symloss.losses.catalogue import LOSSES

MODULES = sorted(name for name, home in stub_names("symloss").items() if home == "symloss")
LIBRARIES = {"cleanlab", "keras", "lightgbm", "lightning", "sentence_transformers", "transformers", "trl", "xgboost"}
"""What adapters serve, and nothing else imports."""


def test_every_public_module_is_an_attribute_after_one_import():
    # By the hook itself: one module may bring in another, which then is an attribute anyhow.
    script = f"""
import sys, symloss
assert not {{"ast", "torch"}} & set(sys.modules)
import torch
print(symloss.functional.sgce(torch.zeros(1, 2), torch.tensor([0]), q=0.8))
for name in {MODULES}:
    assert symloss.__getattr__(name) is sys.modules["symloss." + name], name
import symloss.adapters.boosting  # which serves two libraries, and imports none of them before a fit
assert not {LIBRARIES} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tensor(")
    assert {"functional", "losses", "noise", "theory", "data", "fit"} <= set(MODULES)


def test_the_top_level_is_small_and_every_name_exists():
    assert len(dir(symloss)) <= 60
    for package in (symloss, symloss.losses, symloss.theory, symloss.data):
        assert all(getattr(package, name) is not None for name in dir(package))


def test_every_loss_is_listed():
    assert {loss.__name__ for loss in LOSSES.values()} <= set(dir(symloss.losses))


def test_names_that_moved_are_pointed_to():
    for name in ("plain", "checked", "relative", "noisy", "complement"):
        with pytest.raises(AttributeError, match=rf"use symloss\.losses\.{name}$"):
            getattr(symloss, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'binary'$"):
        symloss.binary  # noqa: B018
