"""The exact prior of the order parameters at finite width, and the saddle point to first order in 1 / width.

The prior is the second route to the entropies. Given the path weights w^(l+1), the columns of w^(l) are independent
Gaussians, so U_l given U_{l+1} has a Wishart distribution. If a skip connection makes U_{l+1} a block of U_l, the rest
of U_l is a Gaussian overlap and a Wishart matrix. Only the last step takes a limit. The derivation shares only the
forward maps with back-propagating kernel renormalisation.

At a fixed number of examples the energy is of order one and the entropies grow with the widths. The order parameters
therefore move from their prior means by linear response. Forces G_l = dE/dU_l on each layer propagate to the readout,
and displacements propagate back.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Add, Expr, Identity, MatrixSymbol, S, Trace, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Derivation, Recorder, Step, rules
from ...derivation.claims import SolvesToFirstOrder
from ...symbolic import kronecker, latex, positive_definite
from ...symbolic.algebra import expand_products
from ...symbolic.atoms import Stacked, embed, principal_block
from ..specification.layer_form import LayerForm
from .symbols import ActionSymbols


@dataclass(frozen=True)
class FiniteWidthPrior:
    """-2 log density of each order parameter given the next, from U_1 to U_{L+1}, up to constants.

    - `exact`: the exact densities, for widths N_l of at least n_l units, the number of partial paths. At smaller widths
      U_l is singular and has no density.
    - `leading`: the terms that grow with the width, which are the entropies of the action.
    """

    derivation: Derivation
    exact: tuple[Expr, ...]
    leading: tuple[Expr, ...]

    @property
    def corrections(self) -> tuple[Expr, ...]:
        """Exact minus leading terms, which are of order one in the width."""
        return tuple(expand(exact - leading) for exact, leading in zip(self.exact, self.leading, strict=True))


def finite_width_prior(
    forms: tuple[LayerForm, ...], symbols: ActionSymbols, sizes: tuple[Mapping[Expr, int], ...]
) -> FiniteWidthPrior:
    """Derive the prior of (U_1, ..., U_{L+1}) for the layers `forms`. The steps can be tested at `sizes`."""
    steps, priors = [], []
    for layer, form in enumerate(forms):
        # The law of U_l given U_{l+1}.
        overlap, outer = symbols.overlaps[layer : layer + 2]
        index, width, next_width = form.symbols.index, form.symbols.width, form.symbols.next_width
        do = Recorder(steps, f"Layer {index}").apply
        size, of_blocks = outer.shape[0], expand(form.blocks * outer.shape[0])
        above = MatrixSymbol(f"w_{index + 1}", size, next_width)
        source = MatrixSymbol("G", of_blocks, width)
        weights = Stacked(above * form.weights, form.blocks) / sqrt(next_width)  # Eq. (6)
        coupling = do(rules.unstack, 2 * S.ImaginaryUnit * Trace(source.T * weights), equations="6")
        row, column = MatrixSymbol("v", form.weights.shape[1], 1), MatrixSymbol("r", size, 1)
        one_row = do(rules.split_into_rows, coupling, [(row, form.weights), (column, above.T)])
        covariance = kronecker(form.covariance, Identity(width))
        averaged = do(rules.gaussian_average, one_row, row, covariance)
        total = do(rules.sum_over_rows, averaged, next_width, [(column, above.T)])
        named = do(rules.name, total, outer, above * above.T / next_width, equations="13")
        characteristic = do(rules.gather_blocks, named)
        given = outer if form.has_skip else None
        priors.append(_density(do, characteristic, source, overlap, width, given, (overlap, outer)))
    do, overlap, width = Recorder(steps, "Readout").apply, symbols.overlaps[-1], symbols.widths[-1]
    weights, source = (MatrixSymbol(name, overlap.shape[0], width) for name in ("A", "G"))
    row, column = MatrixSymbol("v", width, 1), MatrixSymbol("r", width, 1)
    coupling = 2 * S.ImaginaryUnit * Trace(source.T * weights)
    one_row = do(rules.split_into_rows, coupling, [(row, weights), (column, source)])
    averaged = do(rules.gaussian_average, one_row, row, symbols.variances[-1] * Identity(width))
    characteristic = do(rules.sum_over_rows, averaged, overlap.shape[0], [(column, source)])
    priors.append(_density(do, characteristic, source, overlap, width, None, (overlap,)))
    exact, leading = zip(*priors, strict=True)
    return FiniteWidthPrior(Derivation(tuple(steps), sizes), exact, leading)


def _density(do, characteristic, source, overlap, width, given, variables) -> tuple[Expr, Expr]:
    """Go from the characteristic function of the weights to the density of their overlap, and its leading order."""
    weights = MatrixSymbol("W", *source.shape)
    of_source, of_weights = (MatrixSymbol(name, source.shape[0], 1) for name in ("g", "x"))
    one_column = do(rules.split_into_rows, characteristic, [(of_source, source.T)])
    density = do(rules.gaussian_density, one_column, of_source, of_weights)
    total = do(rules.sum_over_rows, density, width, [(of_weights, weights.T)])
    wide = (f"width ${latex(width)}$ of at least ${latex(overlap.shape[0])}$ units",)
    volume = do(rules.gram_volume, total, weights, overlap, width, given, assumptions=wide)
    exact = do(rules.drop_constants, do(rules.reduce_traces, volume), variables)
    return exact, do(rules.leading_order, exact, width, assumptions=(f"width ${latex(width)}$ large",))


@dataclass(frozen=True)
class FirstOrder:
    """Order parameters to first order in 1/N.

    - `force`: symbol of G_1 (n_1 x n_1), the gradient of the energy with respect to U_1 at the Gaussian-process limit.
    - `limit`: the order parameters M_l at infinite width.
    - `recursion`: forces G_l from the first layer to the readout, then displacements delta_l from the readout back.
    - `order_parameters`: M_l + delta_l, with the recursion carried out; linear in G_1.
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

    `entropies` and `nested` are in the matrices U_1, ..., U_{L+1}. The steps can be tested at `sizes`.
    """
    overlaps = symbols.overlaps
    route = Recorder(section="Expansion", assumptions=("number of examples fixed, all widths large",))
    means, forces, displacements = (
        tuple(positive_definite(f"{name}_{i}", u.shape[0]) for i, u in enumerate(overlaps, 1))
        for name in ("M", "G", "delta")
    )
    # The prior means, computed from the readout to the first layer, minimise the entropies.
    limit = {overlaps[-1]: symbols.variances[-1] * Identity(overlaps[-1].shape[0])}
    for form, variable, outer in reversed(list(zip(forms, overlaps, overlaps[1:], strict=False))):
        limit[variable] = expand_products(form.prior_mean(limit[outer]))
    passed_on, passed_back = [], []
    for number, (variable, mean, force) in enumerate(zip(overlaps, means, forces, strict=True)):
        displacement = route.apply(rules.linear_response, entropies[number], variable, mean, force)
        if number < len(forms):
            form, outer = forms[number], overlaps[number + 1]
            if form.has_skip:
                # The leading block is U_{l+1}, which moves with the next layer.
                parts = (outer.shape[0], expand(form.blocks * outer.shape[0]))
                of_outer = embed(principal_block(displacement, parts, 0), parts, 0)
                displacement = expand_products(displacement - of_outer)
            displacement = expand_products(displacement + form.prior_mean(displacements[number + 1]))
            on_outer = route.apply(rules.derivative, Trace(force * form.prior_mean(outer)), outer)
            passed_on.append((forces[number + 1], on_outer))
        passed_back.append((displacements[number], displacement))
    # Forces from the input to the readout, then displacements back.
    recursion = (*passed_on, *reversed(passed_back))
    values = {mean: limit[u] for mean, u in zip(means, overlaps, strict=True)}
    for symbol, value in recursion:
        values[symbol] = expand_products(value.xreplace(values))
    displaced = {u: values[delta] for u, delta in zip(overlaps, displacements, strict=True)}
    total = substitute_nested(Add(*entropies), nested)
    free = {variable: limit[variable] for variable in overlaps if variable not in nested}

    # `displaced` solves the recursion: the force on U_1 displaces the minimum in all order parameters.
    def first_order(*step, **record) -> Step:
        return Step("first order in 1/N", *step, **record)

    for variable in free:
        claim = SolvesToFirstOrder(variable, tuple(free.items()), tuple(displaced.items()), forces[0])
        route.apply(first_order, total, displaced[variable], claim)
    moved = {variable: expand_products(limit[variable] + change) for variable, change in displaced.items()}
    return FirstOrder(Derivation(tuple(route.steps), sizes), forces[0], limit, recursion, moved)


def substitute_nested(expression: Expr, nested: Mapping[Expr, Expr]) -> Expr:
    """Replace every nested order parameter in `expression` by a block of the one that contains it."""
    while any(expression.has(symbol) for symbol in nested):
        expression = expression.xreplace(dict(nested))
    return expression
