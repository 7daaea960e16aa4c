"""The parameters of symbolic."""

import jax.numpy as jnp
from sympy import Identity, MatrixSymbol, Rational, Symbol, Trace, cosh, tanh

from theorykit import symbolic
from theorykit.symbolic import Definition, Equation, Heading

from .engine import Face
from .values import EMPTY, TEXTS, of, text, whole_number

N = Symbol("N", integer=True, positive=True)
X, Y, Z = (Symbol(name, real=True) for name in "xyz")
A, C, V, ONE, HALF = (
    MatrixSymbol("A", 2, 3),
    symbolic.positive_definite("C", 4),
    MatrixSymbol("v", 4, 1),
    Identity(1),
    Rational(1, 2),
)

# numbers of Python are expressions
EXPRESSIONS = ("-1", "0", "1", "1.5", "-0.5", "10**400", "2**64")
ABOVE_ZERO = ("1", "1.5", "10**400", "2**64")
SIZES = ("1", "10**400", "2**64")


def of_each(names, parameter):
    """A parameter of several callables."""
    return " ".join(f"{name}.{parameter}" for name in names.split())


def scalar(example):
    return of(example, admits=EXPRESSIONS, matrix=C)


SQUARE = of(C, scalar=X, of_other_columns=A)
SIZE = of(N, admits=SIZES, matrix=C, fraction=HALF)
SIZE_OF_TWO = of((2, 2), three=(2, 2, 2), of_fractions=(1.5, 2), below_one=(0, 4))
MATRIX, ANY = of(C, scalar=X), of(C, admits=EXPRESSIONS)
COLUMN = of(V, scalar=X, several_columns=A)
VARIABLE = of(Z, matrix=C, expression=2 * Z)

FACE = Face(
    symbolic,
    {
        "name numeric_function.name": text("C"),
        "size": SIZE,
        "product_of.size": of(N, admits=SIZES, matrix=C),
        "n m": of(N, matrix=C, another=3),
        "blocks": of(2, admits=SIZES, matrix=C, fraction=HALF),
        "matrix": MATRIX,
        of_each(
            "eigenvalue_sum spectral_function Diagonal SquareRoot inverse partial_trace quadratic_form trace",
            "matrix",
        ): SQUARE,
        "function": of(cosh, admits=("a function",)),
        "f": of(jnp.tanh, of_two_arguments=jnp.where),
        # without it JAX differentiates
        "df": of(lambda x: 1 - tanh(x) ** 2, admits=("None",), wrong=cosh, of_others=[cosh, cosh]),
        "domain": of((-2.0, 2.0), descending=(1.0, 0.0), three=(0.0, 1.0, 2.0)),
        "left right": MATRIX,
        "dimensions sizes": SIZE_OF_TWO,
        "embed.sizes": of((4, 2), of_another_block=(2, 2), three=(4, 2, 2)),
        "traced index": whole_number(0, least=0, most=1),
        "column vector": COLUMN,
        "value": of(C, admits=ABOVE_ZERO, no_square=A),
        "block": SQUARE,
        "expression": scalar(Trace(C)),
        of_each("latex fold as_number refined with_nodes with_more_nodes", "expression"): ANY,
        of_each("matrix_terms expand_products", "expression"): of(C * C, scalar=X),
        "number": scalar(X),
        "variable": of(C, expression=2 * C),
        "integrand": scalar(X * Z),
        "GaussianAverage.variable variables": VARIABLE,
        "nodes": whole_number(64, least=1, most=10_000),
        "side": whole_number(0, least=-1, most=1),
        "factors": of((C, C), admits=EMPTY, of_scalars=(X,)),
        "product_of.factors matrices": of((C, C), of_scalars=(X,)),
        of_each("entrywise", "matrices"): MATRIX,
        "terms": of([(X, (C,))], admits=EMPTY, of_text=[("x", (C,))], of_a_matrix=[(X, C)], of_others=[(X, ("C",))]),
        "shape": of((4, 4), three=(4, 4, 4), of_text=("a", "b")),
        "symbol_names": of({X: "x"}, by_text={"x": "x"}),
        "definitions": of({X: Trace(C)}, by_text={"x": X}),
        "Equation.left Equation.right relation text symbol meaning summary remark": text("words"),
        "level": 2,
        "items": of(("a", "b"), admits=(*TEXTS, *EMPTY)),
        "equations": of([Equation("x", "y")], of_others=[Heading("a")]),
        of_each("as_markdown as_latex as_html", "blocks"): [Heading("a"), Equation("x", "y")],
        # without definitions there is no table
        "as_html.definitions": of([Definition("x", "a number")], admits=EMPTY),
        "parts": of((Equation("x", "y"),), admits=EMPTY),
    },
    given={"entrywise": ("matrices",), "gaussian_average": ("variables",)},
)
