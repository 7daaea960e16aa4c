"""Derivatives of a saddle point by the implicit function theorem.

The solver itself is not differentiated. The derivative of the solution keeps the gradient of the action zero when the
inputs of the action change.
"""

import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, PyTree

from .problem import AbstractSaddleProblem, Coordinates

_LINEAR_SOLVER = lx.CG(rtol=1e-11, atol=1e-13)


class NoDerivativeWarning(UserWarning):
    """The derivative of a stationary point was requested, but it does not exist."""


def _warn_of_no_derivative(exists) -> None:
    if not np.all(exists):
        warnings.warn(
            "the derivative of a stationary point does not exist, and NaN is returned: the solve did not converge, or "
            "an order parameter is on an edge of its domain",
            NoDerivativeWarning,
            stacklevel=2,
        )


@eqx.filter_custom_jvp
def implicit_point(
    problem: AbstractSaddleProblem, coordinates: Coordinates, form_hessian: bool, exists: Bool[Array, ""] | None
) -> Coordinates:
    """Return the stationary point at `coordinates`, as a differentiable function of everything in `problem`.

    The derivative is a step (see `AbstractSaddleProblem.moved`) that solves H d(step) = -d(gradient).

    Args:
        problem: The problem.
        coordinates: Its stationary point.
        form_hessian: Whether the exact Hessian preconditions conjugate gradients, so that one or two products suffice.
        exists: None for a minimum. For other points, whose Hessian is formed, whether the derivative exists. It does
            not if the solve failed or the point is on an edge of its domain. The derivative is then NaN, and its
            computation issues a `NoDerivativeWarning`.
    """
    return coordinates


@implicit_point.def_jvp
def _implicit_point_jvp(primals, tangents):
    problem, coordinates, form_hessian, exists = primals
    root = implicit_point(problem, coordinates, form_hessian, exists)
    no_step = jnp.zeros_like(root)

    def after(step: Coordinates) -> Coordinates:
        return problem.moved(root, step)

    def gradient(problem: AbstractSaddleProblem, step: Coordinates) -> Coordinates:
        return jax.grad(lambda step: problem.action(after(step)))(step)

    def hessian(vector: Coordinates) -> Coordinates:
        return jax.jvp(lambda step: gradient(problem, step), (no_step,), (vector,))[1]

    _, of_problem = eqx.filter_jvp(lambda p: gradient(p, no_step), (problem,), (tangents[0],))
    if exists is not None:
        formed = jax.vmap(hessian)(jnp.eye(len(root)))
        jax.debug.callback(_warn_of_no_derivative, exists)
        # Multiply by NaN, which is linear in the change. With a constant NaN, reverse mode would return zero.
        step = jnp.linalg.solve(formed, -of_problem) * jnp.where(exists, 1.0, jnp.nan)
        return root, jax.jvp(after, (no_step,), (step,))[1]
    structure, options = jax.ShapeDtypeStruct(root.shape, root.dtype), {}
    if form_hessian:
        fixed, at = jax.lax.stop_gradient((problem, root))
        factor = jax.scipy.linalg.cho_factor(fixed.expansion(fixed.at(at)).hessian, lower=True)
        inverse = lambda vector: jax.scipy.linalg.cho_solve(factor, vector)  # noqa: E731
        options["preconditioner"] = lx.FunctionLinearOperator(inverse, structure, lx.positive_semidefinite_tag)
    operator = lx.FunctionLinearOperator(hessian, structure, lx.positive_semidefinite_tag)
    step = lx.linear_solve(operator, -of_problem, _LINEAR_SOLVER, options=options).value
    return root, jax.jvp(after, (no_step,), (step,))[1]


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

    Its first derivative is therefore taken at fixed coordinates, without solving a linear system. Second derivatives
    include the change of the coordinates.
    """
    at_coordinates = Partial(lambda at, problem: function(problem, at), coordinates)
    return with_derivative_of(value, at_coordinates, (problem,))
