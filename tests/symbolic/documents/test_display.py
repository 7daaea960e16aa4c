"""Objects show themselves: as text in a terminal, as HTML in a notebook, as before where they have no values."""

import equinox as eqx
import jax
import jax.numpy as jnp

from theorykit.symbolic.documents.display import DisplayMixin, View
from theorykit.symbolic.documents.document import Equation, Folded, Heading, Picture, Table, Text, as_latex


class Point(DisplayMixin, eqx.Module):
    value: jax.Array
    lines: int = eqx.field(static=True, default=1)

    def _view(self):
        yield Heading("A point", 1)
        yield Table((("$U_1$", f"{float(self.value):.3g}"),) * self.lines)


def test_it_shows_its_values():
    point = Point(jnp.array(1.5))
    assert repr(point) == "A point\nU_1  1.5" == repr(point.summary())
    assert "<math" in point._repr_html_() and "1.5" in point._repr_html_()
    assert point.summary()._repr_markdown_() == "# A point\n\n|  |  |\n| --- | --- |\n| $U_1$ | 1.5 |\n"


def test_a_long_one_is_cut():
    point = Point(jnp.array(1.5), 30)
    assert len(repr(point).splitlines()) == 15 and repr(point).endswith("... 17 more lines: summary()")
    assert len(repr(point.summary()).splitlines()) == 31


def test_without_values_it_shows_what_it_is():
    point, seen = Point(jnp.array(1.5)), []
    jax.jit(lambda each: seen.append(repr(each)))(point)
    shapes = jax.eval_shape(lambda: point)
    nothing = jax.tree.map(lambda leaf: None, point)
    assert all("Point(" in text for text in (seen[0], repr(shapes), repr(nothing)))
    assert shapes._repr_html_() is None is nothing._repr_html_()


def test_every_kind_of_block_is_shown():
    picture = Picture("<svg></svg>", "a circle")
    view = View([Text("of **it**"), Table((("1", "2"),), ("a", "b")), picture, Folded("more", (Equation("x", "y"),))])
    assert repr(view) == "of it\na  b\n1  2\na circle\nmore"
    assert all(piece in view._repr_html_() for piece in ("<strong>", "<thead>", "<svg>", "<details"))
    assert "a & b" in as_latex(view.blocks)


def test_powers_are_no_bold_words():
    view = View([Text("**Wrong**: g**2 + h**2 in place of (g + h)**2"), Text("**a** b **c d**.")])
    assert repr(view) == "Wrong: g**2 + h**2 in place of (g + h)**2\na b c d."
    assert view._repr_html_().count("<strong>") == 3
    assert as_latex(view.blocks).count(r"\textbf") == 3
