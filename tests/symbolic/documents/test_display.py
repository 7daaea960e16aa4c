"""Objects show themselves: as text in a terminal, as Markdown in a notebook, as before where they have no values."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from theorykit.symbolic.documents import (
    DisplayMixin,
    Equation,
    Folded,
    Heading,
    Items,
    Table,
    Text,
    View,
    as_latex,
    as_markdown,
    brief,
    code,
    verbatim,
)


class Point(DisplayMixin, eqx.Module):
    value: jax.Array
    lines: int = eqx.field(static=True, default=1)

    def _view(self):
        yield Heading("A point", 1)
        yield Table((("$U_1$", f"{float(self.value):.3g}"),) * self.lines)


def test_it_shows_its_values():
    point = Point(jnp.array(1.5))
    assert repr(point) == "A point\nU_1  1.5" == repr(point.summary())
    assert point._repr_markdown_() == "# A point\n\n|  |  |\n| --- | --- |\n| $U_1$ | 1.5 |\n"


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
    assert shapes._repr_markdown_() is None is nothing._repr_markdown_()


def test_every_kind_of_block_is_shown():
    folded = Folded("**more** of $a<b$", (Equation("x", "y"),), is_open=True)
    view = View([Text("of **it**"), Table((("1", "2"),), ("a", "b")), Items(("one",)), folded])
    assert repr(view) == "of it\na  b\n1  2\n- one\nmore of a<b"
    fold = "**more** of $a<b$\n\n<details open><summary>Details</summary>\n\n$$x = y$$\n\n</details>"
    assert view._repr_markdown_() == f"of **it**\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n- one\n\n{fold}\n"
    assert "a & b" in as_latex(view.blocks) and r"\item one" in as_latex(view.blocks)


def test_powers_are_no_bold_words():
    view = View([Text("**Wrong**: g**2 + h**2 in place of (g + h)**2"), Text("**a** b **c d**.")])
    assert repr(view) == "Wrong: g**2 + h**2 in place of (g + h)**2\na b c d."
    assert as_latex(view.blocks).count(r"\textbf") == 3


def test_text_of_a_user_is_verbatim_in_every_format():
    text = "$x$ `c` **b** <i> a|b \\ _e_ ~f~ #g & [h](i) {j}^2 %"
    blocks = [Text(f"**Name**: {verbatim(text)}"), Table(((verbatim(text), "`code`"),))]
    assert repr(View(blocks)) == f"Name: {text}\n{text}  code"
    article = as_latex(blocks, fragment=True)
    assert article.count(r"\$x\$ `c` **b** <i> a|b \textbackslash{} \_e\_") == 2
    assert article.count(r"\{j\}\textasciicircum{}2 \%") == 2
    # Characters that Markdown would read are escaped, and a dollar sign stands in an element.
    markdown = as_markdown(blocks)
    assert markdown.count(r"<span>$</span>x<span>$</span> \`c\` \*\*b\*\* \<i\> a\|b \\ \_e\_") == 2
    assert verbatim("a\n b") == "a b" and code("x**2") == "`x**2`" and repr(View([Text(code("a`b"))])) == "a`b"


def test_long_equations_are_written_in_lines_that_tex_breaks():
    long = " + ".join(rf"\left(x_{{{i}}} - 1\right)" for i in range(30))
    text = as_latex(
        [Equation("S", "a", source="32"), Equation("u", rf"\left({long}\right)", label="step-1")], fragment=True
    )
    assert "\\begin{equation}\n  S = a \\quad [\\text{Eq.\\,32}] \\label{eq:S}\n" in text
    assert text.count(r"\label") == 2 and r"\refstepcounter{equation}\label{eq:step-1}" in text
    assert text.count(r"\bigl(") == text.count(r"\bigr)") == 1 and text.count(r"\left(") == text.count(r"\right)") == 30


def test_numbers_in_a_few_characters():
    assert brief(0.123456) == "0.1235" and brief([1, 2.5]) == "1, 2.5"
    assert brief(np.arange(9.0), 2) == "0, 1, ... (9 in all)"
    assert brief(np.arange(4.0).reshape(2, 2)) == "0 to 3, shape (2, 2)"
