"""Convert formulas to MathML when the site is built, so browsers need no script."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

_LOGGER = logging.getLogger(__name__)


def as_mathml(latex: str, display: str) -> str:
    """Convert a formula to MathML. Raises `ValueError` for an unknown command."""
    found = convert(latex, display=display)
    unknown = re.findall(r"\\[A-Za-z]+", re.sub(r"<annotation.*?</annotation>", "", found))
    if unknown:
        raise ValueError(f"unknown commands {', '.join(sorted(set(unknown)))} in the formula {latex}")
    return found


def _written(node: nodes.Node, display: str) -> str:
    try:
        return as_mathml(node.astext(), display)
    except Exception as error:  # latex2mathml raises many kinds of errors
        _LOGGER.warning("this formula cannot be read: %s (%s)", node.astext(), error, location=node)
        return ""


def _inline(translator, node: nodes.math) -> None:
    translator.body.append(f'<span class="math">{_written(node, "inline")}</span>')
    raise nodes.SkipNode


def _block(translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_written(node, "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict:
    """Register the renderer with Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
