"""What the parameters of the public callables of symbolic are."""

import jax.numpy as jnp
from sympy import MatrixSymbol, Symbol, Trace, cosh, tanh

from theorykit import symbolic
from theorykit.symbolic import Definition, Equation, Heading

from .engine import Face
from .values import Kind, function, text, whole_number

N = Symbol("N", integer=True, positive=True)
X, Z = (Symbol(name, real=True) for name in "xz")
A, C, V = MatrixSymbol("A", 2, 3), symbolic.positive_definite("C", 4), MatrixSymbol("v", 4, 1)

A_NUMBER = "a number of Python is an expression"
OF_NUMBERS = {**dict.fromkeys(("-1", "0", "1", "1.5", "-0.5"), A_NUMBER), "10**400": A_NUMBER, "2**64": A_NUMBER}
ABOVE_ZERO = {name: why for name, why in OF_NUMBERS.items() if name not in ("-1", "0", "-0.5")}
SIZES = {name: why for name, why in ABOVE_ZERO.items() if name != "1.5"}
NONE_AT_ALL = dict.fromkeys(("an empty list", "an empty array"), "the empty product or sum")


def sech_squared(x):
    return 1 - tanh(x) ** 2


def scalar(example=lambda: Trace(C)):
    return Kind(example, OF_NUMBERS, lambda: {"a matrix": C})


def matrix(example=lambda: C, *called):
    return Kind(example, {}, lambda: {"a scalar": X}, called)


def square(example=lambda: C):
    return Kind(example, {}, lambda: {"a scalar": X, "of other columns": A})


def size(example=N):
    return Kind(lambda: example, SIZES, lambda: {"a matrix": C, "a fraction": N / N / 2})


def matrices(admits=None, example=lambda: (C, C)):
    return Kind(example, admits or {}, lambda: {"of scalars": (X,), "of text": ("A",)})


def two_sizes():
    return Kind(lambda: (2, 2), {}, lambda: {"three": (2, 2, 2), "of fractions": (1.5, 2), "below one": (0, 4)})


FACE = Face(
    symbolic,
    {
        "name": text("C", any_text=True),
        "size": size(),
        "matrix": matrix(),
        **{f"{name}.matrix": square() for name in ("eigenvalue_sum", "spectral_function", "kernel_matrix")},
        "kernel_matrix.function": Kind(
            lambda: lambda own, between, other: own * between * other, also=lambda: {"of one number": lambda x: x}
        ),
        **{f"{name}.matrix": square() for name in ("Diagonal", "SquareRoot", "inverse", "partial_trace")},
        **{f"{name}.matrix": square() for name in ("quadratic_form", "trace")},
        "function": function(cosh, {}),
        "numeric_function.name": text("f", any_text=True),
        "f": Kind(lambda: jnp.tanh, {}, called=("f",), also=lambda: {"of two arguments": jnp.where}),
        "df": Kind(
            lambda: sech_squared,
            {"None": "JAX differentiates"},
            also=lambda: {"wrong": cosh, "of others": [cosh, cosh]},
        ),
        "domain": Kind(lambda: (-2.0, 2.0), {}, lambda: {"descending": (1.0, 0.0), "three": (0.0, 1.0, 2.0)}),
        "left": matrix(),
        "right": matrix(),
        "dimensions": two_sizes(),
        "traced": whole_number(0, least=0, most=1),
        "column": Kind(lambda: V, {}, lambda: {"a scalar": X, "several columns": A}),
        "vector": Kind(lambda: V, {}, lambda: {"a scalar": X, "several columns": A}),
        "value": Kind(lambda: C, ABOVE_ZERO, lambda: {"no square": A}),
        "expression": scalar(),
        **{f"{name}.expression": Kind(lambda: C, OF_NUMBERS) for name in ("latex", "with_nodes")},
        "number": scalar(lambda: X),
        "variable": Kind(lambda: C, {}, lambda: {"an expression": 2 * C}),
        "integrand": Kind(lambda: X * Z, OF_NUMBERS, lambda: {"a matrix": C}),
        "GaussianAverage.variable": Kind(lambda: Z, {}, lambda: {"a matrix": C, "an expression": 2 * Z}),
        "variables": Kind(lambda: Z, {}, lambda: {"a matrix": C, "an expression": 2 * Z}),
        "nodes": whole_number(64, least=1, most=10_000),
        "side": whole_number(0, least=-1, most=1),
        "matrices": matrices(),
        **{f"{name}.matrices": matrix(lambda: C) for name in ("beside", "below", "entrywise")},
        "symbol_names": Kind(lambda: {X: "x"}, also=lambda: {"by text": {"x": "x"}, "to numbers": {X: 1}}),
        "Equation.left": text("x", any_text=True),
        "Equation.right": text("y", any_text=True),
        "relation": text("=", any_text=True),
        "text": text("words", any_text=True),
        "level": whole_number(2, least=1),
        "items": Kind(
            lambda: ("a", "b"),
            {**dict.fromkeys(("a list of text", "an array of text"), "texts"), **NONE_AT_ALL},
            lambda: {"one text": "a", "of numbers": (1,)},
        ),
        **{
            f"{name}.blocks": Kind(lambda: [Heading("a"), Equation("x", "y")], also=lambda: {"of text": ["a"]})
            for name in ("as_markdown", "as_latex", "as_html")
        },
        "as_html.definitions": Kind(
            lambda: [Definition("x", "a number")],
            dict.fromkeys(("an empty list", "an empty array"), "there is no table then"),
            lambda: {"of text": ["x"], "one": Definition("x", "a number")},
        ),
        "symbol": text("x", any_text=True),
        "meaning": text("a number", any_text=True),
        "summary": text("words", any_text=True),
        "remark": text("words", any_text=True),
        "parts": Kind(
            lambda: (Equation("x", "y"),), NONE_AT_ALL, lambda: {"of text": ("a",), "one": Equation("x", "y")}
        ),
    },
    given={
        "entrywise": ("matrices",),
        "gaussian_average": ("variables",),
        "beside": ("matrices",),
        "below": ("matrices",),
    },
)
