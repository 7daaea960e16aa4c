"""The derived energy and predictor as symbolic functions of kernels, and of the second moments of the data.

In terms of kernels, one factorisation serves the energy and every derivative: K is the kernel, R is (K + T I)^-1, and v
is (K + T I)^-1 y. The dual form is in feature space. With W = U_1 (x) I the kernel is K = Phi W Phi^T, which has one
row per label. By the determinant lemma, the Woodbury identity and the push-through identity, all results can be written
with

    T W^{-1} + M,   M = Phi^T Phi,   b = Phi^T y,   y2 = y^T y,

where M has as many rows as Phi has columns. The sum over examples is computed once. Even if M is much larger than
T W^{-1}, the gradients have no cancellation, unlike M - M (T W^{-1} + M)^{-1} M.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sympy import Add, Expr, Identity, Inverse, MatrixSymbol, S, Symbol, Trace, ZeroMatrix, expand, log, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Derivation, Recorder, claims
from ...symbolic import (
    Diagonal,
    gradient,
    inverse,
    kronecker,
    log_det,
    normal,
    positive_definite,
    positive_semidefinite,
    sum_of,
)
from ...symbolic.algebra import expand_products
from ...symbolic.atoms import LogDet
from .symbols import ActionSymbols


@dataclass(frozen=True)
class KernelEnergy:
    """The energy E as a function of the kernel K (labels x labels): a log-determinant plus a misfit.

    - `resolvent`: (K + T I)^-1, the gradient of the log-determinant with respect to K.
    - `representer`: g^(1/2) (K + T I)^-1 y (labels x 1), where g is the power of the likelihood; v v^T is minus the
      gradient of the misfit with respect to K.
    - `minus_misfit_slope`: minus the gradient of the misfit with respect to K.
    - `resolvent_symbol`, `representer_symbol`: symbols R and v that stand for them in the two gradients.
    - `logdet_gradient`: the gradient of the log-determinant with respect to U_1, positive semidefinite.
    - `minus_misfit_gradient`: minus the gradient of the misfit with respect to U_1, positive semidefinite.
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


def kernel_energy(energy: Expr, kernel: MatrixExpr, symbols: ActionSymbols) -> KernelEnergy:
    """Write the derived `energy` in terms of its `kernel`, and the gradients in terms of resolvent and representer."""
    labels, u1 = symbols.labels, symbols.first
    symbol, resolvent_symbol = (positive_definite(name, kernel.shape[0]) for name in "KR")
    representer_symbol = MatrixSymbol("v", *labels.shape)
    in_kernel = energy.xreplace({kernel: symbol})
    terms = Add.make_args(in_kernel)
    misfit = Add(*(term for term in terms if term.has(labels)))
    log_determinant = Add(*(term for term in terms if not term.has(labels)))
    # At infinite width the energy has no log-determinant.
    (resolvent,) = misfit.atoms(Inverse)

    def slope(part: Expr) -> MatrixExpr:
        in_u1 = gradient(part.xreplace({symbol: kernel}), u1)
        in_resolvent = in_u1.xreplace({resolvent.xreplace({symbol: kernel}): resolvent_symbol})
        in_resolvent = in_resolvent.subs(resolvent_symbol * labels, representer_symbol)
        return in_resolvent.subs(labels.T * resolvent_symbol, representer_symbol.T)

    return KernelEnergy(
        kernel=symbol,
        energy=in_kernel,
        resolvent=resolvent,
        representer=gradient(misfit / sqrt(symbols.power), labels) / 2,
        minus_misfit_slope=-gradient(misfit, symbol),
        resolvent_symbol=resolvent_symbol,
        representer_symbol=representer_symbol,
        logdet_gradient=slope(log_determinant) if log_determinant else ZeroMatrix(*u1.shape),
        minus_misfit_gradient=-slope(expand(misfit / symbols.power)),
    )


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


@dataclass(frozen=True)
class DualForm:
    """Energy and predictor as functions of U_1, the temperature, and the second moments of features and labels.

    - `gram`: symbol of M = Phi^T Phi (columns x columns).
    - `projection`: symbol of b = Phi^T y (columns x 1).
    - `label_square`: symbol of y2 = y^T y.
    - `examples`: symbol of the number of examples P.
    - `log_determinants`, `misfit`: the two parts of the energy.
    - `logdet_gradient`: the gradient of the log-determinants with respect to U_1, positive semidefinite.
    - `minus_misfit_gradient`: minus the gradient of the misfit with respect to U_1, positive semidefinite.
    - `mean`, `variance`: mean and variance of the outputs on test examples, as columns.
    """

    derivation: Derivation
    gram: MatrixSymbol
    projection: MatrixSymbol
    label_square: Symbol
    examples: Symbol
    log_determinants: Expr
    misfit: Expr
    logdet_gradient: MatrixExpr
    minus_misfit_gradient: MatrixExpr
    mean: MatrixExpr
    variance: MatrixExpr

    @property
    def energy(self) -> Expr:
        """The energy E: `log_determinants` plus `misfit`."""
        return Add(self.log_determinants, self.misfit)

    @property
    def parts(self) -> Mapping[str, Expr]:
        """The energy and its two parts, by name."""
        return {"log_determinants": self.log_determinants, "misfit": self.misfit, "energy": self.energy}

    @property
    def statistics(self) -> tuple[Expr, ...]:
        """The symbols of the data: (M, b, y2, P)."""
        return (self.gram, self.projection, self.label_square, self.examples)


def dual_form(
    energy: Expr, mean: MatrixExpr, covariance: MatrixExpr, symbols: ActionSymbols, sizes: Sequence[Mapping[Expr, int]]
) -> DualForm:
    """Write energy, mean and covariance in second moments of the data. Every step can be tested at each of `sizes`."""
    features, tested, y, u1 = symbols.features, symbols.test_features, symbols.labels, symbols.first
    temperature, power, columns = symbols.temperature, symbols.power, features.shape[1]
    gram, projection = positive_semidefinite("M", columns), MatrixSymbol("b", columns, 1)
    label_square, read = Symbol("y2", positive=True), features.T * y
    moments = {gram: features.T * features, projection: read, label_square: Trace(y.T * y)}
    weights = kronecker(u1, Identity(symbols.input_features))
    small = sum_of([inverse(weights), features.T * features / temperature])  # W^-1 + M/T
    scaled = expand_products(temperature * small)
    named = sum_of([temperature * inverse(weights), gram])  # T W^-1 + M
    route = Recorder()

    def state(expression: Expr, *steps: tuple) -> Expr:
        """State steps of their rule, the expression after them, and the moments that they name."""
        for rule, after, *symbols in steps:
            defined = tuple((symbol, moments[symbol]) for symbol in symbols)
            expression = route.say(rule, expression, after, claims.Equal(defined), definitions=defined)
        return expression

    def log_determinants(matrix: MatrixExpr, scale: Expr) -> Expr:
        # logdet W + logdet(matrix / scale) + P log T, or 0 at infinite width
        value = log_det(weights) + log_det(matrix) - columns * log(scale) + y.shape[0] * log(temperature)
        return normal(value) if energy.has(LogDet) else S.Zero

    def misfit(matrix: MatrixExpr, scale: Expr, square: Expr, read: MatrixExpr) -> Expr:
        # g (y^T y - b^T (T matrix / scale)^-1 b) / T
        return expand(power * (square - scale / temperature * Trace(read.T * inverse(matrix) * read)) / temperature)

    of_labels = Add(*(term for term in Add.make_args(energy) if term.has(y)))
    squares, of_small, of_scaled = Trace(y.T * y), log_determinants(small, S.One), log_determinants(scaled, temperature)
    dual, dual_misfit = log_determinants(named, temperature), misfit(named, temperature, label_square, projection)
    route.section = "Dual energy"
    state(
        energy,
        ("matrix determinant lemma", of_small + of_labels),
        ("Woodbury identity", of_small + misfit(small, S.One, squares, read)),
        ("rescaled", of_scaled + misfit(scaled, temperature, squares, read)),
        ("named", dual + dual_misfit, *moments),
    )
    route.section = "Dual predictor"
    mean = state(
        mean,
        ("push-through identity", tested * inverse(small) * read / temperature),
        ("rescaled", tested * inverse(scaled) * read),
        ("named", tested * inverse(named) * projection, gram, projection),
    )
    covariance = state(
        covariance,
        ("Woodbury identity", tested * inverse(small) * tested.T / power),
        ("rescaled", temperature * tested * inverse(scaled) * tested.T / power),
        ("named", temperature * tested * inverse(named) * tested.T / power, gram),
    )
    return DualForm(
        derivation=Derivation(tuple(route.steps), tuple(sizes)),
        gram=gram,
        projection=projection,
        label_square=label_square,
        examples=symbols.examples,
        log_determinants=dual,
        misfit=dual_misfit,
        logdet_gradient=gradient(dual, u1),
        minus_misfit_gradient=gradient(-dual_misfit, u1),
        mean=mean,
        variance=Diagonal(covariance),
    )
