"""Time an audit's page in headless Chromium: opening, filters, scrolling, decisions and files.

    python benchmarks/audit_page.py
    python benchmarks/audit_page.py --labels 500    # seconds

The page lists texts of 20 classes that are drawn at random. Each time runs until the window is painted again, and the
median of several repetitions counts. It needs selenium, Chromium and chromedriver.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import measure
import numpy as np

from symloss.fit import audit_labels, write_audit

CLASSES = 20
WORDS = 30
STEPS = {
    "search in all texts": "type('search', 'word7 word9')",
    "clear the search": "type('search', '')",
    "filter by class": "pick('class', '3')",
    "show every class": "pick('class', '')",
    "sort by name": "pick('sort', 'name')",
    "sort by suspicion": "pick('sort', 'suspicion')",
    "scroll to the end": "scrollTo(0, document.body.scrollHeight)",
    "scroll to the middle": "scrollTo(0, document.body.scrollHeight / 2)",
    "next label": "press('j')",
    "accept a label": "press('a')",
    "undo": "press('u')",
    "accept all, with its question": "(act('accept-all'), document.querySelector('.question .main').click())",
    "undo all of them": "act('undo')",
    "redo all of them": "act('redo')",
    "store all decisions": "store()",
    "write the CSV": "(window.saved = csvOf('Ann'))",
    "read the CSV of another person": "commit('loaded', changesOf(saved, 'Ben.csv', 'Ben')), refresh()",
}
"""What is timed, as JavaScript."""
TIMED = """
const done = arguments[arguments.length - 1];
const change = (name, value, event) => {
  const field = document.querySelector(`[name=${name}]`);
  field.value = value;
  field.dispatchEvent(new Event(event));
};
const type = (name, value) => change(name, value, "input"), pick = (name, value) => change(name, value, "change");
const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const act = (name) => document.querySelector(`[data-act=${name}]`).click();
const start = performance.now();
STEP;
setTimeout(() => requestAnimationFrame(() => setTimeout(() => done(performance.now() - start))));
"""


def write_page(labels: int, folder: Path) -> Path:
    """Write a page that lists this many suspicious texts, of five times as many labels."""
    draw, count = np.random.default_rng(0), 5 * labels
    words = np.array([f"word{number}" for number in range(500)])
    texts = [" ".join(words[draw.integers(0, len(words), draw.integers(3, WORDS))]) for _ in range(count)]
    given, scores = draw.integers(0, CLASSES, count), draw.normal(size=count)
    audit = audit_labels(given, scores, draw.dirichlet(np.ones(CLASSES), count), n_wrong=labels)
    return write_audit(audit, folder, columns={"text": texts})[-1]


def opened_browser(folder: Path) -> Any:
    """Start Chromium without a window."""
    from selenium import webdriver  # noqa: PLC0415 (--help needs none)

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900")
    for flag in (*flags, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def timings(browser: Any, page: Path) -> dict[str, float]:
    """Return the milliseconds of opening the page and of each step."""
    browser.get(page.as_uri())
    found = {"open": browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd")}
    for name, step in STEPS.items():
        found[name] = browser.execute_async_script(TIMED.replace("STEP", step))
    browser.execute_script("localStorage.clear(); clearTimeout(waiting); waiting = null")
    return found


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--labels", type=int, default=20_000, metavar="N", help="suspicious labels on the page")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="how often the page is opened")
    arguments = parser.parse_args()
    measure.print_environment("selenium")
    with tempfile.TemporaryDirectory() as folder:
        page = write_page(arguments.labels, Path(folder))
        browser = opened_browser(Path(folder) / "browser")
        try:
            runs = [timings(browser, page) for _ in range(arguments.repeats)]
        finally:
            browser.quit()
        size = page.stat().st_size / 2**20
    rows = ((name, f"{np.median([run[name] for run in runs]):.0f}") for name in runs[0])
    measure.print_table((f"{arguments.labels:,} labels, {size:.1f} MB", "milliseconds"), rows)


if __name__ == "__main__":
    main()
