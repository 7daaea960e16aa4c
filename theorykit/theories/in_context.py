r"""Learning in context of linear regression by linear attention, in large dimension d.

A task is a vector w of d standard normal numbers, and an input x has d normal numbers of
variance 1/d. A context of :math:`\alpha d` examples, labelled by :math:`y = w \cdot x` plus
noise of variance :math:`\rho`, gives the attention layer the vector :math:`v =
\frac{1}{\alpha} \sum_i y_i x_i`. The prediction for the query x is :math:`x^T \Gamma v`.
Training on :math:`n = \tau d^2` contexts, with tasks from a set of :math:`\kappa d`,
minimises :math:`\sum (y - x^T \Gamma v)^2 + \frac{n}{d} \lambda |\Gamma|^2`. The covariance
of v is :math:`b + R`, with :math:`b = (1 + \rho) / \alpha` and the covariance matrix R of
the training tasks, whose eigenvalues s follow the law of Marchenko and Pastur with ratio
:math:`\kappa`. The effective ridge :math:`\epsilon` minimises

.. math:: A(\epsilon) = (\tau - 1) \log \epsilon + \tau \lambda / \epsilon + \int \log(\epsilon + b + s) \, d\mu(s).

Both errors are derivatives of this action with sources. A source J adds the mean square
error on a test distribution to the training loss, and a source u multiplies the smallest
training loss. The error is the mixed derivative of the minimum with respect to J and u.

Source: Lu, Letey, Zavatone-Veth, Maiti and Pehlevan, arXiv:2405.11751. We omit the
feature :math:`\sum_i y_i^2`, which changes the errors by a term of order 1/d.
"""

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sympy import Symbol, log, symbols

from .._compat import require_float64
from .._jit import jit
from ..checks import numeric_array, refuse_traced
from ..saddle import Action, ConvergenceWarning, Positive, minimise
from ..saddle.domains import check_value
from .spectral_laws import marchenko_pastur

EPSILON, ALPHA, TAU, KAPPA, RIDGE = symbols("epsilon alpha tau kappa lambda_", positive=True)
RHO = Symbol("rho", nonnegative=True)
# Sources of the errors on new tasks and on training tasks, per ridge, and of the
# training loss.
SOURCES = ICL, IDG, LOSS = tuple(Symbol(name, real=True) for name in ("J_ICL", "J_IDG", "u"))


class Errors(NamedTuple):
    """Mean square errors on new contexts, with the noise of the query's label.

    - `icl`: with new tasks.
    - `idg`: with tasks of the training set.
    - `epsilon`: the effective ridge.
    """

    icl: Any
    idg: Any
    epsilon: Any


@cache
def action() -> Action:
    """Return the action of the effective ridge with its sources.

    Example:
        >>> from theorykit.theories import in_context
        >>> list(in_context.action().order_parameters)
        [epsilon]
    """
    b = (1 + RHO) / ALPHA
    # Sources add J_ICL (b + 1) + J_IDG (b + s) to the ridge, so that epsilon + b + s
    # becomes `grown` (z + s).
    grown, new = 1 + EPSILON * IDG, EPSILON * ICL
    z = b + EPSILON * (1 + ICL * (1 + b)) / grown
    law = marchenko_pastur(KAPPA)
    # The means of 1 / (z + s) and of log(z + s).
    mean, mean_log = -law.stieltjes(-z), law.log_potential(-z)
    weight = 1 / (1 + mean / KAPPA)
    # Means of s / (z + s) and s^2 / (z + s). Here 1 - z mean = mean weight, because the
    # left side cancels at large z.
    of_first, of_second = mean * weight, mean * weight * (weight + 1 / KAPPA)
    # The covariance of labels and v is s in training. The sources add J_ICL + J_IDG s,
    # and 1 + rho to the variance of labels for each. The loss is a Schur complement.
    explained = grown * of_second + 2 * new * of_first + new**2 * mean / grown
    loss = (1 + RHO) * (1 / EPSILON + ICL + IDG) - explained / EPSILON
    ridge = (TAU - 1) * log(EPSILON) + TAU * RIDGE / EPSILON + log(grown) + mean_log
    return Action(ridge + LOSS * loss, {EPSILON: Positive()}, [ALPHA, TAU, KAPPA, RHO, RIDGE, *SOURCES])


@cache
def _without_sources() -> Action:
    """Return A, the action at zero sources."""
    zero = dict.fromkeys(SOURCES, 0)
    return Action(action().expression.subs(zero), {EPSILON: Positive()}, [ALPHA, TAU, KAPPA, RHO, RIDGE])


@jit
def _solved(values: Mapping[str, jax.Array]) -> tuple[jax.Array, ...]:
    def one(at: Mapping[str, jax.Array]) -> tuple[jax.Array, ...]:
        found = minimise(_without_sources(), at)

        def of(moved: jax.Array) -> jax.Array:
            names = (EPSILON.name, *(source.name for source in SOURCES))
            return sum(action().compiled(**at, **dict(zip(names, moved, strict=True))).values())

        # The minimum responds to a source by a shift of epsilon: a Schur complement of
        # the Hessian.
        hessian = jax.hessian(of)(jnp.stack([found[EPSILON], *jnp.zeros(len(SOURCES))]))
        responses = hessian[1:, 1:] - jnp.outer(hessian[1:, 0], hessian[0, 1:]) / hessian[0, 0]
        return responses[2, 0], responses[2, 1], found[EPSILON], jnp.asarray(found.converged)

    return jax.vmap(one)(values)


def errors(alpha: Any, tau: Any, kappa: Any, rho: Any, ridge: Any) -> Errors:
    """Return the errors for numbers or arrays, which are broadcast.

    Args:
        alpha: number of examples per context, divided by d.
        tau: number of training contexts, divided by d^2.
        kappa: number of training tasks, divided by d.
        rho: variance of the noise of labels.
        ridge: lambda, above zero. The ridgeless limit, 1e-12, diverges at tau = 1.

    Raises:
        ValueError: a value is not finite or has the wrong sign.

    Example:
        >>> import theorykit
        >>> from theorykit.theories import in_context
        >>> theorykit.enable_float64()
        >>> found = in_context.errors(alpha=1.0, tau=0.5, kappa=1.0, rho=0.01, ridge=0.1)
        >>> round(float(found.epsilon), 4), bool(found.idg < found.icl)
        (1.9918, True)
    """
    require_float64()
    given = {"alpha": alpha, "tau": tau, "kappa": kappa, "rho": rho, "ridge": ridge}
    arrays = {name: numeric_array(name, value) for name, value in given.items()}
    names = dict(zip(given, (ALPHA, TAU, KAPPA, RHO, RIDGE), strict=True))
    refuse_traced("errors", arrays, reason="returns NumPy arrays")
    for name, symbol in names.items():
        check_value(name, symbol, arrays[name])
    broadcast = np.broadcast_arrays(*arrays.values())
    shape = broadcast[0].shape
    flat = {names[name].name: each.ravel() for name, each in zip(given, broadcast, strict=True)}
    *found, converged = _solved(flat)
    if not np.all(converged):
        first = {name: float(flat[names[name].name][np.argmin(converged)]) for name in given}
        failed = f"{np.sum(~np.asarray(converged))} of {converged.size} points, first at {first}"
        message = f"no effective ridge found at {failed}; errors there are NaN"
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return Errors(*(np.where(converged, each, np.nan).reshape(shape) for each in found))
