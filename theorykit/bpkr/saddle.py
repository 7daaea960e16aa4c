"""The saddle point: order parameters at which the action is stationary and minimal.

Stage 4 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function -> solve -> predict`. The compiled
action is minimised by an Optimistix minimiser over unconstrained coordinates, and the end point refined by Newton's
method on its gradient; what decides success is the gradient norm measured there, never the solvers' own word.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .architecture import Architecture
from .checks import checked_data, checked_results, is_traced
from .coordinates import from_order_parameters, gp_coordinates, to_order_parameters
from .evaluate import action_terms
from .order_parameters import OrderParameters, checked_order_parameters, readout_matrix

# the code for a minimiser that stopped, content with itself, at a point that is not stationary
_NOT_STATIONARY = optx.RESULTS.nonlinear_divergence

DEFAULT_MINIMISER = optx.LBFGS(rtol=1e-8, atol=1e-8)
_REFINEMENT = optx.Newton(rtol=1e-9, atol=1e-9, linear_solver=lx.CG(rtol=1e-8, atol=1e-14))
_REFINEMENT_STEPS = 16


class ConvergenceWarning(UserWarning):
    """A solve ended at a point that is not stationary to its tolerance."""


class Saddle(eqx.Module):
    """The outcome of `solve`.

    - `order_parameters`: every U_l, and u.
    - `action`, `entropy`, `energy`: values of S (Eq. 32) and its parts there, undivided.
    - `gradient_norm`: norm of the gradient of S in the affine-invariant metric, |C^T (dS/dU) C| with U = C C^T over all
      order parameters, divided by the largest width. It does not change under U -> M U M^T. Where a straight branch
      makes U_{l+1} a block of U_l, slopes within the block count as slopes in U_{l+1}.
    - `result`: `optimistix.RESULTS.successful` if and only if `gradient_norm` is within the tolerance.
    - `stats`: steps of the minimiser and of the refinement, and the tolerance.
    """

    order_parameters: OrderParameters
    action: Float[Array, ""]
    entropy: Float[Array, ""]
    energy: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    result: optx.RESULTS
    stats: Mapping[str, Any]


def solve(
    architecture: Architecture,
    features: ArrayLike,
    labels: ArrayLike,
    *,
    minimiser: optx.AbstractMinimiser = DEFAULT_MINIMISER,
    initial: OrderParameters | None = None,
    tolerance: float = 1e-9,
    max_steps: int = 10_000,
    throw: bool = False,
) -> Saddle:
    """Minimise the action over the order parameters: the saddle point of the posterior, Eq. (32).

    `features` (examples, paths, features) as `path_features` returns them, `labels` (examples,). Starts from `initial`,
    by default the Gaussian-process limit. The end point counts as a solution if its gradient norm (see `Saddle`) is at
    most `tolerance`; otherwise the result code says so, with a `ConvergenceWarning`, or an error if `throw`.

    Raises `ValueError` for data that do not fit, and for a `minimiser` that is not one: Optimistix accepts a root
    finder as a minimiser and reports success at points that are not stationary.
    """
    if not isinstance(minimiser, optx.AbstractMinimiser):
        raise ValueError(
            f"minimiser must be an optimistix.AbstractMinimiser such as BFGS, got {type(minimiser).__name__}; "
            "root finders and least-squares solvers would report success at points that are not minima"
        )
    if not tolerance > 0 or max_steps < 1:
        raise ValueError(f"tolerance and max_steps must be positive, got {tolerance} and {max_steps}")
    features, labels = checked_data(architecture, features, labels)
    if initial is None:
        start = gp_coordinates(architecture)
    else:
        start = from_order_parameters(architecture, checked_order_parameters(architecture, initial))
    at_start = action_terms(architecture, to_order_parameters(architecture, start), features, labels)
    checked_results(at_start, architecture)
    # numbers as arrays: one compilation serves every width, variance and temperature
    architecture = jax.tree.map(lambda number: jnp.asarray(number, dtype=jnp.float64), architecture)
    saddle = _solve(architecture, features, labels, start, minimiser, jnp.asarray(tolerance), max_steps)
    return _reported(saddle, throw)


def gradient_norm(
    architecture: Architecture, order_parameters: OrderParameters, features: ArrayLike, labels: ArrayLike
) -> Float[Array, ""]:
    """Norm of the gradient of S per largest width, in the affine-invariant metric; see `Saddle`."""
    features, labels = checked_data(architecture, features, labels)
    order_parameters = checked_order_parameters(architecture, order_parameters)
    return _gradient_norm(architecture, order_parameters, features, labels)


def _gradient_norm(architecture, order_parameters, features, labels):
    gradient = jax.grad(lambda point: action_terms(architecture, point, features, labels).total)(order_parameters)
    points = (*order_parameters.matrices, readout_matrix(order_parameters.readout))
    slopes = (*gradient.matrices, readout_matrix(gradient.readout))
    factors = [jnp.linalg.cholesky(point) for point in points]
    whitened = [factor.T @ slope @ factor for factor, slope in zip(factors, slopes, strict=True)]
    for i, form in enumerate(architecture.forms):
        if form.is_straight:
            # U_{l+1} is the leading block of U_l: what S gains there it gains in U_{l+1}
            size = len(whitened[i + 1])
            whitened[i + 1] += whitened[i][:size, :size]
            whitened[i] = whitened[i].at[:size, :size].set(0.0)
    return jnp.sqrt(sum(jnp.sum(slope**2) for slope in whitened)) / _largest_width(architecture)


def _largest_width(architecture):
    return jnp.max(jnp.array(architecture.widths, dtype=jnp.float64))


@eqx.filter_jit
def _solve(architecture, features, labels, start, minimiser, tolerance, max_steps):
    def action_per_width(coordinates, _):
        order_parameters = to_order_parameters(architecture, coordinates)
        return action_terms(architecture, order_parameters, features, labels).total / _largest_width(architecture)

    minimised = optx.minimise(action_per_width, minimiser, start, max_steps=max_steps, throw=False)
    refined = optx.root_find(
        jax.grad(action_per_width),
        _REFINEMENT,
        minimised.value,
        max_steps=_REFINEMENT_STEPS,
        tags=frozenset({lx.positive_semidefinite_tag}),
        throw=False,
    )
    ends = jnp.stack([start, minimised.value, refined.value])
    measured = jax.vmap(lambda end: _measured(architecture, end, features, labels))(ends)
    action, norm = measured["action"], measured["gradient_norm"]
    finite = jnp.isfinite(action) & jnp.isfinite(norm)
    # Newton's method seeks a stationary point of any kind: it is followed only where it does not climb
    no_higher = action[2] <= action[1] + 1e-12 * jnp.abs(action[1])
    better = finite[2] & no_higher & (norm[2] < norm[1])
    chosen = jnp.where(finite[1], jnp.where(better, 2, 1), 0)
    point = jax.tree.map(lambda value: value[chosen], measured)
    stationary = point["gradient_norm"] <= tolerance
    failure = optx.RESULTS.where(minimised.result == optx.RESULTS.successful, _NOT_STATIONARY, minimised.result)
    failure = optx.RESULTS.where(finite[1], failure, optx.RESULTS.nonfinite)
    stats = {
        "steps": minimised.stats["num_steps"],
        "refinement_steps": refined.stats["num_steps"],
        "tolerance": tolerance,
    }
    return Saddle(**point, result=optx.RESULTS.where(stationary, optx.RESULTS.successful, failure), stats=stats)


def _measured(architecture, coordinates, features, labels):
    order_parameters = to_order_parameters(architecture, coordinates)
    terms = action_terms(architecture, order_parameters, features, labels)
    return {
        "order_parameters": order_parameters,
        "action": terms.total,
        "entropy": terms.entropy,
        "energy": terms.energy,
        "gradient_norm": _gradient_norm(architecture, order_parameters, features, labels),
    }


def _reported(saddle: Saddle, throw: bool) -> Saddle:
    """`saddle`, with an error or a warning if it is not a solution."""
    if throw:
        return saddle.result.error_if(saddle, saddle.result != optx.RESULTS.successful)
    if not is_traced(saddle) and saddle.result != optx.RESULTS.successful:
        warnings.warn(
            f"the solve did not converge: gradient norm {saddle.gradient_norm:.3g} exceeds the tolerance "
            f"{saddle.stats['tolerance']:.3g} after {saddle.stats['steps']} steps ({optx.RESULTS[saddle.result]}). "
            "Raise max_steps, start from a neighbouring solution (initial=...), or loosen the tolerance",
            ConvergenceWarning,
            stacklevel=3,
        )
    return saddle
