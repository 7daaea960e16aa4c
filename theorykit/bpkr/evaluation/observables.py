"""Observables from the order parameters: kernel-task alignment and the importance of each head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import Requirement, array_module, checked_symmetric, counted, finite_array, on_host, require
from ...compilation import jit
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text
from ...symbolic.documents.values import brief
from ..order_parameters.order_parameters import HasOrderParameters, OrderParameters, checked_order_parameters, gp_limit
from ..specification.architecture import Architecture

# A display shows the scores of at most this many heads per layer.
_SHOWN = 12


class KernelTaskAlignment(DisplayMixin, eqx.Module):
    """The result of `kernel_task_alignment`."""

    eigenvalues: Float[Array, " examples"]
    cosines: Float[Array, " examples"]

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Kernel-task alignment** of {counted(len(self.cosines), 'component')}")
        rows = [("eigenvalues", brief(self.eigenvalues)), ("cosines with the labels", brief(self.cosines, 4))]
        yield Table((*rows, ("squares of the cosines, summed", brief(np.cumsum(np.square(self.cosines))))))


def kernel_task_alignment(kernel: ArrayLike, labels: ArrayLike) -> KernelTaskAlignment:
    """Measure how well each principal component of a kernel aligns with the labels.

    Args:
        kernel: symmetric (examples, examples).
        labels: one number per example (examples,), not all zero.

    Returns:
        An object with the `eigenvalues` of the kernel, the largest first, and the absolute cosine of each component
        with the labels in `cosines`. The squared cosines sum to one.
    """
    labels = finite_array("labels", labels, "examples")
    kernel = finite_array("kernel", kernel)
    if kernel.shape != (len(labels), len(labels)):
        raise ValueError(f"kernel of shape {kernel.shape} does not fit {counted(len(labels), 'label')}")
    kernel = checked_symmetric("kernel", kernel)
    numbers, message = on_host(labels), "labels are all zero, so their cosine with a component is not defined"
    labels = require(labels, [Requirement(message, array_module(numbers).any(numbers != 0))])
    eigenvalues, components = _eigh(kernel)
    cosines = jnp.abs(components.T @ labels) / jnp.linalg.norm(labels)
    return KernelTaskAlignment(eigenvalues[::-1], cosines[::-1])


_eigh = jit(jnp.linalg.eigh)


@usual_settings()
def head_scores(
    architecture: Architecture, order_parameters: OrderParameters | HasOrderParameters
) -> tuple[Float[Array, " _"], ...]:
    """Score the importance of every head. The most important head of all layers scores 1.

    The score is the sum of the magnitudes of U_1^{pi pi'}, over outputs and over pairs of paths with at least one path
    through the head, divided by the largest such sum. The score ignores the size of the features, so a head with small
    features can score high and still have little effect; `path_kernels` includes the size.

    Args:
        architecture: the architecture.
        order_parameters: the order parameters, or a `Saddle`.

    Returns:
        One array (H_l,) per layer, empty for a layer without heads.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> arch = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
        >>> order_parameters = bpkr.OrderParameters([np.diag([2.0, 1.0])], 1.0)
        >>> [scores] = bpkr.head_scores(arch, order_parameters)
        >>> scores.tolist()
        [1.0, 0.5]
    """
    first = on_host(checked_order_parameters(architecture, order_parameters, singular=True).first)
    return tuple(map(jnp.asarray, _head_scores(architecture, first, array_module(first))))


def _head_scores(architecture: Architecture, first: Any, numbers: Any) -> list[Any]:
    paths, branches = architecture.paths, np.array(architecture.path_branches()) - 1
    magnitudes = numbers.sum(abs(first).reshape((paths, len(first) // paths) * 2), axis=(1, 3))
    sums = []
    for layer in range(architecture.depth):
        misses = ~architecture.branch_heads(layer + 1)[branches[:, layer]]
        sums.append(numbers.sum(magnitudes) - numbers.einsum("ah,ab,bh->h", misses, magnitudes, misses))
    largest = numbers.max(numbers.concatenate([numbers.zeros(1), *sums]))
    return [layer_sums / largest for layer_sums in sums]


def head_score_table(architecture: Architecture | None, point: OrderParameters) -> Iterator[Table]:
    """Yield a table of the scores of all heads, here and in the Gaussian-process limit, if there are any heads."""
    if architecture is None or not any(architecture.heads):
        return
    here, wide = (
        _head_scores(architecture, u1, np) for u1 in map(np.asarray, (point.first, gp_limit(architecture).first))
    )
    rows = [
        (f"layer {layer}", brief(scores, _SHOWN), brief(limit, _SHOWN))
        for layer, (scores, limit) in enumerate(zip(here, wide, strict=True), 1)
        if len(scores)
    ]
    yield Table(tuple(rows), ("head scores", "this solution", "Gaussian process"))
