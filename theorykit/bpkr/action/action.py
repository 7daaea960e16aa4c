"""The symbolic action: expressions and their derivatives. An action is data, and nothing in it is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType

from sympy import Add, Expr, Identity, Inverse, MatrixSymbol, Poly, PolynomialError, Symbol, asinh, exp, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ... import saddle
from ...checks import checked_arguments, checked_instance
from ...derivation import Derivation, Step, solving
from ...derivation.claims import SameMoments
from ...saddle.action import Slopes
from ...saddle.domains import Positive, PositiveDefinite
from ...symbolic import (
    Diagonal,
    as_html,
    as_latex,
    as_markdown,
    gradient,
    kronecker,
    latex,
    positive_definite,
    positive_semidefinite,
    trace,
)
from ...symbolic.algebra import as_number, expand_products
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import align_environment
from ..specification.activations import stable_name
from ..specification.architecture import Architecture
from ..specification.layer_form import LayerForm, NetworkForm
from . import document
from .prior import FiniteWidthPrior, FirstOrder, expand_about_infinite_width, finite_width_prior, substitute_nested
from .symbols import ActionSymbols


@dataclass(frozen=True)
class Predictor:
    """Prediction of the network's outputs on test examples.

    - `mean`: mean, as a column (test labels x 1).
    - `covariance`: covariance (test labels x test labels).
    """

    mean: MatrixExpr
    covariance: MatrixExpr

    @property
    def variance(self) -> MatrixExpr:
        """The diagonal of the covariance, as a column."""
        return Diagonal(self.covariance)


@dataclass(frozen=True)
class Majoriser:
    """An upper bound on the energy for majorise-minimise, and the order parameters that minimise entropy plus bound.

    At a given U_1 = U_0, let G_+ be the gradient of the energy's log-determinant and -G_- the gradient of its misfit.
    The log-determinant is concave in U_1, so it lies below its tangent there. The misfit is concave in U_1^-1, so it
    lies below tr(U_0 G_- U_0 U_1^-1) up to a constant. The bound touches the energy at U_0.

    - `logdet_gradient`: symbol of G_+ (n_1 x n_1).
    - `weight`: symbol of U_0 G_- U_0 (n_1 x n_1).
    - `bound`: tr(G_+ U_1) + tr(weight U_1^-1), the bound up to a constant.
    - `minima`: the minimum in each order parameter, given the others, from U_1 to the readout. Empty if one of the
      minima has no closed form, as next to a skip connection.
    - `steps`: the step that solves the Riccati equation of U_1.
    """

    logdet_gradient: MatrixSymbol
    weight: MatrixSymbol
    bound: Expr
    minima: Mapping[Expr, Expr]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class KernelEnergy:
    """The energy E as a function of the kernel K (labels x labels): a log-determinant plus a misfit.

    - `resolvent`: (K + T I)^-1, the gradient of the log-determinant with respect to K.
    - `representer`: g^(1/2) (K + T I)^-1 y (labels x 1), where g is the power of the likelihood.
    """

    kernel: MatrixSymbol
    energy: Expr
    resolvent: MatrixExpr
    representer: MatrixExpr


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


@dataclass(frozen=True, eq=False, repr=False)
class Action(DisplayMixin):
    """The symbolic action S of the order parameters. Their posterior is proportional to exp(-S/2) (Eq. 32).

    Expressions use `symbols.order_parameters`, with the number u in place of U_{L+1} if there is one output.

    - `overlap_entropies`: `entropies` in the matrices `symbols.overlaps`.
    - `overlap_blocks`: `nested` in the matrices `symbols.overlaps`.
    - `energy`: E (Eq. 12).
    - `kernel`: K of the training examples (Eq. 10).
    - `predictor`: mean and variance of the outputs on test examples (Eqs. 9, 29, 30).
    - `derivation`: the steps of the derivation; `derivation.verify()` checks each.

    Example:
        >>> from theorykit import bpkr
        >>> action = bpkr.derive(bpkr.Architecture(layers=(2,), widths=10, temperature=0.1))
        >>> action.kernel
        Phi*(KroneckerProduct(U_1, I))*Phi.T
    """

    form: NetworkForm
    symbols: ActionSymbols
    overlap_entropies: tuple[Expr, ...]
    overlap_blocks: Mapping[MatrixSymbol, MatrixExpr]
    energy: Expr
    kernel: MatrixExpr
    predictor: Predictor
    derivation: Derivation

    def _view(self):
        return document.view(self)

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {latex(self.total)}$"

    def __getstate__(self):
        # Leave out cached properties, which follow from the fields.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def name_of_program(self) -> str | None:
        """Name of the expressions in names of compiled programs, or None if they contain Python code."""
        return stable_name(self.form)

    @property
    def forms(self) -> tuple[LayerForm, ...]:
        """The symbolic form of each layer."""
        return self.form.layers

    @property
    def ansatz(self) -> tuple[str, ...]:
        """Assumptions in words that are not exact in any limit; empty if hidden units are linear."""
        steps = (step for step in self.derivation.steps if isinstance(step.claim, SameMoments))
        return tuple(dict.fromkeys(assumption for step in steps for assumption in step.assumptions))

    @cached_property
    def entropies(self) -> tuple[Expr, ...]:
        """(S_1, ..., S_L, S_a), the entropy of each order parameter given the next."""
        pairs = zip(map(self._write_readout, self.overlap_entropies), self.symbols.widths, strict=True)
        return tuple(
            width * Add(*(expand(term / width) for term in Add.make_args(expand(entropy)))) for entropy, width in pairs
        )

    @cached_property
    def nested(self) -> Mapping[Expr, Expr]:
        """The block that each nested order parameter is, as an expression in the order parameter that contains it."""
        pairs = ((self.symbols.written[matrix], block) for matrix, block in self.overlap_blocks.items())
        return {symbol: block if symbol.is_Matrix else trace(block) for symbol, block in pairs}

    @property
    def entropy(self) -> Expr:
        """S_a + S_1 + ... + S_L, in the free order parameters."""
        return self.substitute_nested(Add(*self.entropies))

    @property
    def corrections(self) -> Expr:
        """Terms that the exact prior at finite width adds to the entropy, in the free order parameters."""
        return self.substitute_nested(self._write_readout(Add(*self.finite_width.corrections)))

    @property
    def total(self) -> Expr:
        """S = entropy + energy, in the free order parameters."""
        return Add(self.entropy, self.energy)  # Eq. (32)

    @cached_property
    def of_free_order_parameters(self) -> saddle.Action:
        """`total` as a `theorykit.saddle` action, with the domain of each free order parameter.

        `saddle.minimise` minimises it like any other action. `solve` uses the structure of the theory and is faster.
        """
        domains = {symbol: PositiveDefinite() if symbol.is_Matrix else Positive() for symbol in self.symbols.free}
        data = self.symbols.features, self.symbols.labels
        parameters = self.symbols.completed((*self.symbols.numbers, *data))
        return saddle.Action(self.total, domains, parameters, self.symbols.widths[-1], self.derivation)

    def substitute_nested(self, expression: Expr) -> Expr:
        """Replace every nested order parameter in `expression` by the block that it is."""
        return substitute_nested(checked_instance("expression", expression, Expr), self.nested)

    def _write_readout(self, expression: Expr) -> Expr:
        """Replace the matrix U_{L+1} in `expression` by u, if there is one output."""
        matrix, readout = self.symbols.overlaps[-1], self.symbols.readout
        return expression if readout == matrix else as_number(expression, matrix, readout)

    @property
    def order_parameter_shapes(self) -> Mapping[Expr, tuple[Expr, Expr]]:
        """The shape of each order parameter; (1, 1) for u."""
        return {symbol: matrix.shape for matrix, symbol in self.symbols.written.items()}

    @cached_property
    def saddle_point_equations(self) -> Mapping[Expr, Expr]:
        """The gradient of S with respect to each free order parameter, which vanishes at a saddle point."""
        return Slopes({symbol: self.substitute_nested(slope) for symbol, slope in self.named_slopes.items()})

    @cached_property
    def named_slopes(self) -> Mapping[Expr, Expr]:
        """`saddle_point_equations`, easier to read: nested order parameters keep their own names."""
        total = Add(*self.entropies, self.energy)
        slopes = {symbol: gradient(total, symbol) for symbol in self.symbols.order_parameters}
        # Chain rule, starting with the innermost block, because a block may contain another.
        for inner in reversed([symbol for symbol in slopes if symbol in self.nested]):
            block, slope = self.nested[inner], slopes.pop(inner)
            (container,) = set(self.symbols.order_parameters) & block.free_symbols
            if inner.is_Matrix:
                held = positive_definite("X", slope.shape[0])
                slopes[container] += gradient(trace(held * block), container).xreplace({held: slope})
            else:
                slopes[container] += slope * gradient(block, container)
        return Slopes({symbol: slopes[symbol] for symbol in self.symbols.free})

    @property
    def readout_solution(self) -> Expr:
        """The solution of the saddle-point equation for the readout order parameter u, given U_L."""
        readout = self.symbols.readout
        if readout not in self.closed_forms:
            raise ValueError(
                f"the saddle-point equation of {readout} has no closed-form solution for these layers; use bpkr.solve"
            )
        return self.closed_forms[readout]

    @cached_property
    def closed_forms(self) -> Mapping[Expr, Expr]:
        """The order parameters whose saddle-point equations have closed-form solutions, given their neighbours.

        The equation of a hidden layer without adjacent skip connections is a Riccati equation.
        """
        solved = {step.claim.variable: step.after for step in self._riccati_steps}
        for u in (symbol for symbol in self.symbols.free if isinstance(symbol, Symbol)):
            with suppress(PolynomialError):  # u may be inside a trace of an inverse
                a, b, minus_c = Poly(expand(self.saddle_point_equations[u] * u**2), u).all_coeffs()
                # Solves a u^2 + b u - c = 0, a, c > 0, without cancellation for any sign of b, like the Riccati form.
                solved[u] = sqrt(-minus_c / a) * exp(-asinh(b / (2 * sqrt(-a * minus_c))))
        return MappingProxyType(solved)

    @cached_property
    def _riccati_steps(self) -> tuple[Step, ...]:
        steps = []
        for symbol, equation in self.saddle_point_equations.items():
            if isinstance(symbol, MatrixSymbol) and not self.energy.has(symbol):
                with suppress(solving.RuleError):
                    steps.append(solving.riccati(equation, symbol, section="Closed forms"))
        return tuple(steps)

    @cached_property
    def majoriser(self) -> Majoriser:
        """The bound on the energy and closed-form minima for majorise-minimise steps."""
        u1, *others = self.symbols.free
        logdet_gradient, weight = (positive_definite(name, u1.shape[0]) for name in ("Gplus", "W"))
        bound, minima, steps = trace(logdet_gradient * u1) + trace(weight * Inverse(u1)), {}, ()
        if not self.nested and set(others) == set(self.closed_forms):
            with suppress(solving.RuleError):
                step = solving.riccati(gradient(Add(self.entropy, bound), u1), u1, section="Closed forms")
                minima, steps = {u1: step.after, **self.closed_forms}, (step,)
        return Majoriser(logdet_gradient, weight, bound, minima, steps)

    @cached_property
    def finite_width(self) -> FiniteWidthPrior:
        """The exact prior of the matrices `symbols.overlaps` at finite width, derived by the second route."""
        return finite_width_prior(self)

    @property
    def derivations(self) -> Mapping[str, Derivation]:
        """All derivations of this action, by name."""
        sweeps = (*self.majoriser.steps, *self._riccati_steps)
        return {
            "back-propagating kernel renormalisation": self.derivation,
            "finite width": self.finite_width.derivation,
            **({} if self.form.has_richness else {"expansion about infinite width": self.expansion.derivation}),
            **({"closed forms": Derivation(sweeps, self.derivation.sizes)} if sweeps else {}),
        }

    @property
    def route_differences(self) -> tuple[Expr, ...]:
        """Leading order of the exact prior minus each entropy; all zero, because the two routes agree."""
        pairs = zip(self.finite_width.leading, self.overlap_entropies, strict=True)
        return tuple(expand(leading - entropy) for leading, entropy in pairs)

    @cached_property
    def expansion(self) -> FirstOrder:
        """The matrices `symbols.overlaps` to first order in 1/N, in the standard parameterisation."""
        return expand_about_infinite_width(self)

    @cached_property
    def kernel_energy(self) -> KernelEnergy:
        """The energy as a function of the kernel K, and its derivatives.

        One factorisation serves all: K is the kernel, R is (K + T I)^-1, and v is (K + T I)^-1 y.
        """
        symbols, kernel = self.symbols, positive_definite("K", self.kernel.shape[0])
        energy = self.energy.xreplace({self.kernel: kernel})
        # At infinite width the energy has no log-determinant.
        misfit = Add(*(term for term in Add.make_args(energy) if term.has(symbols.labels)))
        (resolvent,) = misfit.atoms(Inverse)
        representer = gradient(misfit / sqrt(symbols.power), symbols.labels) / 2
        return KernelEnergy(kernel, energy, resolvent, representer)

    @cached_property
    def kernel_predictor(self) -> KernelPredictor:
        """The predictor as a function of kernels alone."""
        symbols, rows, test_rows = self.symbols, self.kernel.shape[0], self.symbols.test_features.shape[0]
        kernel, between = positive_definite("K", rows), MatrixSymbol("K_between", test_rows, rows)
        of_test, diagonal = positive_semidefinite("K_test", test_rows), MatrixSymbol("k_test", test_rows, 1)
        training, test = symbols.features, symbols.test_features
        weights = kronecker(symbols.first, Identity(symbols.input_features))

        def in_kernels(expression: MatrixExpr) -> MatrixExpr:
            written = expression.xreplace({self.kernel: kernel})
            written = written.subs(test * weights * training.T, between).subs(training * weights * test.T, between.T)
            return written.subs(test * weights * test.T, of_test)

        # Only the diagonal of K_test enters the variance.
        covariance = in_kernels(expand_products(symbols.power * self.predictor.covariance))
        alone = Add(*(term for term in Add.make_args(covariance) if term != of_test))
        variance = expand_products((diagonal + Diagonal(alone)) / symbols.power)
        return KernelPredictor(kernel, between, diagonal, in_kernels(self.predictor.mean), variance)


@checked_arguments
def render_latex(action: Action, steps: bool = False) -> str:
    """Write the action, its saddle-point equations and its predictor as LaTeX for `\\input` in an article.

    The article must load amsmath. Every equation has a label, is broken into lines that fit the text width, and cites
    its number in the paper. To write a complete article, use `theorykit derive --format latex`.

    Args:
        action: the action, as `derive` returns it.
        steps: also write headings, closed forms and every step. By default there is one `align` environment.

    Returns:
        The LaTeX source.
    """
    if steps:
        return as_latex(document.blocks(action, *document.USUAL, "derivation"), fragment=True)
    return align_environment(each for part in document.equations(action).values() for each in part)


@checked_arguments
def render_markdown(action: Action, architecture: Architecture | None = None) -> str:
    """Write the action as Markdown with headings.

    Args:
        action: the action, as `derive` returns it.
        architecture: also write the sizes of this architecture.

    Raises:
        ValueError: `action` was derived for different layers than `architecture` has.
    """
    return as_markdown(document.blocks(action, "title", "action", architecture=architecture))


@checked_arguments
def render_html(action: Action, architecture: Architecture | None = None) -> str:
    """Write the action, every step of its derivation and the checks as a self-contained HTML page.

    Args:
        action: the action, as `derive` returns it.
        architecture: also write the sizes of this architecture.

    Raises:
        ValueError: `action` was derived for different layers than `architecture` has.
    """
    blocks = document.blocks(action, *document.USUAL, "derivation", architecture=architecture)
    return as_html(blocks, document.definitions(action))
