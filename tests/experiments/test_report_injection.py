"""Markup in every field of a run's files, and in the data: the page has the elements that it has with plain words."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browsing
import pytest
from refusals import refused
from report_helpers import write_run

from symloss.experiments import compose, page, read_runs, resolve
from symloss.training import train
from symloss.training.settings import Settings

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

Place = tuple[str | int, ...]


def write_runs(runs: Path) -> None:
    settings = Settings(data="mine.csv", loss="gce:q=0.5", model="mlp", noise="sym:0.4", epochs=3, test="t", image="i")
    names = [f"class {i}" for i in range(4)]
    write_run(runs / "done", settings, 0.5, classes=names)
    failed = write_run(runs / "failed", Settings(noise="sym:0.4", epochs=3), 0.5, classes=names, finished=False)
    (failed / "failure.json").write_text(json.dumps({"error": "the loss became nan"}))


def load(path: Path) -> Any:
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def save(path: Path, document: Any) -> None:
    lines = document if path.suffix == ".jsonl" else [document]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def places(document: Any, here: Place = ()) -> Iterator[Place]:
    """Of every value, the inner ones as well; of long lists the first stands for all."""
    if here:
        yield here
    inner = document.items() if isinstance(document, dict) else enumerate(document[:1])
    for key, value in inner:
        yield from places(value, (*here, key)) if isinstance(value, (dict, list)) else [(*here, key)]


def changed(document: Any, place: Place, value: str) -> Any:
    document = copy.deepcopy(document)
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return document


def parsed(browser, page: str) -> list[str]:
    """Its elements and attributes, but for the places where a long name may break: our own, one for each sign."""
    return [found for found in browser.execute_script(PARSED, page) if found != "wbr"]


def html(runs: Path) -> str | None:
    """The page; None where the runs are refused."""
    try:
        return page.render(compose(read_runs(runs)))
    except ValueError:
        return None


@pytest.mark.slow
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


def nothing_came_of_it(browser, tmp_path: Path, runs: Path) -> None:
    """The page with all of it at once: opened, it stays where it is, asks for nothing and runs nothing."""
    content = html(runs)
    assert content is not None
    file = tmp_path / "page.html"
    file.write_text(content)
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


@pytest.mark.slow
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
    policy = (html(tmp_path) or "").partition('Content-Security-Policy" content="')[2].partition('"')[0]
    directives = {part.strip() for part in policy.split(";")}
    assert {"default-src 'none'", "base-uri 'none'", "form-action 'none'"} <= directives
    path = tmp_path / "done" / "settings.json"
    save(path, load(path) | {"profile": '"><meta http-equiv=refresh content=0>'})
    with refused(ValueError, path, "profile must be one of 'full', 'mini'", "got '\"><meta"):
        compose(read_runs(tmp_path))
