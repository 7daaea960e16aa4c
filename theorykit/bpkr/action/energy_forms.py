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

from ...derivation import Derivation, Recorder
from ...derivation.claims import Equal
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
    features, labels, temperature, u1 = symbols.features, symbols.labels, symbols.temperature, symbols.first
    gram = positive_semidefinite("M", features.shape[1])
    projection, label_square = MatrixSymbol("b", features.shape[1], 1), Symbol("y2", positive=True)
    moments = {gram: features.T * features, projection: features.T * labels, label_square: Trace(labels.T * labels)}
    weights = kronecker(u1, Identity(symbols.input_features))
    small = sum_of([inverse(weights), features.T * features / temperature])  # W^-1 + M/T
    scaled = expand_products(temperature * small)
    named = sum_of([temperature * inverse(weights), gram])  # T W^-1 + M
    route, power = Recorder(section="Dual energy"), symbols.power
    say = route.say

    def rescale(before: Expr, after: Expr, final: Expr, *symbols: Expr) -> Expr:
        """Go from functions of W^-1 + M/T to functions of T W^-1 + M, and name the moments of the data."""
        defined = tuple((symbol, moments[symbol]) for symbol in symbols)
        rescaled = say("rescaled", before, after, Equal())
        return say("named", rescaled, final, Equal(defined), definitions=defined)

    # The log-determinant is 0 at infinite width.
    misfit = Add(*(term for term in Add.make_args(energy) if term.has(labels)))
    of_weights, of_noise = log_det(weights), labels.shape[0] * log(temperature)
    of_scale = -features.shape[1] * log(temperature)
    determinants = [of_weights + log_det(small) + of_noise, of_weights + log_det(scaled) + of_noise + of_scale]
    determinants = [normal(each) if energy.has(LogDet) else S.Zero for each in (*determinants, determinants[1])]
    log_determinants = determinants[2].xreplace({log_det(scaled): log_det(named)})
    lemma = say("matrix determinant lemma", energy, determinants[0] + misfit, Equal())
    squares = power * Trace(labels.T * labels) / temperature
    explained = power * Trace(labels.T * features * inverse(small) * features.T * labels) / temperature**2
    inverted = say("Woodbury identity", lemma, determinants[0] + squares - explained, Equal())
    explained = power * Trace(labels.T * features * inverse(scaled) * features.T * labels) / temperature
    misfit = power * (label_square / temperature - Trace(projection.T * inverse(named) * projection) / temperature)
    misfit = expand(misfit)
    rescale(inverted, determinants[1] + squares - explained, log_determinants + misfit, gram, projection, label_square)

    route.section, tested = "Dual predictor", symbols.test_features
    after = tested * inverse(small) * features.T * labels / temperature
    pushed = say("push-through identity", mean, after, Equal())
    after = tested * inverse(scaled) * features.T * labels
    mean = rescale(pushed, after, tested * inverse(named) * projection, gram, projection)
    after = tested * inverse(small) * tested.T / power
    inverted = say("Woodbury identity", covariance, after, Equal())
    after, final = (temperature * tested * inverse(matrix) * tested.T / power for matrix in (scaled, named))
    covariance = rescale(inverted, after, final, gram)
    return DualForm(
        derivation=Derivation(tuple(route.steps), tuple(sizes)),
        gram=gram,
        projection=projection,
        label_square=label_square,
        examples=symbols.examples,
        log_determinants=log_determinants,
        misfit=misfit,
        logdet_gradient=gradient(log_determinants, u1),
        minus_misfit_gradient=gradient(-misfit, u1),
        mean=mean,
        variance=Diagonal(covariance),
    )
