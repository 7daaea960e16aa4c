"""Textbook actions whose stationary points are known."""

import numpy as np
from sympy import MatrixSymbol, Trace, cosh, exp, log, sqrt, symbols

from theorykit.saddle import Action, Between, Positive, PositiveDefinite, Real
from theorykit.symbolic import gaussian_average, log_cosh, log_det, positive_definite

m, m_hat, beta, h, lam, z, delta = symbols("m m_hat beta h lam z Delta", real=True)
q, q_hat, V, V_hat, alpha, ridge, noise, T = symbols("q q_hat V V_hat alpha lambda_ sigma2 T", positive=True)
x, K, U = MatrixSymbol("x", 3, 1), positive_definite("K", 3), positive_definite("U", 3)

CURIE_WEISS = Action(m**2 / 2 - log(2 * cosh(beta * (m + h))) / beta, {m: Real()}, [beta, h])
"""The free energy of the Curie-Weiss model: m = tanh(beta (m + h))."""
BLUME_CAPEL = Action(m**2 / 2 - T * log(1 + 2 * exp(-delta / T) * cosh(m / T)), {m: Real()}, [delta, T])
"""Spins -1, 0 and 1 with the energy delta of 1: m = 0 is stationary, singular at exp(delta / T) = 2 (1 - T) / T."""
RAYLEIGH = Action(Trace(x.T * K * x) / 2 + lam * (Trace(x.T * x) - 1), {x: Real(), lam: Real()}, [K])
"""x^T K x / 2 on the unit sphere: stationary at the eigenvectors, lam = -eigenvalue / 2, of index 1, 2, 3."""
WISHART = Action(Trace(K * U) - log_det(U), {U: PositiveDefinite()}, [K])
"""Minimal at U = K^{-1}, where the Hessian in the affine-invariant metric is the identity."""
GLASS = Action(
    -(beta**2) * (1 - q) ** 2 / 4 - gaussian_average(log_cosh(beta * (sqrt(q) * z + h)), z),
    {q: Between(0, 1)},
    [beta, h],
)
"""The replica-symmetric free energy of the Sherrington-Kirkpatrick model, maximal in the overlap q."""
RIDGE = Action(
    m * m_hat
    - (q * V_hat - V * q_hat) / 2
    - (m_hat**2 + q_hat) / (2 * (ridge + V_hat))
    + alpha * (1 - 2 * m + q + noise) / (2 * (1 + V)),
    {m: Real(), m_hat: Real(), q: Positive(), q_hat: Positive(), V: Positive(), V_hat: Positive()},
    [alpha, ridge, noise],
)
"""Ridge regression of a linear teacher by replicas: V is the resolvent of the Marchenko-Pastur law."""


def random_matrix(seed, size=3):
    """A positive definite matrix of well separated eigenvalues."""
    rng = np.random.default_rng(seed)
    vectors, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return (vectors * (np.arange(1, size + 1) + rng.uniform(-0.3, 0.3, size))) @ vectors.T


def spinodal(inverse_temperature):
    """(m, h) where the metastable minimum of positive magnetisation ends: beta (1 - m^2) = 1."""
    edge = np.sqrt(1 - 1 / inverse_temperature)
    return edge, np.arctanh(edge) / inverse_temperature - edge
