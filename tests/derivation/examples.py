"""True steps of every kind, on small expressions, and the sizes to try them at."""

from sympy import (
    Identity,
    Interval,
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
    log,
    oo,
    pi,
    sqrt,
    tanh,
)
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix

from theorykit.derivation import Step, claims, solving
from theorykit.symbolic import Softmax, SquareRoot, entrywise, inverse, kronecker, log_cosh, positive_definite
from theorykit.symbolic.algebra import expand_products, simplify_traces
from theorykit.symbolic.atoms import LogDet, PartialTrace, PrincipalBlock, SideBySide
from theorykit.symbolic.matrix_functions import ENTRY, kernel_matrix, sum_of_column

I = S.ImaginaryUnit  # noqa: E741
k, m, n, N, P = (Symbol(name, integer=True, positive=True) for name in "kmnNP")
T, scale = Symbol("T", positive=True), Symbol("c", positive=True)
multiplier = Symbol("mu", real=True)
U, Q, J, G = (positive_definite(name, n) for name in "UQJG")
U_all = positive_definite("U_all", k * n)
U_both = positive_definite("U_both", n + k * n)
C, M = positive_definite("C", m), positive_definite("M", n)
y, f, t = (MatrixSymbol(name, m, 1) for name in "yft")
r, w, j = (MatrixSymbol(name, n, 1) for name in "rwj")
v = MatrixSymbol("v", m, 1)
V, R, Z = MatrixSymbol("V", N, m), MatrixSymbol("R", N, n), MatrixSymbol("Z", m, n)
B = MatrixSymbol("B", m, n)
A = MatrixSymbol("A", m, m)
W = MatrixSymbol("W", n, N)

SIZES = (
    {k: 2, m: 2, n: 2, N: 3, P: 2},
    {k: 2, m: 3, n: 1, N: 2, P: 3},
    {k: 1, m: 1, n: 3, N: 2, P: 2},
    {k: 3, m: 1, n: 2, N: 5, P: 1},
)

s = MatrixSymbol("s", N, 1)
drive, distinct, assignment = MatrixSymbol("W_d", m, N), MatrixSymbol("Omega", P, m), MatrixSymbol("B_c", P, N)
sums, columns, correlations = (MatrixSymbol(name, P, n) for name in ("Xbar_c", "X_c", "C_c"))
weights, mean, force = MatrixSymbol("p", m, 1), MatrixSymbol("x", n, 1), MatrixSymbol("F", n, 1)
column, by_paths = MatrixSymbol("z", n * m, 1), MatrixSymbol("W", k * n, N)


def _equivalence(function, kernel) -> Step:
    """Units of two weights: their number is what the claim takes the mean over."""
    weights, inputs, equivalent = MatrixSymbol("V", N, 2), MatrixSymbol("X", 2, m), MatrixSymbol("Vtilde", N, m)
    kappa = positive_definite("kappa", m)
    units, value = entrywise(function, weights * inputs), kernel_matrix(kernel, inputs.T * inputs)
    before, after = (Trace(M * (h * Z).T * (h * Z)) / N for h in (units, equivalent * SquareRoot(kappa)))
    return Step("equivalent units", before, after, claims.SameMoments(weights, equivalent, kappa, value))


def _relu_kernel(a, c, b):
    c = Min(c, sqrt(a * b))
    cosine = c / sqrt(a * b)
    return sqrt(a * b) * (cosine * (pi - acos(cosine)) + sqrt(Max(0, 1 - cosine**2))) / (2 * pi)


def _defined(rule, before, after, *definitions):
    """A step whose sides are equal if symbols have the values of `definitions`."""
    return rule, before, after, claims.Equal(definitions), "", (), definitions


def _tanh(column):
    return entrywise(tanh, column)


def _slope(column):
    """The derivative of tanh, entry by entry."""
    return column.applyfunc(Lambda(ENTRY, 1 - tanh(ENTRY) ** 2))


_OVERLAP = Z.T * C * Z / N
_LARGE, _SMALL = inverse(C) + Z * M * Z.T / N, inverse(M) + _OVERLAP
_PRECISION = inverse(scale * C) + A.T * A / N
_FIELD, _EXPONENT = W.T * r + W.T * j / 2, -2 * Trace(s.T * W.T * r) - Trace(j.T * W * s) + N * LogDet(U)
_BLOCKS, _BY_BLOCKS = kronecker(Identity(k), U), (n, k * n)
_TRACES = Trace(inverse(_BLOCKS) * U_all) / scale + LogDet(_BLOCKS) + Trace(BlockDiagMatrix(U, U_all) * U_both)
_SOFTMAX = Softmax(Z * r + v)
_OF_SOFTMAX = DiagMatrix(_SOFTMAX) - _SOFTMAX * _SOFTMAX.T
_MEAN = DiagMatrix(weights) - weights * weights.T

_PARTS = {
    "linearise_square": (
        "average",
        Trace((f - y).T * (f - y)) / T,
        2 * I * Trace(t.T * (f - y)),
        claims.Average(t, Identity(m) / T, of="after"),
    ),
    "linearise_form": (
        "average",
        Trace(r.T * M * r) / N,
        2 * I * Trace(w.T * r) / sqrt(N),
        claims.Average(w, M, of="after"),
    ),
    "sum_over_rows": (
        "all rows",
        Trace(r.T * M * r) / N + LogDet(U) + scale,
        Trace(M * R.T * R) / N + N * LogDet(U) + N * scale,
        claims.SumOverRows(((r, R),), N, "before"),
    ),
    "gaussian_average": (
        "average",
        Trace(v.T * A.T * A * v) / N + 2 * I * Trace(y.T * A * v) + Trace(r.T * M * r) + 3 * LogDet(U),
        LogDet(_PRECISION)
        + LogDet(C)
        + m * log(scale)
        + Trace(y.T * A * inverse(_PRECISION) * A.T * y)
        + Trace(r.T * M * r)
        + 3 * LogDet(U),
        claims.Average(v, scale * C),
    ),
    "gaussian_average of a linear form": (
        "average",
        2 * I * Trace(v.T * Z * r) / sqrt(N),
        Trace(r.T * Z.T * C * Z * r) / N,
        claims.Average(v, C),
    ),
    "woodbury": (
        "inverses",
        scale * Trace(r.T * M * Z.T * inverse(_LARGE) * Z * M * r) + LogDet(M),
        N * scale * (Trace(r.T * M * r) - Trace(r.T * inverse(_SMALL) * r)) + LogDet(M),
        claims.Equal(),
    ),
    "name": _defined(
        "named",
        2 * I * Trace(M * Z.T * C * Z) / N + Trace(Z.T * C * Z * U),
        2 * I * Trace(M * Q) + N * Trace(Q * U),
        (Q, _OVERLAP),
    ),
    "vectorise": (
        "columns",
        Trace(U * SideBySide(column, n).T * SideBySide(column, n)) / N,
        Trace(column.T * kronecker(U, Identity(m)) * column) / N,
        claims.Equal(),
    ),
    "reduce_traces": ("traces of smaller matrices", _TRACES, simplify_traces(_TRACES), claims.Equal()),
    "insert_order_parameter": (
        "order parameter",
        N * (LogDet(_SMALL) + LogDet(M)),
        N * LogDet(inverse(M) + U) + N * LogDet(M) + Trace(Q * Z.T * C * Z) - N * Trace(Q * U),
        claims.OrderParameterInserted(U, _OVERLAP, Q, N),
    ),
    "constrain": (
        "multiplier",
        N * (scale**2 * Trace(Q * PartialTrace(U_all, (k, n), 0)) - Trace(Q * U)) + LogDet(U_all) - LogDet(U),
        LogDet(U_all) - LogDet(U),
        claims.Stationary(U, scale**2 * PartialTrace(U_all, (k, n), 0), Q),
    ),
    "leading_order": (
        "leading order",
        (N - n - 1) * LogDet(U) + N * Trace(M * U) + 3 * Trace(M),
        N * LogDet(U) + N * Trace(M * U),
        claims.LeadingOrder(N),
    ),
    "drop_constants": (
        "constants dropped",
        N * LogDet(U) + Trace(M * U) + LogDet(M) + n * N,
        N * LogDet(U) + Trace(M * U),
        claims.EqualUpToConstant((U,)),
    ),
    "gaussian_density": (
        "density",
        Trace(j.T * M * j) / scale - Trace(j.T * j) + 2 * I * Trace(j.T * w),
        LogDet(M) - n * log(scale) + scale * Trace(w.T * inverse(M) * w),
        claims.Average(j, Identity(n)),
    ),
    "gram_volume": (
        "volume",
        N * LogDet(M) + Trace(W.T * inverse(M) * W),
        N * LogDet(M) + N * Trace(inverse(M) * U) - N * LogDet(U) + n * LogDet(U) + LogDet(U),
        claims.Volume(W, U, N, None),
    ),
    "gram_volume with given rows": (
        "volume",
        N * LogDet(_BLOCKS) + Trace(by_paths.T * inverse(_BLOCKS) * by_paths),
        N * LogDet(_BLOCKS)
        + N * Trace(inverse(_BLOCKS) * PrincipalBlock(U_both, _BY_BLOCKS, 1))
        - N * LogDet(U_both)
        + (n + k * n + 1) * LogDet(U_both)
        + (N - n - 1) * LogDet(U),
        claims.Volume(by_paths, U_both, N, U),
    ),
    "source_derivative": (
        "source",
        (Trace(j.T * M * j) + 2 * I * Trace(j.T * B.T * y)) / scale,
        B.T * y / scale,
        claims.Derivative(j, 1, -I / 2, at_zero=True),
    ),
    "derivative of a source": (
        "differentiated",
        LogDet(inverse(M) + 2 * J) - Trace(U * J * M),
        2 * inverse(inverse(M) + 2 * J) - U * M / 2 - M * U / 2,
        claims.Derivative(J),
    ),
    "solve": (
        "solved",
        2 * N * M * r - scale * W * _tanh(W.T * w) - w,
        expand_products(inverse(M) * (w + scale * W * _tanh(W.T * w)) / (2 * N)),
        claims.Solves(r),
    ),
    "sum_over_spins": (
        "sum over spins",
        _EXPONENT,
        N * LogDet(U) - 2 * N * log(2) - 2 * sum_of_column(entrywise(log_cosh, _FIELD)),
        claims.Average(s, claims.SPINS),
    ),
    "covariance_over_spins": (
        "covariance over spins",
        _EXPONENT,
        scale**2 * V.T * DiagMatrix(_slope(_FIELD)) * V,
        claims.Average(s, claims.SPINS, value=scale * V.T * s + y),
    ),
    "gather_classes": (
        "classes",
        scale / N * W * _tanh(T * drive.T * y) + r,
        scale * correlations.T * _tanh(T * distinct * y) + r,
        claims.Equal(((drive, distinct.T * assignment), (correlations, assignment * W.T / N)), assignment),
    ),
    "gather_columns": (
        "classes",
        scale / N * M * W * DiagMatrix(_slope(T * drive.T * y)) * W.T,
        scale * M * columns.T * DiagMatrix(_slope(T * distinct * y)) * sums,
        claims.Equal(
            ((drive, distinct.T * assignment), (W, columns.T * assignment), (sums, assignment * W.T / N)), assignment
        ),
    ),
    "slope": (
        "differentiated",
        Trace(r.T * M * w) - 3 * sum_of_column(entrywise(log_cosh, W.T * r + R * w)) / N,
        M * w - 3 * W * _tanh(W.T * r + R * w) / N,
        claims.Derivative(r),
    ),
    "slope through definitions": (
        "differentiated",
        Trace(r.T * M * mean) + scale * sum_of_column(entrywise(log_cosh, W.T * mean)),
        M * mean + expand_products(M * B.T * _MEAN * Z * force),
        claims.Derivative(
            r,
            definitions=(
                (weights, Softmax(B * M * r + y)),
                (mean, Z.T * weights),
                (force, M * r + scale * W * _tanh(W.T * mean)),
            ),
        ),
    ),
    "response": (
        "response",
        Z.T * _SOFTMAX + scale * W * _tanh(W.T * r),
        expand_products(
            Z.T * _OF_SOFTMAX * (Z * U + y * r.T * M + B) + scale * W * DiagMatrix(_slope(W.T * r)) * W.T * U
        )
        + Trace(_SOFTMAX.T * y) * M,
        claims.Derivative(w, definitions=((Z, Z + y * (M * w).T), (r, r + U * w), (v, v + B * w)), at_zero=True),
    ),
}

# The step of every example.
STEPS = {
    **{name: Step(*parts) for name, parts in _PARTS.items()},
    "eliminate": solving.eliminate(N * (LogDet(inverse(M) + Q) + LogDet(M) - Trace(U * Q)), Q),
    "eliminate a number": solving.eliminate(scale**2 * Trace(M) - 2 * scale * T + N, scale),
    "eliminate_constrained": solving.eliminate_constrained(Trace(Q * (2 * U - M)) + N * LogDet(U), Q, U),
    "eliminate_constrained of numbers": solving.eliminate_constrained(
        multiplier * (1 / scale - T) + scale**2 * T, multiplier, scale, {scale: Interval.open(0, oo)}
    ),
    "riccati": solving.riccati(
        N * inverse(M) - N * inverse(U) + 3 * inverse(U) - inverse(U) * G * inverse(U) / scale, U
    ),
    "gaussian_equivalence": _equivalence(erf, lambda a, c, b: 2 / pi * asin(2 * c / sqrt((1 + 2 * a) * (1 + 2 * b)))),
    "gaussian_equivalence of a relu": _equivalence(lambda unit: Max(unit, 0), _relu_kernel),
}


# Kinds of claims of identities and averages. A limit of large matrices contains code, and has its own test.
KINDS = {each for each in claims.Claim.__subclasses__() if each.__module__ == claims.__name__} - {claims.LargeSizeLimit}
