"""The atlas in a real browser: losses chosen, sliders moved by key, noise, links, phone and dark."""

from __future__ import annotations

import time

import browsing
import numpy as np
import pytest
from browsing import contrast, luminance

from symloss.atlas import page, write_atlas
from symloss.atlas.data import arrays, atlas_data, drawn_losses
from symloss.losses.catalogue import RECORDS

pytestmark = pytest.mark.slow
LOSSES = ["sgce", "alpha-mae", "ce", "mae", "gce", "cosine", "nce+agce", "dirichlet-ce", "unhinged", "agce", "sce"]
RIGHT, LEFT, UP, END = "\ue014", "\ue012", "\ue013", "\ue010"
HOSTILE = '<img src=x onerror="window.hacked=1">'


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("atlas") / "atlas.html"
    write_atlas(path, LOSSES)
    return path


@pytest.fixture
def opened(browser, file):
    """Open the page with something behind the #. No test leaves a message in the console."""
    browsing.forget(browser)

    def show(hash="", width=1280, scheme="light", path=file):
        browsing.show(browser, "about:blank", width, scheme)
        browser.get(path.as_uri() + hash)
        until(lambda: browser.execute_script("return document.documentElement.dataset.ready") == "yes")
        return browser

    yield show
    assert browser.get_log("browser") == []


def until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def drawn(browser):
    """Wait until the page has drawn what was changed."""
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")


def press(browser, selector, keys):
    browser.find_element("css selector", selector).send_keys(keys)
    drawn(browser)


def choose(browser, side, name):
    change = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))"
    browser.execute_script(change, browser.find_element("css selector", f"#{side} select"), name)
    drawn(browser)


def each(browser, selector, what):
    """An expression in JavaScript of each element e that is found."""
    return browser.execute_script(f"return [...document.querySelectorAll(arguments[0])].map(e => {what})", selector)


def text(browser, selector):
    return each(browser, selector, "e.textContent")[0]


def path_of(browser, id, side):
    return each(browser, f"#{id} .line.{side}", "e.getAttribute('d')")[0]


def rows(browser):
    """What the table under the curves says: name, value, weight, sum, variation."""
    return each(browser, "#readout tbody tr", "[...e.children].map(c => c.textContent)")


def heights(browser, id, side):
    """The heights of the points of a line."""
    pairs = path_of(browser, id, side).replace("M", "L").split("L")[1:]
    return [float(pair.split()[1]) for pair in pairs]


def test_nothing_is_fetched_and_the_first_picture_is_there(opened, file):
    browser = opened()
    assert browsing.fetched(browser) == {browser.current_url}
    assert text(browser, "#first .formula") == "(mean_k p_k^q - p_y^q) / q"
    assert [row[0] for row in rows(browser)] == ["sgce", "ce"]
    assert sorted(each(browser, "#first option", "e.value")) == sorted(LOSSES)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(file.as_uri())
        assert "draws with JavaScript" in browser.find_element("tag name", "noscript").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_page_reads_the_numbers_of_the_library(opened):
    browser = opened()
    for name, parameters in (("ce", {}), ("sgce", {"q": 0.3}), ("nce+agce", {"beta": 4.0})):
        spec = name + "".join(f":{key}={value}" for key, value in parameters.items())
        expected = arrays(RECORDS[name].loss(**parameters))
        found = browser.execute_script(
            "const side = sideOf(page.data, arguments[0], (text) => { throw text; });"
            "return Object.fromEntries(Object.keys(page.data.fields).map("
            " name => [name, [...page.numbers.array(settingOf(side), name).values]]))",
            spec,
        )
        assert set(found) == set(expected)
        for field, numbers in expected.items():
            error = np.abs(np.array(found[field]) - numbers).max()
            assert error <= 1.01 * np.ptp(numbers) / 131070 + 1e-12, (name, field)


def test_the_numbers_under_the_curves_are_those_at_p(opened):
    from selenium.webdriver import ActionChains  # noqa: PLC0415

    browser = opened("#loss=ce&with=mae&classes=10&p=0.25")
    # The page interpolates in p, so the third digit may differ.
    for row, expected in zip(rows(browser), ([1.386, 0.75, 1.386 + 9 * 2.485], [0.75, 0.1875, 9.0]), strict=True):
        assert [float(cell) for cell in row[1:4]] == pytest.approx(expected, rel=0.01)
    assert rows(browser)[1][4].startswith("nothing: constant to ")
    assert rows(browser)[0][4].endswith("% of the range of the value")
    before, line = rows(browser), path_of(browser, "value-margin", "first")
    press(browser, "#swap", "\ue007")
    assert rows(browser) == before[::-1]
    press(browser, "#classes", RIGHT)
    assert browser.find_element("css selector", "#classes").get_attribute("aria-valuetext") == "100"
    assert path_of(browser, "value-margin", "second") != line
    browser = opened("#loss=ce&with=mae&p=0.9")
    chart = browser.find_element("id", "value-p")
    ActionChains(browser).move_to_element(chart).perform()
    drawn(browser)
    assert 0.4 < float(text(browser, "output[for=probe]")) < 0.5
    assert float(text(browser, "#readout thead span")) == float(text(browser, "output[for=probe]"))
    # The same slope at equal scores.
    browser = opened("#loss=sgce&with=ce&classes=10&p=0.1&scale=ce")
    for row in rows(browser):
        assert float(row[1].replace("−", "-")) == pytest.approx(0, abs=0.01)  # noqa: RUF001
        assert float(row[2]) == pytest.approx(0.9, rel=0.01)
    choose(browser, "first", "cosine")
    assert each(browser, "#scaled-note", "e.dataset.without") == ["cosine"]


def test_a_slider_moves_by_key(opened):
    browser = opened("#loss=gce&with=mae")
    before = {id: path_of(browser, id, "first") for id in ("value-p", "value-margin")}
    slider = browser.find_element("css selector", "#first-q")
    assert slider.get_attribute("aria-valuetext") == "q 0.7"
    assert "0.7" in text(browser, "#first .slider output")
    for _ in range(3):
        press(browser, "#first-q", RIGHT)
    assert slider.get_attribute("aria-valuetext") == "q 1"
    assert all(path_of(browser, id, "first") != line for id, line in before.items())
    assert path_of(browser, "value-p", "first") == path_of(browser, "value-p", "second")  # at q = 1 it is MAE
    assert text(browser, "#first .facts .yes") == "symmetric"
    press(browser, "#first-q", LEFT)
    assert text(browser, "#first .facts .no") == "not symmetric"
    # Several parameters move one at a time.
    browser = opened("#loss=nce+agce:q=0.9&with=sce:alpha=5,beta=0.1")
    assert each(browser, "#first output", "Number(e.textContent)") == [1, 1, 0.6, 0.9]
    press(browser, "#first-a", RIGHT)
    assert each(browser, "#first output", "Number(e.textContent)") == [1, 1, 1, 0.6]
    assert "One of these moves at a time" in text(browser, "#first .note")
    assert each(browser, "#second output", "Number(e.textContent)") == [5, 0.1]  # two move together
    press(browser, "#second-alpha", LEFT)
    assert each(browser, "#second output", "Number(e.textContent)")[1] == 0.1


def test_one_sees_symmetry(opened):
    for hash in ("#loss=sgce&with=none", "#loss=sgce&with=ce"):
        browser = opened(hash)
        for axis in ("p", "margin"):
            assert np.ptp(heights(browser, f"sum-{axis}", "first")) <= 0.11  # the tenths of a pixel are rounded
    assert np.ptp(heights(browser, "sum-p", "second")) > 50
    assert np.ptp(heights(browser, "sum-margin", "second")) > 50
    colours = browser.execute_script(
        "return ['first', 'second'].map(side => { const c = document.querySelector(`#sum-${side} canvas`);"
        " const d = c.getContext('2d').getImageData(0, 0, 320, 277).data; const seen = new Set();"
        " for (let i = 0; i < d.length; i += 4) seen.add(`${d[i]},${d[i + 1]},${d[i + 2]}`); return seen.size; })"
    )
    assert colours[0] == 1
    assert colours[1] > 50
    lines = [len(browser.find_elements("css selector", f"#sum-{side} .contour")) for side in ("first", "second")]
    assert lines[0] == 0 < lines[1]
    assert "varies by nothing: constant to" in text(browser, "figure.first:has(#sum-first) .reading")
    assert "% of the range" in text(browser, "figure.second:has(#sum-second) .reading")


def test_a_prior_makes_cross_entropy_symmetric_at_one_alpha(opened):
    """The second thing to try of docs/atlas.md."""
    browser = opened("#loss=dirichlet-ce:alpha=1&with=unhinged&classes=3")
    assert rows(browser)[0][4].endswith("% of the range of the value")
    for _ in range(20):
        if browser.find_element("css selector", "#first-alpha").get_attribute("aria-valuetext") == "alpha 0.6667":
            break
        press(browser, "#first-alpha", LEFT)
    assert rows(browser)[0][4].startswith("nothing: constant to ")
    assert rows(browser)[0][1:3] == rows(browser)[1][1:3]
    assert np.ptp(heights(browser, "weight-p", "first")) <= 0.11  # rounding is not stretched over the chart
    assert len(browser.find_elements("css selector", "#weight-p .end")) >= 3


def minimum(browser, side):
    """Where the dot of the chosen rate is, from left to right."""
    return float(browser.find_element("css selector", f"#noise-{side} .dot.bold").get_attribute("cx"))


def test_noise_moves_the_minimum_of_cross_entropy_and_not_of_a_symmetric_loss(opened):
    browser = opened("#loss=ce&with=sgce&noise=0")
    clean = {side: minimum(browser, side) for side in ("first", "second")}
    words = text(browser, "figure:has(#noise-first) .reading")
    assert words.startswith("Without noise the minimum is at θ = 0.1")
    for _ in range(12):
        press(browser, "#noise", RIGHT)
    assert text(browser, "output[for=noise]") == "60 %"
    assert minimum(browser, "first") < clean["first"] - 30
    assert minimum(browser, "second") == pytest.approx(clean["second"], abs=0.05)
    assert "The minimum moves from θ = 0.1" in text(browser, "figure:has(#noise-first) .reading")
    assert "The minimum stays at θ = 0.2" in text(browser, "figure:has(#noise-second) .reading")
    titles = [text(browser, f"figure:has(#noise-{side}) figcaption") for side in ("first", "second")]
    assert titles == ["ce not symmetric with 10 classes", "sgce symmetric with 10 classes"]
    # Stretched, all curves of a symmetric loss are one.
    browser = opened("#loss=ce&with=sgce&noise=80")
    heights = "e.getAttribute('d').split('L').map(pair => Number(pair.split(' ')[1]))"
    assert np.ptp(each(browser, "#noise-second .line", heights), axis=0).max() > 30
    press(browser, "#stretched", " ")
    assert np.ptp(each(browser, "#noise-second .line", heights), axis=0).max() < 0.3
    assert np.ptp(each(browser, "#noise-first .line", heights), axis=0).max() > 30


def test_the_address_holds_what_is_shown(opened, file):
    browser = opened()
    choose(browser, "first", "nce+agce")
    press(browser, "#first-beta", RIGHT)
    choose(browser, "second", "dirichlet-ce")
    press(browser, "#classes", END)
    press(browser, "#noise", RIGHT + RIGHT)
    press(browser, "#scaled", " ")
    press(browser, "[name=label][value='0']", RIGHT)
    until(lambda: "label=2" in browser.current_url and "scale=ce" in browser.current_url)
    hash = browser.current_url.partition("#")[2]
    assert hash == "loss=nce+agce:beta=2&with=dirichlet-ce&classes=100&p=0.3&label=2&noise=10&scale=ce"
    seen = rows(browser), text(browser, "figure:has(#noise-first) .reading"), text(browser, "figure:has(#map-first) b")
    opened(f"#{hash.replace('+', '%2B')}")  # a link may be written either way
    again = rows(browser), text(browser, "figure:has(#noise-first) .reading"), text(browser, "figure:has(#map-first) b")
    assert again == seen
    browser.execute_script("location.hash = '#loss=alpha-mae:kappa=5&with=none'")  # a link inside the page
    until(lambda: text(browser, "#first .formula").startswith("(1 - alpha)"))
    assert [row[0] for row in rows(browser)] == ["alpha-mae"]
    assert each(browser, "#first output", "e.textContent") == ["not used", "5"]
    assert browser.execute_script("return document.querySelector('#noise-second').closest('figure').hidden")


def test_an_address_that_makes_no_sense_is_answered_in_words(opened):
    browser = opened(f"#loss={HOSTILE}&with=ce:q=1&noise=999&classes=x&p=%E0%A4%A")
    assert [row[0] for row in rows(browser)] == ["sgce", "ce"]
    notice = browser.find_element("id", "notice").text
    assert "There is no loss called “" in notice
    assert "ce has no setting “q=1”." in notice
    assert browser.execute_script("return window.hacked === undefined && document.images.length === 0")


def test_the_maps_obey_arrow_keys_and_the_label(opened):
    browser = opened("#loss=ce&with=none")
    reading = "figure:has(#map-first) .reading"
    assert text(browser, reading) == "at p = (0.29, 0.43, 0.29): 1.25"  # the third digit of -log 0.286
    press(browser, "#map-first", UP)
    assert text(browser, reading).startswith("at p = (0.38, 0.38, 0.24): 0.96")
    press(browser, "#map-first", RIGHT)
    assert text(browser, reading).startswith("at p = (0.38, 0.33, 0.29): 0.96")
    press(browser, "[name=label][value='0']", RIGHT)
    assert text(browser, "figure:has(#map-first) b") == "ce: value for label 2"
    assert text(browser, reading).startswith("at p = (0.38, 0.33, 0.29): 1.1")
    for _ in range(40):
        press(browser, "#map-first", LEFT)
    assert text(browser, reading).startswith("at p = (0.38, 0.6")  # the edge


def test_every_control_is_reached_by_tab_and_has_a_name(opened):
    browser = opened("#loss=nce+agce&with=agce")
    look = """const e = document.activeElement, style = getComputedStyle(e);
        const name = e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? e.textContent;
        return [e.id || e.name || e.tagName, name.trim(), style.outlineStyle, parseFloat(style.outlineWidth)]"""
    reached = []
    browser.execute_script("document.body.tabIndex = -1; document.body.focus()")
    for _ in range(40):
        browser.switch_to.active_element.send_keys("\ue004")
        reached.append(browser.execute_script(look))
    controls = {
        "first-alpha", "first-beta", "first-a", "first-q", "second-a", "second-q", "classes", "probe", "scaled", "swap",
        "label", "map-first", "map-second", "sum-first", "sum-second", "noise", "stretched", "SELECT",
    }  # fmt: skip
    assert controls <= {id for id, *_ in reached}
    for id, name, outline, width in reached:
        if id in controls:
            assert name, id
            assert outline != "none", id
            assert width >= 2, id


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_needs_no_scrolling_sideways(opened, width):
    browser = opened("#loss=nce+agce&with=alpha-mae&noise=40", width)
    ((wide, shown),) = each(browser, "html", "[e.scrollWidth, e.clientWidth]")
    assert wide <= shown == width
    letters = each(browser, ".chart text", "e.getBoundingClientRect().height")
    assert len(letters) > 50
    assert min(letters) >= 9
    assert min(each(browser, ".chart, .map", "e.getBoundingClientRect().width")) > 0.8 * width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_lines_are_readable(opened, scheme):
    browser = opened("#loss=sgce&with=ce", scheme=scheme)
    style = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    paper = browser.execute_script(style, "body", "backgroundColor")
    assert (luminance(paper) > 0.8) == (scheme == "light")
    wanted = [("body", "color", 4.5), (".caption", "color", 4.5), (".facts .yes", "color", 4.5)]
    wanted += [(".chart text", "fill", 4.5), (".line.first", "stroke", 3), (".line.second", "stroke", 3)]
    for selector, property, least in wanted:
        assert contrast(paper, browser.execute_script(style, selector, property)) >= least, selector
    # The colours of the maps grow darker all the way, so they can be told apart without seeing hues.
    colours = browser.execute_script("return COLOURS.map(c => `rgb(${c.map(Math.round).join(',')})`)")
    light = [luminance(colour) for colour in colours]
    assert (np.diff(light) <= 0.002).all()
    assert light[0] > 0.8
    assert light[-1] < 0.05


def test_texts_of_the_data_stay_words(opened, tmp_path):
    data = atlas_data(drawn_losses(["ce", "gce"]))
    for entry in data["losses"]:
        entry |= {"name": HOSTILE + entry["name"], "formula": HOSTILE, "reference": HOSTILE}
        for slider in entry["sliders"]:
            slider |= {"meaning": HOSTILE, "interval": HOSTILE}
    path = tmp_path / "hostile.html"
    path.write_text(page.render(data))
    browser = opened(path=path)
    choose(browser, "second", HOSTILE + "gce")
    assert browser.execute_script("return window.hacked === undefined && document.images.length === 0")
    assert text(browser, "#second .formula") == HOSTILE
    assert HOSTILE in text(browser, "#second .sliders")
