"""Derivatives of a saddle point by the implicit function theorem: its gradient stays zero."""

import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jax.scipy.linalg import cho_factor, cho_solve
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, PyTree

from .problem import AbstractSaddleProblem, Coordinates

_LINEAR_SOLVERS = {
    "preconditioned": lx.GMRES(rtol=1e-11, atol=1e-13, restart=4),
    "minimum": lx.CG(rtol=1e-11, atol=1e-13),
    "any": lx.LU(),
}


class NoDerivativeWarning(UserWarning):
    """The derivative of a stationary point was requested, but it does not exist."""


def implicit_point(
    problem: AbstractSaddleProblem, coordinates: Coordinates, form_hessian: bool, exists: Bool[Array, ""] | None
) -> Coordinates:
    """Return the stationary point at `coordinates`, as a differentiable function of `problem`.

    Args:
        problem: The problem.
        coordinates: Its stationary point.
        form_hessian: Whether the Hessian at a minimum is formed as a preconditioner, so
            that one or two products suffice.
        exists: None for a minimum. For other points, whether the derivative exists. If
            not, it is NaN, and its computation issues a `NoDerivativeWarning`.
    """
    at = jax.lax.stop_gradient(coordinates)
    which = "any" if exists is not None else "preconditioned" if form_hessian else "minimum"
    symmetric = frozenset({lx.positive_semidefinite_tag} if which == "minimum" else ())
    inputs = problem, at, which, exists
    step, _ = optx.ImplicitAdjoint(_LINEAR_SOLVERS[which]).apply(_no_step, _slope, inputs, symmetric)
    if exists is not None:
        step = _if_it_exists(step, exists)
    return problem.moved(at, step)


def _no_step(inputs):
    _, at, *_ = inputs
    return jnp.zeros_like(at), None


def _slope(step, _, inputs):
    """Return the gradient of S after a step, which is zero at a step of zero."""
    problem, at, which, exists, *_ = inputs
    slope = jax.grad(lambda step: problem.action(problem.moved(at, step)))(step)
    if which == "preconditioned":
        fixed = jax.lax.stop_gradient(problem)
        return cho_solve(cho_factor(fixed.expansion(fixed.at(at)).hessian), slope)
    return slope if exists is None else jnp.where(exists, slope, step)


@jax.custom_jvp
def _if_it_exists(step: Coordinates, exists: Bool[Array, ""]) -> Coordinates:
    return step


@_if_it_exists.defjvp
def _if_it_exists_jvp(primals, tangents):
    step, exists = primals
    jax.debug.callback(_warn_of_no_derivative, exists)
    # Multiply by NaN. With a constant NaN, reverse mode would return zero.
    return step, tangents[0] * jnp.where(exists, 1.0, jnp.nan)


def _warn_of_no_derivative(exists) -> None:
    if not np.all(exists):
        reason = "the solve did not converge, or an order parameter is on an edge of its domain"
        warnings.warn(f"the derivative of a stationary point is NaN: {reason}", NoDerivativeWarning, stacklevel=2)


@eqx.filter_custom_jvp
def with_derivative_of(
    value: PyTree[Float[Array, "..."]], function: Callable, arguments: PyTree
) -> PyTree[Float[Array, "..."]]:
    """Return `value`, already computed as `function(*arguments)`, with the derivative of that function."""
    return value


@with_derivative_of.def_jvp
def _with_derivative_of_jvp(primals, tangents):
    value, function, arguments = primals
    _, change = eqx.filter_jvp(lambda *given: function(*given), arguments, tangents[2])
    return with_derivative_of(value, function, arguments), change


def stationary_value(
    value: Float[Array, ""], function: Callable, problem: AbstractSaddleProblem, coordinates: Coordinates
) -> Float[Array, ""]:
    """Return `value`, already computed as `function(problem, coordinates)` and stationary in the coordinates.

    Its first derivative is taken at fixed coordinates, without solving a linear system.
    Second derivatives include the change of the coordinates.
    """
    at_coordinates = Partial(lambda at, problem: function(problem, at), coordinates)
    return with_derivative_of(value, at_coordinates, (problem,))
