"""From an architecture to its action: the symbolic stage, in matrix expressions with symbolic sizes.

Stage 1 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function -> solve -> predict`. Equation
numbers are those of Tiberi et al., arXiv 2405.15926; names are listed in derivations/notation.md.
"""

from functools import lru_cache

from sympy import Expr, Identity, Inverse, KroneckerProduct, MatrixSymbol, Mul, Symbol
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..symbolic import Diagonal, log_det, partial_trace, positive_definite, quadratic_form, trace
from .action import Action, ActionSymbols, Predictor
from .architecture import Architecture


def derive(architecture: Architecture) -> Action:
    """The action of `architecture`, with symbolic sizes; Eqs. (10), (12), (32).

    The layer terms are stated; heads, widths and variances appear as symbols, so the action depends on the number of
    layers only.
    """
    return _with_heads(architecture.heads)


@lru_cache
def _with_heads(heads: tuple[int, ...]) -> Action:
    symbols = _symbols(len(heads))
    outer = (*symbols.matrices[1:], symbols.readout)
    layers = zip(symbols.heads, symbols.widths, symbols.variances, symbols.matrices, outer, strict=False)
    train_test = kernel_expression(symbols, symbols.features, symbols.test_features)
    regularised = kernel_expression(symbols, symbols.features) + symbols.temperature * Identity(symbols.labels.shape[0])
    return Action(
        heads=heads,
        symbols=symbols,
        layer_entropies=tuple(_layer_entropy(*layer) for layer in layers),
        readout_entropy=_readout_entropy(symbols.widths[-1], symbols.variances[-1], symbols.readout),
        energy=_energy(regularised, symbols.labels),
        kernel=kernel_expression(symbols, symbols.features),
        test_kernel=train_test,
        predictor=_predictor(symbols, regularised, train_test),
    )


def _symbols(depth: int) -> ActionSymbols:
    def size(name: str) -> Symbol:
        return Symbol(name, integer=True, positive=True)

    def positive(name: str) -> Symbol:
        return Symbol(name, positive=True)

    layers = range(1, depth + 1)
    heads = tuple(size(f"H_{layer}") for layer in layers)
    features = Mul(*heads) * size("N_0")
    return ActionSymbols(
        heads=heads,
        widths=tuple(positive(f"N_{layer}") for layer in (*layers, "a")),
        variances=tuple(positive(f"sigma2_{layer}") for layer in (*layers, "a")),
        temperature=positive("T"),
        matrices=tuple(positive_definite(f"U_{layer}", Mul(*heads[layer - 1 :])) for layer in layers),
        readout=positive("u"),
        features=MatrixSymbol("Phi", size("P"), features),
        labels=MatrixSymbol("y", size("P"), 1),
        test_features=MatrixSymbol("Phi_test", size("P_test"), features),
        input_features=size("N_0"),
    )


def _layer_entropy(heads: Symbol, width: Symbol, variance: Symbol, inner: MatrixSymbol, outer: Expr) -> Expr:
    """S_l of order parameter `inner` = U_l, given `outer` = U_{l+1}; the relative entropy to its Gaussian prior."""
    traced = partial_trace(inner, (heads, inner.shape[0] / heads), 0)
    mismatch = trace(Inverse(outer) * traced) if outer.is_Matrix else traced / outer
    return width * (mismatch / variance - log_det(inner) + heads * log_det(outer))  # Eq. (32), entropy of layer l


def _readout_entropy(width: Symbol, variance: Symbol, readout: Symbol) -> Expr:
    return width * (readout / variance - log_det(readout))  # Eq. (32), entropy of the readout


def kernel_expression(symbols: ActionSymbols, left: MatrixExpr, right: MatrixExpr | None = None) -> MatrixExpr:
    """K between the examples of two feature matrices (the same one where `right` is left out)."""
    mixing = KroneckerProduct(symbols.matrices[0], Identity(symbols.input_features))
    return left * mixing * (left if right is None else right).T  # Eq. (10)


def _energy(regularised_kernel: MatrixExpr, labels: MatrixSymbol) -> Expr:
    return log_det(regularised_kernel) + quadratic_form(labels, Inverse(regularised_kernel))  # Eq. (12)


def _predictor(symbols: ActionSymbols, regularised_kernel: MatrixExpr, train_test: MatrixExpr) -> Predictor:
    test_test = kernel_expression(symbols, symbols.test_features)
    return Predictor(
        mean=train_test.T * Inverse(regularised_kernel) * symbols.labels,  # Eqs. (9), (29)
        variance=Diagonal(test_test - train_test.T * Inverse(regularised_kernel) * train_test),  # Eq. (30)
    )
