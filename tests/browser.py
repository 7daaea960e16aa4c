"""Pages in headless Chromium."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's own Chromium, or the one that the environment variable CHROMIUM names; skips where there is none."""
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
    """What is said on the console of a page from now on, what it fails to load, and what it asks others for.

    `own` is how addresses begin that are not of others.
    """
    said: list[str] = []
    shown.on("console", lambda message: said.append(message.text))
    shown.on("pageerror", lambda error: said.append(str(error)))
    shown.on("requestfailed", lambda failed: said.append(failed.url))
    shown.on("request", lambda asked: None if asked.url.startswith(own) else said.append(asked.url))
    return said


def assert_steps_fold_and_symbols_lead_to_their_meaning(shown: Any) -> None:
    """Of a derivation: its first step unfolds and folds, and a symbol in a formula leads to its definition."""
    step, inner = shown.locator("#step-1"), shown.locator("#step-1 .formula").first
    assert not inner.is_visible()
    step.locator("summary").click()
    assert inner.is_visible()
    step.locator("summary").click()
    assert not inner.is_visible()
    shown.locator("mtext a").first.click()
    assert re.search(r"#symbol-\d+$", shown.url)
    assert shown.locator(":target").is_visible()
