"""Recipes are read without torch: a report needs tables and profiles, not the losses."""

import subprocess
import sys

SCRIPT = """
import sys
from symloss.losses.published import presets_of
from symloss.experiments.layers import profiles
from symloss.experiments.layers import load_protocol
from symloss.experiments.tables import load_table
import symloss.experiments.cells

assert presets_of("sgce")["cifar10"].values == {"q": 0.8}
assert profiles()["scale16"]["cifar10"]["subset"] == 10000
assert load_protocol("cifar10").losses["sgce"].values == {"weight_decay": 5e-3}
assert load_table("table1").published("cifar10", "sgce", "sym:0.8").text == "61.06(1.60)"
print(sorted({"torch", "lightning_fabric", "PIL"} & sys.modules.keys()))
"""


def test_no_reader_brings_torch():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
