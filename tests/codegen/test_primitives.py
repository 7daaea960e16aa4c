"""Factorisations of generated code against NumPy; the tests of lowering try the other operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.expressions import assert_close
from theorykit.codegen import primitives

# (outer, inner, columns)
shapes = st.sampled_from([(2, 3, 4), (3, 2, 1), (1, 4, 2), (4, 1, 3)])
seeds = st.integers(0, 2**32 - 1)
TOLERANCE = 1e-12


def matrix(generator, rows, columns):
    return generator.standard_normal((rows, columns))


def definite(generator, size):
    root = matrix(generator, size, size)
    return root @ root.T / size + np.eye(size)


@given(shapes, seeds)
def test_factorisation_log_det_and_solve(shape, seed):
    generator = np.random.default_rng(seed)
    size, right = shape[0] * shape[1], matrix(generator, shape[0] * shape[1], shape[2])
    positive = definite(generator, size)
    factorised = primitives.cholesky(jnp.asarray(positive))
    lower = np.asarray(factorised.lower)
    assert_close(lower @ lower.T, positive, TOLERANCE)
    assert_close(lower, np.tril(lower), 0)
    assert_close(primitives.log_det(factorised), np.linalg.slogdet(positive)[1], TOLERANCE)
    assert_close(primitives.solve(factorised, jnp.asarray(right)), np.linalg.inv(positive) @ right, TOLERANCE)


@pytest.mark.parametrize("differentiated", [jax.grad, jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))])
def test_derivatives_of_log_det_and_solve_are_those_without_a_factor(differentiated):
    generator = np.random.default_rng(0)
    start, right = jnp.asarray(definite(generator, 4)), jnp.asarray(matrix(generator, 4, 2))

    def by_factor(root):
        of = primitives.cholesky(root @ root.T)
        return primitives.log_det(of) + jnp.sum(jnp.sin(primitives.solve(of, root @ right)))

    def by_elimination(root):
        square = root @ root.T
        return jnp.linalg.slogdet(square)[1] + jnp.sum(jnp.sin(jnp.linalg.solve(square, root @ right)))

    mine, theirs = (jax.jit(differentiated(function))(start) for function in (by_factor, by_elimination))
    assert_close(mine, theirs, 1e-10)
    batched = jax.vmap(by_factor)(jnp.stack([start, 2 * start]))
    assert_close(batched, jnp.stack([by_elimination(start), by_elimination(2 * start)]), TOLERANCE)


def test_log_det_neither_overflows_nor_underflows():
    for scale in (1e-200, 1e200):
        factor = primitives.cholesky(scale * jnp.eye(5))
        assert_close(primitives.log_det(factor), 5 * np.log(scale), TOLERANCE)
