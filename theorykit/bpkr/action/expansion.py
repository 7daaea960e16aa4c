"""The saddle point about the Gaussian-process limit, to first order in one over the widths.

At fixed number of examples the energy is of order one and the entropies grow with the widths, so the order parameters
move from their prior means by linear response: a force G_l = dE/dU_l on each layer, passed on towards the readout, and
displacements passed back.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Add, Expr, Identity, MatrixSymbol, Trace, expand
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Derivation, Recorder, Step, rules
from ...derivation.claims import SolvesToFirstOrder
from ...symbolic import positive_definite
from ...symbolic.algebra import expand_products
from ...symbolic.atoms import embed, principal_block
from ..specification.layer_form import LayerForm
from .symbols import ActionSymbols


@dataclass(frozen=True)
class FirstOrder:
    """Order parameters to first order in one over the widths.

    - `derivation`: every step.
    - `force`: G_1, the gradient of the energy in U_1 at the Gaussian-process limit, symmetric (n_1 x n_1).
    - `limit`: their values M_l at infinite width.
    - `recursion`: forces G_l from the first layer on, then displacements delta_l from the readout back.
    - `order_parameters`: M_l + delta_l with the recursion run through, linear in G_1.
    """

    derivation: Derivation
    force: MatrixSymbol
    limit: Mapping[MatrixSymbol, MatrixExpr]
    recursion: tuple[tuple[MatrixSymbol, MatrixExpr], ...]
    order_parameters: Mapping[MatrixSymbol, MatrixExpr]


def expand_about_infinite_width(
    forms: tuple[LayerForm, ...],
    symbols: ActionSymbols,
    entropies: tuple[Expr, ...],
    nested: Mapping[MatrixSymbol, MatrixExpr],
    sizes: tuple[Mapping[Expr, int], ...],
) -> FirstOrder:
    """Expand the saddle point of the sum of `entropies` and an energy of U_1 about infinite width.

    `entropies` and `nested` are in the matrices U_1, ..., U_{L+1}; `sizes` to try the steps at.
    """
    overlaps = symbols.overlaps
    route = Recorder(section="Expansion", assumptions=("number of examples fixed, all widths large",))
    means, forces, displacements = (
        tuple(positive_definite(f"{name}_{i}", u.shape[0]) for i, u in enumerate(overlaps, 1))
        for name in ("M", "G", "delta")
    )
    # the prior means, from the readout on: the minimum of the entropies
    limit = {overlaps[-1]: symbols.variances[-1] * Identity(overlaps[-1].shape[0])}
    for form, variable, outer in reversed(list(zip(forms, overlaps, overlaps[1:], strict=False))):
        limit[variable] = expand_products(form.prior_mean(limit[outer]))
    passed_on, passed_back = [], []
    for number, (variable, mean, force) in enumerate(zip(overlaps, means, forces, strict=True)):
        displacement = route.apply(rules.linear_response, entropies[number], variable, mean, force)
        if number < len(forms):
            form, outer = forms[number], overlaps[number + 1]
            if form.has_skip:
                # the leading block is U_{l+1}, which answers to its own layer's entropy
                parts = (outer.shape[0], expand(form.blocks * outer.shape[0]))
                of_outer = embed(principal_block(displacement, parts, 0), parts, 0)
                displacement = expand_products(displacement - of_outer)
            displacement = expand_products(displacement + form.prior_mean(displacements[number + 1]))
            on_outer = route.apply(rules.derivative, Trace(force * form.prior_mean(outer)), outer)
            passed_on.append((forces[number + 1], on_outer))
        passed_back.append((displacements[number], displacement))
    # forces from the input to the readout, then displacements back
    recursion = (*passed_on, *reversed(passed_back))
    values = {mean: limit[u] for mean, u in zip(means, overlaps, strict=True)}
    for symbol, value in recursion:
        values[symbol] = expand_products(value.xreplace(values))
    displaced = {u: values[delta] for u, delta in zip(overlaps, displacements, strict=True)}
    total = substitute_nested(Add(*entropies), nested)
    free = {variable: limit[variable] for variable in overlaps if variable not in nested}
    for variable in free:
        claim = SolvesToFirstOrder(variable, tuple(free.items()), tuple(displaced.items()), forces[0])
        route.apply(_first_order, total, displaced[variable], claim)
    moved = {variable: expand_products(limit[variable] + change) for variable, change in displaced.items()}
    return FirstOrder(Derivation(tuple(route.steps), sizes), forces[0], limit, recursion, moved)


def _first_order(entropy: Expr, displacement: MatrixExpr, claim: SolvesToFirstOrder, **record) -> Step:
    """The recursion run through: the whole minimum, moved by the force on the first order parameter."""
    return Step("first order in 1/N", entropy, displacement, claim, **record)


def substitute_nested(expression: Expr, nested: Mapping[Expr, Expr]) -> Expr:
    """`expression` with every nested order parameter written as a block of the one that contains it."""
    while any(expression.has(symbol) for symbol in nested):
        expression = expression.xreplace(dict(nested))
    return expression
