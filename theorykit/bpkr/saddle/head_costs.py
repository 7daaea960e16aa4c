"""Measure the cost of leaving out each attention head, in log evidence and in test predictions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...checks import checked_flag, checked_instance, counted, refuse_traced
from ...progress import Progress
from ...saddle.diagnosis import ConvergenceWarning
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ..data.classes import are_classes, mean_and_error, outputs_as_classes
from ..evaluation.problem import Problem, as_problem
from ..evaluation.values import head_scores, predict
from ..features.implicit import Features, ImplicitFeatures
from ..network.network import Head
from ..order_parameters.order_parameters import OrderParameters, gp_limit
from .saddle import Saddle, solve

PerHead = tuple[Float[Array | np.ndarray, " _"], ...]


@dataclass(frozen=True, repr=False)
class HeadCosts(DisplayMixin):
    """Costs of leaving out single heads, with head scores. Each has one array (H_l,) per layer, empty without heads.

    A cost is positive if the network is better with the head, and NaN if the solve without it failed. Costs do not add
    up: if two heads are redundant, leaving out either one costs nothing. `rank_heads` takes any of these arrays.

    - `log_evidence`: log evidence with all heads minus log evidence without the head, to leading order in the widths.
      At infinite width with a richness it is divided by the width N_1.
    - `log_evidence_error`: rounding error of `log_evidence`. It does not include finite-width corrections.
    - `prediction`: decrease of the probability that a network drawn from the posterior is right, averaged over test
      examples. If labels are not classes, it is the increase of the expected squared error. Empty without test labels.
    - `prediction_error`: standard error of this average over paired test examples.
    - `measure`: "expected accuracy" or "expected squared error"; empty without test labels.
    - `scores`: `head_scores` at the saddle point.
    - `infinite_width_scores`: `head_scores` of the Gaussian process, `gp_limit`.
    - `problem`: the data and the architecture, in words.
    """

    log_evidence: PerHead
    log_evidence_error: PerHead
    prediction: PerHead
    prediction_error: PerHead
    measure: str
    scores: PerHead
    infinite_width_scores: PerHead
    problem: str

    def _view(self) -> Iterable[Block]:
        heads = [Head(layer, i + 1) for layer, each in enumerate(self.scores, 1) for i in range(len(each))]
        yield Text(f"**Costs of {counted(len(heads), 'head')}**: {verbatim(self.problem)}")
        columns = {
            "log evidence lost": self.log_evidence,
            "score": self.scores,
            "score of the Gaussian process": self.infinite_width_scores,
        }
        columns = {name: np.concatenate(each) for name, each in columns.items()}
        order = np.argsort(columns["log evidence lost"])
        cells = [[verbatim(heads[i]) for i in order], *([f"{each[i]:.3g}" for i in order] for each in columns.values())]
        header = ["head left out", *columns]
        if self.measure:
            mean, error = np.concatenate(self.prediction), np.concatenate(self.prediction_error)
            change = "lost" if self.measure == "expected accuracy" else "gained"
            header.insert(2, f"{self.measure} {change}, ± standard error")
            cells.insert(2, [f"{mean[i]:.2g} ± {error[i]:.1g}" for i in order])
        yield Table(tuple(zip(*cells, strict=True)), tuple(header))


@usual_settings()
def head_costs(problem: Problem, saddle: Saddle, *, progress: bool = True, **options: Any) -> HeadCosts:
    """Measure the cost of leaving out each attention head, in log evidence and in predictions of test examples.

    A head is left out by setting its contribution to zero. All other heads keep their prior variances and the factor
    1/sqrt(H_l) of the whole layer, so the path features of the remaining paths do not change. Without the only head of
    a layer the output is zero, unless a skip connection bypasses the layer. Each head takes one solve, which starts
    from `saddle` restricted to the remaining paths.

    Args:
        problem: the architecture with its training data, and test data for costs of predictions.
        saddle: the solution of `problem`, as `solve` returns it.
        progress: show a bar.
        options: keywords of `solve`, such as `tolerance`.

    Raises:
        ValueError: the network has no heads, several heads share a weight block, or at T = 0 the kernel without a head
            is singular.

    Warns:
        ConvergenceWarning: solves failed; the message names their heads.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> features = rng.normal(size=(20, 2, 5)) * np.array([1.0, 0.1])[:, None]  # two heads, the second weak
        >>> data = bpkr.Data(features, rng.choice([-1.0, 1.0], size=20))
        >>> problem = bpkr.Problem(bpkr.Architecture(layers=(2,), widths=10, temperature=0.1), data)
        >>> costs = bpkr.head_costs(problem, bpkr.solve(problem), progress=False)
        >>> bpkr.rank_heads(costs.log_evidence)
        [Head(layer=1, head=2), Head(layer=1, head=1)]
    """
    refuse_traced("head_costs", problem, saddle)
    problem = as_problem(problem)
    checked_instance("saddle", saddle, Saddle, "as bpkr.solve returns it; a Model with widths=math.inf has none")
    checked_flag("progress", progress)
    architecture, data, point = problem.architecture, problem.data, problem.point(saddle, "saddle")
    if not any(architecture.heads):
        raise ValueError("no head can be left out, because the architecture has no heads")
    limit, branches, stays = gp_limit(architecture), np.array(architecture.path_branches()) - 1, {}
    for layer, count in enumerate(architecture.heads, 1):
        through = architecture.branch_heads(layer)
        if np.any(np.sum(through, axis=1) > 1):
            raise ValueError(f"{Head(layer, 1)} cannot be left out, because heads of this layer share a weight block")
        for head in range(count):
            # The paths that do not pass through the head.
            stays[Head(layer, head + 1)] = ~through[branches[:, layer - 1], head]
    measure, quality = _expected(problem, point)
    rows, failed, cost = [], [], problem.description
    with Progress("heads left out", len(stays), "head", shown=progress, cost=cost) as report:
        for head, staying in stays.items():
            # Features of the other paths are zero: their order parameters keep the prior and cost no evidence.
            features, test_features = (_restricted(each, staying) for each in (data.features, data.test_features))
            without = Problem(architecture, replace(data, features=features, test_features=test_features))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = solve(without, initial=_start(point, limit, staying), **options)
                found = found if found.converged else solve(without, **options)
            row = [np.nan] * 4
            if found.converged:
                # S is minus twice the log evidence.
                error = (saddle.action_error + found.action_error) / 2
                lost = quality - _expected(without, found.order_parameters)[1]
                predicted = mean_and_error(lost) if measure else (0.0, 0.0)
                row = [float(saddle.log_evidence - found.log_evidence), float(error), *predicted]
            else:
                failed.append(f"{head}: {found.diagnosis}")
            rows.append(row)
            report.update(1)
    if failed:
        warnings.warn(f"{len(failed)} of {len(stays)} solves failed: {'; '.join(failed)}", ConvergenceWarning, 3)
    layers = np.split(np.array(rows), np.cumsum(architecture.heads)[:-1])
    evidence, evidence_error, prediction, prediction_error = (tuple(layer[:, i] for layer in layers) for i in range(4))
    per_width = "; log evidence is per width N_1" if architecture.is_infinite else ""
    return HeadCosts(
        log_evidence=evidence,
        log_evidence_error=evidence_error,
        prediction=prediction if measure else (),
        prediction_error=prediction_error if measure else (),
        measure=measure,
        scores=head_scores(architecture, point),
        infinite_width_scores=head_scores(architecture, limit),
        problem=f"{problem.description}{per_width}",
    )


def _start(point: OrderParameters, limit: OrderParameters, stays: Bool[np.ndarray, " paths"]) -> OrderParameters:
    """Combine the solution on the remaining paths with the prior on all other paths.

    Newton's method takes up to twice as many steps if it starts from the unrestricted solution.
    """
    matrices = []
    for ours, prior in zip(point.matrices, limit.matrices, strict=True):
        # Rows of partial paths are in an order in which branches of the first layers vary slowest, and outputs fastest.
        rows = np.repeat(stays, len(point.first) // len(stays)).reshape(-1, len(ours)).any(axis=0)
        matrices.append(jnp.where(np.outer(rows, rows), ours, np.outer(~rows, ~rows) * prior))
    return OrderParameters(tuple(matrices), point.readout)


def _restricted(features: Features | None, stays: Bool[np.ndarray, " paths"]) -> Features | None:
    """Set the features of all other paths to zero."""
    if isinstance(features, ImplicitFeatures):
        return replace(features, readings=features.readings * stays)
    return None if features is None else features * stays[:, None]


def _expected(problem: Problem, point: OrderParameters) -> tuple[str, Float[np.ndarray, " examples"]]:
    """Return the expected accuracy, or minus the squared error, of a posterior network for every test example."""
    if problem.data.test_labels is None:
        return "", np.zeros(0)
    prediction, labels = predict(problem, point), np.asarray(problem.data.test_labels)
    variance = np.asarray(prediction.variance) * (not problem.architecture.has_sharp_outputs)
    if are_classes(labels):
        classes, truth = outputs_as_classes(labels)
        probabilities = np.asarray(classes.probabilities(prediction.mean, variance))
        return "expected accuracy", probabilities[np.arange(len(truth)), truth]
    errors = np.asarray((prediction.mean - labels) ** 2) + variance
    return "expected squared error", -errors.reshape(len(labels), -1).mean(axis=1)
