"""Majorise-minimise: an upper bound of the energy whose minimum, one order parameter at a time, is a closed form.

Part of stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. At a
given U_1 = U_0 let G_+ be the gradient of the energy's log-determinant and G_- minus that of its misfit. The first is
concave in U_1 and below its tangent; the second is a convex function of the inverse, and below tr(U_0 G_- U_0 U_1^-1)
up to a constant. The bound touches the energy at U_0 with the same gradient: to lower it lowers the action.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Add, Expr, Inverse, MatrixSymbol

from ...derivation import Step, rules
from ...symbolic import gradient, positive_definite, trace


@dataclass(frozen=True)
class Majoriser:
    """A bound of the energy, and the minimum of entropy plus bound in each order parameter given the others.

    - `logdet_gradient`, `weight`: symbols of G_+ and of U_0 G_- U_0 (n_1 x n_1).
    - `bound`: tr(G_+ U_1) + tr(weight U_1^-1), the energy's bound up to a constant.
    - `minima`: from U_1 to the readout. Empty where some have no closed form, as beside a skip connection.
    - `steps`: the Riccati equation of U_1 and its solution.
    """

    logdet_gradient: MatrixSymbol
    weight: MatrixSymbol
    bound: Expr
    minima: Mapping[Expr, Expr]
    steps: tuple[Step, ...]


def majorise(entropy: Expr, u1: MatrixSymbol, others: Mapping[Expr, Expr] | None) -> Majoriser:
    """Bound an energy of U_1, and solve for it.

    `others` are the minima of the other order parameters, None where they have no closed forms.
    """
    logdet_gradient, weight = (positive_definite(name, u1.shape[0]) for name in ("Gplus", "W"))
    bound = trace(logdet_gradient * u1) + trace(weight * Inverse(u1))
    if others is None:
        return Majoriser(logdet_gradient, weight, bound, {}, ())
    try:
        step = rules.riccati(gradient(Add(entropy, bound), u1), u1, section="Closed forms")
    except rules.RuleError:
        return Majoriser(logdet_gradient, weight, bound, {}, ())
    return Majoriser(logdet_gradient, weight, bound, {u1: step.after, **others}, (step,))
