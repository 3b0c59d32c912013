"""The audit's page in a real browser: filters, keys, decisions and the CSV; no name of anybody's runs."""

import csv
import io
import time

import browsing
import numpy as np
import pytest
import torch

from symloss.data.images import thumbnail
from symloss.fit import audit_labels
from symloss.fit.audit import page
from symloss.fit.audit.export import AuditDocument, Suspect, csv_text

pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="window.hacked=1">'
SCRIPT = "</script><script>window.hacked=2</script>"
FORMULA = "=1+1"
CLASSES = ("cat", "dog", HOSTILE, SCRIPT, FORMULA)
GIVEN = np.array([0, 0, 1, 2, 4, 0, 1, 1])
PREDICTED = np.array([1, 1, 2, 3, 0, 0, 1, 1])
FLAGGED = np.array([True] * 5 + [False] * 3)
ORDER = [3, 0, 1, 4, 2]
FILE = 'a, "b" <i>.png'


def document(**changes) -> AuditDocument:
    """Eight labels, five of them flagged, of classes with every kind of name."""
    picture = thumbnail(torch.full((1, 3, 4, 4), 200, dtype=torch.uint8), 0)
    classes, flagged = changes.pop("classes", CLASSES), changes.pop("flagged", FLAGGED)
    options = {"flagged": flagged, "class_names": classes, "positions": np.arange(8) + 100}
    audit = audit_labels(GIVEN, np.linspace(-2, 2, 8), np.eye(len(classes))[PREDICTED], **options)
    parts = {
        "headline": f"About 5 of 8 labels look wrong {HOSTILE}",
        "facts": (("Run", SCRIPT), ("Data", HOSTILE)),
        "suspects": tuple(Suspect(place, picture) for place in ORDER),
        "files": [FILE, *(f"{k}.png" for k in range(1, 8))],
    }
    return AuditDocument(audit, **(parts | changes))


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page as it is on a desk, in light, without decisions of earlier tests."""

    def show(shown: AuditDocument, width: int = 1280, dark: bool = False):
        file = tmp_path / "audit.html"
        file.write_text(page.render(shown))
        browsing.forget(browser)
        return browsing.show(browser, file.as_uri(), width, "dark" if dark else "light")

    yield show
    browser.execute_script("try { localStorage.clear() } catch {}")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def press(browser, keys):
    browser.find_element("tag name", "body").send_keys(keys)


def state(browser):
    """The indices of the labels that are shown, of the current one, and the decisions."""
    return browser.execute_script(
        "const all = [...document.querySelectorAll('.suspect')], index = (s) => Number(s.dataset.index) - 100;"
        "const name = (s) => s.classList.contains('accepted') ? 'a' : s.classList.contains('rejected') ? 'r' : '-';"
        "return [all.filter(s => s.checkVisibility()).map(index), all.filter(s => s.matches('.current')).map(index),"
        " all.map(name).join('')]"
    )


def choose(browser, name, value):
    script = "const s = document.querySelector(`select[name=${arguments[0]}]`); s.value = arguments[1];"
    browser.execute_script(script + "s.dispatchEvent(new Event('change'))", name, value)


def test_names_stay_words_and_nothing_is_fetched(opened):
    browser = opened(document(columns=(HOSTILE,), suspects=(Suspect(0, None, (SCRIPT,)),), rows=range(8), files=None))
    assert browser.execute_script("return window.hacked === undefined")
    assert browser.execute_script("return [document.scripts.length, document.images.length]") == [1, 0]
    assert browser.execute_script("return document.querySelector('.review').dataset.key") == document().key
    words = browser.find_element("tag name", "body").text
    assert words.count(HOSTILE) >= 3
    assert SCRIPT in words
    assert browsing.fetched(browser) == {browser.current_url}
    assert browser.get_log("browser") == []


def test_the_keyboard_moves_accepts_rejects_and_undoes(opened):
    browser = opened(document())
    assert state(browser) == [ORDER, [], "-----"]
    right, left, down, up = "\ue014", "\ue012", "\ue015", "\ue013"
    moves = ("j", 0, "-----"), ("a", 1, "a----"), ("r", 2, "ar---"), ("ku", 1, "a----")
    for keys, place, decided in (*moves, (right, 2, "a----"), (left + down + up, 1, "a----"), ("j" * 9, -1, "a----")):
        press(browser, keys)
        assert state(browser)[1:] == [[ORDER[place]], decided], keys
    counts = browser.find_element("css selector", ".counts").text
    assert counts == "5 shown; 1 accepted, 0 rejected, 4 undecided"
    accept, reject = browser.find_elements("css selector", ".suspect")[1].find_elements("tag name", "button")
    for button, decided in ((accept, "aa---"), (reject, "ar---"), (reject, "a----")):
        button.click()  # buttons do the same, and a second click undoes
        assert state(browser)[2] == decided
        assert accept.get_attribute("aria-pressed") == str(decided == "aa---").lower()
    sizes = browser.execute_script("return [...document.images].map(i => [i.naturalWidth, i.alt])")
    assert sizes == [[4, document().files[place]] for place in ORDER], "pictures are inside the page"


def test_filters_by_class_pair_and_decision(opened):
    browser = opened(document())
    choose(browser, "class", "2")  # given or suggested
    assert state(browser)[0] == [3, 2]
    choose(browser, "class", "")
    choose(browser, "pair", "0,1")
    assert state(browser)[0] == [0, 1]
    pairs = browser.execute_script("return [...document.querySelector('[name=pair]').options].map(o => o.text)")
    assert pairs[:2] == ["every pair", "cat → dog (2)"]
    browser.find_element("css selector", "[data-act=accept-all]").click()
    choose(browser, "pair", "")
    assert state(browser)[2] == "-aa--"
    for value, places in (("undecided", [3, 4, 2]), ("accepted", [0, 1]), ("rejected", [])):
        choose(browser, "state", value)
        assert state(browser)[0] == places
    assert browser.find_element("css selector", ".nothing").is_displayed()
    choose(browser, "state", "undecided")
    press(browser, "jr")  # what is decided leaves the list, and the next is current
    assert state(browser) == [[4, 2], [4], "raa--"]
    choose(browser, "state", "")
    browser.find_element("css selector", "[data-act=clear]").click()
    assert state(browser)[2] == "-----"


def test_a_click_on_the_matrix_shows_its_pair(opened):
    browser = opened(document())
    cell = browser.find_element("css selector", '.heat g[data-row="0"][data-column="1"]')
    assert browser.execute_script("return arguments[0].textContent", cell).endswith("cat → dog: 66.7 % (2 of 3)")
    for places in ([0, 1], ORDER):  # a second click shows all again
        cell.click()
        assert state(browser)[0] == places
    browser.find_element("css selector", '.heat g[data-row="0"][data-column="0"]').click()  # those are no suspects
    assert state(browser)[0] == ORDER


def test_decisions_survive_a_reload_and_belong_to_their_audit(opened):
    browser = opened(document())
    press(browser, "jar")
    assert state(browser)[2] == "ar---"
    # A reload may start in a new process, before the storage of the old one has arrived.
    deadline = time.monotonic() + 20
    browser.refresh()
    while (found := state(browser)[2]) == "-----" and time.monotonic() < deadline:
        browser.refresh()
    assert found == "ar---"
    assert state(opened(document(facts=())))[2] == "-----"


def downloaded(browser, folder):
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    browser.find_element("css selector", "[data-act=download]").click()
    file, deadline = folder / "corrected.csv", time.monotonic() + 20
    # The browser makes the file first, and fills it then.
    while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    return file.read_text()


def test_the_csv_holds_what_was_decided(opened, tmp_path):
    browser = opened(document())
    press(browser, "jaarr")
    found = list(csv.DictReader(io.StringIO(downloaded(browser, tmp_path / "download"))))
    expected = [(3, 3, "accepted"), (0, 1, "accepted"), (1, 0, "rejected"), (4, 4, "rejected")]
    quoted = [f"'{name}" if name == FORMULA else name for name in CLASSES]
    assert found == [
        {
            "index": str(100 + place), "file": document().files[place], "given_label": quoted[GIVEN[place]],
            "corrected_label": quoted[corrected], "decision": decision,
        }
        for place, corrected, decision in expected
    ]  # fmt: skip
    assert browser.get_log("browser") == []
    assert "104,4,True,0.285714,'=1+1,cat\n" in csv_text(document(files=None, rows=range(8)))


@pytest.mark.parametrize("columns", [(), ("a column with a very long name and no end " * 3, HOSTILE)])
@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_needs_no_scrolling_sideways_and_breaks_no_button(opened, columns, width):
    cells = ("word" * 60, SCRIPT)[: len(columns)]
    picture = document().suspects[0].picture
    suspects = tuple(Suspect(place, None if columns else picture, cells) for place in ORDER)
    browser = opened(document(columns=columns, suspects=suspects), width)
    wide, shown = browser.execute_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
    assert wide <= shown == width
    heights = [button.rect["height"] for button in browser.find_elements("css selector", ".decide button")]
    assert 24 <= min(heights) <= max(heights) < 48


@pytest.mark.parametrize("dark", [False, True])
def test_words_are_readable_in_light_and_dark(opened, dark):
    browser = opened(document(), dark=dark)
    press(browser, "jar")
    pairs = browser.execute_script(
        "const style = (e) => getComputedStyle(e);"
        "return ['.which', '.labels span', '.decide button', '.accepted [aria-pressed=true]', '.main', '.counts',"
        "'.rejected [aria-pressed=true]'].map((name) => { const e = document.querySelector(name); let under = e;"
        "while (style(under).backgroundColor === 'rgba(0, 0, 0, 0)') under = under.parentElement;"
        "return [name, style(e).color, style(under).backgroundColor]; })"
    )
    for name, words, paper in pairs:
        assert browsing.contrast(words, paper) >= 4.5, name


def test_many_classes_have_a_picture_and_the_most_frequent_pairs(opened):
    classes = tuple(f"class {k}" for k in range(40))
    browser = opened(document(classes=classes))
    assert browser.execute_script("return document.querySelector('.matrix img').naturalWidth") == 40
    assert "class 0 → class 1 (66.7 %)" in browser.find_element("css selector", ".matrix .caption").text
    browser = opened(document(flagged=np.zeros(8, bool), suspects=()))
    assert "No label looks wrong." in browser.find_element("css selector", ".review").text
    assert browser.get_log("browser") == []
