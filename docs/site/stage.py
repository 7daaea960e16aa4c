"""The pages of the repository as those of the site: the same text, with links to where things are on it."""

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent
# what pages link to, by where it is in the repository; folders too
_PLACES = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "derivations": "derivations/index.md",
    "examples": "examples/index.md",
    "theorykit/bpkr": "attention-paths.md",
    "theorykit/dmft": "self-attention-dynamics.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def stage_pages(target: Path) -> None:
    """Write the pages of `docs`, the change log and the contributors' guide into `target`, with what they link to."""
    pages = [
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted(SITE.rglob("*.md")),
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
    ]
    for page in pages:
        path = target / _place(page)
        path.parent.mkdir(exist_ok=True)
        path.write_text(rewritten(page.read_text(), page, target))
    for picture in (ROOT / "docs").iterdir():
        if picture.suffix in (".png", ".svg"):
            shutil.copy(picture, target)


def rewritten(text: str, page: Path, target: Path) -> str:
    """The text of a page of the repository with its links made those of the site in `target`.

    Files that are no pages are copied there, to be downloaded; links to folders that the site has no page of, and to
    files that the site is made from, go.
    """

    def link(found: re.Match) -> str:
        picture, words, address = found.groups()
        if re.match(r"[a-z]+:|#", address):
            return found[0]
        path, _, anchor = address.partition("#")
        place = _destination((page.parent / path).resolve(), target)
        if place is None:
            return words
        relative = os.path.relpath(place, _place(page).parent)
        return f"{picture}[{words}]({relative}{'#' if anchor else ''}{anchor})"

    # a link may have code for its words
    pieces = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(piece if number % 2 else _LINK.sub(link, piece) for number, piece in enumerate(pieces))


def _place(page: Path) -> Path:
    """Where on the site a page of the repository is, relative to its top."""
    path = page.relative_to(ROOT)
    if str(path) in _PLACES:
        return Path(_PLACES[str(path)])
    if page.is_relative_to(SITE):
        return page.relative_to(SITE)
    return path.relative_to("docs") if path.parts[0] == "docs" else path.with_suffix(".md")


def _destination(path: Path, target: Path) -> Path | None:
    """Where on the site a file or folder of the repository is, from its top on; a file that is no page is copied."""
    inside = path.relative_to(ROOT)
    if str(inside) in _PLACES:
        return Path(_PLACES[str(inside)])
    if path.is_dir() or path.is_relative_to(SITE):
        return None
    is_script = path.suffix == ".py" and str(inside.parent) in ("derivations", "examples")
    if is_script or path.suffix == ".md" or inside.parts[0] == "docs":
        return _place(path)
    copy = Path("files") / inside
    (target / copy).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target / copy)
    return copy
