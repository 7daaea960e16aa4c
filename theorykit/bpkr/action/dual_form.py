"""The dual form: energy and predictor in feature space, where the data enter through their second moments alone.

With W = U_1 (x) I the kernel is K = Phi W Phi^T, of as many rows as labels. By the determinant lemma, and the
identities of Woodbury and of pushing through, all of energy and predictor can be written with

    T W^{-1} + M,   M = Phi^T Phi,   b = Phi^T y,   y2 = y^T y,

of as many rows as Phi has columns: however many examples there are, they are summed once. Nothing cancels in the
gradients of this form, unlike M - M (T W^{-1} + M)^{-1} M, however large M is beside T W^{-1}.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sympy import Add, Expr, Identity, MatrixSymbol, Symbol, Trace
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...derivation import Derivation, Recorder, Step, rules
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
        """The energy: the sum of its two parts."""
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
    energy: Expr,
    mean: MatrixExpr,
    covariance: MatrixExpr,
    symbols: ActionSymbols,
    sizes: Sequence[Mapping[Expr, int]],
) -> DualForm:
    """Write the energy, and mean and covariance of the outputs on test examples, in second moments of the data.

    Every step can be tried at each of `sizes`.
    """
    features, labels, temperature, u1 = symbols.features, symbols.labels, symbols.temperature, symbols.first
    gram = positive_semidefinite("M", features.shape[1])
    projection, label_square = MatrixSymbol("b", features.shape[1], 1), Symbol("y2", positive=True)
    moments = {gram: features.T * features, projection: features.T * labels, label_square: Trace(labels.T * labels)}
    # K + T I is the inverse of the noise, and Phi W Phi^T
    noise, weights = Identity(features.shape[0]) / temperature, kronecker(u1, Identity(symbols.input_features))
    small = sum_of([inverse(weights), features.T * features / temperature])
    route = Recorder()

    def write(expression: Expr, rules_to_small: Sequence[Callable[..., Step]], named: Iterable[Expr]) -> Expr:
        for rule in rules_to_small:
            expression = route.apply(rule, expression, noise, weights)
        expression = route.apply(rules.rescale, expression, small, temperature)
        return route.apply(rules.abbreviate, expression, {symbol: moments[symbol] for symbol in named})

    route.section = "Dual energy"
    dual = write(energy, [rules.determinant_lemma, rules.invert_update], moments)
    log_determinants = rules.terms_without(dual, projection, label_square)
    misfit = rules.terms_with(dual, projection, label_square)
    route.section = "Dual predictor"
    mean = write(mean, [rules.push_through], [gram, projection])
    covariance = write(covariance, [rules.woodbury], [gram])
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
