"""Whiten the kernel of many examples by its leading eigenvectors, without forming its matrix.

Let A = K + T I, and let P = T I + Q diag(lambda) Q^T be a low-rank approximation of A from below. Iterations use M =
P^{-1/2} A P^{-1/2}, which has no large eigenvalues, and no eigenvalues below `floor`, which is about one. For any P,
logdet A = logdet P + logdet M and y^T A^{-1} y = (P^{-1/2} y)^T M^{-1} (P^{-1/2} y).

Source of P: Z. Frangella, J. A. Tropp, M. Udell, "Randomized Nyström preconditioning" (arXiv 2110.02820), Alg. 2.1.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jaxtyping import Array, Float, PRNGKeyArray

from ...compilation import jit
from ...sharding import by_shard, of_this_process, replicate, shard_like, sum_by_blocks
from ..evaluation.bound_action import BoundAction
from ..evaluation.contractions import Number, PathMatrix

Columns = Float[Array, "rows k"]
# Size of the features of one block of examples, which are summed at a time.
_BLOCK_BYTES = 2**25


class Design(eqx.Module):
    """The matrix Phi of `flat_features` as an operator. All outputs share the features, which may be sharded.

    A row is an (example, output), and a column a (path, output, feature). The last index is fastest.
    """

    features: Float[Array, "examples paths features"]
    outputs: int = eqx.field(static=True)
    sharding: NamedSharding | None = eqx.field(static=True, default=None)
    is_transposed: bool = eqx.field(static=True, default=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, swapped if the operator is transposed."""
        examples, paths, features = self.features.shape
        rows, columns = examples * self.outputs, paths * self.outputs * features
        return (columns, rows) if self.is_transposed else (rows, columns)

    @property
    def T(self) -> "Design":
        """The transpose, with the same features."""
        return Design(self.features, self.outputs, self.sharding, not self.is_transposed)

    def __matmul__(self, right: Float[Array, "inner k"]) -> Float[Array, "outer k"]:
        examples, paths, features = self.features.shape
        flat = self.features.reshape(examples, paths * features)
        if self.is_transposed:
            # Multiply from the left, because XLA's product of a transpose with one column takes fifteen times as long.
            product = (right.reshape(examples, -1).T @ flat).T
            by_path = product.reshape(paths, features, self.outputs, -1).swapaxes(1, 2)
            return by_path.reshape(self.shape[0], -1)
        by_path = right.reshape(paths, self.outputs, features, -1).swapaxes(1, 2)
        return (flat @ by_path.reshape(paths * features, -1)).reshape(self.shape[0], -1)


class Kernel(eqx.Module):
    """A = K(U_1) + T I as an operator on columns, at a cost of O(P D) per column."""

    bound: BoundAction
    design: Design
    first: PathMatrix

    @property
    def rows(self) -> int:
        """Number of rows of the kernel: examples times outputs."""
        return self.design.shape[0]

    @property
    def temperature(self) -> Number:
        """The temperature T, which is added to the diagonal of K."""
        return jnp.asarray(self.bound.architecture.temperature, dtype=jnp.float64)

    def product(self, columns: Columns) -> Columns:
        """Return A V, Eq. (10)."""
        symbols, compiled = self.bound.symbols, self.bound.compiled
        arguments = {symbols.first: self.first, symbols.features: self.design, compiled.columns: columns}
        return compiled.kernel_product.call_from(self.bound.numbers() | arguments)["product"]

    def slope(self, left: Columns, right: Columns) -> PathMatrix:
        """Return the symmetric gradient of tr(left^T K(U_1) right) with respect to U_1."""

        def form(first):
            return jnp.sum(left * Kernel(self.bound, self.design, first).product(right))

        gradient = jax.grad(form)(self.first)
        return (gradient + gradient.T) / 2


class WhitenedKernel(eqx.Module):
    """The operator M = P^{-1/2} A P^{-1/2}, with P = T I + Q diag(eigenvalues) Q^T.

    - `kernel`: A.
    - `basis`: Q, with orthonormal columns.
    - `eigenvalues`: approximate leading eigenvalues of K.
    - `floor`: a lower bound on the eigenvalues of M, one minus a margin for rounding.
    """

    kernel: Kernel
    basis: Float[Array, "rows rank"]
    eigenvalues: Float[Array, " rank"]
    floor: Number

    @property
    def rounding(self) -> Number:
        """Approximate size of rounding errors in M."""
        return jnp.finfo(jnp.float64).eps * (1 + jnp.max(self.eigenvalues) / self.kernel.temperature)

    def whiten(self, columns: Columns) -> Columns:
        """Return P^{-1/2} V."""
        temperature = self.kernel.temperature
        weights = 1 / jnp.sqrt(self.eigenvalues + temperature) - 1 / jnp.sqrt(temperature)
        return columns / jnp.sqrt(temperature) + self.basis @ (weights[:, None] * (self.basis.T @ columns))

    def product(self, columns: Columns) -> Columns:
        """Return M V."""
        return self.whiten(self.kernel.product(self.whiten(columns)))

    def trace(self, function: Callable[[Array], Array]) -> Number:
        """Return tr f(P)."""
        temperature, rest = self.kernel.temperature, self.kernel.rows - len(self.eigenvalues)
        return rest * function(temperature) + jnp.sum(function(self.eigenvalues + temperature))

    def slope_of_trace(self, path_gram: PathMatrix) -> PathMatrix:
        """Return the gradient of tr(P^{-1} K(U_1)) with respect to U_1 at fixed P, from the gradient of tr K(U_1)."""
        temperature = self.kernel.temperature
        removed = self.eigenvalues / (self.eigenvalues + temperature)
        return (path_gram - self.kernel.slope(removed * self.basis, self.basis)) / temperature


def whiten_kernel(kernel: Kernel, key: PRNGKeyArray, rank: int) -> WhitenedKernel:
    """Whiten by a randomised Nyström approximation of rank `rank`, with `rank` products with the kernel."""
    rows, temperature, sharding = kernel.rows, kernel.temperature, kernel.design.sharding
    sketch, _ = tall_qr(shard_like(jax.random.normal(key, (rows, rank), dtype=jnp.float64), sharding), sharding)
    image = kernel.product(sketch) - temperature * sketch
    shift = rows * jnp.finfo(jnp.float64).eps * jnp.linalg.norm(image)
    shift = jnp.maximum(shift, jnp.finfo(jnp.float64).tiny)
    shifted = image + shift * sketch
    core = sketch.T @ shifted
    factor = jnp.linalg.cholesky((core + core.T) / 2)

    def over_factor(rows, factor):
        return jax.scipy.linalg.solve_triangular(factor, rows.T, lower=True).T

    outer, triangle = tall_qr(by_shard(over_factor, sharding, shifted, whole=(factor,)), sharding)
    turn, singular, _ = jnp.linalg.svd(triangle)
    # K + shift >= Q diag(singular^2) Q^T, so A >= P - shift.
    eigenvalues = jnp.maximum(singular**2 - shift, 0.0)
    return WhitenedKernel(kernel, outer @ turn, eigenvalues, 1 - shift / temperature)


def tall_qr(array: Columns, sharding: NamedSharding | None) -> tuple[Columns, Float[Array, "k k"]]:
    """Compute Q and R of a tall matrix. Each device factorises its rows, and then all factors R are factorised.

    This is as stable as Householder QR of all rows. Source: J. Demmel, L. Grigori, M. Hoemmen, J. Langou,
    "Communication-optimal parallel and sequential QR and LU factorizations", SIAM J. Sci. Comput. 34 (2012) A206.
    """
    if sharding is None:
        return jnp.linalg.qr(array)
    own, triangles = by_shard(jnp.linalg.qr, sharding, array)
    across, triangle = jnp.linalg.qr(replicate(triangles, sharding))
    return by_shard(jnp.matmul, sharding, own, across), triangle


def path_gram(design: Design) -> Float[Array, "n n"]:
    """Compute the gradient of tr K(U_1) with respect to U_1, which is the Gram matrix of the paths' features."""
    features, sharding = design.features, design.sharding
    block = max(1, _BLOCK_BYTES // (8 * features.shape[1] * features.shape[2]))
    return jnp.kron(of_this_process(_gram(features, block, sharding), sharding), jnp.eye(design.outputs))


@jit
def _gram(features, block, sharding):
    return sum_by_blocks(lambda own: jnp.einsum("pai,pbi->ab", own, own), block, sharding, features)
