"""The exact prior of the order parameters: a second route to the entropies.

Given w^(l+1), the columns of the path weights w^(l) are independent Gaussians, so U_l
given U_{l+1} is Wishart distributed. If U_{l+1} is a block of U_l, across a skip
connection, the rest of U_l is a Gaussian overlap and a Wishart matrix. The last step
takes a limit. The two routes have the forward maps in common, and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Add, Expr, I, Identity, MatrixSymbol, Trace, expand, sqrt

from ...derivation import Derivation
from ...derivation.claims import Average, Equal, EqualUpToConstant, LeadingOrder, SumOverRows, Volume
from ...derivation.step import Recorder
from ...symbolic import inverse, kronecker, log_det, normal
from ...symbolic.algebra import expand_products, simplify_traces
from ...symbolic.atoms import Stacked, principal_block
from ...symbolic.documents.rendering import latex
from .symbols import ActionSymbols


@dataclass(frozen=True)
class FiniteWidthPrior:
    """-2 log density of each order parameter given the next, up to constants.

    - `exact`: from U_1 to U_{L+1}, for widths N_l of at least n_l units.
    - `leading`: the terms that grow with the width, the entropies of the action.
    """

    derivation: Derivation
    exact: tuple[Expr, ...]
    leading: tuple[Expr, ...]

    @property
    def corrections(self) -> tuple[Expr, ...]:
        pairs = zip(self.exact, self.leading, strict=True)
        return tuple(expand(exact - leading) for exact, leading in pairs)


def finite_width_prior(symbols: ActionSymbols, sizes: tuple[Mapping, ...]) -> FiniteWidthPrior:
    route, priors = Recorder(), []
    say = route.say
    for form, u, outer in zip(symbols.form.layers, symbols.overlaps, symbols.overlaps[1:], strict=False):
        # The characteristic function of the path weights w^(l), with the source G.
        layer = form.symbols.index
        width = form.symbols.width
        next_width = form.symbols.next_width
        route.section, size = f"Layer {layer}", outer.shape[0]
        above = MatrixSymbol(f"w_{layer + 1}", size, next_width)
        source = MatrixSymbol("G", expand(form.blocks * size), width)
        stacked = Stacked(source.T, form.blocks)
        weights = Stacked(above * form.weights, form.blocks) / sqrt(next_width)  # Eq. (6)
        v = MatrixSymbol("v", form.weights.shape[1], 1)
        r = MatrixSymbol("r", size, 1)
        covariance = kronecker(form.covariance, Identity(width))
        of_sources = expand_products(stacked.T * covariance * stacked)

        before = 2 * I * Trace(source.T * weights)
        after = 2 * I * Trace(form.weights * stacked * above) / sqrt(next_width)
        coupling = say("blocks unstacked", before, after, Equal(), equations="6")
        one_row = 2 * I * Trace(v.T * stacked * r) / sqrt(next_width)
        averaged = normal(Trace(r.T * of_sources * r) / next_width)
        total = normal(Trace(above * above.T * of_sources) / next_width)
        rows = ((v, form.weights), (r, above.T), next_width)
        law = Average(v, covariance)
        total = average_rows(route, coupling, (one_row, averaged, total), rows, law)
        after = normal(Trace(outer * of_sources))
        defined = ((outer, above * above.T / next_width),)
        named = say("named", total, after, Equal(defined), definitions=defined, equations="13")
        inner = kronecker(form.covariance, outer)
        after = normal(Trace(inner * source * source.T))
        characteristic = say("blocks become path indices", named, after, Equal())
        priors.append(_density(route, characteristic, inner, source, u, outer, form.has_skip))

    # The readout weights A have one Gaussian row per output.
    route.section = "Readout"
    u = symbols.overlaps[-1]
    width = symbols.widths[-1]
    variance = symbols.variances[-1]
    weights, source = (MatrixSymbol(name, u.shape[0], width) for name in ("A", "G"))
    v, r = (MatrixSymbol(name, width, 1) for name in "vr")
    rows = ((v, weights), (r, source), u.shape[0])
    law = Average(v, variance * Identity(width))
    sides = 2 * I * Trace(v.T * r), variance * Trace(r.T * r), variance * Trace(source * source.T)
    characteristic = average_rows(route, 2 * I * Trace(source.T * weights), sides, rows, law)
    inner = variance * Identity(u.shape[0])
    priors.append(_density(route, characteristic, inner, source, u, None, has_skip=False))
    exact, leading = zip(*priors, strict=True)
    return FiniteWidthPrior(Derivation(tuple(route.steps), sizes), exact, leading)


def average_rows(route: Recorder, before, sides, rows, law, equations=("", "", "")) -> Expr:
    """State the average over i.i.d. rows of weights, and return its sum over rows.

    - `sides`: one row before and after the average, and the sum.
    - `rows`: pairs of a column and its matrix, the weights first, and their number.
    """
    *pairs, count = rows
    steps = {
        "one row at a time": SumOverRows(tuple(pairs), count, "after"),
        "Gaussian integral": law,
        "sum over rows": SumOverRows(tuple(pairs[1:]), count, "before"),
    }
    for (rule, claim), after, number in zip(steps.items(), sides, equations, strict=True):
        before = route.say(rule, before, after, claim, equations=number)
    return before


def _density(route, characteristic, inner, source, u, outer, has_skip) -> tuple[Expr, Expr]:
    """Return the density of the overlap U of weights W, and its leading order.

    The columns of W have the covariance `inner`. With a skip connection the rows of
    `outer` are given, and W is the rest.
    """
    say = route.say
    width = source.shape[1]
    size = u.shape[0]
    weights = MatrixSymbol("W", *source.shape)
    g, x = (MatrixSymbol(name, source.shape[0], 1) for name in "gx")
    columns = SumOverRows(((g, source.T),), width, "after")
    one_column = say("one row at a time", characteristic, normal(Trace(g.T * inner * g)), columns)
    after = normal(log_det(inner) + Trace(x.T * inverse(inner) * x))
    # The Fourier transform is an average over standard normal g.
    transformed = one_column - Trace(g.T * g) + 2 * I * Trace(g.T * x)
    density = say("density of Gaussian columns", transformed, after, Average(g, Identity(g.shape[0])))
    after = normal(width * log_det(inner) + Trace(inverse(inner) * weights * weights.T))
    total = say("sum over rows", density, after, SumOverRows(((x, weights.T),), width, "before"))
    # n x N weights of overlap U fill det(U)^((N - n - 1)/2), divided by the volume of given rows.
    block = u
    volume = -(width - size - 1) * log_det(u)
    if has_skip:
        block = principal_block(u, (outer.shape[0], source.shape[0]), 1)
        volume += (width - outer.shape[0] - 1) * log_det(outer)
    after = normal(width * log_det(inner) + width * Trace(inverse(inner) * block) + volume)
    claim = Volume(weights, u, width, outer if has_skip else None)
    wide = (f"width ${latex(width)}$ of at least ${latex(size)}$ units",)
    volume = say("volume of weights with an overlap", total, after, claim, assumptions=wide)
    reduced = say("traces of smaller matrices", volume, simplify_traces(volume), Equal())
    variables = (u,) if outer is None else (u, outer)
    exact = Add(*(term for term in Add.make_args(reduced) if term.has(*variables)))
    say("constants dropped", reduced, exact, EqualUpToConstant(variables))
    leading = expand(exact - exact.subs(width, 0))
    large = (f"width ${latex(width)}$ large",)
    return exact, say("leading order", exact, leading, LeadingOrder(width), assumptions=large)
