"""The derived energy and predictor as symbolic functions of kernels.

One factorisation serves the energy and every derivative: K is the kernel, R is (K + T I)^-1, and v is (K + T I)^-1 y.
"""

from dataclasses import dataclass

from sympy import Add, Expr, Identity, Inverse, MatrixSymbol, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...symbolic import Diagonal, gradient, kronecker, positive_definite, positive_semidefinite
from ...symbolic.algebra import expand_products
from .symbols import ActionSymbols


@dataclass(frozen=True)
class KernelEnergy:
    """The energy E as a function of the kernel K (labels x labels): a log-determinant plus a misfit.

    - `resolvent`: (K + T I)^-1, the gradient of the log-determinant with respect to K.
    - `representer`: g^(1/2) (K + T I)^-1 y (labels x 1), where g is the power of the likelihood.
    - `minus_misfit_slope`: minus the gradient of the misfit with respect to K, positive semidefinite.
    """

    kernel: MatrixSymbol
    energy: Expr
    resolvent: MatrixExpr
    representer: MatrixExpr
    minus_misfit_slope: MatrixExpr


def kernel_energy(energy: Expr, kernel: MatrixExpr, symbols: ActionSymbols) -> KernelEnergy:
    """Write the derived `energy` and its gradient in terms of its `kernel`."""
    symbol = positive_definite("K", kernel.shape[0])
    in_kernel = energy.xreplace({kernel: symbol})
    # At infinite width the energy has no log-determinant.
    misfit = Add(*(term for term in Add.make_args(in_kernel) if term.has(symbols.labels)))
    (resolvent,) = misfit.atoms(Inverse)
    representer = gradient(misfit / sqrt(symbols.power), symbols.labels) / 2
    return KernelEnergy(symbol, in_kernel, resolvent, representer, -gradient(misfit, symbol))


@dataclass(frozen=True)
class KernelPredictor:
    """Mean and variance of the outputs on test examples, as functions of kernels alone.

    - `kernel`: symbol of K among training examples (labels x labels).
    - `between`: symbol of K between test and training examples (test labels x labels).
    - `test_diagonal`: symbol of the diagonal of K among test examples, as a column.
    """

    kernel: MatrixSymbol
    between: MatrixSymbol
    test_diagonal: MatrixSymbol
    mean: MatrixExpr
    variance: MatrixExpr


def kernel_predictor(
    mean: MatrixExpr, covariance: MatrixExpr, kernel: MatrixExpr, symbols: ActionSymbols
) -> KernelPredictor:
    """Write the derived mean and covariance of the outputs as functions of kernels."""
    rows, test_rows = kernel.shape[0], symbols.test_features.shape[0]
    weights = kronecker(symbols.first, Identity(symbols.input_features))
    covariance = expand_products(symbols.power * covariance)
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

    # Only the diagonal of K_test enters the variance.
    alone = Add(*(term for term in Add.make_args(in_kernels(covariance)) if term != of_test))
    variance = expand_products((diagonal + Diagonal(alone)) / symbols.power)
    return KernelPredictor(symbol, between, diagonal, in_kernels(mean), variance)
