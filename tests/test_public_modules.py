"""What people find on ``symloss`` after ``import symloss``, in an interpreter of their own."""

import pkgutil
import subprocess
import sys

import symloss

PRIVATE = {"__main__", "checks", "cli", "environment", "fitting", "html_page", "own_code", "writing"}
PRIVATE |= {"loss_names", "public_names"}
PUBLIC = sorted(module.name for module in pkgutil.iter_modules(symloss.__path__) if module.name not in PRIVATE)


def test_every_public_module_is_an_attribute_after_one_import():
    # By the hook itself: one module may bring in another, which then is an attribute anyhow.
    script = f"""
import sys, symloss
assert "torch" not in sys.modules
import torch
print(symloss.functional.sgce(torch.zeros(1, 2), torch.tensor([0]), q=0.8))
for name in {PUBLIC}:
    assert symloss.__getattr__(name) is sys.modules["symloss." + name], name
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tensor(")
    assert set(PUBLIC) <= set(dir(symloss))
    assert not PRIVATE & set(dir(symloss))
