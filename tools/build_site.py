"""Build the site: gather its pages in one folder, run Sphinx on it with warnings as errors, and add the atlas.

Usage: python tools/build_site.py [FOLDER]. The site is then in FOLDER/html; FOLDER is build/docs unless you say so.
"""

from __future__ import annotations

import sys
from pathlib import Path

import api_pages
import loss_pages
import staged_pages
from sphinx.cmd.build import main as sphinx

from symloss.atlas import write_atlas

ROOT = Path(__file__).parents[1]


def build(folder: Path, losses: list[str] | None = None) -> int:
    """Build the site, with an atlas of these losses; None for all. Files of an earlier build are removed.

    Returns:
        The exit code of Sphinx.
    """
    if (folder / "source").exists() and not (folder / "source" / "api.rst").exists():
        sys.exit(f"FOLDER must be new, or hold an earlier build; got {folder}, whose source folder is something else")
    staged_pages.write(folder / "source", staged_pages.pages() | api_pages.pages() | loss_pages.pages())
    code = run_sphinx(folder)
    if code == 0:
        write_atlas(folder / "html" / "atlas.html", losses)
    return code


def run_sphinx(folder: Path) -> int:
    """Run Sphinx on the pages in ``folder/source``."""
    options = ["-q", "-W", "--keep-going", "-c", str(ROOT / "docs"), "-d", str(folder / "doctrees")]
    return sphinx([*options, str(folder / "source"), str(folder / "html")])


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "docs"
    code = build(chosen)
    if code == 0:
        print(f"the site is at {chosen / 'html' / 'index.html'}")
    sys.exit(code)
