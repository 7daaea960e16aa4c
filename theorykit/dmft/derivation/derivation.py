"""Derive a deterministic map from the sum over spins, in matrix expressions with symbolic sizes.

Integrands are written as exp(-S/2), so that S = -2 N Phi. All names are listed in derivations/notation.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from sympy import Add, Expr, MatrixSymbol, Symbol, Trace, log, sqrt
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import counted
from ...derivation import Derivation, Recorder, derivation_blocks, rules
from ...symbolic import Equation, Heading, Softmax, Text, entrywise, latex, log_cosh, normal, sum_of
from ...symbolic.algebra import from_terms, matrix_terms, transpose
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Folded
from ...symbolic.documents.rendering import fold
from ...symbolic.matrix_functions import sum_of_column

# Number of tokens after the prompt. Three is the smallest number with an overlap that acts both through the attention
# of its own token and through a later attention.
HORIZON = 3
NEURONS, PATTERNS, CONTEXT, CLASSES = (Symbol(name, integer=True, positive=True) for name in "NMLJ")

_LAPLACE = r"$N \to \infty$ at fixed patterns, context and horizon"
# Check the derivation at these sizes. They have few neurons, because every configuration of the spins is enumerated.
_SIZES = (
    {NEURONS: 2, PATTERNS: 2, CONTEXT: 3, CLASSES: 2},
    {NEURONS: 3, PATTERNS: 1, CONTEXT: 2, CLASSES: 4},
    {NEURONS: 4, PATTERNS: 3, CONTEXT: 4, CLASSES: 1},
)


def _at(name: str, rows: Expr, columns: Expr | int = 1) -> Callable[[int], MatrixSymbol]:
    return staticmethod(lambda time: MatrixSymbol(f"{name}_{time}", rows, columns))


class MapSymbols:
    """Symbols of the map. Generated functions take arguments with these names.

    There are J classes of neurons, M patterns and L tokens in the context. `document.definitions` explains all symbols.
    """

    output_inverse_temperature = Symbol("beta", positive=True)
    attention_inverse_temperature = Symbol("gamma", positive=True)
    positional_share = Symbol("epsilon", nonnegative=True)
    distinct = MatrixSymbol("Omega", CLASSES, PATTERNS)
    correlations = MatrixSymbol("C", CLASSES, PATTERNS)
    columns = MatrixSymbol("X", CLASSES, 4 * PATTERNS)
    column_sums = MatrixSymbol("Xbar", CLASSES, 4 * PATTERNS)
    position = MatrixSymbol("r", PATTERNS, 1)
    attention = MatrixSymbol("A", PATTERNS, 1)
    query = MatrixSymbol("q", PATTERNS, 1)
    keys = MatrixSymbol("K", CONTEXT, PATTERNS)
    values = MatrixSymbol("V", CONTEXT, PATTERNS)
    mask = MatrixSymbol("ell", CONTEXT, 1)
    value_response = MatrixSymbol("D_v", PATTERNS, PATTERNS)
    key_response = MatrixSymbol("D_k", PATTERNS, PATTERNS)
    query_response = MatrixSymbol("D_q", PATTERNS, PATTERNS)
    responses = (key_response, value_response, query_response)
    weight = Symbol("s", positive=True)  # share of one token in the attention
    row = MatrixSymbol("g", PATTERNS, 1)  # column of the transposed attention_response for one token
    attention_response = MatrixSymbol("G", CONTEXT, PATTERNS)


class TrajectorySymbols:
    """Symbols of the derivation, at each time t. Overlaps stack all families."""

    of_map = MapSymbols()
    times = range(1, HORIZON + 1)  # times of the tokens after the prompt
    semantic_share = Symbol("epsilonbar", positive=True)  # 1 - epsilon
    output_weights = MatrixSymbol("W_o", PATTERNS, NEURONS)
    weights = MatrixSymbol("W", 4 * PATTERNS, NEURONS)
    family = MatrixSymbol("P_alpha", PATTERNS, 4 * PATTERNS)  # picks one family
    family_weights = MatrixSymbol("W_alpha", PATTERNS, NEURONS)
    assignment = MatrixSymbol("B", CLASSES, NEURONS)
    token = MatrixSymbol("e_d", CONTEXT, 1)
    displacement = MatrixSymbol("a", PATTERNS, 1)
    exponents = MatrixSymbol("z", CONTEXT, 1)
    exponent_displacement = MatrixSymbol("b", CONTEXT, 1)
    exponent_response = MatrixSymbol("Gamma", CONTEXT, PATTERNS)

    spins = _at("s", NEURONS)  # semantic bits
    overlap = _at("m", 4 * PATTERNS)
    conjugate = _at("mhat", 4 * PATTERNS)  # Fourier conjugate of the overlap
    source = _at("j", 4 * PATTERNS)  # source of the overlap in the generating functional
    position = _at("r", 4 * PATTERNS)  # overlaps of the positional bits
    attention = _at("A", PATTERNS)
    force = _at("F", PATTERNS)  # gradient of the action with respect to the attention
    attention_weights = _at("sigma", CONTEXT)  # softmax over attended tokens
    attention_response = _at("G", CONTEXT, PATTERNS)  # derivative with respect to the softmax's exponents
    keys = _at("K", CONTEXT, PATTERNS)
    values = _at("V", CONTEXT, PATTERNS)
    mask = _at("ell", CONTEXT)  # minus infinity if there is no token yet

    def overlap_of_spins(self, time: int) -> MatrixExpr:
        """Return the overlaps as functions of the bits."""
        of_spins = self.semantic_share / NEURONS * self.weights * self.spins(time)  # Eq. (1)
        return of_spins + self.of_map.positional_share * self.position(time)

    def log_probability(self, time: int) -> Expr:
        """Return the log probability of the bits at time t, on which the previous attention acts through beta h."""
        drive = self.of_map.output_inverse_temperature * self.output_weights.T * self.attention(time - 1)
        return (
            Trace(self.spins(time).T * drive) - sum_of_column(entrywise(log_cosh, drive)) - NEURONS * log(2)
        )  # Eq. (4)

    def pick(self, family: str, time: int) -> MatrixExpr:
        """Return one family of the overlaps at time t, such as the query, key or value."""
        return MatrixSymbol(f"P_{family}", PATTERNS, 4 * PATTERNS) * self.overlap(time)

    def exponents_of(self, time: int) -> MatrixExpr:
        """Return the exponents of the softmax. The mask excludes tokens before the prompt and beyond the context."""
        return self.of_map.attention_inverse_temperature * self.keys(time) * self.pick("q", time) + self.mask(time)

    def attention_of(self, weights: MatrixExpr, time: int) -> MatrixExpr:
        """Return A_t for these weights of the softmax."""
        return self.values(time).T * weights  # Eq. (2)

    def attention_definitions(self, time: int) -> tuple[tuple[MatrixSymbol, MatrixExpr], ...]:
        """Return the definitions of V_t, K_t, sigma_t and A_t in terms of the overlaps and of previous symbols."""

        def rows(family: str) -> MatrixExpr:
            # The newest token comes first. e_d is the d-th unit column, or zero for tokens that have left the context.
            return sum_of(
                [MatrixSymbol(f"e_{age}", CONTEXT, 1) * self.pick(family, time - age).T for age in range(time + 1)]
            )

        weights = self.attention_weights(time)
        return (
            (self.values(time), rows("v")),
            (self.keys(time), rows("k")),
            (weights, Softmax(self.exponents_of(time))),
            (self.attention(time), self.attention_of(weights, time)),
        )


@dataclass(frozen=True, repr=False)
class MeanField(DisplayMixin):
    """Result of `derive`, which explains the attributes."""

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
        """LaTeX names of symbols that do not print in the field's notation."""
        return {
            self.symbols.value_response: "D^{v}",
            self.symbols.key_response: "D^{k}",
            self.symbols.query_response: "D^{q}",
            self.symbols.weight: r"\sigma_{d}",
            self.symbols.row: "g_{d}",
            self.trajectory.semantic_share: r"\left(1 - \epsilon\right)",
        }

    def read(self, expression: Expr) -> str:
        """Return LaTeX in which the share of the semantic bits is written 1 - epsilon, as in the derivation."""
        share = {self.trajectory.semantic_share: 1 - self.symbols.positional_share}
        return latex(fold(expression, share), self.latex_names)

    @property
    def equations(self) -> tuple[Equation, ...]:
        """Map of the overlap and of the attention, and three linear responses."""
        row, query = self.read(self.row_response), self.read(self.query_response)
        return (
            Equation(r"m^{\alpha}", self.read(self.overlap), source="5, 6"),
            Equation("A'", self.read(self.attention), source="2"),
            Equation(r"D^{\alpha}", self.read(self.overlap_response)),
            Equation("G", self.read(self.attention_response)),
            Equation(r"\frac{\partial A'}{\partial A_{d}}", rf"{row} + \delta_{{d0}}\, {query}", source="8"),
        )

    def _view(self):
        steps = tuple(derivation_blocks(self.derivation, self.latex_names))
        yield Heading("Self-attention dynamics of many neurons", 1)
        yield Folded("**Map**: `theory.overlap`, `theory.attention`", self.equations[:2], is_open=True)
        yield Folded("**Linear responses**: `theory.overlap_response` and others", self.equations[2:])
        yield Folded(f"**Derivation** in {counted(len(self.derivation.steps), 'step')}: `theory.derivation`", steps)
        yield Text("`dmft.render_markdown(theory)` explains the symbols.")


@lru_cache
def derive() -> MeanField:
    """Derive the map in the limit N -> infinity, step by step from the generating functional of the spins.

    Returns:
        Expressions in `symbols`, for the M patterns and the L tokens of the context:

        - `overlap` (M x 1): overlap m of one family after attention A, for the C and r of this family, Eqs. (5), (6).
        - `attention` (M x 1): attention of the query q to tokens with keys K and values V, Eq. (2).
        - `attention_weights` (L x 1): softmax weights of these tokens.
        - `overlap_response` (M x M): D = dm/dA.
        - `attention_response` (L x M): G. Row d is the derivative of the attention with respect to the softmax score of
          token d.
        - `row_response` (M x M): derivative of the attention with respect to the attention that generated token d,
          through the key and value of this token, Eq. (8).
        - `query_response` (M x M): the same derivative for the newest token, through its query, Eq. (8).
        - `noise` (4M x 4M): N times the covariance of a token's overlaps, given the previous attention A.
        - `derivation`: all steps, in the symbols of `trajectory`. `derivation.verify()` checks every step.

    Example:
        >>> from theorykit import dmft
        >>> mean_field = dmft.derive()
        >>> mean_field.attention_weights
        Softmax(gamma*K*q + ell)
    """
    path, route = TrajectorySymbols(), Recorder()
    symbols, latest = path.of_map, HORIZON - 1

    # The probabilities of the last spins sum to one for any previous attention, and therefore so do the probabilities
    # of the previous spins.
    route.section = "Normalisation"
    route.apply(rules.sum_over_spins, -2 * path.log_probability(HORIZON), path.spins(HORIZON), equations="4")
    actions = []
    for time in path.times:
        route.section, route.equations = f"Token {time}", "1, 4"
        value = path.overlap_of_spins(time)
        sourced = normal(-2 * path.log_probability(time) - 2 * Trace(path.source(time).T * value))
        names = path.overlap(time), path.conjugate(time)
        named = route.apply(rules.insert_overlap, sourced, value, *names, -2 * NEURONS)
        actions.append(route.apply(rules.sum_over_spins, named, path.spins(time), equations=""))
    overlaps = _saddle_point(route, path, Add(*actions))

    # Write the sum over neurons as a sum over classes of neurons with equal output weights.
    route.section, route.equations = "Distinct columns", "6"
    names = {
        path.family_weights: path.family * path.weights,
        symbols.position: path.family * path.position(HORIZON),
        symbols.attention: path.attention(latest),
    }
    of_family = route.apply(rules.abbreviate, path.family * overlaps, names, equations="5")
    weights, classes = (path.family_weights, path.output_weights), (symbols.correlations, symbols.distinct)
    overlap = route.apply(rules.gather_classes, of_family, weights, classes, path.assignment)

    route.section, route.equations = "Attention", "2"
    names = {
        symbols.values: path.values(latest),
        symbols.keys: path.keys(latest),
        symbols.query: path.pick("q", latest),
        symbols.mask: path.mask(latest),
    }
    attention = route.apply(rules.abbreviate, path.attention_of(Softmax(path.exponents_of(latest)), latest), names)
    (softmax,) = attention.atoms(Softmax)

    route.section, route.equations = "Responses", "8"
    overlap_response = route.apply(
        rules.response, overlap, {symbols.attention: path.displacement}, path.displacement
    )  # D = dm/dA
    in_exponents = attention.xreplace({softmax.column: path.exponents})
    moved = {path.exponents: path.exponent_displacement}
    exponent_response = route.apply(rules.response, in_exponents, moved, path.exponent_displacement)  # G^T
    # Differentiate the attention with respect to the attention that generated token d. It acts through the key and
    # value of the token, and through the query if the token is the newest.
    key, value, query = (response * path.displacement for response in symbols.responses)
    moved = {symbols.keys: path.token * key.T, symbols.query: query}
    of_exponents = route.apply(rules.response, softmax.column, moved, path.displacement)
    moved = {symbols.values: path.token * value.T, path.exponents: path.exponent_response * path.displacement}
    whole = route.apply(rules.response, in_exponents, moved, path.displacement)
    named = route.apply(rules.name_sum, whole, symbols.attention_response, transpose(exponent_response))
    written_out = route.apply(rules.write_out, named, {path.exponent_response: of_exponents})
    of_row = symbols.attention_response.T * path.token
    share = Trace(Softmax(path.exponents).T * path.token)
    token_response = route.apply(rules.abbreviate, written_out, {symbols.row: of_row, symbols.weight: share})

    # Derive N times the covariance of a token's overlaps in a finite network, given the previous attention.
    route.section, route.equations = "Fluctuations", "1, 4"
    scaled = sqrt(NEURONS) * path.overlap_of_spins(HORIZON)
    exponent = normal(-2 * path.log_probability(HORIZON))
    found = route.apply(rules.covariance_over_spins, exponent, path.spins(HORIZON), scaled)
    named = route.apply(rules.abbreviate, found, {symbols.attention: path.attention(latest)}, equations="")
    weights, classes = (path.weights, path.output_weights), (symbols.column_sums, symbols.columns, symbols.distinct)
    noise = route.apply(rules.gather_columns, named, weights, classes, path.assignment, equations="9")

    def through(*, query: bool) -> MatrixExpr:
        """Return the terms of a token's response that pass through its query, or all other terms."""
        terms = [term for term in matrix_terms(token_response) if (symbols.query_response in term[1]) == query]
        return from_terms(terms, token_response.shape)

    share = {path.semantic_share: 1 - symbols.positional_share}
    return MeanField(
        symbols=symbols,
        overlap=overlap.xreplace(share),
        attention=attention,
        overlap_response=overlap_response.xreplace(share),
        attention_weights=softmax,
        attention_response=transpose(exponent_response).xreplace({path.exponents: softmax.column}),
        row_response=through(query=False),
        query_response=through(query=True),
        noise=noise.xreplace(share),
        trajectory=path,
        derivation=Derivation(tuple(route.steps), _SIZES),
    )


def _saddle_point(route: Recorder, path: TrajectorySymbols, action: Expr) -> MatrixExpr:
    """Find the overlaps at the saddle point of the whole action, at which all conjugates vanish."""
    route.section, route.equations = "All tokens", ""
    free = route.apply(rules.set_to_zero, action, *map(path.source, path.times))
    route.section = "Saddle point in the conjugates"
    overlaps = []
    for time in path.times:
        conjugate = path.conjugate(time)
        slope = route.apply(rules.slope, rules.terms_with(free, conjugate), conjugate)
        overlaps.append(route.apply(rules.solve, slope, path.overlap(time), assumptions=(_LAPLACE,)))
    route.section = "Saddle point in the overlaps"
    conjugates, forces = {}, {}
    for time in reversed(path.times):
        later = range(time, HORIZON)
        definitions = [definition for each in later for definition in path.attention_definitions(each)]
        names = {path.attention(each): path.force(each) for each in later}
        terms = rules.terms_with(free, path.overlap(time), *names)
        slope = route.apply(rules.slope, terms, path.overlap(time), definitions, names)
        forces |= dict(route.steps[-1].definitions)
        for each in later:
            weights, values = path.attention_weights(each), path.values(each)
            of_softmax = DiagMatrix(weights) * values - weights * weights.T * values  # G_t
            slope = route.apply(rules.name_sum, slope, path.attention_response(each), of_softmax)
        conjugates[time] = route.apply(rules.solve, slope, path.conjugate(time), assumptions=(_LAPLACE,))
    route.section = "Causality"
    for time in reversed(path.times[:-1]):
        route.apply(rules.set_to_zero, forces[path.force(time)], path.conjugate(time + 1))
        route.apply(rules.set_to_zero, conjugates[time], *(path.force(each) for each in range(time, HORIZON)))
    route.apply(rules.set_to_zero, free, *map(path.conjugate, path.times))
    return route.apply(rules.set_to_zero, overlaps[-1], path.conjugate(HORIZON), equations="5")
