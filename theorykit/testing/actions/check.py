"""One call that looks for mistakes in an action of the user's own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...checks import checked_function, checked_instance, checked_sequence, checked_whole_number
from ...precision import require_float64
from ...saddle import Action
from ...saddle.bound_action import Values
from ..report import Finding, Passed, Report, Result, merged
from .numerics import check_averages, check_compiled, check_finite, check_scale, check_slopes
from .points import ActionPoint, all_of, random_points
from .reference import check_reference
from .samples import Reference
from .solutions import Sampled, check_degenerate, check_finite_size, check_stationary

# sets of parameters, and points at each; two more points than terms of a short action decide a fit
_GROUPS, _POINTS = 3, 8
SIZES = (50, 200, 800)
"""The sizes at which finite systems are sampled if none are given."""


@dataclass(frozen=True)
class ActionReport(Report):
    """What `check_action` found; `print` it."""


def check_action(
    action: Action,
    values: Values | None = None,
    *,
    index: int | None = None,
    reference: Reference | None = None,
    sampled: Sampled | None = None,
    sizes: Sequence[int] = SIZES,
    seed: int = 0,
) -> ActionReport:
    """Whether an action is right: what it states, what follows from it, and what runs.

    Mistakes are findings of the report, not errors; `report.holds` says whether there are none. A few seconds.

    - `values`: of the parameters, at which it is checked; random ones, of order one, if None.
    - `index`: the signature of the stationary point that is wanted, 0 for a minimum; not looked for if None.
    - `reference`: the action once more, in plain NumPy, a function of all symbols by name. It may differ by a constant,
      of the parameters alone. Where it differs otherwise, the report says by what: a sign, a factor, a transpose, two
      symbols exchanged, the variance of an average, a missing term.
    - `sampled`: `sampled(size)` returns, for a finite system at `values`, the mean and the standard error of each order
      parameter by name; their distance from the saddle point must fall with the `sizes`.
    - `seed`: of all that is random; the same seed gives the same report.

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
    checked_instance("action", action, Action)
    for name, function in (("reference", reference), ("sampled", sampled)):
        if function is not None:
            checked_function(name, function)
    if index is not None:
        checked_whole_number("index", index, least=0)
    if sampled is not None and (index is None or values is None):
        raise ValueError("sampled is compared with a saddle point: give its index, and the values of the parameters")
    sizes = checked_sequence("sizes", sizes, "whole numbers")
    if len(sizes) < 2:
        raise ValueError(f"sizes must be two at least, to see how the distance falls; got {len(sizes)}")
    for size in sizes:
        checked_whole_number("sizes", size, least=1)
    seed = checked_whole_number("seed", seed, least=0, most=2**32 - 1)
    groups = random_points(action, values, _GROUPS, _POINTS, seed)
    left_out: list[str] = []
    results = list(_results(action, values, groups, (index, reference, sampled, sizes, seed), left_out))
    return ActionReport("The action", *merged(results), tuple(left_out))


def _results(action, values, groups, asked, left_out: list[str]) -> Iterator[Result]:
    index, reference, sampled, sizes, seed = asked
    points = all_of(groups)
    yield from _derivation(action, points, left_out, seed)
    finite = check_finite(points)
    yield finite
    if isinstance(finite, Finding):
        left_out.append("everything else, for the action is not defined everywhere")
        return
    yield from _numerics(points, seed)
    if reference is None:
        left_out.append("the action against one of yours in NumPy: give reference=...")
    else:
        yield check_reference(groups, reference)
    if index is None:
        left_out.append("where it is stationary: give index=..., 0 for a minimum")
        return
    yield from _solutions(action, groups[0][0], index, sampled, sizes, seed)
    if sampled is None:
        left_out.append("the saddle point against finite systems: give sampled=...")


def _numerics(points: Sequence[ActionPoint], seed: int) -> Iterator[Result]:
    few = points[:6]
    averages = check_averages(few)
    if averages is not None:
        yield averages
    # what is not resolved differs everywhere
    if not isinstance(averages, Finding):
        yield check_compiled(few)
        yield from check_slopes(few[:3], seed)
    scale = check_scale(points)
    if scale is not None:
        yield scale


def _solutions(action: Action, point: ActionPoint, index: int, sampled, sizes, seed) -> Iterator[Result]:
    values: Mapping = {name: point.parameters[name] for name in (symbol.name for symbol in action.parameters)}
    found, result = check_stationary(action, point.bound, values, index, seed)
    yield result
    if found:
        yield check_degenerate(found)
    if found and sampled is not None:
        yield check_finite_size(found, sampled, sizes)


def _derivation(action: Action, points: Sequence[ActionPoint], left_out: list[str], seed: int) -> Iterator[Result]:
    if action.derivation is None:
        left_out.append("the steps that led to it: none were recorded")
        return
    claim = "every step of the derivation holds"
    verification = action.derivation.verify(seed)
    for evidence in verification.failures:
        step = evidence.step
        yield Finding(
            claim,
            f"step {action.derivation.steps.index(step) + 1}, {step.rule}: {evidence}",
            f"what the step arrives at does not follow from what it starts from: {step.claim}",
        )
    if verification.holds:
        yield Passed(claim, f"{len(verification.evidence)} steps")
