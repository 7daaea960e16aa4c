"""A true step of every rule, on small expressions, and the sizes to try them at."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from sympy import (
    Expr,
    Identity,
    Interval,
    KroneckerProduct,
    Lambda,
    MatrixSymbol,
    Max,
    Min,
    S,
    Symbol,
    Trace,
    acos,
    asin,
    erf,
    oo,
    pi,
    sqrt,
    tanh,
)
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix

from theorykit.derivation import Step, rules
from theorykit.symbolic import (
    Softmax,
    entrywise,
    inverse,
    kronecker,
    log_cosh,
    normal,
    positive_definite,
    positive_semidefinite,
)
from theorykit.symbolic.atoms import LogDet, PartialTrace, SideBySide, Stacked
from theorykit.symbolic.matrix_functions import ENTRY, kernel_matrix, sum_of_column

I = S.ImaginaryUnit  # noqa: E741
k, m, n, N, P = (Symbol(name, integer=True, positive=True) for name in "kmnNP")
T, scale = Symbol("T", positive=True), Symbol("c", positive=True)
multiplier = Symbol("mu", real=True)
U, Q, J, G = (positive_definite(name, n) for name in "UQJG")
U_all = positive_definite("U_all", k * n)
U_both, Q_both = positive_definite("U_both", n + k * n), positive_definite("Q_both", n + k * n)
C, M = positive_definite("C", m), positive_definite("M", n)
y, f, t = (MatrixSymbol(name, m, 1) for name in "yft")
r, w, j = (MatrixSymbol(name, n, 1) for name in "rwj")
v = MatrixSymbol("v", m, 1)
V, R, Z = MatrixSymbol("V", N, m), MatrixSymbol("R", N, n), MatrixSymbol("Z", m, n)
B = MatrixSymbol("B", m, n)
A = MatrixSymbol("A", m, m)
W = MatrixSymbol("W", n, N)
one = positive_definite("one", 1)

SIZES = (
    {k: 2, m: 2, n: 2, N: 3, P: 2},
    {k: 2, m: 3, n: 1, N: 2, P: 3},
    {k: 1, m: 1, n: 3, N: 2, P: 2},
    {k: 3, m: 1, n: 2, N: 5, P: 1},
)

_OVERLAP = Z.T * C * Z / N
_AFTER_LEMMA = N * (LogDet(inverse(M) + Z.T * C * Z / N) + LogDet(M))
s = MatrixSymbol("s", N, 1)
drive, distinct, assignment = MatrixSymbol("W_d", m, N), MatrixSymbol("Omega", P, m), MatrixSymbol("B_c", P, N)
sums, columns, correlations = (MatrixSymbol(name, P, n) for name in ("Xbar_c", "X_c", "C_c"))
# products and columns that are named, blocks below and beside each other
product, of_product = MatrixSymbol("ZM", m, n), MatrixSymbol("x", m, 1)
overlap, conjugate = MatrixSymbol("o", n, 1), MatrixSymbol("ohat", n, 1)
weights, mean, force = MatrixSymbol("p", m, 1), MatrixSymbol("x", n, 1), MatrixSymbol("F", n, 1)
through, joined = MatrixSymbol("X", N, k * n), MatrixSymbol("joined", N, n + k * n)
beside, kappa = SideBySide(MatrixSymbol("z", n * m, 1), n), positive_definite("kappa", k)
by_paths, of_columns = MatrixSymbol("W", k * n, N), MatrixSymbol("t", P * n, 1)


def _entropy_before() -> Expr:
    return N * (LogDet(inverse(M) + Q) + LogDet(M) - Trace(U * Q))


def _nonlinear(function, kernel) -> Step:
    """Units of two weights: their number is what the claim takes the mean over."""
    weights, inputs = MatrixSymbol("V", N, 2), MatrixSymbol("X", 2, m)
    hidden = entrywise(function, weights * inputs)
    read = hidden * Z
    kappa = positive_definite("kappa", m)
    of_tokens = kappa, kernel_matrix(kernel, inputs.T * inputs)
    return rules.gaussian_equivalence(Trace(M * read.T * read) / N, hidden, weights, of_tokens)


RULES: dict[str, Callable[[], Step]] = {
    "linearise_square": lambda: rules.linearise_square(Trace((f - y).T * (f - y)) / T, t),
    "split_into_rows": lambda: rules.split_into_rows(
        2 * I * Trace(V.T * R * B.T) + Trace(M * R.T * R) / N, [(v, V), (r, R)]
    ),
    "gaussian_average of a linear form": lambda: rules.gaussian_average(2 * I * Trace(v.T * Z * r) / sqrt(N), v, C),
    "determinant_lemma": lambda: rules.determinant_lemma(
        LogDet(inverse(C) + Z * M * Z.T / N) + LogDet(C) + Trace(M), C, M
    ),
    "invert_update in a matrix": lambda: rules.invert_update(
        Z.T * inverse(inverse(C) + Z * M * Z.T) * A + 2 * B.T, C, M
    ),
    "sum_over_rows": lambda: rules.sum_over_rows(Trace(r.T * M * r) / N + LogDet(U) + scale, N, [(r, R)]),
    "insert_order_parameter": lambda: rules.insert_order_parameter(_AFTER_LEMMA, _OVERLAP, U, Q, N),
    "same_form": lambda: rules.same_form(Trace(M * R.T * R) / N + scale * Trace(U * J * R.T * R) / N, R, Q, N),
    "vectorise a single block": lambda: rules.vectorise(Trace(one * (B.T * y).T * (B.T * y)) / N, n),
    "name": lambda: rules.name(2 * I * Trace(M * Z.T * C * Z) / N + Trace(Z.T * C * Z * U), Q, Z.T * C * Z / N),
    "leading_order": lambda: rules.leading_order((N - n - 1) * LogDet(U) + N * Trace(M * U) + 3 * Trace(M), N),
    "drop_constants": lambda: rules.drop_constants(N * LogDet(U) + Trace(M * U) + LogDet(M) + n * N, (U,)),
    "gaussian_density": lambda: rules.gaussian_density(Trace(j.T * M * j) / scale, j, w),
    "gram_volume": lambda: rules.gram_volume(N * LogDet(M) + Trace(W.T * inverse(M) * W), W, U, N),
    "eliminate": lambda: rules.eliminate(_entropy_before(), Q),
    "eliminate a number": lambda: rules.eliminate(scale**2 * Trace(M) - 2 * scale * T + N, scale),
    "eliminate_constrained": lambda: rules.eliminate_constrained(Trace(Q * (2 * U - M)) + N * LogDet(U), Q, U),
    "eliminate_constrained of numbers": lambda: rules.eliminate_constrained(
        multiplier * (1 / scale - T) + scale**2 * T, multiplier, scale, {scale: Interval.open(0, oo)}
    ),
    "derivative": lambda: rules.derivative(N * (Trace(inverse(M) * J) / scale - LogDet(J)), J),
    "derivative of a source": lambda: rules.derivative(LogDet(inverse(M) + 2 * J) - Trace(U * J * M), J),
    "linearise_form": lambda: rules.linearise_form(Trace(r.T * M * r) / N, r, w, N),
    "name_sum": lambda: rules.name_sum(3 * A * Z * M + 6 * B * M + B * U, MatrixSymbol("X", m, n), A * Z + 2 * B),
    "sum_over_spins": lambda: rules.sum_over_spins(_EXPONENT, s),
    "solve": lambda: rules.solve(2 * N * M * r - scale * W * entrywise(tanh, W.T * w) - w, r),
    "write_out": lambda: rules.write_out(scale * M * Softmax(B.T * y), {y: Z * r, scale: T * T}),
    "gaussian_equivalence": lambda: _nonlinear(
        erf, lambda a, c, b: 2 / pi * asin(2 * c / sqrt((1 + 2 * a) * (1 + 2 * b)))
    ),
}

_INSIDE = inverse(inverse(C) + Z * M * Z.T / N)
_WHOLE = inverse(C) + A * A.T / scale
_EXPONENT = -2 * Trace(s.T * W.T * r) - Trace(j.T * W * s) + N * LogDet(U)
_SOURCE = Trace(j.T * M * j) + 2 * I * Trace(j.T * B.T * y)
_VALUE = scale * W * s / N + T * w
_STACKED = Stacked(through, k)
_NAMED = {
    positive_semidefinite("gram", n): Z.T * Z,
    MatrixSymbol("b", n, 1): Z.T * y,
    Symbol("y2", positive=True): Trace(y.T * y),
}
_CORE = inverse(M) - inverse(M) * inverse(inverse(M) + Z.T * C * Z / N) * inverse(M)

RULES |= {
    "unstack": lambda: rules.unstack(
        2 * I * Trace(of_columns.T * Stacked(MatrixSymbol("A", n, m) * MatrixSymbol("X", m, P), P)) / sqrt(N)
    ),
    "split_into_rows with a skip connection": lambda: rules.split_into_rows(
        Trace(M * (V * Z + scale * R).T * (V * Z + scale * R)) / N, [(v, V), (r, R)]
    ),
    "gaussian_average": lambda: rules.gaussian_average(
        Trace(v.T * A.T * A * v) / N + 2 * I * Trace(y.T * A * v) + Trace(r.T * M * r) + 3 * LogDet(U), v, scale * C
    ),
    "determinant_lemma of a sum": lambda: rules.determinant_lemma(
        LogDet(inverse(C) + 2 * Z * M * Z.T + 2 * Z * U * Z.T / 3), C, M + U / 3
    ),
    "woodbury": lambda: rules.woodbury(scale * Trace(r.T * M * Z.T * _INSIDE * Z * M * r) + LogDet(M), C, M),
    "invert_update": lambda: rules.invert_update(
        scale * Trace(y.T * inverse(inverse(scale * C) + Z * M * Z.T / N) * A * y) + LogDet(M), scale * C, M
    ),
    "push_through": lambda: rules.push_through(
        scale * B * M * Z.T * inverse(inverse(C) + Z * (2 * M) * Z.T / N) * y + y, C, 2 * M
    ),
    "rescale": lambda: rules.rescale(N * LogDet(_WHOLE) - Trace(y.T * inverse(_WHOLE) * y) / T, _WHOLE, scale),
    "rescale a matrix": lambda: rules.rescale(B.T * inverse(_WHOLE) * A + B.T, _WHOLE, scale),
    "abbreviate": lambda: rules.abbreviate(
        Trace(y.T * y) / T - Trace(y.T * Z * inverse(T * M + Z.T * Z) * Z.T * y) + N * LogDet(T * M + Z.T * Z), _NAMED
    ),
    "abbreviate in a matrix": lambda: rules.abbreviate(
        M * Z.T * inverse(C + Z * M * Z.T) * y + M * Z.T * y, {product: Z * M}
    ),
    "insert_order_parameter in an inverse": lambda: rules.insert_order_parameter(
        _AFTER_LEMMA + N * Trace(r.T * _CORE * r), _OVERLAP, U, Q, N
    ),
    "gather_blocks": lambda: rules.gather_blocks(
        Trace(U * _STACKED.T * kronecker(kappa, Identity(N)) * _STACKED) / N + LogDet(U)
    ),
    "join_branches": lambda: rules.join_branches(
        scale**2 * Trace(U * R.T * R) / N + Trace(U_all * through.T * through) / N, (R, through), joined, N
    ),
    "vectorise": lambda: rules.vectorise(Trace(U * beside.T * beside) / N, m),
    "reduce_traces": lambda: rules.reduce_traces(
        Trace(inverse(kronecker(Identity(k), U)) * U_all) / scale
        + LogDet(kronecker(Identity(k), U))
        + Trace(BlockDiagMatrix(U, U_all) * U_both)
    ),
    "write_as_number": lambda: rules.write_as_number(
        N * LogDet(one) + Trace(inverse(one) * PartialTrace(U, (n, 1), 0)) + LogDet(KroneckerProduct(U, one)),
        one,
        scale,
    ),
    "gram_volume with given rows": lambda: rules.gram_volume(
        N * LogDet(kronecker(Identity(k), U)) + Trace(by_paths.T * inverse(kronecker(Identity(k), U)) * by_paths),
        by_paths,
        U_both,
        N,
        U,
    ),
    "source_derivative": lambda: rules.source_derivative(_SOURCE / scale, j, -I / 2),
    "source_derivative of second order": lambda: rules.source_derivative(
        _SOURCE + Trace(j.T * B.T * A.T * A * B * j), j, S.Half, order=2
    ),
    "constrain": lambda: rules.constrain(
        N * (scale**2 * Trace(Q * PartialTrace(U_all, (k, n), 0)) - Trace(Q * U)) + LogDet(U_all) - LogDet(U), Q, U
    ),
    "linear_response": lambda: rules.linear_response(N * (Trace(U * inverse(M)) / scale - LogDet(U)), U, scale * M, G),
    "riccati": lambda: rules.riccati(
        N * inverse(M) - N * inverse(U) + 3 * inverse(U) - inverse(U) * G * inverse(U) / scale, U
    ),
    "insert_overlap": lambda: rules.insert_overlap(
        normal(Trace(s.T * W.T * r) - 2 * Trace(j.T * _VALUE) + LogDet(U)), _VALUE, overlap, conjugate, -2 * N
    ),
    "covariance_over_spins": lambda: rules.covariance_over_spins(_EXPONENT, s, scale * V.T * s + y),
    "gather_columns": lambda: rules.gather_columns(
        scale / N * M * W * DiagMatrix((T * drive.T * y).applyfunc(Lambda(ENTRY, 1 - tanh(ENTRY) ** 2))) * W.T,
        (W, drive),
        (sums, columns, distinct),
        assignment,
    ),
    "gather_classes": lambda: rules.gather_classes(
        scale / N * W * entrywise(tanh, T * drive.T * y) + r, (W, drive), (correlations, distinct), assignment
    ),
    "slope": lambda: rules.slope(Trace(r.T * M * w) - 3 * sum_of_column(entrywise(log_cosh, W.T * r + R * w)) / N, r),
    "slope through definitions": lambda: rules.slope(
        Trace(r.T * M * mean) + scale * sum_of_column(entrywise(log_cosh, W.T * mean)),
        r,
        [(weights, Softmax(B * M * r + y)), (mean, Z.T * weights)],
        {mean: force},
    ),
    "set_to_zero": lambda: rules.set_to_zero(
        scale * W * entrywise(tanh, W.T * r + R * w) - 2 * W * entrywise(tanh, W.T * r) + M * w, w
    ),
    "set_to_zero in a number": lambda: rules.set_to_zero(
        normal(
            3 * sum_of_column(entrywise(log_cosh, W.T * r + R * w))
            - sum_of_column(entrywise(log_cosh, W.T * r))
            + Trace(w.T * r)
        ),
        w,
    ),
    "response": lambda: rules.response(
        Z.T * Softmax(Z * r + v) + scale * W * entrywise(tanh, W.T * r), {Z: y * (M * w).T, r: U * w, v: B * w}, w
    ),
    "abbreviate in functions": lambda: rules.abbreviate(
        W * entrywise(tanh, drive.T * Z * r)
        + scale * Z.T * Softmax(A * Z * r)
        + Z.T * Softmax(A * Z * r) * Softmax(A * Z * r).T * y,
        {of_product: Z * r},
    ),
    "gaussian_equivalence of a relu": lambda: _nonlinear(lambda unit: Max(unit, 0), _relu_kernel),
}


class _Steps(Mapping[str, Step]):
    """The step of every example by name. Each is made once, when it is first used."""

    def __getitem__(self, name: str) -> Step:
        return _made(name)

    def __iter__(self) -> Iterator[str]:
        return iter(RULES)

    def __len__(self) -> int:
        return len(RULES)


@cache
def _made(name: str) -> Step:
    return RULES[name]()


STEPS = _Steps()


def _relu_kernel(a, c, b):
    c = Min(c, sqrt(a * b))
    cosine = c / sqrt(a * b)
    return sqrt(a * b) * (cosine * (pi - acos(cosine)) + sqrt(Max(0, 1 - cosine**2))) / (2 * pi)
