"""Derive a deterministic map from the sum over spins, with matrices of symbolic sizes.

`MeanField.derivation.verify()` checks the claim of every step. Integrands are
exp(-S/2), S = -2 N Phi. derivations/notation.md explains all symbols.
"""

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from sympy import Add, Expr, Lambda, MatrixSymbol, S, Symbol, Trace, log, sqrt, tanh
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..derivation import Derivation
from ..derivation.claims import SPINS, Average, Derivative, Equal, OrderParameterInserted, Solves
from ..derivation.step import Recorder
from ..symbolic import Softmax, entrywise, log_cosh, normal, sum_of
from ..symbolic.documents import DisplayMixin, Equation, Heading
from ..symbolic.documents.rendering import latex
from ..symbolic.matrix_functions import ENTRY, sum_of_column

# Tokens after the prompt. Of three, an overlap acts on its own and on a later attention.
HORIZON = 3
N, M, L, J = (Symbol(name, integer=True, positive=True) for name in "NMLJ")


def _at(name, rows, columns=1):
    return staticmethod(lambda time: MatrixSymbol(f"{name}_{time}", rows, columns))


def _log_cosh(fields):
    return sum_of_column(entrywise(log_cosh, fields))


# Symbols of the map, arguments of compiled functions.
beta, gamma = Symbol("beta", positive=True), Symbol("gamma", positive=True)
epsilon = Symbol("epsilon", nonnegative=True)
Omega, C = (MatrixSymbol(name, J, M) for name in ("Omega", "C"))
X, Xbar = (MatrixSymbol(name, J, 4 * M) for name in ("X", "Xbar"))
r, A, q = (MatrixSymbol(name, M, 1) for name in "rAq")
K, V = (MatrixSymbol(name, L, M) for name in "KV")
ell = MatrixSymbol("ell", L, 1)
D_k, D_v, D_q = (MatrixSymbol(f"D_{name}", M, M) for name in "kvq")
weight, g, G = Symbol("s", positive=True), MatrixSymbol("g", M, 1), MatrixSymbol("G", L, M)
share = Symbol("epsilonbar", positive=True)  # 1 - epsilon
LATEX_NAMES = {
    D_k: "D^{k}",
    D_v: "D^{v}",
    D_q: "D^{q}",
    weight: r"\sigma_{d}",
    g: "g_{d}",
    share: r"\left(1 - \epsilon\right)",
}


class TrajectorySymbols:
    """Symbols of the derivation, at each time t. Overlaps stack all families."""

    times = range(1, HORIZON + 1)
    output_weights = MatrixSymbol("W_o", M, N)
    weights = MatrixSymbol("W", 4 * M, N)
    family = MatrixSymbol("P_alpha", M, 4 * M)
    pick = MappingProxyType({each: MatrixSymbol(f"P_{each}", M, 4 * M) for each in "vkq"})
    family_weights = MatrixSymbol("W_alpha", M, N)
    exponents = MatrixSymbol("z", L, 1)

    spins = _at("s", N)
    overlap = _at("m", 4 * M)
    conjugate = _at("mhat", 4 * M)
    source = _at("j", 4 * M)
    position = _at("r", 4 * M)
    attention = _at("A", M)
    force = _at("F", M)
    attention_weights = _at("sigma", L)
    attention_response = _at("G", L, M)
    keys = _at("K", L, M)
    values = _at("V", L, M)
    mask = _at("ell", L)
    row = _at("e", L)

    def overlap_of_spins(self, time: int) -> MatrixExpr:
        return share / N * self.weights * self.spins(time) + epsilon * self.position(time)  # Eq. (1)

    def drive(self, time: int) -> MatrixExpr:
        return beta * self.output_weights.T * self.attention(time - 1)

    def log_probability(self, time: int) -> Expr:
        drive = self.drive(time)
        return Trace(self.spins(time).T * drive) - _log_cosh(drive) - N * log(2)  # Eq. (4)

    def attention_definitions(self, time: int) -> tuple[tuple[MatrixSymbol, MatrixExpr], ...]:
        """Return V_t, K_t, sigma_t and A_t in terms of overlaps and of each other."""

        def rows(family):
            # The newest token comes first.
            overlaps = [(self.pick[family] * self.overlap(time - age)).T for age in range(time + 1)]
            return sum_of([self.row(age) * each for age, each in enumerate(overlaps)])

        scores = gamma * self.keys(time) * self.pick["q"] * self.overlap(time)
        weights = self.attention_weights(time)
        return (
            (self.values(time), rows("v")),
            (self.keys(time), rows("k")),
            # The mask excludes tokens before the prompt and beyond the context.
            (weights, Softmax(scores + self.mask(time))),
            (self.attention(time), self.values(time).T * weights),  # Eq. (2)
        )


_LAPLACE = (r"$N \to \infty$ at fixed patterns, context and horizon",)
# Checks enumerate all spins, so there are few neurons.
_SIZES = {N: 2, M: 2, L: 3, J: 2}, {N: 3, M: 1, L: 2, J: 4}, {N: 4, M: 3, L: 4, J: 1}


@dataclass(frozen=True, repr=False)
class MeanField(DisplayMixin):
    """The derived map for M patterns and L tokens of the context.

    - `overlap` (M x 1): m of one family after attention A, Eqs. (5), (6).
    - `attention` (M x 1): attention of query q to keys K and values V, Eq. (2).
    - `overlap_response` (M x M): D = dm/dA.
    - `attention_weights` (L x 1): softmax weights of the tokens.
    - `attention_response` (L x M): G, derivatives of the attention to softmax scores.
    - `row_response`, `query_response` (M x M): derivative of the attention with respect
      to the attention that generated token d, through its key and value, and for the
      newest token through its query, Eq. (8).
    - `noise` (4M x 4M): N times the covariance of a token's overlaps, given A.
    - `derivation`: all steps, in the symbols of `TrajectorySymbols`.
    """

    overlap: MatrixExpr
    attention: MatrixExpr
    overlap_response: MatrixExpr
    attention_weights: MatrixExpr
    attention_response: MatrixExpr
    row_response: MatrixExpr
    query_response: MatrixExpr
    noise: MatrixExpr
    derivation: Derivation

    @property
    def equations(self) -> tuple[Equation, ...]:
        """The map and its linear responses."""
        block = rf"{written(self.row_response)} + \delta_{{d0}}\, {written(self.query_response)}"
        return (
            Equation(r"m^{\alpha}", written(self.overlap), source="5, 6"),
            Equation("A'", written(self.attention), source="2"),
            Equation(r"D^{\alpha}", written(self.overlap_response)),
            Equation("G", written(self.attention_response)),
            Equation(r"\frac{\partial A'}{\partial A_{d}}", block, source="8"),
        )

    def _view(self):
        yield Heading("Self-attention dynamics of many neurons", 1)
        yield from self.equations


def written(expression: Expr) -> str:
    """Return the LaTeX of an expression, with 1 - epsilon as one factor."""
    return latex(expression.xreplace({1 - epsilon: share}), LATEX_NAMES)


@lru_cache
def derive() -> MeanField:
    """Return the map at N -> infinity, derived from the generating functional."""
    s, last = TrajectorySymbols(), HORIZON
    W, W_o, W_alpha = s.weights, s.output_weights, s.family_weights
    route = Recorder()

    def say(rule, before, after, claim, equations="", **record):
        definitions = record.pop("definitions", getattr(claim, "definitions", ()))
        return route.say(rule, before, after, claim, equations=equations, definitions=definitions, **record)

    def without(*symbols):
        """Claim equality if these symbols are zero."""
        return Equal(tuple((symbol, 0 * symbol) for symbol in symbols))

    def response(rule, before, after, variable, *moved):
        """State the derivative at zero, which defines no symbols."""
        say(rule, before, after, Derivative(variable, definitions=moved, at_zero=True), definitions=())

    # Probabilities of the last spins sum to one, then those of the previous spins.
    route.section = "Normalisation"
    of_bits = {t: -2 * s.log_probability(t) for t in s.times}
    say("sum over spins", normal(of_bits[last]), S.Zero, Average(s.spins(last), SPINS), "4")

    fields, constraints, of_fields, sourced = {}, {}, {}, []
    for t in s.times:
        route.section = f"Token {t}"
        m, mhat, j, value = s.overlap(t), s.conjugate(t), s.source(t), s.overlap_of_spins(t)
        summand = normal(of_bits[t] - 2 * Trace(j.T * value))
        inserted = normal(of_bits[t] - 2 * Trace(j.T * m) + 2 * N * Trace(mhat.T * (m - value)))
        claim = OrderParameterInserted(m, value, mhat, -2 * N)
        say("overlap by a delta function", summand, inserted, claim, "1")
        fields[t] = s.drive(t) + share * W.T * mhat
        of_fields[t] = 2 * _log_cosh(s.drive(t)) - 2 * _log_cosh(fields[t])
        constraints[t] = normal(2 * N * Trace(mhat.T * (m - epsilon * s.position(t))))
        summed = constraints[t] + of_fields[t] - 2 * Trace(j.T * m)
        sourced.append(say("sum over spins", inserted, summed, Average(s.spins(t), SPINS)))

    route.section = "All tokens"
    action = Add(*constraints.values(), *of_fields.values())
    say("sources set to zero", Add(*sourced), action, without(*map(s.source, s.times)))

    route.section = "Saddle point in the conjugates"
    for t in s.times:
        m, of_position = s.overlap(t), epsilon * s.position(t)
        bits = W * entrywise(tanh, fields[t])
        slope = sum_of([2 * N * m, -2 * N * of_position, -2 * share * bits])
        say("differentiated", constraints[t] + of_fields[t], slope, Derivative(s.conjugate(t)))
        overlaps = sum_of([of_position, share / N * bits])
        say("solved", slope, overlaps, Solves(m), assumptions=_LAPLACE)

    route.section = "Saddle point in the overlaps"
    P_v, P_k, P_q = (s.pick[family] for family in "vkq")
    forces, conjugates, responses, definitions = {}, {}, {}, ()
    for t in reversed(s.times):
        m, mhat = s.overlap(t), s.conjugate(t)
        if t < last:
            bits, free_bits = entrywise(tanh, fields[t + 1]), entrywise(tanh, s.drive(t + 1))
            forces[t] = sum_of([-2 * beta * W_o * bits, 2 * beta * W_o * free_bits])
            definitions = (*s.attention_definitions(t), (s.force(t), forces[t]), *definitions)
            of_softmax = _of_softmax(s.attention_weights(t), s.values(t))
            responses = {s.attention_response(t): of_softmax, **responses}
        # Overlaps act as value and key in this and later attentions, as query in this one.
        terms = [0 * mhat]
        for later in range(t, last):
            F, e_d = s.force(later), s.row(later - t)
            terms.append(P_v.T * F * s.attention_weights(later).T * e_d)
            keys = gamma * P_k.T * P_q * s.overlap(later)
            terms.append(keys * F.T * s.attention_response(later).T * e_d)
        if t < last:
            terms.append(gamma * P_q.T * s.keys(t).T * s.attention_response(t) * s.force(t))
        on_overlaps = constraints[t] + Add(*(of_fields[later + 1] for later in range(t, last)))
        gradient = sum_of([2 * N * mhat, *terms])
        slope = sum_of([gradient.xreplace(responses)])
        say("differentiated", on_overlaps, slope, Derivative(m, definitions=definitions))
        if responses:
            say("responses named", slope, gradient, Equal(tuple(responses.items())))
        conjugates[t] = sum_of([-term / (2 * N) for term in terms])
        say("solved", gradient, conjugates[t], Solves(mhat), assumptions=_LAPLACE)

    # Backwards in time: no later conjugate, no force; no forces, no conjugate.
    route.section = "Causality"
    for t in reversed(s.times[:-1]):
        say("conjugate set to zero", forces[t], 0 * s.force(t), without(s.conjugate(t + 1)))
        later = without(*map(s.force, range(t, last)))
        say("forces set to zero", conjugates[t], 0 * s.conjugate(t), later)
    say("conjugates set to zero", action, S.Zero, without(*map(s.conjugate, s.times)))
    settled = sum_of([epsilon * s.position(last), share / N * W * entrywise(tanh, s.drive(last))])  # Eq. (5)
    say("conjugate set to zero", overlaps, settled, without(s.conjugate(last)), "5")

    route.section = "Distinct columns"
    P, A_last, B = s.family, s.attention(last - 1), MatrixSymbol("B", J, N)
    of_family = sum_of([epsilon * r, share / N * W_alpha * entrywise(tanh, beta * W_o.T * A)])
    names = (W_alpha, P * W), (r, P * s.position(last)), (A, A_last)
    say("one family", P * settled, of_family, Equal(names))
    overlap = sum_of([epsilon * r, share * C.T * entrywise(tanh, beta * Omega * A)])  # Eq. (6)
    claim = Equal(((W_o, Omega.T * B), (C, B * W_alpha.T / N)), B)
    say("neurons gathered into classes", of_family, overlap, claim, "6")

    route.section = "Attention"
    softmax = Softmax(gamma * K * q + ell)
    attention = V.T * softmax  # Eq. (2)
    (V_last, _), (K_last, _), (sigma, weights), (_, average) = s.attention_definitions(last - 1)
    names = (V, V_last), (K, K_last), (q, P_q * s.overlap(last - 1)), (ell, s.mask(last - 1))
    say("attention at any time", average.xreplace({sigma: weights}), attention, Equal(names), "2")

    route.section = "Responses"
    a, b, z = MatrixSymbol("a", M, 1), MatrixSymbol("b", L, 1), s.exponents
    variance = Lambda(ENTRY, 1 - tanh(ENTRY) ** 2)  # of a bit, and the slope of its mean
    slopes = DiagMatrix((beta * Omega * A).applyfunc(variance))
    overlap_response = sum_of([beta * share * C.T * slopes * Omega])  # D = dm/dA
    response("response of the overlaps", overlap, overlap_response, a, (A, A + a))
    of_exponents = sum_of([_of_softmax(Softmax(z), V).T])  # G^T
    response("response to the exponents", V.T * Softmax(z), of_exponents, b, (z, z + b))
    e_d = MatrixSymbol("e_d", L, 1)
    moved = (K, K + e_d * (D_k * a).T), (V, V + e_d * (D_v * a).T), (q, q + D_q * a)
    of_scores = sum_of([gamma * e_d * q.T * D_k, gamma * K * D_q])
    whole = Trace(softmax.T * e_d) * D_v + of_exponents.xreplace({z: softmax.column}) * of_scores
    response("response of the attention", attention, whole, a, *moved)
    of_softmax = _of_softmax(softmax, V)
    names = (G, of_softmax), (g, G.T * e_d), (weight, Trace(softmax.T * e_d))
    row_response = sum_of([weight * D_v, gamma * g * q.T * D_k])
    query_response = gamma * G.T * K * D_q
    block = sum_of([row_response, query_response])  # Eq. (8)
    say("response named", whole, block, Equal(names), "8")

    route.section = "Fluctuations"
    variances = DiagMatrix(s.drive(last).applyfunc(variance))
    covariance = sum_of([share**2 / N * W * variances * W.T])
    claim = Average(s.spins(last), SPINS, value=sqrt(N) * s.overlap_of_spins(last))
    say("covariance over spins", normal(of_bits[last]), covariance, claim)
    noise = sum_of([share**2 * X.T * slopes * Xbar])  # Eq. (9)
    claim = Equal(((W_o, Omega.T * B), (W, X.T * B), (Xbar, B * W.T / N), (A, A_last)), B)
    say("neurons gathered into classes", covariance, noise, claim, "9")

    responses = overlap_response, softmax, of_softmax, row_response, query_response
    functions = [each.xreplace({share: 1 - epsilon}) for each in (overlap, attention, *responses, noise)]
    return MeanField(*functions, Derivation(tuple(route.steps), _SIZES))


def _of_softmax(sigma, V):
    """Return the transposed derivative of V^T sigma in the exponents."""
    return sum_of([DiagMatrix(sigma) * V, -sigma * sigma.T * V])
