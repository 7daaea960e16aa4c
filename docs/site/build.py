"""Build the site: lay out its pages in build/docs/source, then have Sphinx write build/docs/html.

python docs/site/build.py
"""

import shutil
import sys
import time
from functools import partial

from equations import write_equations
from gallery import write_gallery
from reference import write_reference
from sphinx.cmd.build import build_main
from stage import ROOT, SITE, rewritten, stage_pages

from derivations import write_derivations


def main() -> int:
    """The exit status of Sphinx, for which warnings are errors."""
    folder = ROOT / "build" / "docs"
    source = folder / "source"
    shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    start = time.perf_counter()
    stage_pages(source)
    write_reference(source / "api")
    write_gallery(source / "examples", partial(rewritten, target=source), folder / "runs")
    _say("examples", start)
    (source / "derivations").mkdir()
    write_equations(source / "derivations", write_derivations(source / "derivations"))
    _say("derivations", start)
    status = build_main(["-q", "-W", "--keep-going", "-c", str(SITE), str(source), str(folder / "html")])
    _say("the site", start)
    if status == 0:
        print(f"The site is {folder.relative_to(ROOT)}/html/index.html")
    return status


def _say(what: str, start: float) -> None:
    print(f"{time.perf_counter() - start:6.0f} s: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
