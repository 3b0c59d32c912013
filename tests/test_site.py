"""The site, built from the repository with warnings as errors, as ``make docs`` does, and then looked at.

All checks of its pages are one test, so that the site is built once, and not by each process of the tests.
"""

from __future__ import annotations

import io
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import browsing
import numpy as np
import pytest
from PIL import Image

import symloss
from symloss.lazy_names import stub_names
from symloss.losses.catalogue import RECORDS

ROOT = Path(__file__).parents[1]
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
"""Elements whose address a browser fetches by itself."""
ATLAS = "atlas.html"
BUILD = f"""
import pathlib, shutil, sys
sys.path.insert(0, {str(ROOT / "tools")!r})
import build_site

folder = pathlib.Path(sys.argv[1])
print(build_site.build(folder, ["ce"]))
shutil.copytree(folder / "html", folder / "whole")
# A public name that no page documents, and a page in no list.
page, entry = folder / "source" / "api" / "closed_form.rst", ".. autofunction:: symloss.closed_form.refit_head\\n"
assert entry in page.read_text()
page.write_text(page.read_text().replace(entry, ""))
(folder / "source" / "forgotten.md").write_text("# Forgotten\\n\\nNobody links to it.\\n")
print(build_site.run_sphinx(folder))
"""
NOWHERE = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
"""Whoever asks for a network is sent to a proxy that is not there."""


class Page(HTMLParser):
    """The text, addresses and anchors of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.text = ""
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if FETCHED.get(tag) in found:
            self.fetched.append(found[FETCHED[tag]])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        self.anchors |= {found["id"]} if "id" in found else set()

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.slow
def test_the_site(warm_python, tmp_path):
    pytest.importorskip("sphinx")
    script, html = tmp_path / "build.py", tmp_path / "whole"
    script.write_text(BUILD)
    built = warm_python.run([script, tmp_path], env=os.environ | NOWHERE, cwd=ROOT)
    assert (built.returncode, built.stdout) == (0, "0\n1\n"), built.stderr
    said = built.stderr.splitlines()  # what is forgotten fails the build
    assert len([line for line in said if "WARNING" in line]) == len(said) == 2, said
    assert any("the API pages must document symloss.closed_form.refit_head; it is missing" in line for line in said)
    assert any("forgotten.md" in line and "isn't included in any toctree" in line for line in said)
    pages = {path.relative_to(html).as_posix(): Page(path) for path in sorted(html.rglob("*.html"))}
    nothing_is_fetched_from_elsewhere(html, pages)
    every_page_is_reached_from_the_index(pages)
    no_link_is_dead(html, pages)
    every_public_name_has_an_anchor(pages)
    every_loss_has_a_page(pages)
    index = (html / "searchindex.js").read_text()
    assert all(f'"{word}"' in index or f"{word}:" in index for word in ("unhinged", "cleanlab", "losses/sgce"))


def nothing_is_fetched_from_elsewhere(html: Path, pages: dict[str, Page]) -> None:
    remote = re.compile(r"(?:\w+:)?//")
    assert not [(name, url) for name, page in pages.items() for url in page.fetched if remote.match(url)]
    in_styles = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")
    assert not [path for path in html.rglob("*.css") if in_styles.search(path.read_text())]
    assert sum(len(page.fetched) for page in pages.values()) > 500
    assert list(html.rglob("*.css"))


def goes_to(name: str, link: str) -> str | None:
    """The file that a link leads to; None outside the site."""
    address, _ = urldefrag(link)
    if re.match(r"\w+:", address):
        return None
    return os.path.normpath(Path(name).parent / unquote(address)) if address else name


def every_page_is_reached_from_the_index(pages: dict[str, Page]) -> None:
    seen: set[str] = set()
    waiting = ["index.html", "search.html"]  # a form leads to the search
    while waiting:
        name = waiting.pop()
        if name not in seen and name in pages:
            seen.add(name)
            waiting += [goal for link in pages[name].links if (goal := goes_to(name, link))]
    assert set(pages) - seen == set()
    written = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert written - seen == set()


def no_link_is_dead(html: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        for link in page.links:
            goal = goes_to(name, link)
            if goal is None or name == ATLAS:
                continue
            assert (html / goal).exists(), f"{name} links to {link}"
            anchor = unquote(urldefrag(link)[1])
            made_by_script = goal == ATLAS or anchor == ""
            assert made_by_script or goal not in pages or anchor in pages[goal].anchors, f"{name} links to {link}"


def every_public_name_has_an_anchor(pages: dict[str, Page]) -> None:
    """What people can type after ``import symloss``."""
    anchors = {anchor for name, page in pages.items() if name.startswith("api/") for anchor in page.anchors}
    names = {f"symloss.{name}" for name, home in stub_names("symloss").items() if home != "symloss"}
    names |= {f"symloss.losses.{name}" for name in dir(symloss.losses)}
    for module in (getattr(symloss, name) for name, home in stub_names("symloss").items() if home == "symloss"):
        names |= {f"{module.__name__}.{name}" for name in getattr(module, "__all__", ())}
        names.add(f"module-{module.__name__}")
    names |= {f"module-symloss.adapters.{name}" for name in dir(symloss.adapters)}
    assert len(names) > 200
    assert sorted(names - anchors) == []


def every_loss_has_a_page(pages: dict[str, Page]) -> None:
    for name, record in RECORDS.items():
        page = pages[f"losses/{name.replace('+', '-')}.html"]
        assert record.formula in page.text
        assert f"symloss cite {name}" in page.text
        assert f"../{ATLAS}#loss={name.replace('+', '%2B')}" in page.links
        assert any(address.endswith(".svg") for address in page.fetched)
        assert all(p.meaning in page.text and p.interval in page.text for p in record.parameters)
    assert "At q = 1 it is mae, up to a constant." in pages["losses/sgce.html"].text
    assert "It is made of nce and rce" in pages["losses/nce-rce.html"].text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theme", "system", "dark"),
    [("auto", "light", False), ("auto", "dark", True), ("light", "dark", False), ("dark", "light", True)],
)
def test_the_paper_of_charts_is_as_dark_as_the_page(browser, tmp_path, theme, system, dark):
    white = "width='40' height='40'><rect width='40' height='40' fill='white'/>"
    (tmp_path / "chart.svg").write_text(f"<svg xmlns='http://www.w3.org/2000/svg' {white}</svg>")
    style = (ROOT / "docs" / "style" / "site.css").as_uri()
    page = tmp_path / "page.html"
    page.write_text(
        f'<!doctype html><link rel="stylesheet" href="{style}"><body data-theme="{theme}">'
        '<article><p><img src="chart.svg"></p></article>'
    )
    browsing.show(browser, page.as_uri(), scheme=system)
    picture = Image.open(io.BytesIO(browser.find_element("css selector", "img").screenshot_as_png)).convert("L")
    middle = np.asarray(picture)[10:30, 10:30]
    assert middle.max() < 30 if dark else middle.min() > 225
