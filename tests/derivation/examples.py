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
    kernel_matrix,
    kronecker,
    log_cosh,
    normal,
    positive_definite,
    positive_semidefinite,
)
from theorykit.symbolic.atoms import LogDet, PartialTrace, SideBySide, Stacked
from theorykit.symbolic.matrix_functions import ENTRY, sum_of_column

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


def _square() -> Step:
    return rules.linearise_square(Trace((f - y).T * (f - y)) / T, t)


def _unstack() -> Step:
    readings, columns = MatrixSymbol("X", m, P), MatrixSymbol("t", P * n, 1)
    weights = MatrixSymbol("A", n, m)
    return rules.unstack(2 * I * Trace(columns.T * Stacked(weights * readings, P)) / sqrt(N))


def _rows() -> Step:
    return rules.split_into_rows(2 * I * Trace(V.T * R * B.T) + Trace(M * R.T * R) / N, [(v, V), (r, R)])


def _rows_beside() -> Step:
    whole = V * Z + scale * R
    return rules.split_into_rows(Trace(M * whole.T * whole) / N, [(v, V), (r, R)])


def _average() -> Step:
    exponent = Trace(v.T * A.T * A * v) / N + 2 * I * Trace(y.T * A * v) + Trace(r.T * M * r) + 3 * LogDet(U)
    return rules.gaussian_average(exponent, v, scale * C)


def _average_linear() -> Step:
    return rules.gaussian_average(2 * I * Trace(v.T * Z * r) / sqrt(N), v, C)


def _lemma() -> Step:
    return rules.determinant_lemma(LogDet(inverse(C) + Z * M * Z.T / N) + LogDet(C) + Trace(M), C, M)


def _lemma_of_sums() -> Step:
    inner = M + U / 3
    return rules.determinant_lemma(LogDet(inverse(C) + 2 * Z * M * Z.T + 2 * Z * U * Z.T / 3), C, inner)


def _woodbury() -> Step:
    inside = inverse(inverse(C) + Z * M * Z.T / N)
    return rules.woodbury(scale * Trace(r.T * M * Z.T * inside * Z * M * r) + LogDet(M), C, M)


def _inverted() -> Step:
    inside = inverse(inverse(scale * C) + Z * M * Z.T / N)
    return rules.invert_update(scale * Trace(y.T * inside * A * y) + LogDet(M), scale * C, M)


def _inverted_matrix() -> Step:
    return rules.invert_update(Z.T * inverse(inverse(C) + Z * M * Z.T) * A + 2 * B.T, C, M)


def _pushed() -> Step:
    inside = inverse(inverse(C) + Z * (2 * M) * Z.T / N)
    return rules.push_through(scale * B * M * Z.T * inside * y + y, C, 2 * M)


def _rescaled() -> Step:
    whole = inverse(C) + A * A.T / scale
    return rules.rescale(N * LogDet(whole) - Trace(y.T * inverse(whole) * y) / T, whole, scale)


def _rescaled_matrix() -> Step:
    whole = inverse(C) + A * A.T / scale
    return rules.rescale(B.T * inverse(whole) * A + B.T, whole, scale)


def _abbreviated() -> Step:
    column, number = MatrixSymbol("b", n, 1), Symbol("y2", positive=True)
    gram = positive_semidefinite("gram", n)
    inside = inverse(T * M + Z.T * Z)
    whole = Trace(y.T * y) / T - Trace(y.T * Z * inside * Z.T * y) + N * LogDet(T * M + Z.T * Z)
    return rules.abbreviate(whole, {gram: Z.T * Z, column: Z.T * y, number: Trace(y.T * y)})


def _abbreviated_matrix() -> Step:
    product = MatrixSymbol("ZM", m, n)
    return rules.abbreviate(M * Z.T * inverse(C + Z * M * Z.T) * y + M * Z.T * y, {product: Z * M})


def _summed() -> Step:
    return rules.sum_over_rows(Trace(r.T * M * r) / N + LogDet(U) + scale, N, [(r, R)])


def _inserted() -> Step:
    return rules.insert_order_parameter(_AFTER_LEMMA, _OVERLAP, U, Q, N)


def _inserted_in_inverse() -> Step:
    core = inverse(M) - inverse(M) * inverse(inverse(M) + Z.T * C * Z / N) * inverse(M)
    return rules.insert_order_parameter(_AFTER_LEMMA + N * Trace(r.T * core * r), _OVERLAP, U, Q, N)


def _gathered() -> Step:
    readings, kappa = MatrixSymbol("X", N, k * n), positive_definite("kappa", k)
    stacked = Stacked(readings, k)
    return rules.gather_blocks(Trace(U * stacked.T * kronecker(kappa, Identity(N)) * stacked) / N + LogDet(U))


def _joined() -> Step:
    through, joined = MatrixSymbol("X", N, k * n), MatrixSymbol("joined", N, n + k * n)
    sums = scale**2 * Trace(U * R.T * R) / N + Trace(U_all * through.T * through) / N
    return rules.join_branches(sums, (R, through), joined, N)


def _same_form() -> Step:
    return rules.same_form(Trace(M * R.T * R) / N + scale * Trace(U * J * R.T * R) / N, R, Q, N)


def _vectorise() -> Step:
    column = MatrixSymbol("z", n * m, 1)
    return rules.vectorise(Trace(U * SideBySide(column, n).T * SideBySide(column, n)) / N, m)


def _vectorised_alone() -> Step:
    return rules.vectorise(Trace(one * (B.T * y).T * (B.T * y)) / N, n)


def _named() -> Step:
    return rules.name(2 * I * Trace(M * Z.T * C * Z) / N + Trace(Z.T * C * Z * U), Q, Z.T * C * Z / N)


def _reduced() -> Step:
    whole = Trace(inverse(kronecker(Identity(k), U)) * U_all) / scale + LogDet(kronecker(Identity(k), U))
    return rules.reduce_traces(whole + Trace(BlockDiagMatrix(U, U_all) * U_both))


def _number() -> Step:
    whole = N * LogDet(one) + Trace(inverse(one) * PartialTrace(U, (n, 1), 0)) + LogDet(KroneckerProduct(U, one))
    return rules.write_as_number(whole, one, scale)


def _leading() -> Step:
    return rules.leading_order((N - n - 1) * LogDet(U) + N * Trace(M * U) + 3 * Trace(M), N)


def _constants() -> Step:
    return rules.drop_constants(N * LogDet(U) + Trace(M * U) + LogDet(M) + n * N, (U,))


def _density() -> Step:
    return rules.gaussian_density(Trace(j.T * M * j) / scale, j, w)


def _volume() -> Step:
    return rules.gram_volume(N * LogDet(M) + Trace(W.T * inverse(M) * W), W, U, N)


def _volume_with_given() -> Step:
    weights, inner = MatrixSymbol("W", k * n, N), kronecker(Identity(k), U)
    before = N * LogDet(inner) + Trace(weights.T * inverse(inner) * weights)
    return rules.gram_volume(before, weights, U_both, N, U)


def _of_source() -> Step:
    before = Trace(j.T * M * j) + 2 * I * Trace(j.T * B.T * y) / scale
    return rules.source_derivative(before, j, -I / 2)


def _of_source_twice() -> Step:
    before = Trace(j.T * M * j) + Trace(j.T * B.T * A.T * A * B * j) + 2 * I * Trace(j.T * B.T * y)
    return rules.source_derivative(before, j, S.Half, order=2)


def _entropy_before() -> Expr:
    return N * (LogDet(inverse(M) + Q) + LogDet(M) - Trace(U * Q))


def _eliminated() -> Step:
    return rules.eliminate(_entropy_before(), Q)


def _constrained() -> Step:
    block = scale**2 * Trace(Q * PartialTrace(U_all, (k, n), 0))
    return rules.constrain(N * (block - Trace(Q * U)) + LogDet(U_all) - LogDet(U), Q, U)


def _differentiated() -> Step:
    return rules.derivative(N * (Trace(inverse(M) * J) / scale - LogDet(J)), J)


def _sourced() -> Step:
    return rules.derivative(LogDet(inverse(M) + 2 * J) - Trace(U * J * M), J)


def _response() -> Step:
    entropy = N * (Trace(U * inverse(M)) / scale - LogDet(U))
    return rules.linear_response(entropy, U, scale * M, G)


def _riccati() -> Step:
    equation = N * inverse(M) - N * inverse(U) + 3 * inverse(U) - inverse(U) * G * inverse(U) / scale
    return rules.riccati(equation, U)


def _linearised_form() -> Step:
    return rules.linearise_form(Trace(r.T * M * r) / N, r, w, N)


s = MatrixSymbol("s", N, 1)
drive, distinct, assignment = MatrixSymbol("W_d", m, N), MatrixSymbol("Omega", P, m), MatrixSymbol("B_c", P, N)


def _overlap() -> Step:
    value = scale * W * s / N + T * w
    before = normal(Trace(s.T * W.T * r) - 2 * Trace(j.T * value) + LogDet(U))
    return rules.insert_overlap(before, value, MatrixSymbol("o", n, 1), MatrixSymbol("ohat", n, 1), -2 * N)


def _named_sum() -> Step:
    return rules.name_sum(3 * A * Z * M + 6 * B * M + B * U, MatrixSymbol("X", m, n), A * Z + 2 * B)


def _spins() -> Step:
    return rules.sum_over_spins(-2 * Trace(s.T * W.T * r) - Trace(j.T * W * s) + N * LogDet(U), s)


def _spin_covariance() -> Step:
    exponent = -2 * Trace(s.T * W.T * r) - Trace(j.T * W * s) + N * LogDet(U)
    return rules.covariance_over_spins(exponent, s, scale * V.T * s + y)


def _columns() -> Step:
    even = DiagMatrix((T * drive.T * y).applyfunc(Lambda(ENTRY, 1 - tanh(ENTRY) ** 2)))
    classes = MatrixSymbol("Xbar_c", P, n), MatrixSymbol("X_c", P, n), distinct
    return rules.gather_columns(scale / N * M * W * even * W.T, (W, drive), classes, assignment)


def _classes() -> Step:
    before = scale / N * W * entrywise(tanh, T * drive.T * y) + r
    return rules.gather_classes(before, (W, drive), (MatrixSymbol("C_c", P, n), distinct), assignment)


def _sloped() -> Step:
    before = Trace(r.T * M * w) - 3 * sum_of_column(entrywise(log_cosh, W.T * r + R * w)) / N
    return rules.slope(before, r)


def _sloped_through() -> Step:
    weights, mean, force = MatrixSymbol("p", m, 1), MatrixSymbol("x", n, 1), MatrixSymbol("F", n, 1)
    through = [(weights, Softmax(B * M * r + y)), (mean, Z.T * weights)]
    before = Trace(r.T * M * mean) + scale * sum_of_column(entrywise(log_cosh, W.T * mean))
    return rules.slope(before, r, through, {mean: force})


def _solved() -> Step:
    return rules.solve(2 * N * M * r - scale * W * entrywise(tanh, W.T * w) - w, r)


def _zero() -> Step:
    before = scale * W * entrywise(tanh, W.T * r + R * w) - 2 * W * entrywise(tanh, W.T * r) + M * w
    return rules.set_to_zero(before, w)


def _zero_in_a_number() -> Step:
    before = (
        3 * sum_of_column(entrywise(log_cosh, W.T * r + R * w))
        - sum_of_column(entrywise(log_cosh, W.T * r))
        + Trace(w.T * r)
    )
    return rules.set_to_zero(normal(before), w)


def _responded() -> Step:
    moved = {Z: y * (M * w).T, r: U * w, v: B * w}
    return rules.response(Z.T * Softmax(Z * r + v) + scale * W * entrywise(tanh, W.T * r), moved, w)


def _written_out() -> Step:
    return rules.write_out(scale * M * Softmax(B.T * y), {y: Z * r, scale: T * T})


def _abbreviated_in_functions() -> Step:
    product = MatrixSymbol("x", m, 1)
    weights = Softmax(A * Z * r)
    before = W * entrywise(tanh, drive.T * Z * r) + scale * Z.T * weights + Z.T * weights * weights.T * y
    return rules.abbreviate(before, {product: Z * r})


def _nonlinear(function, kernel) -> Step:
    """Units of two weights: their number is what the claim takes the mean over."""
    weights, inputs = MatrixSymbol("V", N, 2), MatrixSymbol("X", 2, m)
    hidden = entrywise(function, weights * inputs)
    read = hidden * Z
    kappa = positive_definite("kappa", m)
    of_tokens = kappa, kernel_matrix(kernel, inputs.T * inputs)
    return rules.gaussian_equivalence(Trace(M * read.T * read) / N, hidden, weights, of_tokens)


def _equivalent() -> Step:
    return _nonlinear(erf, lambda a, c, b: 2 / pi * asin(2 * c / sqrt((1 + 2 * a) * (1 + 2 * b))))


def _equivalent_relu() -> Step:
    def kernel(a, c, b):
        cosine = c / sqrt(a * b)
        return sqrt(a * b) * (cosine * (pi - acos(cosine)) + sqrt(Max(0, 1 - cosine**2))) / (2 * pi)

    return _nonlinear(lambda unit: Max(unit, 0), lambda a, c, b: kernel(a, Min(c, sqrt(a * b)), b))


RULES: dict[str, Callable[[], Step]] = {
    "linearise_square": _square,
    "linearise_form": _linearised_form,
    "unstack": _unstack,
    "name": _named,
    "split_into_rows": _rows,
    "split_into_rows with a skip connection": _rows_beside,
    "gaussian_average": _average,
    "gaussian_average of a linear form": _average_linear,
    "determinant_lemma": _lemma,
    "determinant_lemma of a sum": _lemma_of_sums,
    "woodbury": _woodbury,
    "invert_update": _inverted,
    "invert_update in a matrix": _inverted_matrix,
    "push_through": _pushed,
    "rescale": _rescaled,
    "rescale a matrix": _rescaled_matrix,
    "abbreviate": _abbreviated,
    "abbreviate in a matrix": _abbreviated_matrix,
    "sum_over_rows": _summed,
    "insert_order_parameter": _inserted,
    "insert_order_parameter in an inverse": _inserted_in_inverse,
    "gather_blocks": _gathered,
    "join_branches": _joined,
    "same_form": _same_form,
    "vectorise": _vectorise,
    "vectorise a single block": _vectorised_alone,
    "reduce_traces": _reduced,
    "write_as_number": _number,
    "leading_order": _leading,
    "drop_constants": _constants,
    "gaussian_density": _density,
    "gram_volume": _volume,
    "gram_volume with given rows": _volume_with_given,
    "source_derivative": _of_source,
    "source_derivative of second order": _of_source_twice,
    "eliminate": _eliminated,
    "constrain": _constrained,
    "derivative": _differentiated,
    "derivative of a source": _sourced,
    "linear_response": _response,
    "riccati": _riccati,
    "insert_overlap": _overlap,
    "name_sum": _named_sum,
    "sum_over_spins": _spins,
    "covariance_over_spins": _spin_covariance,
    "gather_classes": _classes,
    "gather_columns": _columns,
    "slope": _sloped,
    "slope through definitions": _sloped_through,
    "solve": _solved,
    "set_to_zero": _zero,
    "set_to_zero in a number": _zero_in_a_number,
    "response": _responded,
    "write_out": _written_out,
    "abbreviate in functions": _abbreviated_in_functions,
    "gaussian_equivalence": _equivalent,
    "gaussian_equivalence of a relu": _equivalent_relu,
}
