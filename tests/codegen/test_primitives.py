"""Each operation of generated code against brute-force NumPy."""

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


def check(operation, expected, *operands):
    """`operation` of the operands, arrays as JAX arrays, equals `expected`."""
    operands = [jnp.asarray(x) if np.ndim(x) else x for x in operands]
    assert_close(getattr(primitives, operation)(*operands), expected, TOLERANCE)


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


@given(shapes, seeds)
def test_identities(shape, seed):
    generator = np.random.default_rng(seed)
    square = matrix(generator, shape[1], shape[1])
    check("identity", np.eye(shape[1]), shape[1])
    check("add_identity", square + 0.7 * np.eye(shape[1]), square, 0.7)
    check("add_identity", square + 2 * np.eye(shape[1]), square, 2)
    check("add_identity", square - 0.3 * np.eye(shape[1]), square, jnp.array(-0.3))


@given(shapes, seeds)
def test_kronecker_products(shape, seed):
    generator = np.random.default_rng(seed)
    a, b, columns = shape
    left, right = matrix(generator, a + 1, a), matrix(generator, b + 2, b)
    whole = matrix(generator, a * b, columns)
    check("kron", np.kron(left, right), left, right)
    check("kron_left_matmul", np.kron(left, np.eye(b)) @ whole, left, whole)
    check("kron_right_matmul", np.kron(np.eye(a), right) @ whole, right, whole)


@given(shapes, seeds)
def test_traces_and_diagonals(shape, seed):
    generator = np.random.default_rng(seed)
    k, n, _ = shape
    square, left, right = matrix(generator, n, n), matrix(generator, k, n), matrix(generator, k, n)
    check("trace", np.trace(square), square)
    check("trace_of_product", np.trace(left.T @ right), left, right)
    check("diagonal", np.diag(square)[:, None], square)
    check("diagonal_of_product", np.diag(left.T @ right)[:, None], left, right)


def blocks(whole, outer, inner):
    """blocks[a, b] is the inner x inner block in row a and column b of blocks."""
    rows = [np.split(row, outer, axis=1) for row in np.split(whole, outer, axis=0)]
    assert rows[0][0].shape == (inner, inner)
    return np.array(rows)


@given(shapes, seeds)
def test_partial_traces(shape, seed):
    generator = np.random.default_rng(seed)
    outer, inner, k = shape
    whole = matrix(generator, outer * inner, outer * inner)
    left, right = matrix(generator, k, outer * inner), matrix(generator, k, outer * inner)
    for formed, suffix, operands in ((whole, "blocks", (whole,)), (left.T @ right, "product_blocks", (left, right))):
        parts = blocks(formed, outer, inner)
        check(f"sum_of_{suffix}", sum(parts[a, a] for a in range(outer)), *operands, outer)
        traces = [[np.trace(block) for block in row] for row in parts]
        check(f"trace_of_{suffix}", np.array(traces), *operands, inner)


@given(shapes, seeds)
def test_partial_traces_of_a_kronecker_product_are_its_factors(shape, seed):
    generator = np.random.default_rng(seed)
    a, b, _ = shape
    left, right = matrix(generator, a, a), matrix(generator, b, b)
    whole = np.kron(left, right)
    check("sum_of_blocks", np.trace(left) * right, whole, a)
    check("trace_of_blocks", np.trace(right) * left, whole, b)
