"""The page in a real browser: sorted, toggled, narrow, dark; markup in a name stays words, and nothing is fetched."""

import copy
import functools
import itertools
import json
import operator
from pathlib import Path

import browsing
import pytest
from browsing import choose_scheme, contrast, luminance
from in_turn import in_turn
from refusals import refused
from run_helpers import HOSTILE, SCRIPT, own, write_cell, write_run

from symloss.experiments import compose, page, plan, read_runs, resolve
from symloss.training import train
from symloss.training.settings import Settings

pytestmark = pytest.mark.slow
QS = (0.2, 0.5, 0.8)
LETTERS = "return [...document.querySelectorAll('.charts figure svg text')].map(t => t.getBoundingClientRect().height)"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A published table of two data sets, and runs of one's own whose every name is hostile."""
    runs = tmp_path_factory.mktemp("page") / "runs"
    for cell in plan("table1", losses=["ce", "sgce", "alpha-mae"], noise=["clean", "sym:0.8"], seeds=2):
        classes = [f"class {i}" for i in range(10 if cell.dataset == "cifar10" else 30)]
        write_cell(runs, cell, cell.published.value / 100 + 0.003 * cell.seed, classes=classes)
    names = [HOSTILE, SCRIPT, *(f"a class with the very long name {i}" for i in range(8))]
    losses = (HOSTILE, SCRIPT, "gce:q=0.7", *(f"sgce:q={q}" for q in QS))
    for loss, noise, seed in itertools.product(losses, ("sym:0.4", "asym:0.4"), range(2)):
        settings = Settings(data=HOSTILE, model=SCRIPT, loss=loss, noise=noise, seed=seed, epochs=6)
        accuracy = 0.5 + 0.01 * seed + 0.001 * len(loss)
        write_run(runs / settings.key, settings, accuracy, classes=names, noise="sym:0.4")
    write_run(runs / "<b>cut", Settings(data=SCRIPT, noise="sym:0.4"), 0.5, finished=False)
    return rendered(runs)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """What `symloss compare` leaves behind: losses with parameters and settings of their own, one noise or two."""
    runs = tmp_path_factory.mktemp("usual") / "runs"
    losses = {"ce": 0.03, "nce+agce:alpha=1.0,beta=4.0,a=6.0,q=1.5": 0.001, "alpha-mae:alpha=2": 0.01}
    kinds = ((6, "sym:0.4"), (60, "sym:0.4"), (60, "asym:0.4"))
    for (loss, decay), (epochs, noise), seed in itertools.product(losses.items(), kinds, range(2)):
        tuned = {"weight_decay": decay, "lr": 10 * decay}
        settings = Settings(loss=loss, noise=noise, seed=seed, epochs=epochs, **tuned)
        write_run(runs / settings.key, settings, 0.9 + 0.01 * seed)
    return rendered(runs)


def rendered(runs):
    file = runs.parent / "page.html"
    file.write_text(page.render(compose(read_runs(runs))))
    return file.as_uri()


@pytest.fixture
def opened(browser, file):
    """The page as it is on a desk, in light."""
    return browsing.show(browser, file)


@in_turn("width", [1100, 1920])
def test_charts_fill_the_page_on_a_desk(browser, usual, width):
    browsing.show(browser, usual, width)
    content, charts = browser.execute_script(
        "const box = (e) => e.getBoundingClientRect();"
        "return [box(document.querySelector('section.table')).width,"
        "[...document.querySelectorAll('.charts svg')].filter(s => s.closest('figure'))"
        ".map(s => [box(s).width, box(s).left, box(s).top])]"
    )
    assert len(charts) == 3 + 3 * 2
    assert all(wide >= 0.45 * content for wide, _, _ in charts)
    # Two stand side by side, whether they show two measures of one noise or one measure of two.
    for first, second in ((0, 1), (3, 4)):
        assert charts[second][1] > charts[first][1]
        assert charts[second][2] == charts[first][2]
    assert 9 <= min(browser.execute_script(LETTERS)) <= max(browser.execute_script(LETTERS)) <= 20


def test_a_phone_shows_every_figure_and_breaks_no_word(browser, usual):
    browsing.show(browser, usual, 360)
    clipped = browser.execute_script(
        "return [...document.querySelectorAll('table.figures td, table.figures th')].filter(c => {"
        " const box = c.getBoundingClientRect(), frame = c.closest('.scroll').getBoundingClientRect();"
        " return box.width && (box.right > frame.right + 1 || box.right > innerWidth); }).map(c => c.innerText)"
    )
    assert clipped == []
    assert "weight decay 0.03" in browser.find_element("css selector", "table.figures tbody th").text
    assert min(browser.execute_script(LETTERS)) >= 9
    broken = browser.execute_script("""
        const broken = [];
        for (const name of document.querySelectorAll('table.figures tbody th, .legend span')) {
          const walker = document.createTreeWalker(name, NodeFilter.SHOW_TEXT);
          while (walker.nextNode()) {
            for (const word of walker.currentNode.data.matchAll(/[\\w.=]+/g)) {
              const range = document.createRange();
              range.setStart(walker.currentNode, word.index);
              range.setEnd(walker.currentNode, word.index + word[0].length);
              if (new Set([...range.getClientRects()].map(r => r.top)).size > 1) broken.push(word[0]);
            }
          }
        }
        return broken;""")
    assert broken == []


def column(browser, index):
    """The values of a column of the first table, from top to bottom."""
    return browser.execute_script(
        "return [...document.querySelector('table.figures').tBodies[0].rows]"
        ".map(row => row.children[arguments[0]].dataset.value)",
        index,
    )


def heads(browser):
    return browser.find_elements("css selector", "table.figures:first-of-type thead th")[:3]


def test_the_policy_stops_what_might_slip_through(opened):
    """Were an attribute not escaped after all, its handler would not run."""
    assert opened.execute_script("return document.scripts.length") == 1
    opened.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.slipped = 1\">')")
    opened.execute_async_script("setTimeout(arguments[0], 200)")
    assert opened.execute_script("return window.slipped === undefined && window.hacked === undefined")
    assert any("Content Security Policy" in entry["message"] for entry in opened.get_log("browser"))


def test_a_click_sorts_and_says_so(opened):
    shown = column(opened, 1)
    assert len(shown) == 3
    head = heads(opened)[1]
    button = head.find_element("tag name", "button")
    assert head.get_attribute("aria-sort") == "none"
    for order in ("descending", "ascending", "descending"):
        button.click()
        assert head.get_attribute("aria-sort") == order
        assert column(opened, 1) == sorted(shown, key=float, reverse=order == "descending")
    other = heads(opened)[0]
    other.find_element("tag name", "button").click()
    assert (other.get_attribute("aria-sort"), head.get_attribute("aria-sort")) == ("ascending", "none")
    rows = opened.find_elements("css selector", "table.figures tbody th")[:3]
    assert [row.text for row in rows] == ["alpha-MAE", "CE", "SGCE"]
    opened.execute_script("document.querySelector('table.figures').tBodies[0].rows[0].children[1].dataset.value = ''")
    for _ in range(2):
        button.click()
        assert column(opened, 1)[-1] == "", "a cell without a value stays last"
    by_keyboard = heads(opened)[2].find_element("tag name", "button")
    opened.execute_script("arguments[0].focus()", by_keyboard)
    by_keyboard.send_keys("\ue007")  # enter
    assert heads(opened)[2].get_attribute("aria-sort") == "descending"
    assert column(opened, 2) == sorted(column(opened, 2), key=float, reverse=True)


def test_the_legend_shows_and_hides_a_loss_in_every_chart_of_its_group(opened):
    button = opened.find_element("css selector", ".legend button")
    series = button.get_attribute("data-toggle")
    charts = opened.find_elements("css selector", ".charts")
    mine = charts[0].find_elements("css selector", f'[data-series="{series}"]')
    others = charts[1].find_elements("css selector", f'[data-series="{series}"]')
    assert len(mine) >= 3
    for shown in (True, False, True):
        assert button.get_attribute("aria-pressed") == str(shown).lower()
        assert {line.is_displayed() for line in mine} == {shown}
        assert all(line.is_displayed() for line in others)
        button.click()


@in_turn("width", [1400, 390, 320])
def test_no_width_needs_scrolling_sideways(browser, file, width):
    browsing.show(browser, file, width)
    for opening in (False, True):
        browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = arguments[0]", opening)
        wide, shown, inner, outer = browser.execute_script(
            "return [document.documentElement, document.querySelector('table.runs').parentElement]"
            ".flatMap(e => [e.scrollWidth, e.clientWidth])"
        )
        assert wide <= shown
        assert width - shown < 20, "no more than a scroll bar"
    assert inner > outer or width > 1000, "a long table scrolls in its frame"


def test_dark_and_light_are_both_readable(opened):
    paper = {}
    for name in ("light", "dark"):
        choose_scheme(opened, name)
        style = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        paper[name] = opened.execute_script(style, "body", "backgroundColor")
        for words in ("body", ".caption", ".published", "a"):
            assert contrast(opened.execute_script(style, words, "color"), paper[name]) >= 4.5, (name, words)
        lines = opened.execute_script(
            "return [...Array(7).keys()].map(i => { const p = document.querySelector(`.c${i} .line`);"
            " return p && getComputedStyle(p).stroke; }).filter(Boolean)"
        )
        assert len(lines) >= 6
        assert all(contrast(line, paper[name]) >= 3 for line in lines), name
    assert luminance(paper["light"]) > 0.8
    assert luminance(paper["dark"]) < 0.05


def test_sensitivity_has_a_point_for_every_value_and_heat_maps_say_their_numbers(opened):
    found = opened.execute_script(
        "return [...document.querySelectorAll('.charts figure')].filter(f => f.textContent.includes('sgce: q'))"
        ".map(f => [f.querySelectorAll('circle').length, f.querySelectorAll('[data-series]').length])"
    )
    assert found == [[2 * len(QS), 2]]
    found = opened.execute_script(
        "return [...document.querySelectorAll('svg.heat')]"
        ".map(map => [...map.querySelectorAll('g > title')].map(title => title.textContent))"
    )
    assert {len(titles) for titles in found} == {100}
    assert found[0][0].startswith("class 0 → class 0: 20.0 % (")
    assert any(HOSTILE in title for titles in found for title in titles)
    # Thirty classes are a picture of thirty by thirty, inside the page.
    pictures = opened.execute_script(
        "return [...document.images].map(i => [i.naturalWidth, i.naturalHeight, i.src.slice(0, 22)])"
    )
    assert pictures == [[30, 30, "data:image/png;base64,"]]


# Markup in every field of a run's files, and in the data: the page has the elements that it has with plain words.

MARKUP = (
    "\"'><img src=x onerror=window.hacked=1><meta http-equiv=refresh content='0;url=about:blank'>"
    "<base href=data:,><form action=data:,><b evil=\" onfocus=window.hacked=2 autofocus x='"
)
WORDS = "w" * len(MARKUP)
"""As long, so that everything has the same place on the page."""

# Every element with the names of its attributes: what a page is, but for its words.
ELEMENTS = (
    "[...root.querySelectorAll('*')].map(e => [e.localName, ...[...e.attributes].map(a => a.name).sort()].join(' '))"
    ".sort()"
)
PARSED = f"const root = new DOMParser().parseFromString(arguments[0], 'text/html'); return {ELEMENTS}"
SHOWN = f"const root = document; return {ELEMENTS}"


def write_runs(runs):
    settings = own(data="mine.csv", loss="gce:q=0.5", model="mlp", test="t", image="i")
    names = [f"class {i}" for i in range(4)]
    write_run(runs / "done", settings, 0.5, classes=names)
    failed = write_run(runs / "failed", own(), 0.5, classes=names, finished=False)
    (failed / "failure.json").write_text(json.dumps({"error": "the loss became nan"}))


def load(path):
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def save(path, document):
    lines = document if path.suffix == ".jsonl" else [document]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def places(document, here=()):
    """Of every value, the inner ones as well; of long lists the first stands for all."""
    if here:
        yield here
    inner = document.items() if isinstance(document, dict) else enumerate(document[:1])
    for key, value in inner:
        yield from places(value, (*here, key)) if isinstance(value, (dict, list)) else [(*here, key)]


def changed(document, place, value):
    document = copy.deepcopy(document)
    functools.reduce(operator.getitem, place[:-1], document)[place[-1]] = value
    return document


def parsed(browser, page):
    """Its elements and attributes, but for the places where a long name may break: our own, one for each sign."""
    return [found for found in browser.execute_script(PARSED, page) if found != "wbr"]


def html(runs):
    """The page; None where the runs are refused."""
    try:
        return page.render(compose(read_runs(runs)))
    except ValueError:
        return None


def test_markup_in_any_field_stays_words(browser, tmp_path):
    runs = tmp_path / "runs"
    write_runs(runs)
    browser.get("about:blank")
    shown, everything = set(), {}
    for path in sorted(path for path in runs.rglob("*") if path.suffix in (".json", ".jsonl")):
        good = load(path)
        all_of_it = good
        for place in places(good):
            pages = {}
            for text in (MARKUP, WORDS):
                save(path, changed(good, place, text))
                pages[text] = html(runs)
            name = f"{path.relative_to(runs)} {place}"
            assert (pages[MARKUP] is None) == (pages[WORDS] is None), name
            if pages[MARKUP] is None:
                continue
            found, expected = (parsed(browser, pages[text]) for text in (MARKUP, WORDS))
            assert found == expected, name
            if WORDS in pages[WORDS]:
                shown.add(name)
                all_of_it = changed(all_of_it, place, MARKUP)
        save(path, good)
        everything[path] = all_of_it
    assert len(shown) >= 15
    for path, document in everything.items():
        save(path, document)
    nothing_came_of_it(browser, tmp_path, runs)


def nothing_came_of_it(browser, tmp_path, runs):
    """The page with all of it at once: opened, it stays where it is, asks for nothing and runs nothing."""
    file = tmp_path / "page.html"
    file.write_text(html(runs))
    browsing.forget(browser)
    browser.get(file.as_uri())
    browser.execute_async_script("setTimeout(arguments[0], 100)")
    assert browser.current_url == file.as_uri()
    assert browser.execute_script("return window.hacked === undefined")
    assert browser.execute_script("return document.body.textContent.includes(arguments[0])", MARKUP)
    found = browser.execute_script(SHOWN)
    assert sum(element.startswith("meta") for element in found) == 4
    assert not any(element.startswith(("base", "form")) for element in found)
    assert browsing.fetched(browser) == {file.as_uri()}
    assert browser.get_log("browser") == []


def test_markup_in_the_data_stays_words(browser, tmp_path, monkeypatch):
    """Names of classes, of columns and of files, through a run that was really trained."""
    monkeypatch.chdir(tmp_path)
    name = MARKUP.replace("/", "")[:200]
    rows = "".join(f'{k},{k},"{label}"\n' for k in range(40) for label in [f"{MARKUP}{k % 3}".replace('"', '""')])
    column = MARKUP.replace('"', '""')
    Path(f"{name}.csv").write_text(f'"{column}",b,label\n' + rows)
    plan = resolve(f"{name}.csv", "ce", noise="sym:0.4", epochs=1)
    train(plan, Path("runs") / name, accelerator="cpu")
    nothing_came_of_it(browser, tmp_path, Path("runs"))


def test_a_profile_that_is_none_is_refused_and_the_page_has_a_policy(tmp_path):
    write_runs(tmp_path)
    policy = html(tmp_path).partition('Content-Security-Policy" content="')[2].partition('"')[0]
    directives = {part.strip() for part in policy.split(";")}
    assert {"default-src 'none'", "base-uri 'none'", "form-action 'none'"} <= directives
    path = tmp_path / "done" / "settings.json"
    save(path, load(path) | {"profile": '"><meta http-equiv=refresh content=0>'})
    with refused(ValueError, path, "profile must be one of 'full', 'mini'", "got '\"><meta"):
        compose(read_runs(tmp_path))
