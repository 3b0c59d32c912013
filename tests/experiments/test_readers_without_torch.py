"""Recipes and runs are read without torch: a report needs tables and profiles, not the losses."""

import subprocess
import sys

SCRIPT = """
import sys
import symloss.experiments
from symloss.experiments.layers import load_protocol, profiles
from symloss.experiments.tables import load_table
from symloss.losses.published import presets_of

assert presets_of("sgce")["cifar10"].values == {"q": 0.8}
assert profiles()["scale16"]["cifar10"]["subset"] == 10000
assert load_protocol("cifar10").losses["sgce"].values == {"weight_decay": 5e-3}
assert load_table("table1").published("cifar10", "sgce", "sym:0.8").text == "61.06(1.60)"
print(sorted({"torch", "lightning_fabric", "lightning", "PIL"} & sys.modules.keys()))
"""


def test_no_reader_brings_torch():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
