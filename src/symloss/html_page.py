"""An HTML page in one file: style and script are inside it, and nothing else may run or be asked for."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib import resources

from symloss import __version__

PAGE_STYLE = "page.css"  # the style of reports and audits
WRITER = f"Written by symloss {__version__}."


def packaged(name: str) -> str:
    """Return the text of a style sheet or script in this package, by its path in it."""
    return resources.files("symloss").joinpath(name).read_text(encoding="utf-8")


def html_page(title: str, body: str, style: str, script: str) -> str:
    """Return the text of an HTML file.

    Args:
        title: as plain text.
        body: as HTML, with every name in it escaped.
        style: the style sheet.
        script: the code of the page.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # A name on a page may hold anything. The policy allows no script but ours, and no request.
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f"<footer>{escape(WRITER)}</footer>\n<script>{script}</script>\n</body>\n</html>\n"
    )
