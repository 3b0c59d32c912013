"""Reading runs is quick: a report is imported without the libraries that train them."""

import subprocess
import sys


def test_importing_the_report_loads_neither_torch_nor_lightning_nor_pillow():
    script = "import sys, symloss.experiments; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "lightning_fabric", "lightning", "PIL"} & set(loaded)
    assert "symloss" in loaded
