"""What both theories of this room are: an action for `theorykit.saddle`, and the kernel that it predicts from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Expr
from sympy.matrices.expressions.matexpr import MatrixExpr

from ... import saddle
from ...arguments import checked_instance
from ..action.action import Action
from ..data.checks import checked_results, finite_array
from ..evaluation.bound_action import BoundAction
from ..evaluation.prediction import Prediction, prediction_from_kernels
from ..specification.ansatz import ansatz_of


@dataclass(frozen=True, eq=False)
class NonlinearAction:
    """An action of nonlinear hidden units, in other order parameters than those of `bpkr.Action`.

    - `action`: S, as `theorykit.saddle` takes any action; `action.derivation` has the steps beyond those of `base`.
    - `kernel`: K, in its order parameters.
    - `base`: what `bpkr.derive` makes of the architecture, whose symbols and energy it has.
    - `ansatz`: what it assumes that no limit makes exact, in words.
    """

    action: saddle.Action
    kernel: MatrixExpr
    base: Action
    ansatz: tuple[str, ...]


def energy_at(base: Action, kernel: MatrixExpr) -> Expr:
    """The derived energy of another kernel."""
    return base.energy.xreplace({base.kernel: kernel})


def order_parameters_of(
    theory: NonlinearAction, point: saddle.Solution | Mapping[Expr | str, ArrayLike]
) -> Mapping[Expr, Float[Array, "..."]]:
    """The order parameters at a solution, or those given by symbol or by name, of which none may be missing."""
    checked_instance("point", point, (saddle.Solution, Mapping), "a Solution, or order parameters by name")
    given = point.order_parameters if isinstance(point, saddle.Solution) else point
    named = {getattr(key, "name", key): value for key, value in given.items()}
    symbols = tuple(theory.action.order_parameters)
    if set(named) != {symbol.name for symbol in symbols}:
        raise ValueError(f"point has {sorted(named)}, but the order parameters are {[each.name for each in symbols]}")
    return {symbol: finite_array(symbol.name, named[symbol.name]) for symbol in symbols}


def predict_from_kernels(
    bound: BoundAction,
    kernel: Float[Array, "rows rows"],
    between: Float[Array, "testrows rows"],
    test_diagonal: Float[Array, " testrows"],
    labels: Float[Array, "examples *outputs"],
) -> Prediction:
    """Mean and variance of the outputs on test examples, Eqs. (9), (29), (30), from kernels."""
    found = checked_results(_predicted(bound, kernel, between, test_diagonal, labels), bound.architecture)
    return replace(found, ansatz=ansatz_of(bound.architecture, labels.size))


_predicted = jax.jit(prediction_from_kernels)
