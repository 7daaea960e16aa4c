"""Check your own action for mistakes in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sympy import Expr

from ...checks import Count, Index, Seed, by_name, checked_arguments, counted, shown
from ...codegen import interpret, quadrature_error
from ...precision import require_float64
from ...saddle import Action, Between, Solution, search
from ...saddle.bound_action import Values
from ...saddle.solve import end_points, one_of
from ...symbolic import GaussianAverage
from ..report import Finding, Report, check_slopes_agree, report_of, slope_at_zero
from .explanations import Reference, check_reference
from .points import ActionPoint, random_points, value_of

Sampled = Callable[[int], Mapping[Any, tuple[float, float]]]
"""Function that simulates a system of a given size, and returns mean and standard error of every order parameter."""

# Number of sets of parameters.
_GROUPS = 3
# Number of points per set. Two more points than terms of an action are enough to decide a fit.
_POINTS = 8
# Default sizes of finite systems.
_SIZES = (50, 200, 800)
# Largest relative rounding error of the action.
_ROUNDING = 1e-9
# Largest relative error of an action with Gaussian averages, which are computed by quadrature.
_AVERAGES = 1e-6
# Step of finite differences.
_STEP = 1e-3
# Number of starts of the search for stationary points.
_STARTS = 16
# Absolute coordinate beyond which an order parameter is at the edge of its interval.
_EDGE = 8.0
# Allowed deviation of a sampled mean, in standard errors.
_ERRORS = 4.0
_PACKAGE = "both come from the same expression: a mistake of the package"


@checked_arguments
def check_action(
    action: Action,
    values: Values | None = None,
    *,
    index: Index | None = None,
    reference: Reference | None = None,
    sampled: Sampled | None = None,
    sizes: Sequence[Count] = _SIZES,
    seed: Seed = 0,
    progress: bool = True,
) -> Report:
    """Check an action for mistakes: its expression, the equations that follow from it, and the generated code.

    Mistakes are findings of the report and do not raise errors. The check takes a few seconds.

    Args:
        action: the action.
        values: values of the parameters for the check. The default is random numbers of order one.
        index: index of the expected stationary point, 0 for a minimum. Without it, no stationary point is searched for.
        reference: the same action in plain NumPy, as a function of all symbols by name. It may differ by a constant
            that depends only on the parameters. The report explains any other difference.
        sampled: `sampled(size)` returns, for a finite system at `values`, the mean and the standard error of each order
            parameter by name. Their distance from the saddle point must fall with the `sizes`.
        sizes: sizes of the finite systems, at least two.
        seed: seed of all random numbers. The same seed gives the same report.
        progress: report progress if the check takes longer than a second.

    Returns:
        The findings, the checks that passed, and the checks that were left out.

    Raises:
        ValueError: `sampled` is given without `index` or `values`, or there are fewer than two `sizes`.

    Example:
        >>> import theorykit
        >>> import numpy as np
        >>> from sympy import cosh, log, symbols
        >>> from theorykit import testing
        >>> from theorykit.saddle import Action, Real
        >>> theorykit.enable_float64()
        >>> m, beta = symbols("m", real=True), symbols("beta", positive=True)
        >>> wrong = Action(m**2 / 2 - log(cosh(beta * m)), {m: Real()}, [beta])
        >>> report = testing.check_action(
        ...     wrong, reference=lambda m, beta: m**2 / 2 - np.log(np.cosh(beta * m)) / beta
        ... )
        >>> report.findings[0].measured
        'the reference has 1 / beta times the term -log(cosh(beta*m))'
    """
    require_float64()
    if sampled is not None and (index is None or values is None):
        raise ValueError("sampled is compared with a saddle point: pass its index, and the values of the parameters")
    if len(sizes) < 2:
        raise ValueError(f"sizes must have at least two entries, to measure how the distance falls; got {len(sizes)}")
    left_out: list[str] = []

    def results() -> Iterator[Finding]:
        groups = random_points(action, values, _GROUPS, _POINTS, seed)
        points = [point for group in groups for point in group]
        if action.derivation is None:
            left_out.append("the steps that led to it: none were recorded")
        else:
            claim, verification = "every step of the derivation holds", action.derivation.verify(seed)
            for evidence in verification.failures:
                step = evidence.step
                yield Finding(
                    claim,
                    f"step {action.derivation.steps.index(step) + 1}, {step.rule}: {evidence}",
                    f"the result of the step does not follow from its start: {step.claim}",
                )
            if verification.holds:
                yield Finding(claim, counted(len(verification.evidence), "step"))
        finite = _check_finite(points)
        yield finite
        if not finite.holds:
            left_out.append("everything else, because the action is not defined everywhere")
            return
        yield from _check_code(points, seed)
        numbers = [symbol for symbol in action.scale.free_symbols if symbol in action.parameters]
        if numbers and not any(symbol in action.sizes for symbol in numbers):
            yield _check_scale(points, numbers)
        if reference is None:
            left_out.append("the action against your own in NumPy: pass reference=...")
        else:
            yield check_reference(groups, reference)
        if index is None:
            left_out.append("where it is stationary: pass index=..., 0 for a minimum")
            return
        named = {symbol.name: points[0].parameters[symbol.name] for symbol in action.parameters}
        found = search(action, named, index=index, starts=_STARTS, seed=seed, progress=progress)
        kind = "minimum" if index == 0 else f"stationary point of index {index}"
        claim = f"the action has a {kind}"
        if found:
            reached = sum(solution.stats["reached"] for solution in found)
            at = "; ".join(solution.place for solution in found[:3])
            yield Finding(claim, f"{len(found)} from {reached} of {_STARTS} starts, at {at}")
            eigenvalues = [np.abs(np.asarray(solution.hessian_eigenvalues)) for solution in found]
            ratios = [np.min(each) / np.max(each) for each in eigenvalues]
            least, place = min(ratios), found[int(np.argmin(ratios))].place
            if least > 1e-9:
                said, meaning = f"eigenvalues of the Hessian differ by at most a factor {1 / least:.3g}", ""
            else:
                said = f"an eigenvalue of the Hessian is {least:.1g} of the largest at {place}"
                meaning = "a coupling term is missing, or there is a continuous symmetry"
            yield Finding("the action fixes every order parameter", said, meaning)
        else:
            yield Finding(claim, *_without_solution(points[0], named, index, seed, progress))
        if sampled is None:
            left_out.append("the saddle point against finite systems: pass sampled=...")
        elif found:
            yield _check_finite_size(found, sampled, sizes)

    cost = f"usually a few seconds{', and the time of your simulations' if sampled and index is not None else ''}"
    return report_of("The action", results(), left_out, cost=cost, progress=progress)


def _check_finite(points: Sequence[ActionPoint]) -> Finding:
    claim = "the action is a real number everywhere in the domains of its order parameters"
    action, terms = points[0].action, np.array([point.terms() for point in points])
    bad = ~np.isfinite(terms)
    if not np.any(bad):
        return Finding(claim, f"at {len(points)} random points")
    at = int(np.argmax(np.sum(bad, axis=0)))
    term, where = action.terms[at], points[int(np.argmax(bad[:, at]))]
    inside = [symbol for symbol in action.order_parameters if term.has(symbol)]
    domains = ", ".join(f"{action.order_parameters[symbol]} of {symbol}" for symbol in inside)
    return Finding(
        claim,
        f"the term {shown(term)} is undefined at {np.sum(bad[:, at])} of {len(points)} points, such as {where.place}",
        f"the domain {domains} is too wide for this term, or its argument has the wrong sign",
    )


def _check_code(points: Sequence[ActionPoint], seed: int) -> Iterator[Finding]:
    """Compare the generated code with the expression: averages, then terms, then slopes."""
    action, errors, average = points[0].action, [], ""
    if action.has_averages:
        taken = {symbol.name for symbol in action.symbols}
        most = max(action.expression.atoms(GaussianAverage), key=lambda node: node.count_ops())
        average = f"the average {shown(most)}"
        for point in points[:6]:
            size = max(float(np.max(np.abs(point.bound.terms(point.coordinates)))), 1.0)
            values = {name: value for name, value in point.values.items() if name in taken}
            errors.append(float(quadrature_error(action.expression, values)) / size)
        said = f"the error of quadrature is at most {max(errors):.3g} of the action's size"
        meaning = "" if max(errors) < _AVERAGES else f"{average} is steep: use more nodes, or a closed form"
        yield Finding("Gaussian averages are resolved by their nodes", said, meaning)
        if meaning:  # all values would differ
            return

    claim, errors = "the compiled action agrees with the expression", []
    for point in points[:6]:
        expected, found = point.terms(), np.asarray(point.bound.terms(point.coordinates))
        errors.append(np.max(np.abs(found - expected)) / max(np.max(np.abs(expected)), 1.0))
    # Generated code uses Gauss-Hermite quadrature, whereas the interpreter integrates adaptively.
    if max(errors) < (_AVERAGES if action.has_averages else _ROUNDING):
        yield Finding(claim, f"to {max(errors):.1g}")
    else:
        meaning = (
            f"{average} is not resolved: use more nodes" if average else f"the generated code is wrong; {_PACKAGE}"
        )
        yield Finding(claim, f"they differ by {max(errors):.3g} of their size", meaning)

    rng, symbolic, automatic = np.random.default_rng(seed), [], []
    for point in points[:3]:
        step = rng.standard_normal(point.coordinates.shape) / np.sqrt(len(point.coordinates))
        expected = slope_at_zero(lambda t, at=point, by=step: float(np.sum(at.moved(t * by).terms())), _STEP)

        def order_parameters(t, point=point, step=step):
            return point.bound.values(point.bound.moved(point.coordinates, t * jnp.asarray(step)))

        _, changes = jax.jvp(order_parameters, (jnp.zeros(()),), (jnp.ones(()),))
        slopes = {symbol.name: interpret(equation, point.values) for symbol, equation in point.action.equations.items()}
        along = sum(np.sum(np.asarray(slope) * np.asarray(changes[name])) for name, slope in slopes.items())
        symbolic.append((float(along), expected))
        slope = np.asarray(point.bound.slopes(point.coordinates, jnp.zeros_like(point.coordinates))[0])
        automatic.append((float(slope @ step), expected))
    meaning = f"a rule of the differential is wrong, or an average not resolved; {_PACKAGE}"
    yield check_slopes_agree("the saddle-point equations are the gradient of the action", symbolic, meaning)
    yield check_slopes_agree("the compiled gradient agrees with the gradient of the action", automatic, meaning)


def _check_scale(points: Sequence[ActionPoint], numbers: Sequence[Expr]) -> Finding:
    action = points[0].action
    claim = f"no term grows faster than the scale {action.scale}, and one grows with it"
    powers = []
    for term in action.terms:
        found = []
        for point in points:
            values = point.values
            doubled = {**values, **{symbol.name: 2 * values[symbol.name] for symbol in numbers}}
            before, after = value_of(term, values), value_of(term, doubled)
            by = value_of(action.scale, doubled) / value_of(action.scale, values)
            found.append(np.log(abs(after / before)) / np.log(abs(by)) if before else np.nan)
        powers.append(float(np.nanmedian(found)))
    known = [power for power in powers if np.isfinite(power)]
    if known and 0.99 < max(known) < 1.01:
        return Finding(claim, f"powers from {min(known):.2g} to {max(known):.2g}")
    worst = int(np.nanargmax(powers)) if known else 0
    return Finding(
        claim,
        f"the term {shown(action.terms[worst])} scales as the power {powers[worst]:.3g} of {action.scale}",
        "a factor of the scale is missing, or occurs once too often",
    )


def _without_solution(point: ActionPoint, values: Mapping, index: int, seed: int, progress: bool) -> tuple[str, str]:
    action, coordinates, none = point.action, len(point.bound.free), f"none from {_STARTS} starts"
    for other in range(min(coordinates, 6) + 1):
        if other == index:
            continue
        if elsewhere := search(action, values, index=other, starts=_STARTS, seed=seed, progress=progress):
            kind = "minima" if other == 0 else f"points of index {other}"
            meaning = f"a sign, or the number of order parameters in which the action is maximal: index={other}?"
            if other == coordinates - index:
                meaning = "the sign of the whole action, which turns minima into maxima"
            return f"{none}, but {kind}, as at {elsewhere[0].place}", meaning
    # Solves without a stationary point end at the edge of an interval, or far away.
    ends = end_points(action, values, index=index, starts=_STARTS, seed=seed)
    domains = {symbol.name: domain for symbol, domain in action.order_parameters.items()}
    for solution in (one_of(ends, at) for at in range(_STARTS)):
        for name, coordinate in zip(solution.owners, np.asarray(solution.stats["coordinates"]), strict=True):
            if isinstance(domains[name], Between) and abs(coordinate) > _EDGE:
                edge = domains[name].high if coordinate > 0 else domains[name].low
                meaning = f"the domain {domains[name]} of {name} is too narrow, or a term that bounds it is missing"
                return f"{none}; {name} runs to the edge {edge:g} of its domain", meaning
    return (
        f"{none}: {solution.diagnosis}",
        "a term that bounds the action is missing, or has the wrong sign; or an order parameter is not fixed by it",
    )


def _check_finite_size(found: Sequence[Solution], sampled: Sampled, sizes: Sequence[int]) -> Finding:
    samples = [by_name("sampled", sampled(size)) for size in sizes]
    last = samples[-1]
    # If there are several saddle points, compare finite systems with the nearest one.
    nearest = min(found, key=lambda solution: sum(abs(float(solution[name]) - last[name][0]) for name in last))
    worst, lines = 0.0, []
    for name in last:
        limit = float(nearest[name])
        off = [sample[name][0] - limit for sample in samples]
        # Fluctuations fall at least as fast as one over the square root of the size.
        allowed = _ERRORS * last[name][1] + abs(off[0]) * (sizes[0] / sizes[-1]) ** 0.5
        lines.append(f"{name}: {', '.join(f'{value:+.2g}' for value in off)} off {limit:.4g}")
        worst = max(worst, abs(off[-1]) / max(allowed, 1e-300))
    return Finding(
        "order parameters of finite systems tend to the saddle point",
        f"at sizes {', '.join(map(str, sizes))}, {'; '.join(lines)}",
        "" if worst <= 1 else "the action does not describe the sampled system: a factor or a term is wrong",
    )
