r"""Empirical risk minimisation: a linear student with any convex loss, a ridge, and features of any covariance.

n = alpha d examples have features x ~ N(0, C) and labels of a linear teacher. The student minimises the sum of
loss(w x / sqrt(d), label) plus lambda |w|^2 / 2. At large d its fields are Gaussian, and the minimum is a stationary
point of an action in their covariances. Sources: Aubin, Krzakala, Lu and Zdeborova, arXiv:2006.06560 (C = 1), and
Loureiro et al., arXiv:2102.08127 (any C).

The order parameters are the overlap m with the teacher, the variance s of the student's field that the teacher does not
explain, the variance V of one student's field, and conjugates. With the variance rho of the teacher's field, the
variance of the student's field is q = m^2 / rho + s, so no domain contains an impossible covariance.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from sympy import Expr, MatrixSymbol, S, Symbol, atan2, erfc, pi, sqrt, symbols

from ..checks import Positive as PositiveNumber
from ..checks import Scalar, checked_arguments, is_traced, numeric_array, real_array, shown
from ..codegen import compile_expressions
from ..runs import stage
from ..saddle import Action, ConvergenceWarning, Positive, Real, Solution, stationary
from ..saddle.bound_action import bind
from ..saddle.diagnosis import report
from ..symbolic import entrywise, gaussian_average, gradient, moreau, sum_of_entries

Labels = Literal["sign", "linear", "random"]

m, m_hat = symbols("m m_hat", real=True)
s, q_hat, V, V_hat, alpha, rho = symbols("s q_hat V V_hat alpha rho", positive=True)
ridge, noise = symbols("lambda_ sigma2", nonnegative=True)
_size = Symbol("d", integer=True, positive=True)
_eigenvalues, _teacher = (MatrixSymbol(name, _size, 1) for name in ("eigenvalues", "teacher"))
_z = Symbol("z", real=True)


@checked_arguments
def action(loss: Scalar, x: Symbol, y: Symbol, *, labels: Labels = "sign", has_spectrum: bool = False) -> Action:
    """Return the action of empirical risk minimisation, per weight.

    Its parameters are alpha, `lambda_` (the ridge), sigma2 (the variance of noise in the teacher's field), and with a
    spectrum also the values of `spectrum`. Without a spectrum, the conjugates are eliminated.

    Args:
        loss: The loss, a convex expression in `x` and `y`.
        x: The symbol of the student's field.
        y: The symbol of the label.
        labels: "sign" for the sign of the teacher's field, "linear" for the field, "random" for random signs.
        has_spectrum: Whether the covariance of features is given by its eigenvalues. By default, it is the identity.

    Raises:
        ValueError: If the loss is known not to be convex in `x`, or for linear labels if it does not depend on `x - y`
            alone.
    """
    random, variance = labels == "random", rho if has_spectrum else S.One
    overlap, overlap_hat = (S.Zero, S.Zero) if random else (m, m_hat)
    q = overlap**2 / variance + s
    if labels == "linear":
        # The difference of the student's field and the label is Gaussian.
        shifted = loss.xreplace({x: x + y})
        if shifted.has(y):
            raise ValueError(f"a loss for linear labels must depend on {x} - {y} alone, got {loss}")
        spread = sqrt(s + (m - variance) ** 2 / variance + noise)
        risk = gaussian_average(moreau(shifted, x, spread * _z, V), _z)
    else:
        envelopes = [moreau(loss.xreplace({y: S(sign)}), x, sqrt(q) * _z, V) for sign in (1, -1)]
        # Twice the probability of each label, given the student's field.
        steepness = overlap / sqrt(2 * (variance * s + noise * q))
        terms = [erfc(-steepness * _z) * envelopes[0], erfc(steepness * _z) * envelopes[1]]
        is_even = loss.xreplace({y: S.NegativeOne, x: -x}) == loss.xreplace({y: S.One})
        risk = gaussian_average(terms[0] if is_even else sum(terms) / 2, _z)  # Aubin et al., Eq. (9)

    def of_weight(eigenvalue: Any, teacher: Any) -> Expr:
        return (overlap_hat**2 * eigenvalue**2 * teacher + q_hat * eigenvalue) / (ridge + V_hat * eigenvalue)

    of_prior, parameters = of_weight(S.One, S.One), [alpha, ridge] if random else [alpha, ridge, noise]
    if has_spectrum:
        of_prior = sum_of_entries(entrywise(of_weight, _eigenvalues, _teacher)) / _size
        parameters += [_eigenvalues, _teacher] if random else [_eigenvalues, _teacher, rho]
    overlaps = overlap * overlap_hat - (q * V_hat - V * q_hat) / 2
    domains = dict.fromkeys((s, q_hat, V, V_hat), Positive())
    domains = domains if random else {m: Real(), m_hat: Real(), **domains}
    made = Action(overlaps - of_prior / 2 + alpha * risk, domains, parameters)
    return made if has_spectrum else made.eliminate(*(each for each in (q_hat, V_hat, m_hat) if each in domains))


@checked_arguments
def solve(action: Action, values: Mapping, *, throw: bool = False) -> Solution:
    """Return the student at given values of the parameters: a stationary point of known index.

    If no finite weights minimise the risk, as for logistic regression of separable examples without ridge, the solution
    has not converged, and a warning names the cause. With `throw`, this is an error.
    """
    initial = {symbol.name: 1.0 if symbol == V else 0.5 for symbol in action.order_parameters}
    # S is maximal in the variance V, and in one of each other pair of conjugates that is not eliminated.
    index = 1 + sum(name in initial for name in ("m_hat", "q_hat"))
    with warnings.catch_warnings(), stage("empirical risk", shown=not is_traced(*values.values())):
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = stationary(action, values, index=index, initial=initial)
    # Weights that the examples do not determine make the variance V diverge. The diagnosis of such a point, far away,
    # is often wrong, for example that the action has a kink.
    cause = more = ""
    if not is_traced(found) and np.any(found["V"] > 1e4):
        cause = (
            f"V diverges ({np.max(found['V']):.3g} at the last step): no finite weights minimise the risk, probably "
            "because the examples are separable or fewer than the weights, or the loss is unbounded. Give a larger "
            "ridge lambda_"
        )
    elif not is_traced(found) and any(option in found.diagnosis for option in ("initial=", "max_steps")):
        more = f". These are options of saddle.stationary(action, values, index={index}, ...)"
    return report(found, throw, stacklevel=1, more=more, cause=cause)


@checked_arguments
def spectrum(eigenvalues: Any, teacher: Any = None) -> Mapping[str, np.ndarray | float]:
    """Return the values of an action `has_spectrum`.

    Args:
        eigenvalues: The eigenvalues of the covariance of features.
        teacher: Squares of the teacher's weights along its eigenvectors. Ones by default.
    """
    found = {"eigenvalues": real_array("eigenvalues", eigenvalues)}
    found["teacher"] = np.ones_like(found["eigenvalues"]) if teacher is None else real_array("teacher", teacher)
    for name, each in found.items():
        if each.ndim != 1 or not (np.all(np.isfinite(each)) and np.all(each >= 0) and np.any(each > 0)):
            raise ValueError(f"{name} must be a list of finite, non-negative numbers, some positive, got {shown(each)}")
    if len(found["eigenvalues"]) != (given := len(found["teacher"])):
        raise ValueError(f"teacher must have one number per eigenvalue, {len(found['eigenvalues'])}, got {given}")
    of_field = float(np.mean(found["eigenvalues"] * found["teacher"]))
    return {**{name: each[:, None] for name, each in found.items()}, "rho": of_field}


@checked_arguments
def generalisation_error(
    order_parameters: Mapping | Solution, *, labels: Labels = "sign", rho: PositiveNumber | None = None
) -> Any:
    """Return the probability of a wrong sign, or the mean square distance from the teacher for linear labels.

    Both are relative to the teacher's field without noise.

    Args:
        order_parameters: The order parameters by name, or the solution.
        labels: The kind of labels.
        rho: The variance of the teacher's field. By default, the value in the parameters of a solution, or 1.
    """
    given = getattr(order_parameters, "order_parameters", order_parameters)
    rho = getattr(order_parameters, "parameters", {}).get("rho", 1.0) if rho is None else rho
    if not {"m", "s"} <= set(given):
        raise ValueError(f"order_parameters must have m and s, got {shown(given)}")
    values = {name: numeric_array(f"order_parameters[{name}]", given[name]) for name in ("m", "s")} | {"rho": rho}
    variance = Symbol("rho", positive=True)
    error = s + (m - variance) ** 2 / variance if labels == "linear" else atan2(sqrt(variance * s), m) / pi
    return compile_expressions("generalisation_error", {"error": error}, [m, s, variance])(**values)["error"]


@checked_arguments
def training_loss(action: Action, values: Mapping, student: Solution) -> Any:
    """Return the mean loss of the examples, without ridge, at a student and the values at which it was solved."""
    envelope = gradient(action.expression, alpha)
    # The envelope is loss + V loss'^2 / 2, and its derivative with respect to V is -loss'^2 / 2.
    expression = envelope + V * gradient(envelope, V)
    compiled = compile_expressions("training_loss", {"loss": expression}, action.symbols)
    return compiled.call_from({**bind(action, values).values_of_parameters, **student.order_parameters})["loss"]
