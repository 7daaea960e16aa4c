"""The site, where `make docs` has built it: nothing on it is broken, in a browser or without one."""

import functools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote_plus, unquote

import pytest

from .browser import assert_steps_fold_and_symbols_lead_to_their_meaning, chromium, complaints

SITE = Path(__file__).parent.parent / "build" / "docs" / "html"
WIDTHS = [390, 1280]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="there is no site; build one: make docs"),
]


def pages() -> list[Path]:
    return sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)


class Page(HTMLParser):
    """What a page links to, what it loads, and the places on it that can be linked to."""

    def __init__(self, path: Path):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], {"", "top"}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list) -> None:
        found = dict(attributes)
        self.anchors |= {found["id"]} if "id" in found else set()
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("img", "script", "link", "iframe", "source") and (found.get("src") or found.get("href")):
            self.loads.append(found.get("src") or found["href"])


@functools.cache
def read(path: Path) -> Page:
    return Page(path)


def is_outside(address: str) -> bool:
    return re.match(r"(https?|mailto|data):", address) is not None


def test_every_link_leads_somewhere():
    broken = []
    for page in pages():
        for link in read(page).links:
            address, _, anchor = link.partition("#")
            target = (page.parent / unquote(address.partition("?")[0])).resolve() if address else page
            if is_outside(link):
                continue
            if not target.is_file() or (target.suffix == ".html" and unquote(anchor) not in read(target).anchors):
                broken.append(f"{page.relative_to(SITE)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere():
    loads = {(page, load) for page in pages() for load in read(page).loads}
    assert [(page.name, load) for page, load in loads if is_outside(load)] == []
    # "#" is the page itself
    paths = {(page, unquote(re.split("[?#]", load)[0])) for page, load in loads}
    assert [(page.name, path) for page, path in paths if not (page.parent / path).exists()] == []
    styles = "".join(path.read_text() for path in (SITE / "_static").rglob("*.css"))
    assert re.findall(r"(?:@import|url\()[^;)]*https?:", styles) == []


def test_every_example_has_its_script_and_its_notebook():
    examples = sorted((SITE.parent.parent.parent / "examples").glob("*.py"))
    assert len(examples) > 10
    for example in examples:
        page = SITE / "examples" / f"{example.stem}.html"
        links = {Path(link).name: page.parent / link for link in read(page).links}
        notebook = json.loads(links[f"{example.stem}.ipynb"].read_text())
        assert any(cell.get("outputs") for cell in notebook["cells"]), "what it prints is in the notebook"
        figures = [cell["attachments"] for cell in notebook["cells"] if "attachments" in cell]
        assert figures or not example.with_suffix(".png").exists()
        assert links[example.name].read_text() == example.read_text()
        has_figure = example.with_suffix(".png").exists()
        assert any(Path(load).stem == example.stem for load in read(page).loads) == has_figure


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, request):
    """A function that opens a page of the site, and what was said on the console meanwhile."""
    shown = browser.new_page(viewport={"width": request.param, "height": 900})
    said = complaints(shown, "file:", "data:")

    def open_page(path: str):
        name, mark, query = path.partition("?")
        shown.goto((SITE / name).as_uri() + mark + query)
        return shown

    yield open_page, said
    shown.close()


@pytest.mark.parametrize("opened", WIDTHS, indirect=True)
def test_every_page_opens_without_complaint(opened):
    open_page, said = opened
    wrong = []
    for path in pages():
        shown = open_page(str(path.relative_to(SITE)))
        name = str(path.relative_to(SITE))
        if shown.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            wrong.append(f"{name} is wider than the window")
        if shown.evaluate("[...document.images].some(image => image.complete && !image.naturalWidth)"):
            wrong.append(f"{name} lacks an image")
        if shown.evaluate("[...document.querySelectorAll('math')].some(it => !(it instanceof MathMLElement))"):
            wrong.append(f"{name} has formulas that are none to the browser")
        if "$" in shown.evaluate(_PROSE):
            wrong.append(f"{name} shows the source of a formula")
    assert wrong == []
    assert said == []


# the text of a page but its code
_PROSE = """(() => { const copy = document.querySelector('article')?.cloneNode(true);
    copy?.querySelectorAll('pre, code, .viewcode-block').forEach(it => it.remove());
    return copy ? copy.textContent : ''; })()"""


@pytest.mark.parametrize("opened", WIDTHS, indirect=True)
def test_formulas_are_drawn(opened):
    open_page, _ = opened
    shown = open_page("docs/theory.html")
    assert shown.locator("div.math math").count() >= 3
    assert shown.locator("div.math math").first.bounding_box()["height"] > 15


@pytest.mark.parametrize("opened", WIDTHS, indirect=True)
def test_search_finds_order_parameters(opened):
    open_page, said = opened
    shown = open_page("search.html?q=order+parameter")
    shown.wait_for_selector("ul.search li a")
    assert shown.locator("ul.search li a").count() >= 5
    assert said == []


@pytest.mark.parametrize("opened", [1280], indirect=True)
@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("install", "docs/install"),
        ("minimal example", "docs/quickstart"),
        ("own data", "docs/your-data"),
        ("one GPU", "docs/install"),
        ("assumptions", "docs/assumptions"),
        ("cite", "README"),
        ("add a layer", "docs/own-layer"),
        ("solve", "docs/site/api/solve"),
        ("Fig. 3", "docs/validation"),
        ("cluster", "docs/parallel"),
        ("padding mask", "docs/your-data"),
    ],
)
def test_search_shows_the_page_for_a_task_first(opened, query, page):
    open_page, _ = opened
    shown = open_page(f"search.html?q={quote_plus(query)}")
    shown.wait_for_selector("ul.search li a")
    assert shown.locator("ul.search li a").first.get_attribute("href").startswith(f"{page}.html")


@pytest.mark.parametrize("opened", WIDTHS, indirect=True)
def test_steps_fold_and_symbols_lead_to_their_meaning(opened):
    open_page, _ = opened
    shown = open_page("derivations/attention_paths.html")
    assert_steps_fold_and_symbols_lead_to_their_meaning(shown)
    shown.locator(":target a.notation").click()
    assert re.search(r"notation\.html#row-\d+$", shown.url)
