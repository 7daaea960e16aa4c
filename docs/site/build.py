"""Build the site: collect its sources in build/docs/source, then run Sphinx into build/docs/html.

python docs/site/build.py
"""

import shutil
import sys
from pathlib import Path

from equations import write_equations
from gallery import embed_figures, write_gallery
from sphinx.cmd.build import build_main

from derivations import write_derivations

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Build the site and return the exit status of Sphinx, which treats warnings as errors."""
    folder = ROOT / "build" / "docs"
    source = folder / "source"
    shutil.rmtree(folder, ignore_errors=True)
    # Copy the whole repository, because pages link to its files.
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "shared"))
    shutil.move(source / "docs" / "site" / "index.md", source)
    write_gallery(source / "examples")
    write_equations(source / "derivations", write_derivations(source / "derivations"))
    options = ["-q", "-W", "--keep-going", "-c", str(Path(__file__).parent), *sys.argv[1:]]
    status = build_main([*options, str(source), str(folder / "html")])
    if status == 0:
        embed_figures(folder / "html")
        print(f"The site is {folder.relative_to(ROOT)}/html/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
