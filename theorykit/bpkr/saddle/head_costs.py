"""The cost of leaving out each attention head, in log evidence and in predictions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from ..._jit import usual_settings
from ...checks import checked_instance, refuse_traced
from ...runs import bar
from ...saddle.diagnosis import ConvergenceWarning
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Table, verbatim
from ..data.classes import mean_and_error, outputs_as_classes
from ..evaluation.problem import Problem, as_problem
from ..evaluation.values import predict
from ..features.implicit import ImplicitFeatures
from ..network.network import Head
from .solve import Saddle, solve

PerHead = tuple[Float[Array | np.ndarray, " _"], ...]


@dataclass(frozen=True, repr=False)
class HeadCosts(DisplayMixin):
    """Costs of leaving out single heads, one array (H_l,) per layer.

    A cost is positive if the network is better with the head, NaN if a solve failed.
    Costs do not add up: either one of two redundant heads costs nothing.

    - `log_evidence`, `log_evidence_error`: to leading order in the widths, with rounding
      errors; per N_1 at infinite width with a richness.
    - `prediction`, `prediction_error`: in `measure`, "expected accuracy" of a posterior
      network or "expected squared error", with standard errors over test examples.
    """

    log_evidence: PerHead
    log_evidence_error: PerHead
    prediction: PerHead
    prediction_error: PerHead
    measure: str

    def _view(self):
        layers = enumerate(self.log_evidence, 1)
        heads = [Head(layer, i + 1) for layer, each in layers for i in range(len(each))]
        columns = {"log evidence lost": self.log_evidence}
        if self.measure:
            columns[f"cost in {self.measure}"] = self.prediction
            columns["± standard error"] = self.prediction_error
        values = np.stack([np.concatenate(each) for each in columns.values()], axis=1)
        order = np.argsort(values[:, 0])
        rows = [(verbatim(heads[i]), *(f"{value:.3g}" for value in values[i])) for i in order]
        yield Table(tuple(rows), ("head left out", *columns))


@usual_settings()
def head_costs(problem: Problem, saddle: Saddle, *, progress: bool = True, **options: Any) -> HeadCosts:
    """Measure the cost of leaving out each attention head.

    Its contribution becomes zero, and the factor 1/sqrt(H_l) stays. Each head takes
    one solve, from `saddle`.

    Args:
        problem: the architecture with training data, and any test data.
        saddle: the result of `solve` for it.
        options: keywords of `solve`.

    Raises:
        ValueError: the network has no heads, or heads share a weight block.

    Warns:
        ConvergenceWarning: solves failed.
    """
    refuse_traced("head_costs", problem, saddle)
    problem = as_problem(problem)
    checked_instance("saddle", saddle, Saddle)
    architecture, point = problem.architecture, problem.point(saddle, "saddle")
    if not any(architecture.heads):
        raise ValueError("the architecture has no heads")
    if architecture.between:
        raise ValueError("heads below nonlinear units cannot be left out: the noise depends on them")
    branches, stays = np.array(architecture.path_branches()) - 1, {}
    for layer, count in enumerate(architecture.heads, 1):
        through = architecture.branch_heads(layer)
        if np.any(np.sum(through, axis=1) > 1):
            raise ValueError(f"heads of layer {layer} share a weight block")
        for head in range(count):
            stays[Head(layer, head + 1)] = ~through[branches[:, layer - 1], head]
    measure, quality = _expected(problem, point)
    rows, failed = np.full((len(stays), 4), np.nan), []
    with bar("heads left out", len(stays), "head", shown=progress) as report:
        for row, (head, staying) in zip(rows, stays.items(), strict=True):
            without = _without(problem, staying)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = solve(without, initial=point, **options)
            if found.converged:
                lost = quality - _expected(without, found.order_parameters)[1]
                row[0] = saddle.log_evidence - found.log_evidence
                # S is minus twice the log evidence.
                row[1] = (saddle.action_error + found.action_error) / 2
                row[2:] = mean_and_error(lost) if measure else 0.0
            else:
                failed.append(f"{head}: {found.diagnosis}")
            report.update(1)
    if failed:
        said = f"{len(failed)} of {len(stays)} solves failed: {'; '.join(failed)}"
        warnings.warn(said, ConvergenceWarning, stacklevel=3)
    layers = np.split(rows, np.cumsum(architecture.heads)[:-1])
    *evidence, cost, error = (tuple(layer[:, i] for layer in layers) for i in range(4))
    prediction = (cost, error) if measure else ((), ())
    return HeadCosts(*evidence, *prediction, measure)


def _without(problem: Problem, stays: np.ndarray) -> Problem:
    """Leave out features of other paths. Paths without features cost no evidence."""

    def restricted(features):
        if isinstance(features, ImplicitFeatures):
            return replace(features, readings=features.readings * stays)
        return None if features is None else features * stays[:, None]

    data, names = problem.data, ("features", "test_features")
    parts = {name: restricted(getattr(data, name)) for name in names}
    return Problem(problem.architecture, replace(data, **parts))


def _expected(problem: Problem, point) -> tuple[str, np.ndarray]:
    """Return mean accuracies, or minus squared errors, of posterior networks."""
    if problem.data.test_labels is None:
        return "", np.zeros(0)
    prediction = predict(problem, point)
    labels = np.asarray(problem.data.test_labels)
    variance = np.asarray(prediction.variance) * (not problem.architecture.has_sharp_outputs)
    classes, truth = outputs_as_classes(labels)
    if classes is not None:
        probabilities = np.asarray(classes.probabilities(prediction.mean, variance))
        return "expected accuracy", probabilities[np.arange(len(truth)), truth]
    errors = np.asarray((prediction.mean - labels) ** 2) + variance
    return "expected squared error", -errors.reshape(len(labels), -1).mean(axis=1)
