"""The dual form: energy and predictor in feature space, where the data enter through their second moments alone.

Part of stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. With
W = U_1 (x) I the kernel is K = Phi W Phi^T, of as many rows as labels. By the determinant lemma, and the identities of
Woodbury and of pushing through, all of energy and predictor can be written with

    T W^{-1} + M,   M = Phi^T Phi,   b = Phi^T y,   y2 = y^T y,

of as many rows as Phi has columns: however many examples there are, they are summed once. Nothing cancels in the
gradients of this form, unlike M - M (T W^{-1} + M)^{-1} M, however large M is beside T W^{-1}.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sympy import Add, Expr, Identity, MatrixSymbol, Symbol, Trace
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Derivation, Recorder, rules
from ...symbolic import Diagonal, gradient, inverse, kronecker, positive_semidefinite, sum_of
from .symbols import ActionSymbols


@dataclass(frozen=True)
class DualForm:
    """Energy and predictor as functions of U_1, the temperature, and the second moments of features and labels.

    - `derivation`: every step, from the energy and the predictor in examples.
    - `gram`: M = Phi^T Phi (columns x columns), symmetric; `projection`: b = Phi^T y (columns x 1); `label_square`:
      y2 = y^T y; `examples`: P, their number.
    - `log_determinants`, `misfit`: the two parts of `energy`, their sum.
    - `logdet_gradient`: gradient of the first in U_1; `minus_misfit_gradient`: minus that of the second; both positive
      semidefinite.
    - `mean`, `variance`: of the outputs on test examples, as columns.
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
        return Add(self.log_determinants, self.misfit)

    @property
    def parts(self) -> Mapping[str, Expr]:
        """The energy and its two parts, by name."""
        return {"log_determinants": self.log_determinants, "misfit": self.misfit, "energy": self.energy}

    @property
    def statistics(self) -> tuple[Expr, ...]:
        """The symbols of the data: (M, b, y2, P)."""
        return (self.gram, self.projection, self.label_square, self.examples)


@dataclass(frozen=True)
class _Data:
    """What the forms are written in before (Phi, y) and after (M, b, y2), and W, the prior of the features' weights."""

    features: MatrixSymbol
    labels: MatrixSymbol
    temperature: Symbol
    weights: MatrixExpr
    gram: MatrixSymbol
    projection: MatrixSymbol
    label_square: Symbol

    @property
    def noise(self) -> MatrixExpr:
        """I/T, so that K + T I is its inverse and Phi W Phi^T."""
        return Identity(self.features.shape[0]) / self.temperature

    @property
    def small(self) -> MatrixExpr:
        """W^{-1} + Phi^T Phi/T."""
        return sum_of([inverse(self.weights), self.features.T * self.features / self.temperature])

    @property
    def moments(self) -> Mapping[MatrixSymbol | Symbol, Expr]:
        return {
            self.gram: self.features.T * self.features,
            self.projection: self.features.T * self.labels,
            self.label_square: Trace(self.labels.T * self.labels),
        }


def dual_form(
    energy: Expr,
    mean: MatrixExpr,
    covariance: MatrixExpr,
    symbols: ActionSymbols,
    sizes: Sequence[Mapping[Expr, int]],
) -> DualForm:
    """Write the energy, and mean and covariance of the outputs on test examples, in second moments of the data.

    Every step can be tried at each of `sizes`.
    """
    u1, columns = symbols.matrices[0], symbols.features.shape[1]
    data = _Data(
        features=symbols.features,
        labels=symbols.labels,
        temperature=symbols.temperature,
        weights=kronecker(u1, Identity(symbols.input_features)),
        gram=positive_semidefinite("M", columns),
        projection=MatrixSymbol("b", columns, 1),
        label_square=Symbol("y2", positive=True),
    )
    route = Recorder()
    log_determinants, misfit = _energy(route, energy, data)
    mean, covariance = _predictor(route, mean, covariance, data)
    return DualForm(
        derivation=Derivation(tuple(route.steps), tuple(sizes)),
        gram=data.gram,
        projection=data.projection,
        label_square=data.label_square,
        examples=symbols.labels.shape[0] / symbols.outputs,
        log_determinants=log_determinants,
        misfit=misfit,
        logdet_gradient=gradient(log_determinants, u1),
        minus_misfit_gradient=gradient(-misfit, u1),
        mean=mean,
        variance=Diagonal(covariance),
    )


def _energy(route: Recorder, energy: Expr, data: _Data) -> tuple[Expr, Expr]:
    """The energy's log-determinants, and its misfit."""
    route.section = "Dual energy"
    small = route.apply(rules.determinant_lemma, energy, data.noise, data.weights)
    small = route.apply(rules.invert_update, small, data.noise, data.weights)
    small = route.apply(rules.rescale, small, data.small, data.temperature)
    dual = route.apply(rules.abbreviate, small, data.moments)
    of_labels = (data.projection, data.label_square)
    return rules.terms_without(dual, *of_labels), rules.terms_with(dual, *of_labels)


def _predictor(route: Recorder, mean: MatrixExpr, covariance: MatrixExpr, data: _Data) -> tuple[MatrixExpr, MatrixExpr]:
    """Mean and covariance of the outputs on test examples."""
    route.section = "Dual predictor"
    gram, projection = ({symbol: data.moments[symbol]} for symbol in (data.gram, data.projection))
    small = route.apply(rules.push_through, mean, data.noise, data.weights)
    small = route.apply(rules.rescale, small, data.small, data.temperature)
    dual_mean = route.apply(rules.abbreviate, small, gram | projection)
    small = route.apply(rules.woodbury, covariance, data.noise, data.weights)
    small = route.apply(rules.rescale, small, data.small, data.temperature)
    return dual_mean, route.apply(rules.abbreviate, small, gram)
