"""Formulas as MathML, made when the site is built: browsers show it without a script."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

_LOGGER = logging.getLogger(__name__)


def as_mathml(latex: str, display: str) -> str:
    """A formula in MathML; `ValueError` for a command that is not known."""
    found = convert(latex, display=display)
    unknown = re.findall(r"\\[A-Za-z]+", re.sub(r"<annotation.*?</annotation>", "", found))
    if unknown:
        raise ValueError(f"unknown commands {', '.join(sorted(set(unknown)))} in the formula {latex}")
    return found


def _written(node: nodes.Node, display: str) -> str:
    try:
        return as_mathml(node.astext(), display)
    except Exception as error:  # latex2mathml has many
        _LOGGER.warning("this formula cannot be read: %s (%s)", node.astext(), error, location=node)
        return ""


def _inline(translator, node: nodes.math) -> None:
    translator.body.append(f'<span class="math">{_written(node, "inline")}</span>')
    raise nodes.SkipNode


def _block(translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_written(node, "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
