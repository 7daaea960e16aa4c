"""Sizes that are given as numbers, and dimensions that are sums of sizes."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Identity, MatrixSymbol, Symbol, Trace, expand

from tests.codegen.test_sizes import evaluated
from tests.expressions import assert_close
from theorykit.codegen import bound_sizes, compile_expressions, lower
from theorykit.codegen.sizes import bind_sizes
from theorykit.symbolic import positive_definite

H, K, C, N_0, P = SIZES = [Symbol(name, integer=True, positive=True) for name in ["H", "K", "C", "N_0", "P"]]
temperature = Symbol("T", positive=True)
# a skip connection beside H heads, after K heads and C outputs
INNER, MIDDLE, OUTER = C * K, expand((H + 1) * C * K), expand((H + 1) * (K + 1) * C)
PHI = MatrixSymbol("Phi", P * C, expand(MIDDLE * N_0))
U_1, U_2, U_3 = (positive_definite(f"U_{i}", size) for i, size in enumerate((MIDDLE, INNER, C), 1))
BOTH_STRAIGHT = positive_definite("U_0", OUTER)
numbers = st.lists(st.integers(1, 6), min_size=5, max_size=5).map(lambda values: dict(zip(SIZES, values, strict=True)))


def found(arguments, values, *given_sizes):
    """The sizes by name that shapes determine when `given_sizes` are arguments too."""
    known = {size.name: values[size] for size in given_sizes}
    shapes = {x.name: [int(side.subs(values)) for side in x.shape] for x in arguments}
    arrays, result = {name: np.empty(shape) for name, shape in shapes.items()}, {}
    for binding in bind_sizes((*arguments, *given_sizes)):
        whole = shapes[binding.argument][binding.axis]
        divisor = eval(binding.divisor, {**arrays, **known, **result})
        assert whole % divisor == 0
        result[binding.size] = whole // divisor
    return result


@given(numbers)
def test_a_sum_that_divides_out_does_not_matter(values):
    assert found((U_1, PHI), values) == {"N_0": values[N_0]}


@given(numbers)
def test_what_given_sizes_leave_is_determined(values):
    assert found((U_1, PHI), values, H, C) == {"K": values[K], "N_0": values[N_0], "P": values[P]}
    assert found((PHI,), values, H, K, C) == {"N_0": values[N_0], "P": values[P]}


@given(numbers)
def test_given_sizes_may_stand_in_several_sums(values):
    assert found((BOTH_STRAIGHT,), values, H, K) == {"C": values[C]}


@given(numbers)
def test_a_size_in_a_sum_alone_is_not_determined(values):
    assert found((BOTH_STRAIGHT,), values, K) == {}
    assert found((U_1, U_2), values) == {}


@given(numbers, st.permutations([U_1, U_2, U_3, PHI]))
def test_the_order_of_arguments_does_not_matter(values, arguments):
    expected = {"C": values[C], "K": values[K], "N_0": values[N_0], "P": values[P]}
    assert found(arguments, values) == evaluated(arguments, values) == expected


def test_bound_sizes_are_those_bound_and_those_given():
    assert bound_sizes((U_1, PHI)) == {N_0}
    assert bound_sizes((U_1, PHI, H, C)) == {H, C, K, N_0, P}
    assert bound_sizes((U_1, temperature)) == {temperature}
    assert bound_sizes(()) == frozenset()


def test_bound_sizes_are_those_that_lowering_knows():
    arguments = (U_1, U_2, PHI)
    for size in SIZES:
        if size in bound_sizes(arguments):
            assert lower("eye", {"value": Identity(size)}, arguments)
        else:
            with pytest.raises(ValueError, match=size.name):
                lower("eye", {"value": Identity(size)}, arguments)


def test_a_generated_function_takes_sizes_as_arguments():
    outputs = {
        "heads": Identity(H),
        "features": Identity(N_0),
        "sum": Identity(MIDDLE),
        "scaled": temperature * Trace(U_1),
    }
    function = compile_expressions("eye", outputs, (U_1, PHI, temperature, H, C))
    for heads, inner, outputs_ in ((1, 2, 1), (2, 1, 3)):
        size = (heads + 1) * inner * outputs_
        arrays = {"U_1": jnp.eye(size), "Phi": jnp.ones((4 * outputs_, size * 5))}
        result = function(**arrays, T=2.0, H=heads, C=outputs_)
        assert_close(result["heads"], np.eye(heads), 0)
        assert_close(result["features"], np.eye(5), 0)
        assert_close(result["sum"], np.eye(size), 0)
        assert_close(result["scaled"], 2 * size)


def test_a_size_that_is_given_is_not_read_off_a_shape():
    program = lower("eye", {"value": Identity(C)}, (U_3, C))
    assert program.sizes == ()
