"""Bases of tangent vectors, many problems side by side, and the exponents that they give of known maps."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit.dynamics import gram_schmidt, householder

METHODS = pytest.mark.parametrize("orthonormalise", [gram_schmidt, householder])


@METHODS
@settings(max_examples=6)
@given(
    shape=st.sampled_from(((1, 1), (4, 2), (5, 5), (15, 14))),
    batch=st.sampled_from(((3,), (2, 2))),
    seed=st.integers(0, 99),
)
def test_they_are_the_factors_of_every_instance(orthonormalise, shape, batch, seed):
    matrices = np.random.default_rng(seed).normal(size=(*shape, *batch))
    basis, logarithms = orthonormalise(tuple(jnp.moveaxis(jnp.asarray(matrices), 1, 0)))
    basis = np.stack([np.asarray(vector) for vector in basis], axis=1)
    for instance in np.ndindex(batch):
        alone, q = matrices[(..., *instance)], basis[(..., *instance)]
        np.testing.assert_allclose(q.T @ q, np.eye(shape[1]), atol=1e-12)
        triangle = q.T @ alone
        np.testing.assert_allclose(np.tril(triangle, -1), 0, atol=1e-12)
        np.testing.assert_allclose(np.log(np.abs(np.diag(triangle))), logarithms[(..., *instance)], atol=1e-10)


@pytest.mark.slow
def test_reflections_stay_orthogonal_where_vectors_are_strongly_graded():
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    graded = directions @ np.diag(10.0 ** -np.arange(0, 18, 3)) @ np.triu(rng.normal(size=(6, 6)))
    basis = np.stack([np.asarray(v)[:, 0] for v in householder(tuple(jnp.asarray(graded.T)[..., None]))[0]], axis=1)
    np.testing.assert_allclose(basis.T @ basis, np.eye(6), atol=1e-13)


@pytest.mark.slow
def test_panels_of_many_vectors_are_as_orthogonal_as_pairs():
    """Of a part of the batch after the other, the last one not full, and of the same digits whatever the batch."""
    rng = np.random.default_rng(1)
    count, size, batch = 30, 40, 300
    vectors = rng.normal(size=(count, size, batch))
    vectors[-1] = vectors[0] + 1e-9 * vectors[-1]  # nearly in the span of the first
    basis, logarithms = gram_schmidt(tuple(jnp.asarray(vectors)))
    basis = np.stack([np.asarray(vector) for vector in basis])
    products = np.einsum("inb,jnb->bij", basis, basis)
    np.testing.assert_allclose(products, np.broadcast_to(np.eye(count), products.shape), atol=1e-5)
    np.testing.assert_allclose(products[:, :-1, :-1], products[:, :-1, :-1] * np.eye(count - 1), atol=1e-12)
    triangle = np.linalg.qr(np.moveaxis(vectors, (2, 1), (0, 1)))[1]
    expected = np.log(np.abs(np.diagonal(triangle, axis1=1, axis2=2))).T
    np.testing.assert_allclose(logarithms, expected, atol=1e-6)
    few, _ = gram_schmidt(tuple(jnp.asarray(vectors[..., :3])))
    np.testing.assert_allclose(np.stack(few), basis[..., :3], atol=1e-7)


@pytest.mark.slow
@METHODS
def test_a_vector_in_the_span_of_others_has_logarithm_minus_infinity_and_no_nan(orthonormalise):
    first = jnp.array([1.0, 0.0])[:, None]
    basis, logarithms = orthonormalise((first, 2 * first))
    assert logarithms[0, 0] == 0 and logarithms[1, 0] == -np.inf
    assert not any(np.isnan(vector).any() for vector in basis)
