r"""Empirical risk minimisation by a linear student with any convex loss and a ridge.

n = alpha d examples have features x ~ N(0, C) and labels of a linear teacher. The student
minimises the sum of loss(w x / sqrt(d), label) plus lambda |w|^2 / 2. At large d this is a
stationary point of an action. Sources: Aubin, Krzakala, Lu and Zdeborova, arXiv:2006.06560
(C = 1), and Loureiro et al., arXiv:2102.08127 (any C).

The order parameters are the overlap m with the teacher, the variance s of the student's
field that the teacher does not explain, the variance V of one student's field, and
conjugates. The student's field has the variance m^2 / rho + s, with rho of the teacher's.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from sympy import Expr, MatrixSymbol, S, Symbol, atan2, erfc, pi, sqrt, symbols

from ..checks import checked_array, checked_choice, checked_number, is_traced, numeric_array, shown
from ..codegen import compile_expressions
from ..saddle import Action, ConvergenceWarning, Positive, Real, Solution, stationary
from ..saddle.bound_action import bind
from ..saddle.diagnosis import report
from ..symbolic import entrywise, gaussian_average, gradient, moreau, sum_of_entries
from ..symbolic.atoms import checked_scalar

Labels = Literal["sign", "linear", "random"]

m, m_hat = symbols("m m_hat", real=True)
s, q_hat, V, V_hat, alpha, rho = symbols("s q_hat V V_hat alpha rho", positive=True)
ridge, noise = symbols("lambda_ sigma2", nonnegative=True)
_size = Symbol("d", integer=True, positive=True)
_eigenvalues, _teacher = (MatrixSymbol(name, _size, 1) for name in ("eigenvalues", "teacher"))
_z = Symbol("z", real=True)


def action(
    loss: Expr,
    x: Symbol,
    y: Symbol,
    *,
    labels: Labels = "sign",
    has_spectrum: bool = False,
) -> Action:
    """Return the action of empirical risk minimisation, per weight.

    Its parameters are alpha, `lambda_` (the ridge), sigma2 (the variance of noise of the
    teacher, not for random labels), and with a spectrum the values of `spectrum`.
    Without one, the conjugates are eliminated.

    Args:
        loss: a convex expression in `x` and `y`.
        x, y: the symbols of the student's field and of the label.
        labels: the sign of the teacher's field, the field, or random signs.
        has_spectrum: whether the covariance of features is given by its eigenvalues. By
            default, it is the identity.

    Raises:
        ValueError: the loss is known not to be convex in `x`, has other symbols, or for
            linear labels does not depend on `x - y` alone.
    """
    loss = checked_scalar("loss", loss)
    checked_choice("labels", labels, get_args(Labels))
    if loss.free_symbols - {x, y}:
        raise ValueError(f"loss must depend on {x} and {y} only: {loss}")

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
        drive = overlap_hat**2 * eigenvalue**2 * teacher + q_hat * eigenvalue
        return drive / (ridge + V_hat * eigenvalue)

    of_prior, parameters = of_weight(S.One, S.One), [alpha, ridge] if random else [alpha, ridge, noise]
    if has_spectrum:
        of_prior = sum_of_entries(entrywise(of_weight, _eigenvalues, _teacher)) / _size
        parameters += [_eigenvalues, _teacher] if random else [_eigenvalues, _teacher, rho]
    overlaps = overlap * overlap_hat - (q * V_hat - V * q_hat) / 2
    domains = dict.fromkeys((s, q_hat, V, V_hat), Positive())
    domains = domains if random else {m: Real(), m_hat: Real(), **domains}
    made = Action(overlaps - of_prior / 2 + alpha * risk, domains, parameters)
    if has_spectrum:
        return made
    return made.eliminate(*(each for each in (q_hat, V_hat, m_hat) if each in domains))


def solve(action: Action, values: Mapping, *, throw: bool = False) -> Solution:
    """Return the student: a stationary point of known index.

    If no finite weights minimise the risk, as for logistic regression of separable
    examples without ridge, a warning says so, or with `throw` an error.

    Example:
        >>> from sympy import symbols
        >>> from theorykit import enable_float64
        >>> from theorykit.theories.empirical_risk import action, generalisation_error, solve
        >>> enable_float64()
        >>> x, y = symbols("x y", real=True)
        >>> ridge = action((x - y) ** 2 / 2, x, y, labels="linear")
        >>> student = solve(ridge, {"alpha": 2, "lambda_": 0.1, "sigma2": 0.1})
        >>> round(float(generalisation_error(student, labels="linear")), 6)
        0.084429
    """
    initial = {symbol.name: 1.0 if symbol == V else 0.5 for symbol in action.order_parameters}
    # S is maximal in V, and in one of each other pair of conjugates.
    index = 1 + sum(name in initial for name in ("m_hat", "q_hat"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the solve did|solves did", ConvergenceWarning)
        found = stationary(action, values, index=index, initial=initial)
    # Weights that the examples do not determine make V diverge, which no diagnosis
    # knows.
    cause = more = ""
    if not is_traced(found) and np.any(found["V"] > 1e4):
        cause = (
            f"V diverges ({np.max(found['V']):.3g} at the last step): no finite weights minimise the risk, "
            "because the examples are separable or fewer than the weights, or the loss is unbounded. "
            "Give a larger ridge lambda_"
        )
    elif not is_traced(found) and any(option in found.diagnosis for option in ("initial=", "max_steps")):
        more = f". These are options of saddle.stationary(action, values, index={index}, ...)"
    return report(found, throw, stacklevel=1, more=more, cause=cause)


def spectrum(eigenvalues: Any, teacher: Any = None) -> Mapping[str, np.ndarray | float]:
    """Return `eigenvalues`, `teacher` and `rho` for an action with a spectrum.

    Args:
        eigenvalues: eigenvalues (n,) of the covariance of features.
        teacher: squares of the teacher's weights along its eigenvectors (n,), by default 1.
    """
    eigenvalues = checked_array("eigenvalues", eigenvalues, "n")
    teacher = checked_array("teacher", np.ones_like(eigenvalues) if teacher is None else teacher, "n")
    for name, each in (("eigenvalues", eigenvalues), ("teacher", teacher)):
        if not (np.all(each >= 0) and np.any(each > 0)):
            raise ValueError(f"{name} must be non-negative numbers, some positive, got {each}")
    if len(teacher) != len(eigenvalues):
        raise ValueError(f"teacher must have {len(eigenvalues)} numbers, got {len(teacher)}")
    rho = float(np.mean(eigenvalues * teacher))
    return {"eigenvalues": eigenvalues[:, None], "teacher": teacher[:, None], "rho": rho}


def generalisation_error(
    order_parameters: Mapping | Solution, *, labels: Labels = "sign", rho: float | None = None
) -> Any:
    """Return the probability of a wrong sign, or the mean square error for linear labels.

    Both are relative to the teacher's field without noise.

    Args:
        order_parameters: a solution, or the order parameters by name.
        labels: "sign" or "linear".
        rho: the variance of the teacher's field, by default from the solution, or 1.
    """
    checked_choice("labels", labels, ("sign", "linear"))
    given = getattr(order_parameters, "order_parameters", order_parameters)
    rho = getattr(order_parameters, "parameters", {}).get("rho", 1.0) if rho is None else rho
    if not {"m", "s"} <= set(given):
        raise ValueError(f"order_parameters must have m and s, got {shown(given)}")
    values = {name: numeric_array(f"order_parameters[{name}]", given[name]) for name in ("m", "s")}
    values["rho"] = checked_number("rho", rho, above=0.0) if np.ndim(rho) == 0 else rho
    variance = Symbol("rho", positive=True)
    is_linear = labels == "linear"
    error = s + (m - variance) ** 2 / variance if is_linear else atan2(sqrt(variance * s), m) / pi
    compiled = compile_expressions("generalisation_error", {"error": error}, [m, s, variance])
    return compiled(**values)["error"]


def training_loss(action: Action, values: Mapping, student: Solution) -> Any:
    """Return the mean loss, without ridge, of a student that was solved at `values`."""
    envelope = gradient(action.expression, alpha)
    # The envelope is loss + V loss'^2 / 2, and its derivative with respect to V is
    # -loss'^2 / 2.
    expression = envelope + V * gradient(envelope, V)
    compiled = compile_expressions("training_loss", {"loss": expression}, action.symbols)
    parameters = bind(action, values).values_of_parameters
    return compiled.call_from({**parameters, **student.order_parameters})["loss"]
