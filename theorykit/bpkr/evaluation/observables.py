"""What a theorist reads off the order parameters: kernel-task alignment and the importance of each head."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import Requirement, array_module, checked_symmetric, finite_array, on_host, require
from ...memory import memory_errors_in_words
from ...settings import usual_settings
from ..order_parameters.order_parameters import HasOrderParameters, OrderParameters, checked_order_parameters
from ..specification.architecture import Architecture


class KernelTaskAlignment(eqx.Module):
    """Eigenvalues of a kernel and cosines, as `kernel_task_alignment` says."""

    eigenvalues: Float[Array, " examples"]
    cosines: Float[Array, " examples"]


def kernel_task_alignment(kernel: ArrayLike, labels: ArrayLike) -> KernelTaskAlignment:
    """Find how much each principal component of `kernel` (examples, examples) has to do with `labels` (examples,).

    Returns:
        `eigenvalues` of the kernel, the largest first, and `cosines`, the |cosine| of each component with the labels;
        their squares sum to one.
    """
    labels = finite_array("labels", labels, "examples")
    kernel = finite_array("kernel", kernel)
    if kernel.shape != (len(labels), len(labels)):
        raise ValueError(f"kernel of shape {kernel.shape} does not fit {len(labels)} labels")
    kernel = checked_symmetric("kernel", kernel)
    numbers, message = on_host(labels), "labels are all zero: they have no direction to align with"
    labels = require(labels, [Requirement(message, array_module(numbers).any(numbers != 0))])
    with memory_errors_in_words("kernel_task_alignment"):
        eigenvalues, components = jax.block_until_ready(jnp.linalg.eigh(kernel))
    cosines = jnp.abs(components.T @ labels) / jnp.linalg.norm(labels)
    return KernelTaskAlignment(eigenvalues[::-1], cosines[::-1])


@usual_settings()
def head_scores(
    architecture: Architecture, order_parameters: OrderParameters | HasOrderParameters
) -> tuple[Float[Array, " _"], ...]:
    """Score the importance of every head: one array (H_l,) per layer, the most important head of all scoring 1.

    The sum of |U_1^{pi pi'}| over the pairs of paths of which at least one passes through the head, and over the
    outputs, divided by the largest such sum. Layers without heads have an empty array. The size of the paths' features
    does not enter, so a head of small features may score high and do little alone; see `path_kernels` for both.
    """
    order_parameters = checked_order_parameters(architecture, order_parameters, singular=True)
    shape = (architecture.paths, architecture.outputs) * 2
    magnitudes = jnp.sum(jnp.abs(order_parameters.first).reshape(shape), axis=(1, 3))
    path_branches = np.array(architecture.path_branches()) - 1
    sums: list[Array] = []
    for layer in range(architecture.depth):
        misses = ~architecture.branch_heads(layer + 1)[path_branches[:, layer]]
        sums.append(jnp.sum(magnitudes) - jnp.einsum("ah,ab,bh->h", misses, magnitudes, misses))
    largest = jnp.max(jnp.concatenate([jnp.zeros(1), *sums]))
    return tuple(layer_sums / largest for layer_sums in sums)
