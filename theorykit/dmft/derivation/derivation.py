"""From the sum over spins to a deterministic map: the symbolic stage, in matrix expressions with symbolic sizes.

Stage 1 of `generating functional -> derive -> symbolic MeanField -> codegen -> compiled map -> iterate`. Integrands are
exp(-S/2), as everywhere in `theorykit.derivation`, so that S = -2 N Phi. Names are listed in derivations/notation.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from sympy import Add, Expr, MatrixSymbol, Trace, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Derivation, Recorder, rules
from ...symbolic import Softmax, normal, transpose
from ...symbolic.algebra import from_terms, matrix_terms
from .symbols import CLASSES, CONTEXT, HORIZON, NEURONS, PATTERNS, MapSymbols, TrajectorySymbols

_LAPLACE = r"$N \to \infty$ at fixed patterns, context and horizon"
# every configuration of the spins is tried, so there are few neurons
_SIZES = (
    {NEURONS: 2, PATTERNS: 2, CONTEXT: 3, CLASSES: 2},
    {NEURONS: 3, PATTERNS: 1, CONTEXT: 2, CLASSES: 4},
    {NEURONS: 4, PATTERNS: 3, CONTEXT: 4, CLASSES: 1},
)


@dataclass(frozen=True)
class MeanField:
    """The limit N -> infinity of the network, symbolic: a deterministic map of attentions, and its derivatives.

    - `overlap` (M x 1): the overlap m of one family after attention A, for that family's C and r, Eqs. (5), (6).
    - `attention` (M x 1): of the query q to tokens with keys K and values V, Eq. (2); `attention_weights` (L x 1).
    - `overlap_response` (M x M): D = dm/dA. `attention_response` (L x M): G, whose row d is the derivative of the
      attention in the softmax score of token d.
    - `row_response` (M x M): derivative of the attention in the attention that token d was drawn from, through its key
      and value; a function of its softmax weight s and of row d of G, as a column g. `query_response` (M x M): the
      further term of the newest token, through its query. Together they are Eq. (8).
    - `noise` (4M x 4M): N times the covariance of a token's overlaps, of all families one below the other, given the
      attention A before it, for N neurons.
    - `derivation`: the steps that led here, in the symbols of `trajectory`; `derivation.verify()` checks each.
    """

    symbols: MapSymbols
    overlap: MatrixExpr
    attention: MatrixExpr
    overlap_response: MatrixExpr
    attention_weights: MatrixExpr
    attention_response: MatrixExpr
    row_response: MatrixExpr
    query_response: MatrixExpr
    noise: MatrixExpr
    trajectory: TrajectorySymbols
    derivation: Derivation

    @property
    def latex_names(self) -> Mapping[Expr, str]:
        """LaTeX of the symbols whose own names do not print as the field writes them."""
        return {**self.symbols.latex_names, **self.trajectory.latex_names}


@lru_cache
def derive() -> MeanField:
    """The map, derived step by step from the generating functional of the spins."""
    symbols, route = MapSymbols(), Recorder()
    path = TrajectorySymbols(symbols)
    _normalisation(route, path)
    action = Add(*(_sum_spins(route, path, time) for time in path.times))
    overlap = _classes(route, path, _saddle_point(route, path, action))
    attention = _attention(route, path)
    (weights,) = attention.atoms(Softmax)
    overlap_response = _overlap_response(route, path, overlap)
    exponent_response = _exponent_response(route, path, attention)
    token_response = _token_response(route, path, attention, exponent_response)
    noise = _noise(route, path)
    share = {path.semantic_share: 1 - symbols.positional_share}
    return MeanField(
        symbols=symbols,
        overlap=overlap.xreplace(share),
        attention=attention,
        overlap_response=overlap_response.xreplace(share),
        attention_weights=weights,
        attention_response=transpose(exponent_response).xreplace({path.exponents: weights.column}),
        row_response=_terms(token_response, symbols.query_response, present=False),
        query_response=_terms(token_response, symbols.query_response, present=True),
        noise=noise.xreplace(share),
        trajectory=path,
        derivation=Derivation(tuple(route.steps), _SIZES),
    )


def _normalisation(route: Recorder, path: TrajectorySymbols) -> None:
    """The probabilities of the last spins sum to one, whatever drives them; so do then those of the spins before."""
    route.section = "Normalisation"
    route.apply(rules.sum_over_spins, -2 * path.log_probability(HORIZON), path.spins(HORIZON), equations="4")


def _sum_spins(route: Recorder, path: TrajectorySymbols, time: int) -> Expr:
    """The action of one time: its overlaps named, its spins summed over."""
    route.section, route.equations = f"Token {time}", "1, 4"
    spins, value = path.spins(time), path.overlap_of_spins(time)
    sourced = normal(-2 * path.log_probability(time) - 2 * Trace(path.source(time).T * value))
    names = path.overlap(time), path.conjugate(time)
    named = route.apply(rules.insert_overlap, sourced, value, *names, -2 * NEURONS)
    return route.apply(rules.sum_over_spins, named, spins, equations="")


def _saddle_point(route: Recorder, path: TrajectorySymbols, action: Expr) -> MatrixExpr:
    """The overlaps at the saddle point of the whole action, at which all their conjugates vanish."""
    route.section, route.equations = "All tokens", ""
    free = route.apply(rules.set_to_zero, action, *map(path.source, path.times))
    route.section = "Saddle point in the conjugates"
    overlaps = [_stationary(route, path, free, time) for time in path.times]
    route.section = "Saddle point in the overlaps"
    conjugates, forces = {}, {}
    for time in reversed(path.times):
        conjugates[time], found = _conjugate(route, path, free, time)
        forces |= found
    route.section = "Causality"
    for time in reversed(path.times[:-1]):
        route.apply(rules.set_to_zero, forces[path.force(time)], path.conjugate(time + 1))
        route.apply(rules.set_to_zero, conjugates[time], *(path.force(each) for each in range(time, HORIZON)))
    route.apply(rules.set_to_zero, free, *map(path.conjugate, path.times))
    return route.apply(rules.set_to_zero, overlaps[-1], path.conjugate(HORIZON), equations="5")


def _stationary(route: Recorder, path: TrajectorySymbols, action: Expr, time: int) -> MatrixExpr:
    """The overlaps of one time, from the vanishing gradient in their conjugates."""
    conjugate = path.conjugate(time)
    slope = route.apply(rules.slope, rules.terms_with(action, conjugate), conjugate)
    return route.apply(rules.solve, slope, path.overlap(time), assumptions=(_LAPLACE,))


def _conjugate(route: Recorder, path: TrajectorySymbols, action: Expr, time: int) -> tuple[MatrixExpr, dict]:
    """The conjugates of one time, from the vanishing gradient in the overlaps; and the forces that they are made of."""
    later = range(time, HORIZON)
    definitions = [definition for each in later for definition in path.attention_definitions(each)]
    forces = {path.attention(each): path.force(each) for each in later}
    terms = rules.terms_with(action, path.overlap(time), *forces)
    slope = route.apply(rules.slope, terms, path.overlap(time), definitions, forces)
    found = dict(route.steps[-1].definitions)
    for each in later:
        slope = route.apply(rules.name_sum, slope, path.attention_response(each), path.softmax_slope(each))
    return route.apply(rules.solve, slope, path.conjugate(time), assumptions=(_LAPLACE,)), found


def _classes(route: Recorder, path: TrajectorySymbols, overlaps: MatrixExpr) -> MatrixExpr:
    """The overlap of one family after an attention: the sum over neurons as one over classes of equal weights."""
    route.section, route.equations = "Distinct columns", "6"
    symbols, latest = path.of_map, HORIZON - 1
    names = {
        path.family_weights: path.family * path.weights,
        symbols.position: path.family * path.position(HORIZON),
        symbols.attention: path.attention(latest),
    }
    of_family = route.apply(rules.abbreviate, path.family * overlaps, names, equations="5")
    weights, classes = (path.family_weights, path.output_weights), (symbols.correlations, symbols.distinct)
    return route.apply(rules.gather_classes, of_family, weights, classes, path.assignment)


def _attention(route: Recorder, path: TrajectorySymbols) -> MatrixExpr:
    """The attention of the newest token, in symbols without a time index."""
    route.section, route.equations = "Attention", "2"
    symbols, latest = path.of_map, HORIZON - 1
    names = {
        symbols.values: path.attended("v", latest),
        symbols.keys: path.attended("k", latest),
        symbols.query: path.query(latest),
        symbols.mask: path.mask(latest),
    }
    return route.apply(rules.abbreviate, path.attention_of(Softmax(path.exponents_of(latest)), latest), names)


def _overlap_response(route: Recorder, path: TrajectorySymbols, overlap: MatrixExpr) -> MatrixExpr:
    """D = dm/dA, for the overlap m of one family."""
    route.section, route.equations = "Responses", "8"
    return route.apply(rules.response, overlap, {path.of_map.attention: path.displacement}, path.displacement)


def _exponent_response(route: Recorder, path: TrajectorySymbols, attention: MatrixExpr) -> MatrixExpr:
    """G^T, the derivative of the attention in the scores of its softmax."""
    (weights,) = attention.atoms(Softmax)
    in_exponents = attention.xreplace({weights.column: path.exponents})
    moved = {path.exponents: path.exponent_displacement}
    return route.apply(rules.response, in_exponents, moved, path.exponent_displacement)


def _token_response(
    route: Recorder, path: TrajectorySymbols, attention: MatrixExpr, exponent_response: MatrixExpr
) -> MatrixExpr:
    """Derivative of the attention in the one that token d was drawn from: through key, value, and query if newest."""
    symbols, exponents = path.of_map, path.exponents
    (weights,) = attention.atoms(Softmax)
    key, value, query = (response * path.displacement for response in symbols.responses)
    moved = {symbols.keys: path.token * key.T, symbols.query: query}
    of_exponents = route.apply(rules.response, weights.column, moved, path.displacement)
    moved = {symbols.values: path.token * value.T, exponents: path.exponent_response * path.displacement}
    in_exponents = attention.xreplace({weights.column: exponents})
    whole = route.apply(rules.response, in_exponents, moved, path.displacement)
    named = route.apply(rules.name_sum, whole, symbols.attention_response, transpose(exponent_response))
    written_out = route.apply(rules.write_out, named, {path.exponent_response: of_exponents})
    of_row = symbols.attention_response.T * path.token
    share = Trace(Softmax(exponents).T * path.token)
    return route.apply(rules.abbreviate, written_out, {symbols.row: of_row, symbols.weight: share})


def _noise(route: Recorder, path: TrajectorySymbols) -> MatrixExpr:
    """N times the covariance of the overlaps of a finite network's token, given the attention before it."""
    route.section, route.equations = "Fluctuations", "1, 4"
    symbols, latest = path.of_map, HORIZON - 1
    scaled = sqrt(NEURONS) * path.overlap_of_spins(HORIZON)
    exponent = normal(-2 * path.log_probability(HORIZON))
    found = route.apply(rules.covariance_over_spins, exponent, path.spins(HORIZON), scaled)
    names = {symbols.attention: path.attention(latest)}
    named = route.apply(rules.abbreviate, found, names, equations="")
    weights = path.weights, path.output_weights
    classes = symbols.column_sums, symbols.columns, symbols.distinct
    return route.apply(rules.gather_columns, named, weights, classes, path.assignment, equations="9")


def _terms(matrix: MatrixExpr, symbol: MatrixSymbol, *, present: bool) -> MatrixExpr:
    """The terms of a sum of products in which a matrix symbol occurs, or those in which it does not."""
    kept = [(c, factors) for c, factors in matrix_terms(matrix) if (symbol in factors) == present]
    return from_terms(kept, matrix.shape)
