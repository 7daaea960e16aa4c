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
from typing import Any

from sympy import Add, Expr, I, Identity, MatrixSymbol, Trace, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Derivation, Recorder, claims
from ...symbolic import gradient, inverse, kronecker, latex, log_det, normal, positive_definite, sum_of
from ...symbolic.algebra import expand_products, simplify_traces
from ...symbolic.atoms import Stacked, embed, principal_block

Action = Any
"""`bpkr.Action`, which cannot be imported here because it imports this module."""


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


def finite_width_prior(action: Action) -> FiniteWidthPrior:
    """Derive the prior of (U_1, ..., U_{L+1}) for the layers of `action`."""
    route, priors, symbols = Recorder(), [], action.symbols
    say = route.say
    for layer, form in enumerate(action.forms):
        # The law of U_l given U_{l+1}, from the characteristic function of the path weights w^(l), with the source G.
        route.section, (overlap, outer) = f"Layer {form.symbols.index}", symbols.overlaps[layer : layer + 2]
        width, next_width, size = form.symbols.width, form.symbols.next_width, outer.shape[0]
        above = MatrixSymbol(f"w_{form.symbols.index + 1}", size, next_width)
        source = MatrixSymbol("G", expand(form.blocks * size), width)
        stacked = Stacked(source.T, form.blocks)
        weights = Stacked(above * form.weights, form.blocks) / sqrt(next_width)  # Eq. (6)
        v, r = MatrixSymbol("v", form.weights.shape[1], 1), MatrixSymbol("r", size, 1)
        covariance = kronecker(form.covariance, Identity(width))
        of_sources = expand_products(stacked.T * covariance * stacked)

        before = 2 * I * Trace(source.T * weights)
        after = 2 * I * Trace(form.weights * stacked * above) / sqrt(next_width)
        coupling = say("blocks unstacked", before, after, claims.Equal(), equations="6")
        rows = claims.SumOverRows(((v, form.weights), (r, above.T)), next_width, "after")
        after = 2 * I * Trace(v.T * stacked * r) / sqrt(next_width)
        one_row = say("one row at a time", coupling, after, rows)
        after = normal(Trace(r.T * of_sources * r) / next_width)
        averaged = say("Gaussian integral", one_row, after, claims.Average(v, covariance))
        rows = claims.SumOverRows(((r, above.T),), next_width, "before")
        total = say("sum over rows", averaged, normal(Trace(above * above.T * of_sources) / next_width), rows)
        after, defined = normal(Trace(outer * of_sources)), ((outer, above * above.T / next_width),)
        named = say("named", total, after, claims.Equal(defined), definitions=defined, equations="13")
        inner = kronecker(form.covariance, outer)
        characteristic = normal(Trace(inner * source * source.T))
        say("blocks become path indices", named, characteristic, claims.Equal())
        priors.append(_density(route, characteristic, inner, source, overlap, outer, form.has_skip))

    # The columns of the readout weights A have the characteristic function of one Gaussian row per output.
    route.section, overlap, width, variance = "Readout", symbols.overlaps[-1], symbols.widths[-1], symbols.variances[-1]
    weights, source = (MatrixSymbol(name, overlap.shape[0], width) for name in ("A", "G"))
    v, r = MatrixSymbol("v", width, 1), MatrixSymbol("r", width, 1)
    rows = claims.SumOverRows(((v, weights), (r, source)), overlap.shape[0], "after")
    before, after = (2 * I * Trace(product) for product in (source.T * weights, v.T * r))
    one_row = say("one row at a time", before, after, rows)
    prior = claims.Average(v, variance * Identity(width))
    averaged = say("Gaussian integral", one_row, variance * Trace(r.T * r), prior)
    rows = claims.SumOverRows(((r, source),), overlap.shape[0], "before")
    characteristic = say("sum over rows", averaged, variance * Trace(source * source.T), rows)
    inner = variance * Identity(overlap.shape[0])
    priors.append(_density(route, characteristic, inner, source, overlap, None, has_skip=False))
    exact, leading = zip(*priors, strict=True)
    return FiniteWidthPrior(Derivation(tuple(route.steps), action.derivation.sizes), exact, leading)


def _density(route, characteristic, inner, source, overlap, outer, has_skip) -> tuple[Expr, Expr]:
    """Go from the characteristic function of weights W to the density of their overlap U, and its leading order.

    The columns of W have the covariance `inner`. With a skip connection, the rows of `outer` are given: W is the rest.
    """
    say, width, size = route.say, source.shape[1], overlap.shape[0]
    weights, g, x = MatrixSymbol("W", *source.shape), *(MatrixSymbol(name, source.shape[0], 1) for name in "gx")
    columns = claims.SumOverRows(((g, source.T),), width, "after")
    one_column = say("one row at a time", characteristic, normal(Trace(g.T * inner * g)), columns)
    after = normal(log_det(inner) + Trace(x.T * inverse(inner) * x))
    density = say("density of Gaussian columns", one_column, after, claims.GaussianDensity(g, x))
    after = normal(width * log_det(inner) + Trace(inverse(inner) * weights * weights.T))
    total = say("sum over rows", density, after, claims.SumOverRows(((x, weights.T),), width, "before"))
    # The volume of n x N weights with the overlap U is det(U)^((N - n - 1)/2), divided by the volume of the given rows.
    block, volume = overlap, -(width - size - 1) * log_det(overlap)
    if has_skip:
        block = principal_block(overlap, (outer.shape[0], source.shape[0]), 1)
        volume += (width - outer.shape[0] - 1) * log_det(outer)
    after = normal(width * log_det(inner) + width * Trace(inverse(inner) * block) + volume)
    claim = claims.Volume(weights, overlap, width, outer if has_skip else None)
    wide = (f"width ${latex(width)}$ of at least ${latex(size)}$ units",)
    volume = say("volume of weights with an overlap", total, after, claim, assumptions=wide)
    reduced = say("traces of smaller matrices", volume, simplify_traces(volume), claims.Equal())
    variables = (overlap,) if outer is None else (overlap, outer)
    exact = Add(*(term for term in Add.make_args(reduced) if term.has(*variables)))
    say("constants dropped", reduced, exact, claims.EqualUpToConstant(variables))
    leading, large = expand(exact - exact.subs(width, 0)), (f"width ${latex(width)}$ large",)
    return exact, say("leading order", exact, leading, claims.LeadingOrder(width), assumptions=large)


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


def expand_about_infinite_width(action: Action) -> FirstOrder:
    """Expand the saddle point of the entropies and an energy of U_1 about infinite width."""
    forms, symbols, nested = action.forms, action.symbols, action.overlap_blocks
    overlaps, entropies = symbols.overlaps, action.overlap_entropies
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
        # Linear response: the Hessian of the entropy, applied to the displacement, cancels the force.
        unknown = positive_definite("X", variable.shape[0])
        along = gradient(Trace(gradient(entropies[number], variable) * unknown), variable)
        balance = sum_of([along.xreplace({variable: mean}), force])
        displacement = expand_products(-mean * force * mean / symbols.widths[number])
        route.say("linear response", balance, displacement, claims.Solves(unknown))
        if number < len(forms):
            form, outer = forms[number], overlaps[number + 1]
            if form.has_skip:
                # The leading block is U_{l+1}, which moves with the next layer.
                parts = (outer.shape[0], expand(form.blocks * outer.shape[0]))
                of_outer = embed(principal_block(displacement, parts, 0), parts, 0)
                displacement = expand_products(displacement - of_outer)
            displacement = expand_products(displacement + form.prior_mean(displacements[number + 1]))
            of_mean = Trace(force * form.prior_mean(outer))
            on_outer = expand_products(gradient(of_mean, outer))
            route.say("differentiated", of_mean, on_outer, claims.Derivative(outer))
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
    for variable in free:
        claim = claims.SolvesToFirstOrder(variable, tuple(free.items()), tuple(displaced.items()), forces[0])
        route.say("first order in 1/N", total, displaced[variable], claim)
    moved = {variable: expand_products(limit[variable] + change) for variable, change in displaced.items()}
    derivation = Derivation(tuple(route.steps), action.derivation.sizes)
    return FirstOrder(derivation, forces[0], limit, recursion, moved)


def substitute_nested(expression: Expr, nested: Mapping[Expr, Expr]) -> Expr:
    """Replace every nested order parameter in `expression` by a block of the one that contains it."""
    while any(expression.has(symbol) for symbol in nested):
        expression = expression.xreplace(dict(nested))
    return expression
