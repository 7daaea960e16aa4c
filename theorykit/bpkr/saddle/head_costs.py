"""The log evidence that is lost without each attention head."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ..._jit import usual_settings
from ...checks import checked_instance, refuse_traced
from ...runs import bar
from ...saddle.diagnosis import ConvergenceWarning
from ..evaluation.problem import Problem, as_problem
from ..evaluation.values import evaluate
from ..features.implicit import ImplicitFeatures
from ..network.network import Head
from .solve import Saddle, solve


@usual_settings()
def head_costs(
    problem: Problem, saddle: Saddle, *, progress: bool = True, **options: Any
) -> tuple[Float[np.ndarray, " _"], ...]:
    """Measure the log evidence that is lost without each attention head.

    The contribution of the head becomes zero, and the factor 1/sqrt(H_l) stays. Each
    head takes one solve, from `saddle`. Costs do not add up: either one of two
    redundant heads costs nothing.

    Args:
        problem: the architecture with training data.
        saddle: the result of `solve` for it.
        options: keywords of `solve`.

    Returns:
        One array (H_l,) per layer, to leading order in the widths, and per N_1 at
        infinite width with a richness. A cost is NaN if the solve failed.

    Raises:
        ValueError: no heads, heads that share a weight block or are below nonlinear
            units, or another problem.
    """
    refuse_traced("head_costs", problem, saddle)
    problem = as_problem(problem)
    checked_instance("saddle", saddle, Saddle, "the Gaussian process has none")
    architecture, point = problem.architecture, problem.point(saddle, "saddle")
    found = evaluate(problem, point).total
    if not np.isclose(found, saddle.action, rtol=1e-6, atol=1e-6):
        raise ValueError(f"saddle is of another problem: its action is {saddle.action:.6g}, here {found:.6g}")
    if not any(architecture.heads):
        raise ValueError("the architecture has no heads")
    if architecture.between:
        raise ValueError("heads below nonlinear units cannot be left out: the noise depends on them")
    branches = np.array(architecture.path_branches()) - 1
    stays = {}
    for layer, count in enumerate(architecture.heads, 1):
        through = architecture.branch_heads(layer)
        if np.any(np.sum(through, axis=1) > 1):
            raise ValueError(f"heads of layer {layer} share a weight block")
        for head in range(count):
            stays[Head(layer, head + 1)] = ~through[branches[:, layer - 1], head]
    costs, failed = [], []
    with bar("heads left out", len(stays), "head", shown=progress) as report:
        for head, staying in stays.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = solve(_without(problem, staying), initial=point, **options)
            costs.append(float(saddle.log_evidence - found.log_evidence) if found.converged else np.nan)
            if not found.converged:
                failed.append(f"{head}: {found.diagnosis}")
            report.update(1)
    if failed:
        said = f"{len(failed)} of {len(stays)} solves failed: {'; '.join(failed)}"
        warnings.warn(said, ConvergenceWarning, stacklevel=3)
    return tuple(np.split(costs, np.cumsum(architecture.heads)[:-1]))


def _without(problem: Problem, stays: np.ndarray) -> Problem:
    # Paths without features cost no evidence.
    features = problem.data.features
    if isinstance(features, ImplicitFeatures):
        features = replace(features, readings=features.readings * stays)
    else:
        features = features * stays[:, None]
    return Problem(problem.architecture, replace(problem.data, features=features))
