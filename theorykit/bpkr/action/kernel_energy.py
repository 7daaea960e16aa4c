"""The energy as a function of the kernel, in symbols: one factorisation serves its value and every gradient.

Part of stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. All
follows from the derived energy by naming: K for the kernel, R for (K + T I)^-1, v for (K + T I)^-1 y.
"""

from dataclasses import dataclass

from sympy import Add, Expr, MatrixSymbol
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...symbolic import gradient, positive_definite


@dataclass(frozen=True)
class KernelEnergy:
    """The energy E and its gradients.

    - `kernel`: the symbol K. `energy`: E in K, its log-determinant plus its misfit.
    - `resolvent`: (K + T I)^-1, the gradient of the log-determinant in K. `representer`: (K + T I)^-1 y, half the
      gradient of the misfit in y.
    - `logdet_gradient`: gradient of the log-determinant in U_1; `minus_misfit_gradient`: minus that of the misfit; both
      positive semidefinite, written with `resolvent_symbol` and `representer_symbol`. The gradient of E is their
      difference.
    """

    kernel: MatrixSymbol
    energy: Expr
    resolvent: MatrixExpr
    representer: MatrixExpr
    resolvent_symbol: MatrixSymbol
    representer_symbol: MatrixSymbol
    logdet_gradient: MatrixExpr
    minus_misfit_gradient: MatrixExpr


def kernel_energy(energy: Expr, kernel: MatrixExpr, variable: MatrixSymbol, labels: MatrixSymbol) -> KernelEnergy:
    """Write the derived `energy` in its kernel, and its gradient in `variable` in what the gradients in K and y are."""
    symbol = positive_definite("K", kernel.shape[0])
    resolvent_symbol = positive_definite("R", kernel.shape[0])
    representer_symbol = MatrixSymbol("v", *labels.shape)
    in_kernel = energy.xreplace({kernel: symbol})
    misfits = [term for term in Add.make_args(in_kernel) if term.has(labels)]
    log_determinants = Add(*(term for term in Add.make_args(in_kernel) if not term.has(labels)))
    resolvent = gradient(log_determinants, symbol)
    representer = gradient(Add(*misfits), labels) / 2
    named = {resolvent.xreplace({symbol: kernel}): resolvent_symbol}

    def slope(part: Expr) -> MatrixExpr:
        in_resolvent = gradient(part.xreplace({symbol: kernel}), variable).xreplace(named)
        in_resolvent = in_resolvent.subs(resolvent_symbol * labels, representer_symbol)
        return in_resolvent.subs(labels.T * resolvent_symbol, representer_symbol.T)

    return KernelEnergy(
        kernel=symbol,
        energy=in_kernel,
        resolvent=resolvent,
        representer=representer,
        resolvent_symbol=resolvent_symbol,
        representer_symbol=representer_symbol,
        logdet_gradient=slope(log_determinants),
        minus_misfit_gradient=-slope(Add(*misfits)),
    )
