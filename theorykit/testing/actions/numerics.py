"""Whether an action is defined on its domains, and what runs is what was written: values, gradients, averages."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from sympy import Expr

from ...checks import shown
from ...codegen import interpret, quadrature_error
from ...saddle import Action
from ...symbolic import GaussianAverage
from ..differences import relative_error, slope_at_zero
from ..report import Finding, Passed, Result
from .points import ActionPoint, value_of

_ROUNDING, _DIFFERENCES, _AVERAGES = 1e-9, 1e-6, 1e-6
_STEP = 1e-3
_PACKAGE = "Both come from the same expression: a mistake of the package"


def check_finite(points: Sequence[ActionPoint]) -> Result:
    """Every term at every point of the domains."""
    claim = "the action is a real number everywhere in the domains of its order parameters"
    action, terms = points[0].action, np.array([point.terms() for point in points])
    bad = ~np.isfinite(terms)
    if not np.any(bad):
        return Passed(claim, f"at {len(points)} random points")
    at = int(np.argmax(np.sum(bad, axis=0)))
    where = points[int(np.argmax(bad[:, at]))]
    inside = [symbol for symbol in action.order_parameters if action.terms[at].has(symbol)]
    domains = ", ".join(f"{action.order_parameters[symbol]} of {symbol}" for symbol in inside)
    measured = (
        f"the term {shown(action.terms[at])} is none at {np.sum(bad[:, at])} of {len(points)}, as at {where.place}"
    )
    return Finding(
        claim, measured, f"the domain {domains} is too wide for this term, or the term has a wrong sign in its argument"
    )


def check_compiled(points: Sequence[ActionPoint]) -> Result:
    """The generated code against the interpreter."""
    claim = "the action that runs is the one that is written"
    errors = []
    for point in points:
        expected, found = point.terms(), np.asarray(point.bound.terms(point.coordinates))
        errors.append(np.max(np.abs(found - expected)) / max(np.max(np.abs(expected)), 1.0))
    # Gauss-Hermite quadrature runs where the interpreter integrates adaptively
    tolerance = _AVERAGES if points[0].action.has_averages else _ROUNDING
    if max(errors) < tolerance:
        return Passed(claim, f"to {max(errors):.1g}")
    measured = f"they differ by {max(errors):.3g} of their size"
    if points[0].action.has_averages:
        return Finding(claim, measured, f"{_average_of(points[0].action)} is not resolved by its nodes: give it more")
    return Finding(claim, measured, f"the generated code is wrong. {_PACKAGE}")


def check_slopes(points: Sequence[ActionPoint], seed: int) -> Iterator[Result]:
    """The saddle-point equations and the gradient that runs, each against differences of the action."""
    rng, symbolic, automatic = np.random.default_rng(seed), [], []
    for point in points:
        step = rng.standard_normal(point.coordinates.shape) / np.sqrt(len(point.coordinates))
        expected = slope_at_zero(lambda t, at=point, by=step: float(np.sum(at.moved(t * by).terms())), _STEP)
        symbolic.append((relative_error(_by_equations(point, step), expected), expected))
        slope = np.asarray(point.bound.slope_after(point.coordinates, jnp.zeros_like(point.coordinates)))
        automatic.append((relative_error(float(slope @ step), expected), expected))
    for claim, errors in (
        ("the saddle-point equations are the gradient of the action", symbolic),
        ("the gradient that runs is that of the action", automatic),
    ):
        error, expected = max(errors)
        if error < _DIFFERENCES:
            yield Passed(claim, f"to {error:.1g} in {len(errors)} directions")
        else:
            measured = f"off by {error:.3g} where differences of the action have {expected:.6g}"
            yield Finding(
                claim, measured, f"a rule of the differential is wrong, or an average not resolved. {_PACKAGE}"
            )


def _by_equations(point: ActionPoint, step: np.ndarray) -> float:
    """The slope along a step by the symbolic equations."""

    def order_parameters(t):
        return point.bound.layout.values(point.bound.moved(point.coordinates, t * jnp.asarray(step)))

    _, changes = jax.jvp(order_parameters, (jnp.zeros(()),), (jnp.ones(()),))
    slopes = {symbol.name: interpret(equation, point.values) for symbol, equation in point.action.equations.items()}
    return float(sum(np.sum(np.asarray(slope) * np.asarray(changes[name])) for name, slope in slopes.items()))


def check_averages(points: Sequence[ActionPoint]) -> Result | None:
    """The stated errors of the action's Gaussian averages, which solutions refine by adaptive quadrature."""
    action = points[0].action
    if not action.has_averages:
        return None
    claim = "Gaussian averages are resolved by their nodes"
    errors = []
    for point in points:
        size = max(float(np.max(np.abs(point.bound.terms(point.coordinates)))), 1.0)
        errors.append(float(quadrature_error(action.expression, _arguments(point))) / size)
    if max(errors) < _AVERAGES:
        return Passed(claim, f"the error of quadrature is at most {max(errors):.1g} of the action's size")
    return Finding(
        claim,
        f"the error of quadrature is {max(errors):.3g} of the action's size",
        f"{_average_of(action)} has a kink or a steep step: give more nodes, or a closed form",
    )


def _arguments(point: ActionPoint) -> dict:
    taken = {symbol.name for symbol in point.action.symbols}
    return {name: value for name, value in point.values.items() if name in taken}


def _average_of(action: Action) -> str:
    average = max(action.expression.atoms(GaussianAverage), key=lambda node: node.count_ops())
    return f"the average {shown(average)}"


def check_scale(points: Sequence[ActionPoint]) -> Result | None:
    """How each term grows with the number that the action is said to be proportional to."""
    action = points[0].action
    numbers = [symbol for symbol in action.scale.free_symbols if symbol in action.parameters]
    if not numbers or any(symbol in action.sizes for symbol in numbers):
        return None
    claim = f"no term grows faster than the scale {action.scale}, and one grows with it"
    powers = np.array([_power(action, term, points, numbers) for term in action.terms])
    known = powers[np.isfinite(powers)]
    if len(known) and np.max(known) < 1.01 and np.max(known) > 0.99:
        return Passed(claim, f"powers from {np.min(known):.2g} to {np.max(known):.2g}")
    worst = int(np.nanargmax(powers)) if len(known) else 0
    return Finding(
        claim,
        f"the term {shown(action.terms[worst])} goes as the power {powers[worst]:.3g} of {action.scale}",
        "a factor of the scale is missing, or stands once too often",
    )


def _power(action: Action, term: Expr, points: Sequence[ActionPoint], numbers: list[Expr]) -> float:
    """The power of the scale that a term grows with, the median over points."""
    found = []
    for point in points:
        values = point.values
        doubled = {**values, **{symbol.name: 2 * values[symbol.name] for symbol in numbers}}
        before, after = value_of(term, values), value_of(term, doubled)
        by = value_of(action.scale, doubled) / value_of(action.scale, values)
        found.append(np.log(abs(after / before)) / np.log(abs(by)) if before else np.nan)
    return float(np.nanmedian(found))
