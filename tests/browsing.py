"""What the tests of every page ask a browser: how it shows a page, what the page fetches, and how readable it is."""

from __future__ import annotations

import json
from typing import Any


def show(browser: Any, address: str, width: int = 1280, scheme: str = "light") -> Any:
    """Open a page in a window of some width; one below 500 pixels is a phone's."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    choose_scheme(browser, scheme)
    browser.get(address)
    return browser


def forget(browser: Any) -> None:
    """Forget what the browser has logged until now."""
    for kind in ("performance", "browser"):
        browser.get_log(kind)


def choose_scheme(browser: Any, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def fetched(browser: Any) -> set[str]:
    """The addresses that a page has asked for, but for what it brings along, and the browser's own first page."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    return {url for url in asked if not url.startswith(("data:", "about:", "chrome:"))}


def luminance(colour: str) -> float:
    channels = [int(float(part)) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def data_of(page: str) -> Any:
    """The data of an audit's page, which its script draws."""
    return json.loads(page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])
