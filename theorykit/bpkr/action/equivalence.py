"""Gaussian equivalence: nonlinear hidden units replaced by linear ones with the same covariance. An ansatz.

Part of stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. Given the weights above,
what is read of a layer of many hidden units phi(w.x) is taken to be Gaussian (a central limit theorem of Breuer and
Major, for examples in proportion to the width): they may then be replaced by linear units w.psi, whose features psi of
a token have the kernel of the nonlinear ones. Sources: Pacelli et al., Nature Machine Intelligence (2023), arXiv
2209.04882; of several layers the form with the kernels of the infinitely wide network in each other.
"""

from sympy import Expr, MatrixSymbol, Symbol, Trace
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Recorder, rules
from ...symbolic import entrywise, kernel_matrix, latex, positive_definite
from ..specification.activations import BETWEEN, OTHER, OWN, UNIT, Activation
from ..specification.network_form import NetworkForm
from .symbols import ActionSymbols

ASSUMPTION = (
    "an ansatz, not an identity: what is read of the ${width}$ nonlinear hidden units is Gaussian given the weights "
    "above, for examples in proportion to the width. It preserves mean and covariance of the outputs under the prior, "
    "and is an identity for linear units; at a fixed number of examples it is no better than infinite width"
)


def equivalent_linear_layers(route: Recorder, form: NetworkForm, symbols: ActionSymbols) -> None:
    """Record the replacement of every nonlinear layer, from the embedding on.

    The features X of the tokens that a layer takes are those of the equivalent linear units below it; the path
    features Phi are made of the last.
    """
    route.section = "Gaussian equivalence"
    for layer, activation in enumerate(form.activations):
        before, hidden, weights, inputs = _read(layer, activation.function, symbols)
        kappa = positive_definite(f"kappa_{layer}", inputs.shape[1])
        text = ASSUMPTION.format(width=latex(symbols.widths[layer]))
        kernel = kappa, kernel_of_covariance(activation, inputs.T * inputs)
        route.apply(rules.gaussian_equivalence, before, hidden, weights, kernel, assumptions=(text,))


def kernel_of_covariance(activation: Activation, covariance: MatrixExpr) -> MatrixExpr:
    """E[phi(g_s) phi(g_t)] of Gaussian numbers g of this covariance."""

    def kernel(own: Expr, between: Expr, other: Expr) -> Expr:
        return activation.kernel.xreplace({OWN: own, BETWEEN: between, OTHER: other})

    return kernel_matrix(kernel, covariance)


def _read(layer: int, function: Expr, symbols: ActionSymbols) -> tuple[Expr, MatrixExpr, MatrixSymbol, MatrixSymbol]:
    """tr(M R^T R)/N of what is read, R = phi(V X) G, of the hidden units phi(V X); these, V, and X."""
    width, readings, tokens = symbols.widths[layer], symbols.first.shape[0], Symbol("D", integer=True, positive=True)
    weights = MatrixSymbol(f"V_{layer}", width, symbols.input_features)
    inputs = MatrixSymbol(f"X_{layer}t", symbols.input_features, tokens)
    hidden = entrywise(lambda unit: function.xreplace({UNIT: unit}), weights * inputs)
    read = hidden * MatrixSymbol("G", tokens, readings)
    return Trace(positive_definite("M", readings) * read.T * read) / width, hidden, weights, inputs
