"""The hardmax output of attention-indexed models with two tokens: its information and the state evolution."""

import jax
import numpy as np
import pytest
import scipy
from sympy import symbols

from theorykit.codegen import compile_expressions
from theorykit.saddle import ConvergenceWarning
from theorykit.symbolic import gradient
from theorykit.theories import learned_attention
from theorykit.theories.bivariate_normal import log_bivariate_normal_cdf
from theorykit.theories.learned_attention import hardmax_information

Q, V = symbols("q V", positive=True)
H, K, R = symbols("h k r", real=True)
INFORMATION = hardmax_information(Q, V)
# the derivative at fixed q + V
VALUES = {"value": INFORMATION, "slope": gradient(INFORMATION, Q) - gradient(INFORMATION, V)}
LOG_ORTHANT = compile_expressions("log_orthant", {"value": log_bivariate_normal_cdf(H, K, R)}, [H, K, R])
# alpha and the mean square error, from quadrature on panels that are refined towards zero
KNOWN = {0.02: 0.9548923445, 0.3768: 0.2967274105618, 7.0997: 0.0020105422569}


@pytest.fixture(scope="module")
def information():
    compiled = compile_expressions("information", VALUES, [Q, V])
    return jax.jit(lambda q, V: compiled(q=q, V=V))


@jax.jit
def log_orthant(h, k, r):
    return LOG_ORTHANT(h=h, k=k, r=r)["value"]


def panels(scale, nodes=14):
    """Nodes and weights from -9 to 9, refined towards zero on this scale."""
    edges, width = [0.0], 1.2 * scale
    while edges[-1] < 9:
        edges.append(edges[-1] + min(width, 1.2))
        width *= 1.5 if edges[-1] > 6 * scale else 1
    points, weights = np.polynomial.legendre.leggauss(nodes)
    right = (np.array(edges[:-1])[:, None] + np.diff(edges)[:, None] * (points + 1) / 2).ravel()
    weights = (np.diff(edges)[:, None] * weights / 2).ravel()
    return np.concatenate([-right, right]), np.concatenate([weights, weights])


def mean_squared_slopes(q, V):
    """The mean of 2 G_11^2 + 2 G_22^2 + G_12^2 over outcomes, for the derivatives G of log P by the scores."""
    a, total = np.sqrt(q / V), 0.0
    x, weights = panels(min(1.0, 1 / a))
    h, k = np.broadcast_arrays(a * x[:, None], a * x)
    for r in (1 / 3, -1 / 3):
        square = 1 - r**2
        density = np.exp(-(h**2 - 2 * r * h * k + k**2) / (2 * square * a**2)) / (2 * np.pi * np.sqrt(square))
        log_p = np.asarray(log_orthant(h, k, r))
        first, second = (
            np.exp(scipy.special.log_ndtr((v - r * u) / np.sqrt(square)) - u**2 / 2 - log_p) / np.sqrt(2 * np.pi)
            for u, v in ((h, k), (k, h))
        )
        second *= np.sign(r)
        squares = 2 * first**2 + 2 * second**2 + (first + second) ** 2
        total += 2 * np.sum(density * np.outer(weights, weights) * np.exp(log_p) * squares) / (3 * V)
    return total


@pytest.mark.quick(1)
@pytest.mark.parametrize("q", [0.05, 0.9, 1.47])
def test_slope_of_the_information_is_the_mean_square_of_derivatives(information, q):
    error = 1.5 - q
    # qhat = 4 alpha dI/dq = 2 alpha times the mean
    assert abs(2 * information(q, error)["slope"] / mean_squared_slopes(q, error) - 1) < 1e-8


def test_information_without_and_with_a_good_estimate(information):
    # Without an estimate the outcomes have the probabilities of orthants.
    same, other = 1 / 4 + np.arcsin(1 / 3) / (2 * np.pi), 1 / 4 - np.arcsin(1 / 3) / (2 * np.pi)
    entropy = -2 * (same * np.log(same) + other * np.log(other))
    assert abs(information(1e-12, 1.5)["value"] + entropy) < 1e-9
    # With a good one, only outcomes of one row at a time are uncertain, within sqrt(3 V) of zero.
    binary = scipy.integrate.quad(lambda t: scipy.special.entr(scipy.special.ndtr(t)), -38, 38, epsabs=1e-12)[0]
    for error in (0.02, 0.005):
        q = 1.5 - error
        limit = -4 * binary * np.sqrt(error / (2 * np.pi * q))
        # The next order is that of both differences close to zero.
        assert abs(information(q, error)["value"] / limit - 1) < error


@pytest.mark.slow
@pytest.mark.parametrize("alpha", KNOWN)
def test_error_of_learned_attention_from_hardmax_outputs(alpha):
    assert abs(learned_attention.mmse(alpha, 0.5, output="hardmax") / KNOWN[alpha] - 1) < 1e-8


@pytest.mark.slow
def test_an_error_too_small_for_the_nodes_is_reported():
    with pytest.warns(ConvergenceWarning, match="fixed number of nodes, here 64"):
        assert not learned_attention.solve(3.0, 0.05, output="hardmax").converged
    with pytest.raises(NotImplementedError, match="only for two tokens, got 3"):
        learned_attention.solve(0.1, 0.5, 3, output="hardmax")
