"""The symbols that the dynamical mean-field theory is derived and compiled in."""

from collections.abc import Mapping

from sympy import Expr, MatrixSymbol, Symbol, Trace, log
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...symbolic import Softmax, entrywise, log_cosh, sum_of
from ...symbolic.matrix_functions import sum_of_column

# tokens after the prompt: the fewest with an overlap that acts through its own attention and through a later one
HORIZON = 3
NEURONS, PATTERNS, CONTEXT, CLASSES = (Symbol(name, integer=True, positive=True) for name in "NMLJ")


def _per_pattern(name: str, rows: Expr) -> MatrixSymbol:
    return MatrixSymbol(name, rows, PATTERNS)


def _column(name: str, rows: Expr = PATTERNS) -> MatrixSymbol:
    return MatrixSymbol(name, rows, 1)


class MapSymbols:
    """The symbols of the map, under the names that generated functions take them by.

    J classes of neurons, M patterns, L tokens in the context.

    - `distinct` (J x M): the output weights w^o of each class; `correlations` (J x M): the weights of one family summed
      over each class with the sign that its output weights have, over N. `position` (M x 1): r of the same family.
    - `columns` (J x 4M): the weights of all families of each class, if neurons are of one class where all their weights
      agree up to a common sign; `column_sums` (J x 4M): the same, summed over the class, over N.
    - `keys`, `values` (L x M): of the attended tokens, newest first; `mask` (L x 1): zero, or -oo for no token yet.
    - `value_response`, `key_response`, `query_response` (M x M): how overlaps of these families move with an attention.
    - `weight`, `row`: of one token, its attention weight s and its column of `attention_response`^T (L x M).
    """

    output_inverse_temperature = Symbol("beta", positive=True)
    attention_inverse_temperature = Symbol("gamma", positive=True)
    positional_share = Symbol("epsilon", nonnegative=True)
    distinct = _per_pattern("Omega", CLASSES)
    correlations = _per_pattern("C", CLASSES)
    columns = MatrixSymbol("X", CLASSES, 4 * PATTERNS)
    column_sums = MatrixSymbol("Xbar", CLASSES, 4 * PATTERNS)
    position = _column("r")
    attention = _column("A")
    query = _column("q")
    keys = _per_pattern("K", CONTEXT)
    values = _per_pattern("V", CONTEXT)
    mask = _column("ell", CONTEXT)
    value_response = _per_pattern("D_v", PATTERNS)
    key_response = _per_pattern("D_k", PATTERNS)
    query_response = _per_pattern("D_q", PATTERNS)
    weight = Symbol("s", positive=True)
    row = _column("g")
    attention_response = _per_pattern("G", CONTEXT)

    @property
    def responses(self) -> tuple[MatrixSymbol, MatrixSymbol, MatrixSymbol]:
        """Of keys, of values, of queries."""
        return self.key_response, self.value_response, self.query_response

    @property
    def latex_names(self) -> Mapping[Expr, str]:
        """LaTeX of the symbols whose own names do not print as the field writes them."""
        return {
            self.value_response: "D^{v}",
            self.key_response: "D^{k}",
            self.query_response: "D^{q}",
            self.weight: r"\sigma_{d}",
            self.row: "g_{d}",
        }


class TrajectorySymbols:
    """The symbols of the derivation: what there is at each time, the overlaps of all families one below the other."""

    semantic_share = Symbol("epsilonbar", positive=True)  # 1 - epsilon
    output_weights = MatrixSymbol("W_o", PATTERNS, NEURONS)
    weights = MatrixSymbol("W", 4 * PATTERNS, NEURONS)
    family = MatrixSymbol("P_alpha", PATTERNS, 4 * PATTERNS)  # picks one family
    family_weights = MatrixSymbol("W_alpha", PATTERNS, NEURONS)
    assignment = MatrixSymbol("B", CLASSES, NEURONS)
    token = _column("e_d", CONTEXT)
    displacement = _column("a")
    exponents = _column("z", CONTEXT)
    exponent_displacement = _column("b", CONTEXT)
    exponent_response = _per_pattern("Gamma", CONTEXT)

    def __init__(self, of_map: MapSymbols):
        self.of_map = of_map

    @property
    def latex_names(self) -> Mapping[Expr, str]:
        """LaTeX of the symbols whose own names do not print as the field writes them."""
        return {self.semantic_share: r"\left(1 - \epsilon\right)"}

    @property
    def times(self) -> range:
        """The times of the tokens after the prompt."""
        return range(1, HORIZON + 1)

    def spins(self, time: int) -> MatrixSymbol:
        """s_t, the semantic bits (N x 1)."""
        return _column(f"s_{time}", NEURONS)

    def overlap(self, time: int) -> MatrixSymbol:
        """m_t (4M x 1)."""
        return _column(f"m_{time}", 4 * PATTERNS)

    def conjugate(self, time: int) -> MatrixSymbol:
        """The Fourier conjugate of m_t."""
        return _column(f"mhat_{time}", 4 * PATTERNS)

    def source(self, time: int) -> MatrixSymbol:
        """j_t, the source of m_t in the generating functional."""
        return _column(f"j_{time}", 4 * PATTERNS)

    def position(self, time: int) -> MatrixSymbol:
        """r_t, the overlaps of the positional bits (4M x 1)."""
        return _column(f"r_{time}", 4 * PATTERNS)

    def attention(self, time: int) -> MatrixSymbol:
        """A_t (M x 1)."""
        return _column(f"A_{time}")

    def force(self, time: int) -> MatrixSymbol:
        """F_t, the gradient of the action in A_t."""
        return _column(f"F_{time}")

    def attention_weights(self, time: int) -> MatrixSymbol:
        """sigma_t, the softmax over attended tokens (L x 1)."""
        return _column(f"sigma_{time}", CONTEXT)

    def attention_response(self, time: int) -> MatrixSymbol:
        """G_t, how A_t moves with the exponents of its softmax (L x M)."""
        return _per_pattern(f"G_{time}", CONTEXT)

    def attended(self, family: str, time: int) -> MatrixSymbol:
        """V_t or K_t, the overlaps of the attended tokens (L x M)."""
        return _per_pattern(f"{family.upper()}_{time}", CONTEXT)

    def picks(self, family: str) -> MatrixSymbol:
        """P_v, P_k or P_q, which pick one family of the overlaps (M x 4M)."""
        return MatrixSymbol(f"P_{family}", PATTERNS, 4 * PATTERNS)

    def overlap_of_spins(self, time: int) -> MatrixExpr:
        """The overlaps as functions of the bits, Eq. (1)."""
        of_spins = self.semantic_share / NEURONS * self.weights * self.spins(time)  # Eq. (1)
        return of_spins + self.of_map.positional_share * self.position(time)

    def drive(self, time: int) -> MatrixExpr:
        """beta h (N x 1), the field on the bits of time t from the attention before, Eq. (4)."""
        return self.of_map.output_inverse_temperature * self.output_weights.T * self.attention(time - 1)

    def log_probability(self, time: int) -> Expr:
        """Of the bits of time t, given the attention before, Eq. (4)."""
        drive = self.drive(time)
        return (
            Trace(self.spins(time).T * drive) - sum_of_column(entrywise(log_cosh, drive)) - NEURONS * log(2)
        )  # Eq. (4)

    def query(self, time: int) -> MatrixExpr:
        """The query of time t."""
        return self.picks("q") * self.overlap(time)

    def mask(self, time: int) -> MatrixSymbol:
        """l_t, minus infinity where there is no token yet (L x 1)."""
        return _column(f"ell_{time}", CONTEXT)

    def exponents_of(self, time: int) -> MatrixExpr:
        """What the softmax is taken of; the mask leaves out tokens before the prompt and beyond the context."""
        gamma = self.of_map.attention_inverse_temperature
        return gamma * self.attended("k", time) * self.query(time) + self.mask(time)

    def attention_of(self, weights: MatrixExpr, time: int) -> MatrixExpr:
        """A_t of the softmax's weights, Eq. (2)."""
        return self.attended("v", time).T * weights  # Eq. (2)

    def attention_definitions(self, time: int) -> tuple[tuple[MatrixSymbol, MatrixExpr], ...]:
        """V_t, K_t, sigma_t and A_t, each in terms of the overlaps and of those before it."""
        weights = self.attention_weights(time)
        return (
            (self.attended("v", time), self._rows("v", time)),
            (self.attended("k", time), self._rows("k", time)),
            (weights, Softmax(self.exponents_of(time))),
            (self.attention(time), self.attention_of(weights, time)),
        )

    def _rows(self, family: str, time: int) -> MatrixExpr:
        """Tokens newest first; e_d is the d-th unit column, and zero for tokens that have left the context."""
        rows = [
            _column(f"e_{age}", CONTEXT) * (self.picks(family) * self.overlap(time - age)).T for age in range(time + 1)
        ]
        return sum_of(rows)

    def softmax_slope(self, time: int) -> MatrixExpr:
        """G_t (L x M) in terms of sigma_t and V_t."""
        weights, values = self.attention_weights(time), self.attended("v", time)
        return DiagMatrix(weights) * values - weights * weights.T * values
