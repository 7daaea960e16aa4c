"""Settings of Sphinx for the site; `build.py` collects its sources."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from docutils import nodes

import theorykit

project = "theorykit"
author = "The theorykit developers"
version = release = theorykit.__version__
html_title = f"theorykit {version}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "api",
    "formulas",
]
# The sources are a copy of the repository. Most files are not pages, but pages offer them for download.
include_patterns = ["*.md", "docs/**", "derivations/*.md", "examples/*.md", "examples/*.ipynb"]
root_doc = "index"
nitpicky = True
# Annotations name classes of JAX, NumPy and other libraries, which have no pages here.
nitpick_ignore_regex = [("py:.*", ".*")]
# Annotations use the names in their module, and two modules may use the same name.
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
html_math_renderer = "mathml"

nb_execution_mode = "force"
nb_execution_timeout = -1
nb_execution_raise_on_error = True
nb_merge_streams = True
# The outputs of these examples are kept.
nb_execution_excludepatterns = [
    f"examples/{path.stem}.ipynb" for path in (Path(__file__).parents[2] / "examples" / "kept").glob("*.json")
]

# Docstrings write code in single backquotes.
default_role = "code"
autodoc_member_order = "bysource"
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
pygments_dark_style = "github-dark"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = False
html_domain_indices = False
html_show_sphinx = False
html_show_copyright = False
# Browsers refuse to fetch the summaries for pages opened as files.
html_show_search_summary = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Pages of the repository link to folders; these are the pages of the site about them.
_FOLDERS = {
    "derivations": "/derivations/index.md",
    "examples": "/examples/index.md",
    "theorykit/bpkr": "/docs/theory.md",
    "theorykit/dmft": "/docs/self-attention-dynamics.md",
}
# What readers search for, in words that a page may not use, by the heading that answers.
_SEARCHED = {
    "README": {"Citation": ("cite", "citation", "BibTeX")},
    "docs/install": {"Installation": ("install", "pip install"), "GPU": ("GPU", "one GPU", "CUDA")},
    "docs/quickstart": {"Quickstart": ("example", "minimal example", "scikit-learn", "fit and predict")},
    "examples/index": {"Examples": ("example",)},
    "docs/your-data": {
        "Your own data": ("own data", "your data", "PyTorch"),
        "Padding and masks": ("padding", "padding mask"),
    },
    "docs/assumptions": {"Assumptions and limits": ("assumptions", "limits", "where it fails", "does it apply")},
    "docs/own-layer": {"Write a layer": ("add a layer", "new layer", "custom layer")},
    "docs/own-action": {"Write your own action": ("new action", "custom action", "phase diagram")},
    "docs/parallel": {"A cluster": ("cluster", "dask", "SLURM"), "One GPU": ("GPU", "one GPU")},
    "docs/validation": {
        "Attention paths: Tiberi et al., arXiv 2405.15926": ("reproduce",),
        "Figures 2 and 5: hidden Markov chains": ("Fig. 2", "Fig. 5", "figure 2", "figure 5"),
        "Figures 3, 6 and 7: one-shot images": ("Fig. 3", "Fig. 6", "Fig. 7", "figure 3", "one-shot images"),
    },
    "docs/conventions": {"Conventions": ("notation", "shapes", "axes")},
    "docs/site/api/solve": {"From path features": ("solve",)},
}
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#:]+)\)")


def _link_to_pages(app, docname: str, content: list[str]) -> None:
    """Point links to examples and folders at their pages, and add the words that readers search for.

    Links to folders without a page become text.
    """
    source = Path(app.srcdir)

    def link(found: re.Match) -> str:
        words, address = found.groups()
        path = (source / docname).parent.joinpath(address).resolve()
        if path.is_dir():
            page = _FOLDERS.get(str(path.relative_to(source)))
            return f"[{words}]({page})" if page else words
        is_example = path.suffix == ".py" and path.parent == source / "examples"
        return f"[{words}]({address.removesuffix('.py')}.ipynb)" if is_example else found[0]

    content[0] = _LINK.sub(link, content[0])
    for heading, words in _SEARCHED.get(docname, {}).items():
        # The search shows the targets of main entries, with an exclamation mark, first.
        entries = f"```{{index}} {', '.join(f'!{word}' for word in words)}\n```\n\n"
        content[0], found = re.subn(rf"^#+ {re.escape(heading)}$", rf"{entries}\g<0>", content[0], count=1, flags=re.M)
        if not found:
            raise ValueError(f"{docname} has no heading {heading!r}, which conf.py names")


def _set_code(app, doctree: nodes.document) -> None:
    """Render the LaTeX that an example prints below its source, and drop empty lines at the end of code."""
    for node in list(doctree.findall(nodes.literal_block)):
        # Doctests need an empty line after the last output. Sphinx highlights code only if both texts are equal.
        if node.rawsource == node.astext():
            node.rawsource = node.astext().rstrip("\n")
            node[:] = [nodes.Text(node.rawsource)]
        if node.astext().startswith(r"\begin{align*}"):
            formula = nodes.math_block(text=node.astext().strip())
            node.parent.insert(node.parent.index(node) + 1, formula)


def setup(app) -> None:
    """Register the hooks with Sphinx."""
    app.connect("source-read", _link_to_pages)
    app.connect("doctree-read", _set_code)
