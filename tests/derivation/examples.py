"""A true step of every rule, on small expressions, and the sizes to try them at."""

from collections.abc import Callable

from sympy import (
    Expr,
    Identity,
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
    "derivative": lambda: rules.derivative(N * (Trace(inverse(M) * J) / scale - LogDet(J)), J),
    "derivative of a source": lambda: rules.derivative(LogDet(inverse(M) + 2 * J) - Trace(U * J * M), J),
    "linearise_form": lambda: rules.linearise_form(Trace(r.T * M * r) / N, r, w, N),
    "name_sum": lambda: rules.name_sum(3 * A * Z * M + 6 * B * M + B * U, MatrixSymbol("X", m, n), A * Z + 2 * B),
    "sum_over_spins": lambda: rules.sum_over_spins(-2 * Trace(s.T * W.T * r) - Trace(j.T * W * s) + N * LogDet(U), s),
    "solve": lambda: rules.solve(2 * N * M * r - scale * W * entrywise(tanh, W.T * w) - w, r),
    "write_out": lambda: rules.write_out(scale * M * Softmax(B.T * y), {y: Z * r, scale: T * T}),
    "gaussian_equivalence": lambda: _nonlinear(
        erf, lambda a, c, b: 2 / pi * asin(2 * c / sqrt((1 + 2 * a) * (1 + 2 * b)))
    ),
}


def example(name: str) -> Callable:
    """Enter a function that makes a step among those of the rules."""
    return lambda make: RULES.setdefault(name, make)


@example("unstack")
def _():
    readings, columns = MatrixSymbol("X", m, P), MatrixSymbol("t", P * n, 1)
    weights = MatrixSymbol("A", n, m)
    return rules.unstack(2 * I * Trace(columns.T * Stacked(weights * readings, P)) / sqrt(N))


@example("split_into_rows with a skip connection")
def _():
    whole = V * Z + scale * R
    return rules.split_into_rows(Trace(M * whole.T * whole) / N, [(v, V), (r, R)])


@example("gaussian_average")
def _():
    exponent = Trace(v.T * A.T * A * v) / N + 2 * I * Trace(y.T * A * v) + Trace(r.T * M * r) + 3 * LogDet(U)
    return rules.gaussian_average(exponent, v, scale * C)


@example("determinant_lemma of a sum")
def _():
    inner = M + U / 3
    return rules.determinant_lemma(LogDet(inverse(C) + 2 * Z * M * Z.T + 2 * Z * U * Z.T / 3), C, inner)


@example("woodbury")
def _():
    inside = inverse(inverse(C) + Z * M * Z.T / N)
    return rules.woodbury(scale * Trace(r.T * M * Z.T * inside * Z * M * r) + LogDet(M), C, M)


@example("invert_update")
def _():
    inside = inverse(inverse(scale * C) + Z * M * Z.T / N)
    return rules.invert_update(scale * Trace(y.T * inside * A * y) + LogDet(M), scale * C, M)


@example("push_through")
def _():
    inside = inverse(inverse(C) + Z * (2 * M) * Z.T / N)
    return rules.push_through(scale * B * M * Z.T * inside * y + y, C, 2 * M)


@example("rescale")
def _():
    whole = inverse(C) + A * A.T / scale
    return rules.rescale(N * LogDet(whole) - Trace(y.T * inverse(whole) * y) / T, whole, scale)


@example("rescale a matrix")
def _():
    whole = inverse(C) + A * A.T / scale
    return rules.rescale(B.T * inverse(whole) * A + B.T, whole, scale)


@example("abbreviate")
def _():
    column, number = MatrixSymbol("b", n, 1), Symbol("y2", positive=True)
    gram = positive_semidefinite("gram", n)
    inside = inverse(T * M + Z.T * Z)
    whole = Trace(y.T * y) / T - Trace(y.T * Z * inside * Z.T * y) + N * LogDet(T * M + Z.T * Z)
    return rules.abbreviate(whole, {gram: Z.T * Z, column: Z.T * y, number: Trace(y.T * y)})


@example("abbreviate in a matrix")
def _():
    product = MatrixSymbol("ZM", m, n)
    return rules.abbreviate(M * Z.T * inverse(C + Z * M * Z.T) * y + M * Z.T * y, {product: Z * M})


@example("insert_order_parameter in an inverse")
def _():
    core = inverse(M) - inverse(M) * inverse(inverse(M) + Z.T * C * Z / N) * inverse(M)
    return rules.insert_order_parameter(_AFTER_LEMMA + N * Trace(r.T * core * r), _OVERLAP, U, Q, N)


@example("gather_blocks")
def _():
    readings, kappa = MatrixSymbol("X", N, k * n), positive_definite("kappa", k)
    stacked = Stacked(readings, k)
    return rules.gather_blocks(Trace(U * stacked.T * kronecker(kappa, Identity(N)) * stacked) / N + LogDet(U))


@example("join_branches")
def _():
    through, joined = MatrixSymbol("X", N, k * n), MatrixSymbol("joined", N, n + k * n)
    sums = scale**2 * Trace(U * R.T * R) / N + Trace(U_all * through.T * through) / N
    return rules.join_branches(sums, (R, through), joined, N)


@example("vectorise")
def _():
    column = MatrixSymbol("z", n * m, 1)
    return rules.vectorise(Trace(U * SideBySide(column, n).T * SideBySide(column, n)) / N, m)


@example("reduce_traces")
def _():
    whole = Trace(inverse(kronecker(Identity(k), U)) * U_all) / scale + LogDet(kronecker(Identity(k), U))
    return rules.reduce_traces(whole + Trace(BlockDiagMatrix(U, U_all) * U_both))


@example("write_as_number")
def _():
    whole = N * LogDet(one) + Trace(inverse(one) * PartialTrace(U, (n, 1), 0)) + LogDet(KroneckerProduct(U, one))
    return rules.write_as_number(whole, one, scale)


@example("gram_volume with given rows")
def _():
    weights, inner = MatrixSymbol("W", k * n, N), kronecker(Identity(k), U)
    before = N * LogDet(inner) + Trace(weights.T * inverse(inner) * weights)
    return rules.gram_volume(before, weights, U_both, N, U)


@example("source_derivative")
def _():
    before = Trace(j.T * M * j) + 2 * I * Trace(j.T * B.T * y) / scale
    return rules.source_derivative(before, j, -I / 2)


@example("source_derivative of second order")
def _():
    before = Trace(j.T * M * j) + Trace(j.T * B.T * A.T * A * B * j) + 2 * I * Trace(j.T * B.T * y)
    return rules.source_derivative(before, j, S.Half, order=2)


@example("constrain")
def _():
    block = scale**2 * Trace(Q * PartialTrace(U_all, (k, n), 0))
    return rules.constrain(N * (block - Trace(Q * U)) + LogDet(U_all) - LogDet(U), Q, U)


@example("linear_response")
def _():
    entropy = N * (Trace(U * inverse(M)) / scale - LogDet(U))
    return rules.linear_response(entropy, U, scale * M, G)


@example("riccati")
def _():
    equation = N * inverse(M) - N * inverse(U) + 3 * inverse(U) - inverse(U) * G * inverse(U) / scale
    return rules.riccati(equation, U)


@example("insert_overlap")
def _():
    value = scale * W * s / N + T * w
    before = normal(Trace(s.T * W.T * r) - 2 * Trace(j.T * value) + LogDet(U))
    return rules.insert_overlap(before, value, MatrixSymbol("o", n, 1), MatrixSymbol("ohat", n, 1), -2 * N)


@example("covariance_over_spins")
def _():
    exponent = -2 * Trace(s.T * W.T * r) - Trace(j.T * W * s) + N * LogDet(U)
    return rules.covariance_over_spins(exponent, s, scale * V.T * s + y)


@example("gather_columns")
def _():
    even = DiagMatrix((T * drive.T * y).applyfunc(Lambda(ENTRY, 1 - tanh(ENTRY) ** 2)))
    classes = MatrixSymbol("Xbar_c", P, n), MatrixSymbol("X_c", P, n), distinct
    return rules.gather_columns(scale / N * M * W * even * W.T, (W, drive), classes, assignment)


@example("gather_classes")
def _():
    before = scale / N * W * entrywise(tanh, T * drive.T * y) + r
    return rules.gather_classes(before, (W, drive), (MatrixSymbol("C_c", P, n), distinct), assignment)


@example("slope")
def _():
    before = Trace(r.T * M * w) - 3 * sum_of_column(entrywise(log_cosh, W.T * r + R * w)) / N
    return rules.slope(before, r)


@example("slope through definitions")
def _():
    weights, mean, force = MatrixSymbol("p", m, 1), MatrixSymbol("x", n, 1), MatrixSymbol("F", n, 1)
    through = [(weights, Softmax(B * M * r + y)), (mean, Z.T * weights)]
    before = Trace(r.T * M * mean) + scale * sum_of_column(entrywise(log_cosh, W.T * mean))
    return rules.slope(before, r, through, {mean: force})


@example("set_to_zero")
def _():
    before = scale * W * entrywise(tanh, W.T * r + R * w) - 2 * W * entrywise(tanh, W.T * r) + M * w
    return rules.set_to_zero(before, w)


@example("set_to_zero in a number")
def _():
    before = (
        3 * sum_of_column(entrywise(log_cosh, W.T * r + R * w))
        - sum_of_column(entrywise(log_cosh, W.T * r))
        + Trace(w.T * r)
    )
    return rules.set_to_zero(normal(before), w)


@example("response")
def _():
    moved = {Z: y * (M * w).T, r: U * w, v: B * w}
    return rules.response(Z.T * Softmax(Z * r + v) + scale * W * entrywise(tanh, W.T * r), moved, w)


@example("abbreviate in functions")
def _():
    product = MatrixSymbol("x", m, 1)
    weights = Softmax(A * Z * r)
    before = W * entrywise(tanh, drive.T * Z * r) + scale * Z.T * weights + Z.T * weights * weights.T * y
    return rules.abbreviate(before, {product: Z * r})


@example("gaussian_equivalence of a relu")
def _():
    def kernel(a, c, b):
        cosine = c / sqrt(a * b)
        return sqrt(a * b) * (cosine * (pi - acos(cosine)) + sqrt(Max(0, 1 - cosine**2))) / (2 * pi)

    return _nonlinear(lambda unit: Max(unit, 0), lambda a, c, b: kernel(a, Min(c, sqrt(a * b)), b))
