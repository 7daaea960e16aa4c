"""What the parameters of the public callables of symbolic are."""

import jax.numpy as jnp
from sympy import Identity, Lambda, MatrixSymbol, Symbol, Trace, cosh, tanh

from theorykit import symbolic
from theorykit.symbolic import Definition, Equation, Heading

from .engine import Face
from .values import Kind, function, text, whole_number

N = Symbol("N", integer=True, positive=True)
X, Y, Z = (Symbol(name, real=True) for name in "xyz")
A, C, V, ONE = MatrixSymbol("A", 2, 3), symbolic.positive_definite("C", 4), MatrixSymbol("v", 4, 1), Identity(1)

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
        "product_of.size": Kind(lambda: N, SIZES, lambda: {"a matrix": C}),
        "n": Kind(lambda: N, {}, lambda: {"a matrix": C, "another": 3}),
        "m": Kind(lambda: N, {}, lambda: {"a matrix": C, "another": 3}),
        "blocks": size(2),
        "matrix": matrix(),
        **{f"{name}.matrix": square() for name in ("EigenvalueSum", "SpectralFunction", "eigenvalue_sum")},
        **{f"{name}.matrix": square() for name in ("KernelMatrix", "kernel_matrix")},
        "KernelMatrix.function": Kind(
            lambda: Lambda((X, Y, Z), X * Y * Z),
            also=lambda: {"of two numbers": Lambda((X, Z), X), "to a matrix": Lambda((X, Y, Z), C)},
        ),
        "kernel_matrix.function": Kind(
            lambda: lambda own, between, other: own * between * other, also=lambda: {"of one number": lambda x: x}
        ),
        "spectral_function.matrix": square(),
        **{
            f"{name}.function": Kind(
                lambda: Lambda(X, X), {}, lambda: {"of two numbers": Lambda((X, Z), X), "to a matrix": Lambda(X, C)}
            )
            for name in ("EigenvalueSum", "SpectralFunction", "Entrywise")
        },
        **{f"{name}.matrix": square() for name in ("Diagonal", "LogDet", "PartialTrace", "PrincipalBlock")},
        **{f"{name}.matrix": square() for name in ("SquareRoot", "inverse", "partial_trace", "principal_block")},
        **{f"{name}.matrix": square() for name in ("quadratic_form", "trace")},
        "as_number.matrix": Kind(lambda: MatrixSymbol("k", 1, 1), {}, lambda: {"of other size": C, "no symbol": ONE}),
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
        "sizes": two_sizes(),
        "embed.sizes": Kind(lambda: (4, 2), {}, lambda: {"of another block": (2, 2), "three": (4, 2, 2)}),
        "traced": whole_number(0, least=0, most=1),
        "index": whole_number(0, least=0, most=1),
        "column": Kind(lambda: V, {}, lambda: {"a scalar": X, "several columns": A}),
        "vector": Kind(lambda: V, {}, lambda: {"a scalar": X, "several columns": A}),
        "value": Kind(lambda: C, ABOVE_ZERO, lambda: {"no square": A}),
        "block": square(),
        "expression": scalar(),
        **{f"{name}.expression": Kind(lambda: C, OF_NUMBERS) for name in ("latex", "fold", "as_number")},
        **{f"{name}.expression": matrix(lambda: C * C) for name in ("matrix_terms", "expand_products")},
        "number": scalar(lambda: X),
        "variable": Kind(lambda: C, {}, lambda: {"an expression": 2 * C}),
        "integrand": Kind(lambda: X * Z, OF_NUMBERS, lambda: {"a matrix": C}),
        "GaussianAverage.variable": Kind(lambda: Z, {}, lambda: {"a matrix": C, "an expression": 2 * Z}),
        "variables": Kind(lambda: Z, {}, lambda: {"a matrix": C, "an expression": 2 * Z}),
        "nodes": whole_number(64, least=1, most=10_000),
        "side": whole_number(0, least=-1, most=1),
        **{f"{name}.expression": Kind(lambda: C, OF_NUMBERS) for name in ("refined", "with_nodes", "with_more_nodes")},
        "factors": matrices(NONE_AT_ALL),
        "product_of.factors": matrices(),
        "matrices": matrices(),
        **{f"{name}.matrices": matrix(lambda: C) for name in ("beside", "below", "entrywise", "Entrywise")},
        "terms": Kind(
            lambda: [(X, (C,))],
            NONE_AT_ALL,
            lambda: {"alone": (C,), "of text": [("x", (C,))], "of a matrix": [(X, C)], "of no matrices": [(X, ("C",))]},
        ),
        "shape": Kind(lambda: (4, 4), {}, lambda: {"three": (4, 4, 4), "of text": ("a", "b")}),
        "symbol_names": Kind(lambda: {X: "x"}, also=lambda: {"by text": {"x": "x"}, "to numbers": {X: 1}}),
        "definitions": Kind(lambda: {X: Trace(C)}, also=lambda: {"by text": {"x": X}, "to text": {X: "x"}}),
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
        "equations": Kind(
            lambda: [Equation("x", "y")], also=lambda: {"of others": [Heading("a")], "one": Heading("a")}
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
        "Entrywise": ("matrices",),
        "gaussian_average": ("variables",),
        "beside": ("matrices",),
        "below": ("matrices",),
    },
)
