"""Minimise the action as the published program does: Adam on the entries of U_1, ..., U_L, with u eliminated.

The loss is S divided by the largest width. U starts at the Gaussian-process limit and is unconstrained. The learning
rate is constant, and the run ends when no entry of the gradient exceeds the tolerance.
Adam: D. P. Kingma, J. Ba, arXiv 1412.6980.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from theorykit import bpkr
from theorykit.bpkr.evaluation.formulas import bind, compiled_terms

FIRST_DECAY, SECOND_DECAY, SMALL = 0.9, 0.999, 1e-8


class Run(NamedTuple):
    """State of a run: order parameters, both moments of the gradient, steps, largest entry of the gradient."""

    matrices: tuple
    first: tuple
    second: tuple
    steps: jax.Array
    largest: jax.Array


def loss(architecture: bpkr.Architecture, matrices: tuple, features, labels):
    """Return S divided by the largest width, with the readout order parameter in closed form."""
    bound = bind(architecture)
    readout = bound({bound.symbols.matrices[-1]: matrices[-1]}, u=bound.action.closed_forms[bound.symbols.readout])["u"]
    point = bound.point(bpkr.OrderParameters(matrices, readout))
    terms = compiled_terms(bound.action).call_from(bound.numbers() | point | bound.data(features, labels))
    return terms["total"] / max(architecture.widths)


def minimise(architecture, features, labels, *, learning_rate: float, tolerance: float, max_steps: int) -> Run:
    """Run Adam. JAX can trace this function."""
    gradient = jax.grad(lambda matrices: loss(architecture, matrices, features, labels))
    start = bpkr.gp_limit(architecture).matrices
    none = jax.tree.map(jnp.zeros_like, start)

    def goes_on(run: Run):
        return (run.largest > tolerance) & (run.steps < max_steps)

    def step(run: Run) -> Run:
        slopes, steps = gradient(run.matrices), run.steps + 1
        first = jax.tree.map(lambda m, g: FIRST_DECAY * m + (1 - FIRST_DECAY) * g, run.first, slopes)
        second = jax.tree.map(lambda v, g: SECOND_DECAY * v + (1 - SECOND_DECAY) * g**2, run.second, slopes)
        bias = 1 - FIRST_DECAY**steps, 1 - SECOND_DECAY**steps

        def moved(matrix, m, v):
            return matrix - learning_rate * (m / bias[0]) / (jnp.sqrt(v / bias[1]) + SMALL)

        matrices = jax.tree.map(moved, run.matrices, first, second)
        largest = jnp.max(jnp.array([jnp.max(jnp.abs(slope)) for slope in slopes]))
        return Run(matrices, first, second, steps, largest)

    return jax.lax.while_loop(goes_on, step, Run(start, none, none, jnp.array(0.0), jnp.array(jnp.inf)))
