"""Pages in headless Chromium."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield Playwright's Chromium, or the one in the environment variable CHROMIUM; skip the test if there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as browsers:
        try:
            browser = browsers.chromium.launch(
                executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox", "--disable-gpu"]
            )
        except playwright.Error as error:
            pytest.skip(f"there is no Chromium ({str(error).splitlines()[0]})")
        yield browser
        browser.close()


def complaints(shown: Any, *own: str) -> list[str]:
    """Collect a page's console messages, failed requests, and requests to other addresses, from now on.

    Addresses that begin with one of `own` are not other addresses.
    """
    said: list[str] = []
    shown.on("console", lambda message: said.append(message.text))
    shown.on("pageerror", lambda error: said.append(str(error)))
    shown.on("requestfailed", lambda failed: said.append(failed.url))
    shown.on("request", lambda asked: None if asked.url.startswith(own) else said.append(asked.url))
    return said


def assert_steps_fold_and_symbols_lead_to_their_meaning(shown: Any) -> None:
    """Assert that the first step of a derivation unfolds and folds, and that a symbol links to its definition."""
    step, inner = shown.locator("#step-1"), shown.locator("#step-1 .formula").first
    assert not inner.is_visible()
    step.locator("summary").click()
    assert inner.is_visible()
    step.locator("summary").click()
    assert not inner.is_visible()
    shown.locator("mtext a").first.click()
    assert re.search(r"#symbol-\d+$", shown.url)
    assert shown.locator(":target").is_visible()
