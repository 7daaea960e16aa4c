r"""Empirical risk minimisation: a linear student with any convex loss, a ridge, and features of any covariance.

n = alpha d examples have features x ~ N(0, C) and labels of a linear teacher. The student minimises the sum of
loss(w x / sqrt(d), label) plus lambda |w|^2 / 2. In the limit of large d, its fields are Gaussian, and the minimum of
the risk is a stationary point of an action in their covariances. See Aubin, Krzakala, Lu and Zdeborova,
arXiv:2006.06560 (C = 1), and Loureiro et al., arXiv:2102.08127 (any C).

The order parameters are the overlap m with the teacher, the variance s of the student's field that the teacher does not
explain, the variance V of one student's field, and conjugates. With the variance rho of the teacher's field, the
variance of the student's field is q = m^2 / rho + s, so no domain contains an impossible covariance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from sympy import Expr, MatrixSymbol, S, Symbol, atan2, erfc, pi, sqrt, symbols

from ..checks import Scalar, checked_arguments, real_array, shown
from ..codegen import compile_expressions
from ..saddle import Action, Positive, Real, Solution, stationary
from ..symbolic import entrywise, gaussian_average, gradient, moreau, sum_of_entries

Labels = Literal["sign", "linear", "random"]

m, m_hat = symbols("m m_hat", real=True)
s, q_hat, V, V_hat, alpha, rho = symbols("s q_hat V V_hat alpha rho", positive=True)
ridge, noise = symbols("lambda_ sigma2", nonnegative=True)
_size = Symbol("d", integer=True, positive=True)
_eigenvalues, _teacher = (MatrixSymbol(name, _size, 1) for name in ("eigenvalues", "teacher"))
_z = Symbol("z", real=True)
_INITIAL = {"m": 0.5, "m_hat": 0.5, "s": 0.5, "q_hat": 0.5, "V": 1.0, "V_hat": 0.5}


@checked_arguments
def action(loss: Scalar, x: Symbol, y: Symbol, *, labels: Labels = "sign", has_spectrum: bool = False) -> Action:
    """Return the action of empirical risk minimisation, per weight.

    Its parameters are alpha, lambda_ (the ridge), sigma2 (the variance of noise in the teacher's field), and with a
    spectrum also the values of `spectrum`. Without a spectrum, the conjugates are eliminated.

    Args:
        loss: The loss, a convex expression in `x` and `y`.
        x: The symbol of the student's field.
        y: The symbol of the label.
        labels: "sign" for the sign of the teacher's field, "linear" for the field, "random" for random signs.
        has_spectrum: Whether the covariance of features is given by its eigenvalues. By default, it is the identity.

    Raises:
        ValueError: If the loss is not convex in `x`, or for linear labels if it does not depend on `x - y` alone.

    Example:
        >>> import theorykit
        >>> from sympy import symbols
        >>> from theorykit.theories import empirical_risk
        >>> theorykit.enable_float64()
        >>> x, y = symbols("x y", real=True)
        >>> square = empirical_risk.action((y - x) ** 2 / 2, x, y, labels="linear")
        >>> student = empirical_risk.solve(square, {"alpha": 1.0, "lambda_": 0.1, "sigma2": 0.25})
        >>> round(float(empirical_risk.generalisation_error(student, labels="linear")), 4)
        0.4411
    """
    random, variance = labels == "random", rho if has_spectrum else S.One
    overlap, overlap_hat = (S.Zero, S.Zero) if random else (m, m_hat)
    q = overlap**2 / variance + s
    overlaps = overlap * overlap_hat - (q * V_hat - V * q_hat) / 2
    domains = {symbol: Positive() for symbol in (s, q_hat, V, V_hat)}
    domains = domains if random else {m: Real(), m_hat: Real(), **domains}

    def of_weight(eigenvalue: Any, teacher: Any) -> Expr:
        return (overlap_hat**2 * eigenvalue**2 * teacher + q_hat * eigenvalue) / (ridge + V_hat * eigenvalue)

    parameters = [alpha, ridge] if random else [alpha, ridge, noise]
    of_prior = of_weight(S.One, S.One)
    if has_spectrum:
        of_prior = sum_of_entries(entrywise(of_weight, _eigenvalues, _teacher)) / _size
        parameters += [_eigenvalues, _teacher, *([] if random else [rho])]
    risk = _mean_envelope(loss, x, y, labels, variance)  # Aubin et al., Eq. (9)
    made = Action(overlaps - of_prior / 2 + alpha * risk, domains, parameters)
    conjugates = [symbol for symbol in (q_hat, V_hat, m_hat) if symbol in domains]
    return made if has_spectrum else made.eliminate(*conjugates)


@checked_arguments
def solve(action: Action, values: Mapping, *, throw: bool = False) -> Solution:
    """Return the student at given values of the parameters: a stationary point of known index.

    If no finite weights minimise the risk, as for logistic regression of separable examples without ridge, the solution
    has not converged, and its `diagnosis` says why. With `throw`, this is an error.
    """
    initial = {symbol.name: _INITIAL[symbol.name] for symbol in action.order_parameters}
    # S is maximal in the variance V, and in one of each other pair of conjugates that is not eliminated.
    index = 1 + sum(name in initial for name in ("m_hat", "q_hat"))
    return stationary(action, values, index=index, initial=initial, throw=throw)


def _mean_envelope(loss: Expr, x: Symbol, y: Symbol, labels: Labels, variance: Expr) -> Expr:
    """Return the Moreau envelope of the loss, averaged over the student's field and the label."""
    q = s if labels == "random" else m**2 / variance + s
    field = sqrt(q) * _z
    if labels == "linear":
        # The difference of the student's field and the label is Gaussian.
        shifted = loss.xreplace({x: x + y})
        if shifted.has(y):
            raise ValueError(f"a loss for linear labels must depend on {x} - {y} alone, got {loss}")
        spread = sqrt(s + (m - variance) ** 2 / variance + noise)
        return gaussian_average(moreau(shifted, x, spread * _z, V), _z)
    envelopes = [moreau(loss.xreplace({y: S(sign)}), x, field, V) for sign in (1, -1)]
    is_even = loss.xreplace({y: S.NegativeOne, x: -x}) == loss.xreplace({y: S.One})
    # Twice the probability of each label, given the student's field.
    odds = [erfc(-sign * m * _z / sqrt(2 * (variance * s + noise * q))) for sign in (1, -1)]
    odds = [S.One, S.One] if labels == "random" else odds
    terms = [chance * envelope for chance, envelope in zip(odds, envelopes, strict=True)]
    return gaussian_average(terms[0], _z) if is_even else gaussian_average(sum(terms) / 2, _z)


def _spectrum(name: str, value: Any) -> np.ndarray:
    found = real_array(name, value)
    if found.ndim != 1 or not found.size:
        raise ValueError(f"{name} must be a list of numbers, got {shown(value)}")
    if not (np.all(np.isfinite(found)) and np.all(found >= 0) and np.any(found > 0)):
        raise ValueError(f"{name} must be non-negative and finite numbers, some of them positive, got {shown(value)}")
    return found


Spectrum = Annotated[Any, _spectrum]
"""Numbers that may be the eigenvalues of a covariance matrix."""


@checked_arguments
def spectrum(eigenvalues: Spectrum, teacher: Spectrum | None = None) -> Mapping[str, np.ndarray | float]:
    """Return the values of an action `has_spectrum`.

    Args:
        eigenvalues: The eigenvalues of the covariance of features.
        teacher: Squares of the teacher's weights along its eigenvectors. Ones by default.
    """
    teacher = np.ones_like(eigenvalues) if teacher is None else teacher
    if teacher.shape != eigenvalues.shape:
        raise ValueError(f"teacher must have one number per eigenvalue, {len(eigenvalues)}, got {len(teacher)}")
    of_field = float(np.mean(eigenvalues * teacher))
    return {"eigenvalues": eigenvalues[:, None], "teacher": teacher[:, None], "rho": of_field}


@checked_arguments
def generalisation_error(order_parameters: Mapping | Solution, *, labels: Labels = "sign", rho: float = 1.0) -> Any:
    """Return the probability of a wrong sign, or the mean square distance from the teacher for linear labels."""
    overlap, unexplained = order_parameters["m"], order_parameters["s"]
    if labels == "linear":
        return unexplained + (overlap - rho) ** 2 / rho
    return _ANGLE(s=unexplained, m=overlap, rho=rho)["error"]


_ANGLE = compile_expressions("angle", {"error": atan2(sqrt(rho * s), m) / pi}, [m, s, rho])


@checked_arguments
def training_loss(action: Action, values: Mapping, student: Solution) -> Any:
    """Return the mean loss of the examples, without ridge, at a student and the values at which it was solved."""
    envelope = gradient(action.expression, alpha)
    # The envelope is loss + V loss'^2 / 2, and its derivative in V is -loss'^2 / 2.
    expression = envelope + V * gradient(envelope, V)
    return compile_expressions("training_loss", {"loss": expression}, action.symbols).call_from(
        {**values, **student.order_parameters}
    )["loss"]
