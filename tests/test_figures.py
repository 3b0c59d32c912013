"""The figures of the documentation are made by scripts, and pages show them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from documentation import PAGES, ROOT


def test_every_figure_that_a_page_shows_is_there():
    missing = [
        f"{page.name}: {shown}"
        for page in PAGES
        for shown in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text())
        if not shown.startswith("http") and not (page.parent / shown).is_file()
    ]
    assert missing == []


@pytest.mark.slow
def test_one_command_makes_the_figures_that_pages_show(tmp_path):
    command = [sys.executable, ROOT / "docs" / "figures" / "make.py", tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    made = {figure.name for figure in tmp_path.iterdir()}
    shown = {name for page in PAGES for name in re.findall(r"images/([^)]+)\)", page.read_text())}
    assert len(made) == 14
    assert made <= shown
    assert all(figure.stat().st_size > 5_000 for figure in tmp_path.iterdir())
