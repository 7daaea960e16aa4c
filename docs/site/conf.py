"""Settings of Sphinx for the site; `build.py` lays out the pages that it reads."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import theorykit

project = "theorykit"
author = "The theorykit developers"
version = release = theorykit.__version__
html_title = f"theorykit {version}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "api",
    "formulas",
]
root_doc = "index"
source_suffix = {".md": "markdown"}
exclude_patterns = ["files"]
nitpicky = True
# annotations name classes of JAX, NumPy and others, which have no pages here
nitpick_ignore_regex = [("py:.*", ".*")]
# annotations are names as they stand in their module, of which two may have the same
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
html_math_renderer = "mathml"

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
# summaries would be fetched, which a browser refuses to pages that are files
html_show_search_summary = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
