"""Settings of Sphinx for the site; `make docs` copies the repository to build/docs/source and builds that."""

import hashlib
import os
import re
import sys
from pathlib import Path

import jupytext
from nbformat import NotebookNode, v4

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
# Results of examples are kept until code of the package or of the papers changes.
CODE = sorted([*(ROOT / "theorykit").rglob("*.py"), *(EXAMPLES / "papers").rglob("*.py")])
STATE = hashlib.sha256(b"".join(path.read_bytes() for path in CODE)).hexdigest()[:12]
sys.path.insert(0, str(HERE))
# Examples import `papers`, as they do when Python runs them as scripts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])

import theorykit  # noqa: E402

project = "theorykit"
author = "The theorykit developers"
version = release = theorykit.__version__
html_title = f"theorykit {version}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "api",
    "equations",
]
include_patterns = ["CHANGELOG.md", "CONTRIBUTING.md", "examples/*.py"]
include_patterns += ["docs/*.md", "docs/site/api/*.md", "derivations/*.md"]
root_doc = "docs/index"
html_extra_path = ["index.html"]
nitpicky = True
# Annotations name classes of JAX, NumPy and other libraries, which have no pages here.
nitpick_ignore_regex = [("py:.*", ".*")]
# Annotations use the names in their module, and two modules may use the same name.
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

nb_custom_formats = {".py": "conf.read_example"}
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "docs" / "executed" / STATE)
nb_execution_timeout = -1
nb_execution_raise_on_error = True
nb_merge_streams = True

# Docstrings write code in single backquotes.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_type_aliases = {name: name for name in ("ArrayLike", "PRNGKeyArray")}
autosummary_generate = False
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
pygments_dark_style = "github-dark"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = html_show_copyright = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def read_example(text: str) -> NotebookNode:
    """Read an example as a notebook, and offer its script for download."""
    notebook = jupytext.reads(text, fmt="py:percent")
    title = notebook.cells[0].source.splitlines()[0]
    name = next(path.name for path in EXAMPLES.glob("*.py") if title in path.read_text())
    for cell in notebook.cells:
        cell.metadata.clear()
    # Notebooks do not define `__file__`, which examples use to find data and to name figures.
    hidden = v4.new_code_cell(f'__file__ = "{name}"', metadata={"tags": ["remove-cell"]})
    download = v4.new_markdown_cell(f"---\n\nDownload {{download}}`{name}`.")
    notebook.cells = [notebook.cells[0], hidden, *notebook.cells[1:], download]
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "python"}
    return notebook


def prepare(app, docname, content: list[str]) -> None:
    """Offer Python files that are no examples, and no pages, for download; drop blank lines that doctest needs."""
    content[0] = re.sub(r"\]\((?!(?:\.\./)*examples/\w+\.py)([^)\s:]+\.py)\)", r"](path:\1)", content[0])
    content[0] = content[0].replace("\n\n```\n", "\n```\n")


def setup(app) -> None:
    """Register the hook with Sphinx."""
    app.connect("source-read", prepare)
