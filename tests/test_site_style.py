"""What our style sheet adds to the theme of the site, in a real browser."""

from __future__ import annotations

import io

import numpy as np
import pytest
from documentation import ROOT
from PIL import Image

CHART = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='40'><rect width='40' height='40' fill='white'/></svg>"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theme", "system", "dark"),
    [("auto", "light", False), ("auto", "dark", True), ("light", "dark", False), ("dark", "light", True)],
)
def test_the_paper_of_charts_is_as_dark_as_the_page(browser, tmp_path, theme, system, dark):
    (tmp_path / "chart.svg").write_text(CHART)
    style = (ROOT / "docs" / "style" / "site.css").as_uri()
    page = tmp_path / "page.html"
    page.write_text(
        f'<!doctype html><link rel="stylesheet" href="{style}"><body data-theme="{theme}">'
        '<article><p><img src="chart.svg"></p></article>'
    )
    media = {"features": [{"name": "prefers-color-scheme", "value": system}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(page.as_uri())
    picture = Image.open(io.BytesIO(browser.find_element("css selector", "img").screenshot_as_png)).convert("L")
    middle = np.asarray(picture)[10:30, 10:30]
    assert middle.max() < 30 if dark else middle.min() > 225
