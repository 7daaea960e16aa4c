"""Compute z^T log(M) z and M^{-1/2} z for a large matrix M by Lanczos runs that start at z, with error bounds.

The k-node Gauss rule of a run bounds z^T log(M) z from above, because even derivatives of the logarithm are negative.
Odd derivatives are positive, so the Gauss-Radau rule with an additional node at a lower bound on the spectrum bounds it
from below.

M^{-1/2} z = (2/pi) int_0^inf (M + s^2)^{-1} z ds is approximated in the Krylov space. The systems (M + s^2) x = z have
residuals |r_s| <= |r_0| theta / (theta + s^2) there, with the smallest Ritz value theta. With the lower bound m of the
spectrum, |M^{1/2} (M + s^2)^{-1}| is at most sqrt(m) / (m + s^2) for s^2 < m and 1 / (2 s) elsewhere. By integration,
the error in the norm of M is at most |r_0| (1/2 + log(1 + theta / m) / (2 pi)).

Sources: S. Ubaru, J. Chen, Y. Saad, "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature", SIAM J. Matrix
Anal. Appl. 38 (2017) 1075; G. H. Golub, G. Meurant, "Matrices, moments and quadrature with applications" (2010), ch. 6.
We derived the bound on the inverse square root ourselves.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from matfree import decomp

# An off-diagonal entry below this fraction of the largest entry is rounding, so the Krylov space is invariant.
_EXHAUSTED = 1e-13
# Decompose one matrix at a time: some versions of JAX stall or crash in batched decompositions on a CPU.
_eigh = jax.custom_batching.sequential_vmap(lambda matrix: jnp.linalg.eigh(matrix))


class LanczosRuns(eqx.Module):
    """Functions of M from Lanczos runs, one run per vector z.

    - `lower`: lower bounds on z^T log(M) z.
    - `upper`: upper bounds on z^T log(M) z.
    - `form`: z^T M z.
    - `roots`: M^{-1/2} z.
    - `root_errors`: bounds on the errors of `roots` in the norm |M^{1/2} .|.
    - `largest`: the largest Ritz value of all runs.
    """

    lower: Float[Array, "*vectors"]
    upper: Float[Array, "*vectors"]
    form: Float[Array, "*vectors"]
    roots: Float[Array, "*vectors rows"]
    root_errors: Float[Array, "*vectors"]
    largest: Float[Array, "..."]

    @property
    def middle(self) -> Float[Array, "*vectors"]:
        """Midpoint of the bounds, the estimate of z^T log(M) z."""
        return (self.lower + self.upper) / 2

    @property
    def half_width(self) -> Float[Array, "*vectors"]:
        """Largest possible error of `middle`."""
        return (self.upper - self.lower) / 2


def run_lanczos(
    product: Callable[[Float[Array, " rows"]], Float[Array, " rows"]],
    vectors: Float[Array, "vectors rows"],
    floor: Float[Array, ""],
    order: int,
    block: int,
) -> LanczosRuns:
    """Run Lanczos iterations with `order` products v -> M v from each of `vectors`, `block` vectors at a time.

    M is symmetric with eigenvalues of at least `floor` > 0. The Krylov bases take rows x order x block numbers.
    """
    tridiagonalise = decomp.tridiag_sym(order, materialize=False, reortho="full", custom_vjp=False)

    def from_vector(vector):
        # Full reorthogonalisation keeps the bounds valid up to rounding.
        basis, (diagonal, beside), residual, _ = tridiagonalise(product, vector)
        ahead, norm = jnp.append(beside, jnp.linalg.norm(residual)), jnp.linalg.norm(vector)
        # Once the Krylov space is invariant, further rows are only rounding, so set them to zero.
        scale = jnp.max(jnp.where(jnp.isfinite(diagonal), jnp.abs(diagonal), 0.0))
        goes_on = jnp.cumprod(jnp.where(ahead > _EXHAUSTED * scale, 1, 0)) == 1
        reached = jnp.append(True, goes_on[:-1])
        diagonal, ahead = jnp.where(reached, diagonal, diagonal[0]), jnp.where(goes_on, ahead, 0.0)
        basis = jnp.where(reached[:, None], basis, 0.0)
        # Pad the Gauss rule with a node of weight zero, so that both rules have the same size.
        gauss_rule = _tridiagonal(jnp.append(diagonal, diagonal[0]), ahead.at[-1].set(0.0))
        # The last diagonal entry for which the extended matrix has an eigenvalue at `floor`.
        smallest = jnp.finfo(jnp.float64).eps * jnp.max(jnp.abs(diagonal))

        def eliminate(behind, entries):
            entry, next_ahead = entries
            pivot = jnp.maximum(entry - floor - behind, smallest)
            return next_ahead**2 / pivot, None

        last, _ = jax.lax.scan(eliminate, jnp.zeros(()), (diagonal, ahead))
        radau_rule = _tridiagonal(jnp.append(diagonal, floor + last), ahead)
        (gauss, radau), eigenvectors = jax.vmap(_eigh)(jnp.stack([gauss_rule, radau_rule]))
        of_gauss, of_radau = eigenvectors[:, 0]
        unsolved = ahead[-1] * jnp.abs(jnp.sum(of_gauss * eigenvectors[0, -2] / gauss))
        return LanczosRuns(
            lower=norm**2 * jnp.sum(of_radau**2 * jnp.log(radau)),
            upper=norm**2 * jnp.sum(of_gauss**2 * jnp.log(gauss)),
            form=norm**2 * jnp.sum(of_gauss**2 * gauss),
            roots=norm * (eigenvectors[0] @ (of_gauss / jnp.sqrt(gauss)))[:-1] @ basis,
            root_errors=norm * unsolved * (0.5 + jnp.log1p(gauss[0] / floor) / (2 * jnp.pi)),
            largest=gauss[-1],
        )

    runs = jax.lax.map(from_vector, vectors, batch_size=min(block, len(vectors)))
    return eqx.tree_at(lambda tree: tree.largest, runs, jnp.max(runs.largest))


def _tridiagonal(diagonal, ahead):
    return jnp.diag(diagonal) + jnp.diag(ahead, 1) + jnp.diag(ahead, -1)
