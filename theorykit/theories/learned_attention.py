r"""Bayes-optimal learning of an attention matrix: attention-indexed models.

Sequences of L tokens x_a in R^D have scores h_ab = x_a^T S x_b, with an attention matrix
S = W W^T / sqrt(R D) of rank R = rho D. For n = alpha D^2 sequences we observe the softmax
of every row of scores, or, for two tokens, the largest score of every row. The theory
gives the mean square error of the best estimate of S as D grows at fixed rho and alpha.
Source: Boncoraglio, Troiani, Erba and Zdeborova, arXiv:2506.01582.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float
from sympy import Expr, Rational, Symbol, exp, log, pi, sinh, sqrt, symbols

from ..checks import checked_choice, checked_number, checked_whole_number, refuse_traced
from ..derivation import Derivation, Step, claims
from ..saddle import Action, Positive, Solution, minimise, stationary
from ..symbolic import GaussianAverage
from .bivariate_normal import log_bivariate_normal_cdf
from .spectral_laws import SpectralLaw, marchenko_pastur, semicircle

Output = Literal["softmax", "hardmax"]

alpha, rho, L, Delta, V, size = symbols("alpha rho L Delta V D", positive=True)
"""Sequences per D^2, rank per D, tokens, variance of noise, mean square error, and D."""


def noisy_law() -> SpectralLaw:
    """Return the spectral law of S plus a symmetric Gaussian matrix of variance Delta."""
    return marchenko_pastur(rho) * sqrt(rho) + semicircle(Delta)


def overlap_given_noise() -> Expr:
    """Return the overlap of S with its posterior mean, given S plus noise of variance Delta."""
    return 1 + rho - Delta + 4 * pi**2 / 3 * Delta**2 * noisy_law().cube_of_density()


def _sampled_overlaps(size: int, values: dict[str, Any], rng: np.random.Generator) -> Float[np.ndarray, " draws"]:
    """Draw the overlap of S with its best estimate from the eigenvectors of S plus noise.

    For large matrices it is the posterior mean, because the prior has no preferred
    eigenvectors: Bun et al., IEEE Trans. Inf. Theory 62, 7475 (2016).
    """
    draws, rank = 400_000 // size**2, round(values["rho"] * size)
    w, noise = rng.normal(size=(draws, size, rank)), rng.normal(size=(draws, size, size))
    true = w @ w.swapaxes(1, 2) / np.sqrt(rank * size)
    observed = true + np.sqrt(values["Delta"] / (2 * size)) * (noise + noise.swapaxes(1, 2))
    _, vectors = np.linalg.eigh(observed)
    estimated = np.sum(vectors * (true @ vectors), axis=1)
    # This difference has less scatter, and the mean of tr S^2 / D is known.
    missed = (np.sum(estimated**2, axis=1) - np.sum(true**2, axis=(1, 2))) / size
    return 1 + values["rho"] + 1 / size + missed


def hardmax_information(q: Expr, V: Expr) -> Expr:
    r"""Return I(q), minus the entropy of hardmax outputs of two tokens given the estimate.

    The free entropy is I_prior(qhat) - q qhat / 4 + alpha I(q), so qhat = 4 alpha dI/dq.
    The outputs are the signs of h_11 - h_12 and h_22 - h_12. The estimated differences
    have variance 3 q and correlation 1/3, and the true ones scatter about them with
    variance 3 V and the same correlation. The relative quadrature error of 64 nodes is
    below 1e-9 for q < 750 V.

    Args:
        q: overlap of the estimate with S, 1 + rho - V.
        V: mean square error.
    """
    x, y = symbols("x y", real=True)
    r, scale, rate = Rational(1, 3), sqrt(q / V), Rational(2, 5)

    def stretched(z: Expr) -> Expr:
        # Outcomes change within sqrt(V / q) of zero, where nodes in z are dense.
        return 9 * sinh(rate * z) / sinh(12 * rate)

    def weight(z: Expr, exponent: Expr) -> Expr:
        return exp(z**2 / 2 + exponent) * stretched(z).diff(z)

    u, v = stretched(x), stretched(y)
    # By symmetry, two outcomes stand for four.
    outcomes = (log_bivariate_normal_cdf(scale * u, sign * scale * v, sign * r) for sign in (1, -1))
    density = weight(y, -((v - r * u) ** 2) / (2 * (1 - r**2))) / sqrt(1 - r**2)
    inner = GaussianAverage(density * sum(log_p * exp(log_p) for log_p in outcomes), y)
    return 2 * GaussianAverage(weight(x, -(u**2) / 2) * inner, x)


@cache
def action(output: Output = "softmax") -> Action:
    r"""Return the action of the noise Delta. Parameters are alpha, rho, and L for softmax.

    Observing S directly with noise of variance Delta would give the same error. Softmax
    outputs have the error V = alpha (L^2 + L - 2) Delta, and Delta vanishes at the
    `recovery_threshold`. For hardmax outputs V is an order parameter, too.

    Example:
        >>> import theorykit
        >>> from theorykit.theories import learned_attention
        >>> theorykit.enable_float64()
        >>> learned_attention.action().parameters
        (alpha, rho, L)
    """
    is_softmax = checked_choice("output", output, get_args(Output)) == "softmax"
    overlap, prior = overlap_given_noise(), 2 * noisy_law().log_energy() - log(Delta)
    limit = Step(
        "overlap of S with its posterior mean, given S and noise",
        Symbol("q_D"),
        overlap,
        claims.LargeSizeLimit(size, _sampled_overlaps, ((rho, 0.5), (Delta, 0.6))),
        assumptions=(
            "the spherical integral takes its limit for large matrices",
            "Bayes-optimal inference",
        ),
        section="prior",
    )
    slope = (overlap - 1 - rho) / Delta**2
    entropy = Step("entropy of the prior", prior, slope, claims.Derivative(Delta), section="prior")
    # Softmax reveals all differences of scores in a row, (L - 1)(L + 2) numbers in all.
    known = (L**2 + L - 2) * log(V) if is_softmax else -4 * hardmax_information(1 + rho - V, V)
    parameters = [alpha, rho, L] if is_softmax else [alpha, rho]
    domains = {V: Positive(), Delta: Positive()}
    derivation = Derivation((limit, entropy), ({}, {}))
    whole = Action(prior - V / Delta + alpha * known, domains, parameters, derivation=derivation)
    return whole.eliminate(V) if is_softmax else whole


def _observations(tokens: int) -> int:
    return checked_whole_number("tokens", tokens, least=2) ** 2 + tokens - 2


def recovery_threshold(rho: float, tokens: int = 2) -> float:
    """Return the number of sequences per D^2 above which softmax outputs determine S.

    Args:
        rho: rank per dimension, R / D.
        tokens: number of tokens per sequence, at least two.

    Example:
        >>> from theorykit.theories import learned_attention
        >>> learned_attention.recovery_threshold(0.5)
        0.1875
    """
    refuse_traced("recovery_threshold", rho, reason="returns a number of Python", anywhere=False)
    rho = checked_number("rho", rho, above=0.0)
    return float(1 - max(0.0, 1 - rho) ** 2) / _observations(tokens)


def solve(alpha: float, rho: float, tokens: int = 2, *, output: Output = "softmax") -> Solution:
    """Return the saddle point in Delta, and V for hardmax outputs.

    Args:
        alpha: number of sequences per D^2, for softmax outputs below `recovery_threshold`.
        rho: rank per dimension, R / D.
        tokens: number of tokens per sequence, at least two, and two for hardmax outputs.
        output: "softmax" if the attention of all pairs of tokens is seen, or "hardmax"
            if only the token with the largest score in each row.

    Raises:
        ValueError: alpha is at least the threshold, where S is known without error.
        NotImplementedError: hardmax outputs of more than two tokens.
    """
    checked_choice("output", output, get_args(Output))
    compared = [rho, alpha] if output == "softmax" else [rho]
    refuse_traced("solve", *compared, reason="compares alpha with the threshold", anywhere=False)
    alpha, threshold = checked_number("alpha", alpha, above=0.0), recovery_threshold(rho, tokens)
    if output == "hardmax":
        if tokens != 2:
            raise NotImplementedError(f"hardmax outputs are known only for two tokens, got {tokens}")
        # V is that of the prior without sequences, and falls with their number.
        start, values = {"V": 1 / (1 + 3 * alpha), "Delta": 1 / alpha}, {"alpha": alpha, "rho": rho}
        return stationary(action(output), values, index=1, initial=start, tolerance=1e-8)
    if alpha >= threshold:
        raise ValueError(f"alpha must be below the recovery threshold {threshold:.6g}, got {alpha}")
    return minimise(action(output), {"alpha": alpha, "rho": rho, "L": tokens})


def mmse(alpha: float, rho: float, tokens: int = 2, *, output: Output = "softmax") -> float:
    """Return the smallest mean square error per D of an estimate of S; see `solve`.

    Raises:
        RuntimeError: no certified solution, with the diagnosis.
    """
    refuse_traced("mmse", alpha, rho)
    if output == "softmax" and alpha >= recovery_threshold(rho, tokens):
        return 0.0
    solution = solve(alpha, rho, tokens, output=output)
    if not solution.converged:
        raise RuntimeError(solution.diagnosis)
    return float(solution[V] if output == "hardmax" else alpha * _observations(tokens) * solution[Delta])
