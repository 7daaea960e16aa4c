"""The parameters of symbolic."""

import jax.numpy as jnp
from sympy import MatrixSymbol, Rational, Symbol, Trace, cosh, tanh

from theorykit import symbolic
from theorykit.symbolic import Definition, Equation, Heading

from .engine import Face
from .values import EMPTY, NONE, of, text, whole_number

X, Z = Symbol("x", real=True), Symbol("z", real=True)
A, C, V = MatrixSymbol("A", 2, 3), symbolic.positive_definite("C", 4), MatrixSymbol("v", 4, 1)

# numbers of Python are expressions
EXPRESSIONS = ("-1", "0", "1", "1.5", "-0.5", "10**400", "2**64")
ABOVE_ZERO = ("1", "1.5", "10**400", "2**64")
SIZES = ("1", "10**400", "2**64")


def scalar(example):
    return of(example, admits=EXPRESSIONS, matrix=C)


MATRIX = of(C, scalar=X)
FACE = Face(
    symbolic,
    {
        "name": text("C"),
        "size": of(Symbol("N", integer=True, positive=True), admits=SIZES, matrix=C, fraction=Rational(1, 2)),
        "matrix": of(C, scalar=X, of_other_columns=A),
        "sum_of_entries.matrix left right entrywise.matrices": MATRIX,
        "Equation.left Equation.right": text("words"),
        "function": of(cosh, admits=("a function",)),
        "f": of(jnp.tanh, of_two_arguments=jnp.where),
        # without it JAX differentiates
        "df": of(lambda x: 1 - tanh(x) ** 2, admits=NONE, wrong=cosh, of_others=[cosh, cosh]),
        "domain": of((-2.0, 2.0), descending=(1.0, 0.0), three=(0.0, 1.0, 2.0)),
        "dimensions": of((2, 2), three=(2, 2, 2), of_fractions=(1.5, 2), below_one=(0, 4)),
        "traced": whole_number(0, least=0, most=1),
        "column vector": of(V, scalar=X, several_columns=A),
        "value": of(C, admits=ABOVE_ZERO, no_square=A),
        "expression": scalar(Trace(C)),
        "latex.expression with_nodes.expression": of(C, admits=EXPRESSIONS),
        "number h k": scalar(X),
        "correlation": of(X, admits=("0", "-0.5"), matrix=C, below=-1),
        "variable": of(C, expression=2 * C),
        "integrand": scalar(X * Z),
        "GaussianAverage.variable variables": of(Z, matrix=C, expression=2 * Z),
        "loss": scalar(X**2),
        "x": of(X, matrix=C, expression=2 * X),
        "omega": scalar(X),
        "moreau.V proximal.V": of(Symbol("v", positive=True), admits=ABOVE_ZERO, matrix=C, zero=0, negative=-1),
        "ratio variance": of(Symbol("v", positive=True), admits=ABOVE_ZERO, matrix=C, zero=0, negative=-1),
        "SpectralLaw.density.x z": scalar(X),
        "SpectralLaw.average.function": of(lambda s: s**2, of_matrices=lambda s: C),
        "nodes": whole_number(64, least=1, most=10_000),
        "side": whole_number(0, least=-1, most=1),
        "matrices": of((C, C), of_scalars=(X,)),
        "symbol_names": of({X: "x"}, by_text={"x": "x"}),
        "blocks": [Heading("a"), Equation("x", "y")],
        # without definitions there is no table
        "definitions": of([Definition("x", "a number")], admits=EMPTY),
    },
    instances={"SpectralLaw": symbolic.semicircle(1)},
    made="SpectralLaw",
    given={"entrywise": ("matrices",), "gaussian_average": ("variables",)},
)
