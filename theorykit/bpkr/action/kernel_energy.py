"""The energy as a function of the kernel, in symbols: one factorisation serves its value and every derivative.

All follows from the derived energy and kernel by differentiation and naming: K for the kernel, R for (K + T I)^-1, v
for (K + T I)^-1 y.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Add, Expr, Identity, Inverse, MatrixSymbol
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...symbolic import Diagonal, gradient, kronecker, normal, positive_definite, positive_semidefinite, trace
from .symbols import ActionSymbols


@dataclass(frozen=True)
class KernelCurvature:
    """The second derivative of E along two changes A and B of K.

    - `change`: A. `moves`: A R, A v and R A v by their symbols, to be computed once a change, not once a pair.
    - `others`: the symbols of B R, B v and R B v.
    - `value`: in these symbols alone.
    """

    change: MatrixSymbol
    moves: Mapping[MatrixSymbol, MatrixExpr]
    others: tuple[MatrixSymbol, ...]
    value: Expr


@dataclass(frozen=True)
class KernelEnergy:
    """The energy E, its gradients, and its curvature.

    - `kernel`: the symbol K. `energy`: E in K, its log-determinant plus its misfit.
    - `resolvent`: (K + T I)^-1, the gradient of the log-determinant in K. `representer`: (K + T I)^-1 y, half the
      gradient of the misfit in y. `minus_misfit_slope`: minus the gradient of the misfit in K.
    - `logdet_gradient`: gradient of the log-determinant in U_1; `minus_misfit_gradient`: minus that of the misfit; both
      positive semidefinite, written with `resolvent_symbol` and `representer_symbol`. The gradient of E is their
      difference.
    - `curvature`: its second derivative in K.
    - `path_kernel`: the derivative of K in one entry of U_1, the kernel of a pair of paths, in `path_features`, the
      features of either (rows x N_0).
    """

    kernel: MatrixSymbol
    energy: Expr
    resolvent: MatrixExpr
    representer: MatrixExpr
    minus_misfit_slope: MatrixExpr
    resolvent_symbol: MatrixSymbol
    representer_symbol: MatrixSymbol
    logdet_gradient: MatrixExpr
    minus_misfit_gradient: MatrixExpr
    curvature: KernelCurvature
    path_features: tuple[MatrixSymbol, MatrixSymbol]
    path_kernel: MatrixExpr


def kernel_energy(energy: Expr, kernel: MatrixExpr, symbols: ActionSymbols) -> KernelEnergy:
    """Write the derived `energy` in its `kernel`, and its derivatives in what it is solved for."""
    labels, u1 = symbols.labels, symbols.first
    symbol, resolvent_symbol = (positive_definite(name, kernel.shape[0]) for name in "KR")
    representer_symbol = MatrixSymbol("v", *labels.shape)
    in_kernel = energy.xreplace({kernel: symbol})
    terms = Add.make_args(in_kernel)
    misfit = Add(*(term for term in terms if term.has(labels)))
    log_determinant = Add(*(term for term in terms if not term.has(labels)))
    resolvent = gradient(log_determinant, symbol)

    def slope(part: Expr) -> MatrixExpr:
        in_u1 = gradient(part.xreplace({symbol: kernel}), u1)
        in_resolvent = in_u1.xreplace({resolvent.xreplace({symbol: kernel}): resolvent_symbol})
        in_resolvent = in_resolvent.subs(resolvent_symbol * labels, representer_symbol)
        return in_resolvent.subs(labels.T * resolvent_symbol, representer_symbol.T)

    # the kernel where U_1 is e e'^T, e and e' the unit vectors of two paths: F F'^T, F = Phi (e (x) I)
    features, columns = symbols.features, Identity(symbols.input_features)
    left, right = (MatrixSymbol(name, u1.shape[0], 1) for name in ("e", "e_other"))
    sides = tuple(MatrixSymbol(name, kernel.shape[0], symbols.input_features) for name in ("F", "F_other"))
    choose, choose_other = kronecker(left, columns), kronecker(right.T, columns)
    path_kernel = kernel.xreplace({u1: left * right.T})
    path_kernel = path_kernel.xreplace({kronecker(left * right.T, columns): choose * choose_other}).doit()
    path_kernel = path_kernel.subs(features * choose, sides[0]).subs(choose_other * features.T, sides[1].T)
    if path_kernel.has(left, right, features):
        raise NotImplementedError(f"the kernel {kernel} is not a sum over pairs of paths")
    return KernelEnergy(
        kernel=symbol,
        energy=in_kernel,
        resolvent=resolvent,
        representer=gradient(misfit, labels) / 2,
        minus_misfit_slope=-gradient(misfit, symbol),
        resolvent_symbol=resolvent_symbol,
        representer_symbol=representer_symbol,
        logdet_gradient=slope(log_determinant),
        minus_misfit_gradient=-slope(misfit),
        curvature=_curvature(in_kernel, symbol, labels, (resolvent, resolvent_symbol), representer_symbol),
        path_features=sides,
        path_kernel=path_kernel,
    )


def _curvature(energy, kernel, labels, solved, representer) -> KernelCurvature:
    """The gradient of the gradient: in X = A R and Y = B R, and then in what they make of y and v = R y."""
    resolvent = solved[1]
    changes = tuple(positive_semidefinite(name, kernel.shape[0]) for name in "AB")
    through = tuple(MatrixSymbol(f"{change}R", *kernel.shape) for change in changes)
    first = trace(changes[0] * gradient(energy, kernel))
    second = trace(changes[1] * gradient(first, kernel)).xreplace(dict([solved]))
    unmoved = {change: of * Inverse(resolvent) for change, of in zip(changes, through, strict=True)}
    value = normal(second.xreplace(unmoved)).subs(labels.T * resolvent, representer.T)
    symbols = []
    for change, of in zip(changes, through, strict=True):
        moved, returned = (MatrixSymbol(name, *labels.shape) for name in (f"{change}v", f"R{change}v"))
        value = value.subs(of * labels, moved).subs(representer.T * of, returned.T)
        symbols.append((of, moved, returned))
    if value.has(resolvent, labels, representer):
        raise NotImplementedError(f"the energy {energy} has a second derivative in {kernel} that is not separated")
    change, (one, others) = changes[0], symbols
    moves = (change * resolvent, change * representer, resolvent * change * representer)
    return KernelCurvature(change, dict(zip(one, moves, strict=True)), others, value)


@dataclass(frozen=True)
class KernelPredictor:
    """Mean and variance of the outputs on test examples, in kernels alone.

    - `kernel`: the symbol K, among training examples. `between`: K of test examples with these. `test_diagonal`: the
      diagonal of K among test examples, as a column.
    """

    kernel: MatrixSymbol
    between: MatrixSymbol
    test_diagonal: MatrixSymbol
    mean: MatrixExpr
    variance: MatrixExpr


def kernel_predictor(
    mean: MatrixExpr, covariance: MatrixExpr, kernel: MatrixExpr, symbols: ActionSymbols
) -> KernelPredictor:
    """Write the derived mean and covariance of the outputs in kernels."""
    rows, test_rows = kernel.shape[0], symbols.test_features.shape[0]
    weights = kronecker(symbols.first, Identity(symbols.input_features))
    symbol, between = positive_definite("K", rows), MatrixSymbol("K_between", test_rows, rows)
    of_test, diagonal = positive_semidefinite("K_test", test_rows), MatrixSymbol("k_test", test_rows, 1)

    def in_kernels(expression: MatrixExpr) -> MatrixExpr:
        training, test = symbols.features, symbols.test_features
        written = expression.xreplace({kernel: symbol})
        written = written.subs(test * weights * training.T, between).subs(training * weights * test.T, between.T)
        written = written.subs(test * weights * test.T, of_test)
        if written.has(training, test):
            raise NotImplementedError(f"{expression} is not a function of kernels alone")
        return written

    # of K_test the diagonal alone enters
    alone = Add(*(term for term in Add.make_args(in_kernels(covariance)) if term != of_test))
    return KernelPredictor(symbol, between, diagonal, in_kernels(mean), diagonal + Diagonal(alone))
