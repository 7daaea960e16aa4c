"""An action of nonlinear hidden units for `theorykit.saddle`, and the kernel from which it predicts."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Expr
from sympy.matrices.expressions.matexpr import MatrixExpr

from ... import saddle
from ...checks import by_name, checked_instance, finite_array
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Folded, Items, Text, verbatim
from ..action.action import Action
from ..action.document import kinds_of_layers
from ..evaluation.prediction import Prediction, prediction_from_kernels
from ..evaluation.problem import Problem
from ..features.implicit import ImplicitFeatures


@dataclass(frozen=True, eq=False, repr=False)
class NonlinearAction(DisplayMixin):
    """An action of nonlinear hidden units, with other order parameters than `bpkr.Action`.

    - `action`: S as a `theorykit.saddle` action. `action.derivation` has the steps beyond the derivation of `base`.
    - `kernel`: K as a function of the order parameters.
    - `base`: the action from `bpkr.derive`, whose symbols and energy are used.
    - `ansatz`: assumptions in words that are not exact in any limit.
    """

    action: saddle.Action
    kernel: MatrixExpr
    base: Action
    ansatz: tuple[str, ...]

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Nonlinear action** of the layers: {kinds_of_layers(self.base)}. Its assumptions:")
        yield Items(self.ansatz)
        yield Folded("**Action**: `.action`", tuple(self.action.summary().blocks), is_open=True)


class AbstractNonlinearProblem(DisplayMixin, ABC):
    """A problem with other order parameters than the action of `bpkr.derive`.

    - `theory`: the action, its kernel and its ansatz.
    - `values`: the value of every parameter of the action, by symbol.
    """

    problem: Problem
    theory: NonlinearAction
    values: Mapping[Expr, Any]

    def _view(self) -> Iterator[Block]:
        yield Text(f"**{type(self).__name__}**: {verbatim(self.problem.description)}")
        yield from self.theory.summary().blocks

    @abstractmethod
    def solve(self, **options: Any) -> saddle.Solution:
        """Find the stationary point. `options` are passed to the function of `theorykit.saddle` that finds it."""

    @usual_settings()
    def predict(
        self, point: saddle.Solution | Mapping[Expr | str, ArrayLike], test_features: ImplicitFeatures | None = None
    ) -> Prediction:
        """Predict outputs on test examples.

        Args:
            point: a solution, or the order parameters by symbol or name.
            test_features: path features of test examples; by default the test features of the problem's data.
        """
        problem, test_features = self.problem, self.problem.test_features(test_features)
        kernels = self._kernels(order_parameters_of(self.theory, point), test_features)
        labels = problem.data.labels
        found = problem.finite(prediction_from_kernels(problem.bound, *kernels, labels.reshape(-1, 1)))
        mean, variance = (array.reshape(-1, *labels.shape[1:]) for array in (found.mean, found.variance))
        return Prediction(mean, variance, problem.ansatz)

    @abstractmethod
    def _kernels(self, point: Mapping[Expr, Array], test_features: ImplicitFeatures) -> tuple[Array, Array, Array]:
        """Compute K among training examples, K between test and training examples, and its test diagonal."""


def order_parameters_of(
    theory: NonlinearAction, point: saddle.Solution | Mapping[Expr | str, ArrayLike]
) -> Mapping[Expr, Float[Array, "..."]]:
    """Return the order parameters of a solution, or of a complete mapping by symbol or name."""
    checked_instance("point", point, (saddle.Solution, Mapping), "a Solution, or order parameters by name")
    given = point.order_parameters if isinstance(point, saddle.Solution) else point
    named = by_name("point", given)
    symbols = tuple(theory.action.order_parameters)
    if set(named) != {symbol.name for symbol in symbols}:
        raise ValueError(f"point must have the order parameters {[each.name for each in symbols]}, got {sorted(named)}")
    return {symbol: finite_array(symbol.name, named[symbol.name]) for symbol in symbols}
