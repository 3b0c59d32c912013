"""The written pages of the site: docs/, and the few of the repository that lie outside it.

Links in these pages work on GitHub, where they are relative to the file. In the site one rule changes them: a link to
a page of the site leads to that page, a link to any other file of the repository to a copy of it, and a link to a
folder becomes plain text.
"""

from __future__ import annotations

import html
import os
import re
import shutil
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
}
"""Files outside docs that are pages of the site, and their names there."""
ELSEWHERE = {
    "README.md": "index.md",
    "docs/atlas.md": "atlas-guide.md",  # atlas.html is the atlas itself
}
"""Files that have another page in the site, or another name."""

FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")
ADDRESS = re.compile(r"[a-z]+:|#")


def pages() -> dict[str, str | Path]:
    """Every page by its name in the site: text, or a file to copy."""
    found: dict[str, str | Path] = {}
    written = [path.relative_to(ROOT).as_posix() for path in sorted(DOCS.rglob("*.md"))]
    for name in [*written, *OUTSIDE]:
        page = site_name(name)
        found[page] = _with_links_of_the_site((ROOT / name).read_text(), name, page, found)
    return found


def site_name(name: str) -> str:
    """Return the name in the site of a file of the repository: docs is its root, other files are in ``repository``."""
    known = OUTSIDE | ELSEWHERE
    return known.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else f"repository/{name}")


def _with_links_of_the_site(text: str, name: str, page: str, found: dict[str, str | Path]) -> str:
    """Return the text with changed links. Files that it links to are added to those found."""

    def changed(link: re.Match[str]) -> str:
        target, _, anchor = link["target"].partition("#")
        if target == "atlas.html":  # Sphinx does not know this page
            return f'<a class="reference" href="{html.escape(link["target"])}">{link["text"]}</a>'
        if ADDRESS.match(link["target"]):
            return link[0]
        goal = os.path.normpath(PurePosixPath(name).parent / target)
        if not (ROOT / goal).exists():
            return link[0]  # Sphinx warns of it, with the page and the line
        if (ROOT / goal).is_dir():
            return link["text"]
        there = site_name(goal)
        if not goal.endswith(".md") or there.startswith("repository/"):
            found[there] = ROOT / goal
        anchor = f"#{anchor}" if anchor and there != "index.md" else ""
        return f"{link['image']}[{link['text']}]({os.path.relpath(there, PurePosixPath(page).parent)}{anchor})"

    parts = FENCE.split(text)
    parts[::2] = [LINK.sub(changed, part) for part in parts[::2]]
    return "".join(parts)


def write(folder: Path, pages: dict[str, str | Path]) -> None:
    """Write the pages, and remove others. A page that is unchanged is left alone, so that Sphinx need not read it."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()
    for name, content in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copy2(content, path)
        elif not path.exists() or path.read_text() != content:
            path.write_text(content)
