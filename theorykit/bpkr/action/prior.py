"""The exact prior of the order parameters at finite width: a second route to the entropies.

Given w^(l+1), the columns of the path weights w^(l) are independent Gaussians, so U_l given U_{l+1} has a Wishart
distribution. If a skip connection makes U_{l+1} a block of U_l, the rest of U_l is a Gaussian overlap and a Wishart
matrix. Only the last step takes a limit. The forward maps are all that this route has in common with `derivation`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sympy import Add, Expr, I, Identity, MatrixSymbol, Trace, expand, sqrt

from ...derivation import Derivation, Recorder, claims
from ...symbolic import inverse, kronecker, latex, log_det, normal
from ...symbolic.algebra import expand_products, simplify_traces
from ...symbolic.atoms import Stacked, principal_block
from .symbols import ActionSymbols


@dataclass(frozen=True)
class FiniteWidthPrior:
    """-2 log density of each order parameter given the next, from U_1 to U_{L+1}, up to constants.

    - `exact`: for widths N_l of at least n_l units. At smaller widths U_l has no density.
    - `leading`: the terms that grow with the width, which are the entropies of the action.
    """

    derivation: Derivation
    exact: tuple[Expr, ...]
    leading: tuple[Expr, ...]

    @property
    def corrections(self) -> tuple[Expr, ...]:
        """Exact minus leading terms, which are of order one in the width."""
        return tuple(expand(exact - leading) for exact, leading in zip(self.exact, self.leading, strict=True))


def finite_width_prior(symbols: ActionSymbols, sizes: tuple[Mapping[Expr, int], ...]) -> FiniteWidthPrior:
    """Derive the prior of (U_1, ..., U_{L+1}), with steps to be tested at each of `sizes`."""
    route, priors = Recorder(), []
    say = route.say
    for layer, form in enumerate(symbols.form.layers):
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
        one_row = 2 * I * Trace(v.T * stacked * r) / sqrt(next_width)
        averaged = normal(Trace(r.T * of_sources * r) / next_width)
        total = normal(Trace(above * above.T * of_sources) / next_width)
        rows, law = ((v, form.weights), (r, above.T), next_width), claims.Average(v, covariance)
        total = average_rows(route, coupling, (one_row, averaged, total), rows, law)
        after, defined = normal(Trace(outer * of_sources)), ((outer, above * above.T / next_width),)
        named = say("named", total, after, claims.Equal(defined), definitions=defined, equations="13")
        inner = kronecker(form.covariance, outer)
        after = normal(Trace(inner * source * source.T))
        characteristic = say("blocks become path indices", named, after, claims.Equal())
        priors.append(_density(route, characteristic, inner, source, overlap, outer, form.has_skip))

    # The columns of the readout weights A have the characteristic function of one Gaussian row per output.
    route.section, overlap, width, variance = "Readout", symbols.overlaps[-1], symbols.widths[-1], symbols.variances[-1]
    weights, source = (MatrixSymbol(name, overlap.shape[0], width) for name in ("A", "G"))
    v, r = MatrixSymbol("v", width, 1), MatrixSymbol("r", width, 1)
    rows, law = ((v, weights), (r, source), overlap.shape[0]), claims.Average(v, variance * Identity(width))
    sides = 2 * I * Trace(v.T * r), variance * Trace(r.T * r), variance * Trace(source * source.T)
    characteristic = average_rows(route, 2 * I * Trace(source.T * weights), sides, rows, law)
    inner = variance * Identity(overlap.shape[0])
    priors.append(_density(route, characteristic, inner, source, overlap, None, has_skip=False))
    exact, leading = zip(*priors, strict=True)
    return FiniteWidthPrior(Derivation(tuple(route.steps), sizes), exact, leading)


def average_rows(route: Recorder, before: Expr, sides: Sequence[Expr], rows, law, equations=("", "", "")) -> Expr:
    """State the average over i.i.d. rows of weights, and return its sum over rows.

    `sides` are one row before and after the average, and the sum. `rows` are two pairs of a column and its matrix, the
    weights first, and the number of rows.
    """
    *pairs, count = rows
    steps = {
        "one row at a time": claims.SumOverRows(tuple(pairs), count, "after"),
        "Gaussian integral": law,
        "sum over rows": claims.SumOverRows(tuple(pairs[1:]), count, "before"),
    }
    for (rule, claim), after, number in zip(steps.items(), sides, equations, strict=True):
        before = route.say(rule, before, after, claim, equations=number)
    return before


def _density(route, characteristic, inner, source, overlap, outer, has_skip) -> tuple[Expr, Expr]:
    """Go from the characteristic function of weights W to the density of their overlap U, and its leading order.

    The columns of W have the covariance `inner`. With a skip connection, the rows of `outer` are given: W is the rest.
    """
    say, width, size = route.say, source.shape[1], overlap.shape[0]
    weights, g, x = MatrixSymbol("W", *source.shape), *(MatrixSymbol(name, source.shape[0], 1) for name in "gx")
    columns = claims.SumOverRows(((g, source.T),), width, "after")
    one_column = say("one row at a time", characteristic, normal(Trace(g.T * inner * g)), columns)
    after = normal(log_det(inner) + Trace(x.T * inverse(inner) * x))
    # The Fourier transform is an average over standard normal g.
    transformed = one_column - Trace(g.T * g) + 2 * I * Trace(g.T * x)
    density = say("density of Gaussian columns", transformed, after, claims.Average(g, Identity(g.shape[0])))
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
