r"""Bayes-optimal learning of an attention matrix: attention-indexed models.

Sequences of L tokens x_a in R^D have scores h_ab = x_a^T S x_b, with an attention matrix S = W W^T / sqrt(R D) of rank
R = rho D. We observe the softmax of every row of scores, or the position of its maximum (hardmax), for n = alpha D^2
sequences. The theory gives the mean square error of the best estimate of S as D grows at fixed rho and alpha.

Source: Boncoraglio, Troiani, Erba and Zdeborova, "Bayes optimal learning of attention-indexed models",
arXiv:2506.01582. Our hardmax equations differ from their program, which has a density in place of the derivative of a
distribution function.
"""

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sympy import Expr, Function, Rational, Symbol, log, pi, sqrt, symbols

from ..checks import checked_arguments, checked_number, checked_whole_number
from ..saddle import Action, Positive, Solution, minimise
from ..symbolic import SpectralLaw, gradient, marchenko_pastur, semicircle

alpha, rho, L, Delta, V, size = symbols("alpha rho L Delta V D", positive=True)
"""Sequences per D^2, rank per D, tokens, variance of the noise on S, mean square error, and D."""


def noisy_law() -> SpectralLaw:
    """Return the spectral law of S plus a symmetric Gaussian matrix of variance Delta."""
    return marchenko_pastur(rho) * sqrt(rho) + semicircle(Delta)


def overlap_given_noise() -> Expr:
    """Return the overlap of S with its posterior mean, given S plus noise of variance Delta."""
    return 1 + rho - Delta + 4 * pi**2 / 3 * Delta**2 * noisy_law().cube_of_density()


def _sampled_overlaps(size: int, values: dict[str, Any], rng: np.random.Generator) -> Float[np.ndarray, " draws"]:
    """Draw S and noise, sample S from its posterior by Hamiltonian Monte Carlo, and return the overlaps with S."""
    draws, trajectories, steps, noise = 1536 // size, 120, 12, values["Delta"]
    rank = round(values["rho"] * size)
    square = lambda w: w @ w.swapaxes(1, 2) / np.sqrt(rank * size)  # noqa: E731
    w = rng.normal(size=(draws, size, rank))
    true, z = square(w), rng.normal(size=(draws, size, size))
    observed = true + np.sqrt(noise / (2 * size)) * (z + z.swapaxes(1, 2))

    def energy(w: np.ndarray) -> np.ndarray:
        return np.sum(w**2, (1, 2)) / 2 + size / (4 * noise) * np.sum((observed - square(w)) ** 2, (1, 2))

    def force(w: np.ndarray) -> np.ndarray:
        return size / (noise * np.sqrt(rank * size)) * (observed - square(w)) @ w - w

    found = []
    for i in range(trajectories):
        step = rng.uniform(0.5, 1.0) * 0.5 * min(1.0, np.sqrt(noise)) / np.sqrt(1 + 1 / np.sqrt(rank / size))
        moved, momentum = w, rng.normal(size=w.shape)
        before = energy(w) + np.sum(momentum**2, (1, 2)) / 2
        momentum = momentum + step / 2 * force(moved)
        for j in range(steps):
            moved = moved + step * momentum
            momentum = momentum + (step if j < steps - 1 else step / 2) * force(moved)
        rise = energy(moved) + np.sum(momentum**2, (1, 2)) / 2 - before
        w = np.where((np.log(rng.uniform(size=draws)) < -rise)[:, None, None], moved, w)
        if i >= trajectories // 3:
            found.append(np.sum(true * square(w), (1, 2)) / size)
    return np.mean(found, axis=0)
