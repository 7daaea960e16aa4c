"""Sizes read off shapes, sizes that are given as numbers, and dimensions that are sums of sizes."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Identity, MatrixSymbol, Symbol, Trace, expand

from tests.expressions import assert_close
from theorykit.codegen import compile_expressions
from theorykit.codegen.literal import Numpy
from theorykit.codegen.sizes import sizes_of
from theorykit.symbolic import positive_definite

H_1, H_2, H_3, N_0, P = SIZES = [
    Symbol(name, integer=True, positive=True) for name in ["H_1", "H_2", "H_3", "N_0", "P"]
]
U_1, U_2, U_3 = (positive_definite(f"U_{layer + 1}", n) for layer, n in enumerate([H_1 * H_2 * H_3, H_2 * H_3, H_3]))
PHI, Y = MatrixSymbol("Phi", P, H_1 * H_2 * H_3 * N_0), MatrixSymbol("y", P, 1)
numbers = st.lists(st.integers(1, 7), min_size=5, max_size=5).map(lambda values: dict(zip(SIZES, values, strict=True)))


def evaluated(arguments, values, *given_sizes):
    """The sizes by name that shapes, as `values` make them, determine when `given_sizes` are arguments too."""
    shapes = {x.name: [int(dimension.subs(values)) for dimension in x.shape] for x in arguments}
    known = {name: np.empty(shape) for name, shape in shapes.items()}
    known |= {size.name: values[size] for size in given_sizes}
    return sizes_of((*arguments, *given_sizes), known, Numpy)


TALL = MatrixSymbol("tall", 2 * P, 3 * P * N_0)
DETERMINED = {
    "all sizes of an action": ((U_1, U_2, U_3, PHI, Y), SIZES),
    "in another order": ((Y, U_3, PHI, U_1, U_2), SIZES),
    "the ratio of two order parameters": ((U_2, U_3), (H_2, H_3)),
    "a ratio of unknown factors": ((U_1, PHI), (N_0, P)),
    "a number in a dimension": ((TALL,), (P, N_0)),
}


@pytest.mark.parametrize("name", DETERMINED)
@given(numbers)
def test_sizes_follow_from_shapes(name, values):
    arguments, sizes = DETERMINED[name]
    assert evaluated(arguments, values) == {size.name: values[size] for size in sizes}


@pytest.mark.parametrize(
    ("size", "arguments"),
    [
        (H_1, (U_1,)),
        (H_2, (U_1, PHI)),
        (N_0, (PHI, U_2)),
        (P, (U_1, U_2)),
        # a size in a sum is not guessed
        (P, (MatrixSymbol("Z", P + 1, 2 * P + 1),)),
    ],
    ids=str,
)
def test_a_size_that_no_shape_determines_is_named(size, arguments):
    with pytest.raises(ValueError, match=size.name):
        compile_expressions("eye", {"value": Identity(size)}, arguments)


H, K, C = (Symbol(name, integer=True, positive=True) for name in "HKC")
GIVEN = [H, K, C, N_0, P]
temperature = Symbol("T", positive=True)
# a skip connection beside H heads, after K heads and C outputs
INNER, MIDDLE, OUTER = C * K, expand((H + 1) * C * K), expand((H + 1) * (K + 1) * C)
WIDE = MatrixSymbol("Phi", P * C, expand(MIDDLE * N_0))
V_1, V_2, V_3 = (positive_definite(f"V_{i}", size) for i, size in enumerate((MIDDLE, INNER, C), 1))
given_numbers = numbers.map(lambda values: dict(zip(GIVEN, values.values(), strict=True)))
BOTH_STRAIGHT = positive_definite("U_0", OUTER)


@pytest.mark.parametrize(
    ("arguments", "given", "sizes"),
    [
        # a sum that divides out does not matter, and a size in a sum alone is not determined
        ((V_1, WIDE), (), (N_0,)),
        ((V_1, WIDE), (H, C), (K, N_0, P)),
        ((WIDE,), (H, K, C), (N_0, P)),
        ((BOTH_STRAIGHT,), (H, K), (C,)),
        ((BOTH_STRAIGHT,), (K,), ()),
        ((V_1, V_2), (), ()),
    ],
    ids=str,
)
@given(values=given_numbers)
def test_sizes_in_sums_follow_from_shapes_and_given_sizes(arguments, given, sizes, values):
    assert evaluated(arguments, values, *given) == {size.name: values[size] for size in sizes}


def test_a_generated_function_takes_sizes_as_arguments():
    outputs = {
        "heads": Identity(H),
        "features": Identity(N_0),
        "sum": Identity(MIDDLE),
        "scaled": temperature * Trace(V_1),
    }
    function = compile_expressions("eye", outputs, (V_1, WIDE, temperature, H, C))
    for heads, inner, outputs_ in ((1, 2, 1), (2, 1, 3)):
        size = (heads + 1) * inner * outputs_
        arrays = {"V_1": jnp.eye(size), "Phi": jnp.ones((4 * outputs_, size * 5))}
        result = function(**arrays, T=2.0, H=heads, C=outputs_)
        assert_close(result["heads"], np.eye(heads), 0)
        assert_close(result["features"], np.eye(5), 0)
        assert_close(result["sum"], np.eye(size), 0)
        assert_close(result["scaled"], 2 * size)
