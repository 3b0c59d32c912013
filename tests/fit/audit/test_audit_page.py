"""The audit's page in a real browser: the list, decisions and their history, files of several people; no markup."""

import csv
import io
import time

import browsing
import numpy as np
import pytest
import torch

from symloss.data.images import thumbnail
from symloss.fit import audit_labels
from symloss.fit.audit import export, page
from symloss.fit.audit.decisions import merge, read_decisions
from symloss.fit.audit.export import AuditDocument, Suspect, csv_text

pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="window.hacked=1">'
SCRIPT = "</script><!--<script>window.hacked=2</script>\u2028"
FORMULA = "=1+1"
CLASSES = ("cat", "dog", HOSTILE, SCRIPT, FORMULA)
GIVEN = np.array([0, 0, 1, 2, 4, 0, 1, 1])
PREDICTED = np.array([1, 1, 2, 3, 0, 0, 1, 1])
FLAGGED = np.array([True] * 5 + [False] * 3)
ORDER = [0, 1, 2, 3, 4]
FILE = 'a, "b" <i>.png'
NAME = '=Ann <b>"A, b'
CTRL = "\ue009"


def document(**changes) -> AuditDocument:
    """Eight labels, five of them flagged, of classes with every kind of name."""
    picture = thumbnail(torch.full((1, 3, 4, 4), 200, dtype=torch.uint8), 0)
    classes, flagged = changes.pop("classes", CLASSES), changes.pop("flagged", FLAGGED)
    options = {"flagged": flagged, "class_names": classes, "positions": np.arange(8) + 100}
    audit = audit_labels(GIVEN, np.linspace(-2, 2, 8), np.eye(len(classes))[PREDICTED], **options)
    cells = changes.pop("cells", ())

    def example(place):
        return Suspect(place, None if changes.get("columns") else picture, cells)

    parts = {
        "headline": f"About 5 of 8 labels look wrong {HOSTILE}",
        "facts": (("Run", SCRIPT), ("Data", HOSTILE)),
        "suspects": tuple(map(example, ORDER)),
        "typical": {number: tuple(map(example, places)) for number, places in export.typical(audit).items()},
        "files": [FILE, *(f"{k}.png" for k in range(1, 8))],
    }
    return AuditDocument(audit, **(parts | changes))


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page as it is on a desk, in light, without decisions of earlier tests."""

    def show(shown: AuditDocument, width: int = 1280, dark: bool = False):
        file = tmp_path / "audit.html"
        file.write_text(page.render(shown), errors="backslashreplace")
        browsing.forget(browser)
        return browsing.show(browser, file.as_uri(), width, "dark" if dark else "light")

    yield show
    browser.execute_script("clearTimeout(waiting); waiting = null; localStorage.clear()")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def press(browser, keys):
    chains = pytest.importorskip("selenium.webdriver.common.action_chains")
    actions = chains.ActionChains(browser, duration=0)
    if keys.startswith(CTRL):
        actions = actions.key_down(CTRL).send_keys(keys[1:]).key_up(CTRL)
    else:
        actions = actions.send_keys(keys)
    actions.perform()


def click(browser, selector):
    browser.find_element("css selector", selector).click()


def state(browser):
    """The places that are listed, the current one, and a letter for the state of each."""
    marked = "[...document.querySelectorAll('.suspects .current')].map((s) => Number(s.dataset.place))"
    listed, current, states = browser.execute_script(f"return [listed, {marked}, states]")
    letters = {"undecided": "-", "relabelled": "l", "unsure": "?", "unusable": "x"}
    return [listed, current, "".join(letters.get(name, name[0]) for name in states)]


def drawn(browser):
    script = "return [...document.querySelectorAll('.suspects .suspect')].map((s) => Number(s.dataset.place))"
    return browser.execute_script(script)


def waited(found):
    """What a call returns as soon as that is something, or after 10 seconds."""
    deadline = time.monotonic() + 10
    while not (value := found()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


def choose(browser, name, value):
    script = "const s = document.querySelector(`[name=${arguments[0]}]`); s.value = arguments[1];"
    event = "input" if name == "search" else "change"
    browser.execute_script(script + f"s.dispatchEvent(new Event('{event}'))", name, value)


def test_names_stay_words_and_nothing_is_fetched(opened):
    shown = document(columns=(HOSTILE,), cells=(SCRIPT,), rows=range(8), files=None, notice=HOSTILE)
    browser = opened(shown)
    press(browser, "z")
    assert browser.execute_script("return window.hacked === undefined")
    assert browser.execute_script("return [document.scripts.length, document.images.length]") == [2, 0]
    words = browser.execute_script("return document.body.innerText")
    assert words.count(HOSTILE) >= 8
    assert words.count(SCRIPT.rstrip()) >= 8
    assert browsing.fetched(browser) == {browser.current_url}
    assert browser.get_log("browser") == []


def test_keys_move_and_decide_and_every_step_is_undone(opened):
    browser = opened(document(), 1000)  # two columns
    assert state(browser) == [ORDER, [], "-----"]
    right, left, down, up, enter = "\ue014", "\ue012", "\ue015", "\ue013", "\ue007"
    steps = (
        ("j", 0, "-----"), ("a", 1, "a----"), ("r", 2, "ar---"), ("s", 3, "ar?--"), ("x", 4, "ar?x-"),
        ("0", 4, "ar?xa"), ("u", 4, "ar?x-"), ("u", 3, "ar?--"), ("U", 3, "ar?x-"), (CTRL + "z", 3, "ar?--"),
        (CTRL + "y", 3, "ar?x-"), (right + left + up, 1, "ar?x-"), (down, 3, "ar?x-"),
        ("k2", 3, "arax-"), ("c" + FORMULA + enter, 4, "aral-"),  # by its number, and by its name
    )  # fmt: skip
    for keys, place, decided in steps:
        press(browser, keys)
        assert state(browser)[1:] == [[place], decided], keys
    assert browser.find_element("css selector", ".counts").text == (
        "5 shown; 4 of 5 decided: 2 accepted, 1 rejected, 1 relabelled"
    )
    assert browser.find_element("css selector", ".progress").get_attribute("aria-valuenow") == "4"
    accept, reject = browser.find_elements("css selector", ".suspect")[1].find_elements("css selector", ".decide *")[:2]
    for button, decided in ((accept, "aaal-"), (reject, "aral-"), (reject, "a-al-")):
        button.click()  # buttons do the same, and a second click takes the decision back
        assert state(browser)[2] == decided
        assert accept.get_attribute("aria-pressed") == str(decided == "aaal-").lower()
    for decided in ("aral-", "aaal-", "aral-"):
        click(browser, "[data-act=undo]")
        assert state(browser)[2] == decided


def test_all_shown_is_one_step_under_every_filter_after_a_question(opened):
    browser = opened(document())
    press(browser, "jr")
    choose(browser, "state", "undecided")
    for act, answer, decided in (
        ("accept-all", "button:not(.main)", "r----"), ("accept-all", ".main", "raaaa"), ("undo", None, "r----"),
        ("redo", None, "raaaa"),
    ):  # fmt: skip
        click(browser, f"[data-act={act}]")
        if answer:
            assert "for 4 labels?" in browser.find_element("id", "question").text
            click(browser, f".question {answer}")
        assert state(browser)[2] == decided
    choose(browser, "state", "")
    choose(browser, "pair", "0,1")
    click(browser, "[data-act=clear-all]")
    press(browser, "\ue007")
    assert state(browser) == [[0, 1], [1], "--aaa"]
    choose(browser, "state", "accepted")  # hides what is undone
    assert browser.find_element("css selector", ".nothing").is_displayed()
    press(browser, "u")
    assert state(browser)[::2] == [[1], "raaaa"]
    assert browser.find_element("css selector", ".status").text == "Undone: cleared 2"
    choose(browser, "pair", "")
    choose(browser, "state", "")
    click(browser, "[data-act=accept-all]")
    assert "replaces 1 other decision of yours" in browser.find_element("id", "question").text
    press(browser, "\ue00c")  # Escape
    assert state(browser)[2] == "raaaa"


def test_filters_search_and_order(opened):
    browser = opened(document())
    choices = (
        ("class", "2", [2, 3]), ("pair", "0,1", [0, 1]), ("state", "conflict", []), ("search", "DOG cat", [0, 1]),
        ("search", "1.PNG", [1]), ("sort", "class", [0, 1, 2, 3, 4]), ("sort", "name", [1, 2, 3, 4, 0]),
    )  # fmt: skip
    for name, value, places in choices:
        choose(browser, name, value)
        assert state(browser)[0] == places, name
        choose(browser, name, "suspicion" if name == "sort" else "")
        assert state(browser)[0] == ORDER
    pairs = browser.execute_script("return [...document.querySelector('[name=pair]').options].map(o => o.text)")
    assert pairs[:2] == ["every pair", "cat → dog (2)"]
    choose(browser, "state", "undecided")
    press(browser, "jr")  # what is decided leaves the list, and the next is current
    assert state(browser) == [[1, 2, 3, 4], [1], "r----"]
    press(browser, "/dog")
    assert state(browser)[0] == [1, 2]


def test_a_click_on_the_matrix_shows_its_pair(opened):
    browser = opened(document())
    cell = browser.find_element("css selector", '.heat g[data-row="0"][data-column="1"]')
    assert browser.execute_script("return arguments[0].textContent", cell).endswith("cat → dog: 66.7 % (2 of 3)")
    for places in ([0, 1], ORDER):  # a second click shows all again
        cell.click()
        assert state(browser)[0] == places
    click(browser, '.heat g[data-row="0"][data-column="0"]')  # those are no suspects
    assert state(browser)[0] == ORDER


def test_decisions_survive_a_reload_and_belong_to_their_audit(opened):
    browser = opened(document())
    press(browser, "jars4")
    # A reload may start in a new process, before the storage of the old one has arrived.
    assert waited(lambda: browser.refresh() or state(browser)[2] == "ar?l-")
    assert state(opened(document(facts=())))[2] == "-----"
    # Earlier versions stored one decision each, by the example's index.
    browser.execute_script('localStorage.setItem(STORAGE, \'{"101": "rejected"}\')')
    browser.refresh()
    assert state(browser)[2] == "-r---"


def downloaded(browser, folder, name):
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    click(browser, "[data-act=download]")
    if browser.find_element("css selector", ".question").is_displayed():
        press(browser, name + "\ue007")
    # The browser makes the file first, and fills it then.
    return waited(lambda: next((file for file in folder.glob("*.csv") if file.stat().st_size), None))


def test_the_csv_holds_what_was_decided(opened, tmp_path):
    browser = opened(document())
    press(browser, "jarsx1")
    file = downloaded(browser, tmp_path / "download", NAME)
    assert file.name == "corrected--Ann-b-A-b.csv"
    found = list(csv.DictReader(io.StringIO(file.read_text())))
    decided = [(1, "accepted"), (0, "rejected"), (None, "unsure"), (None, "unusable"), (1, "relabelled")]
    quoted = [f"'{name}" if name == FORMULA else name for name in CLASSES]
    assert found == [
        {
            "index": str(100 + place), "file": document().files[place], "given_label": quoted[GIVEN[place]],
            "corrected_label": "" if label is None else quoted[label], "decision": decision, "annotator": f"'{NAME}",
        }
        for place, (label, decision) in enumerate(decided)
    ]  # fmt: skip
    read = read_decisions(file, document().audit)
    assert [(one.position - 100, one.label, one.decision) for one in read] == [
        (place, label, decision) for place, (label, decision) in enumerate(decided)
    ]
    assert browser.get_log("browser") == []
    assert "104,4,True,0.285714,'=1+1,cat\n" in csv_text(document(files=None, rows=range(8)))


def written(folder, **files):
    """Decisions as files: of each the lines, as (place, corrected label, decision, annotator)."""
    for name, lines in files.items():
        text = io.StringIO()
        csv.writer(text).writerows(
            [("index", "corrected_label", "decision", "annotator"), *((100 + line[0], *line[1:]) for line in lines)]
        )
        (folder / f"{name}.csv").write_text("\ufeff" + text.getvalue())
    return "\n".join(str(folder / f"{name}.csv") for name in files)


def test_files_of_several_people_are_merged_and_conflicts_shown(opened, tmp_path):
    browser = opened(document())
    choose(browser, "annotator", "me")
    press(browser, "jr")  # before I know what others think
    ann = [(0, "dog", "accepted", ""), (1, "dog", "accepted", ""), (2, HOSTILE, "accepted", ""), (3, "", "unsure", "")]
    ben = [(1, "dog", "relabelled", HOSTILE), (2, "cat", "relabelled", HOSTILE), (3, "", "unusable", HOSTILE)]
    mine = [(4, "'=1+1", "rejected", "me")]
    file = browser.find_element("css selector", "input[type=file]")
    file.send_keys(written(tmp_path, ann=ann, ben=ben, mine=mine))
    assert waited(lambda: browser.find_element("css selector", ".status").text) == "8 decisions loaded; 2 conflicts."
    assert state(browser)[2] == "cacxr"
    choose(browser, "state", "conflict")
    assert state(browser)[0] == [0, 2]
    assert browser.execute_script("return window.hacked === undefined")
    votes = [each.text for each in browser.find_elements("css selector", ".suspects .votes")]
    assert votes == ["ann: dog", f"ann: {HOSTILE}, {HOSTILE}: cat"]
    press(browser, "jr")  # from now on my decision counts, and the label leaves the list of conflicts
    assert state(browser) == [[2], [2], "racxr"]
    saved = downloaded(browser, tmp_path / "download", "")
    merged = merge(read_decisions(saved, document().audit))
    assert merged.labels == {100: 0, 101: 1, 104: 4}
    assert merged.unusable == [103]
    assert {one.annotator for one in merged.conflicts[102]} == {"ann", HOSTILE}
    press(browser, "uu")  # the decision, and the loading of all files at once
    assert state(browser)[2] == "r----"
    press(browser, "U")
    assert state(browser)[2] == "cacxr"
    click(browser, ".people button")  # whoever was loaded by mistake
    assert state(browser)[2] == "rllxr"
    for lines, cause in (
        ([(9, "cat", "accepted", "x")], "line 2: example 109 is not in this list"),
        ([(0, "bird", "accepted", "x")], 'line 2: "bird" is not a class'),
        ([(0, "cat", HOSTILE, "x")], f'line 2: "{HOSTILE}" is not a decision'),
    ):
        file.send_keys(written(tmp_path, good=[(0, "cat", "unusable", "x")], bad=lines))
        said = waited(lambda: browser.find_element("id", "question").text)
        assert said == f"Nothing was loaded. bad.csv: {cause}."
        click(browser, ".question .main")
        assert state(browser)[2] == "rllxr"


def test_many_labels_are_drawn_as_one_scrolls(opened):
    many = 20_000
    random = np.random.default_rng(0)
    audit = audit_labels(
        random.integers(0, 40, many), np.arange(many), random.random((many, 40)), flagged=np.ones(many, bool)
    )
    suspects = tuple(Suspect(place, None, (f"text number {place} about {place % 7}",)) for place in range(many))
    browser = opened(AuditDocument(audit, (), suspects, ("text",), range(many)))
    assert browser.execute_script("return document.querySelector('.matrix img').naturalWidth") == 40
    assert len(drawn(browser)) < 50
    browser.execute_script("scrollTo(0, document.body.scrollHeight)")
    assert waited(lambda: drawn(browser)[-1] == many - 1)
    choose(browser, "search", "number 19998")
    assert state(browser)[0] == [19_998]
    press(browser, "j17")  # a digit opens the picker where there are many classes
    assert browser.find_element("css selector", ".picker li").text == "17 17"
    press(browser, "\ue007")
    choose(browser, "search", "")
    assert browser.execute_script("return [states[19998], mine(19998).label, current]") == ["relabelled", 17, 19_998]
    press(browser, "k")  # far away: it is drawn where it belongs
    browser.execute_script("scrollTo(0, 0)")
    press(browser, "k")
    assert state(browser)[1] == [19_996]
    top, bottom, high = browser.execute_script(
        "const r = document.querySelector('.current').getBoundingClientRect(); return [r.top, r.bottom, innerHeight]"
    )
    assert 0 < top < bottom <= high
    assert browser.get_log("browser") == []


def test_the_zoom_shows_one_example_and_takes_the_same_keys(opened):
    browser = opened(document())
    click(browser, ".picture")
    press(browser, "ar")
    large = browser.find_elements("css selector", ".zoom .suspect")
    assert [each.get_attribute("data-place") for each in large] == ["2"]
    assert state(browser)[1:] == [[2], "ar---"]
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('.zoom img')].map(i => [i.naturalWidth, i.alt])"
    )
    assert sizes == [[4, "2.png"], [4, "a typical dog: 7.png"], [4, "a typical dog: 6.png"]]
    press(browser, "z")
    assert not browser.find_element("css selector", ".zoom").is_displayed()
    assert browser.execute_script("return document.activeElement.dataset.place") == "2"


@pytest.mark.parametrize("columns", [(), ("a column with a very long name and no end " * 3, HOSTILE)])
def test_a_phone_needs_no_scrolling_sideways_and_breaks_no_button(opened, columns):
    browser = opened(document(columns=columns, cells=("word" * 60, SCRIPT)[: len(columns)]), 390)
    for keys, width in (("", 390), ("jz", 390), ("", 320)):
        browsing.show(browser, browser.current_url, width)
        press(browser, keys)
        wide, room = browser.execute_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
        assert wide <= room == width
        assert browser.execute_script("return covered()") < 150  # filters scroll away
        cut = "return [...document.querySelectorAll('.decide')].filter((e) => e.scrollWidth > e.clientWidth).length"
        assert browser.execute_script(cut) == 0
        heights = [each.rect["height"] for each in browser.find_elements("css selector", ".decide button")]
        assert 24 <= min(heights) <= max(heights) < 48


@pytest.mark.parametrize("dark", [False, True])
def test_words_are_readable_in_light_and_dark(opened, dark):
    browser = opened(document(), dark=dark)
    press(browser, "jarsx2")
    pairs = browser.execute_script(
        "const style = (e) => getComputedStyle(e);"
        "return ['.which', '.labels b', '.counts', '.main', '.keys', '.typical h3', '.decide button', '.given',"
        "'[data-state=accepted] .state', '[data-state=rejected] .state', '[data-state=unsure] .state',"
        "'[data-state=unusable] .state', '[data-state=relabelled] .state', '[data-decide=accepted][aria-pressed=true]',"
        "'[data-decide=rejected][aria-pressed=true]', '[data-decide=unsure][aria-pressed=true]',"
        "'[data-decide=unusable][aria-pressed=true]', '[data-decide=other][aria-pressed=true]'].map((name) => {"
        "const e = document.querySelector(name); let under = e;"
        "while (style(under).backgroundColor === 'rgba(0, 0, 0, 0)') under = under.parentElement;"
        "return [name, style(e).color, style(under).backgroundColor]; })"
    )
    for name, words, paper in pairs:
        assert browsing.contrast(words, paper) >= 4.5, name


def test_without_suspicious_labels_nothing_is_drawn(opened):
    browser = opened(document(flagged=np.zeros(8, bool), suspects=()))
    assert "No label looks wrong." in browser.find_element("css selector", ".review").text
    assert browser.get_log("browser") == []
    browser.execute_script("window.waiting = null")  # there is no script that could remember anything
    names = [str(number) for number in range(page.MATRIX + 1)]  # as many would need gigabytes
    assert "matrix" not in page.render(document(classes=tuple(names))).partition("<main>")[2].partition("<script")[0]
