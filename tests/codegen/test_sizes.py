"""Sizes read off shapes."""

from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Identity, MatrixSymbol, Symbol, Trace

from tests.expressions import assert_close
from theorykit.codegen import compile_expressions, lower
from theorykit.codegen.sizes import bind_sizes
from theorykit.symbolic import positive_definite

H_1, H_2, H_3, N_0, P = SIZES = [
    Symbol(name, integer=True, positive=True) for name in ["H_1", "H_2", "H_3", "N_0", "P"]
]
U_1, U_2, U_3 = (positive_definite(f"U_{layer + 1}", n) for layer, n in enumerate([H_1 * H_2 * H_3, H_2 * H_3, H_3]))
PHI, Y = MatrixSymbol("Phi", P, H_1 * H_2 * H_3 * N_0), MatrixSymbol("y", P, 1)
numbers = st.lists(st.integers(1, 7), min_size=5, max_size=5).map(lambda values: dict(zip(SIZES, values, strict=True)))


def evaluated(arguments, values):
    """The sizes by name that the bindings give for arguments of the shapes that `values` make."""
    shapes = {x.name: [int(dimension.subs(values)) for dimension in x.shape] for x in arguments}
    known = {name: np.empty(shape) for name, shape in shapes.items()}
    found = {}
    for binding in bind_sizes(arguments):
        whole, divisor = shapes[binding.argument][binding.axis], eval(binding.divisor, {**known, **found})
        assert whole % divisor == 0
        found[binding.size] = whole // divisor
    return found


def by_name(values, *sizes):
    return {size.name: values[size] for size in sizes}


@given(numbers)
def test_all_sizes_follow_from_the_shapes_of_an_action(values):
    assert evaluated((U_1, U_2, U_3, PHI, Y), values) == by_name(values, *SIZES)


@given(numbers, st.permutations([U_1, U_2, U_3, PHI, Y]))
def test_the_order_of_the_arguments_does_not_matter(values, arguments):
    assert evaluated(arguments, values) == by_name(values, *SIZES)


@given(numbers)
def test_heads_follow_from_the_ratio_of_two_order_parameters(values):
    assert evaluated((U_2, U_3), values) == by_name(values, H_2, H_3)


@given(numbers)
def test_a_ratio_is_known_where_its_factors_are_not(values):
    assert evaluated((U_1, PHI), values) == by_name(values, N_0, P)


@given(numbers)
def test_a_dimension_may_have_a_number_in_it(values):
    tall = MatrixSymbol("tall", 2 * P, 3 * P * N_0)
    assert evaluated((tall,), values) == by_name(values, P, N_0)


def test_a_generated_function_uses_the_sizes_of_its_arguments():
    function = compile_expressions("eye", {"heads": Identity(H_1), "features": Identity(N_0)}, (U_1, U_2, PHI))
    for heads, features in product((1, 2), (1, 3)):
        order_parameters = {"U_1": jnp.eye(heads * 6), "U_2": jnp.eye(6)}
        result = function(**order_parameters, Phi=jnp.ones((4, heads * 6 * features)))
        assert_close(result["heads"], np.eye(heads), 0)
        assert_close(result["features"], np.eye(features), 0)


def test_only_sizes_that_are_used_are_bound():
    assert lower("eye", {"value": Trace(U_1)}, (U_1, U_2, PHI)).sizes == ()
    assert [binding.size for binding in lower("eye", {"value": Identity(P)}, (U_1, PHI)).sizes] == ["P"]


@pytest.mark.parametrize(
    ("size", "arguments"),
    [(H_1, (U_1,)), (H_2, (U_1, PHI)), (N_0, (PHI, U_2)), (P, (U_1, U_2))],
    ids=str,
)
def test_a_size_that_no_shape_determines_is_named(size, arguments):
    with pytest.raises(ValueError, match=size.name):
        lower("eye", {"value": Identity(size)}, arguments)


def test_a_size_in_a_sum_is_not_guessed():
    with pytest.raises(ValueError, match="P"):
        lower("eye", {"value": Identity(P)}, (MatrixSymbol("Z", P + 1, 2 * P + 1),))


@pytest.mark.parametrize("missing", [U_2, Symbol("T", positive=True)], ids=str)
def test_a_symbol_that_is_no_argument_is_named(missing):
    value = Trace(missing) if missing.is_Matrix else missing * Trace(U_1)
    with pytest.raises(ValueError, match=missing.name):
        lower("value", {"value": value}, (U_1,))
