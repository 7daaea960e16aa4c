"""Symbols of the self-attention network, and the definition of the network at each time."""

from collections.abc import Callable
from types import MappingProxyType

from sympy import Expr, MatrixSymbol, Symbol, Trace, log
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...symbolic import Softmax, entrywise, log_cosh, sum_of
from ...symbolic.matrix_functions import sum_of_column

# Number of tokens after the prompt. Three is the smallest number with an overlap that acts both through the attention
# of its own token and through a later attention.
HORIZON = 3
NEURONS, PATTERNS, CONTEXT, CLASSES = (Symbol(name, integer=True, positive=True) for name in "NMLJ")


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
    pick = MappingProxyType({each: MatrixSymbol(f"P_{each}", PATTERNS, 4 * PATTERNS) for each in "vkq"})
    family_weights = MatrixSymbol("W_alpha", PATTERNS, NEURONS)
    exponents = MatrixSymbol("z", CONTEXT, 1)

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
    row = _at("e", CONTEXT)  # unit column of the token of an age, zero if it has left the context

    def overlap_of_spins(self, time: int) -> MatrixExpr:
        """Return the overlaps as functions of the bits."""
        of_spins = self.semantic_share / NEURONS * self.weights * self.spins(time)
        return of_spins + self.of_map.positional_share * self.position(time)  # Eq. (1)

    def drive(self, time: int) -> MatrixExpr:
        """Return beta h, through which the previous attention acts on the bits at time t."""
        return self.of_map.output_inverse_temperature * self.output_weights.T * self.attention(time - 1)

    def log_probability(self, time: int) -> Expr:
        """Return the log probability of the bits at time t."""
        drive = self.drive(time)
        return Trace(self.spins(time).T * drive) - sum_of_log_cosh(drive) - NEURONS * log(2)  # Eq. (4)

    def attention_definitions(self, time: int) -> tuple[tuple[MatrixSymbol, MatrixExpr], ...]:
        """Return the definitions of V_t, K_t, sigma_t and A_t in terms of the overlaps and of previous symbols."""

        def rows(family: str) -> MatrixExpr:
            # The newest token comes first.
            pick = self.pick[family]
            return sum_of([self.row(age) * (pick * self.overlap(time - age)).T for age in range(time + 1)])

        # The mask excludes tokens before the prompt and beyond the context.
        scores = self.of_map.attention_inverse_temperature * self.keys(time) * self.pick["q"] * self.overlap(time)
        weights = self.attention_weights(time)
        return (
            (self.values(time), rows("v")),
            (self.keys(time), rows("k")),
            (weights, Softmax(scores + self.mask(time))),
            (self.attention(time), self.values(time).T * weights),  # Eq. (2)
        )


def sum_of_log_cosh(fields: MatrixExpr) -> Expr:
    """Return the sum of log cosh over the entries of a column."""
    return sum_of_column(entrywise(log_cosh, fields))
