"""The HTML pages of this folder: its style sheets and scripts in a page that stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from symloss.html_page import html_page
from symloss.report import provenance


def html_document(title: str, body: str, styles: Sequence[str], script: str) -> str:
    """The text of an HTML file.

    Args:
        title: as plain text.
        body: as HTML, with every name in it escaped.
        styles: the files of this folder with the style.
        script: the file of this folder with the script.
    """
    style = "".join(map(_asset, styles))
    return html_page(title, body, style, _asset(script), f"Written by {provenance.maker()}.")


def _asset(name: str) -> str:
    return resources.files("symloss.report").joinpath(name).read_text()
