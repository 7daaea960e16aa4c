"""The symbolic action: expressions, and what follows from them by differentiation. Data: nothing in it is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType

from sympy import Add, Expr, Inverse, MatrixSymbol, Poly, PolynomialError, Symbol, asinh, exp, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ... import saddle
from ...checks import checked_arguments, checked_instance
from ...derivation import Derivation, Step, rules
from ...derivation.claims import SameMoments
from ...saddle.domains import Positive, PositiveDefinite
from ...symbolic import as_html, as_latex, as_markdown, gradient, positive_definite, trace
from ...symbolic.algebra import as_number
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import align_environment
from ..specification.architecture import Architecture
from ..specification.layer_form import LayerForm, NetworkForm
from . import document
from .energy_forms import DualForm, KernelEnergy, KernelPredictor, dual_form, kernel_energy, kernel_predictor
from .prior import FiniteWidthPrior, FirstOrder, expand_about_infinite_width, finite_width_prior, substitute_nested
from .symbols import ActionSymbols


@dataclass(frozen=True)
class Predictor:
    """Mean and variance of the network's output on test examples, as columns."""

    mean: MatrixExpr
    variance: MatrixExpr


@dataclass(frozen=True)
class Majoriser:
    """Majorise-minimise: a bound of the energy, and the minimum of entropy plus bound in each order parameter.

    At a given U_1 = U_0 let G_+ be the gradient of the energy's log-determinant and G_- minus that of its misfit. The
    first is concave in U_1 and below its tangent; the second is a convex function of the inverse, and below tr(U_0 G_-
    U_0 U_1^-1) up to a constant. The bound touches the energy at U_0 with the same gradient.

    - `logdet_gradient`, `weight`: symbols of G_+ and of U_0 G_- U_0 (n_1 x n_1).
    - `bound`: tr(G_+ U_1) + tr(weight U_1^-1), the energy's bound up to a constant.
    - `minima`: from U_1 to the readout. Empty where some have no closed form, as beside a skip connection.
    - `steps`: the Riccati equation of U_1 and its solution.
    """

    logdet_gradient: MatrixSymbol
    weight: MatrixSymbol
    bound: Expr
    minima: Mapping[Expr, Expr]
    steps: tuple[Step, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Action(DisplayMixin):
    """The action S of the order parameters, symbolic: their posterior goes as exp(-S/2) (Eq. 32).

    - `overlap_entropies`, `overlap_blocks`: `entropies` and `nested` in the matrices `symbols.overlaps`; all else is in
      `symbols.order_parameters`, where the number u stands for U_{L+1} if there is one output.
    - `derivation`: the steps that led here; `derivation.verify()` checks each.
    """

    form: NetworkForm
    symbols: ActionSymbols
    overlap_entropies: tuple[Expr, ...]
    overlap_blocks: Mapping[MatrixSymbol, MatrixExpr]
    energy: Expr
    kernel: MatrixExpr
    test_kernel: MatrixExpr
    predictor: Predictor
    derivation: Derivation

    def _view(self):
        return document.view(self)

    def _repr_latex_(self) -> str:
        return self.total._repr_latex_()

    def __getstate__(self):
        # without what the properties below remember: it follows from the fields
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def forms(self) -> tuple[LayerForm, ...]:
        """What the theory reads off each layer."""
        return self.form.layers

    @property
    def ansatz(self) -> tuple[str, ...]:
        """What the action assumes that no limit makes exact, in words; empty where hidden units are linear."""
        steps = (step for step in self.derivation.steps if isinstance(step.claim, SameMoments))
        return tuple(dict.fromkeys(assumption for step in steps for assumption in step.assumptions))

    @cached_property
    def entropies(self) -> tuple[Expr, ...]:
        """(S_1, ..., S_L, S_a), each of one order parameter given the next."""
        pairs = zip(map(self._write_readout, self.overlap_entropies), self.symbols.widths, strict=True)
        return tuple(
            width * Add(*(expand(term / width) for term in Add.make_args(expand(entropy)))) for entropy, width in pairs
        )

    @cached_property
    def nested(self) -> Mapping[Expr, Expr]:
        """The order parameters that are a block of another, with the block."""
        pairs = ((self.symbols.written[matrix], block) for matrix, block in self.overlap_blocks.items())
        return {symbol: block if symbol.is_Matrix else trace(block) for symbol, block in pairs}

    @property
    def entropy(self) -> Expr:
        """S_a + S_1 + ... + S_L, in the free order parameters."""
        return self.substitute_nested(Add(*self.entropies))

    @property
    def corrections(self) -> Expr:
        """What the exact prior at finite width adds to the entropy, in the free order parameters."""
        return self.substitute_nested(self._write_readout(Add(*self.finite_width.corrections)))

    @property
    def total(self) -> Expr:
        """S, entropy plus energy, in the free order parameters."""
        return Add(self.entropy, self.energy)  # Eq. (32)

    @cached_property
    def of_free_order_parameters(self) -> saddle.Action:
        """`total` as `theorykit.saddle` takes any action: each free order parameter with its domain.

        `saddle.minimise` finds its minimum without knowing the theory; `solve` knows it and is faster.
        """
        domains = {symbol: PositiveDefinite() if symbol.is_Matrix else Positive() for symbol in self.symbols.free}
        data = self.symbols.features, self.symbols.labels
        parameters = self.symbols.completed((*self.symbols.numbers, *data))
        return saddle.Action(self.total, domains, parameters, self.symbols.widths[-1], self.derivation)

    def substitute_nested(self, expression: Expr) -> Expr:
        """`expression` with every nested order parameter written as the block that it is."""
        return substitute_nested(checked_instance("expression", expression, Expr), self.nested)

    def _write_readout(self, expression: Expr) -> Expr:
        """`expression` with u for the matrix U_{L+1}, if there is one output."""
        matrix, readout = self.symbols.overlaps[-1], self.symbols.readout
        return expression if readout == matrix else as_number(expression, matrix, readout)

    @property
    def order_parameter_shapes(self) -> Mapping[Expr, tuple[Expr, Expr]]:
        """The shape of each order parameter; that of u is (1, 1)."""
        return {symbol: matrix.shape for matrix, symbol in self.symbols.written.items()}

    @cached_property
    def saddle_point_equations(self) -> Mapping[Expr, Expr]:
        """For each free order parameter, the gradient of S that vanishes at a saddle point."""
        return MappingProxyType({symbol: self.substitute_nested(slope) for symbol, slope in self.named_slopes.items()})

    @cached_property
    def named_slopes(self) -> Mapping[Expr, Expr]:
        """`saddle_point_equations` with the nested order parameters under their own names, as they are read."""
        total = Add(*self.entropies, self.energy)
        slopes = {symbol: gradient(total, symbol) for symbol in self.symbols.order_parameters}
        # from the innermost on, by the chain rule: a block may contain another
        for inner in reversed([symbol for symbol in slopes if symbol in self.nested]):
            block, slope = self.nested[inner], slopes.pop(inner)
            (container,) = set(self.symbols.order_parameters) & block.free_symbols
            if inner.is_Matrix:
                held = positive_definite("X", slope.shape[0])
                slopes[container] += gradient(trace(held * block), container).xreplace({held: slope})
            else:
                slopes[container] += slope * gradient(block, container)
        return MappingProxyType({symbol: slopes[symbol] for symbol in self.symbols.free})

    @property
    def readout_solution(self) -> Expr:
        """The readout order parameter u eliminated: the solution of its saddle-point equation, given U_L."""
        readout = self.symbols.readout
        if readout not in self.closed_forms:
            raise ValueError(f"the saddle-point equation of {readout} has no closed form in these layers: solve it")
        return self.closed_forms[readout]

    @cached_property
    def closed_forms(self) -> Mapping[Expr, Expr]:
        """The order parameters that solve their own saddle-point equation in closed form, given their neighbours.

        The equation of a hidden layer without skip connections beside it is a Riccati equation.
        """
        solved = {step.claim.variable: step.after for step in self._riccati_steps}
        for u in (symbol for symbol in self.symbols.free if isinstance(symbol, Symbol)):
            with suppress(PolynomialError):  # a layer may have it inside a trace of an inverse
                a, b, minus_c = Poly(expand(self.saddle_point_equations[u] * u**2), u).all_coeffs()
                # of a u^2 + b u - c = 0, a, c > 0: nothing cancels whatever the sign of b, as in the Riccati form
                solved[u] = sqrt(-minus_c / a) * exp(-asinh(b / (2 * sqrt(-a * minus_c))))
        return MappingProxyType(solved)

    @cached_property
    def _riccati_steps(self) -> tuple[Step, ...]:
        steps = []
        for symbol, equation in self.saddle_point_equations.items():
            if isinstance(symbol, MatrixSymbol) and not self.energy.has(symbol):
                with suppress(rules.RuleError):
                    steps.append(rules.riccati(equation, symbol, section="Closed forms"))
        return tuple(steps)

    @cached_property
    def majoriser(self) -> Majoriser:
        """A bound of the energy, and closed forms of its minima, for majorise-minimise steps."""
        u1, *others = self.symbols.free
        logdet_gradient, weight = (positive_definite(name, u1.shape[0]) for name in ("Gplus", "W"))
        bound, minima, steps = trace(logdet_gradient * u1) + trace(weight * Inverse(u1)), {}, ()
        if not self.nested and set(others) == set(self.closed_forms):
            with suppress(rules.RuleError):
                step = rules.riccati(gradient(Add(self.entropy, bound), u1), u1, section="Closed forms")
                minima, steps = {u1: step.after, **self.closed_forms}, (step,)
        return Majoriser(logdet_gradient, weight, bound, minima, steps)

    @cached_property
    def finite_width(self) -> FiniteWidthPrior:
        """The exact prior of the matrices `symbols.overlaps` at finite width, by the second route."""
        return finite_width_prior(self.forms, self.symbols, self.derivation.sizes)

    @property
    def derivations(self) -> Mapping[str, Derivation]:
        """All derivations of this action, by name."""
        sweeps = (*self.majoriser.steps, *self._riccati_steps)
        return {
            "back-propagating kernel renormalisation": self.derivation,
            "finite width": self.finite_width.derivation,
            "expansion about infinite width": self.expansion.derivation,
            "dual form": self.dual.derivation,
            **({"closed forms": Derivation(sweeps, self.derivation.sizes)} if sweeps else {}),
        }

    @property
    def route_differences(self) -> tuple[Expr, ...]:
        """What the exact prior's leading order has beyond each entropy: zeros, as the two routes agree."""
        pairs = zip(self.finite_width.leading, self.overlap_entropies, strict=True)
        return tuple(expand(leading - entropy) for leading, entropy in pairs)

    @cached_property
    def expansion(self) -> FirstOrder:
        """The matrices `symbols.overlaps` to first order in one over the widths."""
        entropies, blocks, sizes = self.overlap_entropies, self.overlap_blocks, self.derivation.sizes
        return expand_about_infinite_width(self.forms, self.symbols, entropies, blocks, sizes)

    @cached_property
    def kernel_energy(self) -> KernelEnergy:
        """The energy as a function of the kernel K, its derivatives, and the kernel of a pair of paths."""
        return kernel_energy(self.energy, self.kernel, self.symbols)

    @cached_property
    def kernel_predictor(self) -> KernelPredictor:
        """The predictor as a function of kernels alone."""
        return kernel_predictor(self.predictor.mean, self.predictor.variance.matrix, self.kernel, self.symbols)

    @cached_property
    def dual(self) -> DualForm:
        """Energy and predictor in second moments of the data, for more examples than features."""
        covariance = self.predictor.variance.matrix
        return dual_form(self.energy, self.predictor.mean, covariance, self.symbols, self.derivation.sizes)


@checked_arguments
def render_latex(action: Action, steps: bool = False) -> str:
    """Write the action, its saddle-point equations and its predictor as LaTeX for `\\input` in an article.

    The article must load amsmath. Every equation has a label, is broken into lines that fit the text of an article, and
    names the equation of the source that it stands for. `theorykit derive --format latex` writes an article of its own.

    Args:
        action: The action to write.
        steps: Write headings, closed forms and every step of the derivation too; without, one `align` environment.
    """
    if steps:
        return as_latex(document.whole_document(action, steps=True), fragment=True)
    return align_environment(each for part in document.equations(action).values() for each in part)


@checked_arguments
def render_markdown(action: Action, architecture: Architecture | None = None) -> str:
    """Write the same as Markdown, with headings, and the layers and sizes of `architecture` if that is given.

    Raises `ValueError` for an architecture that `action` is not of.
    """
    return as_markdown(document.action_blocks(action, _of_action(architecture, action)))


@checked_arguments
def render_html(action: Action, architecture: Architecture | None = None) -> str:
    """Write the action with every step of its derivation, checked, as an HTML page that needs nothing else.

    Raises `ValueError` for an architecture that `action` is not of.
    """
    blocks = document.whole_document(action, _of_action(architecture, action), steps=True)
    return as_html(blocks, document.definitions(action))


def _of_action(architecture: Architecture | None, action: Action) -> Architecture | None:
    if architecture is not None and architecture.forms != action.forms:
        raise ValueError("architecture has other layers than those that action was derived for")
    return architecture
